/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The codebooks of the IQ types. A row of 8 (IQ3: 4) small integers is one number of 2-bit (IQ3: 3-bit) level indices,
 * first element lowest. IQ1_M uses the codebook of IQ1_S. The numbers are in iq_numbers.h.
 *
 *   IQ1_S                  levels -1 0 1            = index - 1
 *   IQ2_XXS IQ2_XS IQ2_S   levels 8 25 43
 *   IQ3_XXS                levels 4 12 20 28 36 44 52 62
 *   IQ3_S                  levels 1 3 5 7 9 11 13 15 = 2 * index + 1
 */
#ifndef TENSOR_IQ_GRIDS_H
#define TENSOR_IQ_GRIDS_H

#include <stdint.h>

extern const uint16_t tensor_iq1_s_grid[2048];
extern const uint16_t tensor_iq2_xxs_grid[256];
extern const uint16_t tensor_iq2_xs_grid[512];
extern const uint16_t tensor_iq2_s_grid[1024];
extern const uint16_t tensor_iq3_xxs_grid[256];
extern const uint16_t tensor_iq3_s_grid[512];

extern const int8_t tensor_iq4_values[16]; /* IQ4_NL and IQ4_XS */

static inline void tensor_iq1_row(int8_t out[8], unsigned index) {
    unsigned code = tensor_iq1_s_grid[index];
    for (int i = 0; i < 8; i++) out[i] = (int8_t)((int)(code >> (2 * i) & 3) - 1);
}

/* For the three IQ2 grids: pass tensor_iq2_s_grid[index] or its sisters. */
static inline void tensor_iq2_row(int8_t out[8], unsigned code) {
    static const int8_t levels[4] = { 8, 25, 43, 0 };
    for (int i = 0; i < 8; i++) out[i] = levels[code >> (2 * i) & 3];
}

static inline void tensor_iq3_xxs_row(int8_t out[4], unsigned index) {
    static const int8_t levels[8] = { 4, 12, 20, 28, 36, 44, 52, 62 };
    unsigned            code = tensor_iq3_xxs_grid[index];
    for (int i = 0; i < 4; i++) out[i] = levels[code >> (3 * i) & 7];
}

static inline void tensor_iq3_s_row(int8_t out[4], unsigned index) {
    unsigned code = tensor_iq3_s_grid[index];
    for (int i = 0; i < 4; i++) out[i] = (int8_t)(2 * (code >> (3 * i) & 7) + 1);
}

/* Seven sign bits and the eighth that makes their number even; bit set = minus. */
static inline unsigned tensor_iq_signs(unsigned index) {
    return index | ((unsigned)__builtin_popcount(index) & 1u) << 7;
}

#endif
