/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scalar unpacking of the IQ blocks: codebook rows with their signs become small integers above a zero point. Layouts
 * are those of tensor/blocks.h. IQ1 weights are d * (2s + 1) * (grid + delta), delta = 1/8 or -1/8: held times 8, they
 * are integers of -9..9.
 */
#include "kernels/cpu/matmul_panel.h"

#include "tensor/blocks.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

#include <string.h>

#define ZERO 64

static void with_signs(uint8_t *u, const int8_t *grid, unsigned signs, int n) {
    for (int i = 0; i < n; i++) u[i] = (uint8_t)(ZERO + (signs >> i & 1 ? -grid[i] : grid[i]));
}

static uint32_t load32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

static void iq2_xxs(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq2_xxs *b = (const block_iq2_xxs *)block;
    float                d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int g = 0; g < 8; g++) {
        const uint8_t *at = block + 2 + 8 * g;
        uint32_t       high = load32(at + 4);
        for (int j = 0; j < 4; j++) {
            int8_t grid[8];
            tensor_iq2_row(grid, tensor_iq2_xxs_grid[at[j]]);
            with_signs(u + 32 * g + 8 * j, grid, tensor_iq_signs(high >> (7 * j) & 127), 8);
        }
        scale[g] = d * ((float)(high >> 28) + 0.5f) * 0.25f;
    }
}

static void iq2_scales(uint16_t d16, const uint8_t *scales, float *scale) {
    float d = tensor_f16_to_f32(d16);
    for (int j = 0; j < 16; j++) scale[j] = d * ((float)(scales[j / 2] >> (4 * (j % 2)) & 15) + 0.5f) * 0.25f;
}

static void iq2_xs(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq2_xs *b = (const block_iq2_xs *)block;
    (void)min;
    for (int j = 0; j < 32; j++) {
        int8_t   grid[8];
        unsigned q = b->qs[j];
        tensor_iq2_row(grid, tensor_iq2_xs_grid[q & 511]);
        with_signs(u + 8 * j, grid, tensor_iq_signs(q >> 9), 8);
    }
    iq2_scales(b->d, b->scales, scale);
}

static void iq2_s(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq2_s *b = (const block_iq2_s *)block;
    (void)min;
    for (int j = 0; j < 32; j++) {
        int8_t   grid[8];
        unsigned index = b->qs[j] | (unsigned)(b->qh[j / 4] >> (2 * (j % 4)) & 3) << 8;
        tensor_iq2_row(grid, tensor_iq2_s_grid[index]);
        with_signs(u + 8 * j, grid, b->signs[j], 8);
    }
    iq2_scales(b->d, b->scales, scale);
}

static void iq3_xxs(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq3_xxs *b = (const block_iq3_xxs *)block;
    float                d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int g = 0; g < 8; g++) {
        uint32_t high = b->signs[g];
        for (int j = 0; j < 8; j++) {
            int8_t   grid[4];
            unsigned signs = tensor_iq_signs(high >> (7 * (j / 2)) & 127);
            tensor_iq3_xxs_row(grid, b->qs[8 * g + j]);
            with_signs(u + 32 * g + 4 * j, grid, signs >> (4 * (j % 2)), 4);
        }
        scale[g] = d * ((float)(high >> 28) + 0.5f) * 0.5f;
    }
}

static void iq3_s(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq3_s *b = (const block_iq3_s *)block;
    float              d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int j = 0; j < 64; j++) {
        int8_t   grid[4];
        unsigned index = b->qs[j] | (unsigned)(b->qh[j / 8] >> (j % 8) & 1) << 8;
        tensor_iq3_s_row(grid, index);
        with_signs(u + 4 * j, grid, b->signs[j / 2] >> (4 * (j % 2)), 4);
    }
    for (int g = 0; g < 8; g++) scale[g] = d * (float)(1 + 2 * (b->scales[g / 2] >> (4 * (g % 2)) & 15));
}

/* One row of the IQ1 codebook with its delta, times 8. */
static void iq1_row(uint8_t *u, unsigned index, bool minus) {
    int8_t grid[8];
    tensor_iq1_row(grid, index);
    for (int i = 0; i < 8; i++) u[i] = (uint8_t)(ZERO + 8 * grid[i] + (minus ? -1 : 1));
}

static void iq1_s(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq1_s *b = (const block_iq1_s *)block;
    float              d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int g = 0; g < 8; g++) {
        unsigned qh = b->qh[g];
        for (int j = 0; j < 4; j++) iq1_row(u + 32 * g + 8 * j, b->qs[4 * g + j] | (qh >> (3 * j) & 7) << 8, qh >> 15);
        scale[g] = d * (float)(2 * (qh >> 12 & 7) + 1) * 0.125f;
    }
}

static void iq1_m(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq1_m *b = (const block_iq1_m *)block;
    unsigned           s[4], d16 = 0;
    (void)min;
    for (int i = 0; i < 4; i++) {
        s[i] = b->scales[i];
        d16 |= s[i] >> 12 << (4 * i);
    }
    for (int j = 0; j < 32; j++) {
        unsigned nibble = b->qh[j / 2] >> (4 * (j % 2)) & 15;
        iq1_row(u + 8 * j, b->qs[j] | (nibble & 7) << 8, nibble >> 3);
    }
    for (int j = 0; j < 16; j++)
        scale[j] = tensor_f16_to_f32((uint16_t)d16) * (float)(2 * (s[j / 4] >> (3 * (j % 4)) & 7) + 1) * 0.125f;
}

static void iq4_values(const uint8_t *qs, uint8_t *u) {
    for (int j = 0; j < 16; j++) {
        u[j] = (uint8_t)(tensor_iq4_values[qs[j] & 15] + 128);
        u[j + 16] = (uint8_t)(tensor_iq4_values[qs[j] >> 4] + 128);
    }
}

static void iq4_nl(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq4_nl *b = (const block_iq4_nl *)block;
    (void)min;
    iq4_values(b->qs, u);
    scale[0] = tensor_f16_to_f32(b->d);
}

static void iq4_xs(const uint8_t *block, uint8_t *u, float *scale, float *min) {
    const block_iq4_xs *b = (const block_iq4_xs *)block;
    float               d = tensor_f16_to_f32(b->d);
    (void)min;
    for (int j = 0; j < 8; j++) {
        iq4_values(b->qs + 16 * j, u + 32 * j);
        scale[j] = d * (float)block_iq4_xs_scale(b, j);
    }
}

matmul_unblock_fn *matmul_unblock_iq(int type) {
    switch (type) {
    case TENSOR_IQ1_S: return iq1_s;
    case TENSOR_IQ1_M: return iq1_m;
    case TENSOR_IQ2_XXS: return iq2_xxs;
    case TENSOR_IQ2_XS: return iq2_xs;
    case TENSOR_IQ2_S: return iq2_s;
    case TENSOR_IQ3_XXS: return iq3_xxs;
    case TENSOR_IQ3_S: return iq3_s;
    case TENSOR_IQ4_NL: return iq4_nl;
    case TENSOR_IQ4_XS: return iq4_xs;
    default: return NULL;
    }
}
