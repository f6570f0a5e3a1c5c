/* SPDX-License-Identifier: Apache-2.0 */
/* The int8 tile with AVX-VNNI's vpdpbusd on ymm registers. Files *_vnni.c are compiled with -mavxvnni. */
#define DOT4 1
#include "kernels/cpu/avx2/matmul_tile8_impl.h"

MATMUL_TILES8(avxvnni)
