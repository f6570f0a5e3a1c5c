/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scores by distance that depend on the query and on the key (nn_apart in nn.h), DeBERTa's way.
 *
 * The model has a vector for each bucket of distances and puts it through a layer's matrices of keys and queries, as if
 * it were a token. That does not depend on the input and is done once, while the tape is recorded: a layer has a matrix
 * for every head, whose rows are the buckets. What is left for a step is one product per head for queries and one for
 * keys, and attention picks from their rows by distance.
 */
#include "base/pool.h"
#include "nn/tape.h"
#include "tensor/codec.h"
#include "tensor/mat.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* SPARE: rows of zeros behind the buckets, so that a step's rows do not lie a power of two apart: attention reads one
 * number of many of them. */
enum { PANEL = 8, LANES = 4, SPARE = 16, MOST_WORKERS = 16, MOST_BUCKETS = 4096, MOST_DISTANCE = 1 << 16 };

struct nn_apart_table {
    int          n; /* buckets and SPARE */
    int64_t      cols;
    nn_vec       which;
    const float *panels; /* [n / PANEL][cols][PANEL] */
};

static void *take(nn_tape *t, size_t count, size_t bytes) {
    void *p = t->failed ? NULL : arena_calloc(t->mem, count, bytes);
    if (!p && !t->failed) {
        err_set_nomem(&t->error);
        t->failed = true;
    }
    return p;
}

static void *refuse(nn_tape *t, const nn_mat *table, int span, int max_distance) {
    if (t->failed) return NULL;
    err_set(&t->error, ERR_FORMAT, "tensor %s: two times %d buckets of distances up to %d, and %lld rows", table->name,
            span, max_distance, (long long)table->rows);
    t->failed = true;
    return NULL;
}

/*
 * Where a distance of query and key falls, -span and span being the ends. Near ones have a bucket each, further ones
 * share them by their logarithm. The logarithm is taken as the reference does: in f32.
 */
static int bucket_of(int d, int n_bucket, int max_distance) {
    int mid = n_bucket / 2, far = abs(d);
    if (n_bucket == 0 || far <= mid) return d;
    float share = logf((float)far / (float)mid) / logf((float)(max_distance - 1) / (float)mid);
    int   at = (int)ceilf(share * (float)(mid - 1)) + mid;
    return d < 0 ? -at : at;
}

/* A query's distance to a key before it is positive here, as in the file; attention counts the other way. */
static nn_vec make_which(nn_tape *t, const char *name, int span, int n_bucket, int max_distance) {
    int r = 1;
    while (r < MOST_DISTANCE && bucket_of(r, n_bucket, max_distance) < span) r++;
    float *which = take(t, 2 * (size_t)r + 1, sizeof *which);
    for (int d = -r; which && d <= r; d++) {
        int at = span + bucket_of(-d, n_bucket, max_distance);
        which[r + d] = (float)(at < 0 ? 0 : at > 2 * span - 1 ? 2 * span - 1 : at);
    }
    return (nn_vec){ .name = name, .n = 2 * (int64_t)r + 1, .data = which };
}

static void norm_row(float *x, int64_t n, const nn_norm *norm, float eps) {
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)x[i];
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    double scale = 1 / sqrt(sum / (double)n + (double)eps);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) * scale * (double)norm->w->data[i] +
                       (norm->b ? (double)norm->b->data[i] : 0.0));
}

nn_apart_table *nn_apart_open(nn_tape *t, const nn_mat *table, const nn_norm *norm, float eps, int n_bucket,
                              int max_distance) {
    int    span = n_bucket ? n_bucket : max_distance;
    bool   fits = span >= 1 && span <= MOST_BUCKETS / 2 && max_distance <= MOST_DISTANCE;
    float *row = NULL, *panels = NULL;
    if (t->failed) return NULL;
    if (!fits || table->rows < 2 * span || (n_bucket && (n_bucket < 4 || max_distance - 1 <= n_bucket / 2)))
        return refuse(t, table, span, max_distance);
    int             n = (2 * span + SPARE + PANEL - 1) / PANEL * PANEL;
    nn_apart_table *p = take(t, 1, sizeof *p);
    panels = take(t, (size_t)n * (size_t)table->cols, sizeof *panels);
    row = take(t, (size_t)table->cols, sizeof *row);
    if (!p || !panels || !row) return NULL;
    p->which = make_which(t, table->name, span, n_bucket, max_distance);
    for (int i = 0; i < 2 * span; i++) {
        tensor_mat_dequant_row(table->at, 0, i, row);
        if (norm && norm->w) norm_row(row, table->cols, norm, eps);
        float *to = panels + (size_t)(i / PANEL) * (size_t)table->cols * PANEL + i % PANEL;
        for (int64_t c = 0; c < table->cols; c++) to[c * PANEL] = row[c];
    }
    p->n = 2 * span + SPARE;
    p->cols = table->cols;
    p->panels = panels;
    return t->failed ? NULL : p;
}

/* LANES outputs for the PANEL buckets of a panel; w: [LANES][cols]. */
static void multiply(const float *w, const float *panel, int64_t cols, float out[LANES][PANEL]) {
    float sum[LANES][PANEL] = { { 0 } };
    for (int64_t c = 0; c < cols; c++) {
        for (int r = 0; r < LANES; r++) {
            for (int i = 0; i < PANEL; i++) sum[r][i] += w[r * cols + c] * panel[c * PANEL + i];
        }
    }
    memcpy(out, sum, sizeof sum);
}

/* The vectors of a layer in the making. */
typedef struct making {
    const nn_apart_table *p;
    nn_linear             w;
    int                   dim;
    float                *rows; /* [workers][LANES][cols] */
    float                *out;  /* head by head, each [buckets][dim] */
} making;

/* Outputs [o, o + n), n at most LANES, of all buckets. */
static void put_outputs(const making *m, const float *rows, int64_t o, int n) {
    const nn_apart_table *p = m->p;
    for (int first = 0; first < p->n; first += PANEL) {
        float y[LANES][PANEL];
        multiply(rows, p->panels + (size_t)first * (size_t)p->cols, p->cols, y);
        for (int r = 0; r < n; r++) {
            int64_t at = (o + r) / m->dim * p->n * m->dim + (o + r) % m->dim;
            float   bias = m->w.b ? m->w.b->data[o + r] : 0.0f;
            for (int i = 0; i < PANEL && first + i < p->n; i++)
                m->out[at + (int64_t)(first + i) * m->dim] = y[r][i] + bias;
        }
    }
}

static void make_share(void *ctx, int worker, int n_workers) {
    const making *m = ctx;
    float        *rows = m->rows + (size_t)worker * LANES * (size_t)m->p->cols;
    for (int64_t o = (int64_t)worker * LANES; o < m->w.w->rows; o += (int64_t)n_workers * LANES) {
        int n = m->w.w->rows - o < LANES ? (int)(m->w.w->rows - o) : LANES;
        for (int r = 0; r < n; r++) tensor_mat_dequant_row(m->w.w->at, 0, o + r, rows + r * m->p->cols);
        put_outputs(m, rows, o, n);
    }
}

/* A full-sized model has seconds of this; a small one is done before a thread has begun. */
static int workers_for(const nn_apart_table *p, const nn_mat *w) {
    double work = (double)p->n * (double)p->cols * (double)w->rows;
    int    n = work < 5e7 ? 1 : pool_default_threads();
    return n < MOST_WORKERS ? n : MOST_WORKERS;
}

const nn_mat *nn_apart_rows(nn_tape *t, const nn_apart_table *p, nn_linear w, int n_head) {
    if (t->failed) return NULL;
    if (n_head < 1 || w.w->rows < n_head || w.w->rows % n_head || w.w->cols != p->cols) {
        err_set(&t->error, ERR_FORMAT, "tensor %s: %lld rows of %lld for %d heads and a table of vectors of %lld",
                w.w->name, (long long)w.w->rows, (long long)w.w->cols, n_head, (long long)p->cols);
        t->failed = true;
        return NULL;
    }
    int         dim = (int)(w.w->rows / n_head), n_workers = workers_for(p, w.w);
    pool       *threads = NULL;
    float      *out = take(t, (size_t)p->n * (size_t)w.w->rows, sizeof *out);
    tensor_mat *at = take(t, (size_t)n_head, sizeof *at);
    nn_mat     *m = take(t, 1, sizeof *m);
    making      job = { .p = p, .w = w, .dim = dim, .out = out };
    job.rows = calloc((size_t)n_workers * LANES, (size_t)p->cols * sizeof *job.rows);
    if (!job.rows && !t->failed) t->failed = err_set_nomem(&t->error) < 0;
    if (t->failed) {
        free(job.rows);
        return NULL;
    }
    if (n_workers > 1 && pool_open(&threads, n_workers, false, NULL) == 0)
        pool_run(threads, make_share, &job);
    else
        make_share(&job, 0, 1);
    pool_free(threads);
    free(job.rows);
    for (int h = 0; h < n_head; h++)
        at[h] = (tensor_mat){ .type = TENSOR_F32,
                              .rows = p->n,
                              .cols = dim,
                              .data = out + (size_t)h * (size_t)p->n * (size_t)dim,
                              .row_bytes = (size_t)dim * sizeof *out };
    *m = (nn_mat){ .name = w.w->name, .rows = p->n, .cols = dim, .n_stack = n_head, .at = at, .made_of = w.w };
    return m;
}

nn_apart nn_apart_of(nn_tape *t, const nn_apart_table *p, nn_buf q, const nn_mat *by_query, nn_buf k,
                     const nn_mat *by_key) {
    if (t->failed) return (nn_apart){ 0 };
    return (nn_apart){
        .q = nn_project_heads(t, q, by_query), .k = nn_project_heads(t, k, by_key), .n = p->n, .which = &p->which
    };
}
