/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loops around the matmul kernels.
 *
 * Order of work for a range of panels: three panels at a time, K in chunks. A chunk of the panels is unpacked once into
 * scratch (it stays in L1 or L2), then every tile of activation rows passes over it and adds into c, a scratch array of
 * [row][48] floats. With the last chunk c goes to out, tile by tile. Sums move through memory as f32, so chunks change
 * no bit. A single row takes the fused matrix-vector kernel where the instruction set has one.
 * A few rows are packed once and take the kernels that unpack nothing.
 */
#include "kernels/cpu/matmul_floats.h"
#include "kernels/cpu/matmul_halves.h"

#include <string.h>

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t  align64(size_t n) { return (n + 63) & ~(size_t)63; }

size_t matmul_scratch_bytes(const tensor_mat *w, int64_t n_rows) {
    if (matmul_input(w->type) == MATMUL_F32) {
        size_t floats = matmul_floats_scratch_bytes(w), halves = matmul_halves_scratch_bytes(w, n_rows);
        return floats > halves ? floats : halves;
    }
    /* Kernels take up to twice as many rows as there are, panels and sums are not needed beside them. */
    size_t packed =
        (size_t)min64(2 * n_rows, MATMUL_FEW_CALLS * MATMUL_FEW) * (size_t)(w->cols / ACT8_BLOCK) * sizeof(matmul_few);
    size_t panels =
        align64(MATMUL_WIDE * sizeof(matmul_panel8)) + align64((size_t)n_rows * MATMUL_LANES * sizeof(float));
    return align64(packed > panels ? packed : panels);
}

static matmul_src resolve(const tensor_mat *w, int64_t expert) {
    matmul_src s = { w, expert, w->data, w->scales, w->biases };
    if (expert > 0) {
        s.data += (size_t)expert * w->expert_bytes;
        if (s.scales) s.scales += (size_t)expert * w->scale_expert_bytes;
        if (s.biases) s.biases += (size_t)expert * w->scale_expert_bytes;
    }
    return s;
}

typedef struct drive {
    const matmul_isa  *isa;
    const matmul_args *a;
    matmul_src         src;
    matmul_form        form;
    void              *panels;
    float             *c;
} drive;

/* The outputs of a row's weight rows [row0, row0 + n), while the tile before them computes. */
static void fetch_out(const matmul_args *a, int64_t i, int64_t row0, int64_t n) {
    const float *out = matmul_row_out(a, i) + row0;
    for (int64_t j = 0; j < n; j += 16) __builtin_prefetch(out + j, 1);
}

/* Weights that the next chunk will unpack: asked for a little with every tile of this one, because asking for all of
 * them at once takes as long as waiting for them. */
typedef struct upcoming {
    const uint8_t *at;
    size_t         stride;
    int64_t        lines, total, done; /* lines of a row, of all rows, those asked for */
} upcoming;

static upcoming upcoming_chunk(const drive *d, int64_t row0, int64_t rows, int64_t k0) {
    const tensor_mat       *w = d->a->w;
    const tensor_type_info *t = tensor_type_get(w->type);
    size_t                  from = (size_t)(k0 / t->block_elems) * t->block_bytes;
    int64_t kn = min64(MATMUL_KC, w->cols - k0), lines = kn / t->block_elems * (int64_t)t->block_bytes / 64 + 1;
    return (upcoming){ d->src.data + (size_t)row0 * w->row_bytes + from, w->row_bytes, lines, rows * lines, 0 };
}

static void upcoming_fetch(upcoming *u, int64_t until) {
    for (; u->done < until; u->done++)
        __builtin_prefetch(u->at + (size_t)(u->done / u->lines) * u->stride + (size_t)(u->done % u->lines) * 64, 0, 2);
}

/* One chunk of int8: unpack `wide` panels, pass all rows over them; the last chunk finishes them. */
static void chunk8(const drive *d, int64_t row0, int wide, int64_t k0, int kn, upcoming next) {
    const tensor_mat  *w = d->a->w;
    matmul_panel8     *p = d->panels;
    matmul_unpack8_fn *fast = d->isa->unpack8[w->type];
    const bool         last = k0 + kn >= w->cols;
    const int64_t      n_out = min64(wide * MATMUL_PANEL, w->rows - row0);
    for (int i = 0; i < wide; i++) {
        int64_t row = row0 + i * MATMUL_PANEL;
        int     n = (int)min64(MATMUL_PANEL, w->rows - row);
        (fast && n == MATMUL_PANEL ? fast : matmul_unpack8_scalar)(&d->src, row, n, k0, kn, p + i);
        if (d->isa->arrange8) d->isa->arrange8(p + i, kn, matmul_group(&d->form));
    }
    for (int64_t r = 0; r < d->a->n_rows; r += MATMUL_ROWS8) {
        int         nr = (int)min64(MATMUL_ROWS8, d->a->n_rows - r);
        const act8 *x[MATMUL_ROWS8];
        float      *c = d->c + r * MATMUL_LANES;
        for (int i = 0; i < nr; i++) {
            x[i] = (const act8 *)matmul_row_in(d->a, r + i) + k0 / ACT8_BLOCK;
            if (last) fetch_out(d->a, r + i, row0, n_out);
        }
        upcoming_fetch(&next, next.total * (r + nr) / d->a->n_rows);
        d->isa->tile8[d->form.form][wide - 1][nr - 1](p, &d->form, kn, x, c, k0 == 0);
        if (!last) continue;
        for (int i = 0; i < nr; i++) matmul_finish(d->a, r + i, row0, n_out, c + i * MATMUL_LANES);
    }
}

/* One row: true when the fused kernel did the panel. */
static bool vector(const drive *d, int64_t row0) {
    const tensor_mat *w = d->a->w;
    float             c[MATMUL_PANEL];
    if (d->a->n_rows != 1 || w->rows - row0 < MATMUL_PANEL) return false;
    if (!d->isa->gemv8[w->type]) return false;
    d->isa->gemv8[w->type](&d->src, row0, matmul_row_in(d->a, 0), c);
    matmul_finish(d->a, 0, row0, MATMUL_PANEL, c);
    return true;
}

/* Rows that the largest kernel for a few rows takes, 0 where the type has none. */
static int few_most(const drive *d) {
    matmul_few8_fn *const *of = d->isa->few8[d->a->w->type];
    return of[2] ? MATMUL_FEW : of[0] ? MATMUL_FEW / 2 : 0;
}

/* How a stretch of rows is cut: the kernel (2, 4 or 8 rows), and how many of them count. */
typedef struct few_cut {
    int size, rows, n;
} few_cut;

static few_cut few_cut_at(const drive *d, int64_t i) {
    int n = (int)min64(few_most(d), d->a->n_rows - i), size = n > 4 ? 2 : n > 2 ? 1 : 0;
    return (few_cut){ size, 2 << size, n };
}

/* Packs stretches of rows into scratch: true when the rows are few enough for that. Rows that a kernel takes
 * beyond the last are the last again. */
static bool few_pack(const drive *d) {
    const int64_t blocks = d->a->w->cols / ACT8_BLOCK, most = few_most(d);
    const bool    whole = matmul_group(&d->form) == 32;
    const int     calls = whole ? d->isa->few_calls : (d->isa->few_calls + 1) / 2;
    matmul_few   *out = d->panels;
    if (d->a->n_rows == 1 || d->a->n_rows > most * calls) return false;
    for (int64_t i = 0; i < d->a->n_rows; i += most) {
        few_cut cut = few_cut_at(d, i);
        for (int r = 0; r < cut.rows; r++) {
            const act8 *x = matmul_row_in(d->a, i + (r < cut.n ? r : cut.n - 1));
            for (int64_t b = 0; b < blocks; b++) {
                matmul_few *f = out + b * cut.rows + r;
                f->d = x[b].d;
                f->ds = x[b].ds;
                f->start[0] = -d->form.zero * (whole ? x[b].sum : x[b].s[0]);
                f->start[1] = -d->form.zero * x[b].s[1];
                memcpy(f->q, x[b].q, sizeof f->q);
            }
        }
        out += blocks * cut.rows;
    }
    return true;
}

/* The packed rows over one panel: true when that was done. */
static bool few(const drive *d, int64_t row0) {
    const tensor_mat *w = d->a->w;
    const matmul_few *x = d->panels;
    float             c[MATMUL_FEW * MATMUL_PANEL];
    if (w->rows - row0 < MATMUL_PANEL) return false;
    for (int64_t i = 0; i < d->a->n_rows; i += few_most(d)) {
        few_cut cut = few_cut_at(d, i);
        d->isa->few8[w->type][cut.size](&d->src, row0, x, c);
        for (int r = 0; r < cut.n; r++) matmul_finish(d->a, i + r, row0, MATMUL_PANEL, c + r * MATMUL_PANEL);
        x += w->cols / ACT8_BLOCK * cut.rows;
    }
    return true;
}

void matmul_drive(const matmul_isa *isa, const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    const tensor_mat *w = a->w;
    drive             d = { isa, a, resolve(w, a->expert), matmul_form_of(w->type), scratch, NULL };
    d.c = (float *)(void *)((uint8_t *)scratch + align64(MATMUL_WIDE * sizeof(matmul_panel8)));
    if (a->n_rows <= 0) return;
    p1 = min64(p1, matmul_panels(w));
    if (isa->halves[0] && a->tiles && halves_pieces((int)w->type)) {
        isa->halves[a->n_rows > HALVES_FEW](a, &d.src, p0, p1, scratch);
        return;
    }
    if (d.form.kind == MATMUL_F32) {
        matmul_drive_floats(isa->floats, a, &d.src, p0, p1, scratch);
        return;
    }

    const bool packed = few_pack(&d);
    for (int64_t p = p0; p < p1;) {
        int64_t row0 = p * MATMUL_PANEL;
        if (vector(&d, row0) || (packed && few(&d, row0))) {
            p++;
            continue;
        }
        int wide = (int)min64(MATMUL_WIDE, p1 - p);
        for (int64_t k0 = 0; k0 < w->cols; k0 += MATMUL_KC) {
            int64_t  k1 = k0 + MATMUL_KC, below = row0 + wide * MATMUL_PANEL; /* after this chunk, below these panels */
            int64_t  end = min64(p1 * MATMUL_PANEL, w->rows);
            upcoming next = k1 < w->cols ? upcoming_chunk(&d, row0, min64(wide * MATMUL_PANEL, w->rows - row0), k1)
                                         : upcoming_chunk(&d, below, min64(MATMUL_LANES, end - below), 0);
            chunk8(&d, row0, wide, k0, (int)min64(MATMUL_KC, w->cols - k0), next);
        }
        p += wide;
    }
}
