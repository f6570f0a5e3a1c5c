/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table of embeddings, as the file has them, to f32: the values of tensor/dequant.c, bit for bit. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/picks.h"

#define THREADS 256

__device__ static inline uint32_t two_bytes(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
__device__ static inline float    half_at(const uint8_t *p) {
    return __half2float(__ushort_as_half((unsigned short)two_bytes(p)));
}

/* Q4_K, and Q5_K with fifth bits. */
__device__ static inline float k4_at(const uint8_t *b, int i, bool fifth) {
    const uint8_t *s = b + 4;
    const int      g = i / 32, low = b[(fifth ? 48 : 16) + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
    const int      q = fifth ? low | (b[16 + i % 32] >> g & 1) << 4 : low;
    const int      sc = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    const int      mn = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
    return half_at(b) * (float)sc * (float)q - half_at(b + 2) * (float)mn;
}

__device__ static inline float q6_k_at(const uint8_t *b, int i) {
    const int h = i / 128, s = i % 128 / 32, l = i % 32;
    const int q = (b[64 * h + 32 * (s % 2) + l] >> (s / 2 * 4) & 15) | (b[128 + 32 * h + l] >> (2 * s) & 3) << 4;
    return half_at(b + 208) * (float)(int8_t)b[192 + i / 16] * (float)(q - 32);
}

/* Two bits of each value as Q2_K and Q3_K have them. */
__device__ static inline int two_bits(const uint8_t *qs, int i) {
    return qs[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

__device__ static inline float q2_k_at(const uint8_t *b, int i) {
    const int s = b[i / 16];
    return half_at(b + 80) * (float)(s & 15) * (float)two_bits(b + 16, i) - half_at(b + 82) * (float)(s >> 4);
}

__device__ static inline float q3_k_at(const uint8_t *b, int i) {
    const uint8_t *s = b + 96;
    const int      g = i / 16, q = two_bits(b + 32, i) | (b[i % 32] >> (i / 32) & 1) << 2;
    const int      sc = (s[g % 8] >> (g < 8 ? 0 : 4) & 15) | (s[8 + g % 4] >> (g / 4 * 2) & 3) << 4;
    return half_at(b + 108) * (float)(sc - 32) * (float)(q - 4);
}

/* Q4_1, Q5_0 and Q5_1 from their nibbles on; the fifth bits, where there are any, in front of them. */
__device__ static inline int five_bits(const uint8_t *qs, int i, bool fifth) {
    const int q = qs[i % 16] >> (i / 16 * 4) & 15;
    return fifth ? q | (qs[i / 8 - 4] >> (i % 8) & 1) << 4 : q;
}

/* Twice the e2m1 number, which is whole, times half of the block's power of two. */
__device__ static inline float mxfp4_at(const uint8_t *b, int i) {
    const int   q = b[1 + i % 16] >> (i / 16 * 4) & 15, m = q & 7, twice = m < 2 ? m : (2 + m % 2) << (m / 2 - 1);
    const float d = __uint_as_float(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23);
    return d * (float)(q & 8 ? -twice : twice);
}

__device__ static inline float value_at(tensor_type type, const uint8_t *row, int64_t i) {
    switch (type) {
    case TENSOR_Q4_0: {
        const uint8_t *b = row + i / 32 * 18;
        return half_at(b) * (float)((b[2 + i % 16] >> (i % 32 / 16 * 4) & 15) - 8);
    }
    case TENSOR_Q8_0: return half_at(row + i / 32 * 34) * (float)(int8_t)row[i / 32 * 34 + 2 + i % 32];
    case TENSOR_Q4_1: {
        const uint8_t *b = row + i / 32 * 20;
        return half_at(b) * (float)five_bits(b + 4, (int)(i % 32), false) + half_at(b + 2);
    }
    case TENSOR_Q5_0: {
        const uint8_t *b = row + i / 32 * 22;
        return half_at(b) * (float)(five_bits(b + 6, (int)(i % 32), true) - 16);
    }
    case TENSOR_Q5_1: {
        const uint8_t *b = row + i / 32 * 24;
        return half_at(b) * (float)five_bits(b + 8, (int)(i % 32), true) + half_at(b + 2);
    }
    case TENSOR_Q2_K: return q2_k_at(row + i / 256 * 84, (int)(i % 256));
    case TENSOR_Q3_K: return q3_k_at(row + i / 256 * 110, (int)(i % 256));
    case TENSOR_Q4_K: return k4_at(row + i / 256 * 144, (int)(i % 256), false);
    case TENSOR_Q5_K: return k4_at(row + i / 256 * 176, (int)(i % 256), true);
    case TENSOR_Q6_K: return q6_k_at(row + i / 256 * 210, (int)(i % 256));
    case TENSOR_MXFP4: return mxfp4_at(row + i / 32 * 17, (int)(i % 32));
    case TENSOR_F32: return ((const float *)(const void *)row)[i];
    case TENSOR_BF16: return __uint_as_float(two_bytes(row + i * 2) << 16);
    default: return half_at(row + i * 2);
    }
}

/* Which row of the table a token takes; those that are guessed stand with the lists of the step before. */
__device__ static inline int64_t row_of(const cuda_embed_table &r, int64_t t) {
    if (!r.token) return t;
    const int32_t id = r.token[t] >= 0 ? r.token[t] : r.lists[~r.token[t]].guess;
    return min((int64_t)id, r.n_rows - 1);
}

static __global__ __launch_bounds__(THREADS) void embed_kernel(float *to, const cuda_embed_table r, int64_t n,
                                                               float scale) {
    launch_begin();
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n * r.cols) return;
    const float v = value_at(r.type, (const uint8_t *)r.rows + row_of(r, i / r.cols) * (int64_t)r.row_bytes, i % r.cols);
    to[i] = scale != 1.0f ? v * scale : v;
}

bool cuda_can_embed(tensor_type type) {
    switch (type) {
    case TENSOR_F32:
    case TENSOR_F16:
    case TENSOR_BF16:
    case TENSOR_Q4_0:
    case TENSOR_Q4_1:
    case TENSOR_Q5_0:
    case TENSOR_Q5_1:
    case TENSOR_Q8_0:
    case TENSOR_Q2_K:
    case TENSOR_Q3_K:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
    case TENSOR_Q6_K:
    case TENSOR_MXFP4: return true;
    default: return false;
    }
}

int cuda_op_embed_tokens(float *to, const cuda_embed_table *r, int64_t n, float scale, cuda_stream s, err *e) {
    const cuda_shape shape = { (unsigned)((n * r->cols + THREADS - 1) / THREADS), THREADS, 1, 0, true };
    return n ? cuda_launch(embed_kernel, shape, s, e, to, *r, n, scale) : 0;
}

int cuda_op_embed(float *to, const void *rows, tensor_type type, int64_t n, int64_t cols, size_t row_bytes, float scale,
                  cuda_stream s, err *e) {
    const cuda_embed_table r = { rows, type, n, cols, row_bytes, NULL, NULL };
    return cuda_op_embed_tokens(to, &r, n, scale, s, e);
}
