/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX2 matmul: its tables (with and without AVX-VNNI) and the activation quantizer. */
#include "kernels/cpu/avx2/matmul_avx2.h"

#include "kernels/cpu.h"
#include "kernels/cpu/matmul_floats.h"

INLINE __m256i max_u32(__m256i v) {
    v = _mm256_max_epu32(v, _mm256_permute2x128_si256(v, v, 1));
    v = _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0x4e));
    return _mm256_max_epu32(v, _mm256_shuffle_epi32(v, 0xb1));
}

INLINE int sum_i32(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    return _mm_cvtsi128_si32(s);
}

static void act_quantize_avx2(act8 *out, const float *x, int64_t n) {
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    for (; n > 0; n -= ACT8_BLOCK, x += ACT8_BLOCK, out++) {
        __m256   v[4];
        __m256i  most = _mm256_setzero_si256(), q[4];
        uint32_t bits;
        float    m;
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            most = _mm256_max_epu32(most, _mm256_and_si256(_mm256_castps_si256(v[i]), abs));
        }
        bits = (uint32_t)_mm_cvtsi128_si32(_mm256_castsi256_si128(max_u32(most)));
        memcpy(&m, &bits, 4);
        if (!(m <= ACT8_HUGE) || m < ACT8_TINY) {
            memset(out, 0, sizeof *out);
            bits = 0x7fc00000u;
            if (!(m < ACT8_TINY)) {
                memcpy(&out->d, &bits, 4);
                memcpy(&out->ds, &bits, 4);
            }
            continue;
        }
        float  d = act8_scale(m);
        __m256 inverse = _mm256_set1_ps(1.0f / d);
        for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        int s0 = sum_i32(_mm256_add_epi32(q[0], q[1])), s1 = sum_i32(_mm256_add_epi32(q[2], q[3]));
        out->d = d;
        out->sum = s0 + s1;
        out->ds = out->d * (float)out->sum;
        out->s[0] = (int16_t)s0;
        out->s[1] = (int16_t)s1;
        __m256i lo = _mm256_packs_epi32(q[0], q[1]), hi = _mm256_packs_epi32(q[2], q[3]);
        __m256i all =
            _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256((void *)out->q, all);
    }
}

#define X(type, name) [TENSOR_##type] = matmul_unpack8_##name##_avx2,
#define Y(type, name) [TENSOR_##type] = matmul_gemv8_##name##_avx2,
#define Z(type, name)                                                                                                  \
    [TENSOR_##type] = { matmul_few8_##name##_2_avx2, matmul_few8_##name##_4_avx2, matmul_few8_##name##_8_avx2 },
#define V(type, name)                                                                                                  \
    [TENSOR_##                                                                                                         \
        type] = { matmul_few8_##name##_2_avxvnni, matmul_few8_##name##_4_avxvnni, matmul_few8_##name##_8_avxvnni },
#define COMMON                                                                                                         \
    .unpack8 = { MATMUL_AVX2_FORMATS(X) }, .gemv8 = { MATMUL_AVX2_FORMATS(Y) }, .few_calls = 1,                        \
    .floats = &matmul_floats_avx2

static const matmul_isa isa = { COMMON, .few8 = { MATMUL_AVX2_FEW(Z) }, .tile8 = matmul_tile8_avx2 };
static const matmul_isa isa_vnni = { COMMON, .few8 = { MATMUL_AVX2_FEW(V) }, .tile8 = matmul_tile8_avxvnni };

static void matmul_avx2(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&isa, a, p0, p1, scratch);
}

static void matmul_avxvnni(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&isa_vnni, a, p0, p1, scratch);
}

void kernels_matmul_init_avx2(kernels_matmul *t, unsigned cpu) {
    KERNEL_USE(t, act_quantize, act_quantize_avx2, "avx2");
    KERNEL_USE(t, run, matmul_avx2, "avx2");
    if (cpu & CPU_AVXVNNI) KERNEL_USE(t, run, matmul_avxvnni, "avxvnni");
}
