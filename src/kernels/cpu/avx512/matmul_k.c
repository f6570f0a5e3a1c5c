/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 kernels of the 256-wide blocks. */
#include "kernels/cpu/avx512/matmul_few.h"
#include "kernels/cpu/avx512/matmul_rows.h"

MATMUL_FORMATS_K
