/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of one head to the bytes of a compressed page, by a warp: 32 dimensions at a time, lane by lane, so that a group of a
 * scale is one value per lane. Sums, quotients and roundings are those of kernels/cpu/impl/kv_pack.h and kv_rotate.h, in
 * their order: the bytes are the same.
 */
#ifndef KERNELS_CUDA_PACKED_STORE_CUH
#define KERNELS_CUDA_PACKED_STORE_CUH

#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/reduce.cuh"

#include <cuda_bf16.h>

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* What a warp makes of a row before it is packed. */
template <int DIM> struct packed_row {
    int8_t   n[DIM];
    uint16_t scale[DIM / 8];
    float    x[DIM]; /* of f32, f16 and bf16 sides */
};

__device__ static inline uint16_t scale_of(float d) {
    d = d > 65504.0f ? 65504.0f : d;
    d = d < -65504.0f ? -65504.0f : d;
    return __half_as_ushort(__float2half_rn(d));
}

/* A group of up to 32 values, one per lane (0 behind the last); lowest as in kv_pack.h. */
__device__ static inline int group_number(float v, int lowest, uint16_t *scale) {
    const float    a = fabsf(v), most = warp_max(a == a ? a : 0.0f);
    const unsigned who = __ballot_sync(0xffffffffu, a == most);
    const float    top = most > 0 ? __shfl_sync(0xffffffffu, v, __ffs((int)who) - 1) : 0.0f;
    *scale = scale_of(lowest ? top / (float)-lowest : most / 127.0f);
    const float df = __half2float(__ushort_as_half(*scale));
    const float lo = lowest ? (float)-lowest : -127.0f, hi = lowest ? (float)(lowest - 1) : 127.0f;
    float       q = df != 0.0f ? rintf(v / df) : 0.0f;
    q = q < hi ? q : hi;
    q = q > lo ? q : lo;
    return (int)q + lowest;
}

/* A block of a codebook type: each lane's N indices. */
template <int N>
__device__ static inline void block_numbers(const float v[N], kv_type type, const int8_t *codes, int at[N],
                                            uint16_t *scale, int lane) {
    const int   entries = type == KV_TQ4 ? 16 : type == KV_TQ3 ? 8 : 4;
    const float top = type == KV_TQ4 ? 2.7326f : type == KV_TQ3 ? 2.1520f : 1.5104f;
    float       square = 0;
#pragma unroll
    for (int i = 0; i < N; i++) { /* 16 chains: element j, j + 16, ... */
        const float mine = v[i] * v[i];
        square += __shfl_sync(0xffffffffu, mine, lane % 16);
        square += __shfl_sync(0xffffffffu, mine, lane % 16 + 16);
    }
#pragma unroll
    for (int h = 8; h > 0; h /= 2) square += __shfl_down_sync(0xffffffffu, square, h);
    const float norm = sqrtf(__shfl_sync(0xffffffffu, square, 0));
    const float g = norm > 0.0f ? 127.0f / top * sqrtf((float)(32 * N)) / norm : 0.0f;
    int         sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float r = v[i] * g;
        at[i] = 0;
        for (int k = 0; k + 1 < entries; k++) at[i] += r > 0.5f * (float)(codes[k] + codes[k + 1]);
        sum += codes[at[i]] * codes[at[i]];
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    *scale = scale_of(norm / sqrtf((float)sum));
}

__device__ static inline uint8_t fp8_of(float x) {
    uint32_t      u = __float_as_uint(x);
    const uint8_t sign = (uint8_t)(u >> 24 & 0x80);
    const float   a = fabsf(x);
    if (x != x) return 0x7e;
    if (a >= 448.0f) return sign | 0x7e;
    if (a < 0x1p-6f) return (uint8_t)(sign | (uint8_t)rintf(a * 512.0f));
    u &= 0x7fffffffu;
    u = (u + 0x7ffffu + (u >> 20 & 1u)) >> 20;
    return (uint8_t)(sign | (u - (120u << 3)));
}

struct side {
    kv_type       type;
    int           dim, block, group;
    const int8_t *codes;
};

/* One rotation block of a row (N * 32 values) to numbers and scales. */
template <int N, class Row>
__device__ static inline void rotated_numbers(const cuda_packed &p, const side &s, Row &row, int at,
                                              float v[N], int lane) {
    int      n[N];
    uint16_t scale;
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = v[i] == v[i] ? v[i] : 0.0f;
        v[i] = v[i] > 0x1p20f ? 0x1p20f : v[i] < -0x1p20f ? -0x1p20f : v[i];
        v[i] = packed_flip(v[i], p.signs[i], lane);
    }
    packed_hadamard<N>(v, lane);
    if (s.type == KV_TQ4 || s.type == KV_TQ3 || s.type == KV_TQ2) {
        block_numbers<N>(v, s.type, s.codes, n, &scale, lane);
        if (lane == 0) row.scale[at / s.group] = scale;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) {
            n[i] = group_number(v[i], s.type == KV_Q8_0 ? 0 : s.type == KV_Q5_0 ? 16 : 8, &scale);
            if (lane == 0) row.scale[at / KV_GROUP + i] = scale;
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++) row.n[at + i * 32 + lane] = (int8_t)n[i];
}

/* Where the values of a row are: the first n_first of them in one place; turned by position where c is not NULL. */
struct row_source {
    const float *first, *rest, *c;
    int          n_first, n;
    bool         interleaved;

    __device__ inline float at(int i) const {
        return i >= n_first ? rest[i - n_first] : packed_turned(first, i, c, n, interleaved);
    }
};

/* The numbers of a row. */
template <class Row>
__device__ static inline void make_numbers(const cuda_packed &p, const side &s, Row &row, const row_source &x, int lane) {
    if (s.block == 128) {
        for (int at = 0; at < s.dim; at += 128) {
            float v[4];
#pragma unroll
            for (int i = 0; i < 4; i++) v[i] = x.at(at + i * 32 + lane);
            rotated_numbers<4>(p, s, row, at, v, lane);
        }
    } else if (s.block == 64) {
        for (int at = 0; at < s.dim; at += 64) {
            float v[2];
#pragma unroll
            for (int i = 0; i < 2; i++) v[i] = x.at(at + i * 32 + lane);
            rotated_numbers<2>(p, s, row, at, v, lane);
        }
    } else if (s.block == 32) {
        for (int at = 0; at < s.dim; at += 32) {
            float v[1] = { x.at(at + lane) };
            rotated_numbers<1>(p, s, row, at, v, lane);
        }
    } else if (s.type == KV_Q8_0 || s.type == KV_Q4_0) { /* heads that cannot be rotated */
        for (int at = 0; at < s.dim; at += KV_GROUP) {
            const bool in = at + lane < s.dim;
            uint16_t   scale;
            const int  n = group_number(in ? x.at(at + lane) : 0.0f,
                                        s.type == KV_Q8_0 ? 0 : 8, &scale);
            if (in) row.n[at + lane] = (int8_t)n;
            if (lane == 0) row.scale[at / KV_GROUP] = scale;
        }
    } else {
        for (int i = lane; i < s.dim; i += 32) {
            const float v = x.at(i);
            row.x[i] = v;
            row.n[i] = (int8_t)fp8_of(v);
        }
    }
    __syncwarp();
}

/* --- bytes -------------------------------------------------------------------------------------------------------- */

/* NaN keeps its sign and its upper bits. */
__device__ static inline uint16_t half_bits(float x) {
    const uint32_t bits = __float_as_uint(x);
    if (x != x) return (uint16_t)((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
    return __half_as_ushort(__float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f)));
}

__device__ static inline uint16_t bf16_bits(float x) {
    return x != x ? (uint16_t)(__float_as_uint(x) >> 16 | 0x40u) : __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* A value of a side that is not compressed. */
__device__ static inline void put_plain(kv_type type, uint8_t *area, int64_t at, float x) {
    if (type == KV_F32)
        reinterpret_cast<float *>(area)[at] = x;
    else
        reinterpret_cast<uint16_t *>(area)[at] =
            type == KV_F16 ? half_bits(x) : bf16_bits(x);
}

__device__ static inline uint8_t bits8(const int8_t *n, int bit) {
    unsigned b = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) b |= ((unsigned)n[i] >> bit & 1u) << i;
    return (uint8_t)b;
}

__device__ static inline uint8_t crumbs4(const int8_t *n, int step) {
    return (uint8_t)((n[0] & 3) | (n[step] & 3) << 2 | (n[2 * step] & 3) << 4 | (n[3 * step] & 3) << 6);
}

__device__ static inline bool is_scaled(kv_type type) { return type >= KV_Q8_0 && type <= KV_TQ2; }

/* 8 dimensions of K from d on. */
__device__ static inline void pack_k8(kv_type type, const int8_t *n, uint8_t *at, int tokens) {
    switch (type) {
    case KV_Q8_0:
    case KV_FP8:
        for (int i = 0; i < 8; i++) at[i * tokens] = (uint8_t)n[i];
        return;
    case KV_TQ3: {
        unsigned w = 0;
        for (int i = 0; i < 8; i++) w |= (unsigned)n[i] << (3 * i);
        for (int i = 0; i < 3; i++) at[i * tokens] = (uint8_t)(w >> (8 * i));
        return;
    }
    case KV_TQ2:
        at[0] = crumbs4(n, 1);
        at[tokens] = crumbs4(n + 4, 1);
        return;
    default:
        for (int i = 0; i < 4; i++) at[i * tokens] = (uint8_t)((n[2 * i] & 15) | (n[2 * i + 1] & 15) << 4);
        if (type == KV_Q5_0) at[4 * tokens] = bits8(n, 4);
        return;
    }
}

template <class Row>
__device__ static inline void put_k(const kv_layout &l, uint8_t *area, int slot, const Row &row, int lane) {
    const int bits = packed_bits(l.k_type), groups = (l.k_dim + l.k_group - 1) / l.k_group;
    if (bits > 8) {
        for (int d = lane; d < l.k_dim; d += 32) put_plain(l.k_type, area, (int64_t)d * l.tokens + slot, row.x[d]);
        return;
    }
    for (int u = lane; u < l.k_dim / 8; u += 32) pack_k8(l.k_type, row.n + u * 8, area + slot + u * bits * l.tokens, l.tokens);
    uint16_t *s = reinterpret_cast<uint16_t *>(area + (size_t)l.tokens * l.k_dim * bits / 8) + slot;
    for (int g = lane; is_scaled(l.k_type) && g < groups; g += 32) s[g * l.tokens] = row.scale[g];
}

/* A group of up to 32 dimensions of V with less than 8 bits each. */
__device__ static inline void pack_v32(kv_type type, const int8_t *n, int size, uint8_t *b) {
    const int half = size / 2;
    if (type == KV_TQ3) {
        unsigned w[8];
        for (int i = 0; i < 8; i++) {
            w[i] = (unsigned)n[i] | (unsigned)n[i + 8] << 3 | (unsigned)n[i + 16] << 6 | (unsigned)n[i + 24] << 9;
            b[i] = (uint8_t)w[i];
        }
        for (int i = 0; i < 4; i++) b[8 + i] = (uint8_t)(w[i] >> 8 | w[i + 4] >> 8 << 4);
        return;
    }
    if (type == KV_TQ2) {
        for (int i = 0; i < 8; i++) b[i] = crumbs4(n + i, 8);
        return;
    }
    for (int i = 0; i < half; i++) b[i] = (uint8_t)((n[i] & 15) | (n[half + i] & 15) << 4);
    for (int i = 0; type == KV_Q5_0 && i < size; i += 8) b[half + i / 8] = bits8(n + i, 4);
}

template <class Row>
__device__ static inline void put_v(const kv_layout &l, uint8_t *area, int slot, const Row &row, int lane) {
    const int bits = packed_bits(l.v_type), groups = (l.v_dim + l.v_group - 1) / l.v_group;
    uint8_t  *to = area + (size_t)slot * l.v_dim * bits / 8;
    for (int d = lane; bits > 8 && d < l.v_dim; d += 32) put_plain(l.v_type, to, d, row.x[d]);
    for (int d = lane; bits == 8 && d < l.v_dim; d += 32) to[d] = (uint8_t)row.n[d];
    for (int g = lane; bits < 8 && g * KV_GROUP < l.v_dim; g += 32)
        pack_v32(l.v_type, row.n + g * KV_GROUP, min(KV_GROUP, l.v_dim - g * KV_GROUP), to + g * KV_GROUP * bits / 8);
    uint16_t *s = reinterpret_cast<uint16_t *>(area + (size_t)l.tokens * l.v_dim * bits / 8) + (size_t)slot * groups;
    for (int g = lane; is_scaled(l.v_type) && g < groups; g += 32) s[g] = row.scale[g];
}

/* The numbers of both sides. */
template <class Row>
__device__ static inline void packed_numbers_k(const cuda_packed &p, Row &row, const row_source &x, int lane) {
    const kv_layout &l = p.layout;
    make_numbers(p, { l.k_type, l.k_dim, l.k_block, l.k_group, p.k_codes }, row, x, lane);
}

template <class Row>
__device__ static inline void packed_numbers_v(const cuda_packed &p, Row &row, const float *x, int lane) {
    const kv_layout &l = p.layout;
    make_numbers(p, { l.v_type, l.v_dim, l.v_block, l.v_group, p.v_codes }, row, { x, x, NULL, l.v_dim, 0, false }, lane);
}

#endif
