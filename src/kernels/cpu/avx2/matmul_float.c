/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/vec/avx2.h"

#include "kernels/cpu/impl/matmul_float.h"

MATMUL_FLOAT_SET(avx2, 6, 3)
