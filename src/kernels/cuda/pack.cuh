/* SPDX-License-Identifier: Apache-2.0 */
/* What packing of all types shares. Blocks of a file are not aligned: they are read by bytes. */
#ifndef KERNELS_CUDA_PACK_CUH
#define KERNELS_CUDA_PACK_CUH

#include "kernels/cuda/unpack.cuh"

struct pack_args {
    const uint8_t *from;
    size_t         row_bytes;
    uint8_t       *to;
    int64_t        rows, cols, rows_pad, n_kt;
    int            power; /* the weights are divided by two to this power */
    int64_t        pitch; /* of an image */
};

__device__ static inline uint32_t byte_pair(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
__device__ static inline float    half_at(const uint8_t *p) { return __half2float(__ushort_as_half(byte_pair(p))); }

/* A number times 2^e as a half. */
__device__ static inline uint32_t halved(float v, int e) { return __half_as_ushort(__float2half_rn(ldexpf(v, e))); }

/* What a matrix's power is chosen by (cuda_pack_power); of what is not finite nothing is kept anyway. */
__device__ static inline uint32_t top_of(float v) { return fabsf(v) < INFINITY ? __float_as_uint(fabsf(v)) : 0; }

#endif
