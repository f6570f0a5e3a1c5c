/* SPDX-License-Identifier: Apache-2.0 */
/* The int8 tile with AVX-VNNI's vpdpbusd on ymm registers. This file alone is compiled with -mavxvnni. */
#define DOT4 1
#ifndef MATMUL_DPBUSD
#define MATMUL_DPBUSD _mm256_dpbusd_avx_epi32
#endif
#include "kernels/cpu/avx2/matmul_tile8_impl.h"

MATMUL_TILES8(avxvnni)
