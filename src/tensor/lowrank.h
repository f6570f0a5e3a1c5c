/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two factors of a low-rank matrix B A, in the order in which products read them:
 *
 *   A  in panels of 16 ranks; in a panel the ranks of a column lie side by side. Ranks behind the last are zero.
 *   B  in tiles of 32 outputs; in a tile the outputs of a rank lie side by side. Outputs behind the last are zero.
 *
 *   F16, F32   panel [cols][16], tile [rank][32]
 *   Q8         bytes with a scale (f16) for 32 of them that lie in one rank:
 *              panel  per 32 columns: scales [16], bytes [32][16]; columns behind the last are zero
 *              tile   per 16 ranks:   scales [16], bytes [ranks][32]
 *
 * A byte times its scale is exact in a float, so that each type stands for one float per value, whoever reads it.
 */
#ifndef TENSOR_LOWRANK_H
#define TENSOR_LOWRANK_H

#include "tensor/half.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum lowrank_type { LOWRANK_AUTO, LOWRANK_F16, LOWRANK_F32, LOWRANK_Q8 } lowrank_type;

enum {
    LOWRANK_PANEL = 16,
    LOWRANK_TILE = 32,
    LOWRANK_COLS = 32,                                 /* of a panel that share scales */
    LOWRANK_SCALES = LOWRANK_PANEL * sizeof(uint16_t), /* bytes of 16 scales */
};

bool lowrank_type_parse(const char *name, lowrank_type *out); /* "auto", "f16", "f32", "q8" */

/* Bytes of a value beside its scale. */
static inline size_t lowrank_value_bytes(lowrank_type t) { return t == LOWRANK_Q8 ? 1 : t == LOWRANK_F32 ? 4 : 2; }

/* Where the columns from `col` on lie in a panel, a multiple of 32; of all of them: the bytes of the panel. */
static inline size_t lowrank_panel_at(lowrank_type t, int64_t col) {
    size_t n = (size_t)col * LOWRANK_PANEL * lowrank_value_bytes(t);
    return t == LOWRANK_Q8 ? n + (size_t)col / LOWRANK_COLS * LOWRANK_SCALES : n;
}
static inline size_t lowrank_panel_bytes(lowrank_type t, int64_t cols) {
    return lowrank_panel_at(t, t == LOWRANK_Q8 ? (cols + LOWRANK_COLS - 1) / LOWRANK_COLS * LOWRANK_COLS : cols);
}

/* Where the ranks from `rank` on lie in a tile, a multiple of 16, and the bytes of a tile. */
static inline size_t lowrank_tile_at(lowrank_type t, int rank) {
    size_t n = (size_t)rank * LOWRANK_TILE * lowrank_value_bytes(t);
    return t == LOWRANK_Q8 ? n + (size_t)rank / LOWRANK_PANEL * LOWRANK_SCALES : n;
}
static inline size_t lowrank_tile_bytes(lowrank_type t, int ranks) {
    size_t n = (size_t)ranks * LOWRANK_TILE * lowrank_value_bytes(t);
    return t == LOWRANK_Q8 ? n + (size_t)(ranks + LOWRANK_PANEL - 1) / LOWRANK_PANEL * LOWRANK_SCALES : n;
}

/* Value `at` of a group, whose scale is the n-th. */
static inline float lowrank_value(lowrank_type t, const uint8_t *group, int64_t at, int64_t n) {
    uint16_t half;
    float    v;
    if (t == LOWRANK_F32) {
        memcpy(&v, group + at * 4, sizeof v);
        return v;
    }
    memcpy(&half, group + (t == LOWRANK_Q8 ? n : at) * 2, sizeof half);
    v = tensor_f16_to_f32(half);
    return t == LOWRANK_Q8 ? v * (float)(int8_t)group[LOWRANK_SCALES + at] : v;
}

/* A of all panels, which have `cols` columns each; B of all tiles, which have `ranks` ranks each. */
static inline float lowrank_a(lowrank_type t, const void *a, int64_t cols, int64_t rank, int64_t col) {
    const uint8_t *p = (const uint8_t *)a + (size_t)(rank / LOWRANK_PANEL) * lowrank_panel_bytes(t, cols);
    int64_t        j = rank % LOWRANK_PANEL, first = col / LOWRANK_COLS * LOWRANK_COLS;
    return lowrank_value(t, p + lowrank_panel_at(t, first), (col - first) * LOWRANK_PANEL + j, j);
}
static inline float lowrank_b(lowrank_type t, const void *b, int ranks, int64_t out, int64_t rank) {
    const uint8_t *p = (const uint8_t *)b + (size_t)(out / LOWRANK_TILE) * lowrank_tile_bytes(t, ranks);
    int64_t        j = rank % LOWRANK_PANEL;
    return lowrank_value(t, p + lowrank_tile_at(t, (int)(rank - j)), j * LOWRANK_TILE + out % LOWRANK_TILE, j);
}

/* Values of one group on their way: of 16 ranks, 32 columns of A or 32 outputs of B. */
typedef float lowrank_block[LOWRANK_PANEL][LOWRANK_TILE];

/* The power of two that A or B is to be multiplied by before, so that its largest value (0.5 .. 1 by `by`) is in the
 * middle of what the type can say. */
float lowrank_lift(lowrank_type t, float by);
/* Columns col .. col + n of a panel (n 32, or less for the last ones), and ranks rank .. rank + n of a tile. */
void lowrank_put_a(lowrank_type t, void *panel, int64_t col, int n, const lowrank_block *v);
void lowrank_put_b(lowrank_type t, void *tile, int rank, int n, const lowrank_block *v);

#endif
