/* SPDX-License-Identifier: Apache-2.0 */
/* Which experts a row takes, by one warp. */
#ifndef KERNELS_CUDA_ROUTE_CUH
#define KERNELS_CUDA_ROUTE_CUH

#include "kernels/cuda/layout.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/reduce.cuh"

/* The largest of v[0..n) that is not NaN's equal -INFINITY by mark; among equals the lowest index; -1: none. */
__device__ static inline int best_of(const float *v, const uint8_t *taken, int n, int lane) {
    float most = 0;
    int   at = -1;
    for (int i = lane; i < n; i += 32) {
        if (!taken[i] && (at < 0 || v[i] > most)) most = v[i], at = i;
    }
#pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
        const float m = __shfl_xor_sync(0xffffffffu, most, o);
        const int   k = __shfl_xor_sync(0xffffffffu, at, o);
        if (k >= 0 && (at < 0 || m > most || (m == most && k < at))) most = m, at = k;
    }
    return at;
}

/* Marks the experts outside of the best groups; a group scores as its best two. */
__device__ static inline void mask_groups(const cuda_route &a, const float *choice, uint8_t *taken, float *value,
                                          uint8_t *used, int lane) {
    const int per = a.n_expert / a.n_group;
    for (int g = 0; g < a.n_group; g++) {
        const int i = best_of(choice + g * per, taken + g * per, per, lane);
        __syncwarp();
        if (lane == 0) taken[g * per + i] = 1;
        __syncwarp();
        const int k = per > 1 ? best_of(choice + g * per, taken + g * per, per, lane) : -1;
        __syncwarp();
        if (lane == 0) {
            taken[g * per + i] = 0;
            value[g] = choice[g * per + i] + (k >= 0 && !a.group_best ? choice[g * per + k] : 0.0f);
            used[g] = 0;
        }
        __syncwarp();
    }
    for (int i = 0; i < a.top_group; i++) {
        const int g = best_of(value, used, a.n_group, lane);
        __syncwarp();
        if (lane == 0 && g >= 0) used[g] = 1;
        __syncwarp();
    }
    for (int i = lane; i < a.n_expert; i += 32) taken[i] = !used[i / per];
    __syncwarp();
}

/* Twice the best that is left; its weight is its share among those that come near it. */
__device__ static inline void route_sparsemixer(const cuda_route &a, const float *v, uint8_t *taken, float *out,
                                                int lane) {
    for (int i = lane; i < a.n_expert; i += 32) taken[i] = 0;
    __syncwarp();
    for (int k = 0; k < 2; k++) {
        const int id = max(0, best_of(v, taken, a.n_expert, lane));
        float     sum = 0;
        for (int i = lane; i < a.n_expert; i += 32) {
            const bool near = v[id] - v[i] <= 2 * a.jitter * fmaxf(fabsf(v[i]), v[id]);
            if (near && !taken[i]) sum += expf(v[i] - v[id]);
        }
        sum = warp_sum(sum);
        __syncwarp();
        if (lane == 0) {
            taken[id] = 1;
            reinterpret_cast<int32_t *>(out)[k * 2] = id;
            out[k * 2 + 1] = 1.0f / sum * a.scale * (a.expert_scale ? a.expert_scale[id] : 1.0f);
        }
        __syncwarp();
    }
}

/* Shared memory of a row: scores, choices, group values; then marks of experts and groups. */
CUDA_BOTH static inline size_t route_bytes(int n_expert) {
    return cuda_round_up((int64_t)n_expert * (3 * (int64_t)sizeof(float) + 2), 16);
}

/* An integer that grows with a float; NaN is the least. */
__device__ static inline uint32_t route_key(float v) {
    const uint32_t bits = __float_as_uint(v + 0.0f); /* -0 becomes 0 */
    return v != v ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

/* The best `n_used` of up to 32 * N choices, one after the other, as best_of finds them. */
template <int N>
__device__ static inline float route_best(const cuda_route &a, const float *score, const float *choice, float *out,
                                          int lane) {
    uint32_t key[N]; /* 0: taken */
    float    total = 0;
#pragma unroll
    for (int j = 0; j < N; j++) key[j] = lane + j * 32 < a.n_expert ? route_key(choice[lane + j * 32]) : 0;
    for (int k = 0; k < a.n_used; k++) {
        uint32_t most = key[0], at = UINT32_MAX;
#pragma unroll
        for (int j = 1; j < N; j++) most = max(most, key[j]);
        most = __reduce_max_sync(0xffffffffu, most);
#pragma unroll
        for (int j = N - 1; j >= 0; j--) {
            if (key[j] == most) at = (uint32_t)(lane + j * 32);
        }
        at = most ? __reduce_min_sync(0xffffffffu, at) : 0;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if ((int)at == lane + j * 32) key[j] = 0;
        }
        if (lane == 0) reinterpret_cast<int32_t *>(out)[k * 2] = (int32_t)at;
        total += score[at];
    }
    __syncwarp();
    return total;
}

/* The best choices that are not marked. Returns the sum of their scores. */
__device__ static inline float route_marked(const cuda_route &a, const float *score, const float *choice, uint8_t *taken,
                                            float *out, int lane) {
    float total = 0;
    for (int k = 0; k < a.n_used; k++) {
        int i = best_of(choice, taken, a.n_expert, lane);
        __syncwarp();
        if (i < 0) i = 0;
        if (lane == 0) taken[i] = 1, reinterpret_cast<int32_t *>(out)[k * 2] = i;
        __syncwarp();
        total += score[i];
    }
    __syncwarp();
    return total;
}

/* The choice of one row: n_used experts and their weights to out. */
__device__ static inline void route_row(const cuda_route &a, const float *logits, float *out, float *room, int lane) {
    float   *score = room, *choice = score + a.n_expert, *value = choice + a.n_expert;
    uint8_t *taken = reinterpret_cast<uint8_t *>(value + a.n_expert), *used = taken + a.n_expert;
    float    most = -INFINITY, sum = 0, total = 0;
    if (a.sparsemixer) {
        route_sparsemixer(a, logits, taken, out, lane);
        return;
    }
    for (int i = lane; i < a.n_expert; i += 32) most = fmaxf(most, logits[i]);
    most = warp_max(most);
    for (int i = lane; i < a.n_expert; i += 32) {
        score[i] = a.softmax ? expf(logits[i] - most) : 1.0f / (1.0f + expf(-logits[i]));
        sum += score[i];
        taken[i] = 0;
    }
    sum = warp_sum(sum);
    for (int i = lane; i < a.n_expert; i += 32) {
        if (a.softmax) score[i] /= sum;
        choice[i] = score[i] + (a.bias ? a.bias[i] : 0.0f);
    }
    __syncwarp();
    if (a.n_group > 1) mask_groups(a, choice, taken, value, used, lane);
    if (a.n_group <= 1 && a.n_expert <= 32) {
        total = route_best<1>(a, score, choice, out, lane);
    } else if (a.n_group <= 1 && a.n_expert <= 128) {
        total = route_best<4>(a, score, choice, out, lane);
    } else {
        total = route_marked(a, score, choice, taken, out, lane);
    }
    for (int k = lane; k < a.n_used; k += 32) {
        const int i = reinterpret_cast<const int32_t *>(out)[k * 2];
        float     w = score[i];
        if (a.renorm) w /= total + a.renorm_eps;
        w *= a.scale;
        if (a.expert_scale) w *= a.expert_scale[i];
        out[k * 2 + 1] = w;
    }
}

#endif
