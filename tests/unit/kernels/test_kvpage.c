/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The compressed page types: the stored bytes are those of an independent implementation in double precision
 * (tools/kv-pages/reference.py), the errors stay within what the codebooks promise, and values that are not numbers,
 * infinite, zero or all in one place do what kernels/kvpage.h says.
 */
#include "unit/support/support.h"

#include "kernels/cpu.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 16, SLOT = 5 };

static const struct {
    const char *name;
    kv_type     type;
} types[] = {
    { "q8_0", KV_Q8_0 }, { "q5_0", KV_Q5_0 }, { "q4_0", KV_Q4_0 }, { "tq4", KV_TQ4 },
    { "tq3", KV_TQ3 },   { "tq2", KV_TQ2 },   { "fp8", KV_FP8 },
};
enum { N_TYPES = sizeof types / sizeof *types };

static uint32_t xorshift(uint32_t *s) {
    *s ^= *s << 13;
    *s ^= *s >> 17;
    *s ^= *s << 5;
    return *s;
}

/* As reference.py makes them. */
static void vector_make(const char *kind, int dim, uint32_t seed, float *x) {
    uint32_t s = seed * 2654435761u | 1u;
    long     n[KV_DIM_MAX];
    for (int i = 0; i < dim; i++) {
        n[i] = -12 * 2048;
        for (int k = 0; k < 12; k++) n[i] += xorshift(&s) >> 20;
    }
    for (int i = 0; i < dim && !strcmp(kind, "heavy"); i++) {
        const int zeros = __builtin_ctz(xorshift(&s));
        n[i] *= 1L << (zeros < 5 ? zeros : 5);
    }
    for (int i = 0; i < 2 && !strcmp(kind, "outlier"); i++) n[xorshift(&s) % (unsigned)dim] *= 30;
    for (int i = 0; i < dim; i++) x[i] = (float)n[i] / 4096.0f;
}

typedef struct head {
    kv_layout layout;
    uint8_t  *page;
} head;

static void head_store(const kernels *k, head *h, kv_type type, int dim, const float *x) {
    assert_true(kv_layout_init(&h->layout, type, type, TOKENS, 1, dim, dim, false));
    h->page = calloc(1, h->layout.layer_bytes);
    assert_non_null(h->page);
    k->attn.kv_store(&h->layout, h->page, SLOT, 1, 0, 1, x, 0, x, 0);
}

/* What a row of V holds: attention over this one position gives it back. */
static void head_read(const kernels *k, const head *h, float *out) {
    const kv_layout *l = &h->layout;
    const void      *page = h->page;
    void            *scratch = aligned_alloc(64, attn_scratch_bytes(l, 1));
    float            q[KV_DIM_MAX] = { 0 };
    int32_t          pos = SLOT;
    attn_args        a = { .q = q,
                           .out = out,
                           .n_rows = 1,
                           .n_head = 1,
                           .layout = l,
                           .pages = &page,
                           .kv_len = SLOT + 1,
                           .pos = &pos,
                           .window = 1,
                           .causal = true,
                           .scale = 1.0f };
    assert_non_null(scratch);
    k->attn.rows(&a, 0, 1, 0, 1, scratch);
    free(scratch);
}

/* The row of V and its scales, side by side. */
static size_t v_row(const head *h, uint8_t *out) {
    const kv_layout    *l = &h->layout;
    const kv_type_info *t = kv_type_get((int)l->v_type);
    const size_t   bytes = (size_t)(l->v_dim * t->value_bits / 8), scales = t->scaled ? 2 * (size_t)kv_v_groups(l) : 0;
    const uint8_t *v = h->page + l->k_bytes;
    memcpy(out, v + SLOT * bytes, bytes);
    memcpy(out + bytes, v + TOKENS * bytes + SLOT * scales, scales);
    return bytes + scales;
}

/* K holds the same scales as V. Its numbers are what check_attn reads independently. */
static void check_k_scales(const head *h, const uint8_t *row, size_t n) {
    const kv_layout    *l = &h->layout;
    const kv_type_info *t = kv_type_get((int)l->k_type);
    const size_t        values = (size_t)(l->k_dim * t->value_bits / 8), groups = (n - values) / 2;
    for (size_t g = 0; g < groups; g++) {
        assert_memory_equal(h->page + values * TOKENS + (g * TOKENS + SLOT) * 2, row + values + 2 * g, 2);
    }
}

static void test_reference(void **state) {
    kernels k;
    char    name[16], kind[16], line[2048], hex[2048];
    int     n = 0;
    (void)state;
    kernels_init(&k, cpu_detect());
    FILE *f = fopen(HEARTH_SOURCE_DIR "/tests/golden/kv_pages.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        int      dim;
        unsigned seed;
        assert_int_equal(sscanf(line, "%15s %d %15s %u %2047s", name, &dim, kind, &seed, hex), 5);
        float   x[KV_DIM_MAX];
        uint8_t row[KV_DIM_MAX * 2];
        head    h;
        int     t = 0;
        while (t < N_TYPES && strcmp(types[t].name, name) != 0) t++;
        assert_true(t < N_TYPES);
        vector_make(kind, dim, seed, x);
        head_store(&k, &h, types[t].type, dim, x);
        const size_t bytes = v_row(&h, row);
        assert_int_equal(strlen(hex), 2 * bytes);
        for (size_t i = 0; i < bytes; i++) {
            unsigned want;
            assert_int_equal(sscanf(hex + 2 * i, "%2x", &want), 1);
            if (row[i] != want)
                fail_msg("%s %d %s %u: byte %zu is %02x, not %02x", name, dim, kind, seed, i, row[i], want);
        }
        check_k_scales(&h, row, bytes);
        free(h.page);
        n++;
    }
    fclose(f);
    assert_int_equal(n, N_TYPES * 5 * 3);
}

static double lost(const float *x, const float *y, int dim, double *norms) {
    double e = 0, s = 0, t = 0;
    for (int i = 0; i < dim; i++) {
        e += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        s += (double)x[i] * (double)x[i];
        t += (double)y[i] * (double)y[i];
    }
    *norms = fabs(sqrt(t / s) - 1.0);
    return e / s;
}

/* Mean and worst part of the square that is lost, of normal and heavy-tailed vectors and of those with two outliers. */
static void test_errors(void **state) {
    static const double mean[N_TYPES] = { 5e-5, 2.2e-3, 8.5e-3, 0.010, 0.036, 0.122, 1e-3 };
    static const double most[N_TYPES] = { 2e-4, 0.012, 0.04, 0.04, 0.09, 0.22, 3e-3 };
    static const char  *kinds[] = { "normal", "heavy", "outlier" };
    enum { N = 600 };
    kernels k;
    (void)state;
    kernels_init(&k, cpu_detect());
    for (int t = 0; t < N_TYPES; t++) {
        double sum = 0;
        for (unsigned i = 0; i < N; i++) {
            float  x[128], y[128];
            double norms;
            head   h;
            vector_make(kinds[i % (types[t].type == KV_FP8 ? 2 : 3)], 128, i + 7, x); /* fp8 clips outliers */
            head_store(&k, &h, types[t].type, 128, x);
            head_read(&k, &h, y);
            const double e = lost(x, y, 128, &norms);
            sum += e;
            if (!(e <= most[t])) fail_msg("%s: vector %u loses %g of its square", types[t].name, i, e);
            if (kv_type_get((int)types[t].type)->coded && !(norms <= 5e-4))
                fail_msg("%s: norm off by %g", types[t].name, norms);
            free(h.page);
        }
        if (!(sum / N <= mean[t])) fail_msg("%s: %g of the square lost on average", types[t].name, sum / N);
    }
}

/* Zeros stay zeros; what is not finite neither spreads nor stays; a spike in rotated space keeps its direction. */
static void test_extremes(void **state) {
    kernels k;
    (void)state;
    kernels_init(&k, cpu_detect());
    for (int t = 0; t < N_TYPES; t++) {
        float x[128] = { 0 }, y[128];
        head  h;
        head_store(&k, &h, types[t].type, 128, x);
        head_read(&k, &h, y);
        for (int i = 0; i < 128; i++) assert_true(y[i] == 0.0f);
        free(h.page);

        vector_make("normal", 128, 3, x);
        x[5] = NAN;
        head_store(&k, &h, types[t].type, 128, x);
        head_read(&k, &h, y);
        for (int i = 0; i < 128; i++) assert_true(isfinite(y[i]) && (types[t].type == KV_FP8 || fabsf(y[i]) < 8));
        if (types[t].type == KV_FP8) assert_true(y[5] == 448.0f);
        free(h.page);

        x[5] = INFINITY, x[6] = -INFINITY;
        head_store(&k, &h, types[t].type, 128, x);
        head_read(&k, &h, y);
        for (int i = 0; i < 128; i++) assert_true(isfinite(y[i]));
        assert_true(y[5] > 400.0f && y[6] < -400.0f);
        free(h.page);

        for (int i = 0; i < 128; i++)
            x[i] = kv_signs[i / 32] >> (i % 32) & 1 ? -1.0f : 1.0f; /* a row of H: one spike */
        head_store(&k, &h, types[t].type, 128, x);
        head_read(&k, &h, y);
        double dot = 0, norm = 0;
        for (int i = 0; i < 128; i++) dot += (double)x[i] * (double)y[i], norm += (double)y[i] * (double)y[i];
        assert_true(dot / sqrt(norm * 128) >= (types[t].type == KV_TQ2 ? 0.25 : types[t].type == KV_TQ3 ? 0.6 : 0.85));
        free(h.page);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
