/* SPDX-License-Identifier: Apache-2.0 */
/* The sums under way in the kernels for a few activation rows, for both vector lengths of x86. The including file has
 * included impl/matmul_formats.h. */
#ifndef KERNELS_CPU_IMPL_MATMUL_FEW_SUMS_H
#define KERNELS_CPU_IMPL_MATMUL_FEW_SUMS_H

typedef struct few {
    const matmul_few *x;    /* of the part's first inputs */
    const uint8_t    *line; /* the next to ask for, of a row further with every quad */
    size_t            stride;
    int               at_group;
    format_head       head;
    vf                acc[MATMUL_FEW];
    vi                sum[MATMUL_FEW];
    vi                run[MATMUL_FEW]; /* sums that are still in 16 bits, where a set has such */
} few;

#endif
