/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product for some dozens to a few hundred activation rows with quantized weights on Hopper: weights are unpacked in
 * registers and multiplied from there (wgmma.m64nNk16, weights as the 64-row side), so that they are read once and their
 * 16-bit values are never written.
 *
 * A block takes 128 weight rows and N activation rows. One thread copies packed tiles into a ring, another one blocks of
 * 64 columns of the activations; two warpgroups unpack and multiply, a row tile per warp. While a block of columns is
 * multiplied, the next one is unpacked into other registers.
 *
 * Where there are few tiles, the blocks of a cluster share one: each takes some slices of K and leaves them, each by
 * itself, in the scratch memory (reading them from each other's shared memory was measured to be four times slower). Then
 * each adds all slices in order for its part of the activation rows.
 */
#include "kernels/cuda/internal.cuh"
#include "kernels/cuda/unpack.cuh"
#include "kernels/cuda/wgmma.cuh"

#define THREADS 384
#define TILE_W 128 /* weight rows of a block */
#define ROW_TILES (TILE_W / CUDA_TILE_ROWS)
#define RING_BYTES (212 * 1024)

struct held_args {
    const uint8_t *w, *x;
    const float   *scale;
    int            rows, rows_pad, n, n_pad;
    int            n_kt, slice_kt; /* column tiles: of the matrix, of a slice */
    int            slices, cluster;
    int            x_tiles, tiles;
    float         *parts; /* [slice][activation row][rows_pad], where a cluster shares a tile */
    product_end    end;
};

template <class T, int N> struct held_ring {
    static constexpr int X_BYTES = N * CUDA_ROW_BYTES, W_BYTES = ROW_TILES * T::BYTES;
    static constexpr int X_STAGES = N == 128 ? 8 : 12, SCRATCH = ROW_TILES * T::SCRATCH;
    static constexpr int FIT = (RING_BYTES - X_STAGES * X_BYTES - SCRATCH) / W_BYTES, W_STAGES = FIT > 6 ? 6 : FIT;
    static constexpr int BYTES = X_STAGES * X_BYTES + W_STAGES * W_BYTES + SCRATCH;
};

#ifdef CUDA_WGMMA

/* A place in a ring of S pieces of B bytes, and the parity of its round. */
template <int S, int B> struct held_place {
    uint32_t base, bars; /* bars: full[S], empty[S] */
    int      slot;
    uint32_t parity;

    __device__ inline uint32_t data() const { return base + slot * B; }
    __device__ inline uint32_t full() const { return bars + slot * 8; }
    __device__ inline uint32_t empty() const { return bars + (S + slot) * 8; }
    __device__ inline void     advance() {
            if (++slot == S) slot = 0, parity ^= 1;
    }
};

template <class T, int N> using held_x = held_place<held_ring<T, N>::X_STAGES, held_ring<T, N>::X_BYTES>;
template <class T, int N> using held_w = held_place<held_ring<T, N>::W_STAGES, held_ring<T, N>::W_BYTES>;

/* The tiles of this block and, of each, the column tiles [from, end). */
struct held_work {
    int tile, step, from, end, rank;
};

__device__ static inline held_work held_work_of(const held_args &a) {
    const int rank = a.cluster > 1 ? (int)cluster_rank() : 0, per = a.slices / a.cluster;
    const int from = min(a.n_kt, rank * per * a.slice_kt);
    return { (int)blockIdx.x / a.cluster, (int)gridDim.x / a.cluster, from, min(a.n_kt, from + per * a.slice_kt), rank };
}

template <class T, int N> __device__ static inline void held_send_w(const held_args &a, held_w<T, N> at) {
    const held_work k = held_work_of(a);
    for (int t = k.tile; t < a.tiles; t += k.step) {
        const int rt = t / a.x_tiles * ROW_TILES, n = min(ROW_TILES, a.rows_pad / CUDA_TILE_ROWS - rt);
        for (int kt = k.from; kt < k.end; kt++) {
            barrier_wait(at.empty(), at.parity ^ 1);
            barrier_expect(at.full(), (uint32_t)(n * T::BYTES));
            for (int i = 0; i < n; i++)
                bulk_copy(at.data() + i * T::BYTES, T::at(a.w, rt + i, kt, a.n_kt, a.rows_pad), T::BYTES, at.full());
            at.advance();
        }
    }
}

template <class T, int N> __device__ static inline void held_send_x(const held_args &a, held_x<T, N> at) {
    constexpr int   BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    const held_work k = held_work_of(a);
    for (int t = k.tile; t < a.tiles; t += k.step) {
        const int x0 = t % a.x_tiles * N, bytes = min(N, a.n_pad - x0) * CUDA_ROW_BYTES;
        for (int b = k.from * BLOCKS; b < k.end * BLOCKS; b++) {
            barrier_wait(at.empty(), at.parity ^ 1);
            barrier_expect(at.full(), (uint32_t)bytes);
            bulk_copy(at.data(), a.x + ((int64_t)b * a.n_pad + x0) * CUDA_ROW_BYTES, (uint32_t)bytes, at.full());
            at.advance();
        }
    }
}

/* Column tiles [from, end) of one slice from zero; both rings move on. */
template <class T, int N>
__device__ static inline void held_slice(float acc[N / 2], const uint8_t *smem, uint8_t *scratch, held_w<T, N> &w,
                                         held_x<T, N> &x, int from, int end, int warp, int lane) {
    constexpr int BLOCKS = T::COLS / CUDA_BLOCK_COLS;
    uint32_t      fa[2][4][4];
    held_x<T, N>  before = x;
    const bool    speaker = threadIdx.x % 128 == 0;
    for (int kt = from; kt < end; kt++) {
        barrier_wait(w.full(), w.parity);
        const uint8_t *tile = smem + (w.data() - smem_at(smem)) + warp * T::BYTES;
        if (T::SCRATCH) {
            T::prepare(tile, scratch, lane);
            __syncwarp();
        }
#pragma unroll
        for (int b = 0; b < BLOCKS; b++) {
            T::fragments(fa[b & 1], tile, scratch, b, lane);
            if (b == BLOCKS - 1) { /* the tile is in registers */
                __syncwarp();
                if (lane == 0) barrier_arrive(w.empty());
            }
            barrier_wait(x.full(), x.parity);
            const uint64_t dx = wgmma_at(x.data());
            wgmma_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) wgmma_held<N>::run(acc, fa[b & 1][j], dx + 2 * j, kt > from || b > 0 || j > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (speaker && (kt > from || b > 0)) barrier_arrive(before.empty());
            before = x;
            x.advance();
        }
        w.advance();
    }
    wgmma_wait<0>();
    if (speaker) barrier_arrive(before.empty());
}

/* Sums of this warp: of weight rows row0 + lane / 4 (+ 8), activation rows 8 i + 2 (lane % 4) (+ 1). */
template <int N>
__device__ static inline void held_store(const held_args &a, const float sum[N / 2], int x0, int row0, int lane) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = row0 + lane / 4 + half * 8;
        if (row >= a.rows) continue;
        const product_line line(a.end, row);
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const int col = x0 + i / 2 * 8 + lane % 4 * 2 + i % 2;
            if (col < a.n) line.put(col, sum[i / 2 * 4 + half * 2 + i % 2], a.scale[col]);
        }
    }
}

/* One slice to the memory that the other blocks read. */
template <int N>
__device__ static inline void held_leave(const held_args &a, const float acc[N / 2], int slice, int x0, int row0,
                                         int lane) {
    if (row0 >= a.rows_pad) return;
    float *to = a.parts + ((int64_t)slice * a.n + x0) * a.rows_pad + row0 + lane / 4;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        const int col = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (x0 + col < a.n) to[(int64_t)col * a.rows_pad + i / 2 % 2 * 8] = acc[i];
    }
}

/* All slices of this block's part of the activation rows, in order, four weight rows per thread. */
template <int N> __device__ static inline void held_meet(const held_args &a, int tile, int rank) {
    const int share = N / a.cluster, x0 = tile % a.x_tiles * N + rank * share, row0 = tile / a.x_tiles * TILE_W;
    const int slices = (a.n_kt + a.slice_kt - 1) / a.slice_kt; /* that are not empty */
    for (int i = (int)threadIdx.x - 128; i < share * (TILE_W / 4); i += 256) {
        const int col = x0 + i / (TILE_W / 4), row = row0 + i % (TILE_W / 4) * 4;
        if (row >= a.rows || col >= a.n) continue;
        const float4 *from = reinterpret_cast<const float4 *>(a.parts + (int64_t)col * a.rows_pad + row);
        const int64_t step = (int64_t)a.n * a.rows_pad / 4;
        float4        part[CUDA_SLICES_MAX];
        float         sum[4] = { 0, 0, 0, 0 };
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) part[s] = __ldcg(from + min(s, slices - 1) * step);
#pragma unroll
        for (int s = 0; s < CUDA_SLICES_MAX; s++) {
            if (s < slices) sum[0] += part[s].x, sum[1] += part[s].y, sum[2] += part[s].z, sum[3] += part[s].w;
        }
        const float scale = a.scale[col];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            if (row + k >= a.rows) continue;
            float *out = a.end.at(col, row + k);
            *out = a.end.value(sum[k], scale, row + k, out);
        }
    }
}

template <class T, int N>
__device__ static inline void held_multiply(const held_args &a, uint8_t *smem, held_w<T, N> w, held_x<T, N> x) {
    const held_work k = held_work_of(a);
    const int       warp = ((int)threadIdx.x - 128) / 32, lane = (int)threadIdx.x % 32;
    uint8_t        *scratch = smem + held_ring<T, N>::BYTES - held_ring<T, N>::SCRATCH + warp * T::SCRATCH;
    for (int t = k.tile; t < a.tiles; t += k.step) {
        const int x0 = t % a.x_tiles * N, row0 = t / a.x_tiles * TILE_W + warp * CUDA_TILE_ROWS;
        float     acc[N / 2], sum[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = acc[i] = 0;
        for (int kt = k.from; kt < k.end; kt += a.slice_kt) {
            held_slice<T, N>(acc, smem, scratch, w, x, kt, min(k.end, kt + a.slice_kt), warp, lane);
            if (a.cluster > 1) {
                held_leave<N>(a, acc, kt / a.slice_kt, x0, row0, lane);
                continue;
            }
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] += acc[i];
        }
        if (a.cluster == 1) held_store<N>(a, sum, x0, row0, lane);
    }
}

#endif

template <class T, int N> static __global__ __launch_bounds__(THREADS, 1) void held_kernel(const held_args a) {
#ifdef CUDA_WGMMA
    extern __shared__ __align__(1024) uint8_t room[];
    using ring = held_ring<T, N>;
    __shared__ __align__(8) uint64_t x_bars[2 * ring::X_STAGES], w_bars[2 * ring::W_STAGES];
    uint8_t                         *smem = room + ((1024 - (smem_at(room) & 1023)) & 1023);
    const held_x<T, N>               x = { smem_at(smem), smem_at(x_bars), 0, 0 };
    const held_w<T, N>               w = { smem_at(smem) + ring::X_STAGES * ring::X_BYTES, smem_at(w_bars), 0, 0 };
    launch_next();
    T::begin();
    if (threadIdx.x == 0) {
        for (int i = 0; i < ring::X_STAGES; i++) {
            barrier_init(x.bars + i * 8, 1);
            barrier_init(x.bars + (ring::X_STAGES + i) * 8, 2);
        }
        for (int i = 0; i < ring::W_STAGES; i++) {
            barrier_init(w.bars + i * 8, 1);
            barrier_init(w.bars + (ring::W_STAGES + i) * 8, ROW_TILES);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 32) held_send_w<T, N>(a, w); /* does not depend on the kernel in front */
        launch_wait();
        if (threadIdx.x == 0) held_send_x<T, N>(a, x);
        __syncwarp();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        launch_wait();
        held_multiply<T, N>(a, smem, w, x);
    }
    if (a.cluster == 1) return;
    const held_work k = held_work_of(a);
    cluster_sync_global();
    if (threadIdx.x >= 128) held_meet<N>(a, k.tile, k.rank);
#else
    (void)a;
#endif
}

/* ---- the launching side ---- */

/* Rounds over the chip times the columns that a block multiplies in one, its fixed part counted as 512 more, and that of
 * sharing as five for each activation row. */
static int64_t held_cost(const cuda_device *d, int64_t tiles, int64_t cols, int n, int cluster) {
    const int64_t most = cluster == 1 ? d->sms : d->clusters[log2_of(cluster)];
    return most == 0 ? INT64_MAX : (tiles + most - 1) / most * (cols / cluster + 512 + (cluster == 1 ? 0 : 5 * n));
}

template <class T, int N> static int held_start(const cuda_device *d, held_args k, int64_t cols, cuda_stream s, err *e) {
    k.x_tiles = (k.n + N - 1) / N;
    k.tiles = k.x_tiles * ((k.rows + TILE_W - 1) / TILE_W);
    k.cluster = 1;
    const bool fits = k.parts && (int64_t)k.slices * k.n * 4 <= cols * 2; /* in a scratch for the matrix in 16 bits */
    for (int c = 2; fits && c <= k.slices; c *= 2) {
        if (held_cost(d, k.tiles, cols, N, c) < held_cost(d, k.tiles, cols, N, k.cluster)) k.cluster = c;
    }
    const int        teams = k.cluster > 1 || k.tiles < d->sms ? k.tiles : d->sms;
    const cuda_shape shape = { (unsigned)(teams * k.cluster), THREADS, (unsigned)k.cluster,
                               (size_t)held_ring<T, N>::BYTES + 1024, true };
    static_assert(held_ring<T, N>::W_STAGES >= 2, "tiles under way");
    return cuda_launch(held_kernel<T, N>, shape, s, e, k);
}

template <class T>
static int held_start_type(const cuda_device *d, const held_args &k, int64_t cols, cuda_stream s, err *e) {
    if constexpr (!T::LEAN) {
        if (k.n <= 32) return held_start<T, 32>(d, k, cols, s, e);
    }
    return k.n <= 64 ? held_start<T, 64>(d, k, cols, s, e) : held_start<T, 128>(d, k, cols, s, e);
}

int product_held(const cuda_device *d, const cuda_product_args *a, cuda_stream s, err *e) {
    if (d->code != 90) return err_set(e, ERR_UNSUPPORTED, "CUDA: %s has no wgmma", d->name);
    const product_shape p = product_shape_of(&a->w);
    const held_args     k = { (const uint8_t *)a->w.data,
                              (const uint8_t *)a->x.data,
                              a->x.scale,
                              (int)p.rows,
                              (int)p.rows_pad,
                              (int)a->x.n,
                              (int)a->x.n_pad,
                              (int)((p.cols + p.tile_cols - 1) / p.tile_cols),
                              (int)(p.slice_cols / p.tile_cols),
                              p.slices,
                              0,
                              0,
                              0,
                              (float *)a->scratch,
                              product_end_of(a) };
    switch (a->w.type) {
#define START(type, T)                                                                                                 \
    case type: return held_start_type<T>(d, k, p.cols, s, e);
        UNPACK_TILED(START)
#undef START
    default: return err_set(e, ERR_ARG, "CUDA: weights of type %d are not unpacked", (int)a->w.type);
    }
}
