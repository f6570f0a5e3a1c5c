/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar twins of kernels/ops.h: the code and its order of operations are in cpu/impl. */
#include "kernels/ops.h"
#include "kernels/cpu/vec/scalar.h"

#include "kernels/cpu/vec/math.h"

#include "kernels/cpu/impl/ops_map.h"

#include "kernels/cpu/impl/ops_low_rank.h"
#include "kernels/cpu/impl/ops_norm.h"
#include "kernels/cpu/impl/ops_select.h"

static void rope_table_scalar(float *cs, const int32_t *pos, size_t pos_stride, const uint8_t *axis_of, int64_t row0,
                              int64_t row1, const float *inv_freq, int64_t n_freq, float mscale) {
    for (int64_t t = row0; t < row1; t++) {
        float *c = cs + t * 2 * n_freq, *s = c + n_freq;
        for (int64_t i = 0; i < n_freq; i++) {
            const int32_t p = pos[(axis_of ? axis_of[i] : 0) * pos_stride + (size_t)t];
            const double  x = (double)p * (double)inv_freq[i];
            c[i] = (float)(cos(x) * (double)mscale);
            s[i] = (float)(sin(x) * (double)mscale);
        }
    }
}

void kernels_ops_init_scalar(kernels_ops *t) {
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
    KERNEL_USE(t, rope_table, rope_table_scalar, VSET);
}
