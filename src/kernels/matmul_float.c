/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the f32 matmul: 16 weight rows, all of K, times a few activation rows at a time (dots) or many (block).
 * The weight rows are read from memory once; for further activation rows they come from L2. More activation rows than
 * L2 holds are cut: then the weights are read once for each piece.
 *
 * Types without kernels of their own, and a last panel of fewer than 16 rows, are first made f32 rows in scratch.
 */
#include "kernels/cpu/matmul_floats.h"

#include "tensor/codec.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

static size_t unpacked_bytes(const tensor_mat *w) {
    return ((size_t)w->cols * sizeof(float) + 63) / 64 * 64 * MATMUL_PANEL;
}

size_t matmul_floats_scratch_bytes(const tensor_mat *w) { return unpacked_bytes(w) + MATMUL_BLOCKF_BYTES; }

/* Rows behind the last give sums that nobody reads. */
static void unpack(const matmul_src *s, int64_t row0, int64_t n, uint8_t *out, size_t stride) {
    for (int64_t row = 0; row < MATMUL_PANEL; row++, out += stride) {
        if (row < n)
            tensor_mat_dequant_row(s->w, s->expert, row0 + row, (float *)(void *)out);
        else
            memset(out, 0, stride);
    }
}

/* A panel of 16 weight rows, in f32 or a type with kernels. */
typedef struct panel {
    const uint8_t *at;
    size_t         stride;
    int64_t        row0, n;
    int            type;
} panel;

/* Rows [r0, r1). */
static void in_blocks(const matmul_floats *f, const matmul_args *a, const panel *p, int64_t r0, int64_t r1,
                      void *scratch) {
    int64_t n = r1 - r0, passes = (n + MATMUL_BLOCKF - 1) / MATMUL_BLOCKF;
    for (int64_t pass = 0, i = r0; pass < passes; pass++) {
        int          nr = (int)(r0 + n * (pass + 1) / passes - i);
        const float *x[MATMUL_BLOCKF];
        float        out[MATMUL_BLOCKF * MATMUL_PANEL];
        for (int r = 0; r < nr; r++) x[r] = matmul_row_in(a, i + r);
        f->block[p->type](p->at, p->stride, a->w->cols, x, nr, scratch, out);
        for (int r = 0; r < nr; r++, i++) matmul_finish(a, i, p->row0, p->n, out + r * MATMUL_PANEL);
    }
}

static void in_dots(const matmul_floats *f, const matmul_args *a, const panel *p) {
    int64_t passes = (a->n_rows + f->rows[p->type] - 1) / f->rows[p->type];
    for (int64_t pass = 0, i = 0; pass < passes; pass++) {
        int          nr = (int)(a->n_rows * (pass + 1) / passes - i);
        const float *x[MATMUL_DOTSF];
        float        out[MATMUL_DOTSF * MATMUL_PANEL];
        for (int r = 0; r < nr; r++) x[r] = matmul_row_in(a, i + r);
        f->dots[p->type][nr - 1](p->at, p->stride, a->w->cols, x, out);
        for (int r = 0; r < nr; r++, i++) matmul_finish(a, i, p->row0, p->n, out + r * MATMUL_PANEL);
    }
}

/* Panel i as it lies in the file, or unpacked into scratch. */
static panel panel_at(const matmul_floats *f, const tensor_mat *w, const matmul_src *s, int64_t i, void *scratch) {
    int64_t row0 = i * MATMUL_PANEL;
    panel   p = { .at = s->data + (size_t)row0 * w->row_bytes, .stride = w->row_bytes, .row0 = row0 };
    p.n = min64(MATMUL_PANEL, w->rows - row0);
    p.type = (int)w->type;
    if (p.n < MATMUL_PANEL || !f->dots[w->type][0]) {
        p.type = TENSOR_F32;
        p.at = scratch;
        p.stride = unpacked_bytes(w) / MATMUL_PANEL;
        unpack(s, row0, p.n, scratch, p.stride);
    }
    return p;
}

/* Activation rows that stay in L2 while all panels pass. Types that are unpacked first pay for that each time: all. */
static int64_t rows_at_once(const matmul_floats *f, const matmul_args *a) {
    enum { STAY_BYTES = 512 * 1024 };
    int64_t fit = (int64_t)(STAY_BYTES / sizeof(float)) / a->w->cols, least = 48;
    if (!f->block[a->w->type]) return a->n_rows;
    return fit < least ? least : fit;
}

void matmul_drive_floats(const matmul_floats *f, const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1,
                         void *scratch) {
    const bool many = a->n_rows >= MATMUL_BLOCKF_FEW;
    int64_t    pieces = many ? (a->n_rows + rows_at_once(f, a) - 1) / rows_at_once(f, a) : 1, r0 = 0;
    for (int64_t j = 0; j < pieces; j++) {
        int64_t r1 = a->n_rows * (j + 1) / pieces;
        for (int64_t i = p0; i < p1; i++) {
            panel p = panel_at(f, a->w, s, i, scratch);
            if (many && f->block[p.type])
                in_blocks(f, a, &p, r0, r1, (char *)scratch + unpacked_bytes(a->w));
            else
                in_dots(f, a, &p);
        }
        r0 = r1;
    }
}
