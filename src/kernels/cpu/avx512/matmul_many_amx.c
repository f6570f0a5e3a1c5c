/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many activation rows times F16 or BF16 weights: a tile of 16 activation rows is the left factor, a panel of 16 weight
 * rows, transposed, the right one; two by two of them at a time, so that a tile is loaded for two products.
 *
 * A stretch of K of some panels is split and transposed once, in L2; then the activations pass over it, 32 rows at a
 * time, which are split for all of the panels. Between stretches the sums wait in memory.
 */
#include "kernels/cpu/avx512/halves_amx.h"

typedef struct many {
    const matmul_args *a;
    const matmul_src  *s;
    uint8_t           *w, *x; /* tiles [panel][block][piece] and [16 rows][block][piece] */
    uint8_t           *sums;  /* tiles [16 rows][panel], of one stretch only: four of them */
    int64_t            sums_wide;
    int64_t            k0, blocks; /* the stretch */
    bool               first, last;
} many;

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* 16 rows of 16 pairs become 16 columns. */
INLINE void transpose(const __m512i r[16], uint8_t *out) {
    __m512i t[16], u[16]; /* u[4 * i + j]: in its quarter q, column 4 * q + j of rows 4i .. 4i + 3 */
    UNROLL for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL for (int i = 0; i < 16; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL for (int j = 0; j < 4; j++) {
        __m512i a = _mm512_shuffle_i32x4(u[j], u[4 + j], 0x88), b = _mm512_shuffle_i32x4(u[j], u[4 + j], 0xdd);
        __m512i c = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0x88),
                d = _mm512_shuffle_i32x4(u[8 + j], u[12 + j], 0xdd);
        _mm512_store_si512(out + j * 64, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_store_si512(out + (4 + j) * 64, _mm512_shuffle_i32x4(b, d, 0x88));
        _mm512_store_si512(out + (8 + j) * 64, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_store_si512(out + (12 + j) * 64, _mm512_shuffle_i32x4(b, d, 0xdd));
    }
}

/* A block of 16 rows, of which n exist: those behind the last are the last again. */
INLINE void pack_block(const uint8_t *w, size_t stride, int64_t n, int64_t left, bool whole, uint8_t *out, bool f16) {
    __m512i hi[16], lo[16];
    UNROLL for (int64_t r = 0; r < MATMUL_PANEL; r++) {
        __m512i piece[2];
        split_w(w + (size_t)(whole || r < n ? r : n - 1) * stride, left, whole, piece, f16);
        hi[r] = piece[0];
        if (f16) lo[r] = piece[1];
    }
    transpose(hi, out);
    if (f16) transpose(lo, out + HALVES_TILE);
}

INLINE void pack_panel(const many *m, int64_t panel, uint8_t *out, bool f16) {
    const tensor_mat *w = m->a->w;
    int64_t           row0 = panel * MATMUL_PANEL, n = min64(MATMUL_PANEL, w->rows - row0);
    const uint8_t    *at = m->s->data + (size_t)row0 * w->row_bytes + (size_t)m->k0 * 2;
    for (int64_t b = 0; b < m->blocks; b++, at += 64, out += (f16 ? 2 : 1) * HALVES_TILE) {
        int64_t left = w->cols - m->k0 - b * HALVES_BLOCK;
        if (n == MATMUL_PANEL && left >= HALVES_BLOCK)
            pack_block(at, w->row_bytes, n, left, true, out, f16);
        else
            pack_block(at, w->row_bytes, n, left, false, out, f16);
    }
}

/* Up to 16 activation rows; rows of the tiles behind them are zero. Those that are packed next time come into L2 meanwhile. */
INLINE void pack_rows(const many *m, int64_t row, int64_t n, uint8_t *out, bool f16) {
    for (int64_t r = 0; r < 16; r++) {
        const float *x = r < n ? (const float *)matmul_row_in(m->a, row + r) + m->k0 : NULL;
        if (row + r + HALVES_AT_ONCE < m->a->n_rows) {
            const float *next = (const float *)matmul_row_in(m->a, row + r + HALVES_AT_ONCE) + m->k0;
            int64_t      left = min64(m->blocks * HALVES_BLOCK, m->a->w->cols - m->k0);
            for (int64_t i = 0; i < left; i += 16) _mm_prefetch((const char *)(next + i), _MM_HINT_T1);
        }
        uint8_t *to = out + r * 64;
        for (int64_t b = 0; b < m->blocks; b++, to += HALVES_X * HALVES_TILE) {
            __m512i piece[HALVES_X] = { _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512() };
            if (x) split_x(x + b * HALVES_BLOCK, m->a->w->cols - m->k0 - b * HALVES_BLOCK, piece, f16);
            for (int p = 0; p < HALVES_X; p++) _mm512_store_si512(to + p * HALVES_TILE, piece[p]);
        }
    }
}

/* Tiles 0 to 3 are the sums of both row tiles times both panels; without the second of either, fewer. */
#define FOUR(op, rows, panels)                                                                                         \
    do {                                                                                                               \
        op(0, 0, 0);                                                                                                   \
        if (panels) op(1, 0, 1);                                                                                       \
        if (rows) op(2, 1, 0);                                                                                         \
        if (rows && panels) op(3, 1, 1);                                                                               \
    } while (0)
#define LOAD_X(piece)                                                                                                  \
    do {                                                                                                               \
        _tile_loadd(4, x + (piece)*HALVES_TILE, 64);                                                                   \
        if (rows) _tile_loadd(5, x + x_next + (piece)*HALVES_TILE, 64);                                                \
    } while (0)
#define LOAD_W(piece)                                                                                                  \
    do {                                                                                                               \
        _tile_loadd(6, w + (piece)*HALVES_TILE, 64);                                                                   \
        if (panels) _tile_loadd(7, w + w_next + (piece)*HALVES_TILE, 64);                                              \
    } while (0)
#define MULTIPLY(c, i, j) MULTIPLY_##i##j(c)
#define MULTIPLY_00(c) _tile_dpbf16ps(c, 4, 6)
#define MULTIPLY_01(c) _tile_dpbf16ps(c, 4, 7)
#define MULTIPLY_10(c) _tile_dpbf16ps(c, 5, 6)
#define MULTIPLY_11(c) _tile_dpbf16ps(c, 5, 7)
#define BEGIN(c, i, j) _tile_zero(c)
#define RESUME(c, i, j) _tile_loadd(c, sums + (i)*sums_next + (j)*HALVES_TILE, 64)
#define KEEP(c, i, j) _tile_stored(c, sums + (i)*sums_next + (j)*HALVES_TILE, 64)

/* rows, panels: there is a second one. */
INLINE void tiles(const many *m, const uint8_t *w, uint8_t *sums, bool rows, bool panels, bool f16) {
    const uint8_t *x = m->x;
    const int64_t  x_next = m->blocks * HALVES_X * HALVES_TILE, w_next = m->blocks * (f16 ? 2 : 1) * HALVES_TILE;
    const int64_t  sums_next = m->sums_wide * HALVES_TILE;
    TILES_SEE_MEMORY();
    if (m->first)
        FOUR(BEGIN, rows, panels);
    else
        FOUR(RESUME, rows, panels);
    for (int64_t b = 0; b < m->blocks; b++, x += HALVES_X * HALVES_TILE, w += (f16 ? 2 : 1) * HALVES_TILE) {
        LOAD_X(1);
        if (f16) {
            LOAD_W(1);
            FOUR(MULTIPLY, rows, panels);
        }
        LOAD_W(0);
        FOUR(MULTIPLY, rows, panels);
        LOAD_X(2);
        FOUR(MULTIPLY, rows, panels);
        LOAD_X(0);
        FOUR(MULTIPLY, rows, panels);
        if (f16) {
            LOAD_W(1);
            FOUR(MULTIPLY, rows, panels);
        }
    }
    FOUR(KEEP, rows, panels);
}

/* As matmul_finish, a whole panel at once. */
INLINE void finish(const many *m, int64_t row, int64_t n, int64_t panel, const uint8_t *sums) {
    const matmul_args *a = m->a;
    int64_t            row0 = panel * MATMUL_PANEL, left = a->w->rows - row0;
    const __mmask16    mask = mask16(left);
    const __m512       bias = a->bias ? _mm512_maskz_loadu_ps(mask, a->bias + row0) : _mm512_setzero_ps();
    for (int64_t r = 0; r < n; r++) {
        float *out = matmul_row_out(a, row + r) + row0;
        __m512 v = _mm512_load_ps(sums + r * 64);
        if (a->bias) v = _mm512_add_ps(v, bias);
        if (a->accumulate) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(mask, out));
        _mm512_mask_storeu_ps(out, mask, v);
    }
}

/* Up to 32 rows from `row` on over panels [p0, p0 + n_panels), whose sums begin at `sums`. */
INLINE void rows_over_panels(const many *m, int64_t row, int64_t n, int64_t p0, int64_t n_panels, uint8_t *sums,
                             bool f16) {
    const bool    two = n > 16, alone = m->first && m->last;
    const int64_t w_bytes = m->blocks * (f16 ? 2 : 1) * HALVES_TILE;
    for (int64_t p = 0; p < n_panels; p += 2) {
        const uint8_t *w = m->w + p * w_bytes;
        uint8_t       *c = alone ? sums : sums + p * HALVES_TILE;
        const bool     pair = p + 1 < n_panels;
        if (two && pair)
            tiles(m, w, c, true, true, f16);
        else if (two)
            tiles(m, w, c, true, false, f16);
        else if (pair)
            tiles(m, w, c, false, true, f16);
        else
            tiles(m, w, c, false, false, f16);
        for (int i = 0; i < (two ? 2 : 1) && m->last; i++) {
            for (int j = 0; j < (pair ? 2 : 1); j++)
                finish(m, row + 16 * i, min64(16, n - 16 * i), p0 + p + j, c + (i * m->sums_wide + j) * HALVES_TILE);
        }
    }
}

/* Rows [r0, r1) and panels [p0, p1), few enough of both for the scratch. */
INLINE void piece(many *m, int64_t r0, int64_t r1, int64_t p0, int64_t p1, bool f16) {
    const int64_t cols = m->a->w->cols;
    for (m->k0 = 0; m->k0 < cols; m->k0 += HALVES_STRETCH) {
        m->first = m->k0 == 0;
        m->last = m->k0 + HALVES_STRETCH >= cols;
        m->blocks = halves_blocks(min64(HALVES_STRETCH, cols - m->k0));
        m->sums_wide = m->first && m->last ? 2 : p1 - p0;
        for (int64_t p = p0; p < p1; p++)
            pack_panel(m, p, m->w + (p - p0) * m->blocks * (f16 ? 2 : 1) * HALVES_TILE, f16);
        for (int64_t r = r0; r < r1; r += HALVES_AT_ONCE) {
            int64_t  n = min64(HALVES_AT_ONCE, r1 - r);
            uint8_t *sums = m->first && m->last ? m->sums : m->sums + (r - r0) / 16 * (p1 - p0) * HALVES_TILE;
            pack_rows(m, r, min64(16, n), m->x, f16);
            if (n > 16) pack_rows(m, r + 16, n - 16, m->x + m->blocks * HALVES_X * HALVES_TILE, f16);
            rows_over_panels(m, r, n, p0, p1 - p0, sums, f16);
        }
    }
}

static void configure(void) {
    tile_config c = { .palette = 1 };
    for (int i = 0; i < 8; i++) c.row_bytes[i] = 64, c.rows[i] = 16;
    _tile_loadconfig(&c);
}

INLINE void run(many *m, int64_t p0, int64_t p1, bool f16) {
    const int64_t n = m->a->n_rows, cuts = (n + HALVES_ROWS - 1) / HALVES_ROWS;
    const int64_t rows = ((n + cuts - 1) / cuts + HALVES_AT_ONCE - 1) / HALVES_AT_ONCE * HALVES_AT_ONCE;
    const int64_t groups = (p1 - p0 + HALVES_PANELS - 1) / HALVES_PANELS;
    configure();
    for (int64_t r = 0; r < n; r += rows) {
        for (int64_t g = 0; g < groups; g++)
            piece(m, r, min64(r + rows, n), p0 + (p1 - p0) * g / groups, p0 + (p1 - p0) * (g + 1) / groups, f16);
    }
    _tile_release();
}

void matmul_many_amx(const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1, void *scratch) {
    const int64_t blocks = halves_blocks(min64(a->w->cols, HALVES_STRETCH));
    const int64_t panels = min64(matmul_panels(a->w), HALVES_PANELS);
    many          m = { .a = a, .s = s, .w = scratch };
    m.x = m.w + panels * blocks * halves_pieces((int)a->w->type) * HALVES_TILE;
    m.sums = m.x + 2 * blocks * HALVES_X * HALVES_TILE;
    if (a->w->type == TENSOR_F16)
        run(&m, p0, p1, true);
    else
        run(&m, p0, p1, false);
}
