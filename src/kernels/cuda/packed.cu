/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing into compressed pages and reading them (packed.h). A warp has one row of one head: 32 dimensions at a time, lane
 * by lane, so that a group of a scale is one value per lane. Sums, quotients and roundings are those of
 * kernels/cpu/impl/kv_pack.h and kv_rotate.h, in their order: the bytes are the same.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/packed.cuh"
#include "kernels/cuda/pages.cuh"
#include "kernels/cuda/reduce.cuh"

#define WARPS 4
#define ALL 0xffffffffu

void cuda_packed_init(cuda_packed *p, const kv_layout *l) {
    const kv_type types[2] = { l->k_type, l->v_type };
    p->layout = *l;
    for (int i = 0; i < KV_BLOCK_MAX / 32; i++) p->signs[i] = kv_signs[i];
    for (int side = 0; side < 2; side++) {
        const kv_type_info *t = kv_type_get(types[side]);
        int8_t             *to = side ? p->v_codes : p->k_codes;
        const int           lowest = types[side] == KV_Q5_0 ? 16 : 8;
        for (int n = 0; n < 32; n++) to[n] = (int8_t)(t->coded ? kv_codes(types[side])[n % 16] : n - lowest);
    }
}

/* --- rotation ----------------------------------------------------------------------------------------------------- */

struct rotate_args {
    float       *to;
    const float *from;
    int64_t      blocks;
    bool         back;
    uint32_t     signs[KV_BLOCK_MAX / 32];
};

template <int N> static __global__ __launch_bounds__(WARPS * 32) void rotate_kernel(const rotate_args a) {
    launch_begin();
    const int     lane = (int)threadIdx.x % 32;
    const int64_t block = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (block >= a.blocks) return;
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
        v[i] = a.from[(block * N + i) * 32 + lane];
        if (!a.back) v[i] = packed_flip(v[i], a.signs[i], lane);
    }
    packed_hadamard<N>(v, lane);
#pragma unroll
    for (int i = 0; i < N; i++) a.to[(block * N + i) * 32 + lane] = a.back ? packed_flip(v[i], a.signs[i], lane) : v[i];
}

int cuda_packed_rotate(float *to, const float *from, int64_t n, int dim, int block, bool back, const uint32_t *signs,
                       cuda_stream s, err *e) {
    rotate_args a = { to, from, n * (dim / block), back, {} };
    for (int i = 0; i < KV_BLOCK_MAX / 32; i++) a.signs[i] = signs[i];
    const cuda_shape shape = { (unsigned)((a.blocks + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    if (a.blocks == 0) return 0;
    return block == 128  ? cuda_launch(rotate_kernel<4>, shape, s, e, a)
           : block == 64 ? cuda_launch(rotate_kernel<2>, shape, s, e, a)
                         : cuda_launch(rotate_kernel<1>, shape, s, e, a);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

/* What a warp makes of a row before it is packed. */
struct packed_row {
    int8_t   n[KV_DIM_MAX];
    uint16_t scale[KV_DIM_MAX / 8];
    float    x[KV_DIM_MAX]; /* of f32, f16 and bf16 sides */
};

__device__ static inline uint16_t scale_of(float d) {
    d = d > 65504.0f ? 65504.0f : d;
    d = d < -65504.0f ? -65504.0f : d;
    return __half_as_ushort(__float2half_rn(d));
}

/* A group of up to 32 values, one per lane (0 behind the last); lowest as in kv_pack.h. */
__device__ static inline int group_number(float v, int lowest, uint16_t *scale) {
    const float    a = fabsf(v), most = warp_max(a == a ? a : 0.0f);
    const unsigned who = __ballot_sync(ALL, a == most);
    const float    top = most > 0 ? __shfl_sync(ALL, v, __ffs((int)who) - 1) : 0.0f;
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
        square += __shfl_sync(ALL, mine, lane % 16);
        square += __shfl_sync(ALL, mine, lane % 16 + 16);
    }
#pragma unroll
    for (int h = 8; h > 0; h /= 2) square += __shfl_down_sync(ALL, square, h);
    const float norm = sqrtf(__shfl_sync(ALL, square, 0));
    const float g = norm > 0.0f ? 127.0f / top * sqrtf((float)(32 * N)) / norm : 0.0f;
    int         sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float r = v[i] * g;
        at[i] = 0;
        for (int k = 0; k + 1 < entries; k++) at[i] += r > 0.5f * (float)(codes[k] + codes[k + 1]);
        sum += codes[at[i]] * codes[at[i]];
    }
    sum = __reduce_add_sync(ALL, sum);
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
template <int N>
__device__ static inline void rotated_numbers(const cuda_packed &p, const side &s, packed_row &row, int at,
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
__device__ static inline void make_numbers(const cuda_packed &p, const side &s, packed_row &row, const row_source &x,
                                           int lane) {
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

__device__ static inline void put_k(const kv_layout &l, uint8_t *area, int slot, const packed_row &row, int lane) {
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

__device__ static inline void put_v(const kv_layout &l, uint8_t *area, int slot, const packed_row &row, int lane) {
    const int bits = packed_bits(l.v_type), groups = (l.v_dim + l.v_group - 1) / l.v_group;
    uint8_t  *to = area + (size_t)slot * l.v_dim * bits / 8;
    for (int d = lane; bits > 8 && d < l.v_dim; d += 32) put_plain(l.v_type, to, d, row.x[d]);
    for (int d = lane; bits == 8 && d < l.v_dim; d += 32) to[d] = (uint8_t)row.n[d];
    for (int g = lane; bits < 8 && g * KV_GROUP < l.v_dim; g += 32)
        pack_v32(l.v_type, row.n + g * KV_GROUP, min(KV_GROUP, l.v_dim - g * KV_GROUP), to + g * KV_GROUP * bits / 8);
    uint16_t *s = reinterpret_cast<uint16_t *>(area + (size_t)l.tokens * l.v_dim * bits / 8) + (size_t)slot * groups;
    for (int g = lane; is_scaled(l.v_type) && g < groups; g += 32) s[g] = row.scale[g];
}

struct store_args {
    cuda_packed  p;
    cuda_batch   batch;
    const float *k, *v, *table; /* table: of rope.cu, or NULL */
    int          n_first, turned;
    bool         interleaved;
};

static __global__ __launch_bounds__(WARPS * 32) void store_kernel(const store_args a) {
    launch_begin();
    __shared__ packed_row rows[WARPS];
    const kv_layout      &l = a.p.layout;
    const int             lane = (int)threadIdx.x % 32, sides = l.v_in_k ? 1 : 2;
    packed_row           &row = rows[threadIdx.x / 32];
    const int64_t         w = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, t = w / (l.n_kv * sides);
    if (t >= a.batch.n_tok) return;
    const int head = (int)(w % (l.n_kv * sides)) / sides, is_v = (int)(w % sides), pos = a.batch.pos[t];
    uint8_t  *page = packed_page(a.p, a.batch, a.batch.seq_of[t], pos / l.tokens);
    uint8_t  *area = page + (size_t)head * l.head_bytes + (is_v ? l.k_bytes : 0);
    if (is_v) {
        const side   s = { l.v_type, l.v_dim, l.v_block, l.v_group, a.p.v_codes };
        const float *x = a.v + (t * l.n_kv + head) * l.v_dim;
        make_numbers(a.p, s, row, { x, x, NULL, l.v_dim, 0, false }, lane);
        put_v(l, area, pos % l.tokens, row, lane);
        return;
    }
    const side   s = { l.k_type, l.k_dim, l.k_block, l.k_group, a.p.k_codes };
    const float *x = a.k + (t * l.n_kv + head) * a.n_first, *rest = l.v_in_k ? a.v + t * (l.k_dim - a.n_first) : x;
    const float *c = a.table ? a.table + t * 2 * a.turned : NULL;
    make_numbers(a.p, s, row, { x, rest, c, a.n_first, a.turned, a.interleaved }, lane);
    put_k(l, area, pos % l.tokens, row, lane);
}

int cuda_packed_store(const cuda_packed *p, const float *k, int n_first, const float *v, const cuda_rope *turn,
                      const cuda_batch *b, cuda_stream s, err *e) {
    const int64_t    warps = (int64_t)b->n_tok * p->layout.n_kv * (p->layout.v_in_k ? 1 : 2);
    const cuda_shape shape = { (unsigned)((warps + WARPS - 1) / WARPS), WARPS * 32, 1, 0, true };
    store_args       a = { *p, *b, k, v, turn ? turn->table : NULL, n_first, turn ? turn->n : 0, turn && turn->interleaved };
    return warps ? cuda_launch(store_kernel, shape, s, e, a) : 0;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

__device__ static inline float half_at(const uint8_t *p) {
    return __half2float(*reinterpret_cast<const __half *>(p));
}

/* Dimension d of K in one slot. */
__device__ static inline float k_value(const cuda_packed &p, const uint8_t *area, int slot, int d) {
    const kv_layout &l = p.layout;
    const int        bits = packed_bits(l.k_type), t = l.tokens, u = d / 8, i = d % 8;
    if (bits > 8) return packed_plain(l.k_type, area, (int64_t)d * t + slot);
    const uint8_t *at = area + slot + u * bits * t;
    int            n;
    switch (l.k_type) {
    case KV_FP8: return packed_fp8(at[i * t]);
    case KV_Q8_0: n = (int8_t)at[i * t]; break;
    case KV_TQ3: n = p.k_codes[(at[0] | at[t] << 8 | at[2 * t] << 16) >> (3 * i) & 7]; break;
    case KV_TQ2: n = p.k_codes[at[i / 4 * t] >> (i % 4 * 2) & 3]; break;
    case KV_Q5_0: n = (at[i / 2 * t] >> (i % 2 * 4) & 15) + (at[4 * t] >> i & 1) * 16 - 16; break;
    default: n = p.k_codes[at[i / 2 * t] >> (i % 2 * 4) & 15]; break;
    }
    return (float)n * half_at(area + (size_t)t * l.k_dim * bits / 8 + ((size_t)(d / l.k_group) * t + slot) * 2);
}

__device__ static inline float v_value(const cuda_packed &p, const uint8_t *area, int slot, int d) {
    const kv_layout &l = p.layout;
    const int        bits = packed_bits(l.v_type), first = d / KV_GROUP * KV_GROUP, i = d - first;
    const int        half = min(KV_GROUP, l.v_dim - first) / 2, groups = (l.v_dim + l.v_group - 1) / l.v_group;
    const uint8_t   *row = area + (size_t)slot * l.v_dim * bits / 8, *at = row + first * bits / 8;
    int              n;
    if (bits > 8) return packed_plain(l.v_type, row, d);
    switch (l.v_type) {
    case KV_FP8: return packed_fp8(row[d]);
    case KV_Q8_0: n = (int8_t)row[d]; break;
    case KV_TQ3: {
        const int w = at[i % 8] | (at[8 + i % 4] >> (i % 8 / 4 * 4) & 15) << 8;
        n = p.v_codes[w >> (i / 8 * 3) & 7];
        break;
    }
    case KV_TQ2: n = p.v_codes[at[i % 8] >> (i / 8 * 2) & 3]; break;
    case KV_Q5_0: n = (at[i % 16] >> (i / 16 * 4) & 15) + (at[16 + i / 8] >> (i % 8) & 1) * 16 - 16; break;
    default: n = p.v_codes[at[i % half] >> (i / half * 4) & 15]; break;
    }
    return (float)n * half_at(area + (size_t)l.tokens * l.v_dim * bits / 8 + ((size_t)slot * groups + d / l.v_group) * 2);
}

/* A page of one sequence and head. */
static __global__ __launch_bounds__(256) void open_kernel(const cuda_packed p, const cuda_pages to,
                                                          const cuda_batch batch, int pages) {
    launch_begin();
    const kv_layout &l = p.layout;
    const int        head = (int)blockIdx.x % l.n_kv, page = (int)blockIdx.x / l.n_kv % pages,
              s = (int)blockIdx.x / l.n_kv / pages, last = batch.q_start[s + 1] - 1;
    const int n = min(l.tokens, batch.row_end[last] - page * l.tokens);
    if (n <= 0) return;
    const uint8_t *from = packed_page(p, batch, s, page);
    if (!from) return;
    int      in_page;
    uint8_t *base = page_at(to, batch, s, page * l.tokens, &in_page);
    from += (size_t)head * l.head_bytes;
    for (int i = (int)threadIdx.x; i < n * l.k_dim; i += 256)
        reinterpret_cast<__half *>(page_k(to, base, head, i / l.k_dim))[i % l.k_dim] =
            __float2half_rn(k_value(p, from, i / l.k_dim, i % l.k_dim));
    for (int i = (int)threadIdx.x; !l.v_in_k && i < n * l.v_dim; i += 256)
        reinterpret_cast<__half *>(page_v(to, base, head, i / l.v_dim))[i % l.v_dim] =
            __float2half_rn(v_value(p, from + l.k_bytes, i / l.v_dim, i % l.v_dim));
}

int cuda_packed_open(const cuda_packed *p, const cuda_pages *to, int positions, const cuda_batch *b, cuda_stream s,
                     err *e) {
    const int        pages = (positions + p->layout.tokens - 1) / p->layout.tokens;
    const int64_t    blocks = (int64_t)b->n_seq * pages * p->layout.n_kv;
    const cuda_shape shape = { (unsigned)blocks, 256, 1, 0, true };
    return blocks ? cuda_launch(open_kernel, shape, s, e, *p, *to, *b, pages) : 0;
}
