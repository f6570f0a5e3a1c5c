/* SPDX-License-Identifier: Apache-2.0 */
/* Quantizers: every instruction set of this machine writes the same bytes, and importance does what it says. */
#include "tensor/codec.h"
#include "tensor/quant/table.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 2048 };

static double unit(uint64_t *rng) { return ((double)(test_random(rng) >> 11) + 1) / 9007199254740993.0; }

/* Bell-shaped, every sixteenth number an outlier, some blocks flat or empty. */
static void fill(float *x, float *q, uint64_t *rng) {
    for (int i = 0; i < N; i++) {
        double v = sqrt(-2 * log(unit(rng))) * cos(6.283185307179586 * unit(rng));
        x[i] = (float)(0.02 * v * (i % 16 == 5 ? 4 : 1));
        if (i / 256 == 6) x[i] = 0.25f;
        if (i / 256 == 7) x[i] = 0;
        q[i] = (float)exp(2 * unit(rng));
        if (i % 32 == 3) q[i] = 0; /* a column that was never used */
    }
}

static void test_same_bytes(void **state) {
    static float   x[N], q[N];
    static uint8_t a[4 * N], b[4 * N];
    uint64_t       rng = 5;
    (void)state;
#if defined(__x86_64__)
    const quant_table *best = quant_table_get(), *sets[] = { &quant_table_avx2, best };
    int                n_sets = best == &quant_table_plain ? 0 : 2;
#else
    const quant_table *sets[] = { quant_table_get() };
    int                n_sets = 1;
#endif
    fill(x, q, &rng);
    for (int i = 0; i < N; i++) q[i] += 0.01f;
    for (int type = 0; type < TENSOR_GGML_END; type++) {
        const tensor_type_info *t = tensor_type_get(type);
        if (!t || !quant_table_plain.block[type]) continue;
        for (int at = 0; at + t->block_elems <= N; at += t->block_elems)
            quant_table_plain.block[type](x + at, q + at, a + at / t->block_elems * t->block_bytes);
        for (int s = 0; s < n_sets; s++) {
            for (int at = 0; at + t->block_elems <= N; at += t->block_elems)
                sets[s]->block[type](x + at, q + at, b + at / t->block_elems * t->block_bytes);
            if (memcmp(a, b, (size_t)(N / t->block_elems * t->block_bytes)) != 0) printf("%s, set %d\n", t->name, s);
            assert_memory_equal(a, b, (size_t)(N / t->block_elems * t->block_bytes));
        }
    }
}

static double weighted_error(int type, const float *x, const float *q, const uint8_t *row) {
    static float y[N];
    double       sum = 0;
    assert_true(tensor_dequant_row(type, row, y, N));
    for (int i = 0; i < N; i++) sum += (double)q[i] * ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return sum;
}

/* With importance the weighted error is smaller than without it; where there is no search it is the same. */
static void test_importance(void **state) {
    static float   x[N], q[N];
    static uint8_t with[4 * N], without[4 * N];
    uint64_t       rng = 9;
    (void)state;
    fill(x, q, &rng);
    for (int i = 6 * 256; i < N; i++) x[i] = x[i - 256]; /* instead of the flat blocks, which need no search */
    for (int i = 5; i < N; i += 16) x[i] /= 4;           /* large elements count more: none here */
    for (int type = TENSOR_Q4_0; type < TENSOR_GGML_END; type++) {
        const tensor_type_info *t = tensor_type_get(type);
        if (!t || !t->quantized || !tensor_can_quant(type)) continue;
        assert_true(tensor_quant_row_weighted(type, x, q, with, N));
        assert_true(tensor_quant_row(type, x, without, N));
        double a = weighted_error(type, x, q, with), b = weighted_error(type, x, q, without);
        bool   plain = type == TENSOR_Q8_0 || type == TENSOR_Q8_1 || type == TENSOR_Q8_K;
        if (!(plain ? a == b : a < b)) printf("%s: %g with, %g without\n", t->name, a, b);
        assert_true(plain ? a == b : a <= 1.01 * b);
    }
}

/* Importance that is zero everywhere, huge or tiny gives blocks that decode to numbers. */
static void test_odd_importance(void **state) {
    static float   x[N], q[N], y[N];
    static uint8_t row[4 * N];
    uint64_t       rng = 3;
    const float    values[] = { 0, 1e-30f, 1e30f, 3.4e38f };
    (void)state;
    fill(x, q, &rng);
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        for (int i = 0; i < N; i++) q[i] = values[k];
        for (int type = TENSOR_Q4_0; type < TENSOR_GGML_END; type++) {
            if (!tensor_type_get(type) || !tensor_can_quant(type)) continue;
            assert_true(tensor_quant_row_weighted(type, x, q, row, N));
            assert_true(tensor_dequant_row(type, row, y, N));
            for (int i = 0; i < N; i++) assert_true(isfinite(y[i]));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_importance),
        cmocka_unit_test(test_odd_importance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
