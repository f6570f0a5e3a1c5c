/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of CPU kernels: plain functions over pointers, strides and counts. No model, no file, no malloc, no global.
 *
 * kernels_init fills every slot with its scalar twin, then lets each instruction set of `cpu` override what it does
 * better. The table is read-only afterwards and may be shared by threads. It is made of sub-tables, each with its own
 * header (kernels/matmul.h, attn.h, ops.h, recur.h), which declares
 *
 *     kernels_<sub>_init_scalar(t)        fills every slot
 *     kernels_<sub>_init_<set>(t, cpu)    fills the slots that avx2, avx512 or neon improves; `cpu` is the whole mask,
 *                                         for AVX-VNNI, BF16, dotprod, i8mm
 *     kernels_<sub>_list(t, visit, ctx)   names every slot and its set
 *
 * Functions of a set that this build's processor cannot have do not exist: guard their use with KERNELS_X86 and
 * KERNELS_ARM. kernels/slot.h makes a slot remember which set filled it.
 */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include "kernels/attn.h"
#include "kernels/cpu.h"
#include "kernels/matmul.h"
#include "kernels/ops.h"
#include "kernels/recur.h"
#include "kernels/slot.h"

typedef struct kernels {
    unsigned cpu; /* the sets in use */

    kernels_matmul matmul;
    kernels_attn   attn;
    kernels_ops    ops;
    kernels_recur  recur;
} kernels;

/* `cpu` is usually cpu_detect() & a mask; flags without their prerequisites are dropped. */
void kernels_init(kernels *k, unsigned cpu);

/* Calls visit for every slot of every sub-table. */
void kernels_list(const kernels *k, kernels_visit *visit, void *ctx);

#endif
