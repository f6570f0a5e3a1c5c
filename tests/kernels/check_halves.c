/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products by tiles: bit for bit what cpu/matmul_halves.h says, written down once more in plain C; with values of every
 * size, denormal ones, numbers that are not finite, and rows and inputs that do not fill a tile.
 */
#include "kernels/check.h"
#include "kernels/kernels.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t bits_of(float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}

static float float_of(uint32_t u) {
    float v;
    memcpy(&v, &u, 4);
    return v;
}

/* Takes the upper 8 bits of a value's mantissa out of it. */
static float take_piece(float *v) {
    float piece = float_of((bits_of(*v) + 0x8000) & 0xffff0000u);
    *v -= piece;
    return piece;
}

static float flush(float v) { return fabsf(v) < FLT_MIN ? copysignf(0, v) : v; }

/* One block of pieces, added to acc. */
static float add_dot(float acc, const float *w, const float *x, bool f16) {
    float sum[2] = { 0, 0 };
    for (int i = 0; i < 16; i++) {
        for (int half = 0; half < 2; half++) {
            int k = f16 ? i + 16 * half : 2 * i + half;
            sum[half] = flush(fmaf(flush(w[k]), flush(x[k]), sum[half]));
        }
    }
    return flush(acc + flush(sum[0] + sum[1]));
}

static float twin(const float *w, const float *x, int64_t cols, bool f16) {
    float acc = 0;
    for (int64_t k = 0; k < cols; k += 32) {
        float wp[2][32] = { { 0 } }, xp[3][32] = { { 0 } };
        for (int i = 0; i < 32 && k + i < cols; i++) {
            float wv = w[k + i], xv = x[k + i];
            wp[0][i] = f16 ? take_piece(&wv) : wv;
            wp[1][i] = wv;
            xp[0][i] = take_piece(&xv);
            xp[1][i] = take_piece(&xv);
            xp[2][i] = xv;
        }
        if (f16) acc = add_dot(acc, wp[1], xp[1], f16);
        acc = add_dot(acc, wp[0], xp[1], f16);
        acc = add_dot(acc, wp[0], xp[2], f16);
        acc = add_dot(acc, wp[0], xp[0], f16);
        if (f16) acc = add_dot(acc, wp[1], xp[0], f16);
    }
    return acc;
}

typedef struct problem {
    int64_t rows, cols, n;
    bool    f16;
    int     low, high; /* powers of two of the activations */
    bool    broken;    /* some activations are Inf or NaN */
} problem;

static void fill(check *c, const problem *p, uint16_t *w, float *values, float *x) {
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        uint16_t h;
        do {
            h = (uint16_t)check_u64(c);
            values[i] = p->f16 ? tensor_f16_to_f32(h) : tensor_bf16_to_f32(h);
        } while (!(fabsf(values[i]) < 1e5f));
        w[i] = h;
    }
    for (int64_t i = 0; i < p->n * p->cols; i++) x[i] = check_normal(c) * ldexpf(1, check_int(c, p->low, p->high));
    for (int64_t r = 0; r < p->n && p->broken; r += 3)
        x[r * p->cols + check_int(c, 0, (int)p->cols - 1)] = r % 2 ? INFINITY : r % 4 ? NAN : -FLT_MAX;
}

static void check_problem(check *c, const kernels *k, const problem *p) {
    size_t    n_w = (size_t)(p->rows * p->cols);
    uint16_t *w = malloc(n_w * sizeof *w);
    float    *values = malloc(n_w * sizeof *values), *x = malloc((size_t)(p->n * p->cols) * sizeof *x);
    float    *out = malloc((size_t)(p->n * p->rows) * sizeof *out);
    fill(c, p, w, values, x);
    tensor_mat  m = { .type = p->f16 ? TENSOR_F16 : TENSOR_BF16,
                      .rows = p->rows,
                      .cols = p->cols,
                      .row_bytes = (size_t)p->cols * 2,
                      .data = (const uint8_t *)w };
    matmul_args a = { .w = &m,
                      .x = x,
                      .x_stride = (size_t)p->cols * sizeof *x,
                      .n_rows = p->n,
                      .out = out,
                      .out_stride = (size_t)p->rows,
                      .tiles = true };
    void       *scratch = aligned_alloc(64, (matmul_scratch_bytes(&m, p->n) + 63) / 64 * 64);
    k->matmul.run(&a, 0, matmul_panels(&m), scratch);
    for (int64_t r = 0; r < p->n; r++) {
        for (int64_t j = 0; j < p->rows; j++) {
            float want = twin(values + j * p->cols, x + r * p->cols, p->cols, p->f16), got = out[r * p->rows + j];
            CHECK(c, isnan(want) ? isnan(got) : bits_of(want) == bits_of(got),
                  "%s %lldx%lld, row %lld of %lld, weight row %lld: %a instead of %a", p->f16 ? "F16" : "BF16",
                  (long long)p->rows, (long long)p->cols, (long long)r, (long long)p->n, (long long)j, (double)got,
                  (double)want);
        }
    }
    free(scratch);
    free(out);
    free(x);
    free(values);
    free(w);
}

int main(int argc, char **argv) {
    static const int64_t counts[] = { 1, 2, 5, 16, 17, 33, 70 };
    check                c;
    kernels              k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    if (!(c.cpu & CPU_AMX_BF16)) {
        printf("skipped: this CPU has no tiles, or they were not asked for\n");
        c.skipped = true;
        return check_end(&c);
    }
    kernels_init(&k, c.cpu);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i += c.quick ? 2 : 1) {
        for (int kind = 0; kind < 8; kind++) {
            problem p = { .rows = check_int(&c, 1, 70),
                          .cols = kind < 2 && !c.quick ? 1100 : check_int(&c, 1, 200),
                          .n = counts[i],
                          .f16 = kind % 2 == 0,
                          .low = kind >= 4 ? -126 : -12,
                          .high = kind >= 4 ? -100 : 12,
                          .broken = kind >= 6 };
            check_problem(&c, &k, &p);
        }
    }
    return check_end(&c);
}
