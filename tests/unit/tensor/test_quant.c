/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Codecs without the corpus: small floats exhaustively, matrices with separate scales against fixtures that Python
 * wrote (tools/make_tensor_fixtures.py), and the quantizers against the error that docs/quantization.md promises.
 */
#include "base/file.h"
#include "base/json.h"
#include "tensor/blocks.h"
#include "tensor/codec.h"
#include "tensor/half.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A small float format by definition: sign, exponent and mantissa fields and what they mean. */
static double mini_value(unsigned code, int exp_bits, int man_bits) {
    int      bias = (1 << (exp_bits - 1)) - 1;
    unsigned man = code & ((1u << man_bits) - 1), exp = code >> man_bits & ((1u << exp_bits) - 1);
    double   f = (double)man / (double)(1u << man_bits);
    double   v = exp == 0 ? ldexp(f, 1 - bias) : ldexp(1 + f, (int)exp - bias);
    return code >> (exp_bits + man_bits) & 1 ? -v : v;
}

static void test_half_read(void **state) {
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f16 = tensor_f16_to_f32((uint16_t)h), bf16 = tensor_bf16_to_f32((uint16_t)h);
        if ((h & 0x7c00) != 0x7c00)
            assert_true((double)f16 == mini_value(h, 5, 10));
        else if (h & 0x3ff)
            assert_true(isnan(f16));
        else
            assert_true(isinf(f16));
        assert_int_equal(signbit(f16) != 0, h >> 15);
        if ((h & 0x7f80) != 0x7f80)
            assert_true((double)bf16 == mini_value(h, 8, 7));
        else
            assert_true(h & 0x7f ? isnan(bf16) : isinf(bf16));
        if (!isnan(f16)) assert_int_equal(tensor_f32_to_f16(f16), h);
        if (!isnan(bf16)) assert_int_equal(tensor_f32_to_bf16(bf16), h);
    }
}

/* Between neighbours a < b the midpoint goes to the even code and everything beside it to the nearer one. */
#define CHECK_ROUNDING(write, low, high, a, b)                                                                         \
    do {                                                                                                               \
        float mid = (float)(((double)(a) + (double)(b)) / 2);                                                          \
        assert_int_equal(write(mid), (low) % 2 == 0 ? (low) : (high));                                                 \
        assert_int_equal(write(nextafterf(mid, -INFINITY)), low);                                                      \
        assert_int_equal(write(nextafterf(mid, INFINITY)), high);                                                      \
    } while (0)

static void test_half_write(void **state) {
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++)
        CHECK_ROUNDING(tensor_f32_to_f16, h, h + 1, mini_value(h, 5, 10), mini_value(h + 1, 5, 10));
    for (unsigned h = 1; h < 0x7f7f; h++)
        CHECK_ROUNDING(tensor_f32_to_bf16, h, h + 1, mini_value(h, 8, 7), mini_value(h + 1, 8, 7));
    for (unsigned h = 0; h < 0x7e; h++)
        CHECK_ROUNDING(tensor_f32_to_e4m3, h, h + 1, mini_value(h, 4, 3), mini_value(h + 1, 4, 3));
    for (unsigned h = 0; h < 0x7b; h++)
        CHECK_ROUNDING(tensor_f32_to_e5m2, h, h + 1, mini_value(h, 5, 2), mini_value(h + 1, 5, 2));
    for (unsigned h = 0; h < 7; h++)
        CHECK_ROUNDING(tensor_f32_to_e2m1, h, h + 1, mini_value(h, 2, 1), mini_value(h + 1, 2, 1));
    assert_int_equal(tensor_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(tensor_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(tensor_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tensor_f32_to_f16(NAN) & 0x7e00, 0x7e00);
    assert_int_equal(tensor_f32_to_bf16(NAN) & 0x7fc0, 0x7fc0);
    assert_int_equal(tensor_f32_to_bf16(tensor_bits_f32(0x7f800001)) & 0x7fc0, 0x7fc0); /* payload below the cut */
    assert_int_equal(tensor_f32_to_e4m3(1e30f), 0x7e);
    assert_int_equal(tensor_f32_to_e4m3(-1e30f), 0xfe);
    assert_int_equal(tensor_f32_to_e4m3(NAN) & 0x7f, 0x7f);
    assert_int_equal(tensor_f32_to_e5m2(-INFINITY), 0xfb);
    assert_int_equal(tensor_f32_to_e2m1(-100), 0xf);
}

static bool same_float(float got, uint32_t want_bits) {
    float want = tensor_bits_f32(want_bits);
    return isnan(want) ? isnan(got) : got == want;
}

static void test_fp8_table(void **state) {
    (void)state;
    char *path = test_fixture_path("tensor/fp8.txt");
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    unsigned code, e4m3, e5m2, e8m0, n = 0;
    while (fscanf(f, "%x %x %x %x", &code, &e4m3, &e5m2, &e8m0) == 4) {
        assert_true(same_float(tensor_e4m3_to_f32((uint8_t)code), e4m3));
        assert_true(same_float(tensor_e5m2_to_f32((uint8_t)code), e5m2));
        assert_true(same_float(tensor_e8m0_to_f32((uint8_t)code), e8m0));
        if (!isnan(tensor_bits_f32(e4m3))) assert_int_equal(tensor_f32_to_e4m3(tensor_bits_f32(e4m3)), code);
        n++;
    }
    assert_int_equal(n, 256);
    fclose(f);
    free(path);
}

static void *from_hex(const char *text, size_t *bytes) {
    *bytes = strlen(text) / 2;
    uint8_t *out = malloc(*bytes + 1);
    for (size_t i = 0; i < *bytes; i++) {
        unsigned v;
        assert_int_equal(sscanf(text + 2 * i, "%2x", &v), 1);
        out[i] = (uint8_t)v;
    }
    return out;
}

static int64_t int_of(const json_value *v, const char *key) {
    int64_t n = -1;
    assert_true(json_int(json_get(v, key), &n));
    return n;
}

static void check_mat(const json_value *v) {
    tensor_mat m = { 0 };
    int        type, scale_type;
    size_t     data_bytes, scale_bytes, bias_bytes, want_bytes;
    assert_true(tensor_type_parse(json_cstr(json_get(v, "type")), &type));
    assert_true(tensor_type_parse(json_cstr(json_get(v, "scale_type")), &scale_type));
    void     *data = from_hex(json_cstr(json_get(v, "data")), &data_bytes);
    void     *scales = from_hex(json_cstr(json_get(v, "scales")), &scale_bytes);
    void     *biases = from_hex(json_cstr(json_get(v, "biases")), &bias_bytes);
    uint32_t *want = from_hex(json_cstr(json_get(v, "want")), &want_bytes);
    int64_t   groups, experts = int_of(v, "experts");
    m.type = (tensor_type)type;
    m.scale_type = (tensor_type)scale_type;
    m.rows = int_of(v, "rows");
    m.cols = int_of(v, "cols");
    m.group = (int)int_of(v, "group");
    m.group_rows = (int)int_of(v, "group_rows");
    m.n_experts = experts;
    m.data = data;
    m.scales = scales;
    m.biases = bias_bytes ? biases : NULL;
    assert_true(tensor_row_bytes(type, m.cols, &m.row_bytes));
    groups = (m.cols + m.group - 1) / m.group;
    m.scale_row_bytes = (size_t)groups * tensor_type_get(scale_type)->block_bytes;
    m.expert_bytes = m.row_bytes * (size_t)m.rows;
    m.scale_expert_bytes = m.scale_row_bytes * (size_t)((m.rows + m.group_rows - 1) / m.group_rows);
    assert_true(tensor_mat_valid(&m));
    assert_int_equal(data_bytes, m.expert_bytes * (size_t)(experts ? experts : 1));

    float   *row = malloc((size_t)m.cols * sizeof *row);
    uint64_t rng = 5;
    for (int64_t e = 0; e < (experts ? experts : 1); e++) {
        for (int64_t r = 0; r < m.rows; r++) {
            const uint32_t *expect = want + (e * m.rows + r) * m.cols;
            tensor_mat_dequant_row(&m, e, r, row);
            for (int64_t c = 0; c < m.cols; c++) {
                if (!same_float(row[c], expect[c]))
                    fail_msg("%s row %lld column %lld: %a, expected %a", tensor_type_name(type), (long long)r,
                             (long long)c, (double)row[c], (double)tensor_bits_f32(expect[c]));
            }
            int64_t from = (int64_t)(test_random(&rng) % (uint64_t)m.cols);
            tensor_mat_dequant_span(&m, e, r, from, m.cols - from, row);
            for (int64_t c = from; c < m.cols; c++) assert_true(same_float(row[c - from], expect[c]));
        }
    }
    free(row);
    free(want);
    free(biases);
    free(scales);
    free(data);
}

static void test_mats(void **state) {
    (void)state;
    char             *path = test_fixture_path("tensor/mats.json"), *text;
    size_t            bytes;
    arena             a;
    err               e = { 0 };
    const json_value *list;
    if (file_read(&text, &bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    arena_init(&a, 0);
    if (json_parse(&list, text, bytes, &a, &e) < 0) fail_msg("%s", e.msg);
    assert_true(json_count(list) >= 27);
    for (size_t i = 0; i < json_count(list); i++) check_mat(json_at(list, i));
    arena_deinit(&a);
    free(text);
    free(path);
}

static void test_mat_refused(void **state) {
    (void)state;
    float      x = 0;
    tensor_mat ok = { .type = TENSOR_MLX_AFF4,
                      .rows = 1,
                      .cols = 64,
                      .row_bytes = 32,
                      .scale_type = TENSOR_F16,
                      .group = 64,
                      .group_rows = 1,
                      .scales = &x,
                      .biases = &x };
    tensor_mat m = ok;
    assert_true(tensor_mat_valid(&ok));
    m = ok, m.group = 48;
    assert_false(tensor_mat_valid(&m));
    m = ok, m.cols = 96, m.row_bytes = 48; /* not a whole number of groups */
    assert_false(tensor_mat_valid(&m));
    m = ok, m.row_bytes = 31;
    assert_false(tensor_mat_valid(&m));
    m = ok, m.scale_type = TENSOR_Q4_0;
    assert_false(tensor_mat_valid(&m));
    m = ok, m.type = (tensor_type)5; /* a number without a type */
    assert_false(tensor_mat_valid(&m));
    m = ok, m.rows = 0;
    assert_false(tensor_mat_valid(&m));
    assert_false(tensor_dequant_row(TENSOR_Q4_0, &x, &x, 31));
    assert_false(tensor_dequant_row(TENSOR_MLX_AFF4, &x, &x, 8));
    assert_false(tensor_dequant_row(-1, &x, &x, 8));
    assert_false(tensor_quant_row(TENSOR_MLX_AFF4, &x, &x, 256));
}

/* Q8_1 and Q8_K by hand: a ramp whose peak is 127 keeps its integers, d is 1 and the sums can be counted. */
static void test_activation_blocks(void **state) {
    (void)state;
    float      x[256], y[256];
    block_q8_1 q81;
    block_q8_k q8k;
    for (int i = 0; i < 256; i++) x[i] = (float)(i - 128) * 0.5f + 0.5f; /* -63.5 .. 64 */
    x[0] = -127;
    assert_true(tensor_quant_row(TENSOR_Q8_K, x, &q8k, 256));
    assert_true(q8k.d == 1.0f);
    assert_int_equal(q8k.qs[0], -127);
    assert_int_equal(q8k.qs[255], 64);
    for (int i = 1; i < 256; i++) assert_true(fabsf((float)q8k.qs[i] - x[i]) <= 0.5f);
    assert_int_equal(q8k.qs[2], -63); /* -62.5: ties go away from zero, as in the reference */
    assert_int_equal(q8k.qs[4], -62); /* -61.5 */
    for (int g = 0; g < 16; g++) {
        int sum = 0;
        for (int i = 0; i < 16; i++) sum += q8k.qs[16 * g + i];
        assert_int_equal(q8k.bsums[g], sum);
    }
    assert_true(tensor_dequant_row(TENSOR_Q8_K, &q8k, y, 256));
    for (int i = 0; i < 256; i++) assert_true(y[i] == (float)q8k.qs[i]);

    for (int i = 0; i < 32; i++) x[i] = (float)(4 * i - 63) * 2;
    x[31] = 254;
    assert_true(tensor_quant_row(TENSOR_Q8_1, x, &q81, 32));
    assert_int_equal(q81.d, 0x4000);                                         /* 2.0 */
    assert_true(tensor_f16_to_f32(q81.s) == 2 * (31 * -63 + 4 * 465 + 127)); /* sum of 4i - 63 for i < 31, and 127 */
    assert_true(tensor_dequant_row(TENSOR_Q8_1, &q81, y, 32));
    for (int i = 0; i < 32; i++) assert_true(y[i] == x[i]);
}

static double normal(uint64_t *rng) {
    double u = ((double)(test_random(rng) >> 11) + 1) / 9007199254740993.0;
    double v = (double)(test_random(rng) >> 11) / 9007199254740992.0;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

enum { N = 16384 };

/* The promise of docs/quantization.md: relative RMS error on normally distributed values, a little above the measured.
 */
static const struct {
    int    type, group, scale_type;
    double bound;
} bounds[] = {
    { TENSOR_F16, 0, 0, 0.000219 },
    { TENSOR_BF16, 0, 0, 0.00169 },
    { TENSOR_Q4_0, 0, 0, 0.0830 },
    { TENSOR_Q4_1, 0, 0, 0.0708 },
    { TENSOR_Q5_0, 0, 0, 0.0414 },
    { TENSOR_Q5_1, 0, 0, 0.0343 },
    { TENSOR_Q8_0, 0, 0, 0.00552 },
    { TENSOR_Q8_1, 0, 0, 0.00552 },
    { TENSOR_Q2_K, 0, 0, 0.267 },
    { TENSOR_Q3_K, 0, 0, 0.149 },
    { TENSOR_Q4_K, 0, 0, 0.0713 },
    { TENSOR_Q5_K, 0, 0, 0.0353 },
    { TENSOR_Q6_K, 0, 0, 0.0173 },
    { TENSOR_Q8_K, 0, 0, 0.00721 },
    { TENSOR_IQ4_NL, 0, 0, 0.0757 },
    { TENSOR_IQ4_XS, 0, 0, 0.0764 },
    { TENSOR_TQ1_0, 0, 0, 0.447 },
    { TENSOR_TQ2_0, 0, 0, 0.447 },
    { TENSOR_MXFP4, 0, 0, 0.115 },
    { TENSOR_NVFP4, 0, 0, 0.0920 },
    { TENSOR_F8_E4M3, 128, TENSOR_F32, 0.0270 },
    { TENSOR_F8_E5M2, 128, TENSOR_F32, 0.0534 },
    { TENSOR_NF4, 64, TENSOR_F32, 0.0956 },
    { TENSOR_MLX_AFF2, 32, TENSOR_F16, 0.307 },
    { TENSOR_MLX_AFF2, 64, TENSOR_F16, 0.335 },
    { TENSOR_MLX_AFF3, 64, TENSOR_F16, 0.169 },
    { TENSOR_MLX_AFF4, 32, TENSOR_F16, 0.0708 },
    { TENSOR_MLX_AFF4, 64, TENSOR_BF16, 0.0836 },
    { TENSOR_MLX_AFF4, 128, TENSOR_F32, 0.0929 },
    { TENSOR_MLX_AFF5, 64, TENSOR_F16, 0.0411 },
    { TENSOR_MLX_AFF6, 64, TENSOR_F16, 0.0204 },
    { TENSOR_MLX_AFF8, 64, TENSOR_F16, 0.00508 },
    { TENSOR_MLX_MXFP4, 32, TENSOR_F8_E8M0, 0.115 },
    { TENSOR_MLX_MXFP8, 32, TENSOR_F8_E8M0, 0.0275 },
    { TENSOR_MLX_NVFP4, 16, TENSOR_F8_E4M3, 0.0920 },
};

/* Quantizes and reads back n values as one row; false for a type without a quantizer. */
static bool round_trip(int type, int group, int scale_type, const float *x, float *y, int64_t n) {
    static uint8_t data[N * 4 + 64], scales[N], biases[N];
    if (group == 0) {
        size_t bytes;
        if (!tensor_row_bytes(type, n, &bytes)) return false;
        memset(data, 0xa5, sizeof data);
        if (!tensor_quant_row(type, x, data, n)) return false;
        assert_int_equal(data[bytes], 0xa5);
        return tensor_dequant_row(type, data, y, n);
    }
    tensor_mat m = { .type = (tensor_type)type,
                     .rows = 1,
                     .cols = n,
                     .scale_type = (tensor_type)scale_type,
                     .group = group,
                     .group_rows = 1,
                     .data = data,
                     .scales = scales };
    bool       affine = type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8;
    if (affine) m.biases = biases;
    memset(data, 0xa5, sizeof data);
    assert_true(tensor_row_bytes(type, n, &m.row_bytes));
    if (!tensor_mat_quant_row(&m, x, data, scales, biases)) return false;
    assert_int_equal(data[m.row_bytes], 0xa5);
    tensor_mat_dequant_row(&m, 0, 0, y);
    return true;
}

static double relative_error(const float *x, const float *y, int n) {
    double e = 0, s = 0;
    for (int i = 0; i < n; i++) {
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)x[i] * (double)x[i];
    }
    return sqrt(e / s);
}

static void test_round_trip(void **state) {
    (void)state;
    static float x[N], y[N], z[N];
    uint64_t     rng = 42;
    for (int i = 0; i < N; i++) x[i] = (float)(0.02 * normal(&rng)); /* the spread of real weights */
    bool ok = true;
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        int type = bounds[k].type, group = bounds[k].group, scale_type = bounds[k].scale_type;
        assert_true(round_trip(type, group, scale_type, x, y, N));
        assert_true(round_trip(type, group, scale_type, y, z, N));
        double e = relative_error(x, y, N), again = relative_error(y, z, N);
        printf("%-10s group %3d  %.5f (bound %.5f)  again %.6f\n", tensor_type_name(type), group, e, bounds[k].bound,
               again);
        if (!(e <= bounds[k].bound)) ok = false;
        if (!(again <= 0.25 * e)) ok = false; /* what is already on the grid stays */
    }
    assert_true(ok);
}

static bool has_group(int type, int *group, int *scale_type) {
    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        if (bounds[k].type != type) continue;
        *group = bounds[k].group;
        *scale_type = bounds[k].scale_type;
        return true;
    }
    return false;
}

/* Zeros stay zeros, constants stay near, one large element does not wipe out its own value, nothing crashes. */
static void test_extremes(void **state) {
    (void)state;
    static float x[256], y[256];
    for (int type = 0; type < TENSOR_TYPE_COUNT; type++) {
        int group, scale_type;
        if (!has_group(type, &group, &scale_type)) continue;
        memset(x, 0, sizeof x);
        assert_true(round_trip(type, group, scale_type, x, y, 256));
        for (int i = 0; i < 256; i++) assert_true(y[i] == 0);
        for (int sign = -1; sign <= 1; sign += 2) {
            for (int i = 0; i < 256; i++) x[i] = 0.75f * (float)sign;
            assert_true(round_trip(type, group, scale_type, x, y, 256));
            for (int i = 0; i < 256; i++) {
                if (!(fabsf(y[i] - x[i]) <= 0.05f))
                    fail_msg("%s: 0.75 became %g", tensor_type_name(type), (double)y[i]);
            }
            memset(x, 0, sizeof x);
            x[37] = 100.0f * (float)sign;
            assert_true(round_trip(type, group, scale_type, x, y, 256));
            if (!(fabsf(y[37] - x[37]) <= 7))
                fail_msg("%s: a spike of 100 became %g", tensor_type_name(type), (double)y[37]);
        }
        const float odd[] = { 1e-30f, 1e-40f, 3e38f, INFINITY, -INFINITY, NAN, 65504, 1e-7f };
        for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
            for (int i = 0; i < 256; i++) x[i] = i % 3 ? odd[k] : (float)i;
            assert_true(round_trip(type, group, scale_type, x, y, 256));
            for (int i = 0; i < 256; i++) x[i] = i % 2 ? odd[k] : -odd[k];
            assert_true(round_trip(type, group, scale_type, x, y, 256));
        }
    }
}

/* Ternary weights with one scale come back exactly: such models exist. */
static void test_ternary(void **state) {
    (void)state;
    float    x[256], y[256];
    uint64_t rng = 3;
    for (int i = 0; i < 256; i++) x[i] = (float)((int)(test_random(&rng) % 3) - 1) * 0.03125f;
    for (int type = TENSOR_TQ1_0; type <= TENSOR_TQ2_0; type++) {
        assert_true(round_trip(type, 0, 0, x, y, 256));
        for (int i = 0; i < 256; i++) assert_true(y[i] == x[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_read),  cmocka_unit_test(test_half_write),  cmocka_unit_test(test_fp8_table),
        cmocka_unit_test(test_mats),       cmocka_unit_test(test_mat_refused), cmocka_unit_test(test_activation_blocks),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_extremes),    cmocka_unit_test(test_ternary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
