/* SPDX-License-Identifier: Apache-2.0 */
/* Dequantizing of the IQ blocks; the layouts are in blocks.h, the codebooks in iq_grids.h. */
#include "tensor/blocks.h"
#include "tensor/codec_impl.h"
#include "tensor/half.h"
#include "tensor/iq_grids.h"

static void put_signed(float *dst, const int8_t *grid, int n, unsigned signs, float scale) {
    for (int i = 0; i < n; i++) {
        float v = scale * (float)grid[i];
        dst[i] = signs >> i & 1 ? -v : v;
    }
}

void dequant_iq2_xxs(const void *block, float *dst) {
    const block_iq2_xxs *b = block;
    float                d = tensor_f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        uint32_t signs = b->qs[4 * g + 2] | (uint32_t)b->qs[4 * g + 3] << 16;
        float    scale = d * (0.5f + (float)(signs >> 28)) * 0.25f;
        for (int l = 0; l < 4; l++) {
            int8_t   grid[8];
            unsigned index = b->qs[4 * g + l / 2] >> (8 * (l % 2)) & 255u;
            tensor_iq2_row(grid, tensor_iq2_xxs_grid[index]);
            put_signed(dst + 32 * g + 8 * l, grid, 8, tensor_iq_signs(signs >> (7 * l) & 127), scale);
        }
    }
}

void dequant_iq2_xs(const void *block, float *dst) {
    const block_iq2_xs *b = block;
    float               d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++) {
        int8_t   grid[8];
        unsigned s = b->scales[i / 4] >> (4 * (i % 4 / 2)) & 15u;
        float    scale = d * (0.5f + (float)s) * 0.25f;
        tensor_iq2_row(grid, tensor_iq2_xs_grid[b->qs[i] & 511]);
        put_signed(dst + 8 * i, grid, 8, tensor_iq_signs(b->qs[i] >> 9), scale);
    }
}

void dequant_iq2_s(const void *block, float *dst) {
    const block_iq2_s *b = block;
    float              d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++) {
        int8_t   grid[8];
        unsigned s = b->scales[i / 4] >> (4 * (i % 4 / 2)) & 15u;
        unsigned index = b->qs[i] | (b->qh[i / 4] >> (2 * (i % 4)) & 3u) << 8;
        float    scale = d * (0.5f + (float)s) * 0.25f;
        tensor_iq2_row(grid, tensor_iq2_s_grid[index]);
        put_signed(dst + 8 * i, grid, 8, b->signs[i], scale);
    }
}

void dequant_iq3_xxs(const void *block, float *dst) {
    const block_iq3_xxs *b = block;
    float                d = tensor_f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        uint32_t signs = b->signs[g];
        float    scale = d * (0.5f + (float)(signs >> 28)) * 0.5f;
        for (int l = 0; l < 4; l++) {
            int8_t grid[8];
            tensor_iq3_xxs_row(grid, b->qs[8 * g + 2 * l]);
            tensor_iq3_xxs_row(grid + 4, b->qs[8 * g + 2 * l + 1]);
            put_signed(dst + 32 * g + 8 * l, grid, 8, tensor_iq_signs(signs >> (7 * l) & 127), scale);
        }
    }
}

void dequant_iq3_s(const void *block, float *dst) {
    const block_iq3_s *b = block;
    float              d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 64; i++) { /* 4 elements each */
        int8_t   grid[4];
        unsigned s = b->scales[i / 16] >> (4 * (i % 16 / 8)) & 15u;
        unsigned index = b->qs[i] | (b->qh[i / 8] >> (i % 8) & 1u) << 8;
        float    scale = d * (float)(1 + 2 * s);
        tensor_iq3_s_row(grid, index);
        put_signed(dst + 4 * i, grid, 4, b->signs[i / 2] >> (4 * (i % 2)) & 15u, scale);
    }
}

static void put_shifted(float *dst, unsigned index, bool minus, float scale) {
    int8_t grid[8];
    float  delta = minus ? -0.125f : 0.125f;
    tensor_iq1_row(grid, index);
    for (int i = 0; i < 8; i++) dst[i] = scale * ((float)grid[i] + delta);
}

void dequant_iq1_s(const void *block, float *dst) {
    const block_iq1_s *b = block;
    float              d = tensor_f16_to_f32(b->d);
    for (int i = 0; i < 32; i++) {
        unsigned h = b->qh[i / 4];
        unsigned index = b->qs[i] | (h >> (3 * (i % 4)) & 7) << 8;
        put_shifted(dst + 8 * i, index, h >> 15, d * (float)(2 * (h >> 12 & 7) + 1));
    }
}

void dequant_iq1_m(const void *block, float *dst) {
    const block_iq1_m *b = block;
    unsigned           half = 0;
    for (int i = 0; i < 4; i++) half |= (unsigned)(b->scales[i] >> 12) << (4 * i);
    float d = tensor_f16_to_f32((uint16_t)half);
    for (int i = 0; i < 32; i++) {
        unsigned h = b->qh[i / 2] >> (4 * (i % 2)) & 15u;
        unsigned s = b->scales[i / 8] >> (3 * (i % 8 / 2)) & 7u;
        put_shifted(dst + 8 * i, b->qs[i] | (h & 7) << 8, h >> 3, d * (float)(2 * s + 1));
    }
}

void dequant_iq4_nl(const void *block, float *dst) {
    const block_iq4_nl *b = block;
    float               d = tensor_f16_to_f32(b->d);
    for (int j = 0; j < 16; j++) {
        dst[j] = d * (float)tensor_iq4_values[b->qs[j] & 15];
        dst[j + 16] = d * (float)tensor_iq4_values[b->qs[j] >> 4];
    }
}

void dequant_iq4_xs(const void *block, float *dst) {
    const block_iq4_xs *b = block;
    float               d = tensor_f16_to_f32(b->d);
    for (int g = 0; g < 8; g++) {
        float scale = d * (float)block_iq4_xs_scale(b, g);
        for (int j = 0; j < 16; j++) {
            uint8_t byte = b->qs[16 * g + j];
            dst[32 * g + j] = scale * (float)tensor_iq4_values[byte & 15];
            dst[32 * g + j + 16] = scale * (float)tensor_iq4_values[byte >> 4];
        }
    }
}
