/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weights on the device: every matrix that the executor's ops multiply with, in the layout of the product kernels, and
 * every small vector. Types without a layout of their own are recoded to one that keeps their integers (recode.h), by all
 * threads, some rows at a time; the few that cannot be become F16 on the host, BF16 on the device. One power of two per
 * stack of matrices brings the largest value well into F16's range. A matrix comes through the staging area in slabs of
 * rows. The tokens' embeddings lie there as in the file, where the device can read their type; other tables stay in the
 * file.
 */
#include "backend/cuda/cuda.h"

#include "base/pool.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/recode.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECODE_BYTES = 16 << 20 }; /* of recoded rows at a time */

/* Rows of a matrix that are on their way together. */
typedef struct slab {
    const tensor_mat *m;
    int64_t           row, n;
} slab;

/* What loading needs beside the executor. */
typedef struct loader {
    cuda_exec *x;
    pool      *pool;   /* opened for the first matrix that is recoded */
    slab       staged; /* what the staging area holds as cuda_pack takes it; m NULL: anything */
} loader;

static int64_t slab_rows(int64_t rows) { return rows < CUDA_SLAB_ROWS ? rows : CUDA_SLAB_ROWS; }

static slab slab_at(const tensor_mat *m, int64_t row) { return (slab){ m, row, slab_rows(m->rows - row) }; }

static int stack_of(const nn_mat *m) { return m->n_stack ? m->n_stack : 1; }

/* Whether two matrices are the same bytes: a head that is the embedding, for one. */
static bool same_mat(const nn_mat *a, const nn_mat *b) {
    return a == b ||
           (a->at[0].data == b->at[0].data && a->rows == b->rows && a->cols == b->cols && a->n_stack == b->n_stack &&
            a->at[0].type == b->at[0].type && a->at[0].row_bytes == b->at[0].row_bytes);
}

const cuda_mat *cuda_mat_of(const cuda_exec *x, const nn_mat *m) {
    for (int i = 0; i < x->n_mats; i++) {
        if (same_mat(x->mats[i].from, m)) return &x->mats[i];
    }
    return NULL;
}

const float *cuda_vec_of(const cuda_exec *x, const float *data) {
    for (int i = 0; data && i < x->n_vecs; i++) {
        if (x->vecs[i].from == data) return (const float *)(const void *)(x->weights + x->vecs[i].at);
    }
    return NULL;
}

int cuda_weights_add_vec(cuda_exec *x, const float *data, int64_t n, err *e) {
    for (int i = 0; i < x->n_vecs; i++) {
        if (x->vecs[i].from == data) return 0;
    }
    if (x->n_vecs % 256 == 0) {
        cuda_vec *more = realloc(x->vecs, (size_t)(x->n_vecs + 256) * sizeof *more);
        if (!more) return err_set_nomem(e);
        x->vecs = more;
    }
    x->vecs[x->n_vecs++] = (cuda_vec){ data, n, x->weights_bytes };
    x->weights_bytes += cuda_align((size_t)n * sizeof *data);
    return 0;
}

/* What one matrix is multiplied as. Types with scales of their own array are never packed as they are. */
static tensor_type one_type(const tensor_mat *m) {
    if (m->type == TENSOR_F32 || m->type == TENSOR_BF16) return m->type == TENSOR_F32 ? m->type : TENSOR_F16;
    return cuda_can_multiply(m->type) && !m->scales ? m->type : cuda_recode_type(m);
}

static tensor_type device_type(const nn_mat *m) {
    const tensor_type type = one_type(&m->at[0]);
    for (int i = 1; i < stack_of(m); i++) {
        if (m->at[i].type != m->at[0].type || one_type(&m->at[i]) != type) return TENSOR_F16;
    }
    return type;
}

int cuda_weights_add(cuda_exec *x, const nn_op *op, int number, err *e) {
    const nn_mat *m = cuda_product_of(op);
    char          why[160];
    if (cuda_mat_of(x, m)) return 0;
    for (int i = 0; i < stack_of(m); i++) {
        if (tensor_mat_valid(&m->at[i])) continue;
        snprintf(why, sizeof why, "weights of type %s", tensor_type_name((int)m->at[i].type));
        return cuda_refuse(x, number, why, e);
    }
    if (x->n_mats % 256 == 0) {
        cuda_mat *more = realloc(x->mats, (size_t)(x->n_mats + 256) * sizeof *more);
        if (!more) return err_set_nomem(e);
        x->mats = more;
    }
    cuda_mat w = { .from = m, .type = device_type(m), .w_scale = 1.0f, .at = x->weights_bytes, .lead = x->n_mats };
    w.each = cuda_align(w.type == TENSOR_F32 ? (size_t)(m->rows * m->cols) * sizeof(float)
                                             : cuda_packed_bytes(w.type, m->rows, m->cols));
    x->weights_bytes += w.each * (size_t)stack_of(m);
    w.table_at = x->weights_bytes;
    if (m->n_stack) x->weights_bytes += cuda_align((size_t)m->n_stack * sizeof(void *));
    x->mats[x->n_mats++] = w;
    return 0;
}

bool cuda_weights_scaled(const cuda_mat *w) {
    return w->type == TENSOR_F16 && (w->from->at[0].type != TENSOR_F16 || w->from->at[0].scales);
}

void cuda_weights_join(cuda_exec *x, const nn_op *ops, int n) {
    const int lead = (int)(cuda_mat_of(x, ops[0].u.linear.w) - x->mats);
    size_t    at = x->mats[lead].at;
    int64_t   rows = 0;
    for (int i = 0; i < n; i++) rows += ops[i].u.linear.w->rows;
    for (int i = 0; i < n; i++) {
        cuda_mat *w = &x->mats[cuda_mat_of(x, ops[i].u.linear.w) - x->mats];
        w->lead = lead, w->pitch = cuda_round_up(rows, CUDA_TILE_ROWS), w->at = at;
        at += (size_t)w->from->rows * CUDA_ROW_BYTES;
    }
}

/* Bytes of one slab on its way: in file layout, recoded, or as F16. */
static size_t staged_bytes(const cuda_mat *w) {
    return w->type == TENSOR_F32 ? 0 : cuda_row_bytes(w->type, w->from->cols) * (size_t)slab_rows(w->from->rows);
}

size_t cuda_weights_staging(const cuda_exec *x) {
    size_t most = 0;
    for (int i = 0; i < x->n_mats; i++) {
        size_t bytes = staged_bytes(&x->mats[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

static float largest(const tensor_mat *m, float *row) {
    float most = 0;
    for (int64_t r = 0; r < m->rows; r++) {
        tensor_mat_dequant_row(m, 0, r, row);
        for (int64_t i = 0; i < m->cols; i++) {
            float v = fabsf(row[i]);
            if (v > most && v < INFINITY) most = v;
        }
    }
    return most;
}

/* Rows as F16, divided by w_scale; or as F32. The caller frees them. */
static void *expanded(const slab *p, tensor_type type, float w_scale, err *e) {
    size_t   cols = (size_t)p->m->cols, row_bytes = cols * (type == TENSOR_F32 ? 4 : 2);
    uint8_t *out = malloc((size_t)p->n * row_bytes + 1);
    float   *row = malloc(cols * sizeof *row);
    for (int64_t r = 0; out && row && r < p->n; r++) {
        tensor_mat_dequant_row(p->m, 0, p->row + r, row);
        for (size_t i = 0; i < cols; i++) row[i] /= w_scale;
        if (type == TENSOR_F32)
            memcpy(out + (size_t)r * row_bytes, row, row_bytes);
        else
            (void)tensor_quant_row(TENSOR_F16, row, out + (size_t)r * row_bytes, p->m->cols);
    }
    if (!out || !row) {
        free(out);
        out = NULL;
        err_set_nomem(e);
    }
    free(row);
    return out;
}

static bool is_bf16(const tensor_mat *m) { return m->type == TENSOR_BF16 && !m->scales; }

/* Some rows of a matrix on their way to another type; workers take 16 at a time. */
typedef struct recoding {
    const tensor_mat *m;
    tensor_type       to;
    int64_t           row0, n;
    uint8_t          *out;
} recoding;

static void recode_rows(void *ctx, int worker, int n_workers) {
    const recoding *r = ctx;
    const size_t    row_bytes = cuda_row_bytes(r->to, r->m->cols);
    for (int64_t i = (int64_t)worker * CUDA_TILE_ROWS; i < r->n; i += (int64_t)n_workers * CUDA_TILE_ROWS) {
        const int64_t n = r->n - i < CUDA_TILE_ROWS ? r->n - i : CUDA_TILE_ROWS;
        cuda_recode(r->m, r->to, r->row0 + i, n, r->out + (size_t)i * row_bytes);
    }
}

static int open_pool(loader *l, err *e) {
    const int n = l->x->x.options.n_threads > 0 ? l->x->x.options.n_threads : pool_default_threads();
    return l->pool ? 0 : pool_open(&l->pool, n, false, e);
}

/* A slab to the staging area, recoded. */
static int stage_recoded(loader *l, const slab *p, tensor_type to, err *e) {
    const size_t  row_bytes = cuda_row_bytes(to, p->m->cols);
    const int64_t fit = (int64_t)(RECODE_BYTES / row_bytes),
                  most = fit < 64 ? 64 : fit / CUDA_TILE_ROWS * CUDA_TILE_ROWS;
    int      rc = open_pool(l, e);
    uint8_t *out = rc == 0 ? malloc((size_t)(most < p->n ? most : p->n) * row_bytes) : NULL;
    if (rc == 0 && !out) rc = err_set_nomem(e);
    for (int64_t row = 0; row < p->n && rc == 0; row += most) {
        recoding r = { p->m, to, p->row + row, p->n - row < most ? p->n - row : most, out };
        pool_run(l->pool, recode_rows, &r);
        rc = cuda_copy_in(l->x->heap + l->x->areas.scratch + (size_t)row * row_bytes, out, (size_t)r.n * row_bytes, e);
    }
    free(out);
    return rc;
}

/* A slab to the staging area, as cuda_pack takes it where it will be of type `to`. */
static int stage(loader *l, const slab *p, tensor_type to, err *e) {
    cuda_exec        *x = l->x;
    const tensor_mat *m = p->m;
    size_t            row = 0;
    int               rc;
    if (l->staged.m == m && l->staged.row == p->row) return 0;
    (void)tensor_row_bytes((int)m->type, m->cols, &row);
    l->staged.m = NULL;
    if (m->type == to || to == TENSOR_F16)
        rc = cuda_copy_rows_in(x->heap + x->areas.scratch, (const uint8_t *)m->data + (size_t)p->row * m->row_bytes,
                               row, m->row_bytes, (size_t)p->n, e);
    else
        rc = stage_recoded(l, p, to, e);
    if (rc == 0 && to != TENSOR_F16) l->staged = *p;
    return rc;
}

/* One slab of a matrix that begins at `to`: as it is in the file or recoded where the kernels know the type, else by way of
 * floats. */
static int load_slab(loader *l, const cuda_mat *w, const slab *p, uint8_t *to, err *e) {
    cuda_exec        *x = l->x;
    const tensor_mat *m = p->m;
    uint8_t          *staged = x->heap + x->areas.scratch;
    size_t            row = cuda_row_bytes(w->type, m->cols);
    int               rc;
    if (is_bf16(m) && w->type == TENSOR_F16) {
        rc = stage(l, p, TENSOR_F16, e);
        if (rc == 0) rc = cuda_bf16_turn(staged, p->n * m->cols, 1.0f / w->w_scale, x->stream, e);
    } else if (w->type != TENSOR_F32 && (w->type != TENSOR_F16 || (m->type == TENSOR_F16 && !cuda_weights_scaled(w)))) {
        rc = stage(l, p, w->type, e);
    } else {
        void *host = expanded(p, w->type, w->w_scale, e);
        if (!host) return ERR_NOMEM;
        l->staged.m = NULL;
        rc = cuda_copy_in(w->type == TENSOR_F32 ? to + (size_t)p->row * row : staged, host, row * (size_t)p->n, e);
        free(host);
    }
    if (rc < 0 || w->type == TENSOR_F32) return rc;
    to += cuda_packed_at(w->type, p->row, m->cols);
    if (w->type == TENSOR_F16)
        rc = cuda_pack_part(to, staged, row, w->type, p->n, m->cols,
                            w->pitch ? w->pitch : cuda_round_up(m->rows, CUDA_TILE_ROWS), x->stream, e);
    else
        rc = cuda_pack(to, staged, row, w->type, p->n, m->cols, ilogbf(w->w_scale), x->stream, e);
    return rc < 0 ? rc : cuda_wait(x->stream, e);
}

static int load_one(loader *l, const cuda_mat *w, const tensor_mat *m, uint8_t *to, err *e) {
    int rc = 0;
    for (int64_t row = 0; row < m->rows && rc == 0; row += CUDA_SLAB_ROWS) {
        const slab p = slab_at(m, row);
        rc = load_slab(l, w, &p, to, e);
    }
    return rc;
}

/* *top becomes what is largest in a slab, where that is more: a bf16 number, or a scale of quantized blocks. */
static int slab_top(loader *l, const slab *p, tensor_type type, uint32_t *top, err *e) {
    cuda_exec     *x = l->x;
    const uint8_t *staged = x->heap + x->areas.scratch;
    int            rc = stage(l, p, type, e);
    if (rc == 0 && type == TENSOR_F16) rc = cuda_bf16_top(top, staged, p->n * p->m->cols, x->stream, e);
    if (rc == 0 && type != TENSOR_F16)
        rc = cuda_pack_top(top, staged, type,
                           p->n * (int64_t)(cuda_row_bytes(type, p->m->cols) / (size_t)cuda_block_bytes(type)),
                           x->stream, e);
    return rc < 0 ? rc : cuda_wait(x->stream, e);
}

/* The same of a stack of matrices. The last slab stays in the staging area, so one of one slab is brought once. */
static int largest_of(loader *l, const nn_mat *m, tensor_type type, uint32_t *most, err *e) {
    uint32_t *top = (uint32_t *)(void *)(l->x->heap + l->x->areas.block);
    int       rc = cuda_fill(top, 0, sizeof *top, e);
    for (int i = 0; i < stack_of(m) && rc == 0; i++) {
        for (int64_t row = 0; row < m->rows && rc == 0; row += CUDA_SLAB_ROWS) {
            const slab p = slab_at(&m->at[i], row);
            rc = slab_top(l, &p, type, top, e);
        }
    }
    return rc < 0 ? rc : cuda_copy_out(most, top, sizeof *most, e);
}

/* The largest magnitude of a stack of BF16 matrices. */
static int bf16_largest(loader *l, const nn_mat *m, float *most, err *e) {
    uint32_t bits = 0;
    int      rc = largest_of(l, m, TENSOR_F16, &bits, e);
    bits <<= 16;
    memcpy(most, &bits, sizeof bits);
    return rc;
}

/* The power of two that quantized weights of a stack are divided by. */
static int choose_power(loader *l, cuda_mat *w, err *e) {
    uint32_t most = 0;
    int      rc = largest_of(l, w->from, w->type, &most, e);
    w->w_scale = ldexpf(1.0f, cuda_pack_power(w->type, most));
    return rc;
}

/* The power of two that F16 values of a stack are divided by. */
static int choose_scale(loader *l, cuda_mat *w, err *e) {
    float *row = malloc((size_t)w->from->cols * sizeof *row), most = 0;
    int    exponent, rc = 0;
    bool   bf16 = true;
    if (!row) return err_set_nomem(e);
    for (int i = 0; i < stack_of(w->from); i++) bf16 = bf16 && is_bf16(&w->from->at[i]);
    if (bf16) rc = bf16_largest(l, w->from, &most, e);
    for (int i = 0; i < stack_of(w->from) && !bf16; i++) most = fmaxf(most, largest(&w->from->at[i], row));
    free(row);
    if (rc < 0) return rc;
    if (most > 0) {
        (void)frexpf(most, &exponent);
        w->w_scale = ldexpf(1.0f, exponent - 10 < -100 ? -100 : exponent - 10); /* the largest comes to [512, 1024) */
    }
    return 0;
}

static int load_mat(loader *l, cuda_mat *w, err *e) {
    cuda_exec   *x = l->x;
    int          n = stack_of(w->from), rc = 0;
    const void **table = malloc((size_t)n * sizeof *table);
    if (!table) return err_set_nomem(e);
    if (w->type != TENSOR_F16 && w->type != TENSOR_F32) rc = choose_power(l, w, e);
    for (int i = 0; i < n && rc == 0; i++) {
        uint8_t *to = x->weights + w->at + w->each * (size_t)i;
        rc = load_one(l, w, &w->from->at[i], to, e);
        table[i] = to;
    }
    if (rc == 0 && w->from->n_stack) rc = cuda_copy_in(x->weights + w->table_at, table, (size_t)n * sizeof *table, e);
    free((void *)table);
    return rc < 0 ? err_wrap(e, rc, "%s", w->from->name) : 0;
}

/* What F16 matrices are divided by; those of one image by the same. */
static int choose_scales(loader *l, err *e) {
    cuda_exec *x = l->x;
    int        rc = 0;
    for (int i = 0; i < x->n_mats && rc == 0; i++) {
        cuda_mat *w = &x->mats[i], *lead = &x->mats[w->lead];
        if (cuda_weights_scaled(w)) rc = choose_scale(l, w, e);
        if (lead->w_scale < w->w_scale) lead->w_scale = w->w_scale;
        if (rc < 0) return err_wrap(e, rc, "%s", w->from->name);
    }
    for (int i = 0; i < x->n_mats; i++) x->mats[i].w_scale = x->mats[x->mats[i].lead].w_scale;
    return rc;
}

static int load_table(const cuda_exec *x, const cuda_embed *m, err *e) {
    const tensor_mat *t = x->x.model->tape->ops[m->op].u.embed.table->at;
    if (!m->there) return 0;
    return cuda_copy_rows_in(x->weights + m->table_at, t->data, m->row_bytes, t->row_bytes, (size_t)t->rows, e);
}

int cuda_weights_load(cuda_exec *x, err *e) {
    loader l = { .x = x };
    int    rc = choose_scales(&l, e);
    for (int i = 0; i < x->n_embeds && rc == 0; i++) rc = load_table(x, &x->embeds[i], e);
    for (int i = 0; i < x->n_mats && rc == 0; i++) rc = load_mat(&l, &x->mats[i], e);
    for (int i = 0; i < x->n_vecs && rc == 0; i++)
        rc = cuda_copy_in(x->weights + x->vecs[i].at, x->vecs[i].from, (size_t)x->vecs[i].n * sizeof(float), e);
    pool_free(l.pool);
    return rc;
}
