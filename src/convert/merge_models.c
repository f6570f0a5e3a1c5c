/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models of one shape mixed into one. SLERP and TIES need to know a whole tensor before its first row is made: a pass over
 * all of them measures it, on all threads. TIES finds the magnitude that `density` of the differences reach by counting
 * bit patterns: the upper sixteen bits first, then the lower ones of those that share them, so memory does not grow with
 * the tensor. Differences of exactly that magnitude are all kept.
 */
#include "convert/merge_impl.h"

#include "base/map.h"
#include "base/xxh64.h"
#include "convert/quantize.h"
#include "formats/forget.h"
#include "tensor/codec.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = 1 << 16 };

typedef struct mixed {
    const merge_recipe *r;
    row_source          from[MERGE_MOST];
    int                 n;
    const char         *name;
    tensor_type         type;
    int64_t             rows, cols;
    double              along[2];          /* slerp: of the two */
    uint32_t            least[MERGE_MOST]; /* ties: bits of the least magnitude that counts */

    const model_file *const *models;
} mixed;

/* --- measuring ----------------------------------------------------------------------------------------------------- */

/* A row of two of the models; what was read is given back after every STREAM_REST bytes or so. */
static void read_rows(const mixed *t, int a, int b, int64_t row, float *x) {
    int64_t rows = STREAM_REST / (4 * t->cols) + 1;
    row_source_floats(&t->from[a], row, x, t->cols);
    row_source_floats(&t->from[b], row, x + t->cols, t->cols);
    if (row % rows != rows - 1 && row != t->rows - 1) return;
    model_file_forget(t->models[a]);
    model_file_forget(t->models[b]);
}

static int measure_arc(mixed *t, float *x) {
    double dot = 0, a2 = 0, b2 = 0, s = t->r->t;
    for (int64_t row = 0; row < t->rows; row++) {
        read_rows(t, 0, 1, row, x);
        for (int64_t c = 0; c < t->cols; c++) {
            double a = (double)x[c], b = (double)x[t->cols + c];
            dot += a * b;
            a2 += a * a;
            b2 += b * b;
        }
    }
    double cosine = a2 > 0 && b2 > 0 ? dot / (sqrt(a2) * sqrt(b2)) : 1;
    t->along[0] = 1 - s;
    t->along[1] = s;
    if (fabs(cosine) > 0.9995) return 0; /* nearly one line: the arc's formula would divide by nothing */
    double angle = acos(cosine);
    t->along[0] = sin((1 - s) * angle) / sin(angle);
    t->along[1] = sin(s * angle) / sin(angle);
    return 0;
}

static uint32_t magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* Counts the differences whose upper bits are `upper` by their lower ones; upper -1: all, by their upper ones. */
static void count_bits(const mixed *t, int k, int64_t upper, float *x, uint64_t *bins) {
    memset(bins, 0, BINS * sizeof *bins);
    for (int64_t row = 0; row < t->rows; row++) {
        read_rows(t, 0, k, row, x);
        for (int64_t c = 0; c < t->cols; c++) {
            uint32_t m = magnitude(x[t->cols + c] - x[c]);
            if (upper < 0)
                bins[m >> 16]++;
            else if ((int64_t)(m >> 16) == upper)
                bins[m & 0xffff]++;
        }
    }
}

/* The bin in which the wanted one lies, from the largest down; *wanted: how many of it. */
static uint32_t find_bin(const uint64_t *bins, uint64_t *wanted) {
    uint32_t b = BINS - 1;
    for (; b > 0 && bins[b] < *wanted; b--) *wanted -= bins[b];
    return b;
}

static int measure_differences(mixed *t, float *x) {
    uint64_t *bins = malloc(BINS * sizeof *bins);
    if (!bins) return ERR_NOMEM;
    for (int k = 1; k < t->n; k++) {
        uint64_t wanted = (uint64_t)(t->r->density * (double)(t->rows * t->cols));
        if (wanted < 1) wanted = 1;
        count_bits(t, k, -1, x, bins);
        uint32_t upper = find_bin(bins, &wanted);
        count_bits(t, k, upper, x, bins);
        t->least[k] = upper << 16 | find_bin(bins, &wanted);
    }
    free(bins);
    return 0;
}

typedef struct measuring {
    mixed              *list;
    size_t              n;
    atomic_size_t       next;
    atomic_bool         failed;
    const plan_options *o; /* whom to ask whether to go on */
    atomic_bool         stopped;
} measuring;

/* Nothing is written yet: the bar stands at its beginning. */
static bool goes_on(measuring *m) {
    if (!m->o->progress || m->o->progress(m->o->progress_ctx, 0, 1)) return true;
    atomic_store(&m->stopped, true);
    return false;
}

static void measure_all(void *ctx, int worker, int n_workers) {
    measuring *m = ctx;
    size_t     i;
    (void)n_workers;
    while ((i = atomic_fetch_add(&m->next, 1)) < m->n && !atomic_load(&m->failed) && !atomic_load(&m->stopped)) {
        if (worker == 0 && !goes_on(m)) return;
        mixed *t = &m->list[i];
        float *x = malloc(2 * (size_t)t->cols * sizeof *x);
        int    rc = !x ? ERR_NOMEM : t->r->method == MERGE_SLERP ? measure_arc(t, x) : measure_differences(t, x);
        if (rc < 0) atomic_store(&m->failed, true);
        free(x);
    }
}

/* --- one row ------------------------------------------------------------------------------------------------------- */

static float mix_differences(const mixed *t, const float *x, int64_t c) {
    double d[MERGE_MOST], all = 0, sum = 0, weights = 0;
    for (int k = 1; k < t->n; k++) {
        float difference = x[k * t->cols + c] - x[c];
        bool  counts = t->r->method == MERGE_TASK || magnitude(difference) >= t->least[k];
        d[k] = counts ? (double)difference : 0;
        all += t->r->weight[k] * d[k];
    }
    if (t->r->method == MERGE_TASK) return (float)((double)x[c] + t->r->lambda * all);
    for (int k = 1; k < t->n; k++) {
        if (d[k] == 0 || (d[k] > 0) != (all >= 0)) continue;
        sum += t->r->weight[k] * d[k];
        weights += t->r->weight[k];
    }
    return (float)((double)x[c] + (weights != 0 ? t->r->lambda * sum / weights : 0));
}

static int make_row(const void *ctx, int64_t row, void *out, float *x, err *e) {
    const mixed *t = ctx;
    float       *y = x + t->n * t->cols;
    double       total = 0;
    for (int k = 0; k < t->n; k++) {
        row_source_floats(&t->from[k], row, x + k * t->cols, t->cols);
        total += t->r->weight[k];
    }
    for (int64_t c = 0; c < t->cols; c++) {
        double sum = 0;
        if (t->r->method == MERGE_SLERP) {
            sum = t->along[0] * (double)x[c] + t->along[1] * (double)x[t->cols + c];
        } else if (t->r->method == MERGE_LINEAR) {
            for (int k = 0; k < t->n; k++) sum += t->r->weight[k] * (double)x[k * t->cols + c];
            sum /= total;
        } else {
            sum = (double)mix_differences(t, x, c);
        }
        y[c] = (float)sum;
    }
    if (!tensor_quant_row((int)t->type, y, out, t->cols))
        return err_set(e, ERR_UNSUPPORTED, "%s: it cannot become %s", t->name, tensor_type_name((int)t->type));
    return 0;
}

/* --- tensors ------------------------------------------------------------------------------------------------------- */

typedef struct work {
    hf_plan       plans[MERGE_MOST];
    map           names[MERGE_MOST]; /* of all but the first */
    mixed        *list;
    size_t        n_mixed;
    arena         mem;
    int           n;
    merge_result *out;
} work;

static bool is_number(const plan_tensor *t) { return !t->from.raw || tensor_can_dequant((int)t->from.type); }

static int find_same(const work *w, int k, const plan_tensor *t, const char *path, const plan_tensor **out, err *e) {
    uint64_t at;
    if (!map_get_c(&w->names[k], t->name, &at)) return err_set(e, ERR_ARG, "%s has no tensor %s", path, t->name);
    *out = &w->plans[k].tensors[at];
    for (int d = 0; d < 4; d++)
        if ((*out)->dims[d] != t->dims[d] || !is_number(*out))
            return err_set(e, ERR_ARG, "%s: tensor %s has another shape than in the first model", path, t->name);
    return 0;
}

static int mix_tensor_of(work *w, plan_tensor *t, const model_file *const *models, const merge_recipe *r,
                         const merge_options *o, err *e) {
    mixed *x = &w->list[w->n_mixed];
    if (!is_number(t)) return 0; /* taken from the first */
    *x = (mixed){ .r = r, .n = w->n, .name = t->name, .rows = plan_rows(t), .cols = t->dims[0], .models = models };
    x->from[0] = t->from;
    for (int k = 1; k < w->n; k++) {
        const plan_tensor *other = NULL;
        int                rc = find_same(w, k, t, model_file_path(models[k]), &other, e);
        if (rc < 0) return rc;
        x->from[k] = other->from;
    }
    int rc = merge_change(t, o, w->out, e);
    x->type = t->type;
    t->from = (row_source){ .make = make_row, .ctx = x, .scratch = (size_t)(w->n + 1) * (size_t)t->dims[0] };
    w->n_mixed++;
    return rc;
}

static int index_names(work *w, err *e) {
    for (int k = 1; k < w->n; k++) {
        if (w->plans[k].n != w->plans[0].n)
            return err_set(e, ERR_ARG, "the models have %zu and %zu tensors: they are not of one shape", w->plans[0].n,
                           w->plans[k].n);
        for (size_t i = 0; i < w->plans[k].n; i++) {
            const char *name = w->plans[k].tensors[i].name;
            if (!map_put(&w->names[k], name, strlen(name), i)) return err_set_nomem(e);
        }
    }
    return 0;
}

static int mix_all(work *w, const model_file *const *models, const merge_recipe *r, const merge_options *o, pool *p,
                   err *e) {
    int rc = index_names(w, e);
    w->list = arena_calloc(&w->mem, w->plans[0].n + 1, sizeof *w->list);
    if (rc == 0 && !w->list) rc = err_set_nomem(e);
    for (size_t i = 0; i < w->plans[0].n && rc == 0; i++)
        rc = mix_tensor_of(w, &w->plans[0].tensors[i], models, r, o, e);
    if (rc == 0 && !o->write.dry && (r->method == MERGE_SLERP || r->method == MERGE_TIES)) {
        measuring m = { .list = w->list, .n = w->n_mixed, .o = &o->write };
        pool_run(p, measure_all, &m);
        if (atomic_load(&m.failed)) rc = err_set_nomem(e);
        if (atomic_load(&m.stopped))
            rc = err_set(e, ERR_CANCELLED, "%s was not finished: it was asked to stop", o->write.path);
    }
    return rc;
}

static uint64_t identity_of(const merge_recipe *r, int n) {
    double x[MERGE_MOST + 4] = { (double)r->method, r->t, r->density, r->lambda };
    for (int k = 0; k < n; k++) x[4 + k] = r->weight[k];
    return xxh64(x, sizeof x);
}

int merge_models(const model_file *const *models, int n, const merge_recipe *r, const merge_options *o, pool *p,
                 merge_result *out, err *e) {
    work w = { .n = n, .out = out };
    int  rc = 0;
    memset(out, 0, sizeof *out);
    if (n < 2 || n > MERGE_MOST) return err_set(e, ERR_ARG, "between 2 and %d models can be merged", MERGE_MOST);
    arena_init(&w.mem, 0);
    for (int k = 0; k < n; k++) {
        map_init(&w.names[k]);
        if (rc == 0) rc = merge_plan(&w.plans[k], models[k], &w.mem, e);
    }
    if (rc == 0) rc = mix_all(&w, models, r, o, p, e);
    uint64_t identity = identity_of(r, n);
    for (int k = 1; k < n; k++) identity = identity * 31 ^ quantize_source_identity(models[k]);
    merge_options all = *o;
    all.write.from = models;
    all.write.n_from = n;
    if (rc == 0) rc = merge_write(models[0], &w.plans[0], &all, identity, p, out, e);
    for (int k = 0; k < n; k++) map_deinit(&w.names[k]);
    arena_deinit(&w.mem);
    return rc;
}
