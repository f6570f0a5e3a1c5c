/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/matmul_halves.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Few rows: the ring, then all inputs of the rows. */
static int64_t few_bytes(const tensor_mat *w, int64_t n_rows) {
    int64_t row = halves_few_row(min64(n_rows, HALVES_FEW));
    return HALVES_RING * 2 * HALVES_TILE + halves_blocks(w->cols) * HALVES_X * 16 * row;
}

/* Many: weights of a stretch, activations of a stretch, sums. */
static int64_t many_bytes(const tensor_mat *w, int64_t n_rows) {
    int64_t blocks = halves_blocks(min64(w->cols, HALVES_STRETCH)), panels = min64(matmul_panels(w), HALVES_PANELS);
    int64_t tiles = (min64(n_rows, HALVES_ROWS) + HALVES_AT_ONCE - 1) / HALVES_AT_ONCE * 2;
    int64_t sums = w->cols > HALVES_STRETCH ? tiles * (panels + 1) : 4;
    if (n_rows <= HALVES_FEW) return 0;
    return (panels * blocks * halves_pieces((int)w->type) + 2 * blocks * HALVES_X + sums) * HALVES_TILE;
}

size_t matmul_halves_scratch_bytes(const tensor_mat *w, int64_t n_rows) {
    int64_t few = few_bytes(w, n_rows), many = many_bytes(w, n_rows);
    return KERNELS_X86 && halves_pieces((int)w->type) ? (size_t)(few > many ? few : many) : 0;
}
