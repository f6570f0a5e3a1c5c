/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/iq_grids.h"

#include "tensor/iq_numbers.h"

const uint16_t tensor_iq1_s_grid[2048] = { TENSOR_IQ1_S_GRID };
const uint16_t tensor_iq2_xxs_grid[256] = { TENSOR_IQ2_XXS_GRID };
const uint16_t tensor_iq2_xs_grid[512] = { TENSOR_IQ2_XS_GRID };
const uint16_t tensor_iq2_s_grid[1024] = { TENSOR_IQ2_S_GRID };
const uint16_t tensor_iq3_xxs_grid[256] = { TENSOR_IQ3_XXS_GRID };
const uint16_t tensor_iq3_s_grid[512] = { TENSOR_IQ3_S_GRID };

const int8_t tensor_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
