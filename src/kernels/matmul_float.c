/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops of the f32 matmul: 16 weight rows, all of K, times a few activation rows at a time. The weight rows are
 * read from memory once and come from L2 for the other activation rows.
 *
 * Types without kernels of their own, and a last panel of fewer than 16 rows, are first made f32 rows in scratch.
 */
#include "kernels/cpu/matmul_floats.h"

#include "tensor/codec.h"

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

size_t matmul_floats_scratch_bytes(const tensor_mat *w) {
    return ((size_t)w->cols * sizeof(float) + 63) / 64 * 64 * MATMUL_PANEL;
}

/* Rows behind the last give sums that nobody reads. */
static void unpack(const matmul_src *s, int64_t row0, int64_t n, uint8_t *out, size_t stride) {
    for (int64_t row = 0; row < MATMUL_PANEL; row++, out += stride) {
        if (row < n)
            tensor_mat_dequant_row(s->w, s->expert, row0 + row, (float *)(void *)out);
        else
            memset(out, 0, stride);
    }
}

void matmul_drive_floats(const matmul_floats *f, const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1,
                         void *scratch) {
    const tensor_mat *w = a->w;
    for (int64_t p = p0; p < p1; p++) {
        int64_t                 row0 = p * MATMUL_PANEL, n = min64(MATMUL_PANEL, w->rows - row0);
        const uint8_t          *at = s->data + (size_t)row0 * w->row_bytes;
        size_t                  stride = w->row_bytes;
        int                     type = n < MATMUL_PANEL || !f->dots[w->type][0] ? TENSOR_F32 : (int)w->type;
        matmul_dotsf_fn *const *dots = f->dots[type];
        int64_t                 passes = (a->n_rows + f->rows[type] - 1) / f->rows[type];
        if (n < MATMUL_PANEL || !f->dots[w->type][0]) {
            at = scratch;
            stride = matmul_floats_scratch_bytes(w) / MATMUL_PANEL;
            unpack(s, row0, n, scratch, stride);
        }
        for (int64_t pass = 0, i = 0; pass < passes; pass++) {
            int          nr = (int)(a->n_rows * (pass + 1) / passes - i);
            const float *x[MATMUL_DOTSF];
            float        out[MATMUL_DOTSF * MATMUL_PANEL];
            for (int r = 0; r < nr; r++) x[r] = matmul_row_in(a, i + r);
            dots[nr - 1](at, stride, w->cols, x, out);
            for (int r = 0; r < nr; r++, i++) matmul_finish(a, i, row0, n, out + r * MATMUL_PANEL);
        }
    }
}
