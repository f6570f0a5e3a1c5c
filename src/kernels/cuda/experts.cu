/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of a few tokens in two kernels: gate, up and the gated unit; down and the weighted sum. The same values as
 * grouped.cu, elem.cu and rows.cu give, bit for bit.
 *
 * Steps of few tokens are chains of short kernels, whose borders take longer than their work. Nobody sorts rows by their
 * experts; an expert that two tokens chose is read twice, mostly from the cache. Each warp has its packed tiles under way
 * as soon as the choice is known. The kernel of gate and up lets the one behind it begin then, so that this one's weights
 * come while gate and up are multiplied: blocks are small enough for both to be on a multiprocessor.
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/ring.cuh"

#define WARPS CUDA_SLICES_MAX
#define RING_BYTES (56 * 1024) /* of a block of down at most */
#define UP_WARPS 16
#define UP_TEAMS (UP_WARPS / 4)
#define UP_RING_BYTES (112 * 1024) /* of a block of gate and up at most: one of down stands beside it */

struct experts_args {
    cuda_experts a;
    int          n_kt, slice_kt, live; /* live: slices that are not empty */
    int          tiles, stages;
    int          cols_pad; /* of a row in 16 bits */
    int          per;      /* down: pairs of an expert and a slice per warp */
};

__device__ static inline int chosen_at(const float *chosen, int64_t i) {
    return __ldcg(reinterpret_cast<const int32_t *>(chosen) + i * 2);
}

/* The rows in 16 bits to shared memory. */
__device__ static inline void up_rows(const experts_args &g, uint8_t *x16) {
    const uint8_t *image = static_cast<const uint8_t *>(g.a.rows16.data);
    const int      chunks = g.cols_pad / 8;
    for (int i = (int)threadIdx.x; i < g.a.n_tok * chunks; i += UP_WARPS * 32) {
        const int      t = i / chunks, c = i % chunks;
        const uint4    v = *reinterpret_cast<const uint4 *>(image + cuda_image_at(t, (int64_t)c * 8, g.a.rows16.n_pad));
        const uint32_t w[4] = { v.x, v.y, v.z, v.w };
#pragma unroll
        for (int p = 0; p < 4; p++) *reinterpret_cast<uint32_t *>(x16 + t * g.cols_pad * 2 + one_at(c, p)) = w[p];
    }
}

/* The four warps of a team meet. */
__device__ static inline void team_sync(int team) { asm volatile("bar.sync %0, 128;" ::"r"(1 + team) : "memory"); }

/*
 * A unit of gate and up is 16 columns of one row of the result (row r: token r / n_used, choice r % n_used). A team of
 * four warps makes it: each has one of the two matrices and half of the slices, whose tiles lie one behind the other.
 * Blocks stay for several units and copy ahead across their borders.
 */
template <class T> static __global__ __launch_bounds__(768, 1) void experts_up_kernel(const experts_args g) {
    extern __shared__ __align__(128) uint8_t smem[]; /* rings, then rows */
    __shared__ float                         part[UP_TEAMS][2][2][CUDA_SLICES_MAX][16];
    __shared__ __align__(16) uint8_t scratch[UP_WARPS][T::SCRATCH ? T::SCRATCH : 16];
    __shared__ __align__(8) uint64_t bars[UP_WARPS][RING_STAGES];
    const cuda_experts              &a = g.a;
    const int                        lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int                        team = warp / 4, m = warp / 2 % 2, share = (g.live + 1) / 2 * g.slice_kt;
    const int                        kt0 = warp % 2 * share, kt1 = min(kt0 + share, g.n_kt);
    const int    units = a.n_tok * a.n_used * g.tiles, first = (int)blockIdx.x + team * (int)gridDim.x;
    const int    step = (int)gridDim.x * UP_TEAMS, rows = a.n_tok * a.n_used; /* rows: of the result */
    uint8_t     *x16 = smem + UP_WARPS * g.stages * T::BYTES;
    tile_ring<T> ring;
    ring.init(smem + warp * g.stages * T::BYTES, bars[warp], g.stages, lane);
    T::begin();
    launch_wait();
    launch_next(); /* now, so that whoever begins finds the choice made */
    const int mats = chosen_at(a.chosen, min(lane, rows - 1)), mats2 = chosen_at(a.chosen, min(lane + 32, rows - 1));
    auto mat_of = [&](int unit) {
        const int r = unit / g.tiles;
        return __shfl_sync(0xffffffffu, r < 32 ? mats : mats2, r % 32);
    };
    const uint8_t *in_at = NULL; /* the next tile to be copied: of in_unit, of which in_left are left */
    int            in_unit = first - step, in_left = 0;
    auto           fill = [&](int slot) {
        if (in_left == 0) {
            if (kt0 >= kt1 || in_unit + step >= units) return;
            in_unit += step, in_left = kt1 - kt0;
            in_at = (m ? a.up : a.gate) + (int64_t)mat_of(in_unit) * (int64_t)a.each +
                    ((int64_t)(in_unit % g.tiles) * g.n_kt + kt0) * T::BYTES;
        }
        ring.fill(slot, in_at);
        in_at += T::BYTES, in_left--;
    };
    for (int i = 0; i < g.stages; i++) fill(i);
    up_rows(g, x16);
    const float by = a.rows16.scale[min(lane, a.n_tok - 1)]; /* of token `lane` */
    __syncthreads();
    int turn = 0;
    for (int unit = first; unit < units; unit += step, turn ^= 1) {
        const int      r = unit / g.tiles, tile = unit % g.tiles, token = r / a.n_used;
        const uint8_t *x = x16 + (token * g.cols_pad + kt0 * T::COLS) * 2;
        const int      c = lane % 16, mm = lane / 16, row = tile * 16 + c, mat = mat_of(unit);
        const float   *bias = mm ? a.up_bias : a.gate_bias;
        const float    more = bias && row < a.rows ? bias[(int64_t)mat * a.rows + row] : 0.0f; /* long before its use */
        int            slice = kt0 / g.slice_kt, in_slice = 0;
        float          acc[4] = {};
        for (int kt = kt0; kt < kt1; kt++, x += T::COLS * 2) {
            const uint8_t *w = ring.wait();
            tile_multiply_one<T>(acc, w, scratch[warp], x, lane);
            __syncwarp();
            fill(ring.slot);
            ring.next();
            if (++in_slice < g.slice_kt && kt + 1 < kt1) continue;
            float *to = part[team][turn][m][slice++];
            if (lane % 4 == 0) to[lane / 4] = acc[0], to[lane / 4 + 8] = acc[2];
            acc[0] = acc[1] = acc[2] = acc[3] = 0, in_slice = 0;
        }
        team_sync(team);
        if (warp % 4 != turn) continue;
        float v = 0;
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) {
            if (s < g.live) v += part[team][turn][mm][s][c];
        }
        v = v * __shfl_sync(0xffffffffu, by, token) * (mm ? a.up_scale : a.gate_scale);
        if (bias) v += more;
        const float up = __shfl_xor_sync(0xffffffffu, v, 16);
        if (mm == 0 && row < a.rows)
            a.out[(int64_t)r * a.rows + row] =
                a.limit != 0 ? clamped_glu(v, up, a.limit, a.alpha) : act_of(a.act, v) * up;
    }
}

/* A lane's part of a row of floats: every `by`th group of four from `first` on; the first HELD of them stay in registers.
 * `by` is a multiple of 32. */
#define HELD 12
struct row_part {
    float4 v[HELD];

    __device__ static inline uint32_t top_of(const float4 &f) {
        return max(max(__float_as_uint(f.x) & 0x7fffffffu, __float_as_uint(f.y) & 0x7fffffffu),
                   max(__float_as_uint(f.z) & 0x7fffffffu, __float_as_uint(f.w) & 0x7fffffffu));
    }
    /* Two pairs, where one_at says. */
    __device__ static inline void put(uint8_t *to, const float4 &f, float factor) {
        *reinterpret_cast<__half2 *>(to) =
            __halves2half2(__float2half_rn(__fmul_rn(f.x, factor)), __float2half_rn(__fmul_rn(f.y, factor)));
        *reinterpret_cast<__half2 *>(to + one_at(0, 1)) =
            __halves2half2(__float2half_rn(__fmul_rn(f.z, factor)), __float2half_rn(__fmul_rn(f.w, factor)));
    }
    /* The largest magnitude of n groups. */
    __device__ inline uint32_t load(const float4 *x, int first, int by, int n) {
        uint32_t top = 0;
#pragma unroll
        for (int j = 0; j < HELD; j++) v[j] = first + j * by < n ? __ldcg(x + first + j * by) : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int j = 0; j < HELD; j++) top = max(top, top_of(v[j]));
        for (int i = first + HELD * by; i < n; i += by) top = max(top, top_of(__ldcg(x + i)));
        return top;
    }
    /* 16 bits of n_pad groups, of which those from n on are zero. */
    __device__ inline void store(uint8_t *to, const float4 *x, int first, int by, int n, int n_pad,
                                 float factor) const {
        const int step = one_at(by / 2, 0); /* whole blocks of columns */
        to += one_at(first / 2, first % 2 * 2);
#pragma unroll
        for (int j = 0; j < HELD; j++) {
            if (first + j * by < n_pad) put(to + j * step, v[j], factor);
        }
        for (int i = first + HELD * by, j = HELD; i < n_pad; i += by, j++)
            put(to + j * step, i < n ? __ldcg(x + i) : make_float4(0, 0, 0, 0), factor);
    }
};

/* Rows of `cols` floats to 16 bits as rows_one makes them, padded with zeros, by all warps of a block: several for a row
 * where there are fewer of them. by: their powers of two. */
__device__ static inline void rows_to_halves(uint8_t *to, float *by, uint32_t tops[][WARPS], const float *x, int n,
                                             int cols, int cols_pad) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int team = n > 4 ? 1 : n > 2 ? 2 : n > 1 ? 4 : 8; /* warps of a row */
    const int first = warp % team * 32 + lane;
    for (int k0 = 0; k0 < n; k0 += WARPS / team) {
        const int     k = k0 + warp / team;
        const float4 *row = reinterpret_cast<const float4 *>(x + (int64_t)k * cols);
        row_part      part;
        if (k < n) {
            const uint32_t top = __reduce_max_sync(0xffffffffu, part.load(row, first, team * 32, cols / 4));
            if (lane == 0) tops[k][warp % team] = top;
        }
        __syncthreads();
        if (k >= n) continue;
        uint32_t top = 0;
        for (int i = 0; i < team; i++) top = max(top, tops[k][i]);
        const int e = cuda_row_exponent(top);
        part.store(to + (int64_t)k * cols_pad * 2, row, first, team * 32, cols / 4, cols_pad / 4,
                   __uint_as_float((uint32_t)(127 - e) << 23));
        if (lane == 0) by[k] = __uint_as_float((uint32_t)(127 + e) << 23);
    }
    __syncthreads();
}

/* 16 columns of one token's result: all its experts, then their sum. */
template <class T> static __global__ __launch_bounds__(640, 1) void experts_down_kernel(const experts_args g) {
    extern __shared__ __align__(128) uint8_t smem[]; /* rings, then rows [n_used][cols_pad] */
    __shared__ float                         part[CUDA_EXPERTS_FEW][CUDA_SLICES_MAX][16], by[CUDA_EXPERTS_FEW];
    __shared__ float                         each[CUDA_EXPERTS_FEW][16], share[CUDA_EXPERTS_FEW];
    __shared__ uint32_t                      tops[CUDA_EXPERTS_FEW][WARPS];
    __shared__ __align__(16) uint8_t scratch[WARPS][T::SCRATCH ? T::SCRATCH : 16];
    __shared__ __align__(8) uint64_t bars[WARPS][RING_STAGES];
    const cuda_experts              &a = g.a;
    const int     lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = (int)blockIdx.x % g.tiles;
    const int64_t t = blockIdx.x / g.tiles;
    uint8_t      *x16 = smem + WARPS * g.stages * T::BYTES;
    tile_ring<T>  ring;
    ring.init(smem + warp * g.stages * T::BYTES, bars[warp], g.stages, lane);
    T::begin();
    if (!a.known) launch_wait();
    launch_next();
    const float   *chosen = a.chosen + t * a.n_used * 2;
    const int      mats = chosen_at(chosen, min(lane, a.n_used - 1)); /* lane k: that of choice k */
    const int      first = warp * g.per, end = min(first + g.per, a.n_used * g.live);
    const uint8_t *in_at = NULL; /* the next tile to be copied: of in_pair, of which in_left are left */
    int            in_pair = first - 1, in_left = 0;
    auto           fill = [&](int slot) {
        if (in_left == 0) {
            if (in_pair + 1 >= end) return;
            const int k = ++in_pair / g.live, kt = in_pair % g.live * g.slice_kt;
            in_left = min(g.slice_kt, g.n_kt - kt);
            in_at = a.gate + (int64_t)__shfl_sync(0xffffffffu, mats, k) * (int64_t)a.each +
                    ((int64_t)tile * g.n_kt + kt) * T::BYTES;
        }
        ring.fill(slot, in_at);
        in_at += T::BYTES, in_left--;
    };
    for (int i = 0; i < g.stages; i++) fill(i);
    /* What the end needs: biases and weights of the choices, and what out holds. */
    const int   ek = (int)threadIdx.x / 16, row = tile * 16 + (int)threadIdx.x % 16;
    const bool  ends = ek < a.n_used && row < a.rows;
    const float bias = ends && a.gate_bias ? a.gate_bias[(int64_t)chosen_at(chosen, ek) * a.rows + row] : 0.0f;
    if ((int)threadIdx.x < a.n_used) share[threadIdx.x] = a.even ? 1.0f : __ldcg(chosen + threadIdx.x * 2 + 1);
    if (a.known) launch_wait();
    float      *out = a.out + t * a.rows + row;
    const float old = a.add && ek == 0 && row < a.rows ? *out : 0.0f;
    rows_to_halves(x16, by, tops, a.x + t * a.n_used * a.cols, a.n_used, (int)a.cols, g.cols_pad);
    for (int pair = first; pair < end; pair++) {
        const int      k = pair / g.live, slice = pair % g.live, kt = slice * g.slice_kt;
        const uint8_t *x = x16 + (k * g.cols_pad + kt * T::COLS) * 2;
        float          acc[4] = {};
        for (int i = min(g.slice_kt, g.n_kt - kt); i > 0; i--, x += T::COLS * 2) {
            const uint8_t *w = ring.wait();
            tile_multiply_one<T>(acc, w, scratch[warp], x, lane);
            __syncwarp();
            fill(ring.slot);
            ring.next();
        }
        if (lane % 4 == 0) part[k][slice][lane / 4] = acc[0], part[k][slice][lane / 4 + 8] = acc[2];
    }
    __syncthreads();
    if (ends) {
        float v = 0;
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) {
            if (s < g.live) v += part[ek][s][threadIdx.x % 16];
        }
        v = v * by[ek] * a.gate_scale;
        if (a.gate_bias) v += bias;
        each[ek][threadIdx.x % 16] = v;
    }
    __syncthreads();
    if (!ends || ek != 0) return;
    float all = 0;
    for (int k = 0; k < a.n_used; k++) all = fmaf(share[k], each[k][threadIdx.x], all);
    *out = a.add ? old + all : all;
}

/* What a kernel has of its own, at most: sums and barriers, and what unpacking needs. */
static int64_t own_bytes(int64_t scratch, int64_t shared) { return 11 * 1024 + UP_WARPS * scratch + shared; }

/* Places of a ring for `warps`, in most_bytes at most and beside `others` bytes in the shared memory of a block. */
static int ring_places(int warps, int64_t tile_bytes, int most_bytes, int64_t others) {
    const int64_t left = cuda_block_smem() - others;
    const int64_t n = (left < most_bytes ? left : most_bytes) / (warps * tile_bytes);
    return n > RING_STAGES ? RING_STAGES : n < 0 ? 0 : (int)n;
}

bool cuda_can_experts(tensor_type type, int64_t cols, int n_tok, int n_used) {
    const int64_t     rows = (n_used > n_tok ? n_used : n_tok) * cuda_round_up(cols, CUDA_SLICE_UNIT) * 2;
    const cuda_weight w = { type, CUDA_TILE_ROWS, cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    return product_is_tiled(type) && n_used <= CUDA_EXPERTS_FEW && n_tok <= CUDA_EXPERTS_TOKENS && rows <= 64 * 1024 &&
           ring_places(UP_WARPS, p.tile_bytes, UP_RING_BYTES, rows + own_bytes(p.scratch_bytes, p.shared_bytes)) >= 2;
}

template <class T> static int start_up(experts_args &g, cuda_stream s, err *e) {
    const int64_t units = (int64_t)g.a.n_tok * g.a.n_used * g.tiles, most = cuda_attribute(cudaDevAttrMultiProcessorCount),
                  rows = (int64_t)g.cols_pad * 2 * g.a.n_tok;
    g.stages = ring_places(UP_WARPS, T::BYTES, UP_RING_BYTES, rows + own_bytes(T::SCRATCH, T::SHARED));
    const cuda_shape shape = { (unsigned)(units < most ? units : most), UP_WARPS * 32, 1,
                               (size_t)UP_WARPS * g.stages * T::BYTES + (size_t)rows, true };
    return cuda_launch(experts_up_kernel<T>, shape, s, e, g);
}

template <class T> static int start(experts_args &g, cuda_stream s, err *e) {
    if (g.a.up) return start_up<T>(g, s, e);
    const int64_t rows = (int64_t)g.cols_pad * 2 * g.a.n_used;
    g.stages = ring_places(WARPS, T::BYTES, RING_BYTES, rows + own_bytes(T::SCRATCH, T::SHARED));
    g.stages = g.stages > g.per * g.slice_kt ? g.per * g.slice_kt : g.stages;
    const cuda_shape shape = { (unsigned)(g.a.n_tok * g.tiles), WARPS * 32, 1,
                               (size_t)WARPS * g.stages * T::BYTES + (size_t)rows, true };
    return cuda_launch(experts_down_kernel<T>, shape, s, e, g);
}

int cuda_op_experts(const cuda_experts *a, cuda_stream s, err *e) {
    const cuda_weight   w = { a->type, a->rows, a->cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    experts_args        g = {};
    if (a->n_tok == 0) return 0;
    g.a = *a;
    g.n_kt = (int)((a->cols + p.tile_cols - 1) / p.tile_cols);
    g.slice_kt = (int)(p.slice_cols / p.tile_cols);
    g.live = (g.n_kt + g.slice_kt - 1) / g.slice_kt;
    g.tiles = (int)(p.rows_pad / CUDA_TILE_ROWS);
    g.cols_pad = (int)cuda_round_up(a->cols, CUDA_SLICE_UNIT);
    g.per = (a->n_used * g.live + WARPS - 1) / WARPS;
    switch (a->type) {
#define START(type, T)                                                                                                 \
    case type: return start<T>(g, s, e);
        UNPACK_TILED(START)
#undef START
    default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no experts with weights of type %d", (int)a->type);
    }
}
