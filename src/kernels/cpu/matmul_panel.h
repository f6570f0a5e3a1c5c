/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the matmul kernels of all instruction sets share: panels, forms, and the table an instruction set fills.
 *
 * An int8 panel holds 16 weight rows of up to MATMUL_KC inputs, in the order that 4-byte dot instructions want, lane by
 * lane: byte q[(k / 4) * 64 + row * 4 + k % 4] is the unsigned value of weight (row, k). Scale group g of 16 or 32
 * inputs has scale[g * 16 + row] and, for types with a minimum, min[g * 16 + row]:
 *
 *     weight = scale * (u - zero)            zero is one constant per type
 *     weight = scale * u + min               types with a minimum; zero is 0
 *
 * Path of each type (matmul_form gives the row of this table):
 *
 *   int8, scale per 32, zero   Q4_0 8, Q5_0 16, Q8_0 Q8_K IQ4_NL IQ4_XS 128, MXFP4 12, IQ2_XXS IQ3_XXS IQ3_S IQ1_S 64,
 *                              TQ1_0 TQ2_0 Q1_0 Q2_0 1
 *   int8, scale per 32, min    Q4_1 Q5_1 Q4_K Q5_K, MLX affine 2 3 4 5 6 8
 *   int8, scale per 16, zero   Q6_K 32, Q3_K 4, IQ2_XS IQ2_S IQ1_M 64, NVFP4 12
 *   int8, scale per 16, min    Q2_K
 *   f32                        F32 F16 BF16, F8_E4M3 F8_E5M2, NF4, MLX mxfp8: values that are not small integers
 *                              (cpu/matmul_floats.h)
 *
 * The integers are exact (IQ1's grid + 1/8 is held times 8, fp4 times 2), so an int8 matmul differs from f32 arithmetic
 * only by the rounding of the activations, at most half a step (act.h) per value.
 */
#ifndef KERNELS_CPU_MATMUL_PANEL_H
#define KERNELS_CPU_MATMUL_PANEL_H

#include "kernels/matmul.h"

#include <string.h>

#define MATMUL_KC 2048     /* inputs of an int8 panel: 32 KB */
#define MATMUL_WIDE 3      /* panels a tile takes together */
#define MATMUL_ROWS8 4     /* activation rows of an int8 tile */
#define MATMUL_FEW 8       /* activation rows of the largest kernel for a few rows */
#define MATMUL_FEW_CALLS 4 /* of these kernels over a panel, at most */
#define MATMUL_LANES (MATMUL_WIDE * MATMUL_PANEL)

typedef struct matmul_panel8 {
    uint8_t q[MATMUL_KC * MATMUL_PANEL];
    float   scale[MATMUL_KC / 16 * MATMUL_PANEL];
    float   min[MATMUL_KC / 16 * MATMUL_PANEL];
    float   steps[MATMUL_KC / 16 * ACT8_STEPS * MATMUL_PANEL]; /* scale times 1, 9/8 ...: of sets that use them */
} matmul_panel8;

/* One matrix (one expert), resolved to pointers. */
typedef struct matmul_src {
    const tensor_mat *w;
    int64_t           expert;
    const uint8_t    *data, *scales, *biases;
} matmul_src;

enum { MATMUL_ZERO32, MATMUL_MIN32, MATMUL_ZERO16, MATMUL_MIN16, MATMUL_FORMS };

typedef struct matmul_form {
    uint8_t kind; /* matmul_kind */
    uint8_t form; /* of an int8 type */
    uint8_t zero;
    uint8_t largest; /* stored value */
} matmul_form;

matmul_form matmul_form_of(int type);

/* Inputs per scale of an int8 type. */
static inline int matmul_group(const matmul_form *f) {
    return f->form == MATMUL_ZERO32 || f->form == MATMUL_MIN32 ? 32 : 16;
}

/* Fills a panel with inputs [k0, k0 + kn) of n rows from row0 on; rows n..15 become zero. k0 is a multiple of the chunk
 * (MATMUL_KC), kn of the type's block. Sets other than scalar are only called with n = 16. */
typedef void matmul_unpack8_fn(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, matmul_panel8 *p);

/* One activation row times 16 whole weight rows. */
typedef void matmul_gemv8_fn(const matmul_src *s, int64_t row0, const act8 *x, float *out);

/* An activation block as the kernels for a few rows want it: block b of row r is number b * rows + r, so that one
 * pointer leads to all of them. `start`: where the integer sums of a group begin, -zero * its sum. */
typedef struct matmul_few {
    float   d, ds;
    int32_t start[2]; /* of groups of 32 the first */
    int8_t  q[ACT8_BLOCK];
} matmul_few;

/* 2, 4 or 8 activation rows times 16 whole weight rows; out: rows of 16. */
typedef void matmul_few8_fn(const matmul_src *s, int64_t row0, const matmul_few *x, float *out);

/* c[r][lane] (rows of MATMUL_LANES floats) of kn inputs of adjacent panels and a few rows; first: start from zero. */
typedef void matmul_tile8_fn(const matmul_panel8 *p, const matmul_form *f, int kn, const act8 *const *x, float *c,
                             bool first);

/* Makes of an unpacked panel what the set's tiles want beyond the above: another order of the bytes, the steps. */
typedef void matmul_arrange8_fn(matmul_panel8 *p, int kn, int group);

/* Rows of F16 or BF16 weights, [16 * p0, 16 * p1), times all activation rows (cpu/matmul_halves.h). */
typedef void matmul_halves_fn(const matmul_args *a, const matmul_src *s, int64_t p0, int64_t p1, void *scratch);

typedef struct matmul_isa {
    matmul_unpack8_fn *unpack8[TENSOR_TYPE_COUNT]; /* NULL: the scalar one */
    matmul_gemv8_fn   *gemv8[TENSOR_TYPE_COUNT];   /* NULL: unpack and tile */
    matmul_few8_fn    *few8[TENSOR_TYPE_COUNT][3]; /* of 2, 4 and 8 rows; NULL: unpack and tile */
    int few_calls; /* over a panel before unpacking it pays; with scales per 16 half of that, rounded up */
    matmul_arrange8_fn *arrange8;                               /* NULL: the panel stays as it is */
    matmul_tile8_fn *const (*tile8)[MATMUL_WIDE][MATMUL_ROWS8]; /* [form][panels - 1][rows - 1] */
    const struct matmul_floats *floats;                         /* cpu/matmul_floats.h */
    matmul_halves_fn           *halves[2]; /* of few and of many activation rows; NULL: as all floats */
} matmul_isa;

/*
 * Tile functions of an instruction set, from its inline tile8(p, zero, kn, rows, c, first, wide, n, group, min): one
 * function per form and tile size, and the table of them.
 * A set whose tile8 wants the whole form instead of the zero defines MATMUL_TILE8_FORM before including this.
 */
#ifndef MATMUL_TILE8_FORM
#define MATMUL_TILE8_FORM(f) ((f)->zero)
#endif
#define MATMUL_TILE8(form, group, min, w, r)                                                                           \
    static void tile8_##form##_##w##_##r(const matmul_panel8 *p, const matmul_form *f, int kn, const act8 *const *x,   \
                                         float *c, bool first) {                                                       \
        tile8(p, MATMUL_TILE8_FORM(f), kn, x, c, first, w, r, group, min);                                             \
    }
#define MATMUL_TILE8_ROWS(form, group, min, w)                                                                         \
    MATMUL_TILE8(form, group, min, w, 1)                                                                               \
    MATMUL_TILE8(form, group, min, w, 2)                                                                               \
    MATMUL_TILE8(form, group, min, w, 3)                                                                               \
    MATMUL_TILE8(form, group, min, w, 4)
#define MATMUL_TILE8_SIZES(form, group, min)                                                                           \
    MATMUL_TILE8_ROWS(form, group, min, 1)                                                                             \
    MATMUL_TILE8_ROWS(form, group, min, 2)                                                                             \
    MATMUL_TILE8_ROWS(form, group, min, 3)
#define MATMUL_TILE8_LIST(form, w)                                                                                     \
    { tile8_##form##_##w##_1, tile8_##form##_##w##_2, tile8_##form##_##w##_3, tile8_##form##_##w##_4 }
#define MATMUL_TILE8_TABLE(form)                                                                                       \
    { MATMUL_TILE8_LIST(form, 1), MATMUL_TILE8_LIST(form, 2), MATMUL_TILE8_LIST(form, 3) }
#define MATMUL_TILES8(set)                                                                                             \
    MATMUL_TILE8_SIZES(zero32, 32, false)                                                                              \
    MATMUL_TILE8_SIZES(min32, 32, true)                                                                                \
    MATMUL_TILE8_SIZES(zero16, 16, false)                                                                              \
    MATMUL_TILE8_SIZES(min16, 16, true)                                                                                \
    matmul_tile8_fn *const matmul_tile8_##set[MATMUL_FORMS][MATMUL_WIDE][MATMUL_ROWS8] = {                             \
        MATMUL_TILE8_TABLE(zero32), MATMUL_TILE8_TABLE(min32), MATMUL_TILE8_TABLE(zero16), MATMUL_TILE8_TABLE(min16)   \
    };

/* The loops around the kernels: panels, chunks of K, row tiles, epilogue. */
void matmul_drive(const matmul_isa *isa, const matmul_args *a, int64_t p0, int64_t p1, void *scratch);

static inline const void *matmul_row_in(const matmul_args *a, int64_t i) {
    return (const uint8_t *)a->x + (size_t)(a->x_rows ? a->x_rows[i] : i) * a->x_stride;
}

static inline float *matmul_row_out(const matmul_args *a, int64_t i) {
    return a->out + (size_t)(a->out_rows ? a->out_rows[i] : i) * a->out_stride;
}

/* out = c, + bias, + the old out: additions in this order. */
static inline void matmul_put(float *out, const float *bias, bool accumulate, int64_t n, const float *c) {
    if (!bias && !accumulate) {
        memcpy(out, c, (size_t)n * sizeof *c);
    } else if (!bias) {
        for (int64_t j = 0; j < n; j++) out[j] = c[j] + out[j];
    } else {
        for (int64_t j = 0; j < n; j++) out[j] = accumulate ? (c[j] + bias[j]) + out[j] : c[j] + bias[j];
    }
}

/* n finished sums of weight rows from row0 on go to output row i. The usual counts are known to the compiler. */
static inline void matmul_finish(const matmul_args *a, int64_t i, int64_t row0, int64_t n, const float *c) {
    float       *out = matmul_row_out(a, i) + row0;
    const float *bias = a->bias ? a->bias + row0 : NULL;
    if (n == MATMUL_PANEL)
        matmul_put(out, bias, a->accumulate, MATMUL_PANEL, c);
    else if (n == MATMUL_LANES)
        matmul_put(out, bias, a->accumulate, MATMUL_LANES, c);
    else
        matmul_put(out, bias, a->accumulate, n, c);
}

/* Scalar unpacking of any type; also serves the last panel of a matrix in every instruction set. */
void matmul_unpack8_scalar(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, matmul_panel8 *p);

/* Block by block of one row: u values, scales and minima per group. */
typedef void       matmul_unblock_fn(const uint8_t *block, uint8_t *u, float *scale, float *min);
matmul_unblock_fn *matmul_unblock(int type); /* NULL: not a type of blocks of small integers */
matmul_unblock_fn *matmul_unblock_iq(int type);

#endif
