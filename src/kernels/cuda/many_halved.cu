/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The product of up to 128 activation rows with a matrix of so few rows that half of the multiprocessors would have no tile:
 * the two blocks of a cluster share one of 64 weight rows. The first takes the first half of the slices of K and hands its
 * sum to the second, which has kept each of its slices apart and adds them in order.
 */
#include "kernels/cuda/many_wgmma.cuh"

#define TILE_W 64
#define PLACES 7
#define KEPT (CUDA_SLICES_MAX / 2)
#define ROOM (TILE_X * TILE_W * 4)

#ifdef CUDA_WGMMA

using halved_place = wgmma_place<TILE_W>; /* its ring has more places than are used here */

__device__ static inline void halved_advance(halved_place &at) {
    if (++at.slot == PLACES) at.slot = 0, at.parity ^= 1;
}

__device__ static inline void halved_produce(const wgmma_args &a, halved_place at, int w0, int k0, int k1) {
    const int x_rows = rows_there(0, TILE_X, a.n_pad), w_rows = rows_there(w0, TILE_W, a.rows_pad);
    for (int k = k0; k < k1; k++, halved_advance(at)) {
        barrier_wait(at.empty(), at.parity ^ 1);
        barrier_expect(at.full(), (uint32_t)(x_rows + w_rows) * CUDA_ROW_BYTES);
        bulk_copy(at.data() + wgmma_ring<TILE_W>::X_BYTES, a.w + ((int64_t)k * a.pitch + w0) * CUDA_ROW_BYTES,
                  w_rows * CUDA_ROW_BYTES, at.full());
        bulk_copy(at.data(), a.x + (int64_t)k * a.n_pad * CUDA_ROW_BYTES, x_rows * CUDA_ROW_BYTES, at.full());
    }
}

/* One slice: blocks [k0, k1), at least one. */
template <bool BF16>
__device__ static inline void halved_slice(float acc[TILE_W / 2], halved_place &at, int k0, int k1, int group) {
    halved_place before = at;
    for (int k = k0; k < k1; k++) {
        barrier_wait(at.full(), at.parity);
        const uint64_t dx = wgmma_at(at.data() + group * 64 * CUDA_ROW_BYTES),
                       dw = wgmma_at(at.data() + wgmma_ring<TILE_W>::X_BYTES);
        wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; j++) wgmma<TILE_W, BF16>::run(acc, dx + 2 * j, dw + 2 * j, k > k0 || j > 0);
        wgmma_commit();
        wgmma_wait<1>();
        if (k > k0 && threadIdx.x % 128 == 0) barrier_arrive(before.empty());
        before = at;
        halved_advance(at);
    }
    wgmma_wait<0>();
    if (threadIdx.x % 128 == 0) barrier_arrive(before.empty());
}

/* This thread's sums to the same thread of block 1, or from there. */
__device__ static inline void halved_hand_over(uint32_t room, const float sum[TILE_W / 2], int thread) {
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, 1;" : "=r"(there) : "r"(room));
#pragma unroll
    for (int i = 0; i < TILE_W / 8; i++)
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there + (i * 256 + thread) * 16),
                     "f"(sum[4 * i]), "f"(sum[4 * i + 1]), "f"(sum[4 * i + 2]), "f"(sum[4 * i + 3])
                     : "memory");
}

__device__ static inline void halved_take_over(const uint8_t *room, float sum[TILE_W / 2], int thread) {
#pragma unroll
    for (int i = 0; i < TILE_W / 8; i++) {
        const float4 v = reinterpret_cast<const float4 *>(room)[i * 256 + thread];
        sum[4 * i] = v.x, sum[4 * i + 1] = v.y, sum[4 * i + 2] = v.z, sum[4 * i + 3] = v.w;
    }
}

template <bool BF16>
__device__ static inline void halved_consume(const wgmma_args &a, halved_place at, const uint8_t *room, uint32_t rank,
                                             int w0, int k0, int k1) {
    const int thread = (int)threadIdx.x - 128, group = thread / 128;
    float     acc[KEPT][TILE_W / 2], sum[TILE_W / 2];
#pragma unroll
    for (int s = 0; s < KEPT; s++) {
        const int from = k0 + s * a.slice_blocks;
        if (from < k1) halved_slice<BF16>(acc[s], at, from, min(from + a.slice_blocks, k1), group);
    }
#pragma unroll
    for (int i = 0; i < TILE_W / 2; i++) sum[i] = 0;
    if (rank) {
        cluster_sync_global();
        halved_take_over(room, sum, thread);
    }
#pragma unroll
    for (int s = 0; s < KEPT; s++) {
        if (k0 + s * a.slice_blocks >= k1) continue;
#pragma unroll
        for (int i = 0; i < TILE_W / 2; i++) sum[i] += acc[s][i];
    }
    if (rank) {
        wgmma_store<TILE_W>(a, sum, group * 64, w0);
    } else {
        halved_hand_over(smem_at(room), sum, thread);
        cluster_sync_global();
    }
}

#endif

template <bool BF16> static __global__ __launch_bounds__(THREADS, 1) void many_halved_kernel(const wgmma_args a, int mid) {
#ifdef CUDA_WGMMA
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t bars[2 * wgmma_ring<TILE_W>::STAGES];
    uint8_t           *ring = smem + ((1024 - (smem_at(smem) & 1023)) & 1023);
    const halved_place start = { smem_at(ring), smem_at(bars), 0, 0 };
    const uint8_t     *room = ring + PLACES * wgmma_ring<TILE_W>::BYTES;
    const uint32_t     rank = cluster_rank();
    const int          w0 = (int)blockIdx.x / 2 * TILE_W, k0 = rank ? mid : 0, k1 = rank ? a.blocks : mid;
    if (threadIdx.x == 0) {
        for (int i = 0; i < PLACES; i++) {
            barrier_init(start.bars + i * 8, 1);
            barrier_init(start.bars + (wgmma_ring<TILE_W>::STAGES + i) * 8, 2);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_sync(false);
    launch_begin();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) halved_produce(a, start, w0, k0, k1);
        __syncwarp();
        cluster_sync_global();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        halved_consume<BF16>(a, start, room, rank, w0, k0, k1);
    }
#else
    (void)a, (void)mid;
#endif
}

/* One tile of activation rows, and no more tiles of weight rows than there are clusters. */
bool product_halved_can(const cuda_device *d, const wgmma_args &k) {
    return k.n <= TILE_X && (k.rows + TILE_W - 1) / TILE_W <= d->clusters[1] && k.blocks >= 4 * k.slice_blocks;
}

int product_halved(const wgmma_args &k, bool bf16, bool early, cuda_stream s, err *e) {
    const int slices = (k.blocks + k.slice_blocks - 1) / k.slice_blocks;
    const int mid = slices / 2 * k.slice_blocks;
    const cuda_shape shape = { (unsigned)((k.rows + TILE_W - 1) / TILE_W) * 2, THREADS, 2,
                               PLACES * wgmma_ring<TILE_W>::BYTES + ROOM + 1024, early };
    return bf16 ? cuda_launch(many_halved_kernel<true>, shape, s, e, k, mid)
                : cuda_launch(many_halved_kernel<false>, shape, s, e, k, mid);
}
