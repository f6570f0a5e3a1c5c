/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot: a function pointer beside the name of the instruction set that filled it.
 *
 * A sub-table lists its slots once, as a macro of X(function type, slot), and everything else follows from the list:
 *
 *     typedef void norm_rms_fn(float *dst, const float *src, ...);
 *     #define KERNELS_OPS_SLOTS(X) X(norm_rms_fn, norm_rms) X(glu_fn, glu_silu)
 *     typedef struct kernels_ops { KERNELS_OPS_SLOTS(KERNEL_SLOT) } kernels_ops;
 *
 *     void kernels_ops_init_avx2(kernels_ops *t, unsigned cpu) { KERNEL_USE(t, norm_rms, norm_rms_avx2, "avx2"); }
 *
 *     void kernels_ops_list(const kernels_ops *t, kernels_visit *visit, void *ctx) {
 *     #define X(fn, slot) KERNEL_VISIT(t, "ops", slot);
 *         KERNELS_OPS_SLOTS(X)
 *     #undef X
 *     }
 *
 * Slots that are arrays (one function per tensor type) are listed by hand: visit(ctx, "matmul.unpack.Q4_K", set).
 */
#ifndef KERNELS_SLOT_H
#define KERNELS_SLOT_H

#if defined(__x86_64__)
#define KERNELS_X86 1
#else
#define KERNELS_X86 0
#endif
#if defined(__aarch64__)
#define KERNELS_ARM 1
#else
#define KERNELS_ARM 0
#endif

typedef void kernels_visit(void *ctx, const char *slot, const char *set);

#define KERNEL_SLOT(fn, slot)                                                                                          \
    fn         *slot;                                                                                                  \
    const char *slot##_set;
#define KERNEL_USE(t, slot, function, set) ((void)((t)->slot = (function), (t)->slot##_set = (set)))
#define KERNEL_VISIT(t, table, slot) visit(ctx, table "." #slot, (t)->slot##_set)

#endif
