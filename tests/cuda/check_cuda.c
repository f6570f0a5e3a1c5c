/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA kernels on a device against their twin in plain C, bit for bit:
 *
 *   gate      chains of mma.sync (both operand sides) and wgmma equal cuda_twin_chain, on normal, wide-exponent,
 * outlier and subnormal data, f16 and bf16. Where wgmma differs from mma.sync, it must not serve many rows. products
 * every weight type: the twin's bits; the same bits whatever the number of rows (1..512), their places, the kernel, its
 * plan and a neighbour full of NaN; near a product in double precision; nothing written beside the output, everything
 * written inside it
 *
 * What needs no device runs everywhere: the twin against double precision and the reference codecs, also of the types that
 * are recoded when a model is opened. Without a device the rest says "skipped: no device". Inputs are fresh in every run; --seed N repeats one, --quick takes fewer cases.
 */
#include "cuda/drawn.h"
#include "cuda/must.h"
#include "kernels/check.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/probe.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/recode.h"
#include "kernels/cuda/twin.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_N = 512, GUARD = 4096, POISON = 0xff };

static uint32_t bits(float f) { return tensor_f32_bits(f); }

static bool same(float a, float b) { return bits(a) == bits(b) || (isnan(a) && isnan(b)); }

/* ---- device memory with guards ---- */

typedef struct buffer {
    uint8_t *base, *data; /* on the device */
    size_t   bytes;
} buffer;

static buffer buffer_alloc(size_t bytes) {
    err    e;
    buffer b = { .bytes = bytes };
    void  *p = NULL;
    must(cuda_alloc(&p, bytes + 2 * GUARD, &e), &e);
    must(cuda_fill(p, POISON, bytes + 2 * GUARD, &e), &e);
    b.base = p;
    b.data = b.base + GUARD;
    return b;
}

static buffer buffer_of(const void *from, size_t bytes) {
    err    e;
    buffer b = buffer_alloc(bytes);
    must(cuda_copy_in(b.data, from, bytes, &e), &e);
    return b;
}

static bool buffer_intact(const buffer *b) {
    err     e;
    uint8_t edge[GUARD];
    for (int side = 0; side < 2; side++) {
        must(cuda_copy_out(edge, side ? b->data + b->bytes : b->base, GUARD, &e), &e);
        for (int i = 0; i < GUARD; i++) {
            if (edge[i] != POISON) return false;
        }
    }
    return true;
}

static void buffer_free(check *c, buffer *b, const char *what) {
    CHECK(c, buffer_intact(b), "%s: written beside it", what);
    cuda_free(b->base);
}

/* ---- inputs ---- */

typedef enum data_kind { DATA_NORMAL, DATA_WIDE, DATA_OUTLIER, DATA_TINY, DATA_KINDS } data_kind;
static const char *const data_names[] = { "normal", "wide exponents", "outliers", "subnormals and zeros" };

static uint16_t draw16(check *c, data_kind kind, bool bf16) {
    float f = check_normal(c);
    if (kind == DATA_WIDE) f = ldexpf(f, check_int(c, -12, 6));
    if (kind == DATA_OUTLIER && check_int(c, 0, 50) == 0) f *= 1000;
    if (kind == DATA_TINY)
        f = check_int(c, 0, 3) == 0 ? 0 : ldexpf(f, bf16 ? check_int(c, -70, 0) : check_int(c, -26, 0));
    return bf16 ? tensor_f32_to_bf16(f) : tensor_f32_to_f16(f);
}

static double value16(bool bf16, uint16_t h) { return (double)(bf16 ? tensor_bf16_to_f32(h) : tensor_f16_to_f32(h)); }

static void to_image(uint8_t *image, const uint16_t *m, int rows, int cols) {
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < cols; k++) memcpy(image + cuda_image_at(r, k, rows), m + (size_t)r * (size_t)cols + k, 2);
    }
}

/* ---- the twin alone ---- */

static void check_twin(check *c) {
    uint16_t a[256], b[256];
    for (int i = 0; i < (c->quick ? 200 : 2000); i++) {
        const bool      bf16 = i % 2;
        const data_kind kind = (data_kind)(i % DATA_KINDS);
        double          sum = 0, size = 0;
        for (int k = 0; k < 256; k++) {
            a[k] = draw16(c, kind, bf16), b[k] = draw16(c, kind, bf16);
            sum += value16(bf16, a[k]) * value16(bf16, b[k]);
            size += fabs(value16(bf16, a[k]) * value16(bf16, b[k]));
        }
        /* Each of 16 steps cuts 17 terms to 25 bits under the largest and the sum to 24. */
        const float got = cuda_twin_chain(cuda_twin_hopper, bf16, a, b, 256, 0);
        CHECK(c, fabs(got - sum) <= size * 0x1p-18 + 0x1p-140, "twin chain %a, exactly %a", (double)got, sum);
        float one = cuda_twin_chain(cuda_twin_hopper, bf16, a, b, 16, 0);
        for (int k = 0; k < 8; k++) { /* order inside 16 is free */
            uint16_t t = a[k];
            a[k] = a[15 - k], a[15 - k] = t;
            t = b[k], b[k] = b[15 - k], b[15 - k] = t;
        }
        CHECK(c, same(one, cuda_twin_chain(cuda_twin_hopper, bf16, a, b, 16, 0)), "twin: order inside 16 matters");
    }
}

static const tensor_type types[] = { TENSOR_F16,     TENSOR_BF16,    TENSOR_Q8_0,   TENSOR_Q4_0,  TENSOR_Q4_K,
                                     TENSOR_Q5_K,    TENSOR_Q2_K,    TENSOR_Q6_K,   TENSOR_MXFP4, TENSOR_TABLE32,
                                     TENSOR_TABLE16, TENSOR_PAIR4,   TENSOR_PAIR5,  TENSOR_PAIR8, TENSOR_E4M3_128,
                                     TENSOR_E4M3_32, TENSOR_E5M2_32, TENSOR_NF4_64, TENSOR_Q3_K,  TENSOR_PAIR2,
                                     TENSOR_PAIR3,   TENSOR_IQ2_XXS, TENSOR_IQ2_XS, TENSOR_IQ2_S, TENSOR_IQ3_XXS,
                                     TENSOR_IQ3_S,   TENSOR_IQ1_S,   TENSOR_IQ1_M };
enum { N_TYPES = sizeof types / sizeof *types };

static bool is_k(tensor_type type) { return type == TENSOR_Q2_K || type == TENSOR_Q4_K || type == TENSOR_Q5_K; }

static bool is_quantized(tensor_type type) { return !tensor_type_get(type) || tensor_type_get(type)->quantized; }

/* The power of two that a matrix, as cuda_pack takes it, is divided by. */
static int power_of(tensor_type type, const uint8_t *staged, size_t bytes) {
    const size_t block = (size_t)cuda_block_bytes(type);
    return is_quantized(type) ? cuda_twin_power(type, staged, (int64_t)(bytes / block), block) : 0;
}

static bool is_float8(tensor_type type) {
    return type == TENSOR_E4M3_128 || type == TENSOR_E4M3_32 || type == TENSOR_E5M2_32;
}

/* Largest |scale * q| + |min| of 32 columns: what is rounded, where the type has a minimum. */
static double size_of(tensor_type type, const uint8_t *row, int64_t col, const float *f) {
    double top = 0;
    for (int k = 0; k < 32; k++) top = fmax(top, fabs((double)f[k]));
    if (type >= TENSOR_PAIR2 && type <= TENSOR_PAIR8) {
        const cuda_pair_block *b = (const cuda_pair_block *)(const void *)row + col / 32;
        for (int k = 0; k < 32; k++) top = fmax(top, fabs((double)b->scale * b->q[k]) + fabs((double)b->min));
    }
    return top;
}

/* How far a weight of FP8 may be from the file's f, in a matrix divided by `by`. Times a power of two it is exact, but for what
 * is smaller than a half can say; what a tiny scale of E5M2 loses counts for all numbers it multiplies. */
static double float8_bound(tensor_type type, const uint8_t *row, int64_t col, double f, double by) {
    const double scale = (double)((const cuda_float8_block *)(const void *)row)[col / 32].scale;
    int          e;
    if (fabs(frexp(scale, &e)) == 0.5 && fabs(scale) >= by * 0x1p-24) return 0x1p-25 * by;
    return fabs(f) * 0x1p-10 + (type == TENSOR_E5M2_32 ? 0x1p-8 : 0x1p-24) * by;
}

/* The twin's weights of one row beside the codec's. */
static void check_twin_row(check *c, tensor_type type, const char *name, const uint8_t *row, int power, const float *f,
                           int64_t cols) {
    uint16_t    *w = alloc((size_t)cols * 2);
    const double by = ldexp(1, power);
    CHECK(c, cuda_twin_weights(type, row, cols, power, w), "%s", name);
    for (int64_t g = 0; g < cols; g += 32) {
        const double top = size_of(type, row, g, f + g);
        for (int64_t k = g; k < g + 32; k++) {
            const double got = value16(type == TENSOR_BF16, w[k]) * by, d = fabs(got - (double)f[k]);
            /* Of Q2_K, Q4_K and Q5_K the bound is that of the factors' size, not of the sum's. */
            const double most = is_float8(type)         ? float8_bound(type, row, k, (double)f[k], by)
                                : type == TENSOR_NF4_64 ? fabs((double)f[k]) * 1.17 * 0x1p-10 + 0x1p-24 * by
                                                        : top * 0x1p-10 + (is_k(type) ? 0x1p-8 * 16 : 0x1p-24 * by);
            CHECK(c, d <= most, "%s: weight %g is %g", name, (double)f[k], got);
        }
    }
    free(w);
}

static void check_twin_weights(check *c) {
    enum { COLS = 512 };
    float f[COLS];
    for (int i = 0; i < N_TYPES * 40; i++) {
        const tensor_type type = types[i % N_TYPES];
        if (!tensor_type_get(type)) continue;
        uint8_t  *row = drawn_staged(c, type, 1, COLS);
        const int power = power_of(type, row, cuda_row_bytes(type, COLS));
        CHECK(c, tensor_dequant_row(type, row, f, COLS), "%s", tensor_type_name(type));
        check_twin_row(c, type, tensor_type_name(type), row, power, f, COLS);
        free(row);
    }
}

/* A weight of a recoded block, before the device rounds anything. */
static double staged_at(tensor_type type, const uint8_t *row, int64_t col) {
    if (type == TENSOR_TABLE32 || type == TENSOR_TABLE16) {
        const cuda_table_block *b = (const cuda_table_block *)(const void *)row + col / 256;
        const int               i = (int)(col % 256);
        return (double)b->scale[i / 16] * (b->values[b->codes[i / 2] >> (i % 2 * 4) & 15] - 128);
    }
    if (type == TENSOR_MXFP4) {
        const size_t block = (size_t)cuda_block_bytes(type);
        float        f[32];
        (void)tensor_dequant_row(type, row + (size_t)(col / 32) * block, f, 32);
        return (double)f[col % 32];
    }
    if (type == TENSOR_NF4_64) {
        const cuda_nf4_block *b = (const cuda_nf4_block *)(const void *)row + col / 256;
        const int             i = (int)(col % 256);
        return (double)b->scale[i / 64] * (double)CUDA_NF4_UNIT *
               (double)tensor_nf4_values[b->codes[i / 2] >> (i % 2 * 4) & 15];
    }
    if (is_float8(type)) {
        const cuda_float8_block *b = (const cuda_float8_block *)(const void *)row + col / 32;
        const uint8_t            q = b->q[col % 32];
        return (double)b->scale * (double)(type == TENSOR_E5M2_32 ? tensor_e5m2_to_f32(q) : tensor_e4m3_to_f32(q));
    }
    const cuda_pair_block *b = (const cuda_pair_block *)(const void *)row + col / 32;
    return (double)b->scale * b->q[col % 32] + (double)b->min;
}

/* Types that the device has no layout for: their blocks as others say what the codec says, but for the last bits of its
 * floats (it rounds a product and a sum where this has none), and the twin's weights are near. */
static void check_recoded(check *c) {
    static const int64_t shapes[][2] = { { 40, 512 }, { 3, 2304 }, { 16, 96 }, { 17, 2880 }, { 5, 4352 } };
    int                  n = 0;
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        const tensor_mat any = { .type = (tensor_type)type };
        if (!tensor_type_get(type) || cuda_can_multiply((tensor_type)type) || cuda_recode_type(&any) == TENSOR_F16)
            continue;
        bool drawn = false;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int64_t rows = shapes[i][0], cols = shapes[i][1];
            tensor_mat    m;
            if (!drawn_open(c, &m, type, rows, cols)) continue;
            const tensor_type to = cuda_recode_type(&m);
            const size_t      bytes = cuda_row_bytes(to, cols);
            uint8_t          *staged = alloc((size_t)rows * bytes);
            float            *f = alloc((size_t)cols * sizeof *f);
            cuda_recode(&m, to, 0, rows, staged);
            const int power = power_of(to, staged, (size_t)rows * bytes);
            for (int64_t r = 0; r < rows; r++) {
                const uint8_t *row = staged + (size_t)r * bytes;
                tensor_mat_dequant_row(&m, 0, r, f);
                for (int64_t k = 0; k < cols; k++) {
                    const double got = staged_at(to, row, k), size = size_of(to, row, k / 32 * 32, f + k / 32 * 32);
                    CHECK(c, fabs(got - (double)f[k]) <= size * 0x1p-22, "%s: %g became %g", tensor_type_name(type),
                          (double)f[k], got);
                }
                check_twin_row(c, to, tensor_type_name(type), row, power, f, cols);
            }
            drawn = true;
            free(staged), free(f);
            drawn_free(&m);
        }
        CHECK(c, drawn, "%s was never drawn", tensor_type_name(type));
        n++;
    }
    printf("%d types become others\n", n);
}

/* A byte of E4M3 that is no number makes those that share its scale on the device NaN, and no others. */
static void check_recoded_nan(check *c) {
    enum { COLS = 416, AT = 150 };
    float    scale = 0.25f;
    uint8_t  data[2 * COLS];
    uint16_t w[COLS];
    for (int i = 0; i < 2 * COLS; i++) data[i] = (uint8_t)check_int(c, 0, 0x7e);
    data[AT] = check_int(c, 0, 1) ? 0x7f : 0xff;
    for (int group = 32; group <= 512; group *= 4) { /* 32: a scale for each of 32 columns; 128; all */
        const int         each = group < 128 ? group : 128;
        float             scales[2 * COLS / 32 + 2];
        const tensor_mat  m = { .type = TENSOR_F8_E4M3,
                                .rows = 2,
                                .cols = COLS,
                                .data = data,
                                .row_bytes = COLS,
                                .scale_type = TENSOR_F32,
                                .group = group,
                                .group_rows = 1,
                                .scales = scales,
                                .scale_row_bytes = (size_t)((COLS + group - 1) / group) * sizeof(float) };
        const tensor_type to = cuda_recode_type(&m);
        const size_t      bytes = cuda_row_bytes(to, COLS);
        uint8_t          *staged = alloc(2 * bytes);
        for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) scales[i] = scale;
        cuda_recode(&m, to, 0, 2, staged);
        const int power = power_of(to, staged, 2 * bytes);
        for (int r = 0; r < 2; r++) {
            CHECK(c, cuda_twin_weights(to, staged + (size_t)r * bytes, COLS, power, w), "%s", drawn_name(to));
            for (int i = 0; i < COLS; i++)
                CHECK(c, (w[i] & 0x7fff) > 0x7c00 ? r == 0 && i / each == AT / each : r == 1 || i / each != AT / each,
                      "%s: weight %d of row %d is %04x", drawn_name(to), i, r, w[i]);
        }
        free(staged);
    }
}

/* ---- the gate ---- */

static void gate_case(check *c, const cuda_device *d, data_kind kind, bool bf16, int *wgmma_differs) {
    enum { M = 256, N = 64, K = 1024 };
    uint16_t *a = alloc(M * K * 2), *b = alloc(N * K * 2);
    uint8_t  *ia = alloc(M * K * 2), *ib = alloc(N * K * 2);
    float    *out = alloc(M * N * 4);
    err       e;
    for (int i = 0; i < M * K; i++) a[i] = draw16(c, kind, bf16);
    for (int i = 0; i < N * K; i++) b[i] = draw16(c, kind, bf16);
    to_image(ia, a, M, K);
    to_image(ib, b, N, K);
    buffer               da = buffer_of(ia, M * K * 2), db = buffer_of(ib, N * K * 2), dout = buffer_alloc(M * N * 4);
    const cuda_twin_chip chip = d->arch < 90 ? cuda_twin_ampere : cuda_twin_hopper;
    for (int way = 0; way < (d->code == 90 ? 3 : 2); way++) { /* mma.sync, sides exchanged, wgmma */
        long differ = 0;
        must(cuda_probe_chain(d, (float *)dout.data, da.data, db.data, M, N, K, bf16, way == 2, way == 1, NULL, &e),
             &e);
        must(cuda_wait(NULL, &e), &e);
        must(cuda_copy_out(out, dout.data, dout.bytes, &e), &e);
        for (int i = 0; i < M * N; i++) {
            float want = cuda_twin_chain(chip, bf16, a + (size_t)(i / N) * K, b + (size_t)(i % N) * K, K, 0);
            if (same(out[i], want)) continue;
            if (differ++ < 2) printf("  chain %d: %a, twin %a\n", i, (double)out[i], (double)want);
        }
        static const char *const ways[] = { "mma.sync", "mma.sync, sides exchanged", "wgmma" };
        CHECK(c, differ == 0, "%s of %s %s: %ld of %d chains differ from the twin", ways[way], bf16 ? "bf16" : "f16",
              data_names[kind], differ, M * N);
        if (way == 2 && differ) ++*wgmma_differs;
    }
    buffer_free(c, &da, "a"), buffer_free(c, &db, "b"), buffer_free(c, &dout, "chains");
    free(a), free(b), free(ia), free(ib), free(out);
}

/* ---- products ---- */

typedef struct scene {
    const cuda_device *d;
    tensor_type        type;
    int64_t            rows, cols;
    int                power; /* that the weights are divided by, of two */
    bool               bf16;
    buffer             w, scratch;
    uint16_t          *w16, *x16; /* rows x cols, MAX_N x cols; padded to cols16 */
    int64_t            cols16;
    float             *x;      /* MAX_N x cols */
    float             *expect; /* MAX_N x rows: the first many-row result, checked against the twin */
} scene;

/* The device finds the same power. */
static void check_power(check *c, const scene *s, const uint8_t *file) {
    uint32_t top = 0;
    err      e;
    if (!is_quantized(s->type)) return;
    const size_t blocks = (size_t)s->rows * cuda_row_bytes(s->type, s->cols) / (size_t)cuda_block_bytes(s->type);
    buffer       b = buffer_of(&top, sizeof top);
    must(cuda_pack_top((uint32_t *)(void *)b.data, file, s->type, (int64_t)blocks, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    must(cuda_copy_out(&top, b.data, sizeof top, &e), &e);
    buffer_free(c, &b, "top");
    const int power = cuda_pack_power(s->type, top);
    CHECK(c, power == s->power, "%s: divided by 2^%d, twin %d", drawn_name(s->type), power, s->power);
}

static void scene_open(check *c, scene *s, const cuda_device *d, tensor_type type, int64_t rows, int64_t cols) {
    err          e;
    const size_t row_bytes = cuda_row_bytes(type, cols);
    *s = (scene){
        .d = d, .type = type, .rows = rows, .cols = cols, .bf16 = type == TENSOR_BF16, .cols16 = cuda_round_up(cols, 16)
    };
    uint8_t *file = drawn_staged(c, type, rows, cols);
    s->w16 = alloc((size_t)(rows * s->cols16) * 2);
    s->x16 = alloc((size_t)(MAX_N * s->cols16) * 2);
    s->x = alloc((size_t)(MAX_N * cols) * 4);
    s->expect = alloc((size_t)(MAX_N * rows) * 4);
    s->power = power_of(type, file, row_bytes * (size_t)rows);
    for (int64_t r = 0; r < rows; r++)
        cuda_twin_weights(type, file + (size_t)r * row_bytes, cols, s->power, s->w16 + r * s->cols16);
    for (int64_t n = 0; n < MAX_N; n++) {
        float *x = s->x + n * cols;
        check_fill_normal(c, x, (size_t)cols, ldexpf(1, check_int(c, -20, 10)));
        if (n % 7 == 3) x[check_int(c, 0, (int)cols - 1)] *= 3000;
        if (n % 31 == 5) memset(x, 0, (size_t)cols * 4);
        if (n % 31 == 6) x[check_int(c, 0, (int)cols - 1)] = 1e-41f;
    }
    buffer in = buffer_of(file, row_bytes * (size_t)rows);
    s->w = buffer_alloc(cuda_packed_bytes(type, rows, cols));
    s->scratch = buffer_alloc(cuda_scratch_bytes(type, rows, cols));
    must(cuda_pack(s->w.data, in.data, row_bytes, type, rows, cols, s->power, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    check_power(c, s, in.data);
    buffer_free(c, &in, "file");
    free(file);
}

static void scene_close(check *c, scene *s) {
    buffer_free(c, &s->w, "packed weights"), buffer_free(c, &s->scratch, "scratch");
    free(s->w16), free(s->x16), free(s->x), free(s->expect);
}

/* Runs n rows, row i being row pick[i] of the scene (-1: all NaN), and compares with what is expected. */
static void scene_run(check *c, scene *s, const int *pick, int n, cuda_path path, cuda_few_plan plan, bool learn) {
    err           e;
    const int64_t stride = s->rows + 3, pad = cuda_rows_pad(n);
    float        *x = alloc((size_t)(n * s->cols) * 4), *out = alloc((size_t)(n * stride) * 4);
    for (int i = 0; i < n; i++) {
        if (pick[i] >= 0)
            memcpy(x + i * s->cols, s->x + pick[i] * s->cols, (size_t)s->cols * 4);
        else
            memset(x + i * s->cols, 0xff, (size_t)s->cols * 4);
    }
    buffer dx = buffer_of(x, (size_t)(n * s->cols) * 4), image = buffer_alloc(cuda_rows_bytes(n, s->cols)),
           scale = buffer_alloc((size_t)n * 4), dout = buffer_alloc((size_t)(n * stride) * 4);
    cuda_product_args a = { .w = { s->type, s->rows, s->cols, s->w.data, 0 },
                            .x = { s->bf16, n, pad, s->cols, image.data, (float *)scale.data },
                            .out = (float *)dout.data,
                            .out_stride = stride,
                            .scratch = s->scratch.data,
                            .path = path,
                            .plan = plan,
                            .early = check_int(c, 0, 1),
                            .w_scale = ldexpf(1, s->power) };
    must(cuda_rows_make(&a.x, (float *)dx.data, s->cols, NULL, &e), &e);
    must(cuda_product(s->d, &a, NULL, &e), &e);
    must(cuda_wait(NULL, &e), &e);
    must(cuda_copy_out(out, dout.data, dout.bytes, &e), &e);
    long differ = 0, outside = 0;
    for (int i = 0; i < n; i++) {
        for (int64_t r = 0; r < stride; r++) {
            const float got = out[i * stride + r];
            if (r >= s->rows)
                outside += bits(got) != 0xffffffffu;
            else if (pick[i] < 0)
                differ += !isnan(got) || bits(got) == 0xffffffffu;
            else if (learn)
                s->expect[pick[i] * s->rows + r] = got;
            else
                differ += bits(got) != bits(s->expect[pick[i] * s->rows + r]);
        }
    }
    static const char *const paths[] = { "auto", "few", "mma", "wgmma", "held" };
    CHECK(c, differ == 0, "%s %lldx%lld, %d rows by %s (cluster %d, stages %d): %ld values differ", drawn_name(s->type),
          (long long)s->rows, (long long)s->cols, n, paths[path], plan.cluster, plan.stages, differ);
    CHECK(c, outside == 0, "%s: %d rows by %s: %ld values beside the output", drawn_name(s->type), n, paths[path],
          outside);
    buffer_free(c, &dx, "x"), buffer_free(c, &image, "image"), buffer_free(c, &scale, "scale"),
        buffer_free(c, &dout, "out");
    free(x), free(out);
}

/* What was learned is the twin's, and near the exact product. */
static void scene_against_twin(check *c, scene *s, int n_rows) {
    const cuda_twin_chip chip = s->d->arch < 90 ? cuda_twin_ampere : cuda_twin_hopper;
    long                 differ = 0, far = 0;
    for (int i = 0; i < n_rows; i++) {
        const int n = i < 16 ? i : check_int(c, 0, MAX_N - 1);
        uint16_t *x16 = s->x16 + n * s->cols16;
        const int exponent = cuda_twin_row(s->bf16, s->x + n * s->cols, s->cols, x16);
        for (int64_t r = 0; r < s->rows; r++) {
            const uint16_t *w = s->w16 + r * s->cols16;
            const float     got = s->expect[n * s->rows + r];
            const float     want = ldexpf(cuda_twin_product(chip, s->bf16, w, x16, s->cols, exponent), s->power);
            if (bits(got) != bits(want) && differ++ < 3)
                printf("  row %d weight row %lld: %a, twin %a\n", n, (long long)r, (double)got, (double)want);
            double exact = 0, size = 0;
            for (int64_t k = 0; k < s->cols; k++) {
                const double v = ldexp(value16(s->bf16, w[k]), s->power) * (double)s->x[n * s->cols + k];
                exact += v, size += fabs(v);
            }
            /* Rounding of x (2^-11, bf16 2^-8) and of at most cols / 16 steps. */
            far += !(fabs((double)got - exact) <= size * (s->bf16 ? 0x1p-8 : 0x1p-11) * 1.1 + size * 0x1p-17 + 1e-30);
        }
    }
    CHECK(c, differ == 0, "%s %lldx%lld: %ld values differ from the twin", drawn_name(s->type), (long long)s->rows,
          (long long)s->cols, differ);
    CHECK(c, far == 0, "%s %lldx%lld: %ld values far from double precision", drawn_name(s->type), (long long)s->rows,
          (long long)s->cols, far);
}

/*
 * One row in f32 that the product itself brings to 16 bits, normed or not, by any plan: the bits of a row that came in 16
 * bits, and of the plan that is chosen. Few multiprocessors, so that warps have many tiles; gated where there are two row
 * tiles and more.
 */
static void scene_one(check *c, const scene *s) {
    err           e;
    const int64_t half = s->rows / 32 * 16;
    const int     r = check_int(c, 0, MAX_N - 1), stages = check_int(c, 2, 5);
    cuda_device   d = *s->d;
    float      *w = alloc((size_t)s->cols * 4), *plain = alloc((size_t)s->rows * 4), *out = alloc((size_t)s->rows * 4);
    cuda_stream stream;
    cuda_graph  graph;
    d.sms = check_int(c, 1, 4);
    must(cuda_stream_open(&stream, &e), &e);
    check_fill_normal(c, w, (size_t)s->cols, 1);
    buffer dx = buffer_of(s->x + r * s->cols, (size_t)s->cols * 4), dw = buffer_of(w, (size_t)s->cols * 4),
           normed = buffer_alloc((size_t)s->cols * 4), dout = buffer_alloc((size_t)s->rows * 4),
           up = buffer_alloc((size_t)s->rows * 4);
    for (int way = 0; way < (half ? 3 : 2); way++) { /* as it is, normed, normed and gated */
        for (int n = 0; n < 4; n++) {
            cuda_product_args a = { .w = { s->type, s->rows, s->cols, s->w.data, 0 },
                                    .x = { .n = 1, .n_pad = 8, .cols = s->cols },
                                    .out = (float *)dout.data,
                                    .out_stride = s->rows,
                                    .row = (float *)dx.data,
                                    .early = true,
                                    .w_scale = ldexpf(1, s->power) };
            if (n > 0)
                a.plan = (cuda_few_plan){ .stages = stages,
                                          .tile = check_int(c, 0, 2),
                                          .pace = n > 1 ? check_int(c, 1, 48) : -1 };
            if (way > 0) a.norm = (cuda_row_norm){ (float *)normed.data, (float *)dw.data, 1e-5f };
            if (way == 2) {
                a.w.pitch = cuda_round_up(s->rows, 16), a.w.rows = 2 * half;
                a.glu = true, a.act = CUDA_ACT_SILU, a.n_more = 1;
                a.more[0] = (cuda_more){ half, (float *)up.data, half, NULL, a.w_scale };
            }
            const int64_t rows = way == 2 ? half : s->rows;
            must(cuda_graph_begin(stream, &e), &e);
            for (int i = 0; i < 2; i++) must(cuda_product(&d, &a, stream, &e), &e); /* the second one begins early */
            must(cuda_graph_end(&graph, stream, &e), &e);
            must(cuda_graph_run(graph, stream, &e), &e);
            must(cuda_wait(stream, &e), &e);
            cuda_graph_free(graph);
            must(cuda_copy_out(n ? out : plain, dout.data, (size_t)rows * 4, &e), &e);
            const float *want = way == 0 ? s->expect + r * s->rows : plain, *got = n ? out : plain;
            long         differ = 0;
            for (int64_t i = 0; i < rows; i++) differ += bits(got[i]) != bits(want[i]);
            CHECK(c, differ == 0, "%s %lldx%lld, one row%s (tile %d, stages %d, pace %d): %ld values differ",
                  drawn_name(s->type), (long long)a.w.rows, (long long)s->cols,
                  way == 0   ? ""
                  : way == 1 ? ", normed"
                             : ", normed and gated",
                  a.plan.tile, a.plan.stages, a.plan.pace, differ);
        }
    }
    buffer_free(c, &dx, "x"), buffer_free(c, &dw, "weights of the norm"), buffer_free(c, &normed, "normed row"),
        buffer_free(c, &dout, "out"), buffer_free(c, &up, "up");
    cuda_stream_free(stream);
    free(w), free(plain), free(out);
}

static void draw_places(check *c, int *pick, int n, bool nan) {
    for (int i = 0; i < n; i++) pick[i] = check_int(c, 0, MAX_N - 1);
    if (nan && n > 1) pick[check_int(c, 0, n - 1)] = -1;
}

static void check_products(check *c, const cuda_device *d, tensor_type type, int64_t rows, int64_t cols) {
    static const int counts[] = { 1,  2,  3,  4,  5,  7,   8,   9,   12,  16,  17,  24,  31,  32,  33,
                                  48, 63, 64, 65, 96, 127, 128, 129, 192, 255, 256, 257, 384, 511, 512 };
    scene            s;
    int              pick[MAX_N];
    const int        many = d->code != 90 ? 1 : type == TENSOR_F16 || type == TENSOR_BF16 ? 2 : 3;
    scene_open(c, &s, d, type, rows, cols);
    for (int i = 0; i < MAX_N; i++) pick[i] = i;
    scene_run(c, &s, pick, MAX_N, CUDA_PATH_MMA, (cuda_few_plan){ 0 }, true);
    scene_against_twin(c, &s, c->quick || rows * cols > 300000 ? 16 : 64);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int n = counts[i];
        draw_places(c, pick, n, i % 3 == 0);
        scene_run(c, &s, pick, n, CUDA_PATH_AUTO, (cuda_few_plan){ 0 }, false);
        scene_run(c, &s, pick, n, (cuda_path)(CUDA_PATH_FEW + check_int(c, 0, many)), (cuda_few_plan){ 0 }, false);
    }
    for (int i = 0; i < (c->quick ? 3 : 8); i++) { /* any plan that fits */
        const int n = 1 << i % 4;
        draw_places(c, pick, n, false);
        const int cluster =
            d->clusters[3] ? 1 << check_int(c, 0, cuda_slices(cols) == 8 ? 3 : cuda_slices(cols) / 2) : 1;
        scene_run(c, &s, pick, n, CUDA_PATH_FEW, (cuda_few_plan){ cluster, check_int(c, 2, 5), check_int(c, 1, 2), 0 },
                  false);
    }
    if (d->code >= 90 && !s.bf16 && cols % 8 == 0) scene_one(c, &s);
    scene_close(c, &s);
}

/* Rows that are longer than a block's shared memory on most chips (28,672 columns in 16 bits, and tiles beside them): the usual
 * way has the bits of unpacked weights. */
static void check_wide(check *c, const cuda_device *d, tensor_type type) {
    enum { ROWS = 40, COLS = 28672, N = 19 };
    static const int counts[] = { 1, 3, 16, N };
    err              e;
    const int64_t    stride = ROWS + 1;
    uint8_t         *file = drawn_staged(c, type, ROWS, COLS);
    const size_t     row_bytes = cuda_row_bytes(type, COLS);
    const int        power = power_of(type, file, row_bytes * ROWS);
    float *x = alloc(N * COLS * 4), *few = alloc(N * (size_t)stride * 4), *many = alloc(N * (size_t)stride * 4);
    check_fill_normal(c, x, N * COLS, 1);
    buffer in = buffer_of(file, row_bytes * ROWS), dx = buffer_of(x, N * COLS * 4),
           w = buffer_alloc(cuda_packed_bytes(type, ROWS, COLS)),
           scratch = buffer_alloc(cuda_scratch_bytes(type, ROWS, COLS)), image = buffer_alloc(cuda_rows_bytes(N, COLS)),
           scale = buffer_alloc(N * 4), out = buffer_alloc(N * (size_t)stride * 4);
    must(cuda_pack(w.data, in.data, row_bytes, type, ROWS, COLS, power, NULL, &e), &e);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const int         n = counts[i];
        cuda_product_args a = { .w = { type, ROWS, COLS, w.data, 0 },
                                .x = { false, n, cuda_rows_pad(n), COLS, image.data, (float *)scale.data },
                                .out = (float *)out.data,
                                .out_stride = stride,
                                .scratch = scratch.data,
                                .w_scale = ldexpf(1, power) };
        must(cuda_rows_make(&a.x, (float *)dx.data, COLS, NULL, &e), &e);
        for (int way = 0; way < 2; way++) {
            a.path = way ? CUDA_PATH_MMA : CUDA_PATH_AUTO;
            must(cuda_product(d, &a, NULL, &e), &e);
            must(cuda_wait(NULL, &e), &e);
            must(cuda_copy_out(way ? many : few, out.data, (size_t)(n * stride) * 4, &e), &e);
        }
        long differ = 0;
        for (int64_t k = 0; k < n * stride; k++) differ += k % stride < ROWS && bits(few[k]) != bits(many[k]);
        CHECK(c, differ == 0, "%s of %d columns, %d rows: %ld values differ", drawn_name(type), COLS, n, differ);
    }
    buffer_free(c, &in, "file"), buffer_free(c, &dx, "x"), buffer_free(c, &w, "weights"),
        buffer_free(c, &scratch, "scratch");
    buffer_free(c, &image, "image"), buffer_free(c, &scale, "scale"), buffer_free(c, &out, "out");
    free(file), free(x), free(few), free(many);
}

/* More rows than are unpacked at a time, of three joined matrices that begin and end inside of slabs. */
static void check_slabs(check *c, const cuda_device *d, tensor_type type) {
    enum { ROWS = CUDA_SLAB_ROWS + 200, COLS = 64, N = 9 };
    static const int64_t first[] = { 0, 4096, CUDA_SLAB_ROWS + 48, ROWS };
    err                  e;
    const size_t         row_bytes = cuda_row_bytes(type, COLS), out_bytes = (size_t)N * (ROWS + 3) * 4;
    uint8_t             *file = drawn_staged(c, type, ROWS, COLS);
    const int            power = power_of(type, file, row_bytes * ROWS);
    float *x = alloc(N * COLS * 4), *bias = alloc(ROWS * 4), *few = alloc(out_bytes), *many = alloc(out_bytes);
    check_fill_normal(c, x, N * COLS, 1), check_fill_normal(c, bias, ROWS, 1);
    buffer in = buffer_of(file, row_bytes * ROWS), dx = buffer_of(x, N * COLS * 4), biases = buffer_of(bias, ROWS * 4),
           w = buffer_alloc(cuda_packed_bytes(type, ROWS, COLS)),
           scratch = buffer_alloc(cuda_scratch_bytes(type, ROWS, COLS)), image = buffer_alloc(cuda_rows_bytes(N, COLS)),
           scale = buffer_alloc(N * 4), out = buffer_alloc(out_bytes);
    must(cuda_pack(w.data, in.data, row_bytes, type, ROWS, COLS, power, NULL, &e), &e);
    float            *to = (float *)out.data;
    cuda_product_args a = { .w = { type, ROWS, COLS, w.data, 0 },
                            .x = { false, N, cuda_rows_pad(N), COLS, image.data, (float *)scale.data },
                            .out = to,
                            .out_stride = first[1] + 1,
                            .scratch = scratch.data,
                            .w_scale = ldexpf(1, power),
                            .bias = (float *)biases.data,
                            .n_more = 2 };
    to += N * (first[1] + 1);
    for (int i = 0; i < 2; i++) {
        const int64_t stride = first[i + 2] - first[i + 1] + 1;
        a.more[i] = (cuda_more){ first[i + 1], to, stride, i ? (float *)biases.data + first[i + 1] : NULL,
                                 ldexpf(3, power + i) };
        to += N * stride;
    }
    must(cuda_rows_make(&a.x, (float *)dx.data, COLS, NULL, &e), &e);
    static const cuda_path paths[] = { CUDA_PATH_FEW, CUDA_PATH_MMA, CUDA_PATH_WGMMA };
    for (int way = 0; way < (d->code == 90 ? 3 : 2); way++) {
        must(cuda_fill(out.data, 0xff, out_bytes, &e), &e);
        a.path = paths[way];
        must(cuda_product(d, &a, NULL, &e), &e);
        must(cuda_wait(NULL, &e), &e);
        must(cuda_copy_out(way ? many : few, out.data, out_bytes, &e), &e);
        long differ = 0, untouched = 0;
        for (size_t i = 0; i < out_bytes / 4; i++) {
            differ += way && bits(few[i]) != bits(many[i]);
            untouched += bits(few[i]) == 0xffffffffu;
        }
        CHECK(c, differ == 0 && untouched == 3 * N, "%s of %d rows, path %d: %ld values differ, %ld untouched",
              drawn_name(type), (int)ROWS, (int)a.path, differ, untouched);
    }
    buffer_free(c, &in, "file"), buffer_free(c, &dx, "x"), buffer_free(c, &biases, "biases");
    buffer_free(c, &w, "weights"), buffer_free(c, &scratch, "scratch"), buffer_free(c, &image, "image");
    buffer_free(c, &scale, "scale"), buffer_free(c, &out, "out");
    free(file), free(x), free(bias), free(few), free(many);
}

static void check_device(check *c, int number) {
    /* rows, columns; columns are made whole blocks of the type */
    static const int64_t shapes[][2] = { { 48, 512 },   { 200, 2304 },  { 33, 256 },  { 7, 96 },
                                         { 130, 2880 }, { 1000, 4096 }, { 40, 14336 } };
    cuda_device          d;
    err                  e;
    int                  wgmma_differs = 0;
    must(cuda_device_open(&d, number, &e), &e);
    printf("device %d: %s, %d.%d, kernels for %d.%d, driver %d, runtime %d\n", number, d.name, d.arch / 10, d.arch % 10,
           d.code / 10, d.code % 10, d.driver, d.runtime);
    for (int kind = 0; kind < DATA_KINDS; kind++) {
        for (int bf16 = 0; bf16 < 2; bf16++) gate_case(c, &d, (data_kind)kind, bf16, &wgmma_differs);
    }
    printf("gate: %ld checks, %ld failed\n", c->n_checks, c->n_failed);
    for (int t = 0; t < N_TYPES; t++) {
        const long before = c->n_failed;
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const int     block = tensor_type_get(types[t])   ? tensor_type_get(types[t])->block_elems
                                  : types[t] == TENSOR_NF4_64 ? 64
                                  : types[t] == TENSOR_PAIR2 || types[t] == TENSOR_PAIR3 ? 128
                                                                                         : 32;
            const int64_t cols = cuda_round_up(shapes[i][1], block);
            if (c->quick && shapes[i][0] * cols > 300000) continue;
            const bool any =
                block == 1 || types[t] == TENSOR_E4M3_128 || types[t] == TENSOR_E5M2_32; /* number of columns */
            check_products(c, &d, types[t], shapes[i][0], any && i == 3 ? 77 : cols);
        }
        if (types[t] != TENSOR_BF16 && (!c->quick || t % 4 == 0)) check_wide(c, &d, types[t]);
        if (types[t] == TENSOR_Q8_0 || (!c->quick && types[t] == TENSOR_PAIR4)) check_slabs(c, &d, types[t]);
        printf("%s: %s\n", drawn_name(types[t]), c->n_failed == before ? "ok" : "FAILED");
    }
}

int main(int argc, char **argv) {
    check c;
    err   e = { 0 };
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    if (c.rng == 1) c.rng = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)c.rng);
    check_twin(&c);
    check_twin_weights(&c);
    check_recoded(&c);
    check_recoded_nan(&c);
    const int n = cuda_device_count(&e);
    if (n == 0) printf("skipped: no device: %s\n", e.msg);
    for (int i = 0; i < n; i++) check_device(&c, i);
    const int rc = check_end(&c);
    printf("check %s\n", rc == 0 ? "ok" : "FAILED");
    return rc;
}
