/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/target_impl.h"

#include "base/num.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Cheapest first. The first list needs an importance matrix. */
static const tensor_type with_importance[] = { TENSOR_IQ1_S, TENSOR_IQ1_M,  TENSOR_IQ2_XXS, TENSOR_IQ2_XS,
                                               TENSOR_IQ2_S, TENSOR_Q2_K,   TENSOR_IQ3_XXS, TENSOR_IQ3_S,
                                               TENSOR_Q3_K,  TENSOR_IQ4_XS, TENSOR_Q4_K,    TENSOR_Q5_K,
                                               TENSOR_Q6_K,  TENSOR_Q8_0 };
static const tensor_type without[] = { TENSOR_Q2_K, TENSOR_IQ3_S, TENSOR_Q3_K, TENSOR_IQ4_XS,
                                       TENSOR_Q4_K, TENSOR_Q5_K,  TENSOR_Q6_K, TENSOR_Q8_0 };
/* For rows that are not whole blocks of 256. */
static const tensor_type short_rows[] = { TENSOR_IQ4_NL, TENSOR_Q5_0, TENSOR_Q5_1, TENSOR_Q8_0 };

enum { SAMPLE_ROWS = 48 };

int64_t target_rows(const model_tensor *t) {
    int64_t rows = 1;
    for (int d = 1; d < t->n_dims; d++) rows *= t->dims[d];
    return rows;
}

const float *target_importance(const quantize_options *o, const model_tensor *t, int64_t r) {
    const float *all = o->importance ? imatrix_find(o->importance, t->name, t->dims[0], t->dims[2]) : NULL;
    return all ? all + (t->dims[2] > 1 ? r / t->dims[1] * t->dims[0] : 0) : NULL;
}

/* The part of the energy of sampled rows that a type turns into noise. */
static double measure(const target_search *s, const model_tensor *t, tensor_type type, float *x, uint8_t *coded) {
    int64_t cols = t->dims[0], rows = target_rows(t), step = rows / SAMPLE_ROWS;
    float  *y = x + s->longest;
    double  noise = 0, energy = 0;
    size_t  row_bytes;
    if (step < 1) step = 1;
    if (!tensor_row_bytes((int)t->type, cols, &row_bytes)) return INFINITY;
    for (int64_t r = step / 2; r < rows; r += step) {
        const float *q = target_importance(s->o, t, r);
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
    target_search *s = ctx;
    float         *x = s->scratch + (size_t)worker * 2 * s->longest;
    uint8_t       *coded = s->coded + (size_t)worker * 4 * s->longest;
    size_t         i;
    (void)n_workers;
    while ((i = atomic_fetch_add(&s->next, 1)) < s->n * TARGET_CHOICES) {
        target_matrix *m = &s->m[i / TARGET_CHOICES];
        int            k = (int)(i % TARGET_CHOICES);
        if (k >= m->n) continue;
        m->noise[k] = measure(s, model_file_tensor_at(s->in, m->at), m->types[k], x, coded);
        m->damage[k] = m->weight * m->noise[k];
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

static void choices(target_matrix *m, const model_tensor *t, const char *head, bool importance) {
    size_t bytes;
    m->types = importance ? with_importance : without;
    m->n =
        importance ? (int)(sizeof with_importance / sizeof *with_importance) : (int)(sizeof without / sizeof *without);
    if (!tensor_row_bytes(TENSOR_Q4_K, t->dims[0], &bytes)) {
        m->types = short_rows;
        m->n = (int)(sizeof short_rows / sizeof *short_rows);
    }
    for (int k = 0; k < m->n; k++) {
        const tensor_type_info *i = tensor_type_get((int)m->types[k]);
        m->bits[k] = 8.0 * i->block_bytes / i->block_elems * (double)t->dims[0] * (double)target_rows(t);
    }
    m->weight = strcmp(t->name, head) == 0 ? HEAD : weight_of(t->name);
}

/* Takes the step with the largest gain per bit that still fits; false: none does. */
static bool improve(target_search *s, double *left) {
    double         best = 0;
    target_matrix *which = NULL;
    int            to = 0;
    for (size_t i = 0; i < s->n; i++) {
        target_matrix *m = &s->m[i];
        for (int k = 0; k < m->n; k++) {
            double bits = m->bits[k] - m->bits[m->is], gain = m->damage[m->is] - m->damage[k];
            if (bits > *left || !(gain > 0)) continue;
            double rate = gain / fmax(bits, 1); /* a better type that is not larger comes first */
            if (rate > best) best = rate, which = m, to = k;
        }
    }
    if (!which) return false;
    *left -= which->bits[to] - which->bits[which->is];
    which->is = to;
    return true;
}

void target_spend(target_search *s) {
    double left = s->budget;
    for (size_t i = 0; i < s->n; i++) left -= s->m[i].bits[s->m[i].is];
    while (improve(s, &left)) {
    }
}

/* Bits of what is not chosen here; sets *elements to those of all tensors. */
static double fixed_bits(const model_file *in, const int *types, double *elements) {
    double bits = 0;
    *elements = 0;
    for (size_t i = 0; i < model_file_tensor_count(in); i++) {
        const model_tensor *t = model_file_tensor_at(in, i);
        double              n = (double)t->dims[0] * (double)target_rows(t);
        bool                quantized = mix_quantizes(t->name, t->n_dims);
        *elements += n;
        if (quantized && types[i] < 0) continue;
        const tensor_type_info *x = tensor_type_get(quantized ? types[i] : (int)t->type);
        bits += 8.0 * x->block_bytes / x->block_elems * n;
    }
    return bits;
}

static int set_budget(target_search *s, const int *types, err *e) {
    double elements, fixed = fixed_bits(s->in, types, &elements), least = fixed;
    s->budget = s->o->target_bpw * elements - fixed;
    for (size_t i = 0; i < s->n; i++) least += s->m[i].bits[0];
    if (s->o->target_bpw * elements < least)
        return err_set(e, ERR_ARG, "%.2f bits per weight cannot be reached; the smallest possible is %.2f",
                       s->o->target_bpw, least / elements);
    return 0;
}

static int begin(target_search *s, const int *types, err *e) {
    size_t      n = model_file_tensor_count(s->in), workers = (size_t)pool_threads(s->p);
    const char *head = model_file_tensor(s->in, "output.weight") ? "output.weight" : "token_embd.weight";
    s->m = calloc(n ? n : 1, sizeof *s->m);
    if (!s->m) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(s->in, i);
        if (types[i] >= 0 || !mix_quantizes(t->name, t->n_dims) || !tensor_can_dequant((int)t->type)) continue;
        s->m[s->n].at = i;
        choices(&s->m[s->n++], t, head, target_importance(s->o, t, 0) != NULL);
        s->longest = (size_t)num_max((int64_t)s->longest, t->dims[0]);
    }
    s->longest = (s->longest + 63) & ~(size_t)63;
    s->scratch = calloc(workers * 2, s->longest * sizeof *s->scratch + 1);
    s->coded = calloc(workers, 4 * s->longest + 1);
    return s->scratch && s->coded ? 0 : err_set_nomem(e);
}

int target_types(const model_file *in, const quantize_options *o, const target_mixes *mixes, pool *p, int *types,
                 err *e) {
    target_search s = { .in = in, .o = o, .p = p };
    int           rc = begin(&s, types, e);
    if (rc == 0) rc = set_budget(&s, types, e);
    if (rc == 0) {
        pool_run(p, measure_all, &s);
        target_spend(&s);
    }
    if (rc == 0 && o->judge) rc = target_try(&s, mixes, e);
    for (size_t i = 0; i < s.n && rc == 0; i++) types[s.m[i].at] = (int)s.m[i].types[s.m[i].is];
    free(s.m);
    free(s.scratch);
    free(s.coded);
    return rc;
}
