/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The instructions of the matrix kernels by name: copies into shared memory, fragments, tensor cores, barriers of a
 * cluster. Everything here exists from compute capability 8.0 on, except what stands under CUDA_HOPPER (9.0: bulk
 * copies, mbarriers, clusters, dependent launches) and CUDA_WGMMA (9.0a).
 */
#ifndef KERNELS_CUDA_MMA_CUH
#define KERNELS_CUDA_MMA_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define CUDA_HOPPER 1
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define CUDA_WGMMA 1
#endif

__device__ static inline uint32_t smem_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---- copies of 16 bytes per lane ---- */

__device__ static inline void copy16(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ static inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int N> __device__ static inline void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Until at most n of this thread's groups are under way; n is at most 4. */
__device__ static inline void copy_wait_n(int n) {
    switch (n) {
    case 0: copy_wait<0>(); break;
    case 1: copy_wait<1>(); break;
    case 2: copy_wait<2>(); break;
    case 3: copy_wait<3>(); break;
    default: copy_wait<4>(); break;
    }
}

/* ---- fragments ---- */

/* Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8. */
__device__ static inline void load_matrices(uint32_t r[4], uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}

/* c += a * b for 16 x 8 x 16. */
template <bool BF16> __device__ static inline void mma16(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    if constexpr (BF16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

/* ---- launches that begin before the kernel in front has ended ---- */

__device__ static inline void launch_wait() {
#ifdef CUDA_HOPPER
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ static inline void launch_next() {
#ifdef CUDA_HOPPER
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* What a small kernel does first: whoever follows may start to wait, and what is in front has ended. */
__device__ static inline void launch_begin() {
    launch_next();
    launch_wait();
}

/* ---- clusters ---- */

__device__ static inline uint32_t cluster_rank() {
#ifdef CUDA_HOPPER
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
#else
    return 0;
#endif
}

/*
 * All threads of the cluster meet, in two steps. Only shared memory is handed over: a full release would wait for
 * everything on its way to global memory.
 */
__device__ static inline void cluster_arrive() {
#ifdef CUDA_HOPPER
    asm volatile("fence.release.sync_restrict::shared::cta.cluster;\nbarrier.cluster.arrive.relaxed.aligned;" ::
                     : "memory");
#endif
}

__device__ static inline void cluster_wait() {
#ifdef CUDA_HOPPER
    asm volatile("barrier.cluster.wait.aligned;\nfence.acquire.sync_restrict::shared::cluster.cluster;" ::: "memory");
#endif
}

/* Or the threads of the block where it is alone. */
__device__ static inline void cluster_sync(bool alone) {
    if (alone) {
        __syncthreads();
    } else {
        cluster_arrive();
        cluster_wait();
    }
}

__device__ static inline float shared_load(uint32_t at) {
    float f;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(at) : "memory");
    return f;
}

/* The float at address `at` of the shared memory of block `rank` of the cluster. */
__device__ static inline float cluster_load(uint32_t at, uint32_t rank) {
    float f;
#ifdef CUDA_HOPPER
    uint32_t there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(f) : "r"(there) : "memory");
#else
    (void)rank;
    f = shared_load(at);
#endif
    return f;
}

/* All threads of the cluster meet, and see what each of them wrote to global memory. */
__device__ static inline void cluster_sync_global() {
#ifdef CUDA_HOPPER
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

/* ---- mbarriers ---- */

__device__ static inline void barrier_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}

__device__ static inline void barrier_arrive(uint32_t bar) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(bar) : "memory");
}

__device__ static inline void barrier_wait(uint32_t bar, uint32_t parity) {
#ifdef CUDA_HOPPER
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#else
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
#endif
}

/* Whether the phase is over. */
__device__ static inline bool barrier_done(uint32_t bar, uint32_t parity) {
    uint32_t done;
    asm volatile("{\n.reg .pred done;\nmbarrier.test_wait.parity.shared.b64 done, [%1], %2;\nselp.u32 %0, 1, 0, done;\n}"
                 : "=r"(done)
                 : "r"(bar), "r"(parity)
                 : "memory");
    return done;
}

#ifdef CUDA_HOPPER

__device__ static inline void barrier_expect(uint32_t bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}

/* Copies completing on a barrier; sizes are multiples of 16. */
__device__ static inline void bulk_copy(uint32_t to, const void *from, uint32_t bytes, uint32_t bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
}

/* Asks for bytes to be in the L2 cache; both multiples of 16. */
__device__ static inline void bulk_prefetch(const void *from, uint32_t bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

#endif

#ifdef CUDA_WGMMA

/* Arrives at the barrier of that place in block `rank`. What was read from there was read by finished instructions. */
__device__ static inline void barrier_arrive_at(uint32_t bar, uint32_t rank) {
    asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar),
                 "r"(rank)
                 : "memory");
}

/* To the same place, and the same barrier, of every block in the mask. */
__device__ static inline void bulk_copy_all(uint32_t to, const void *from, uint32_t bytes, uint32_t bar,
                                            uint16_t mask) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar), "h"(mask)
                 : "memory");
}

/* ---- wgmma: 64 x N x 16 from shared memory ---- */

/* Descriptor of rows of 128 bytes in the swizzle of an image: groups of 8 rows 1024 bytes apart. */
__device__ static inline uint64_t wgmma_at(uint32_t smem) {
    return (uint64_t)((smem & 0x3ffff) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

__device__ static inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ static inline void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#endif
#endif
