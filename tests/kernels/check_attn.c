/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages against a double-precision reference, and its invariance bit for bit: one result for a row,
 * whether it is computed in a prefill of any chunking, alone, with heads split, by chunks and combined, with pages of
 * any size anywhere. Pages end at unmapped memory and unwritten slots hold NaN patterns. One file because every check draws
 * the same scenes and pages.
 */
#include "kernels/check.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { APART_REACH = 70 };

typedef struct scene {
    kv_layout layout;
    int       n, n_head, window, end_step; /* end_step: rows see up to the next multiple of it (0: causal) */
    bool      causal, sinks, alibi, wide;  /* wide: with end_step, from the one before on, whatever the window */
    int       until;                       /* 0: none */
    int       after, bias_reach;           /* after: not causal; bias_reach -1: no biases */
    int       apart;                       /* terms by distance for each head; 0: none */
    float     softcap, q_scale, k_scale;
} scene;

typedef struct data {
    float       *q, *k, *v; /* as given */
    float       *kl, *vl;   /* as stored */
    float       *out, *out2, *sinks, *bias, *alibi;
    float       *apart_q, *apart_k;
    float        apart_which[2 * APART_REACH + 1];
    int32_t     *pos, *row_end; /* row_end: then where rows begin */
    check_guard *pages;
    const void **table;
    int          n_pages;
    check_guard  scratch;
} data;

static void *alloc(size_t bytes) {
    void *p = calloc(1, bytes ? bytes : 1);
    if (!p) abort();
    return p;
}

static const char *const type_names[KV_TYPE_COUNT] = { "f32",  "f16", "bf16", "q8_0", "q4_0",
                                                       "q5_0", "tq4", "tq3",  "tq2",  "fp8" };

enum { PAGE_OFF = 128 };

static void pages_open(data *d, const kv_layout *l, int n) {
    d->n_pages = (n + l->tokens - 1) / l->tokens;
    d->pages = alloc((size_t)d->n_pages * sizeof *d->pages);
    d->table = alloc((size_t)d->n_pages * sizeof *d->table);
    for (int i = 0; i < d->n_pages; i++) {
        d->pages[i] = check_guard_alloc(PAGE_OFF + l->layer_bytes, 0);
        memset(d->pages[i].data, 0xff, d->pages[i].bytes);
        d->table[i] = d->pages[i].data;
    }
}

static void pages_close(check *c, data *d) {
    for (int i = 0; i < d->n_pages; i++) {
        for (int j = 0; j < PAGE_OFF; j++) CHECK(c, d->pages[i].data[j] == 0xff, "write in front of the layer's part");
        CHECK(c, check_guard_free(&d->pages[i]), "canary of page %d", i);
    }
    free(d->pages);
    free(d->table);
}

/* Stores all positions, in runs of random length. */
static void store_all(check *c, const kernels *k, const kv_layout *l, data *d, int n) {
    const size_t ks = (size_t)l->n_kv * (size_t)l->k_dim, vs = (size_t)l->n_kv * (size_t)l->v_dim;
    for (int p = 0; p < n;) {
        int run = check_int(c, 1, l->tokens);
        if (run > l->tokens - p % l->tokens) run = l->tokens - p % l->tokens;
        if (run > n - p) run = n - p;
        uint8_t     *page = d->pages[p / l->tokens].data + PAGE_OFF;
        const int    cut = check_int(c, 0, l->n_kv);
        const float *kp = d->k + (size_t)p * ks, *vp = l->v_in_k ? NULL : d->v + (size_t)p * vs;
        k->attn.kv_store(l, page, p % l->tokens, run, 0, cut, kp, ks, vp, vs);
        k->attn.kv_store(l, page, p % l->tokens, run, cut, l->n_kv, kp, ks, vp, vs);
        p += run;
    }
}

static float type_error(kv_type t) {
    switch (t) {
    case KV_F32: return 0;
    case KV_F16: return 0x1p-11f;
    case KV_BF16: return 0x1p-8f;
    case KV_FP8: return 0x1p-4f;
    case KV_Q8_0: return 0.6f / 127;
    case KV_Q4_0: return 1.02f / 8;
    default: break; /* always rotated */
    }
    return 0;
}

/* Largest part of the square of 128 normal values that their error may have. */
static double block_error(kv_type t) {
    switch (t) {
    case KV_Q8_0: return 2e-4;
    case KV_Q5_0: return 0.012;
    case KV_Q4_0: return 0.04;
    case KV_TQ4: return 0.04;
    case KV_TQ3: return 0.09;
    case KV_TQ2: return 0.22;
    default: break;
    }
    return 0;
}

static void check_rotated(check *c, kv_type type, int dim, int block, const float *x, const float *y, size_t n,
                          const char *what) {
    const double limit = block_error(type) * (block < KV_BLOCK_MAX ? 2 : 1); /* fewer values scatter more */
    double       worst = 0;
    for (size_t i = 0; i < n * (size_t)dim; i += (size_t)block) {
        double e = 0, s = 0;
        for (size_t j = i; j < i + (size_t)block; j++) {
            e += ((double)y[j] - (double)x[j]) * ((double)y[j] - (double)x[j]);
            s += (double)x[j] * (double)x[j];
        }
        if (!(e / s <= worst)) worst = e / s;
    }
    CHECK(c, worst <= limit, "%s %s dim %d: part of the square lost %g, limit %g", what, type_names[type], dim, worst,
          limit);
}

static void check_stored(check *c, const scene *s, kv_type type, int dim, const float *x, const float *y, size_t n,
                         const char *what) {
    const float tol = type_error(type);
    const bool  each = type == KV_F16 || type == KV_BF16 || type == KV_FP8;
    const float most = type == KV_F16 ? 65504.0f : type == KV_FP8 ? 448.0f : INFINITY;
    float       worst = 0;
    for (size_t r = 0; r < n; r++, x += dim, y += dim) {
        for (int g = 0; g < dim; g += KV_GROUP) {
            float amax = 0;
            for (int i = g; i < dim && i < g + KV_GROUP; i++) amax = fmaxf(amax, fabsf(x[i]));
            for (int i = g; i < dim && i < g + KV_GROUP; i++) {
                const float want = fmaxf(-most, fminf(most, x[i]));
                const float e = fabsf(y[i] - want) - (type == KV_FP8 ? 0x1p-10f : 1e-6f);
                if (amax > 0) worst = fmaxf(worst, e / (each ? fabsf(want) : amax));
                if (!(fabsf(y[i]) < INFINITY)) worst = INFINITY;
            }
        }
    }
    CHECK(c, worst <= tol, "%s %s dim %d page %d: stored error %g, limit %g", what, type_names[type], dim,
          s->layout.tokens, (double)worst, (double)tol);
}

/* The product of two rows, and the sum of its terms' magnitudes; in four sums each, which the compiler keeps in one
 * register. */
static double dot(const float *a, const float *b, int n, double *magnitude) {
    double s[4] = { 0 }, m[4] = { 0 };
    int    i = 0;
    for (; i + 4 <= n; i += 4) {
        for (int j = 0; j < 4; j++) {
            const double p = (double)a[i + j] * (double)b[i + j];
            s[j] += p;
            m[j] += fabs(p);
        }
    }
    for (; i < n; i++) s[0] += (double)a[i] * (double)b[i], m[0] += fabs((double)a[i] * (double)b[i]);
    *magnitude = m[0] + m[1] + (m[2] + m[3]);
    return s[0] + s[1] + (s[2] + s[3]);
}

/* Whether a side is read in whole numbers (impl/attn_quads.h, impl/attn_whole.h): then queries and factors of values are rounded. */
static bool whole(const check *c, const kv_layout *l, kv_type type, int dim) {
    return (c->cpu & CPU_AVX2) && kv_type_get((int)type)->scaled && dim % KV_GROUP == 0 && !l->v_in_k;
}

/* The largest number that a query is rounded to there. */
static double whole_most(const check *c, kv_type type) {
    const bool bytes = (c->cpu & (CPU_AVX512 | CPU_AVXVNNI)) || type == KV_Q5_0 || type == KV_Q4_0;
    return bytes && type != KV_Q8_0 ? 127 : 32639;
}

/*
 * One row and head in double; returns the error bound. In whole numbers it has five deviations of two roundings more: those of
 * a query by half of 1 / whole_most of its largest dimension, which is five times the mean square at most, and those of 64
 * factors by half of 1 / 32639 of the largest, where values have a third of their largest as mean square.
 */
static double reference(const check *c, const scene *s, const data *d, int row, int head, int64_t lo, int64_t hi,
                        double *out) {
    const kv_layout *l = &s->layout;
    const int        kvh = head / (s->n_head / l->n_kv);
    const float     *q = d->q + ((size_t)row * (size_t)s->n_head + (size_t)head) * (size_t)l->k_dim;
    const double     scale = 1.0 / sqrt((double)l->k_dim);
    const double     round = 5 / sqrt(12), most = whole_most(c, l->k_type);
    const double     whole_k = whole(c, l, l->k_type, l->k_dim) ? 5 * round / most : 0;
    const double     whole_v = whole(c, l, l->v_type, l->v_dim) ? 8 * round / 32639 / 3 : 0;
    double           m = -INFINITY, sum = 0, vmax = 0, s_err = 0, *x = alloc((size_t)(hi + 1) * sizeof *x), qq;
    dot(q, q, l->k_dim, &qq);
    for (int64_t j = lo; j < hi; j++) {
        const float *k = d->kl + ((size_t)j * (size_t)l->n_kv + (size_t)kvh) * (size_t)l->k_dim;
        double       mag, kk;
        x[j] = dot(q, k, l->k_dim, &mag) * (double)(float)scale;
        if (l->k_block) { /* rotated, products may lie anywhere */
            dot(k, k, l->k_dim, &kk);
            mag = 2 * sqrt(qq * kk);
        }
        s_err = fmax(s_err, mag * scale * (0x1p-24 * (4 + sqrt((double)l->k_dim)) + whole_k / 2 * scale));
        if (s->softcap > 0) {
            x[j] = (double)s->softcap * tanh(x[j] / (double)s->softcap);
            s_err = fmax(s_err, (double)s->softcap * 1e-6);
        }
        if (s->bias_reach >= 0) {
            const int64_t r = s->bias_reach, p = d->pos[row], at = j - p < -r ? -r : j - p > r ? r : j - p;
            x[j] += (double)d->bias[head * (2 * r + 1) + r + at];
        }
        if (s->apart) {
            const int64_t p = d->pos[row], r = APART_REACH, at = j - p < -r ? -r : j - p > r ? r : j - p;
            const int64_t n = s->apart, wide = n * s->n_head, of = head * n + (int64_t)d->apart_which[r + at];
            x[j] += (double)(float)scale * ((double)d->apart_q[row * wide + of] + (double)d->apart_k[j * wide + of]);
        }
        if (s->alibi) {
            const double lean = (double)d->alibi[head] * fabs((double)(d->pos[row] - j));
            x[j] -= lean;
            s_err = fmax(s_err, (fabs(x[j]) + lean) * 0x1p-23);
        }
        m = fmax(m, x[j]);
    }
    if (s->sinks && lo < hi) m = fmax(m, (double)d->sinks[head]);
    for (int i = 0; i < l->v_dim; i++) out[i] = 0;
    for (int64_t j = lo; j < hi; j++) {
        const float *v = d->vl + ((size_t)j * (size_t)l->n_kv + (size_t)kvh) * (size_t)l->v_dim;
        const double p = exp(x[j] - m);
        sum += p;
        for (int i = 0; i < l->v_dim; i++) {
            const double size = fabs((double)v[i]);
            out[i] += p * (double)v[i];
            vmax = size > vmax ? size : vmax;
        }
    }
    if (s->sinks) sum += exp((double)d->sinks[head] - m);
    for (int i = 0; i < l->v_dim && lo < hi; i++) out[i] /= sum;
    free(x);
    return vmax * (2 * s_err + 4e-6 + whole_v / 2) * (l->v_block ? 2 : 1);
}

static attn_args args_of(const scene *s, const data *d, float *out) {
    const kv_layout *l = &s->layout;
    return (attn_args){
        .q = d->q,
        .out = out,
        .q_stride = (size_t)s->n_head * (size_t)l->k_dim,
        .out_stride = (size_t)s->n_head * (size_t)l->v_dim,
        .n_rows = s->n,
        .n_head = s->n_head,
        .layout = l,
        .pages = d->table,
        .page_off = PAGE_OFF,
        .kv_len = s->n,
        .pos = d->pos,
        .row_end = s->end_step ? d->row_end : NULL,
        .row_begin = s->wide ? d->row_end + s->n : NULL,
        .window = s->window,
        .until = s->until,
        .causal = s->causal,
        .scale = 1.0f / sqrtf((float)l->k_dim),
        .softcap = s->softcap,
        .sinks = s->sinks ? d->sinks : NULL,
        .after = s->after,
        .bias = s->bias_reach >= 0 ? d->bias : NULL,
        .bias_reach = s->bias_reach,
        .alibi = s->alibi ? d->alibi : NULL,
        .apart_q = s->apart ? d->apart_q : NULL,
        .apart_k = s->apart ? d->apart_k : NULL,
        .apart_which = s->apart ? d->apart_which : NULL,
        .apart_reach = APART_REACH,
        .apart_n = s->apart,
        .apart_stride = (size_t)s->n_head * (size_t)s->apart,
    };
}

static bool same(const scene *s, const float *a, const float *b, int row0, int row1, int *row) {
    const size_t w = (size_t)s->n_head * (size_t)s->layout.v_dim;
    for (int t = row0; t < row1; t++) {
        *row = t;
        if (memcmp(a + (size_t)t * w, b + (size_t)t * w, w * sizeof(float)) != 0) return false;
    }
    return true;
}

/* A prefill in pieces: kv_len grows, pages behind the window are gone, later slots are not written yet. */
static void check_pieces(check *c, const kernels *k, const scene *s, data *d, int piece) {
    const kv_layout *l = &s->layout;
    const size_t     w = (size_t)s->n_head * (size_t)l->v_dim;
    const size_t     ks = (size_t)l->n_kv * (size_t)l->k_dim, vs = (size_t)l->n_kv * (size_t)l->v_dim;
    data             e = *d;
    int              row = 0;
    pages_open(&e, l, s->n);
    memset(d->out2, 0xff, (size_t)s->n * w * sizeof(float));
    for (int t = 0; t < s->n; t += piece) {
        const int end = t + piece < s->n ? t + piece : s->n;
        for (int p = t; p < end; p++) {
            k->attn.kv_store(l, e.pages[p / l->tokens].data + PAGE_OFF, p % l->tokens, 1, 0, l->n_kv,
                             d->k + (size_t)p * ks, ks, l->v_in_k ? NULL : d->v + (size_t)p * vs, vs);
        }
        attn_args a = args_of(s, &e, d->out2);
        a.kv_len = end;
        a.q += (size_t)t * a.q_stride;
        a.out += (size_t)t * a.out_stride;
        a.pos += t;
        if (s->apart) a.apart_q += (size_t)t * a.apart_stride;
        a.n_rows = end - t;
        const void **seen = alloc((size_t)e.n_pages * sizeof *seen);
        for (int i = 0; i < e.n_pages; i++) {
            const int64_t first = s->window > 0 ? (int64_t)t - s->window + 1 : 0;
            if ((int64_t)(i + 1) * l->tokens > first && i * l->tokens < end) seen[i] = e.table[i];
        }
        a.pages = seen;
        k->attn.rows(&a, 0, end - t, 0, s->n_head, d->scratch.data);
        free(seen);
    }
    CHECK(c, same(s, d->out, d->out2, 0, s->n, &row), "pieces of %d: row %d differs", piece, row);
    pages_close(c, &e);
}

/* Rows and heads in random pieces, and chunk by chunk. */
static void check_splits(check *c, const kernels *k, const scene *s, data *d) {
    const kv_layout *l = &s->layout;
    const size_t     w = (size_t)s->n_head * (size_t)l->v_dim;
    attn_args        a = args_of(s, d, d->out2);
    int              row = 0;
    memset(d->out2, 0xff, (size_t)s->n * w * sizeof(float));
    for (int h = 0; h < s->n_head;) {
        int he = h + check_int(c, 1, s->n_head);
        if (he > s->n_head) he = s->n_head;
        for (int t = 0; t < s->n;) {
            int te = t + check_int(c, 1, 40);
            if (te > s->n) te = s->n;
            k->attn.rows(&a, t, te, h, he, d->scratch.data);
            t = te;
        }
        h = he;
    }
    CHECK(c, same(s, d->out, d->out2, 0, s->n, &row), "split of rows and heads: row %d differs", row);

    const size_t stride = attn_part_floats(l->v_dim);
    for (int t = 0; t < s->n; t += check_int(c, 1, s->n / 4 + 1)) {
        int64_t lo, hi;
        attn_row_range(&a, t, &lo, &hi);
        const int64_t first = lo / ATTN_CHUNK, n = lo < hi ? (hi - 1) / ATTN_CHUNK + 1 - first : 0;
        check_guard   part = check_guard_alloc((size_t)s->n_head * (size_t)n * stride * sizeof(float), 0);
        memset(part.data, 0xff, part.bytes);
        memset(d->out2 + (size_t)t * w, 0xff, w * sizeof(float));
        const int cut = check_int(c, 0, s->n_head);
        for (int64_t at = n; at > 0;) { /* later chunks first: the order of the calls must not matter */
            const int64_t from = at - check_int(c, 1, (int)at);
            float        *p = (float *)(void *)part.data;
            k->attn.partial(&a, t, cut, s->n_head, first + from, first + at, p, first, n, d->scratch.data);
            k->attn.partial(&a, t, 0, cut, first + from, first + at, p, first, n, d->scratch.data);
            at = from;
        }
        k->attn.combine(&a, t, 0, s->n_head, (const float *)(const void *)part.data, first, n);
        CHECK(c, same(s, d->out, d->out2, t, t + 1, &row), "chunks combined: row %d differs", t);
        CHECK(c, check_guard_free(&part), "canary of the partial results");
    }
}

/* The same keys and values in pages of another size. */
static void check_page_size(check *c, const kernels *k, const scene *s, data *d, int tokens) {
    scene o = *s;
    data  e = *d;
    int   row = 0;
    if (!CHECK(c,
               kv_layout_init(&o.layout, s->layout.k_type, s->layout.v_type, tokens, s->layout.n_kv, s->layout.k_dim,
                              s->layout.v_dim, s->layout.v_in_k),
               "layout with pages of %d", tokens)) {
        return;
    }
    pages_open(&e, &o.layout, s->n);
    store_all(c, k, &o.layout, &e, s->n);
    attn_args a = args_of(&o, &e, d->out2);
    k->attn.rows(&a, 0, s->n, 0, s->n_head, d->scratch.data);
    CHECK(c, same(s, d->out, d->out2, 0, s->n, &row), "pages of %d: row %d differs", tokens, row);
    pages_close(c, &e);
}

static void data_open(check *c, const scene *s, data *d) {
    const kv_layout *l = &s->layout;
    const size_t     n = (size_t)s->n, kv = (size_t)l->n_kv, heads = (size_t)s->n_head;
    const size_t     kd = (size_t)l->k_dim, vd = (size_t)l->v_dim;
    *d = (data){ 0 };
    d->q = alloc(n * heads * kd * 4);
    d->k = alloc(n * kv * kd * 4);
    d->v = alloc(n * kv * vd * 4);
    d->kl = alloc(n * kv * kd * 4);
    d->vl = alloc(n * kv * vd * 4);
    d->out = alloc(n * heads * vd * 4);
    d->out2 = alloc(n * heads * vd * 4);
    d->sinks = alloc(heads * 4);
    const size_t n_bias = heads * (size_t)(2 * (s->bias_reach < 0 ? 0 : s->bias_reach) + 1);
    d->bias = alloc(n_bias * 4);
    d->alibi = alloc(heads * 4);
    const size_t n_apart = n * heads * (size_t)s->apart;
    d->apart_q = alloc(n_apart * 4);
    d->apart_k = alloc(n_apart * 4);
    d->pos = alloc(n * 4);
    d->row_end = alloc(n * 8);
    check_fill_normal(c, d->q, n * heads * kd, s->q_scale);
    check_fill_normal(c, d->k, n * kv * kd, s->k_scale);
    check_fill_normal(c, d->v, n * kv * vd, 1.0f);
    check_fill_normal(c, d->sinks, heads, 2.0f * s->q_scale);
    check_fill_normal(c, d->bias, n_bias, 2.0f);
    check_fill_normal(c, d->apart_q, n_apart, 2.0f);
    check_fill_normal(c, d->apart_k, n_apart, 2.0f);
    for (int i = 0; i <= 2 * APART_REACH && s->apart; i++) d->apart_which[i] = (float)check_int(c, 0, s->apart - 1);
    for (int i = 0; i < s->n_head; i++) d->alibi[i] = exp2f(-8.0f * (float)(i + 1) / (float)s->n_head);
    for (int i = 0; i < s->n; i++) {
        d->pos[i] = i;
        if (s->end_step) d->row_end[s->n + i] = (d->row_end[i] = (i / s->end_step + 1) * s->end_step) - s->end_step;
    }
    d->scratch = check_guard_alloc(attn_scratch_bytes(l, s->n_head), 0);
}

static void data_close(check *c, data *d) {
    CHECK(c, check_guard_free(&d->scratch), "canary of the scratch");
    free(d->q), free(d->k), free(d->v), free(d->kl), free(d->vl);
    free(d->apart_q), free(d->apart_k);
    free(d->out), free(d->out2), free(d->sinks), free(d->bias), free(d->alibi), free(d->pos), free(d->row_end);
}

/* Number d of a position's K (at: the slot) or V (at: the row's first byte), as the head of kernels/kvpage.h describes
 * them; row: bytes from one row of K to the next. */
static int k_number(kv_type type, const uint8_t *area, size_t row, size_t slot, int d) {
    const uint8_t *p = area + slot, *p8 = p + (size_t)(d / 8) * row * (type == KV_Q5_0 ? 5 : type == KV_TQ3 ? 3 : 2);
    const int      e = d % 8;
    switch (type) {
    case KV_Q8_0: return (int8_t)p[(size_t)d * row];
    case KV_FP8: return p[(size_t)d * row];
    case KV_Q5_0: return (p8[(size_t)(e / 2) * row] >> (e % 2 * 4) & 15) + (p8[4 * row] >> e & 1) * 16;
    case KV_TQ3: return (p8[0] | p8[row] << 8 | p8[2 * row] << 16) >> (3 * e) & 7;
    case KV_TQ2: return p8[(size_t)(e / 4) * row] >> (e % 4 * 2) & 3;
    default: return p[(size_t)(d / 2) * row] >> (d % 2 * 4) & 15;
    }
}

static int v_number(kv_type type, const uint8_t *at, int dim, int d) {
    const int      g = d / KV_GROUP, in = d % KV_GROUP;
    const uint8_t *p = at + g * (type == KV_Q5_0 ? 20 : type == KV_TQ3 ? 12 : type == KV_TQ2 ? 8 : 16);
    const int      half = (dim - g * KV_GROUP < KV_GROUP ? dim - g * KV_GROUP : KV_GROUP) / 2;
    switch (type) {
    case KV_Q8_0: return (int8_t)at[d];
    case KV_FP8: return at[d];
    case KV_Q5_0: return (p[in % 16] >> (in / 16 * 4) & 15) + (p[16 + in / 8] >> (in % 8) & 1) * 16;
    case KV_TQ3: return (p[in % 8] | (p[8 + in % 4] >> (in % 8 / 4 * 4) & 15) << 8) >> (in / 8 * 3) & 7;
    case KV_TQ2: return p[in % 8] >> (in / 8 * 2) & 3;
    default: return p[in % half] >> (in / half * 4) & 15;
    }
}

static float value_of(kv_type type, int n, const uint8_t *scale) {
    uint16_t h = 0;
    if (scale) memcpy(&h, scale, sizeof h);
    const float d = tensor_f16_to_f32(h);
    switch (type) {
    case KV_Q8_0: return d * (float)n;
    case KV_Q5_0: return d * (float)(n - 16);
    case KV_Q4_0: return d * (float)(n - 8);
    case KV_FP8:
        return (n & 128 ? -1.0f : 1.0f) *
               (n >> 3 & 15 ? ldexpf(8.0f + (float)(n & 7), (n >> 3 & 15) - 10) : ldexpf((float)(n & 7), -9));
    default: return d * (float)kv_codes(type)[n];
    }
}

static float float_at(kv_type type, const uint8_t *area, size_t i) {
    uint16_t h;
    float    f;
    if (type == KV_F32) {
        memcpy(&f, area + i * 4, 4);
        return f;
    }
    memcpy(&h, area + i * 2, 2);
    return type == KV_F16 ? tensor_f16_to_f32(h) : tensor_bf16_to_f32(h);
}

/* Out of rotated space by the matrix itself: entry (i, j) is -1 where i & j has an odd number of ones. */
static void turn_back(float *x, int dim, int block) {
    double y[KV_BLOCK_MAX];
    for (; block && dim > 0; dim -= block, x += block) {
        for (int i = 0; i < block; i++) {
            y[i] = 0;
            for (int j = 0; j < block; j++) y[i] += __builtin_parity((unsigned)(i & j)) ? -(double)x[j] : (double)x[j];
            y[i] /= sqrt((double)block);
        }
        for (int i = 0; i < block; i++) x[i] = (float)(kv_signs[i / 32] >> (i % 32) & 1 ? -y[i] : y[i]);
    }
}

/* Reads one position of every head, and turns it back. */
static void load_position(const kv_layout *l, const uint8_t *page, int slot, float *k, float *v) {
    const size_t        tokens = (size_t)l->tokens, at = (size_t)slot, kd = (size_t)l->k_dim, vd = (size_t)l->v_dim;
    const kv_type_info *kt = kv_type_get((int)l->k_type), *vt = kv_type_get((int)l->v_type);
    const size_t        k_values = kd * tokens * (size_t)kt->value_bits / 8, v_row = vd * (size_t)vt->value_bits / 8;
    const size_t        v_groups = (vd + (size_t)l->v_group - 1) / (size_t)l->v_group;
    for (int head = 0; head < l->n_kv; head++, k += kd, v += vd) {
        const uint8_t *ka = page + (size_t)head * l->head_bytes, *va = ka + l->k_bytes;
        for (size_t d = 0; d < kd; d++) {
            const uint8_t *s = ka + k_values + (d / (size_t)l->k_group * tokens + at) * 2;
            k[d] = kt->value_bits > 8
                       ? float_at(l->k_type, ka, d * tokens + at)
                       : value_of(l->k_type, k_number(l->k_type, ka, tokens, at, (int)d), kt->scaled ? s : NULL);
        }
        turn_back(k, l->k_dim, l->k_block);
        for (size_t d = 0; d < vd && !l->v_in_k; d++) {
            const uint8_t *s = va + tokens * v_row + (at * v_groups + d / (size_t)l->v_group) * 2;
            v[d] = vt->value_bits > 8 ? float_at(l->v_type, va, at * vd + d)
                                      : value_of(l->v_type, v_number(l->v_type, va + at * v_row, l->v_dim, (int)d),
                                                 vt->scaled ? s : NULL);
        }
        if (l->v_in_k) {
            memcpy(v, k, vd * sizeof *v);
        } else {
            turn_back(v, l->v_dim, l->v_block);
        }
    }
}

/* Every set stores the bytes that the scalar kernels store. */
static void check_bytes(check *c, const scene *s, data *d) {
    kernels plain;
    data    e = *d;
    kernels_init(&plain, 0);
    pages_open(&e, &s->layout, s->n);
    store_all(c, &plain, &s->layout, &e, s->n);
    for (int i = 0; i < d->n_pages; i++) {
        CHECK(c, memcmp(d->pages[i].data, e.pages[i].data, d->pages[i].bytes) == 0,
              "page %d: bytes differ from scalar's", i);
    }
    pages_close(c, &e);
}

static void check_scene(check *c, const kernels *k, const scene *s) {
    const kv_layout *l = &s->layout;
    const size_t     kv = (size_t)l->n_kv;
    data             d;
    const long       failed = c->n_failed;
    data_open(c, s, &d);
    pages_open(&d, l, s->n);
    store_all(c, k, l, &d, s->n);
    for (int p = 0; p < s->n; p++) {
        load_position(l, d.pages[p / l->tokens].data + PAGE_OFF, p % l->tokens,
                      d.kl + (size_t)p * kv * (size_t)l->k_dim, d.vl + (size_t)p * kv * (size_t)l->v_dim);
    }
    check_bytes(c, s, &d);
    if (l->k_block) {
        check_rotated(c, l->k_type, l->k_dim, l->k_block, d.k, d.kl, (size_t)s->n * kv, "k");
    } else {
        check_stored(c, s, l->k_type, l->k_dim, d.k, d.kl, (size_t)s->n * kv, "k");
    }
    if (!l->v_in_k && l->v_block) {
        check_rotated(c, l->v_type, l->v_dim, l->v_block, d.v, d.vl, (size_t)s->n * kv, "v");
    } else if (!l->v_in_k) {
        check_stored(c, s, l->v_type, l->v_dim, d.v, d.vl, (size_t)s->n * kv, "v");
    }

    attn_args a = args_of(s, &d, d.out);
    k->attn.rows(&a, 0, s->n, 0, s->n_head, d.scratch.data);
    double *want = alloc((size_t)l->v_dim * sizeof *want);
    for (int t = 0; t < s->n; t += c->quick ? check_int(c, 1, 9) : check_int(c, 1, 3)) {
        for (int h = 0; h < s->n_head; h++) {
            int64_t lo, hi;
            attn_row_range(&a, t, &lo, &hi);
            CHECK(c, !s->until || hi <= s->until, "row %d sees up to %lld", t, (long long)hi);
            const double tol = reference(c, s, &d, t, h, lo, hi, want);
            const float *got = d.out + ((size_t)t * (size_t)s->n_head + (size_t)h) * (size_t)l->v_dim;
            double       worst = 0;
            for (int i = 0; i < l->v_dim; i++) {
                const double e = fabs((double)got[i] - want[i]);
                if (!(e <= worst)) worst = e;
            }
            CHECK(c, worst <= tol, "row %d head %d: error %g, limit %g", t, h, worst, tol);
        }
    }
    free(want);
    check_splits(c, k, s, &d);
    static const int sizes[] = { 16, 32, 64, 128 };
    check_page_size(c, k, s, &d, sizes[check_int(c, 0, 3)]);
    if (s->causal && !s->end_step) {
        static const int pieces[] = { 1, 7, 32, 100 };
        check_pieces(c, k, s, &d, pieces[check_int(c, 0, 3)]);
        if (!c->quick) check_pieces(c, k, s, &d, pieces[check_int(c, 0, 3)]);
    }
    if (c->n_failed > failed) {
        printf("  in: k %s v %s pages of %d, n %d, heads %d/%d, dims %d/%d%s, causal %d window %d until %d end_step %d "
               "wide %d sinks %d alibi %d softcap %g q_scale %g\n",
               type_names[l->k_type], type_names[l->v_type], l->tokens, s->n, s->n_head, l->n_kv, l->k_dim, l->v_dim,
               l->v_in_k ? " v in k" : "", s->causal, s->window, s->until, s->end_step, s->wide, s->sinks, s->alibi,
               (double)s->softcap, (double)s->q_scale);
    }
    pages_close(c, &d);
    data_close(c, &d);
}

/* A random type that heads of this size can have. */
static kv_type random_type(check *c, int dim) {
    const kv_type t = (kv_type)check_int(c, 0, KV_TYPE_COUNT - 1);
    return kv_type_fits(t, dim) ? t : KV_Q8_0;
}

static scene random_scene(check *c) {
    static const int dims[] = { 8, 16, 24, 40, 64, 64, 64, 72, 80, 96, 112, 128, 128, 128, 192, 256 };
    static const int sizes[] = { 16, 32, 64, 128 };
    scene            s = { .causal = true, .q_scale = 1, .k_scale = 1 };
    const int        kd = dims[check_int(c, 0, 15)], vd = check_int(c, 0, 3) ? kd : dims[check_int(c, 0, 15)];
    const int        kv = check_int(c, 1, 3), group = check_int(c, 1, 9);
    const bool       latent = check_int(c, 0, 7) == 0;
    const kv_type    kt = random_type(c, kd);
    const kv_type    vt = check_int(c, 0, 2) && kv_type_fits(kt, vd) ? kt : random_type(c, vd);
    if (latent) {
        const int     unit = check_int(c, 0, 1) ? 8 : 32;
        const int     rank = check_int(c, 1, 128 / unit) * unit, rope = check_int(c, 1, 64 / unit) * unit;
        const kv_type both = random_type(c, rank | rope);
        kv_layout_init(&s.layout, both, both, sizes[check_int(c, 0, 3)], 1, rank + rope, rank, true);
    } else {
        kv_layout_init(&s.layout, kt, vt, sizes[check_int(c, 0, 3)], kv, kd, vd, false);
    }
    s.n_head = s.layout.n_kv * group;
    s.n = check_int(c, 0, 5) ? check_int(c, 1, 160) : check_int(c, 160, 330);
    if (check_int(c, 0, 2) == 0) s.window = check_int(c, 1, s.n);
    s.causal = check_int(c, 0, 4) != 0;
    if (check_int(c, 0, 7) == 0) s.until = check_int(c, 1, s.n);
    if (s.causal && check_int(c, 0, 7) == 0) s.end_step = check_int(c, 1, 50), s.wide = s.end_step % 2;
    if (!s.causal && check_int(c, 0, 1)) s.after = check_int(c, 1, 70);
    s.bias_reach = check_int(c, 0, 2) ? -1 : check_int(c, 0, 140);
    s.sinks = check_int(c, 0, 2) == 0;
    s.alibi = check_int(c, 0, 2) == 0;
    if (check_int(c, 0, 2) == 0) s.apart = check_int(c, 1, 20);
    if (check_int(c, 0, 2) == 0) s.softcap = check_int(c, 0, 1) ? 50.0f : 3.0f;
    if (check_int(c, 0, 4) == 0) s.q_scale = check_int(c, 0, 1) ? 100.0f : 1e-4f;
    if (check_int(c, 0, 9) == 0) s.k_scale = 3e4f; /* some keys leave the range of f16 */
    return s;
}

/* A row's heads give the same bits side by side and alone, whatever number of them shares a key head. */
static void check_lanes(check *c, const kernels *k, kv_type kt, kv_type vt, int dim) {
    for (int group = 1; group <= 9; group++) {
        scene s = {
            .n = 2 * ATTN_CHUNK, .n_head = group, .causal = true, .bias_reach = -1, .q_scale = 1, .k_scale = 1
        };
        const int    t = s.n - 1;
        const size_t at = (size_t)t * (size_t)(s.n_head * dim), bytes = (size_t)(s.n_head * dim) * sizeof(float);
        data         d;
        kv_layout_init(&s.layout, kt, vt, 16 << check_int(c, 0, 3), 1, dim, dim, false);
        data_open(c, &s, &d);
        pages_open(&d, &s.layout, s.n);
        store_all(c, k, &s.layout, &d, s.n);
        attn_args a = args_of(&s, &d, d.out), alone = args_of(&s, &d, d.out2);
        k->attn.rows(&a, t, t + 1, 0, s.n_head, d.scratch.data);
        for (int h = 0; h < s.n_head; h++) k->attn.rows(&alone, t, t + 1, h, h + 1, d.scratch.data);
        CHECK(c, memcmp(d.out + at, d.out2 + at, bytes) == 0, "k %s v %s, dims %d: %d heads side by side differ",
              type_names[kt], type_names[vt], dim, group);
        pages_close(c, &d);
        data_close(c, &d);
    }
}

/* Scores of an indexer: near those in double precision, and the same bits in pieces and with pages of another size. */
static void check_index(check *c, const kernels *k) {
    static const kv_type types[] = { KV_F32, KV_F16, KV_BF16 };
    const kv_type        type = types[check_int(c, 0, 2)];
    const int            dim = 8 * check_int(c, 1, 20), heads = check_int(c, 0, 2) ? check_int(c, 1, 70) : 1;
    const bool           plain = heads == 1 && check_int(c, 0, 1);
    scene                s = {
                       .n = check_int(c, 1, 330), .n_head = heads, .causal = true, .bias_reach = -1, .q_scale = 1, .k_scale = 1
    };
    data d, e;
    kv_layout_init(&s.layout, type, type, 16 << check_int(c, 0, 3), 1, dim, dim, true);
    data_open(c, &s, &d);
    pages_open(&d, &s.layout, s.n);
    store_all(c, k, &s.layout, &d, s.n);
    kv_layout other;
    kv_layout_init(&other, type, type, 16 << check_int(c, 0, 3), 1, dim, dim, true);
    e = d;
    pages_open(&e, &other, s.n);
    store_all(c, k, &other, &e, s.n);
    float *score = alloc(((size_t)s.n + 16) * sizeof *score), *again = alloc(((size_t)s.n + 16) * sizeof *again);
    float *w = alloc((size_t)heads * sizeof *w), *key = alloc((size_t)dim * sizeof *key);
    for (int h = 0; h < heads; h++) w[h] = d.q[h] * (h % 3 ? 1.0f : -1.0f);
    attn_index_args a = { .q = d.q,
                          .weights = plain ? NULL : w,
                          .n_head = heads,
                          .layout = &s.layout,
                          .pages = d.table,
                          .page_off = PAGE_OFF };
    k->attn.index(&a, 0, s.n, score, d.scratch.data);
    a.layout = &other;
    a.pages = e.table;
    const int cut = check_int(c, 0, s.n / ATTN_CHUNK) * ATTN_CHUNK;
    k->attn.index(&a, 0, cut, again, d.scratch.data);
    k->attn.index(&a, cut, s.n, again + cut, d.scratch.data);
    CHECK(c, memcmp(score, again, (size_t)s.n * sizeof *score) == 0, "scores of %s in pieces differ", type_names[type]);
    for (int p = 0; p < s.n; p++) {
        double sum = 0, size = 0;
        load_position(&s.layout, d.pages[p / s.layout.tokens].data + PAGE_OFF, p % s.layout.tokens, key, key);
        for (int h = 0; h < heads; h++) {
            double dot = 0, most = 0;
            for (int i = 0; i < dim; i++) {
                dot += (double)d.q[h * dim + i] * (double)key[i];
                most += fabs((double)d.q[h * dim + i] * (double)key[i]);
            }
            sum += plain ? dot : (double)w[h] * fmax(dot, 0);
            size += plain ? most : fabs((double)w[h]) * most;
        }
        CHECK(c, fabs((double)score[p] - sum) <= 1e-5 * size + 1e-12, "%s, %d heads of %d: score %g instead of %g",
              type_names[type], heads, dim, (double)score[p], sum);
    }
    free(score);
    free(again);
    free(w);
    free(key);
    pages_close(c, &e);
    pages_close(c, &d);
    data_close(c, &d);
}

/* Positions taken out of pages hold what they held, whatever the type and the sizes of pages. */
static void check_taken(check *c, const kernels *k) {
    scene      s = random_scene(c);
    kv_layout *l = &s.layout, to;
    const int  head = check_int(c, 0, l->n_kv - 1), tokens = 16 << check_int(c, 0, 3);
    data       d;
    int        n = 0;
    data_open(c, &s, &d);
    pages_open(&d, l, s.n);
    store_all(c, k, l, &d, s.n);
    kv_layout_init(&to, l->k_type, l->v_type, tokens, 1, l->k_dim, l->v_dim, l->v_in_k);
    int32_t *at = alloc((size_t)s.n * sizeof *at);
    for (int p = 0; p < s.n; p++) {
        if (check_int(c, 0, 2)) at[n++] = p;
    }
    check_guard  out = check_guard_alloc((size_t)((n + tokens - 1) / tokens) * to.layer_bytes, 0);
    const size_t all = (size_t)l->n_kv * (size_t)(l->k_dim + l->v_dim), one = (size_t)(l->k_dim + l->v_dim);
    float       *was = alloc(all * sizeof *was), *is = alloc(one * sizeof *is);
    float       *was_v = was + (size_t)l->n_kv * (size_t)l->k_dim, *is_v = is + l->k_dim;
    kv_take_positions(l, d.table, PAGE_OFF, head, at, n, &to, out.data);
    for (int i = 0; i < n; i++) {
        load_position(l, d.pages[at[i] / l->tokens].data + PAGE_OFF, at[i] % l->tokens, was, was_v);
        load_position(&to, out.data + (size_t)(i / tokens) * to.layer_bytes, i % tokens, is, is_v);
        const bool same_k = memcmp(is, was + (size_t)head * (size_t)l->k_dim, (size_t)l->k_dim * sizeof *is) == 0;
        const bool same_v =
            l->v_in_k || memcmp(is_v, was_v + (size_t)head * (size_t)l->v_dim, (size_t)l->v_dim * sizeof *is) == 0;
        CHECK(c, same_k && same_v, "k %s v %s: position %d is another one when it is taken out", type_names[l->k_type],
              type_names[l->v_type], at[i]);
    }
    CHECK(c, check_guard_free(&out), "canary of what was taken");
    free(at);
    free(was);
    free(is);
    pages_close(c, &d);
    data_close(c, &d);
}

int main(int argc, char **argv) {
    check   c;
    kernels k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    kernels_init(&k, c.cpu);
    const int n = c.quick ? 24 : c.cpu == 0 ? 60 : 160;
    for (int i = 0; i < n; i++) {
        scene s = random_scene(&c);
        if (c.quick) s.n = (s.n + 2) / 3;
        check_scene(&c, &k, &s);
    }
    for (int i = 0; i < n; i++) {
        check_index(&c, &k);
        check_taken(&c, &k);
    }
    for (int i = 0; i < KV_TYPE_COUNT; i++) {
        check_lanes(&c, &k, (kv_type)i, (kv_type)i, 96);
        check_lanes(&c, &k, (kv_type)i, KV_F16, 64);
        check_lanes(&c, &k, KV_BF16, (kv_type)i, 128);
    }
    check_lanes(&c, &k, KV_F16, KV_FP8, 80);
    scene s = { .n = c.quick ? 40 : 150,
                .n_head = c.quick ? 3 : 16,
                .causal = true,
                .bias_reach = -1,
                .q_scale = 1,
                .k_scale = 1 }; /* MLA as DeepSeek has it */
    kv_layout_init(&s.layout, KV_F16, KV_F16, 32, 1, 576, 512, true);
    check_scene(&c, &k, &s);
    s.n_head = 2, s.n = c.quick ? 35 : 100; /* the largest heads in use */
    kv_layout_init(&s.layout, KV_BF16, KV_Q8_0, 16, 1, 512, 512, false);
    check_scene(&c, &k, &s);
    s.n_head = 200, s.n = 20; /* more heads in a group than lanes in a block */
    kv_layout_init(&s.layout, KV_F16, KV_F16, 32, 2, 32, 16, false);
    check_scene(&c, &k, &s);
    CHECK(&c, !kv_layout_init(&s.layout, KV_F16, KV_F16, 48, 1, 64, 64, false), "pages of 48");
    CHECK(&c, !kv_layout_init(&s.layout, KV_F16, KV_F16, 32, 1, 60, 64, false), "a dimension of 60");
    CHECK(&c, !kv_layout_init(&s.layout, KV_F16, KV_F16, 32, 0, 64, 64, false), "no heads");
    CHECK(&c, !kv_layout_init(&s.layout, KV_F16, KV_F16, 32, 1, 64, 128, true),
          "values longer than keys in the latent");
    CHECK(&c, !kv_layout_init(&s.layout, KV_TQ4, KV_F16, 32, 1, 80, 80, false), "a codebook over 80 dimensions");
    CHECK(&c, !kv_layout_init(&s.layout, KV_F16, KV_Q5_0, 32, 1, 80, 80, false), "q5_0 over 80 dimensions");
    CHECK(&c, !kv_layout_init(&s.layout, KV_TQ3, KV_TQ3, 32, 1, 80, 64, true), "a latent with 16 turned dimensions");
    return check_end(&c);
}
