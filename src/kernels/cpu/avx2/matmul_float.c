/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/vec/avx2.h"

/* 16 weight rows pass through L1 for every 3 activation rows otherwise, converted each time. */
#define MATMUL_FLOAT_BLOCKED
#include "kernels/cpu/impl/matmul_float.h"

MATMUL_FLOAT_SET(avx2, 6, 3)
