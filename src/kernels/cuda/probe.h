/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device can do, measured apart from any product: how fast it reads, and how its tensor cores add. The second is
 * the gate of product.h: chains of mma.sync and of wgmma must give the bits of cuda_twin_chain.
 */
#ifndef KERNELS_CUDA_PROBE_H
#define KERNELS_CUDA_PROBE_H

#include "kernels/cuda/device.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `bytes` (a multiple of 16) and writes one word per block that depends on all of them; `sink` has 64 KiB. */
int cuda_probe_read(const cuda_device *d, const void *from, size_t bytes, void *sink, cuda_stream s, err *e);

/*
 * out[m][n] = sum over k of a[m][k] * b[n][k] as one chain of k16 steps from zero. a and b are images (layout.h) of
 * m_pad and n_pad rows, multiples of 64 and 8. wgmma: by m64n8k16 (9.0 only), else by mma.m16n8k16. swap: a is the
 * instruction's second operand.
 */
int cuda_probe_chain(const cuda_device *d, float *out, const void *a, const void *b, int m_pad, int n_pad, int cols,
                     bool bf16, bool wgmma, bool swap, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif
