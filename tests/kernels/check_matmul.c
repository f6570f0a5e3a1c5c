/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul, every weight type: against a double-precision sum over the reference codecs, with guard pages right behind
 * the weights, scales, activations and outputs; and bit for bit the same row in any number of rows and any split of the
 * panels.
 */
#include "kernels/check.h"
#include "kernels/kernels.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 64 };

/* Products of F16 and BF16 by tiles, where the set has them. */
static bool by_tiles;

/* A random matrix whose arrays end at unmapped pages. */
typedef struct weights {
    tensor_mat  m;
    check_guard data, scales, biases;
    float      *values; /* [expert][rows][cols], by the reference codec */
} weights;

/* Random blocks; those with absurd or non-finite values are drawn again, so that small and large scales stay. */
static void fill_blocks(check *c, int type, uint8_t *dst, int64_t n_blocks) {
    const tensor_type_info *t = tensor_type_get(type);
    for (int64_t b = 0; b < n_blocks; b++) {
        float v[256];
        bool  ok;
        do {
            check_fill_bytes(c, dst, t->block_bytes);
            tensor_dequant_row(type, dst, v, t->block_elems);
            ok = true;
            for (int i = 0; i < t->block_elems; i++) ok = ok && fabsf(v[i]) < 1e4f;
        } while (!ok);
        dst += t->block_bytes;
    }
}

static void fill_scales(check *c, int type, uint8_t *dst, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float    f = check_normal(c) * 0.1f;
        uint16_t h = type == TENSOR_F16 ? tensor_f32_to_f16(f) : tensor_f32_to_bf16(f);
        switch (type) {
        case TENSOR_F32: memcpy(dst + 4 * i, &f, 4); break;
        case TENSOR_F16:
        case TENSOR_BF16: memcpy(dst + 2 * i, &h, 2); break;
        case TENSOR_F8_E4M3: dst[i] = tensor_f32_to_e4m3(f); break;
        default: dst[i] = (uint8_t)check_int(c, 110, 135); break;
        }
    }
}

static size_t scale_size(int type) {
    return type == TENSOR_F32 ? 4 : type == TENSOR_F16 || type == TENSOR_BF16 ? 2 : 1;
}

/* pad: bytes between rows. group 0: the type carries its own scales; -1: and there is one for the whole matrix. */
static weights weights_make(check *c, int type, int64_t rows, int64_t cols, int64_t experts, size_t pad, int group,
                            int scale_type) {
    const tensor_type_info *t = tensor_type_get(type);
    weights                 w = { 0 };
    int64_t                 n_mats = experts ? experts : 1, block = t->block_elems;
    w.m = (tensor_mat){ .type = (tensor_type)type, .rows = rows, .cols = cols, .n_experts = experts };
    if (!tensor_row_bytes(type, cols, &w.m.row_bytes)) abort();
    size_t used = w.m.row_bytes;
    w.m.row_bytes += pad;
    w.m.expert_bytes = (size_t)rows * w.m.row_bytes;
    w.data = check_guard_alloc((size_t)n_mats * w.m.expert_bytes - pad, 0);
    w.m.data = w.data.data;
    for (int64_t r = 0; r < n_mats * rows; r++) {
        uint8_t *row = w.data.data + (size_t)r * w.m.row_bytes;
        if (tensor_can_dequant(type))
            fill_blocks(c, type, row, cols / block);
        else
            check_fill_bytes(c, row, used);
        if (type == TENSOR_MLX_MXFP8)
            for (size_t i = 0; i < used; i++) row[i] = (row[i] & 0x7f) == 0x7f ? 0 : row[i];
    }
    if (group) {
        int64_t rows_per = group == 128 && type == TENSOR_F8_E4M3 ? 128 : group < 0 ? rows : 1;
        if (group < 0) group = (int)cols;
        int64_t groups = (cols + group - 1) / group;
        w.m.group = group;
        w.m.group_rows = (int)rows_per;
        w.m.scale_type = (tensor_type)scale_type;
        w.m.scale_row_bytes = (size_t)groups * scale_size(scale_type);
        w.m.scale_expert_bytes = (size_t)((rows + rows_per - 1) / rows_per) * w.m.scale_row_bytes;
        size_t n = (size_t)n_mats * w.m.scale_expert_bytes;
        w.scales = check_guard_alloc(n, 0);
        fill_scales(c, scale_type, w.scales.data, n / scale_size(scale_type));
        w.m.scales = w.scales.data;
        if (type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8) {
            w.biases = check_guard_alloc(n, 0);
            fill_scales(c, scale_type, w.biases.data, n / scale_size(scale_type));
            w.m.biases = w.biases.data;
        }
    }
    w.values = malloc((size_t)(n_mats * rows * cols) * sizeof(float));
    for (int64_t e = 0; e < n_mats; e++)
        for (int64_t r = 0; r < rows; r++) tensor_mat_dequant_row(&w.m, e, r, w.values + (e * rows + r) * cols);
    return w;
}

static void weights_free(check *c, weights *w) {
    CHECK(c, check_guard_free(&w->data), "%s: weights written", tensor_type_name(w->m.type));
    if (w->scales.base) check_guard_free(&w->scales);
    if (w->biases.base) check_guard_free(&w->biases);
    free(w->values);
}

/* Activation rows in the form the type wants, and as floats. */
typedef struct acts {
    check_guard x;
    size_t      stride;
    float      *values; /* what the rows say: after rounding to int8 */
    float      *before; /* what was rounded */
} acts;

static acts acts_make(check *c, const kernels *k, int type, int64_t n, int64_t cols) {
    acts a;
    bool int8 = matmul_input(type) == MATMUL_ACT8;
    a.stride = int8 ? act8_row_bytes(cols) : (size_t)cols * sizeof(float);
    a.x = check_guard_alloc((size_t)n * a.stride, 0);
    a.values = malloc((size_t)(n * cols) * sizeof(float));
    a.before = malloc((size_t)(n * cols) * sizeof(float));
    check_fill_normal(c, a.before, (size_t)(n * cols), 1);
    for (int64_t i = 0; i < n * cols; i += 32) { /* blocks of very different size, some zero */
        float scale = ldexpf(1, check_int(c, -12, 12)) * (check_int(c, 0, 15) != 0);
        for (int64_t j = i; j < i + 32 && j < n * cols; j++) a.before[j] *= scale;
    }
    memcpy(a.values, a.before, (size_t)(n * cols) * sizeof(float));
    if (!int8) {
        memcpy(a.x.data, a.before, (size_t)n * a.stride);
        return a;
    }
    for (int64_t r = 0; r < n; r++) {
        act8 *row = (act8 *)(a.x.data + (size_t)r * a.stride);
        k->matmul.act_quantize(row, a.before + r * cols, cols);
        for (int64_t j = 0; j < cols; j++) a.values[r * cols + j] = row[j / 32].d * (float)row[j / 32].q[j % 32];
    }
    return a;
}

static void acts_free(check *c, acts *a) {
    CHECK(c, check_guard_free(&a->x), "activations written");
    free(a->values);
    free(a->before);
}

static void *scratch_make(const tensor_mat *w, int64_t n, size_t *bytes) {
    *bytes = matmul_scratch_bytes(w, n);
    uint8_t *s = aligned_alloc(64, *bytes + 64);
    memset(s + *bytes, 0xa5, 64);
    memset(s, 0x7f, *bytes); /* large numbers: stale scratch must not be read */
    return s;
}

static void scratch_free(check *c, uint8_t *s, size_t bytes, const char *name) {
    bool ok = true;
    for (int i = 0; i < 64; i++) ok = ok && s[bytes + (size_t)i] == 0xa5;
    CHECK(c, ok, "%s: scratch overrun", name);
    free(s);
}

/* Of 32 numbers: the largest magnitude, and the sum of the magnitudes. */
typedef struct extent {
    double most, sum;
} extent;

/* Rows of cols numbers each; [row][group of 32]. */
static extent *extents_make(const float *v, int64_t rows, int64_t cols) {
    int64_t groups = (cols + 31) / 32;
    extent *to = calloc((size_t)(rows * groups), sizeof *to);
    if (!to) abort();
    for (int64_t i = 0; i < rows * cols; i++) {
        extent *g = to + i / cols * groups + i % cols / 32;
        double  m = fabs((double)v[i]);
        g->most = m > g->most ? m : g->most;
        g->sum += m;
    }
    return to;
}

/* In four sums, which the compiler keeps in one register. */
static double dot(const float *a, const float *b, int64_t n) {
    double  s[4] = { 0 };
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) s[j] += (double)a[i + j] * b[i + j];
    for (; i < n; i++) s[0] += (double)a[i] * b[i];
    return s[0] + s[1] + (s[2] + s[3]);
}

/* A product's rows as doubles see them. */
typedef struct expected {
    const weights *w;
    const acts    *a;
    extent        *weights, *rounded, *before;
} expected;

/*
 * Bound: each group adds at most a few roundings of its own size and of the sum so far; a group's size is at most 32 *
 * its largest weight (four times, where a minimum cancels the scale) * its activations.
 */
static void check_value(check *c, const expected *x, int64_t row, int64_t weight_row, float got) {
    const tensor_mat *m = &x->w->m;
    const float      *w = x->w->values + weight_row * m->cols;
    const int64_t     groups = (m->cols + 31) / 32;
    double            size = 0, rounding = 0;
    double            sum = dot(w, x->a->values + row * m->cols, m->cols);
    double            exact = dot(w, x->a->before + row * m->cols, m->cols);
    for (int64_t g = 0; g < groups; g++) {
        size += 4 * x->weights[weight_row * groups + g].most * x->rounded[row * groups + g].sum;
        rounding += x->weights[weight_row * groups + g].sum * x->before[row * groups + g].most;
    }
    rounding *= 1.125 * 0.5001 / 127;
    double steps = matmul_input(m->type) == MATMUL_ACT8 ? (double)m->cols / 16 + 8 : (double)m->cols;
    double bound = steps * 0x1p-24 * size + 1e-37;
    CHECK(c, fabs(got - sum) <= bound, "%s %lldx%lld row %lld weight row %lld: %g instead of %g, bound %g",
          tensor_type_name(m->type), (long long)m->rows, (long long)m->cols, (long long)row, (long long)weight_row,
          (double)got, sum, bound);
    CHECK(c, fabs(got - exact) <= bound + rounding, "%s %lldx%lld row %lld weight row %lld: %g, exactly %g, bound %g",
          tensor_type_name(m->type), (long long)m->rows, (long long)m->cols, (long long)row, (long long)weight_row,
          (double)got, exact, bound + rounding);
}

static void check_against_double(check *c, const kernels *k, weights *w, int64_t n_rows, size_t out_pad) {
    const char *name = tensor_type_name(w->m.type);
    acts        a = acts_make(c, k, w->m.type, n_rows, w->m.cols);
    size_t      stride = (size_t)w->m.rows + out_pad, bytes;
    check_guard out = check_guard_alloc(((size_t)n_rows * stride - out_pad) * sizeof(float), 0);
    void       *scratch = scratch_make(&w->m, n_rows, &bytes);
    memset(out.data, 0x5a, out.bytes);
    matmul_args args = { .w = &w->m,
                         .tiles = by_tiles,
                         .x = a.x.data,
                         .x_stride = a.stride,
                         .n_rows = n_rows,
                         .out = (float *)out.data,
                         .out_stride = stride };
    k->matmul.run(&args, 0, matmul_panels(&w->m), scratch);
    expected x = { .w = w, .a = &a };
    x.weights = extents_make(w->values, w->m.rows, w->m.cols);
    x.rounded = extents_make(a.values, n_rows, w->m.cols);
    x.before = extents_make(a.before, n_rows, w->m.cols);
    for (int64_t r = 0; r < n_rows; r++) {
        for (int64_t j = 0; j < w->m.rows; j++) check_value(c, &x, r, j, args.out[(size_t)r * stride + (size_t)j]);
        bool pad_ok = true;
        for (size_t j = 0; r + 1 < n_rows && j < out_pad * 4; j++)
            pad_ok = pad_ok && out.data[((size_t)r * stride + (size_t)w->m.rows) * 4 + j] == 0x5a;
        CHECK(c, pad_ok, "%s: wrote between output rows", name);
    }
    CHECK(c, check_guard_free(&out), "%s: wrote around the output", name);
    free(x.weights), free(x.rounded), free(x.before);
    scratch_free(c, scratch, bytes, name);
    acts_free(c, &a);
}

/* Row r of n rows, with the panels split anywhere, has the bits of the row alone. Every number of rows, or 1-6, 16 and
 * 46, which take all kinds of kernels. */
static void check_invariance(check *c, const kernels *k, weights *w, bool every, int64_t max_rows) {
    const char *name = tensor_type_name(w->m.type);
    int64_t     rows = w->m.rows, panels = matmul_panels(&w->m);
    acts        a = acts_make(c, k, w->m.type, MAX_ROWS, w->m.cols);
    float      *alone = malloc((size_t)(MAX_ROWS * rows) * sizeof(float));
    float      *out = malloc((size_t)(MAX_ROWS * rows) * sizeof(float));
    size_t      bytes;
    void       *scratch = scratch_make(&w->m, MAX_ROWS, &bytes);
    for (int64_t r = 0; r < max_rows; r++) {
        matmul_args one = {
            .w = &w->m, .tiles = by_tiles, .x = a.x.data + (size_t)r * a.stride, .n_rows = 1, .out = alone + r * rows
        };
        k->matmul.run(&one, 0, panels, scratch);
    }
    for (int64_t n = 1; n <= max_rows; n = !every && n > 5 ? n * 3 - 2 : n + 1) {
        matmul_args args = { .w = &w->m,
                             .tiles = by_tiles,
                             .x = a.x.data,
                             .x_stride = a.stride,
                             .n_rows = n,
                             .out = out,
                             .out_stride = (size_t)rows };
        memset(out, 0x5a, (size_t)(n * rows) * sizeof(float));
        for (int64_t p = 0; p < panels;) {
            int64_t take = n % 3 == 0 ? panels : n % 3 == 1 ? (panels + 1) / 2 : check_int(c, 1, (int)panels);
            k->matmul.run(&args, p, p + take, scratch);
            p += take;
        }
        CHECK(c, memcmp(out, alone, (size_t)(n * rows) * sizeof(float)) == 0, "%s: %lld rows differ from single rows",
              name, (long long)n);
    }
    scratch_free(c, scratch, bytes, name);
    free(alone);
    free(out);
    acts_free(c, &a);
}

/* More rows of floats than stay in the cache, longer ones than a stretch: they are cut, and have the bits of rows alone. */
static void check_many(check *c, const kernels *k, int type, int64_t rows, int64_t cols, int64_t n) {
    weights     w = weights_make(c, type, rows, cols, 0, 0, 0, 0);
    acts        a = acts_make(c, k, type, n, cols);
    float      *alone = malloc((size_t)rows * sizeof(float)), *out = malloc((size_t)(n * rows) * sizeof(float));
    size_t      bytes;
    void       *scratch = scratch_make(&w.m, n, &bytes);
    matmul_args all = { .w = &w.m,
                        .tiles = by_tiles,
                        .x = a.x.data,
                        .x_stride = a.stride,
                        .n_rows = n,
                        .out = out,
                        .out_stride = (size_t)rows };
    k->matmul.run(&all, 0, matmul_panels(&w.m), scratch);
    for (int64_t r = 0; r < n; r += 1 + r % 7) {
        matmul_args one = {
            .w = &w.m, .tiles = by_tiles, .x = a.x.data + (size_t)r * a.stride, .n_rows = 1, .out = alone
        };
        k->matmul.run(&one, 0, matmul_panels(&w.m), scratch);
        CHECK(c, memcmp(out + r * rows, alone, (size_t)rows * sizeof(float)) == 0,
              "%s: row %lld of %lld differs from the row alone", tensor_type_name(type), (long long)r, (long long)n);
    }
    scratch_free(c, scratch, bytes, tensor_type_name(type));
    free(alone);
    free(out);
    acts_free(c, &a);
    weights_free(c, &w);
}

/* Gather, scatter, bias, accumulate and experts against plain calls. */
static void check_experts(check *c, const kernels *k, int type, int group, int scale_type) {
    enum { EXPERTS = 5, LIST = 17, TOKENS = 9 };
    static const int32_t start[EXPERTS + 1] = { 0, 4, 4, 5, 16, LIST };
    const char          *name = tensor_type_name(type);
    int64_t              rows = 53;
    weights              w = weights_make(c, type, rows, 256, EXPERTS, 0, group, scale_type);
    acts                 a = acts_make(c, k, type, TOKENS, 256);
    int32_t              in_rows[LIST], out_rows[LIST];
    float                bias[EXPERTS * 53], want[LIST * 53], got[LIST * 53];
    size_t               bytes;
    void                *scratch = scratch_make(&w.m, LIST, &bytes);
    check_fill_normal(c, bias, EXPERTS * 53, 1);
    for (int i = 0; i < LIST; i++) {
        in_rows[i] = check_int(c, 0, TOKENS - 1);
        out_rows[i] = (i * 7 + 3) % LIST;
    }
    for (int i = 0; i < LIST * 53; i++) want[i] = got[i] = (float)i;
    for (int e = 0; e < EXPERTS; e++)
        for (int i = start[e]; i < start[e + 1]; i++) {
            float       one[53];
            matmul_args m = { .w = &w.m,
                              .tiles = by_tiles,
                              .expert = e,
                              .x = a.x.data + (size_t)in_rows[i] * a.stride,
                              .n_rows = 1,
                              .out = one };
            k->matmul.run(&m, 0, matmul_panels(&w.m), scratch);
            for (int j = 0; j < 53; j++)
                want[out_rows[i] * 53 + j] = one[j] + bias[e * 53 + j] + want[out_rows[i] * 53 + j];
        }
    matmul_args m = { .w = &w.m,
                      .tiles = by_tiles,
                      .x = a.x.data,
                      .x_stride = a.stride,
                      .out = got,
                      .out_stride = 53,
                      .accumulate = true };
    for (int e = 0; e < EXPERTS; e++) {
        m.expert = e, m.n_rows = start[e + 1] - start[e];
        m.x_rows = in_rows + start[e], m.out_rows = out_rows + start[e], m.bias = bias + e * 53;
        for (int64_t p = 0; p < matmul_panels(&w.m) && m.n_rows; p += 3) k->matmul.run(&m, p, p + 3, scratch);
    }
    CHECK(c, memcmp(got, want, sizeof got) == 0, "%s: experts in batches differ from single calls", name);
    scratch_free(c, scratch, bytes, name);
    acts_free(c, &a);
    weights_free(c, &w);
}

static void check_quantizer(check *c, const kernels *k) {
    kernels scalar;
    kernels_init(&scalar, 0);
    for (int i = 0; i < (c->quick ? 200 : 2000); i++) {
        int         blocks = check_int(c, 1, 5);
        check_guard x = check_guard_alloc((size_t)blocks * 128, 0),
                    out = check_guard_alloc((size_t)blocks * sizeof(act8), 0);
        act8   want[5];
        float *f = (float *)x.data;
        check_fill_normal(c, f, (size_t)blocks * 32, ldexpf(1, check_int(c, -110, 110)));
        if (i % 5 == 0) f[check_int(c, 0, 31)] = i % 3 == 0 ? INFINITY : i % 3 == 1 ? NAN : -INFINITY;
        if (i % 7 == 0) memset(f, 0, 128);
        if (i % 11 == 0) f[3] = i % 2 == 0 ? FLT_MAX : 0.999f * ACT8_HUGE;
        scalar.matmul.act_quantize(want, f, blocks * 32);
        k->matmul.act_quantize((act8 *)out.data, f, blocks * 32);
        CHECK(c, memcmp(want, out.data, out.bytes) == 0, "quantizer differs from its scalar twin");
        for (int b = 0; b < blocks; b++) {
            float m = 0;
            int   s[2] = { 0, 0 };
            bool  finite = true;
            for (int j = 0; j < 32; j++) {
                finite = finite && fabsf(f[b * 32 + j]) <= ACT8_HUGE;
                m = fmaxf(m, fabsf(f[b * 32 + j]));
                s[j / 16] += want[b].q[j];
            }
            if (!finite) {
                CHECK(c, isnan(want[b].d) && isnan(want[b].ds), "a block with Inf or NaN has scale %g",
                      (double)want[b].d);
                continue;
            }
            for (int j = 0; j < 32; j++) {
                double error = fabs((double)want[b].d * want[b].q[j] - f[b * 32 + j]);
                CHECK(c, error <= m / 127 * 1.125 * 0.5001 + 1e-30, "quantizing %g gives an error of %g",
                      (double)f[b * 32 + j], error);
            }
            CHECK(c, s[0] == want[b].s[0] && s[1] == want[b].s[1] && s[0] + s[1] == want[b].sum, "block sums");
        }
        check_guard_free(&x);
        CHECK(c, check_guard_free(&out), "quantizer wrote around its output");
    }
}

/* A block whose values are all of the same bits, times one. */
static void fill_extreme(int type, uint8_t *b, int bits) {
    const uint8_t  k_scales[12] = { 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1 };
    const uint16_t d[2] = { 0x3c00, 0 };
    memset(b, bits, (size_t)tensor_type_get(type)->block_bytes);
    switch (type) {
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        memcpy(b, d, 4);
        memcpy(b + 4, k_scales, sizeof k_scales);
        break;
    case TENSOR_Q6_K:
        memset(b + 192, 1, 16);
        memcpy(b + 208, d, 2);
        break;
    case TENSOR_MXFP4: b[0] = 127; break;
    default: memcpy(b, d, 2);
    }
}

/* Extreme values against extreme activations, of one sign or of both in every quad: sums that a saturating instruction
 * would clip and that do not fit into 16 bits. All of them are small integers: exact. */
static void check_extremes(check *c, const kernels *k) {
    enum { ROWS = 48, COLS = 256, MOST = 20 };
    static const int     types[] = { TENSOR_Q8_0, TENSOR_Q4_0, TENSOR_Q5_0,  TENSOR_Q4_K,
                                     TENSOR_Q5_K, TENSOR_Q6_K, TENSOR_MXFP4, TENSOR_IQ4_NL };
    static const uint8_t bits[] = { 0x00, 0x77, 0x7f, 0x80, 0xff };
    static const int     counts[] = { 1, 2, 3, 4, 8, MOST };
    for (size_t v = 0; v < 3 * sizeof bits * (sizeof types / sizeof *types); v++) {
        int     type = types[v / 3 / sizeof bits], signs = (int)(v % 3);
        weights w = weights_make(c, type, ROWS, COLS, 0, 0, 0, 0);
        acts    a = acts_make(c, k, type, MOST, COLS);
        size_t  bytes;
        void   *scratch = scratch_make(&w.m, MOST, &bytes);
        float   out[MOST * ROWS], x[COLS], row[COLS];
        double  want = 0;
        int     blocks = (int)w.m.row_bytes / tensor_type_get(type)->block_bytes;
        for (int i = 0; i < ROWS * blocks; i++)
            fill_extreme(type, w.data.data + i * tensor_type_get(type)->block_bytes, bits[v / 3 % sizeof bits]);
        tensor_dequant_row(type, w.data.data, row, COLS);
        for (int i = 0; i < COLS; i++) {
            x[i] = signs == 0 || (signs == 1 && i % 4 < 2) ? 127.0f : -127.0f;
            want += (double)x[i] * (double)row[i];
        }
        for (int r = 0; r < MOST; r++) k->matmul.act_quantize((act8 *)(a.x.data + (size_t)r * a.stride), x, COLS);
        for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
            matmul_args m = { .w = &w.m,
                              .tiles = by_tiles,
                              .x = a.x.data,
                              .x_stride = a.stride,
                              .n_rows = counts[n],
                              .out = out,
                              .out_stride = ROWS };
            k->matmul.run(&m, 0, matmul_panels(&w.m), scratch);
            for (int i = 0; i < counts[n] * ROWS; i++)
                CHECK(c, (double)out[i] == want, "extreme values of %s, %d rows: %g instead of %g",
                      tensor_type_name(type), counts[n], (double)out[i], want);
        }
        scratch_free(c, scratch, bytes, tensor_type_name(type));
        acts_free(c, &a);
        weights_free(c, &w);
    }
}

/* A block of Inf or NaN activations makes its own row NaN and no other. */
static void check_nan(check *c, const kernels *k, int type) {
    weights w = weights_make(c, type, 48, 256, 0, 0, 0, 0);
    acts    a = acts_make(c, k, type, 5, 256);
    size_t  bytes;
    void   *scratch = scratch_make(&w.m, 5, &bytes);
    float   out[5 * 48], x[256];
    check_fill_normal(c, x, 256, 1);
    x[77] = INFINITY;
    if (matmul_input(type) == MATMUL_ACT8)
        k->matmul.act_quantize((act8 *)(a.x.data + 2 * a.stride), x, 256);
    else
        memcpy(a.x.data + 2 * a.stride, x, sizeof x);
    matmul_args m = {
        .w = &w.m, .tiles = by_tiles, .x = a.x.data, .x_stride = a.stride, .n_rows = 5, .out = out, .out_stride = 48
    };
    k->matmul.run(&m, 0, 3, scratch);
    for (int i = 0; i < 5 * 48; i++)
        CHECK(c, isfinite(out[i]) == (i / 48 != 2), "%s: row %d is %g", tensor_type_name(type), i / 48, (double)out[i]);
    scratch_free(c, scratch, bytes, tensor_type_name(type));
    acts_free(c, &a);
    weights_free(c, &w);
}

static void check_type(check *c, const kernels *k, int type, int group, int scale_type) {
    static const int64_t n_weight_rows[] = { 1, 15, 16, 17, 48, 49, 85, 112 };
    int64_t              unit = tensor_type_get(type)->block_elems;
    if (matmul_input(type) == MATMUL_ACT8 && unit < 32) unit = 32;
    if (group > unit) unit = group;
    if (unit < 4) unit = 1;
    for (size_t i = 0; i < sizeof n_weight_rows / sizeof *n_weight_rows; i += c->quick ? 3 : 1) {
        int64_t cols = unit == 1 ? check_int(c, 1, 600) : unit * check_int(c, 1, (int)((c->quick ? 800 : 1600) / unit));
        size_t  pad = i % 3 == 2 ? (size_t)check_int(c, 0, 40) : 0;
        weights w = weights_make(c, type, n_weight_rows[i], cols, 0, pad, group, scale_type);
        err     e;
        CHECK(c, matmul_check(&w.m, &e) == 0, "%s refused", tensor_type_name(type));
        for (int64_t n = 1; n <= (c->quick ? 5 : 9); n += 1 + (i > 2 || c->quick))
            check_against_double(c, k, &w, n, i % 4);
        weights_free(c, &w);
    }
    weights w = weights_make(c, type, 85, unit == 1 ? 517 : unit * ((768 + unit - 1) / unit), 0, 0, group, scale_type);
    /* The scalar set takes row after row: there are no kinds of kernels to fall between. */
    check_invariance(c, k, &w, !c->quick && c->cpu, c->quick ? 16 : MAX_ROWS);
    weights_free(c, &w);
    bool one_of_a_kind = type == TENSOR_Q4_0 || type == TENSOR_Q4_K || type == TENSOR_Q6_K || type == TENSOR_Q2_K ||
                         type == TENSOR_F16 || type == TENSOR_BF16;
    if (one_of_a_kind || (unit > 1 && !c->quick && c->cpu)) { /* longer than a panel's stretch of inputs */
        w = weights_make(c, type, 50, unit == 1 ? 2103 : unit * ((2100 + unit - 1) / unit), 0, 0, group, scale_type);
        check_invariance(c, k, &w, false, c->quick ? 20 : 64);
        weights_free(c, &w);
    }
    check_experts(c, k, type, group, scale_type);
}

/* A type whose scales, if it has any, are in its blocks. */
static void check_plain(check *c, const kernels *k, int type) {
    check_type(c, k, type, 0, 0);
    check_nan(c, k, type);
    if (type == TENSOR_F32 || type == TENSOR_F16 || type == TENSOR_BF16) {
        check_many(c, k, type, 19, 2600, 130);
        check_many(c, k, type, 35, 400, 700);
    }
    if ((type != TENSOR_F16 && type != TENSOR_BF16) || by_tiles || !(c->cpu & CPU_AMX_BF16)) return;
    by_tiles = true;
    check_plain(c, k, type);
    by_tiles = false;
}

int main(int argc, char **argv) {
    static const int mlx_scale[3] = { TENSOR_F16, TENSOR_BF16, TENSOR_F32 };
    check            c;
    kernels          k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    kernels_init(&k, c.cpu);
    check_quantizer(&c, &k);
    check_extremes(&c, &k);
    /* Under emulation: these sets add products of bytes; floats have the kernels of plain NEON, which are checked there. */
    bool dots = c.quick && (c.cpu & (CPU_DOTPROD | CPU_I8MM));
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        if (matmul_input(type) == MATMUL_NONE) continue;
        if (dots && matmul_input(type) != MATMUL_ACT8) continue;
        if (type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8) {
            for (int i = 0; i < 3; i++) check_type(&c, &k, type, 32 << i, mlx_scale[(type + i) % 3]);
        } else if (type == TENSOR_MLX_MXFP4 || type == TENSOR_MLX_MXFP8) {
            check_type(&c, &k, type, 32, TENSOR_F8_E8M0);
        } else if (type == TENSOR_MLX_NVFP4) {
            check_type(&c, &k, type, 16, TENSOR_F8_E4M3);
        } else if (type == TENSOR_NF4) {
            check_type(&c, &k, type, 64, TENSOR_F32);
        } else {
            check_plain(&c, &k, type);
            if (type == TENSOR_NVFP4) check_type(&c, &k, type, -1, TENSOR_F32);
            if (type == TENSOR_F8_E4M3) check_type(&c, &k, type, 128, TENSOR_BF16);
        }
    }
    return check_end(&c);
}
