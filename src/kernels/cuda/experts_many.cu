/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experts of many tokens: an expert's matrices times the rows that chose it, the same values as grouped.cu gives.
 *
 * A block takes an item (up to 8, 16 or 32 rows of one expert, route.cu), holds its rows in shared memory and goes through
 * some of the matrix's row tiles. A warp has a row tile by itself: it streams the packed tiles through a ring of its own,
 * one slice of K after the other, and adds the slices in order in registers, so that warps never meet. With gate and up
 * it makes both and the gated unit of them.
 */
#include "kernels/cuda/act.cuh"
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/ring.cuh"

#define MOST_ROWS 32
#define ROOM (200 * 1024)
#define STATIC_BYTES (2 * 1024) /* what the kernel has of its own, at most, but for what unpacking shares */

struct many_args {
    cuda_many_experts a;
    int               n_kt, slice_kt, tiles;
    int               stages, spans, per; /* per: row tiles of a block */
};

/* The n rows of an item to shared memory: [block of 64 columns][ROWS], swizzled by their place there. Places without a row
 * hold anything: they lead to columns that nobody reads, and lanes that load from one place instead would wait for each
 * other. */
template <int THREADS, int ROWS>
__device__ static inline void many_rows(const cuda_many_experts &a, uint32_t to, const int *rows, int n, int blocks) {
    const uint8_t *image = static_cast<const uint8_t *>(a.x.data);
    for (int i = (int)threadIdx.x; i < blocks * n * 8; i += THREADS) {
        const int c = i % 8, k = i / 8 % n, b = i / 8 / n, row = rows[k] / a.in_div;
        copy16(to + (b * ROWS + k) * CUDA_ROW_BYTES + (c ^ (k & 7)) * 16,
               image + ((int64_t)b * a.x.n_pad + row) * CUDA_ROW_BYTES + (c ^ (row & 7)) * 16);
    }
    copy_commit();
}

/* Where a warp loads next: column tile kt of matrix m of row tile `tile`. */
struct many_walk {
    int tile, m, kt;

    template <int MATS> __device__ inline void step(int n_kt, int by) {
        if (++kt < n_kt) return;
        kt = 0;
        if (++m < MATS) return;
        m = 0, tile += by;
    }
};

/* What becomes of the sums of one row tile; lanes have rows lane / 4 and that + 8, columns 2 (lane % 4) and that + 1. */
template <int NT, int MATS>
__device__ static inline void many_end(const many_args &g, const float sum[MATS][NT][4], const int *rows,
                                       const float *scale, int mat, int tile, int n, int lane) {
    const cuda_many_experts &a = g.a;
#pragma unroll
    for (int i = 0; i < NT * 4; i++) {
        const int col = i / 4 * 8 + lane % 4 * 2 + i % 2, row = tile * 16 + lane / 4 + i / 2 % 2 * 8;
        if (col >= n || row >= a.rows) continue;
        float v[2] = {};
#pragma unroll
        for (int m = 0; m < MATS; m++) {
            const float *bias = m ? a.up_bias : a.gate_bias;
            v[m] = sum[m][i / 4][i % 4] * scale[col] * (m ? a.up_scale : a.gate_scale);
            if (bias) v[m] += bias[(int64_t)mat * a.rows + row];
        }
        if (MATS == 2) v[0] = a.limit != 0 ? clamped_glu(v[0], v[1], a.limit, a.alpha) : act_of(a.act, v[0]) * v[1];
        a.out[(int64_t)rows[col] * a.rows + row] = v[0];
    }
}

template <class T, int NT, int MATS, int WARPS>
static __global__ __launch_bounds__(WARPS * 32, 16 / WARPS) void many_kernel(const many_args g) {
    extern __shared__ __align__(128) uint8_t smem[]; /* rings, scratch, rows */
    __shared__ int                           rows[MOST_ROWS];
    __shared__ float                         scale[MOST_ROWS];
    __shared__ __align__(8) uint64_t         bars[WARPS][RING_STAGES];
    constexpr int                            BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const cuda_many_experts                 &a = g.a;
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int item = (int)blockIdx.x / g.spans, first = (int)blockIdx.x % g.spans * g.per,
              end = min(first + g.per, g.tiles);
    tile_ring<T> ring;
    ring.init(smem + warp * g.stages * T::BYTES, bars[warp], g.stages, lane);
    T::begin();
    launch_begin();
    if (item >= a.items[0]) return;
    const int mat = a.items[1 + item * 3], at = a.items[2 + item * 3], n = a.items[3 + item * 3];
    uint8_t  *scratch = smem + WARPS * g.stages * T::BYTES + warp * T::SCRATCH;
    const uint32_t x = smem_at(smem) + WARPS * (g.stages * T::BYTES + T::SCRATCH);
    many_walk      in = { first + warp, 0, 0 };
    auto           fill = [&](int slot) {
        if (in.tile >= end) return;
        ring.fill(slot, (in.m ? a.up : a.gate) + (int64_t)mat * (int64_t)a.each +
                            ((int64_t)in.tile * g.n_kt + in.kt) * T::BYTES);
        in.template step<MATS>(g.n_kt, WARPS);
    };
    for (int i = 0; i < g.stages; i++) fill(i);
    if ((int)threadIdx.x < n) {
        const int row = a.order[at + (int)threadIdx.x];
        rows[threadIdx.x] = row;
        scale[threadIdx.x] = a.x.scale[row / a.in_div];
    }
    __syncthreads();
    many_rows<WARPS * 32, NT * 8>(a, x, rows, n, g.n_kt * BLOCKS);
    copy_wait<0>();
    __syncthreads();
    for (int tile = first + warp; tile < end; tile += WARPS) {
        float sum[MATS][NT][4] = {};
#pragma unroll
        for (int m = 0; m < MATS; m++) {
            for (int k0 = 0; k0 < g.n_kt; k0 += g.slice_kt) {
                float acc[NT][4] = {};
                for (int kt = k0; kt < min(k0 + g.slice_kt, g.n_kt); kt++) {
                    const uint8_t *w = ring.wait();
                    tile_multiply<T, NT>(acc, w, scratch, x + kt * BLOCKS * NT * 8 * CUDA_ROW_BYTES, lane);
                    __syncwarp();
                    fill(ring.slot);
                    ring.next();
                }
#pragma unroll
                for (int i = 0; i < NT * 4; i++) sum[m][i / 4][i % 4] += acc[i / 4][i % 4];
            }
        }
        many_end<NT, MATS>(g, sum, rows, scale, mat, tile, n, lane);
    }
}

/* ---- the launching side ---- */

static size_t rows_bytes(int64_t cols, int rows) {
    return (size_t)rows * (size_t)cuda_round_up(cols, CUDA_SLICE_UNIT) * 2;
}

/* What a block can ask for, and `most` at most. */
static size_t block_bytes(int most, int64_t shared) {
    const int64_t there = cuda_block_smem() - STATIC_BYTES - shared;
    return there < 0 ? 0 : (size_t)(there < most ? there : most);
}

static product_shape shape_of(tensor_type type, int64_t cols) {
    const cuda_weight w = { type, CUDA_TILE_ROWS, cols, NULL, 0 };
    return product_shape_of(&w);
}

/* Of `warps` with two places each, the least that they work with. */
static size_t least_rings(const product_shape &p, int warps) {
    return (size_t)warps * (size_t)(2 * p.tile_bytes + p.scratch_bytes);
}

bool cuda_can_many_experts(tensor_type type, int64_t cols) {
    const size_t        rows = rows_bytes(cols, CUDA_ITEM_ROWS);
    const product_shape p = shape_of(type, cols);
    return product_is_tiled(type) && rows + least_rings(p, 8) <= block_bytes(ROOM, p.shared_bytes);
}

int cuda_item_rows(tensor_type type, int64_t rows, int n_expert, int64_t cols) {
    const product_shape p = shape_of(type, cols);
    const size_t        rings = least_rings(p, 16);
    const int64_t       each = rows / n_expert; /* of an expert, on average */
    int                 n = each > 16 ? 32 : each > 4 ? 16 : CUDA_ITEM_ROWS;
    if (p.lean && n == 16) n = 32;
    while (n > CUDA_ITEM_ROWS && rows_bytes(cols, n) + rings > block_bytes(220 * 1024, p.shared_bytes))
        n = p.lean ? CUDA_ITEM_ROWS : n / 2;
    return n;
}

template <class T, int NT, int MATS, int WARPS> static int start(many_args &g, cuda_stream s, err *e) {
    const cuda_many_experts &a = g.a;
    const size_t             fixed = rows_bytes(a.cols, NT * 8) + WARPS * T::SCRATCH;
    const size_t             all = block_bytes(ROOM, T::SHARED), part = all * WARPS / 16;
    /* One block of 16 warps on a multiprocessor, or two of 8 where their rows leave room for copies. */
    const size_t room = fixed + 2 * WARPS * T::BYTES <= part ? part : all;
    g.stages = fixed < room ? (int)((room - fixed) / (WARPS * T::BYTES)) : 0;
    g.stages = g.stages > RING_STAGES ? RING_STAGES : g.stages < 2 ? 2 : g.stages;
    /* A few tiles of a warp at least, so that the rows are not brought for one. */
    const int64_t most = a.n / a.item_rows + a.n_mats, items = most < a.n ? most : a.n;
    const int     rounds = MATS * g.n_kt >= 16 ? 1 : 16 / (MATS * g.n_kt);
    g.per = WARPS * rounds;
    g.spans = (g.tiles + g.per - 1) / g.per;
    const cuda_shape shape = { (unsigned)(items * g.spans), WARPS * 32, 1, fixed + (size_t)WARPS * g.stages * T::BYTES,
                               true };
    return cuda_launch(many_kernel<T, NT, MATS, WARPS>, shape, s, e, g);
}

template <class T> static int start_type(many_args &g, cuda_stream s, err *e) {
    const bool both = g.a.up != NULL;
    if (g.a.item_rows == 8) return both ? start<T, 1, 2, 8>(g, s, e) : start<T, 1, 1, 8>(g, s, e);
    if constexpr (!T::LEAN) {
        if (g.a.item_rows == 16) return both ? start<T, 2, 2, 16>(g, s, e) : start<T, 2, 1, 16>(g, s, e);
    }
    return both ? start<T, 4, 2, 16>(g, s, e) : start<T, 4, 1, 16>(g, s, e);
}

int cuda_op_many_experts(const cuda_many_experts *a, cuda_stream s, err *e) {
    const cuda_weight   w = { a->type, a->rows, a->cols, NULL, 0 };
    const product_shape p = product_shape_of(&w);
    many_args           g = {};
    if (a->n == 0) return 0;
    g.a = *a;
    g.n_kt = (int)((a->cols + p.tile_cols - 1) / p.tile_cols);
    g.slice_kt = (int)(p.slice_cols / p.tile_cols);
    g.tiles = (int)(p.rows_pad / CUDA_TILE_ROWS);
    switch (a->type) {
#define START(type, T)                                                                                                 \
    case type: return start_type<T>(g, s, e);
        UNPACK_TILED(START)
#undef START
    default: return err_set(e, ERR_UNSUPPORTED, "CUDA: no experts with weights of type %d", (int)a->type);
    }
}
