/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an adapter: every module finds its matrices, its factors become what the kernels read. */
#include "nn/adapter_impl.h"

#include "base/file.h"
#include "base/num.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_MOST = 1 << 20 };

typedef struct opening {
    nn_adapter     *out;
    const nn_model *model;
    adapter_source  src;
    adapter_names   names;
    bool            gguf;       /* the adapter's names and row orders */
    size_t          room_bytes; /* of a room for factors */
    err            *e;
} opening;

/* The two factors of a module as floats: A(e, j, i) = a[e * a_e + j * a_j + i * a_i], B(e, o, j) likewise. */
typedef struct factors {
    float  *a, *b;
    float   by_a, by_b;  /* powers of two that bring the largest values into 0.5..1 */
    int     rank, stack; /* stack 0: one matrix */
    int64_t in, out;
    int64_t a_e, a_j, a_i, b_e, b_o, b_j;
    double  scale;
} factors;

static int64_t count_of(const model_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= t->dims[i]; /* the reader has checked the product */
    return n;
}

static int shape_error(const opening *x, const adapter_raw *r, int64_t in, int64_t out, int stack) {
    return err_set(
        x->e, ERR_FORMAT,
        "%s: factors of %lld x %lld and %lld x %lld values do not fit a matrix of %lld outputs and %lld inputs%s",
        r->module, (long long)r->a->dims[1], (long long)r->a->dims[0], (long long)r->b->dims[1],
        (long long)r->b->dims[0], (long long)out, (long long)in, stack ? " per expert" : "");
}

/* Plain numbers are read where they lie. */
static void drop_floats(const model_tensor *t, float *v) {
    if ((const void *)v != (const void *)t->data) free(v);
}

/* The numbers of a tensor, all finite; the caller drops them. *by (may be NULL) is the power of two that brings the largest
 * one into 0.5..1. */
static int floats_of(const opening *x, const model_tensor *t, float **out, float *by) {
    int64_t  n = count_of(t);
    uint32_t most = 0;
    int      exponent = 0;
    bool     plain = t->type == TENSOR_F32 && (uintptr_t)t->data % sizeof(float) == 0;
    *out = n <= 0 || n >= (1LL << 31) ? NULL : plain ? (float *)(uintptr_t)t->data : malloc((size_t)n * sizeof **out);
    if (!*out) return err_set(x->e, ERR_NOMEM, "tensor %s: no memory for %lld values", t->name, (long long)n);
    const tensor_type_info *info = tensor_type_get((int)t->type);
    bool known = info && (info->quantized || t->type == TENSOR_F32 || t->type == TENSOR_F16 || t->type == TENSOR_BF16 ||
                          t->type == TENSOR_F64);
    if (!known || (!plain && !tensor_dequant_row((int)t->type, t->data, *out, n)))
        return err_set(x->e, ERR_UNSUPPORTED, "tensor %s: values of type %s are not supported in an adapter", t->name,
                       tensor_type_name((int)t->type));
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = tensor_f32_bits((*out)[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    if (most >= 0x7f800000u) return err_set(x->e, ERR_FORMAT, "tensor %s has values that are not finite", t->name);
    frexpf(tensor_bits_f32(most), &exponent);
    if (by) *by = most ? ldexpf(1, exponent < -100 ? 100 : -exponent) : 1;
    return 0;
}

/* --- factors ------------------------------------------------------------------------------------------------------ */

/* Fills strides and rank from the shapes that the format has; false: they do not fit in, out and stack. */
static bool shape_factors(const opening *x, const adapter_raw *r, factors *f) {
    const int64_t *a = r->a->dims, *b = r->b->dims;
    int64_t        n = f->stack ? f->stack : 1;
    bool           flat = r->a->n_dims <= 2 && r->b->n_dims <= 2;
    bool           mlx = x->src.format == NN_ADAPTER_MLX, peft = x->src.format == NN_ADAPTER_PEFT;
    if (f->stack && peft) { /* A [E r][in], B [out][r E], the expert fastest */
        int64_t rank = a[1] / n;
        *f = (factors){ .rank = (int)rank,
                        .stack = f->stack,
                        .in = f->in,
                        .out = f->out,
                        .a_e = rank * f->in,
                        .a_j = f->in,
                        .a_i = 1,
                        .b_e = 1,
                        .b_o = rank * n,
                        .b_j = n };
        if (flat && a[0] == f->in && a[1] == rank * n && b[0] == rank * n && b[1] == f->out)
            return rank <= NN_ADAPTER_MAX_RANK;
        /* Older files of stacked weights have inputs and outputs the other way round. */
        f->a_e = 1, f->a_j = n, f->a_i = rank * n;
        f->b_e = rank * f->out, f->b_o = 1, f->b_j = f->out;
        if (!flat || a[0] != f->out || a[1] != rank * n || b[0] != rank * n || b[1] != f->in) return false;
        return rank <= NN_ADAPTER_MAX_RANK;
    }
    int64_t rank = mlx ? (f->stack ? b[0] : a[0]) : a[1];
    if (rank < 1 || rank > NN_ADAPTER_MAX_RANK) return false;
    f->rank = (int)rank;
    f->a_e = rank * f->in, f->b_e = rank * f->out;
    if (mlx && !f->stack) {
        f->a_j = 1, f->a_i = rank, f->b_o = 1, f->b_j = f->out;
        return flat && a[0] == rank && a[1] == f->in && b[0] == f->out && b[1] == rank;
    }
    f->a_j = f->in, f->a_i = 1, f->b_o = rank, f->b_j = 1;
    if (mlx) /* A [E r][in], or [E][r][in]; B [E][out][r] */
        return r->b->n_dims == 3 && r->a->n_dims <= 3 && a[0] == f->in && a[1] * a[2] == rank * n && b[1] == f->out &&
               b[2] == n;
    bool stacked =
        (f->stack ? a[2] == n && b[2] == n : a[2] == 1 && b[2] == 1) && r->a->n_dims <= 3 && r->b->n_dims <= 3;
    return stacked && a[0] == f->in && a[1] == rank && b[0] == rank && b[1] == f->out;
}

/* An embedding's: rows of A by token. */
static bool shape_embedding(const opening *x, const adapter_raw *r, factors *f) {
    const int64_t *a = r->a->dims, *b = r->b->dims;
    bool           peft = x->src.format == NN_ADAPTER_PEFT, mlx = x->src.format == NN_ADAPTER_MLX;
    int64_t        rank = peft ? a[1] : a[0], tokens = peft ? a[0] : a[1];
    if (r->a->n_dims > 2 || r->b->n_dims > 2 || rank < 1 || rank > NN_ADAPTER_MAX_RANK) return false;
    f->rank = (int)rank;
    f->a_j = peft ? tokens : 1, f->a_i = peft ? 1 : rank;
    f->b_o = mlx ? 1 : rank, f->b_j = mlx ? f->out : 1;
    if (tokens != f->in) return false;
    return mlx ? b[0] == f->out && b[1] == rank : b[0] == rank && b[1] == f->out;
}

static int read_factors(const opening *x, const adapter_raw *r, factors *f) {
    int rc = adapter_config_scale(&x->src, r->module, f->rank, &f->scale, x->e);
    f->a = f->b = NULL;
    if (rc == 0) rc = floats_of(x, r->a, &f->a, &f->by_a);
    if (rc == 0) rc = floats_of(x, r->b, &f->b, &f->by_b);
    return rc;
}

/* --- as products read them ---------------------------------------------------------------------------------------- */

/* Numbers of one rank of a block: every stride-th from v on. */
static void gather(const float *v, int64_t stride, float *out, int n, float by) {
    if (stride == 1) {
        for (int i = 0; i < n; i++) out[i] = v[i] * by;
        return;
    }
    for (int i = 0; i < n; i++) out[i] = v[i * stride] * by;
}

/* A of expert e; fewer columns in the file than in the matrix: the others stay zero. */
static void put_a(const factors *f, int e, const nn_lora *l, float by, uint8_t *out) {
    int64_t in = l->in < f->in ? l->in : f->in;
    for (int j0 = 0; j0 < f->rank; j0 += LOWRANK_PANEL, out += lowrank_panel_bytes(l->type, l->in)) {
        lowrank_block v = { { 0 } };
        int           n = f->rank - j0 < LOWRANK_PANEL ? f->rank - j0 : LOWRANK_PANEL;
        for (int64_t i0 = 0; i0 < in; i0 += LOWRANK_COLS) {
            int          cols = in - i0 < LOWRANK_COLS ? (int)(in - i0) : LOWRANK_COLS;
            const float *from = f->a + e * f->a_e + j0 * f->a_j + i0 * f->a_i;
            if (cols < LOWRANK_COLS) memset(v, 0, sizeof v);
            for (int j = 0; j < n; j++) gather(from + j * f->a_j, f->a_i, v[j], cols, by);
            lowrank_put_a(l->type, out, i0, cols, (const lowrank_block *)&v);
        }
    }
}

/* The rows of B that the matrix has, in its order. */
static void put_b(const opening *x, const factors *f, const adapter_match *at, int e, bool embed, const nn_lora *l,
                  float by, uint8_t *out) {
    const float *rows[LOWRANK_TILE];
    for (int64_t r0 = 0; r0 < l->out; r0 += LOWRANK_TILE, out += lowrank_tile_bytes(l->type, l->used)) {
        for (int k = 0; k < LOWRANK_TILE; k++) {
            int64_t r = r0 + k, from = r >= l->out || embed ? r : adapter_match_row(x->model, at, x->gguf, r);
            /* Rows that pad the vocabulary have nothing. */
            rows[k] = r < l->out && from < f->out ? f->b + e * f->b_e + from * f->b_o : NULL;
        }
        for (int j0 = 0; j0 < l->used; j0 += LOWRANK_PANEL) {
            lowrank_block v = { { 0 } };
            int           n = l->used - j0 < LOWRANK_PANEL ? l->used - j0 : LOWRANK_PANEL;
            for (int k = 0; k < LOWRANK_TILE; k++) {
                for (int j = 0; rows[k] && j < n; j++) v[j][k] = rows[k][(j0 + j) * f->b_j] * by;
            }
            lowrank_put_b(l->type, out, j0, n, (const lowrank_block *)&v);
        }
    }
}

/* Bytes where the matrix has fewer than 8 bits per value: what they lose is little beside what the matrix has lost. Looking
 * up reads one column of A: there is nothing to be saved. */
static lowrank_type type_of(const opening *x, const nn_mat *mat, bool embed) {
    if (x->out->type != LOWRANK_AUTO) return x->out->type;
    const tensor_type_info *info = tensor_type_get((int)mat->at->type);
    bool                    coarse = info && info->quantized && 8 * info->block_bytes < 8 * info->block_elems;
    return coarse && !embed ? LOWRANK_Q8 : LOWRANK_F16;
}

/* The factors of expert e as an nn_lora. */
static int make_lora(opening *x, const factors *f, const adapter_match *at, int e, bool embed, nn_lora *out) {
    const nn_mat *mat = at->bound->mat;
    lowrank_type  type = type_of(x, mat, embed);
    float         by_a = lowrank_lift(type, f->by_a), by_b = lowrank_lift(type, f->by_b);
    nn_lora       l = { .type = type,
                        .rank = (f->rank + LOWRANK_PANEL - 1) / LOWRANK_PANEL * LOWRANK_PANEL,
                        .used = f->rank,
                        .in = embed ? mat->rows : f->in,
                        .out = embed ? mat->cols : at->bound->rows,
                        .scale = (float)(f->scale / (double)by_a / (double)by_b) };
    size_t        a_bytes, b_bytes;
    if (!num_mul_size((size_t)l.rank / LOWRANK_PANEL, lowrank_panel_bytes(type, l.in), &a_bytes) ||
        !num_mul_size(((size_t)l.out + LOWRANK_TILE - 1) / LOWRANK_TILE, lowrank_tile_bytes(type, l.used), &b_bytes))
        return err_set(x->e, ERR_LIMIT, "%s: too large", mat->name);
    uint8_t *a = huge_take(&x->out->rooms, a_bytes, x->room_bytes);
    uint8_t *b = huge_take(&x->out->rooms, b_bytes, x->room_bytes);
    if (!a || !b) return err_set_nomem(x->e);
    put_a(f, e, &l, by_a, a);
    put_b(x, f, at, e, embed, &l, by_b, b);
    l.a = a;
    l.b = b;
    *out = l;
    return isfinite(l.scale) ? 0 : err_set(x->e, ERR_FORMAT, "%s: the scale is not finite", mat->name);
}

/* --- patches ------------------------------------------------------------------------------------------------------ */

static bool reads(const nn_tape *t, const nn_op *op, const nn_mat *mat, bool embed) {
    if (embed) return op->kind == NN_OP_EMBED && op->u.embed.table == mat;
    if (op->kind == NN_OP_LINEAR) return op->u.linear.w == mat && t->bufs[op->out].mult == 1;
    return op->kind == NN_OP_EXPERTS && op->u.linear.w == mat;
}

/* Whether what was computed from this matrix when the model was opened takes part: an adapter would not reach it. */
static bool is_folded(const nn_tape *t, const nn_mat *mat) {
    for (int i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind == NN_OP_HEAD_LINEAR && t->ops[i].u.linear.w->made_of == mat) return true;
    }
    return false;
}

/* The patch of this matrix: a new one, or the one that other experts are in. */
static int patch_of(opening *x, const adapter_raw *r, const adapter_match *at, bool embed, nn_patch **out) {
    const nn_mat  *mat = at->bound->mat;
    const nn_tape *t = x->model->tape;
    bool           used = false;
    for (int i = 0; i < x->out->n_patches; i++) {
        *out = &x->out->patches[i];
        if ((*out)->mat == mat && (*out)->embed == embed) return 0;
    }
    for (int i = 0; i < t->n_ops; i++) used = used || reads(t, &t->ops[i], mat, embed);
    if (!used || is_folded(t, mat))
        return err_set(x->e, ERR_UNSUPPORTED, "%s: adapters of this kind of matrix are not supported", r->module);
    *out = &x->out->patches[x->out->n_patches++];
    **out = (nn_patch){ .mat = mat, .embed = embed };
    return 0;
}

/* |W|^2, <W, D> and |D|^2 of the rows of W, where D is s B A: by them DoRA's factor is known for every scale. */
static int measure_rows(opening *x, const factors *f, const adapter_match *at, nn_patch *p) {
    const nn_mat *mat = p->mat;
    int64_t       rows = mat->rows, cols = mat->cols;
    float        *w2 = arena_calloc(&x->out->mem, (size_t)rows * 3, sizeof *w2), *wd = w2 + rows, *d2 = wd + rows;
    float        *row = malloc((size_t)cols * sizeof *row);
    double       *gram = calloc((size_t)f->rank * (size_t)f->rank, sizeof *gram);
    bool          ok = w2 && row && gram;
    for (int j = 0; ok && j < f->rank; j++) {
        for (int k = 0; k <= j; k++) {
            double sum = 0;
            for (int64_t i = 0; i < cols; i++)
                sum += (double)f->a[j * f->a_j + i * f->a_i] * (double)f->a[k * f->a_j + i * f->a_i];
            gram[j * f->rank + k] = gram[k * f->rank + j] = sum;
        }
    }
    for (int64_t r = 0; ok && r < rows; r++) {
        const float *b = f->b + adapter_match_row(x->model, at, x->gguf, r) * f->b_o;
        double       ww = 0, cross = 0, dd = 0;
        tensor_mat_dequant_row(mat->at, 0, r, row);
        for (int64_t i = 0; i < cols; i++) ww += (double)row[i] * (double)row[i];
        for (int j = 0; j < f->rank; j++) {
            const float *a = f->a + j * f->a_j;
            float        part[8] = { 0 };
            double       dot = 0;
            int64_t      i = 0;
            for (; f->a_i == 1 && i + 8 <= cols; i += 8) {
                for (int k = 0; k < 8; k++) part[k] += row[i + k] * a[i + k];
            }
            for (int k = 0; k < 8; k++) dot += (double)part[k];
            for (; i < cols; i++) dot += (double)row[i] * (double)a[i * f->a_i];
            cross += dot * (double)b[j * f->b_j];
            for (int k = 0; k < f->rank; k++)
                dd += (double)b[j * f->b_j] * (double)b[k * f->b_j] * gram[j * f->rank + k];
        }
        w2[r] = (float)ww;
        wd[r] = (float)(cross * f->scale);
        d2[r] = (float)(dd * f->scale * f->scale);
    }
    free(row);
    free(gram);
    p->w2 = w2;
    p->wd = wd;
    p->d2 = d2;
    return ok ? 0 : err_set_nomem(x->e);
}

/* A vector along a matrix's outputs, its rows in the matrix's order. */
static int bind_rows(opening *x, const adapter_match *at, const model_tensor *t, const float **out) {
    float  *v, *mine = arena_calloc(&x->out->mem, (size_t)at->bound->rows, sizeof *mine);
    int64_t total = adapter_match_total(x->model, at, x->gguf);
    int     rc = mine ? floats_of(x, t, &v, NULL) : err_set_nomem(x->e);
    if (!mine) return rc;
    if (rc == 0 && count_of(t) != total)
        rc = err_set(x->e, ERR_FORMAT, "tensor %s has %lld values where %lld were expected", t->name,
                     (long long)count_of(t), (long long)total);
    for (int64_t r = 0; rc == 0 && r < at->bound->rows; r++) mine[r] = v[adapter_match_row(x->model, at, x->gguf, r)];
    drop_floats(t, v);
    *out = mine;
    return rc;
}

static int bind_magnitude(opening *x, const adapter_raw *r, const factors *f, const adapter_match *at, nn_patch *p) {
    int rc;
    if (!r->magnitude) return 0;
    if (f->stack || at->expert >= 0)
        return err_set(x->e, ERR_UNSUPPORTED, "%s: DoRA of experts is not supported", r->module);
    if ((rc = bind_rows(x, at, r->magnitude, &p->magnitude)) < 0) return rc;
    return measure_rows(x, f, at, p);
}

/* Where the factors of one matrix, or of all of a stack, go. */
static int bind_match(opening *x, const adapter_raw *r, const factors *f, const adapter_match *at, bool embed) {
    nn_patch *p;
    int       n = at->bound->stack ? at->bound->stack : 1, rc = patch_of(x, r, at, embed, &p);
    if (rc < 0) return rc;
    if (p->out_gain || p->in_gain)
        return err_set(x->e, ERR_FORMAT, "%s: another tensor is for the same matrix", r->module);
    if (at->expert >= n) return err_set(x->e, ERR_FORMAT, "%s: there are %d experts", r->module, n);
    nn_lora *lora = p->lora ? (nn_lora *)(uintptr_t)p->lora : arena_calloc(&x->out->mem, (size_t)n, sizeof *lora);
    if (!lora) return err_set_nomem(x->e);
    p->lora = lora;
    for (int e = 0; e < n && rc == 0; e++) {
        if (at->expert >= 0 && at->expert != e) continue;
        if (lora[e].rank) return err_set(x->e, ERR_FORMAT, "%s: another tensor is for the same matrix", r->module);
        rc = make_lora(x, f, at, f->stack ? e : 0, embed, &lora[e]);
    }
    return rc < 0 ? rc : bind_magnitude(x, r, f, at, p);
}

/* --- modules ------------------------------------------------------------------------------------------------------ */

static bool is_embedding(const opening *x, const adapter_match *at) {
    const nn_tape *t = x->model->tape;
    for (int i = 0; i < t->n_ops && !at->bound->head; i++) {
        if (reads(t, &t->ops[i], at->bound->mat, true)) return true;
    }
    return false;
}

/* Whether the factors have the shape of what the name means; fills f but for the numbers. */
static bool fits(const opening *x, const adapter_raw *r, const adapter_match *at, bool embed, factors *f) {
    const nn_mat *mat = at->bound->mat;
    *f = (factors){ .in = mat->cols, .out = adapter_match_total(x->model, at, x->gguf) };
    if (at->bound->stack && at->expert < 0) f->stack = at->bound->stack;
    if (embed) {
        f->in = mat->rows;
        f->out = mat->cols;
        if (shape_embedding(x, r, f)) return true;
        f->in = x->model->dims->n_vocab; /* without the padding of the base's table */
        return shape_embedding(x, r, f);
    }
    if (shape_factors(x, r, f)) return true;
    if (!at->bound->at_least) return false;
    *f = (factors){ .in = mat->cols, .out = x->model->dims->n_vocab };
    return shape_factors(x, r, f);
}

static int bind_matches(opening *x, const adapter_raw *r, const adapter_match *at, int n) {
    bool    embed = r->embed || is_embedding(x, at);
    factors f;
    if (x->model->arch->reordered && nn_config_gguf(&x->model->config) != x->gguf)
        return err_set(x->e, ERR_UNSUPPORTED,
                       "%s: GGUF files of this architecture order their rows in another way than the adapter; use a "
                       "base in the adapter's own format",
                       r->module);
    if (!fits(x, r, at, embed, &f)) return shape_error(x, r, f.in, f.out, f.stack);
    int rc = read_factors(x, r, &f);
    for (int i = 0; i < n && rc == 0; i++) rc = bind_match(x, r, &f, &at[i], embed);
    drop_floats(r->a, f.a);
    drop_floats(r->b, f.b);
    if (f.rank > x->out->rank) x->out->rank = f.rank;
    return rc;
}

/* target_parameters: the module is the one that holds the parameter, which its shape tells. */
static int bind_parameter(opening *x, const adapter_raw *r) {
    adapter_match at[ADAPTER_MAX_MATCHES];
    for (size_t i = 0; i < json_count(x->src.target_parameters); i++) {
        const char *path = json_cstr(json_at(x->src.target_parameters, i)), *dot = path ? strrchr(path, '.') : NULL;
        char        name[2 * TABLE_MAX_NAME];
        factors     f;
        if (!path) continue;
        snprintf(name, sizeof name, "%s.%.200s", r->module, dot ? dot + 1 : path);
        if (strcmp(dot ? dot + 1 : path, "weight") == 0) snprintf(name, sizeof name, "%s", r->module);
        int n = adapter_names_find(&x->names, name, at);
        if (n > 0 && r->a && fits(x, r, at, false, &f)) return bind_matches(x, r, at, n);
    }
    return err_set(x->e, ERR_NOTFOUND, "the model has no matrix %s that the adapter's factors fit", r->module);
}

static int bind_gain(opening *x, const adapter_raw *r, const adapter_match *at) {
    const model_tensor *t = r->gain;
    bool                inputs = t->dims[1] == 1 && t->n_dims >= 2 && t->dims[0] != 1;
    nn_patch           *p;
    int                 rc = patch_of(x, r, at, false, &p);
    if (rc < 0) return rc;
    if (at->bound->stack || is_embedding(x, at) || p->lora || p->in_gain || p->out_gain)
        return err_set(x->e, ERR_UNSUPPORTED, "%s: IA3 of this kind of matrix is not supported", r->module);
    if (!inputs) return bind_rows(x, at, t, &p->out_gain);
    float *v, *mine = arena_calloc(&x->out->mem, (size_t)p->mat->cols, sizeof *mine);
    if (!mine) return err_set_nomem(x->e);
    rc = floats_of(x, t, &v, NULL);
    if (rc == 0 && count_of(t) != p->mat->cols)
        rc = err_set(x->e, ERR_FORMAT, "tensor %s has %lld values where %lld were expected", t->name,
                     (long long)count_of(t), (long long)p->mat->cols);
    if (rc == 0) memcpy(mine, v, (size_t)p->mat->cols * sizeof *mine);
    drop_floats(t, v);
    p->in_gain = mine;
    return rc;
}

static int bind_module(opening *x, const adapter_raw *r) {
    adapter_match at[ADAPTER_MAX_MATCHES];
    int           n = r->nested ? 0 : adapter_names_find(&x->names, r->module, at), rc = 0;
    if (n == 0 && x->src.target_parameters && !r->gain) return bind_parameter(x, r);
    if (n == 0) return err_set(x->e, ERR_NOTFOUND, "the model has no matrix %s, which the adapter changes", r->module);
    if (!r->gain) return bind_matches(x, r, at, n);
    for (int i = 0; i < n && rc == 0; i++) rc = bind_gain(x, r, &at[i]);
    return rc;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void make_key(nn_adapter *a, const char *config, size_t config_bytes, const uint8_t *data, size_t bytes) {
    sha256   h;
    uint64_t sizes[2] = { config_bytes, bytes };
    sha256_init(&h);
    sha256_feed(&h, sizes, sizeof sizes);
    if (config) sha256_feed(&h, config, config_bytes);
    sha256_feed(&h, data, bytes);
    sha256_finish(&h, a->key);
}

static int read_all(opening *x, const char *config, size_t config_bytes, const uint8_t *data, size_t bytes) {
    nn_adapter *a = x->out;
    int         rc = adapter_source_read(&x->src, config, config_bytes, data, bytes, x->e);
    if (rc < 0) return rc;
    x->gguf = x->src.format == NN_ADAPTER_GGUF;
    if (x->gguf && (rc = adapter_config_gguf(&x->src, x->model, x->e)) < 0) return rc;
    if ((rc = adapter_names_init(&x->names, x->model, x->gguf, x->e)) < 0) return rc;
    /* Each module gives at most one patch per matrix that its name means. */
    a->patches = arena_calloc(&a->mem, x->src.n_raw * ADAPTER_MAX_MATCHES, sizeof *a->patches);
    if (!a->patches) return err_set_nomem(x->e);
    for (size_t i = 0; i < x->src.n_raw && rc == 0; i++) rc = bind_module(x, &x->src.raw[i]);
    if (rc < 0) return rc;
    int32_t *tokens = arena_calloc(&a->mem, (size_t)x->src.n_invocation + 1, sizeof *tokens);
    if (!tokens) return err_set_nomem(x->e);
    if (x->src.n_invocation) memcpy(tokens, x->src.invocation, (size_t)x->src.n_invocation * sizeof *tokens);
    a->invocation = tokens;
    a->n_invocation = x->src.n_invocation;
    a->format = x->src.format;
    a->kind = x->src.ia3 ? "ia3" : x->src.dora ? "dora" : x->src.rslora ? "rslora" : "lora";
    a->alpha = x->src.format == NN_ADAPTER_MLX ? 0 : x->src.alpha;
    a->n_tensors = (int)x->src.tensors.count;
    a->bytes = sizeof *a + a->mem.used_bytes + huge_bytes(a->rooms);
    make_key(a, config, config_bytes, data, bytes);
    return 0;
}

int nn_adapter_read(nn_adapter **out, const nn_model *m, const char *config, size_t config_bytes, const uint8_t *data,
                    size_t bytes, lowrank_type type, err *e) {
    opening x = { .model = m, .e = e };
    *out = NULL;
    if (!m->tape) return err_set(e, ERR_ARG, "the model was opened without its tensors");
    if (!(x.out = calloc(1, sizeof *x.out))) return err_set_nomem(e);
    x.room_bytes = type == LOWRANK_F32 ? 2 * bytes : bytes;
    x.out->type = type;
    arena_init(&x.out->mem, 0);
    int rc = read_all(&x, config, config_bytes, data, bytes);
    adapter_names_deinit(&x.names);
    adapter_source_deinit(&x.src);
    if (rc < 0)
        nn_adapter_free(x.out);
    else
        *out = x.out;
    return rc;
}

/* The weights beside an adapter_config.json; NULL: there are none. */
static char *weights_in(const char *dir) {
    static const char *const names[] = { "adapter_model.safetensors", "adapters.safetensors", NULL };
    for (const char *const *n = names; *n; n++) {
        char *path = path_join(dir, *n);
        if (path && file_exists(path)) return path;
        free(path);
    }
    return NULL;
}

/* A directory, or one of the files in it. */
static char *dir_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (dir_exists(path)) return strdup(path);
    return slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
}

static int open_dir(nn_adapter **out, const nn_model *m, const char *path, lowrank_type type, err *e) {
    char    *dir = dir_of(path), *file = NULL, *config = NULL, *text = NULL;
    size_t   bytes = 0;
    file_map data = { 0 };
    int      rc = ERR_NOMEM;
    if (!dir || !(config = path_join(dir, "adapter_config.json"))) {
        err_set_nomem(e);
    } else if (!file_exists(config) || !(file = weights_in(dir))) {
        rc = err_set(e, ERR_NOTFOUND,
                     "it is not an adapter: adapter_config.json and adapter_model.safetensors (or "
                     "adapters.safetensors) are expected");
    } else if ((rc = file_read(&text, &bytes, config, CONFIG_MOST, e)) == 0 &&
               (rc = file_map_open(&data, file, e)) == 0) {
        rc = nn_adapter_read(out, m, text, bytes, data.data, data.bytes, type, e);
    }
    file_map_close(&data);
    free(text);
    free(config);
    free(file);
    free(dir);
    return rc;
}

int nn_adapter_open(nn_adapter **out, const nn_model *m, const char *path, lowrank_type type, err *e) {
    size_t   len = strlen(path);
    file_map data = { 0 };
    int      rc;
    *out = NULL;
    if (dir_exists(path) || (len > 12 && strcmp(path + len - 12, ".safetensors") == 0) ||
        (len > 5 && strcmp(path + len - 5, ".json") == 0)) {
        rc = open_dir(out, m, path, type, e);
    } else if ((rc = file_map_open(&data, path, e)) == 0) {
        rc = gguf_is(data.data, data.bytes)
                 ? nn_adapter_read(out, m, NULL, 0, data.data, data.bytes, type, e)
                 : err_set(e, ERR_FORMAT, "it is neither a GGUF file nor a directory with an adapter_config.json");
        file_map_close(&data);
    }
    return rc < 0 ? err_wrap(e, rc, "%s", path) : 0;
}

void nn_adapter_free(nn_adapter *a) {
    if (!a) return;
    arena_deinit(&a->mem);
    huge_free(a->rooms);
    free(a);
}
