/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Up to 16 activation rows times F16 or BF16 weights: 16 weight rows are the left tile, as they lie in the file. This is
 * bound by memory: the weights of a panel are 16 stretches of it, read side by side and fetched ahead.
 *
 * F16 weights pass through a ring: while the processor multiplies a block, blocks behind it are split.
 */
#include "kernels/cpu/avx512/halves_amx.h"

enum { AHEAD = 1728, LAG = 2 };

typedef struct few {
    const matmul_args *a;
    size_t             stride; /* of weight rows */
    int                row;    /* bytes of a row of an x tile */
    uint8_t           *ring, *x;
} few;

/* Four rows of 16 pairs as 16 rows of four pairs, `row` bytes apart. */
INLINE void store_fours(uint8_t *out, size_t row, const __m512i v[4]) {
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    __m512i q[4] = { _mm512_unpacklo_epi64(a, c), _mm512_unpackhi_epi64(a, c), _mm512_unpacklo_epi64(b, d),
                     _mm512_unpackhi_epi64(b, d) };
    UNROLL for (size_t j = 0; j < 4; j++) {
        _mm_storeu_si128((void *)(out + j * row), _mm512_extracti32x4_epi32(q[j], 0));
        _mm_storeu_si128((void *)(out + (4 + j) * row), _mm512_extracti32x4_epi32(q[j], 1));
        _mm_storeu_si128((void *)(out + (8 + j) * row), _mm512_extracti32x4_epi32(q[j], 2));
        _mm_storeu_si128((void *)(out + (12 + j) * row), _mm512_extracti32x4_epi32(q[j], 3));
    }
}

/* Rows t .. t + 3, or as many as there are; the others are zero. */
INLINE void pack_fours(const few *f, int64_t t, bool f16) {
    const int64_t cols = f->a->w->cols;
    uint8_t      *out = f->x + 4 * t;
    for (int64_t k = 0; k < cols; k += HALVES_BLOCK, out += HALVES_X * 16 * f->row) {
        __m512i piece[4][HALVES_X] = { { _mm512_setzero_si512() } };
        for (int64_t i = 0; i < 4; i++) {
            if (t + i < f->a->n_rows)
                split_x((const float *)matmul_row_in(f->a, t + i) + k, cols - k, piece[i], f16);
            else
                piece[i][0] = piece[i][1] = piece[i][2] = _mm512_setzero_si512();
        }
        for (int p = 0; p < HALVES_X; p++) {
            const __m512i v[4] = { piece[0][p], piece[1][p], piece[2][p], piece[3][p] };
            store_fours(out + p * 16 * f->row, (size_t)f->row, v);
        }
    }
}

/* Tiles [block][piece] of 16 rows. */
INLINE void pack_x(const few *f, bool f16) {
    const int64_t cols = f->a->w->cols;
    if (f->a->n_rows == 1) {
        const float *x = matmul_row_in(f->a, 0);
        for (int64_t k = 0, b = 0; k < cols; k += HALVES_BLOCK, b++) {
            __m512i piece[HALVES_X];
            split_x(x + k, cols - k, piece, f16);
            for (int p = 0; p < HALVES_X; p++) _mm512_storeu_si512(f->x + (b * HALVES_X + p) * 64, piece[p]);
        }
        return;
    }
    for (int64_t t = 0; t < f->a->n_rows; t += 4) pack_fours(f, t, f16);
}

/* Rows behind the last are the last again. */
INLINE void split_block(const few *f, const uint8_t *w, int64_t n, int64_t left, bool whole, uint8_t *out, bool f16) {
    UNROLL for (int64_t r = 0; r < MATMUL_PANEL; r++) {
        __m512i piece[2];
        split_w(w + (size_t)(whole || r < n ? r : n - 1) * f->stride, left, whole, piece, f16);
        _mm512_store_si512(out + r * 64, piece[0]);
        if (f16) _mm512_store_si512(out + HALVES_TILE + r * 64, piece[1]);
    }
}

INLINE void fetch_ahead(const few *f, const uint8_t *w, int64_t at) {
    const uint8_t *ahead = w + at + AHEAD;
    if ((size_t)at + AHEAD >= f->stride) ahead += (MATMUL_PANEL - 1) * f->stride; /* of the next panel */
    UNROLL for (size_t r = 0; r < MATMUL_PANEL; r++) _mm_prefetch((const char *)ahead + r * f->stride, _MM_HINT_T0);
}

/* Tile 0 += a block; its weights begin at w, `stride` bytes from row to row. */
INLINE void multiply(const few *f, const uint8_t *w, size_t stride, int64_t block, bool f16) {
    const uint8_t *x = f->x + block * HALVES_X * 16 * f->row;
    TILES_SEE_MEMORY();
    _tile_loadd(1, w, stride);
    _tile_loadd(3, x, f->row);
    _tile_loadd(4, x + 16 * f->row, f->row);
    _tile_loadd(5, x + 32 * f->row, f->row);
    if (f16) _tile_loadd(2, w + HALVES_TILE, stride);
    if (f16) _tile_dpbf16ps(0, 2, 4);
    _tile_dpbf16ps(0, 1, 4);
    _tile_dpbf16ps(0, 1, 5);
    _tile_dpbf16ps(0, 1, 3);
    if (f16) _tile_dpbf16ps(0, 2, 3);
}

INLINE void panel_f16(const few *f, const uint8_t *w, int64_t n) {
    const int64_t cols = f->a->w->cols, blocks = halves_blocks(cols);
    for (int64_t b = 0; b < blocks + LAG; b++) {
        uint8_t *to = f->ring + b % HALVES_RING * 2 * HALVES_TILE,
                *from = f->ring + (b - LAG) % HALVES_RING * 2 * HALVES_TILE;
        int64_t left = cols - b * HALVES_BLOCK;
        if (left > 0) fetch_ahead(f, w, b * 64);
        if (n == MATMUL_PANEL && left >= HALVES_BLOCK)
            split_block(f, w + b * 64, n, left, true, to, true);
        else if (left > 0)
            split_block(f, w + b * 64, n, left, false, to, true);
        if (b >= LAG) multiply(f, from, 64, b - LAG, true);
    }
}

INLINE void panel_bf16(const few *f, const uint8_t *w, int64_t n) {
    const int64_t cols = f->a->w->cols;
    for (int64_t b = 0; b < halves_blocks(cols); b++) {
        int64_t left = cols - b * HALVES_BLOCK;
        fetch_ahead(f, w, b * 64);
        if (n == MATMUL_PANEL && left >= HALVES_BLOCK) {
            multiply(f, w + b * 64, f->stride, b, false);
        } else {
            split_block(f, w + b * 64, n, left, false, f->ring, false);
            multiply(f, f->ring, 64, b, false);
        }
    }
}

/* Sums, 0; weights, 1 and 2; activations, 3 to 5. */
static void configure(int row) {
    tile_config c = { .palette = 1 };
    for (int i = 0; i < 6; i++) {
        c.row_bytes[i] = (uint16_t)(i == 1 || i == 2 ? 64 : row);
        c.rows[i] = 16;
    }
    _tile_loadconfig(&c);
}

INLINE void run(const few *f, const matmul_src *s, int64_t p0, int64_t p1, bool f16) {
    _Alignas(64) float sums[16 * 16], out[MATMUL_PANEL];
    const int64_t      rows = f->a->w->rows;
    pack_x(f, f16);
    configure(f->row);
    for (int64_t p = p0; p < p1; p++) {
        int64_t        row0 = p * MATMUL_PANEL, n = rows - row0 < MATMUL_PANEL ? rows - row0 : MATMUL_PANEL;
        const uint8_t *w = s->data + (size_t)row0 * f->stride;
        _tile_zero(0);
        if (f16)
            panel_f16(f, w, n);
        else
            panel_bf16(f, w, n);
        _tile_stored(0, sums, 64);
        for (int64_t t = 0; t < f->a->n_rows; t++) {
            for (int r = 0; r < MATMUL_PANEL; r++) out[r] = sums[r * 16 + t];
            matmul_finish(f->a, t, row0, n, out);
        }
    }
    _tile_release();
}

void matmul_few_amx(const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1, void *scratch) {
    few f = { .a = a, .stride = a->w->row_bytes, .row = halves_few_row(a->n_rows), .ring = scratch };
    f.x = f.ring + HALVES_RING * 2 * HALVES_TILE;
    if (a->w->type == TENSOR_F16)
        run(&f, s, p0, p1, true);
    else
        run(&f, s, p0, p1, false);
}
