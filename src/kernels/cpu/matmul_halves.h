/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul of F16 and BF16 weights by tiles of BF16 products (AMX), as exact as f32 arithmetic.
 *
 * A weight is the sum of pieces that BF16 holds exactly, an activation likewise; a piece is what remains, rounded to 8
 * bits of mantissa (halves away from zero), so the pieces of a value add up to it without an error:
 *
 *     BF16: w = w0          F16: w = w0 + w1, |w1| <= |w| / 256          x = x0 + x1 + x2, |x2| <= |x| / 65536
 *
 * The one product that is left out, w1 * x2, is below 2^-24 of w * x. For one output value the operations are, for each
 * block of 32 inputs in the order of K (behind the last input both are zero):
 *
 *     acc = acc + dot(w1, x1), F16 only;  acc = acc + dot(w0, x1);  acc = acc + dot(w0, x2);
 *     acc = acc + dot(w0, x0);  acc = acc + dot(w1, x0), F16 only
 *
 *     dot:  a = fma(w[k], x[k], a) over the first inputs of the pairs in their order, from zero, b likewise over the
 *           second ones; a + b.   Pairs of BF16 are inputs 2i and 2i + 1 of the block, pairs of F16 i and i + 16.
 *
 * with round-to-nearest and with denormal numbers taken and given as zero, as tdpbf16ps does it: what is below 2^-126
 * vanishes. Activations beyond 3.389e38 count as Inf, and Inf makes NaN of its row, as everywhere.
 *
 * Factors may change places, so weights are the left factor where rows of activations are few (they need no transposing
 * then, BF16 not even a copy) and the right one where they are many, with the same bits.
 */
#ifndef KERNELS_CPU_MATMUL_HALVES_H
#define KERNELS_CPU_MATMUL_HALVES_H

#include "kernels/cpu/matmul_panel.h"

enum {
    HALVES_TILE = 1024,   /* bytes of a tile: 16 rows of 16 pairs, or of 16 sums */
    HALVES_BLOCK = 32,    /* inputs of a tile */
    HALVES_X = 3,         /* pieces of an activation */
    HALVES_FEW = 16,      /* activation rows that are few: one tile */
    HALVES_AT_ONCE = 32,  /* of many: two tiles */
    HALVES_ROWS = 512,    /* of many: whose sums wait in memory between stretches of K */
    HALVES_PANELS = 24,   /* that are packed together: their pieces stay in L2 */
    HALVES_STRETCH = 512, /* inputs that are packed together */
    HALVES_RING = 4,      /* blocks of 16 weight rows on their way into tiles */
};

/* Pieces of a weight of this type; 0: not a type of these kernels. */
static inline int halves_pieces(int type) { return type == TENSOR_F16 ? 2 : type == TENSOR_BF16 ? 1 : 0; }

static inline int64_t halves_blocks(int64_t cols) { return (cols + HALVES_BLOCK - 1) / HALVES_BLOCK; }

/* Bytes of a row of an x tile for a few activation rows: pairs of one, or of whole fours. */
static inline int halves_few_row(int64_t n) { return n == 1 ? 4 : (int)(n + 3) / 4 * 16; }

size_t matmul_halves_scratch_bytes(const tensor_mat *w, int64_t n_rows);

void matmul_few_amx(const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1, void *scratch);
void matmul_many_amx(const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1, void *scratch);

#endif
