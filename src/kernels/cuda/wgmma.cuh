/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wgmma.m64nNk16 for the tile widths of the matrix kernel: d = a * b, or d += a * b, operands in shared memory
 * (descriptors of mma.cuh). Thread l of warp w in the warpgroup holds, of row 16w + l / 4 (+ 8), columns 8i + 2 (l % 4)
 * and the next: d[4i], d[4i+1] (d[4i+2], d[4i+3] for the row + 8).
 */
#ifndef KERNELS_CUDA_WGMMA_CUH
#define KERNELS_CUDA_WGMMA_CUH

#include "kernels/cuda/mma.cuh"

#ifdef CUDA_WGMMA

#define WGMMA_OUT_4 "%0,%1,%2,%3"
#define WGMMA_OUT_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WGMMA_OUT_32                                                                                                   \
    "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"                                                            \
    ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define WGMMA_OUT_64                                                                                                   \
    WGMMA_OUT_32                                                                                                       \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"                                                 \
    ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WGMMA_OUT_96                                                                                                   \
    WGMMA_OUT_64                                                                                                       \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"                                                 \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"

#define WGMMA_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_D16(d, i) WGMMA_D4(d, i), WGMMA_D4(d, i + 4), WGMMA_D4(d, i + 8), WGMMA_D4(d, i + 12)
#define WGMMA_D32(d, i) WGMMA_D16(d, i), WGMMA_D16(d, i + 16)

/* The operands behind the n outputs are the two descriptors and the flag "add to d". */
#define WGMMA(shape, type, outs, a, b, c, ...)                                                                         \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\nwgmma.mma_async.sync.aligned." shape "k16.f32." type   \
                 "." type " {" outs "}, %" #a ", %" #b ", p, 1, 1, 0, 0;\n}"                                           \
                 : __VA_ARGS__                                                                                         \
                 : "l"(da), "l"(db), "r"(add))

template <int N, bool BF16> struct wgmma;

#define WGMMA_SIZE(N, OUT, A, B, C, ...)                                                                               \
    template <bool BF16> struct wgmma<N, BF16> {                                                                       \
        __device__ static inline void run(float *d, uint64_t da, uint64_t db, int add) {                               \
            if constexpr (BF16)                                                                                        \
                WGMMA("m64n" #N, "bf16", OUT, A, B, C, __VA_ARGS__);                                                   \
            else                                                                                                       \
                WGMMA("m64n" #N, "f16", OUT, A, B, C, __VA_ARGS__);                                                    \
        }                                                                                                              \
    };

WGMMA_SIZE(8, WGMMA_OUT_4, 4, 5, 6, WGMMA_D4(d, 0))
WGMMA_SIZE(64, WGMMA_OUT_32, 32, 33, 34, WGMMA_D32(d, 0))
WGMMA_SIZE(128, WGMMA_OUT_64, 64, 65, 66, WGMMA_D32(d, 0), WGMMA_D32(d, 32))
WGMMA_SIZE(192, WGMMA_OUT_96, 96, 97, 98, WGMMA_D32(d, 0), WGMMA_D32(d, 32), WGMMA_D32(d, 64))

/* The same with f16 values of `a` in registers: each warp has 16 of the 64 rows, as mma.m16n8k16 wants them. */
#define WGMMA_HELD(shape, outs, a0, a1, a2, a3, b, c, ...)                                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #c ", 0;\nwgmma.mma_async.sync.aligned." shape                   \
                 "k16.f32.f16.f16 {" outs "}, {%" #a0 ",%" #a1 ",%" #a2 ",%" #a3 "}, %" #b ", p, 1, 1, 0;\n}"          \
                 : __VA_ARGS__                                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(db), "r"(add))

template <int N> struct wgmma_held;

#define WGMMA_HELD_SIZE(N, OUT, A0, A1, A2, A3, B, C, ...)                                                             \
    template <> struct wgmma_held<N> {                                                                                 \
        __device__ static inline void run(float *d, const uint32_t a[4], uint64_t db, int add) {                       \
            WGMMA_HELD("m64n" #N, OUT, A0, A1, A2, A3, B, C, __VA_ARGS__);                                             \
        }                                                                                                              \
    };

WGMMA_HELD_SIZE(32, WGMMA_OUT_16, 16, 17, 18, 19, 20, 21, WGMMA_D16(d, 0))
WGMMA_HELD_SIZE(64, WGMMA_OUT_32, 32, 33, 34, 35, 36, 37, WGMMA_D32(d, 0))
WGMMA_HELD_SIZE(128, WGMMA_OUT_64, 64, 65, 66, 67, 68, 69, WGMMA_D32(d, 0), WGMMA_D32(d, 32))

#endif
#endif
