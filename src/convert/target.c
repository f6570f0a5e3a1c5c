/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/target.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Cheapest first. Those below the mark need an importance matrix. */
static const tensor_type with_importance[] = { TENSOR_IQ1_S, TENSOR_IQ1_M,   TENSOR_IQ2_XXS, TENSOR_IQ2_XS,
                                               TENSOR_IQ2_S, TENSOR_IQ3_XXS, TENSOR_IQ3_S,   TENSOR_IQ4_XS,
                                               TENSOR_Q4_K,  TENSOR_Q5_K,    TENSOR_Q6_K,    TENSOR_Q8_0 };
static const tensor_type without[] = { TENSOR_Q2_K, TENSOR_Q3_K, TENSOR_IQ4_XS, TENSOR_Q4_K,
                                       TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_Q8_0 };
/* For rows that are not whole blocks of 256. */
static const tensor_type short_rows[] = { TENSOR_IQ4_NL, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0 };

enum { MAX_CHOICES = 12, SAMPLE_ROWS = 24 };

typedef struct candidate {
    size_t             at; /* tensor */
    const tensor_type *types;
    int                n, is; /* is: the choice now */
    double             bits[MAX_CHOICES], damage[MAX_CHOICES];
    double             weight;
} candidate;

typedef struct search {
    const model_file       *in;
    const quantize_options *o;
    candidate              *c;
    size_t                  n;
    size_t                  longest; /* row */
    float                  *scratch; /* per worker: a row, it decoded again */
    uint8_t                *coded;
    atomic_size_t           next;
} search;

static int64_t rows_of(const model_tensor *t) {
    int64_t rows = 1;
    for (int d = 1; d < t->n_dims; d++) rows *= t->dims[d];
    return rows;
}

/* The part of the energy of sampled rows that a type turns into noise. */
static double measure(const search *s, const model_tensor *t, tensor_type type, float *x, uint8_t *coded) {
    int64_t      cols = t->dims[0], rows = rows_of(t), step = rows / SAMPLE_ROWS;
    float       *y = x + s->longest;
    const float *all = s->o->importance ? imatrix_find(s->o->importance, t->name, cols, t->dims[2]) : NULL;
    double       noise = 0, energy = 0;
    size_t       row_bytes;
    if (step < 1) step = 1;
    if (!tensor_row_bytes((int)t->type, cols, &row_bytes)) return INFINITY;
    for (int64_t r = step / 2; r < rows; r += step) {
        const float *q = all ? all + (t->dims[2] > 1 ? r / t->dims[1] * cols : 0) : NULL;
        tensor_dequant_row((int)t->type, t->data + (size_t)r * row_bytes, x, cols);
        if (!tensor_quant_row_weighted((int)type, x, q, coded, cols)) return INFINITY;
        tensor_dequant_row((int)type, coded, y, cols);
        for (int64_t i = 0; i < cols; i++) {
            double w = q ? (double)q[i] : 1, d = (double)x[i] - (double)y[i];
            noise += w * d * d;
            energy += w * (double)x[i] * (double)x[i];
        }
    }
    return energy > 0 ? noise / energy : 0;
}

static void measure_all(void *ctx, int worker, int n_workers) {
    search  *s = ctx;
    float   *x = s->scratch + (size_t)worker * 2 * s->longest;
    uint8_t *coded = s->coded + (size_t)worker * 4 * s->longest;
    size_t   i;
    (void)n_workers;
    while ((i = atomic_fetch_add(&s->next, 1)) < s->n * MAX_CHOICES) {
        candidate *c = &s->c[i / MAX_CHOICES];
        int        k = (int)(i % MAX_CHOICES);
        if (k < c->n) c->damage[k] = c->weight * measure(s, model_file_tensor_at(s->in, c->at), c->types[k], x, coded);
    }
}

/*
 * How much noise in the output of a matrix counts: the divergence of the whole model when matrices of one kind alone are
 * quantized, over the noise that this makes in them, measured with the demo. The last product's noise is in the logits as
 * it is. Products that write into the stream of activations, and values, which go through one such product only, are heard
 * by everything behind them; queries and keys only decide where to look, and softmax forgives. The noise of ffn_down is
 * measured small, since few columns hold most of its importance.
 */
static double weight_of(const char *name) {
    static const struct {
        const char *part;
        double      weight;
    } parts[] = { { ".ffn_down", 15 },   { ".attn_v.", 3.5 }, { ".attn_output.", 1.75 },
                  { ".ffn_gate.", 1.5 }, { ".attn_q.", 0.5 }, { ".attn_k.", 0.5 } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i].part)) return parts[i].weight;
    return 1;
}
enum { HEAD = 225 };

static void choices(candidate *c, const model_tensor *t, const char *head, bool importance) {
    size_t bytes;
    c->types = importance ? with_importance : without;
    c->n =
        importance ? (int)(sizeof with_importance / sizeof *with_importance) : (int)(sizeof without / sizeof *without);
    if (!tensor_row_bytes(TENSOR_Q4_K, t->dims[0], &bytes)) {
        c->types = short_rows;
        c->n = (int)(sizeof short_rows / sizeof *short_rows);
    }
    for (int k = 0; k < c->n; k++) {
        const tensor_type_info *i = tensor_type_get((int)c->types[k]);
        c->bits[k] = 8.0 * i->block_bytes / i->block_elems * (double)t->dims[0] * (double)rows_of(t);
    }
    c->weight = strcmp(t->name, head) == 0 ? HEAD : weight_of(t->name);
}

/* Takes the step with the largest gain per bit that still fits; false: none does. */
static bool improve(search *s, double *left) {
    double     best = 0;
    candidate *which = NULL;
    int        to = 0;
    for (size_t i = 0; i < s->n; i++) {
        candidate *c = &s->c[i];
        for (int k = c->is + 1; k < c->n; k++) {
            double bits = c->bits[k] - c->bits[c->is], gain = c->damage[c->is] - c->damage[k];
            if (bits > *left || !(gain > 0)) continue;
            double rate = gain / fmax(bits, 1);
            if (rate > best) best = rate, which = c, to = k;
        }
    }
    if (!which) return false;
    *left -= which->bits[to] - which->bits[which->is];
    which->is = to;
    return true;
}

/* Bits of what is not chosen here; sets *elements to those of all tensors. */
static double fixed_bits(const model_file *in, const int *types, double *elements) {
    double bits = 0;
    *elements = 0;
    for (size_t i = 0; i < model_file_tensor_count(in); i++) {
        const model_tensor *t = model_file_tensor_at(in, i);
        double              n = (double)t->dims[0] * (double)rows_of(t);
        bool                quantized = mix_quantizes(t->name, t->n_dims);
        *elements += n;
        if (quantized && types[i] < 0) continue;
        const tensor_type_info *x = tensor_type_get(quantized ? types[i] : (int)t->type);
        bits += 8.0 * x->block_bytes / x->block_elems * n;
    }
    return bits;
}

static int spend(search *s, const int *types, err *e) {
    double elements, left = -fixed_bits(s->in, types, &elements);
    left += s->o->target_bpw * elements;
    for (size_t i = 0; i < s->n; i++) left -= s->c[i].bits[0];
    if (left < 0)
        return err_set(e, ERR_ARG, "%.2f bits per weight cannot be reached; the smallest possible is %.2f",
                       s->o->target_bpw, s->o->target_bpw - left / elements);
    while (improve(s, &left)) {
    }
    return 0;
}

int target_types(const model_file *in, const quantize_options *o, pool *p, int *types, err *e) {
    search      s = { .in = in, .o = o };
    size_t      n = model_file_tensor_count(in), workers = (size_t)pool_threads(p);
    int         rc = 0;
    const char *head = model_file_tensor(in, "output.weight") ? "output.weight" : "token_embd.weight";
    s.c = calloc(n ? n : 1, sizeof *s.c);
    if (!s.c) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(in, i);
        if (types[i] >= 0 || !mix_quantizes(t->name, t->n_dims) || !tensor_can_dequant((int)t->type)) continue;
        s.c[s.n].at = i;
        choices(&s.c[s.n++], t, head, o->importance && imatrix_find(o->importance, t->name, t->dims[0], t->dims[2]));
        s.longest = (size_t)num_max((int64_t)s.longest, t->dims[0]);
    }
    s.longest = (s.longest + 63) & ~(size_t)63;
    s.scratch = calloc(workers * 2, s.longest * sizeof *s.scratch + 1);
    s.coded = calloc(workers, 4 * s.longest + 1);
    if (!s.scratch || !s.coded) rc = err_set_nomem(e);
    if (rc == 0) {
        pool_run(p, measure_all, &s);
        rc = spend(&s, types, e);
    }
    for (size_t i = 0; i < s.n && rc == 0; i++) types[s.c[i].at] = (int)s.c[i].types[s.c[i].is];
    free(s.c);
    free(s.scratch);
    free(s.coded);
    return rc;
}
