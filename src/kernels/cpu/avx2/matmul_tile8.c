/* SPDX-License-Identifier: Apache-2.0 */
/* The int8 tile without a 4-byte dot product (vpmaddubsw). */
#include "kernels/cpu/avx2/matmul_tile8_impl.h"

MATMUL_TILES8(avx2)
