/* SPDX-License-Identifier: Apache-2.0 */
/* AVX2 kernels of the 32-wide blocks. */
#include "kernels/cpu/avx2/matmul_few.h"

MATMUL_FORMATS_BLOCKS
