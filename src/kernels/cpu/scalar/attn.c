/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar twins of attention and page access: the code is cpu/impl, the order of operations is in kernels/attn.h. */
#include "kernels/attn.h"
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/vec/math.h"

#include "kernels/cpu/impl/kv_impl.h"

#include "kernels/cpu/impl/attn_impl.h"

void kernels_attn_init_scalar(kernels_attn *t) {
    KERNEL_USE(t, rows, VFN(attn_rows), VSET);
    KERNEL_USE(t, partial, VFN(attn_partial), VSET);
    KERNEL_USE(t, combine, VFN(attn_combine), VSET);
    KERNEL_USE(t, index, VFN(attn_index), VSET);
    KERNEL_USE(t, kv_store, VFN(kv_store), VSET);
}
