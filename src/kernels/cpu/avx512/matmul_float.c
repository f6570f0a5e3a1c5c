/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/vec/avx512.h"

#define MATMUL_FLOAT_BLOCKED
#include "kernels/cpu/impl/matmul_float.h"

MATMUL_FLOAT_SET(avx512, 6, 6)
