/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of a few tokens in two kernels instead of nine: gate, up and the gated unit; down and the weighted sum.
 * The same values as grouped.cu, elem.cu and rows.cu give, bit for bit.
 *
 * Steps of few tokens are chains of short kernels, whose borders take longer than their work. A block works for one
 * token, so that nobody sorts rows by their experts; an expert that two tokens chose is read twice, mostly from the
 * cache. Each warp has its packed tiles under way as soon as the choice is known. The kernel of gate and up lets the one
 * behind it begin when the choice is known, so that this one's weights come while gate and up are multiplied: blocks are
 * small enough for both to be on a multiprocessor.
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/ring.cuh"

#define WARPS CUDA_SLICES_MAX
#define RING_BYTES (56 * 1024) /* of a block at most */

struct experts_args {
    cuda_experts a;
    int          n_kt, slice_kt, log_slices, live; /* live: slices that are not empty */
    int          tiles, stages;
    int          cols_pad; /* of a row in 16 bits */
    int          per;      /* down: pairs of an expert and a slice per warp */
};

__device__ static inline int chosen_at(const float *chosen, int64_t i) {
    return __ldcg(reinterpret_cast<const int32_t *>(chosen) + i * 2);
}

/* Row r of the result (token r / n_used, choice r % n_used), 16 columns for every group of warps that has all slices. */
template <class T> static __global__ __launch_bounds__(WARPS * 32, 3) void experts_up_kernel(const experts_args g) {
    extern __shared__ __align__(128) uint8_t smem[]; /* rings, then the row */
    __shared__ float                         part[2][WARPS][16];
    __shared__ __align__(16) uint8_t         scratch[WARPS][T::SCRATCH ? T::SCRATCH : 16];
    __shared__ __align__(8) uint64_t         bars[WARPS][RING_STAGES];
    constexpr int                            BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const cuda_experts                      &a = g.a;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, slices = 1 << g.log_slices;
    const int groups = WARPS >> g.log_slices, group = warp >> g.log_slices, slice = warp & (slices - 1);
    const int per_row = (g.tiles + groups - 1) / groups, tile = (int)blockIdx.x % per_row * groups + group;
    const int64_t r = blockIdx.x / per_row, token = r / a.n_used;
    const int     kt0 = slice * g.slice_kt, n = tile < g.tiles ? max(0, min(g.slice_kt, g.n_kt - kt0)) : 0;
    uint8_t      *x16 = smem + WARPS * g.stages * T::BYTES;
    tile_ring<T>  ring;
    ring.init(smem + warp * g.stages * T::BYTES, bars[warp], g.stages, lane);
    launch_wait();
    launch_next(); /* now, so that whoever begins finds the choice made */
    const int      mat = chosen_at(a.chosen, r);
    const int64_t  at = (int64_t)mat * (int64_t)a.each + ((int64_t)tile * g.n_kt + kt0) * T::BYTES;
    const uint8_t *from[2] = { a.gate + at, a.up + at };
    auto           fill = [&](int slot, int i) {
        if (i < 2 * n) ring.fill(slot, (i < n ? from[0] : from[1]) + (i < n ? i : i - n) * T::BYTES);
    };
    for (int i = 0; i < g.stages; i++) fill(i, i);
    const uint8_t *image = static_cast<const uint8_t *>(a.rows16.data);
    for (int i = (int)threadIdx.x; i < g.cols_pad / 8; i += WARPS * 32)
        reinterpret_cast<uint4 *>(x16)[i] =
            *reinterpret_cast<const uint4 *>(image + cuda_image_at(token, (int64_t)i * 8, a.rows16.n_pad));
    const float by = a.rows16.scale[token];
    __syncthreads();
    for (int m = 0; m < 2; m++) {
        float acc[1][4] = {};
        for (int i = 0; i < n; i++) {
            const uint8_t *w = ring.wait();
            tile_multiply<T, 1>(acc, w, scratch[warp], smem_at(x16) + (kt0 + i) * BLOCKS * CUDA_ROW_BYTES, 1, lane);
            __syncwarp();
            fill(ring.slot, m * n + i + g.stages);
            ring.next();
        }
        if (lane % 4 == 0) part[m][warp][lane / 4] = acc[0][0], part[m][warp][lane / 4 + 8] = acc[0][2];
    }
    __syncthreads();
    const int t = (int)threadIdx.x / 16, c = (int)threadIdx.x % 16;
    const int row = ((int)blockIdx.x % per_row * groups + t) * 16 + c;
    if (t >= groups || row >= a.rows) return;
    float v[2] = {};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        for (int s = 0; s < slices; s++) v[m] += part[m][(t << g.log_slices) + s][c];
        const float *bias = m ? a.up_bias : a.gate_bias;
        v[m] = v[m] * by * (m ? a.up_scale : a.gate_scale);
        if (bias) v[m] += bias[(int64_t)mat * a.rows + row];
    }
    a.out[r * a.rows + row] = a.limit != 0 ? clamped_glu(v[0], v[1], a.limit, a.alpha) : act_of(a.act, v[0]) * v[1];
}

/* Rows of `cols` floats to 16 bits as rows_one makes them, padded with zeros, by all warps of a block: several for a row
 * where there are fewer of them. by: their powers of two. */
__device__ static inline void rows_to_halves(uint8_t *to, float *by, uint32_t tops[][WARPS], const float *x, int n,
                                             int cols, int cols_pad) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int team = n > 4 ? 1 : n > 2 ? 2 : n > 1 ? 4 : 8; /* warps of a row */
    for (int k = warp / team; k < n; k += WARPS / team) {
        uint32_t top = 0;
#pragma unroll 4
        for (int i = warp % team * 32 + lane; i < cols; i += team * 32)
            top = max(top, __float_as_uint(x[(int64_t)k * cols + i]) & 0x7fffffffu);
        top = __reduce_max_sync(0xffffffffu, top);
        if (lane == 0) tops[k][warp % team] = top;
    }
    __syncthreads();
    for (int k = warp / team; k < n; k += WARPS / team) {
        uint32_t top = 0;
        for (int i = 0; i < team; i++) top = max(top, tops[k][i]);
        const int   e = cuda_row_exponent(top);
        const float factor = __uint_as_float((uint32_t)(127 - e) << 23);
        __half     *row = reinterpret_cast<__half *>(to) + (int64_t)k * cols_pad;
#pragma unroll 4
        for (int i = warp % team * 32 + lane; i < cols_pad; i += team * 32)
            row[i] = __float2half_rn(i < cols ? __fmul_rn(x[(int64_t)k * cols + i], factor) : 0.0f);
        if (lane == 0) by[k] = __uint_as_float((uint32_t)(127 + e) << 23);
    }
    __syncthreads();
}

/* A warp's way through its pairs of an expert and a slice, tile by tile. */
struct down_walk {
    int pair, end, kt, n; /* n: tiles of this pair */

    __device__ inline void begin(const experts_args &g, int first, int last) {
        pair = first, end = last, kt = 0;
        n = tiles_of(g);
    }
    __device__ inline int tiles_of(const experts_args &g) const {
        return min(g.slice_kt, g.n_kt - pair % g.live * g.slice_kt);
    }
    __device__ inline bool step(const experts_args &g) { /* true: the pair is done */
        if (++kt < n) return false;
        kt = 0, pair++;
        n = tiles_of(g);
        return true;
    }
};

/* 16 columns of one token's result: all its experts, then their sum. */
template <class T> static __global__ __launch_bounds__(WARPS * 32, 3) void experts_down_kernel(const experts_args g) {
    extern __shared__ __align__(128) uint8_t smem[]; /* rings, then rows [n_used][cols_pad] */
    __shared__ float                         part[CUDA_EXPERTS_FEW][CUDA_SLICES_MAX][16], by[CUDA_EXPERTS_FEW];
    __shared__ uint32_t                      tops[CUDA_EXPERTS_FEW][WARPS];
    __shared__ __align__(16) uint8_t         scratch[WARPS][T::SCRATCH ? T::SCRATCH : 16];
    __shared__ __align__(8) uint64_t         bars[WARPS][RING_STAGES];
    constexpr int                            BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const cuda_experts                      &a = g.a;
    const int     lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, tile = (int)blockIdx.x % g.tiles;
    const int64_t t = blockIdx.x / g.tiles;
    uint8_t      *x16 = smem + WARPS * g.stages * T::BYTES;
    tile_ring<T>  ring;
    ring.init(smem + warp * g.stages * T::BYTES, bars[warp], g.stages, lane);
    if (!a.known) launch_wait();
    launch_next();
    const float *chosen = a.chosen + t * a.n_used * 2;
    const int    mats = chosen_at(chosen, min(lane, a.n_used - 1)); /* lane k: that of choice k */
    const int    first = warp * g.per, end = min(first + g.per, a.n_used * g.live);
    down_walk    in, at;
    in.begin(g, first, end);
    at.begin(g, first, end);
    auto fill = [&](int slot) {
        if (in.pair >= in.end) return;
        const int mat = __shfl_sync(0xffffffffu, mats, in.pair / g.live);
        ring.fill(slot, a.gate + (int64_t)mat * (int64_t)a.each +
                            ((int64_t)tile * g.n_kt + in.pair % g.live * g.slice_kt + in.kt) * T::BYTES);
        in.step(g);
    };
    for (int i = 0; i < g.stages; i++) fill(i);
    if (a.known) launch_wait();
    rows_to_halves(x16, by, tops, a.x + t * a.n_used * a.cols, a.n_used, (int)a.cols, g.cols_pad);
    float acc[1][4] = {};
    while (at.pair < at.end) {
        const uint8_t *w = ring.wait();
        const int      k = at.pair / g.live, slice = at.pair % g.live;
        tile_multiply<T, 1>(acc, w, scratch[warp],
                            smem_at(x16) + k * g.cols_pad * 2 + (slice * g.slice_kt + at.kt) * BLOCKS * CUDA_ROW_BYTES,
                            1, lane);
        __syncwarp();
        fill(ring.slot);
        ring.next();
        if (!at.step(g)) continue;
        if (lane % 4 == 0) part[k][slice][lane / 4] = acc[0][0], part[k][slice][lane / 4 + 8] = acc[0][2];
        acc[0][0] = acc[0][1] = acc[0][2] = acc[0][3] = 0;
    }
    __syncthreads();
    const int row = tile * 16 + (int)threadIdx.x;
    if (threadIdx.x >= 16 || row >= a.rows) return;
    float all = 0;
    for (int k = 0; k < a.n_used; k++) {
        float v = 0;
        for (int s = 0; s < g.live; s++) v += part[k][s][threadIdx.x];
        v = v * by[k] * a.gate_scale;
        if (a.gate_bias) v += a.gate_bias[(int64_t)chosen_at(chosen, k) * a.rows + row];
        all = fmaf(a.even ? 1.0f : __ldcg(chosen + k * 2 + 1), v, all);
    }
    float *out = a.out + t * a.rows + row;
    *out = a.add ? *out + all : all;
}

bool cuda_can_experts(tensor_type type, int64_t cols, int n_tok, int n_used) {
    const bool known = type == TENSOR_Q4_0 || type == TENSOR_Q8_0 || type == TENSOR_Q4_K || type == TENSOR_Q6_K ||
                       type == TENSOR_MXFP4;
    return known && n_used <= CUDA_EXPERTS_FEW && n_tok <= CUDA_EXPERTS_TOKENS &&
           (int64_t)n_used * cuda_round_up(cols, CUDA_SLICE_UNIT) * 2 <= 64 * 1024;
}

template <class T> static int start(experts_args &g, cuda_stream s, err *e) {
    const bool up = g.a.up != NULL;
    const int  groups = up ? WARPS >> g.log_slices : 1, most = up ? 2 * g.slice_kt : g.per * g.slice_kt;
    g.stages = RING_BYTES / (WARPS * T::BYTES);
    g.stages = g.stages > RING_STAGES ? RING_STAGES : g.stages;
    g.stages = g.stages > most ? most : g.stages;
    const int64_t    blocks = up ? (int64_t)g.a.n_tok * g.a.n_used * ((g.tiles + groups - 1) / groups)
                                 : (int64_t)g.a.n_tok * g.tiles;
    const cuda_shape shape = { (unsigned)blocks, WARPS * 32, 1,
                               (size_t)WARPS * g.stages * T::BYTES + (size_t)g.cols_pad * 2 * (up ? 1 : g.a.n_used),
                               true };
    return cuda_launch(up ? experts_up_kernel<T> : experts_down_kernel<T>, shape, s, e, g);
}

int cuda_op_experts(const cuda_experts *a, cuda_stream s, err *e) {
    const cuda_weight   w = { a->type, a->rows, a->cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    experts_args        g = {};
    if (a->n_tok == 0) return 0;
    g.a = *a;
    g.n_kt = (int)((a->cols + p.tile_cols - 1) / p.tile_cols);
    g.slice_kt = (int)(p.slice_cols / p.tile_cols);
    g.log_slices = log2_of(p.slices);
    g.live = (g.n_kt + g.slice_kt - 1) / g.slice_kt;
    g.tiles = (int)(p.rows_pad / CUDA_TILE_ROWS);
    g.cols_pad = (int)cuda_round_up(a->cols, CUDA_SLICE_UNIT);
    g.per = (a->n_used * g.live + WARPS - 1) / WARPS;
    switch (a->type) {
    case TENSOR_MXFP4: return start<unpack_mxfp4>(g, s, e);
    case TENSOR_Q4_0: return start<unpack_q4_0>(g, s, e);
    case TENSOR_Q8_0: return start<unpack_q8_0>(g, s, e);
    case TENSOR_Q4_K: return start<unpack_q4_k>(g, s, e);
    case TENSOR_Q6_K: return start<unpack_q6_k>(g, s, e);
    default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no experts with weights of type %d", (int)a->type);
    }
}
