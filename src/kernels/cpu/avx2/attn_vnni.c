/* SPDX-License-Identifier: Apache-2.0 */
/* Attention as in avx2/attn.c with AVX-VNNI's vpdpbusd, which takes every page type with scales as bytes. Files *_vnni.c are
 * compiled with -mavxvnni. */
#define VNNI 1
#include "kernels/attn.h"
#include "kernels/cpu/vec/avx2.h"

#include "kernels/cpu/vec/math.h"

#include "kernels/cpu/impl/kv_impl.h"

#include "kernels/cpu/impl/attn_impl.h"

void kernels_attn_init_avxvnni(kernels_attn *t) {
    KERNEL_USE(t, rows, VFN(attn_rows), VSET);
    KERNEL_USE(t, partial, VFN(attn_partial), VSET);
    KERNEL_USE(t, combine, VFN(attn_combine), VSET);
    KERNEL_USE(t, index, VFN(attn_index), VSET);
    KERNEL_USE(t, kv_store, VFN(kv_store), VSET);
}
