/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/ops.h"

void kernels_ops_list(const kernels_ops *t, kernels_visit *visit, void *ctx) {
#define X(fn, slot) KERNEL_VISIT(t, "ops", slot);
    KERNELS_OPS_SLOTS(X)
#undef X
}
