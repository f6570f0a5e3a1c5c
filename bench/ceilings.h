/* SPDX-License-Identifier: Apache-2.0 */
/* What a core can do at best: multiply-adds of f32 in registers, and reading memory. */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include "kernels/cpu.h"
#include "kernels/kernels.h"

#include <stdint.h>
#include <string.h>
#if KERNELS_X86
#include <immintrin.h>
#endif

#if KERNELS_X86
#define PEAK(name, feature, type, set1, fma, reg)                                                                      \
    __attribute__((target(feature))) static inline float name(int64_t n) {                                             \
        type  x = set1(0.5f), a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x;                    \
        float out[16];                                                                                                 \
        for (; n > 0; n--) {                                                                                           \
            a = fma(a, x, x), b = fma(b, x, x), c = fma(c, x, x), d = fma(d, x, x), e = fma(e, x, x);                  \
            f = fma(f, x, x), g = fma(g, x, x), h = fma(h, x, x), i = fma(i, x, x), j = fma(j, x, x);                  \
            __asm__ volatile(""                                                                                        \
                             : "+" reg(a), "+" reg(b), "+" reg(c), "+" reg(d), "+" reg(e), "+" reg(f), "+" reg(g),     \
                               "+" reg(h), "+" reg(i), "+" reg(j));                                                    \
        }                                                                                                              \
        a = fma(a, b, fma(c, d, fma(e, f, fma(g, h, fma(i, j, x)))));                                                  \
        memcpy(out, &a, sizeof a);                                                                                     \
        return out[0];                                                                                                 \
    }
PEAK(peak_512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, "v")
PEAK(peak_256, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, "x")
#endif

enum { CEILING_FMAS = 10 }; /* side by side, of a vector each */

/* n rounds of CEILING_FMAS multiply-adds in the widest registers that cpu has; sets how many floats one holds. */
static inline float ceiling_fma(unsigned cpu, int64_t n, int *lanes) {
    *lanes = cpu & CPU_AVX512 ? 16 : 8;
#if KERNELS_X86
    return cpu & CPU_AVX512 ? peak_512(n) : peak_256(n);
#else
    (void)n;
    return 0;
#endif
}

/* Four streams, or one with prefetch: which is faster depends on the machine, so both are tried. */
static inline float ceiling_read(const uint8_t *p, size_t bytes, int streams) {
    const size_t part = bytes / (size_t)streams / 64 * 64, ahead = streams == 1 ? 4096 : 0;
    uint64_t     s[4] = { 0 };
    for (size_t i = 0; i < part; i += 64) {
        for (int k = 0; k < streams; k++) {
            const uint8_t *at = p + (size_t)k * part + i;
            uint64_t       v[8];
            if (ahead && i + ahead < part) __builtin_prefetch(at + ahead, 0, 2);
            memcpy(v, at, 64);
            s[k] += v[0] ^ v[1] ^ v[2] ^ v[3] ^ v[4] ^ v[5] ^ v[6] ^ v[7];
        }
    }
    return (float)(s[0] ^ s[1] ^ s[2] ^ s[3]);
}

#endif
