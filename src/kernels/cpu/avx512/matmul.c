/* SPDX-License-Identifier: Apache-2.0 */
/* The AVX-512 (VNNI) matmul: its table and the activation quantizer. */
#include "kernels/cpu/avx512/matmul_avx512.h"

#include "kernels/cpu.h"
#include "kernels/cpu/matmul_floats.h"
#include "kernels/cpu/matmul_halves.h"

static void act_quantize_avx512(act8 *out, const float *x, int64_t n) {
    const __m512i abs = _mm512_set1_epi32(0x7fffffff);
    for (; n > 0; n -= ACT8_BLOCK, x += ACT8_BLOCK, out++) {
        __m512  v0 = _mm512_loadu_ps(x), v1 = _mm512_loadu_ps(x + 16);
        __m512i b0 = _mm512_and_si512(_mm512_castps_si512(v0), abs),
                b1 = _mm512_and_si512(_mm512_castps_si512(v1), abs);
        uint32_t bits = (uint32_t)_mm512_reduce_max_epu32(_mm512_max_epu32(b0, b1));
        float    m;
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
        float   d = act8_scale(m);
        __m512  inverse = _mm512_set1_ps(1.0f / d);
        __m512i i0 = _mm512_cvtps_epi32(_mm512_mul_ps(v0, inverse)),
                i1 = _mm512_cvtps_epi32(_mm512_mul_ps(v1, inverse));
        __m256i q =
            _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(i0)), _mm512_cvtepi32_epi8(i1), 1);
        /* Sums of eight bytes each, of q + 128. */
        __m256i sums = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8((char)0x80)), _mm256_setzero_si256());
        sums = _mm256_add_epi64(sums, _mm256_unpackhi_epi64(sums, sums));
        int s0 = _mm256_cvtsi256_si32(sums) - 16 * 128,
            s1 = _mm_cvtsi128_si32(_mm256_extracti128_si256(sums, 1)) - 16 * 128;
        out->d = d;
        out->sum = s0 + s1;
        out->ds = out->d * (float)out->sum;
        out->s[0] = (int16_t)s0;
        out->s[1] = (int16_t)s1;
        _mm256_storeu_si256((void *)out->q, q);
    }
}

#define X(type, name) [TENSOR_##type] = matmul_unpack8_##name##_avx512,
#define Y(type, name) [TENSOR_##type] = matmul_gemv8_##name##_avx512,
#define Y1(type, name) [TENSOR_##type] = matmul_gemv8_##name##_once_avx512,
#define Z(type, name)                                                                                                  \
    [TENSOR_##type] = { matmul_few8_##name##_2_avx512, matmul_few8_##name##_4_avx512, matmul_few8_##name##_8_avx512 },

#define KERNELS                                                                                                        \
    .unpack8 = { MATMUL_AVX512_FORMATS(X) }, .few8 = { MATMUL_AVX512_FEW(Z) }, .few_calls = MATMUL_FEW_CALLS,          \
    .arrange8 = matmul_arrange8_avx512, .tile8 = matmul_tile8_avx512, .floats = &matmul_floats_avx512

static const matmul_isa isa = { KERNELS, .gemv8 = { MATMUL_AVX512_FORMATS(Y) } };
static const matmul_isa isa_amx = { KERNELS, .gemv8 = { MATMUL_AVX512_FEW(Y1) MATMUL_AVX512_MLX(Y) },
                                    .halves = { matmul_few_amx, matmul_many_amx } };

static void matmul_avx512(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&isa, a, p0, p1, scratch);
}

static void matmul_amx(const matmul_args *a, int64_t p0, int64_t p1, void *scratch) {
    matmul_drive(&isa_amx, a, p0, p1, scratch);
}

void kernels_matmul_init_avx512(kernels_matmul *t, unsigned cpu) {
    KERNEL_USE(t, act_quantize, act_quantize_avx512, "avx512");
    KERNEL_USE(t, run, matmul_avx512, "avx512");
    if (cpu & CPU_AMX_BF16) KERNEL_USE(t, run, matmul_amx, "amxbf16");
}
