/* SPDX-License-Identifier: Apache-2.0 */
/* One sum per output. F16 and BF16 become f32 first: plain C may not read them where they are not aligned. */
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/impl/matmul_float.h"

MATMUL_FLOAT_TYPE(f32, 4)

const matmul_floats matmul_floats_scalar = { .dots = { [TENSOR_F32] = MATMUL_DOTS_LIST(f32) },
                                             .rows = { [TENSOR_F32] = MATMUL_DOTSF } };
