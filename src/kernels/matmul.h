/* SPDX-License-Identifier: Apache-2.0 */
/*
 * out = x * W^T for 1..N activation rows over a weight matrix in file layout.
 *
 * Two inputs exist, chosen by the weight type alone (matmul_input): int8 blocks (kernels/act.h) for types whose values
 * are small integers times a scale, f32 rows for F32, F16, BF16, FP8, NF4 and mxfp8.
 *
 * Work is cut into panels of 16 weight rows. The caller gives each thread a range of panels; ranges, threads and row
 * counts never change a bit of the result: for one output value the operations are
 *
 *     int8:  for each scale group of 16 or 32 inputs, in the order of K:
 *                i   = exact integer sum of (u - zero) * q      u: the unsigned stored value
 *                acc = fma((float)i, w_scale * d, acc)
 *                acc = fma(w_min, ds, acc)                      types with a minimum only
 *     f32:   in each lane l of the set's registers: for k = l, l + lanes, ...: acc[l] = fma(w[k], x[k], acc[l])
 *            acc = the sum of acc[l], halves added to halves until one is left
 *     out = acc, then + bias, then + old out, each only if asked for
 *
 * both in the matrix-vector and in the matrix-matrix kernels; the scalar set rounds each product before it adds it. The
 * scale is the f32 product of the block's scale factors. BF16 dot instructions of registers (vdpbf16ps) are not used:
 * they would round the activations to 8 bits of mantissa, and two of them for the activations' upper and lower halves
 * take as long as one f32 fma.
 *
 * Tiles (AMX) multiply BF16 sixteen times as fast as registers multiply f32. Where the CPU has them and the caller asks
 * for it, F16 and BF16 weights take the order of cpu/matmul_halves.h, which is as exact as the one above: two to three
 * times as fast with many rows, but slower with one (F16 half as fast: splitting the weights takes longer than reading
 * them).
 *
 * Nothing here allocates, locks or remembers: each thread brings scratch of matmul_scratch_bytes, aligned to 64.
 */
#ifndef KERNELS_MATMUL_H
#define KERNELS_MATMUL_H

#include "base/err.h"
#include "kernels/act.h"
#include "kernels/slot.h"
#include "tensor/mat.h"

#include <stdbool.h>

#define MATMUL_PANEL 16 /* weight rows per unit of work */

typedef enum matmul_kind {
    MATMUL_NONE, /* no matrix type */
    MATMUL_ACT8, /* x holds act8 rows */
    MATMUL_F32,  /* x holds f32 rows */
} matmul_kind;

typedef struct matmul_args {
    const tensor_mat *w;
    int64_t           expert; /* 0 for a plain matrix */

    const void    *x;        /* act8 or f32 rows */
    size_t         x_stride; /* bytes from row to row */
    const int32_t *x_rows;   /* NULL: rows 0..n_rows-1; else the number of each row (gather) */
    int64_t        n_rows;

    float         *out;
    size_t         out_stride; /* floats from row to row */
    const int32_t *out_rows;   /* NULL: rows 0..n_rows-1; else the number of each row (scatter), all different */
    const float   *bias;       /* NULL, or one value per weight row */
    bool           accumulate; /* out += instead of out = */
    bool           tiles;      /* F16 and BF16 by tiles, for all products of a matrix or for none: other bits */
} matmul_args;

/* Computes the outputs of weight rows [16 * p0, min(16 * p1, rows)) for all n_rows. The matrix has passed matmul_check.
 */
typedef void matmul_fn(const matmul_args *a, int64_t p0, int64_t p1, void *scratch);

#define KERNELS_MATMUL_SLOTS(X) X(act_quantize_fn, act_quantize) X(matmul_fn, run)

typedef struct kernels_matmul {
    KERNELS_MATMUL_SLOTS(KERNEL_SLOT)
} kernels_matmul;

matmul_kind matmul_input(int type);

/* Refuses by name what the kernels cannot multiply: a type, a row length, a group size, a missing scale array. */
int matmul_check(const tensor_mat *w, err *e);

static inline int64_t matmul_panels(const tensor_mat *w) { return (w->rows + MATMUL_PANEL - 1) / MATMUL_PANEL; }

/* Bytes of scratch per thread for up to n_rows activation rows of this matrix. */
size_t matmul_scratch_bytes(const tensor_mat *w, int64_t n_rows);

void kernels_matmul_init_scalar(kernels_matmul *t);
void kernels_matmul_init_avx2(kernels_matmul *t, unsigned cpu);
void kernels_matmul_init_avx512(kernels_matmul *t, unsigned cpu);
void kernels_matmul_init_neon(kernels_matmul *t, unsigned cpu);
void kernels_matmul_list(const kernels_matmul *t, kernels_visit *visit, void *ctx);

#endif
