/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 of kernels/ops.h: the code and its order of operations are in cpu/impl. */
#include "kernels/ops.h"
#include "kernels/cpu/vec/avx512.h"

#include "kernels/cpu/vec/math.h"

#include "kernels/cpu/impl/ops_map.h"

#include "kernels/cpu/impl/ops_low_rank.h"
#include "kernels/cpu/impl/ops_norm.h"
#include "kernels/cpu/impl/ops_select.h"

void kernels_ops_init_avx512(kernels_ops *t, unsigned cpu) {
    (void)cpu;
    KERNEL_USE(t, rms_norm, VFN(rms_norm), VSET);
    KERNEL_USE(t, layer_norm, VFN(layer_norm), VSET);
    KERNEL_USE(t, l2_norm, VFN(l2_norm), VSET);
    KERNEL_USE(t, act, VFN(act), VSET);
    KERNEL_USE(t, glu, VFN(glu), VSET);
    KERNEL_USE(t, embed, VFN(embed), VSET);
    KERNEL_USE(t, clip, VFN(clip), VSET);
    KERNEL_USE(t, softcap, VFN(softcap), VSET);
    KERNEL_USE(t, add, VFN(add), VSET);
    KERNEL_USE(t, scale, VFN(scale), VSET);
    KERNEL_USE(t, axpy, VFN(axpy), VSET);
    KERNEL_USE(t, weighted_sum, VFN(weighted_sum), VSET);
    KERNEL_USE(t, rope, VFN(rope), VSET);
    KERNEL_USE(t, route, VFN(route), VSET);
    KERNEL_USE(t, shrink, VFN(shrink), VSET);
    KERNEL_USE(t, expand, VFN(expand), VSET);
}
