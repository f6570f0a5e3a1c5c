/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for a few rows with AVX-VNNI's vpdpbusd on ymm registers. Files *_vnni.c are compiled with -mavxvnni. */
#define DOT4 1
#include "kernels/cpu/avx2/matmul_few.h"

#undef MATMUL_FORMAT
#define MATMUL_FORMAT(NAME, UNIT, PART, GROUP, ZERO, MIN, LARGEST)                                                     \
    MATMUL_FEW_ROWS(NAME, UNIT, PART, GROUP, MIN, LARGEST)
MATMUL_FORMATS_BLOCKS
MATMUL_FORMATS_K
