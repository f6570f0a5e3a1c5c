/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar twins of kernels/recur.h: the code and its order of operations are in cpu/impl. */
#include "kernels/recur.h"
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/vec/math.h"

#include "kernels/cpu/impl/recur_impl.h"

void kernels_recur_init_scalar(kernels_recur *t) {
    KERNEL_USE(t, conv1d, VFN(conv1d), VSET);
    KERNEL_USE(t, delta, VFN(delta), VSET);
    KERNEL_USE(t, decay, VFN(decay), VSET);
    KERNEL_USE(t, ssd, VFN(ssd), VSET);
    KERNEL_USE(t, scan, VFN(scan), VSET);
}
