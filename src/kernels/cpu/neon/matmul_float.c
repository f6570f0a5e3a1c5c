/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/cpu/vec/neon.h"

#include "kernels/cpu/impl/matmul_float.h"

MATMUL_FLOAT_SET(neon, 6, 6)
