/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rotation of kernels/kvpage.h, for every instruction set: y = H (s x) / sqrt(B) of each block, and its inverse
 * y = s (H x) / sqrt(B). Sums and differences of neighbours at distance 1, then 2, up to B / 2, each one addition: the
 * bits are the same on every set. B is at least KV_GROUP, so that blocks hold whole vectors.
 */
#ifndef KERNELS_CPU_IMPL_KV_ROTATE_H
#define KERNELS_CPU_IMPL_KV_ROTATE_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* x[i] with the sign of dimension i of a block. */
static inline void kv_flip(const float *x, int block, float *y) {
    for (int i = 0; i < block; i++) {
        uint32_t u;
        memcpy(&u, x + i, sizeof u);
        u ^= (kv_signs[i / 32] >> (i % 32) & 1u) << 31;
        memcpy(y + i, &u, sizeof u);
    }
}

static inline void kv_hadamard(float *y, int block) {
    const vf scale = vf_set1(1.0f / sqrtf((float)block));
    for (int i = 0; i < block; i += VW) {
        vf v = vf_load(y + i);
        for (int h = 1; h < VW; h *= 2) v = vf_butterfly(v, h);
        vf_store(y + i, v);
    }
    for (int h = VW; h < block; h *= 2) {
        for (int i = 0; i < block; i += 2 * h) {
            for (int j = i; j < i + h; j += VW) {
                const vf a = vf_load(y + j), b = vf_load(y + j + h);
                vf_store(y + j, vf_add(a, b));
                vf_store(y + j + h, vf_sub(a, b));
            }
        }
    }
    for (int i = 0; i < block; i += VW) vf_store(y + i, vf_mul(vf_load(y + i), scale));
}

/* Into rotated space, dim floats in blocks; x and y may be the same. */
static void kv_rotate(const float *x, int dim, int block, float *y) {
    for (int i = 0; i < dim; i += block) {
        kv_flip(x + i, block, y + i);
        kv_hadamard(y + i, block);
    }
}

/* And back, in place. */
static void kv_rotate_back(float *x, int dim, int block) {
    for (int i = 0; i < dim; i += block) {
        kv_hadamard(x + i, block);
        kv_flip(x + i, block, x + i);
    }
}

#endif
