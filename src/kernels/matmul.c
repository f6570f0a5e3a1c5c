/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul above the kernels: which type takes which path, what is refused, and the loops.
 *
 * Order of work for a range of panels: three panels at a time, K in chunks. A chunk of the panels is unpacked once into
 * scratch (it stays in L1 or L2), then every tile of activation rows passes over it and adds into c, a scratch array of
 * [row][48] floats. With the last chunk c goes to out, tile by tile. Sums move through memory as f32, so chunks change
 * no bit. A single row takes the fused matrix-vector kernel where the instruction set has one.
 */
#include "kernels/cpu/matmul_floats.h"

#include "base/num.h"

#include <string.h>

#define I8(f, z, largest)                                                                                              \
    { MATMUL_ACT8, MATMUL_##f, z, largest }
#define F32                                                                                                            \
    { MATMUL_F32, 0, 0, 0 }

static const matmul_form forms[TENSOR_TYPE_COUNT] = {
    [TENSOR_F32] = F32,
    [TENSOR_F16] = F32,
    [TENSOR_BF16] = F32,
    [TENSOR_F8_E4M3] = F32,
    [TENSOR_F8_E5M2] = F32,
    [TENSOR_NF4] = F32,
    [TENSOR_MLX_MXFP8] = F32,
    [TENSOR_Q4_0] = I8(ZERO32, 8, 15),
    [TENSOR_Q5_0] = I8(ZERO32, 16, 31),
    [TENSOR_Q8_0] = I8(ZERO32, 128, 255),
    [TENSOR_Q8_K] = I8(ZERO32, 128, 255),
    [TENSOR_IQ4_NL] = I8(ZERO32, 128, 255),
    [TENSOR_IQ4_XS] = I8(ZERO32, 128, 255),
    [TENSOR_MXFP4] = I8(ZERO32, 12, 24),
    [TENSOR_MLX_MXFP4] = I8(ZERO32, 12, 24),
    [TENSOR_IQ2_XXS] = I8(ZERO32, 64, 107),
    [TENSOR_IQ3_XXS] = I8(ZERO32, 64, 126),
    [TENSOR_IQ3_S] = I8(ZERO32, 64, 79),
    [TENSOR_IQ1_S] = I8(ZERO32, 64, 73),
    [TENSOR_TQ1_0] = I8(ZERO32, 1, 2),
    [TENSOR_TQ2_0] = I8(ZERO32, 1, 3),
    [TENSOR_Q4_1] = I8(MIN32, 0, 15),
    [TENSOR_Q5_1] = I8(MIN32, 0, 31),
    [TENSOR_Q4_K] = I8(MIN32, 0, 15),
    [TENSOR_Q5_K] = I8(MIN32, 0, 31),
    [TENSOR_MLX_AFF2] = I8(MIN32, 0, 3),
    [TENSOR_MLX_AFF3] = I8(MIN32, 0, 7),
    [TENSOR_MLX_AFF4] = I8(MIN32, 0, 15),
    [TENSOR_MLX_AFF5] = I8(MIN32, 0, 31),
    [TENSOR_MLX_AFF6] = I8(MIN32, 0, 63),
    [TENSOR_MLX_AFF8] = I8(MIN32, 0, 255),
    [TENSOR_Q6_K] = I8(ZERO16, 32, 63),
    [TENSOR_Q3_K] = I8(ZERO16, 4, 7),
    [TENSOR_IQ2_XS] = I8(ZERO16, 64, 107),
    [TENSOR_IQ2_S] = I8(ZERO16, 64, 107),
    [TENSOR_IQ1_M] = I8(ZERO16, 64, 73),
    [TENSOR_NVFP4] = I8(ZERO16, 12, 24),
    [TENSOR_MLX_NVFP4] = I8(ZERO16, 12, 24),
    [TENSOR_Q2_K] = I8(MIN16, 0, 3),
};

matmul_form matmul_form_of(int type) {
    return type >= 0 && type < TENSOR_TYPE_COUNT ? forms[type] : (matmul_form){ MATMUL_NONE, 0, 0, 0 };
}

matmul_kind matmul_input(int type) { return (matmul_kind)matmul_form_of(type).kind; }

static bool is_affine(int type) { return type >= TENSOR_MLX_AFF2 && type <= TENSOR_MLX_AFF8; }

static bool scale_type_known(int t) {
    return t == TENSOR_F32 || t == TENSOR_F16 || t == TENSOR_BF16 || t == TENSOR_F8_E4M3 || t == TENSOR_F8_E8M0;
}

static int check_scales(const tensor_mat *w, err *e) {
    const char *name = tensor_type_name(w->type);
    bool        needs = w->type == TENSOR_NF4 || w->type >= TENSOR_MLX_AFF2;
    if (!w->scales && needs) return err_set(e, ERR_ARG, "matmul: %s needs a scale array", name);
    if (!w->scales) return 0;
    if (!scale_type_known(w->scale_type))
        return err_set(e, ERR_UNSUPPORTED, "matmul: scales of type %s", tensor_type_name(w->scale_type));
    if (w->group <= 0 || w->group_rows <= 0)
        return err_set(e, ERR_ARG, "matmul: scale group of %d x %d", w->group, w->group_rows);
    if (matmul_input(w->type) == MATMUL_ACT8) {
        int unit = w->type == TENSOR_MLX_NVFP4 ? 16 : 32;
        if (w->group % unit != 0 || w->cols % w->group != 0 || w->group_rows != 1)
            return err_set(e, ERR_UNSUPPORTED, "matmul: %s with groups of %d in rows of %lld", name, w->group,
                           (long long)w->cols);
    }
    if (is_affine(w->type) && !w->biases) return err_set(e, ERR_ARG, "matmul: %s needs a bias array", name);
    return 0;
}

int matmul_check(const tensor_mat *w, err *e) {
    const tensor_type_info *t = tensor_type_get(w->type);
    matmul_kind             kind = matmul_input(w->type);
    size_t                  row_bytes;
    if (kind == MATMUL_NONE)
        return err_set(e, ERR_UNSUPPORTED, "matmul: weights of type %s", tensor_type_name(w->type));
    if (w->rows <= 0 || w->cols <= 0 || w->cols % t->block_elems != 0 ||
        (kind == MATMUL_ACT8 && w->cols % ACT8_BLOCK != 0))
        return err_set(e, ERR_ARG, "matmul: %s matrix of %lld x %lld", t->name, (long long)w->rows, (long long)w->cols);
    if (!tensor_row_bytes(w->type, w->cols, &row_bytes) || w->row_bytes < row_bytes)
        return err_set(e, ERR_ARG, "matmul: %s rows of %zu bytes for %lld inputs", t->name, w->row_bytes,
                       (long long)w->cols);
    return check_scales(w, e);
}

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t  align64(size_t n) { return (n + 63) & ~(size_t)63; }

size_t matmul_scratch_bytes(const tensor_mat *w, int64_t n_rows) {
    if (matmul_input(w->type) == MATMUL_F32) return matmul_floats_scratch_bytes(w);
    /* Kernels take up to twice as many rows as there are, panels and sums are not needed beside them. */
    size_t packed = (size_t)min64(2 * n_rows, 2 * MATMUL_FEW) * (size_t)(w->cols / ACT8_BLOCK) * sizeof(matmul_few);
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

/* One chunk of int8: unpack `wide` panels, pass all rows over them; the last chunk finishes them. */
static void chunk8(const drive *d, int64_t row0, int wide, int64_t k0, int kn, int64_t ahead) {
    const tensor_mat  *w = d->a->w;
    matmul_panel8     *p = d->panels;
    matmul_unpack8_fn *fast = d->isa->unpack8[w->type];
    const bool         last = k0 + kn >= w->cols;
    const int64_t      n_out = min64(wide * MATMUL_PANEL, w->rows - row0);
    for (int i = 0; i < wide; i++) {
        int64_t row = row0 + i * MATMUL_PANEL;
        int     n = (int)min64(MATMUL_PANEL, w->rows - row);
        (fast && n == MATMUL_PANEL ? fast : matmul_unpack8_scalar)(&d->src, row, n, k0, kn, ahead, p + i);
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

/* Packs up to two stretches of rows into scratch: true when the rows are few enough for that. Rows that a kernel takes
 * beyond the last are the last again. */
static bool few_pack(const drive *d) {
    const int64_t blocks = d->a->w->cols / ACT8_BLOCK, most = few_most(d);
    matmul_few   *out = d->panels;
    if (d->a->n_rows == 1 || d->a->n_rows > 2 * most) return false;
    for (int64_t i = 0; i < d->a->n_rows; i += most) {
        few_cut cut = few_cut_at(d, i);
        for (int r = 0; r < cut.rows; r++) {
            const act8 *x = matmul_row_in(d->a, i + (r < cut.n ? r : cut.n - 1));
            for (int64_t b = 0; b < blocks; b++) {
                matmul_few *f = out + b * cut.rows + r;
                bool        whole = matmul_group(&d->form) == 32;
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
    const tensor_mat       *w = a->w;
    const tensor_type_info *t = tensor_type_get(w->type);
    drive                   d = { isa, a, resolve(w, a->expert), matmul_form_of(w->type), scratch, NULL };
    int64_t                 step = MATMUL_KC;
    int64_t                 step_bytes = step / t->block_elems * t->block_bytes;
    d.c = (float *)(void *)((uint8_t *)scratch + align64(MATMUL_WIDE * sizeof(matmul_panel8)));
    if (a->n_rows <= 0) return;
    p1 = min64(p1, matmul_panels(w));
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
        for (int64_t k0 = 0; k0 < w->cols; k0 += step) {
            int     kn = (int)min64(step, w->cols - k0);
            int64_t ahead = step_bytes;
            if (k0 + step >= w->cols) /* the first chunk of the next panels, if there are any */
                ahead = p + wide < p1 ? wide * MATMUL_PANEL * (int64_t)w->row_bytes - k0 / step * step_bytes : 0;
            chunk8(&d, row0, wide, k0, kn, ahead);
        }
        p += wide;
    }
}

int64_t matmul_experts_units(const tensor_mat *w, const int32_t *start) {
    int64_t n = 0;
    for (int64_t e = 0; e < w->n_experts; e++) n += start[e + 1] > start[e];
    return n * matmul_panels(w);
}

void matmul_experts(const kernels_matmul *t, const matmul_args *a, const int32_t *start, int64_t u0, int64_t u1,
                    void *scratch) {
    int64_t panels = matmul_panels(a->w), first = 0;
    for (int64_t e = 0; e < a->w->n_experts && first < u1; e++) {
        if (start[e + 1] <= start[e]) continue;
        int64_t p0 = u0 > first ? u0 - first : 0, p1 = min64(u1 - first, panels);
        if (p0 < p1) {
            matmul_args one = *a;
            one.expert = e;
            one.n_rows = start[e + 1] - start[e];
            if (a->x_rows)
                one.x_rows = a->x_rows + start[e];
            else
                one.x = (const uint8_t *)a->x + (size_t)start[e] * a->x_stride;
            if (a->out_rows)
                one.out_rows = a->out_rows + start[e];
            else
                one.out = a->out + (size_t)start[e] * a->out_stride;
            if (a->bias) one.bias = a->bias + e * a->w->rows;
            t->run(&one, p0, p1, scratch);
        }
        first += panels;
    }
}

void kernels_matmul_list(const kernels_matmul *t, kernels_visit *visit, void *ctx) {
#define X(fn, slot) KERNEL_VISIT(t, "matmul", slot);
    KERNELS_MATMUL_SLOTS(X)
#undef X
}
