/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/recur.h"

void kernels_recur_list(const kernels_recur *t, kernels_visit *visit, void *ctx) {
#define X(fn, slot) KERNEL_VISIT(t, "recur", slot);
    KERNELS_RECUR_SLOTS(X)
#undef X
}
