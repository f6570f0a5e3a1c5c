/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX-512 unpacking of F32, F16 and BF16 rows to f32 panels, and their matrix-vector kernels.
 *
 * Rows are read 64 bytes at a time: with rows of 4096 bytes all sixteen lines fall into one set of L1, so a line must
 * be used up when it is touched. Sixteen registers of 16 dwords are transposed; for the 16-bit types a dword is a pair
 * of inputs. The matrix-vector kernel adds the inputs one by one in the order of K (kernels/matmul.h).
 */
#include "kernels/cpu/avx512/matmul_avx512.h"

typedef void emitf_fn(void *sink, int k, __m512 v);

/* One unit: 64 bytes of each row. */
INLINE void f32_unit(const uint8_t *p, size_t stride, void *sink, emitf_fn *emit) {
    __m512i r[16];
    load64(p, stride, r);
    for (int j = 0; j < 16; j++) emit(sink, j, _mm512_castsi512_ps(r[j]));
}

INLINE void bf16_unit(const uint8_t *p, size_t stride, void *sink, emitf_fn *emit) {
    __m512i r[16];
    load64(p, stride, r);
    for (int j = 0; j < 16; j++) {
        emit(sink, 2 * j, _mm512_castsi512_ps(_mm512_slli_epi32(r[j], 16)));
        emit(sink, 2 * j + 1, _mm512_castsi512_ps(_mm512_and_si512(r[j], _mm512_set1_epi32((int)0xffff0000))));
    }
}

INLINE void f16_unit(const uint8_t *p, size_t stride, void *sink, emitf_fn *emit) {
    const __m512i even = _mm512_add_epi32(_mm512_set1_epi32(0x00020000),
                                          _mm512_setr_epi32(0x00000, 0x40004, 0x80008, 0xc000c, 0x100010, 0x140014,
                                                            0x180018, 0x1c001c, 0x200020, 0x240024, 0x280028, 0x2c002c,
                                                            0x300030, 0x340034, 0x380038, 0x3c003c));
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(0x00010001));
    __m512i       r[16];
    load64(p, stride, r);
    for (int j = 0; j < 16; j += 2) {
        __m512i a = _mm512_permutex2var_epi16(r[j], even, r[j + 1]), b = _mm512_permutex2var_epi16(r[j], odd, r[j + 1]);
        emit(sink, 2 * j, _mm512_cvtph_ps(_mm512_castsi512_si256(a)));
        emit(sink, 2 * j + 1, _mm512_cvtph_ps(_mm512_castsi512_si256(b)));
        emit(sink, 2 * j + 2, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1)));
        emit(sink, 2 * j + 3, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(b, 1)));
    }
}

INLINE void emit_panelf(void *sink, int k, __m512 v) { _mm512_store_ps((float *)sink + k * MATMUL_PANEL, v); }

typedef struct sums {
    const float *x;
    __m512       acc;
} sums;

INLINE void emit_sums(void *sink, int k, __m512 v) {
    sums *s = sink;
    s->acc = _mm512_fmadd_ps(v, _mm512_set1_ps(s->x[k]), s->acc);
}

typedef void unitf_fn(const uint8_t *p, size_t stride, void *sink, emitf_fn *emit);

/* Inputs [from, to) of the unit at p. */
INLINE void sum_some(const uint8_t *p, size_t stride, int from, int to, const float *x, sums *sum, unitf_fn *one) {
    _Alignas(64) float w[32 * MATMUL_PANEL];
    one(p, stride, w, emit_panelf);
    sum->x = x - from;
    for (int i = from; i < to; i++) emit_sums(sum, i, _mm512_load_ps(w + i * MATMUL_PANEL));
}

/*
 * Whole units begin at a line, where all rows agree on it: files align tensors to 32 bytes, and rows of 4096 bytes
 * whose units span two lines would throw the second one out of L1 before its other half is read. What is left at both
 * ends of the rows comes from units that overlap.
 */
INLINE void gemv_float(const matmul_src *s, int64_t row0, const float *x, float *out, int unit, unitf_fn *one) {
    size_t         stride = s->w->row_bytes, size = 64 / (size_t)unit;
    const uint8_t *row = s->data + (size_t)row0 * stride, *ahead = row + 16 * stride;
    int64_t        cols = s->w->cols, k = 0;
    sums           sum = { x, _mm512_setzero_ps() };
    size_t         beyond = (uintptr_t)row % 64;
    if (cols >= unit && beyond && beyond % size == 0 && stride % 64 == 0) {
        k = (int64_t)((64 - beyond) / size);
        sum_some(row, stride, 0, (int)k, x, &sum, one);
    }
    for (; k + unit <= cols; k += unit) {
        fetch(ahead, 1024);
        ahead += 1024;
        sum.x = x + k;
        one(row + (size_t)k * size, stride, &sum, emit_sums);
    }
    if (k < cols && cols >= unit) {
        sum_some(row + (size_t)(cols - unit) * size, stride, (int)(k - cols) + unit, unit, x + k, &sum, one);
    } else if (k < cols) {
        float w[32 * MATMUL_PANEL];
        matmul_unpackf_scalar(s, row0, 16, 0, (int)cols, 0, (matmul_panelf *)w);
        for (int i = 0; i < cols; i++) emit_sums(&sum, i, _mm512_loadu_ps(w + i * MATMUL_PANEL));
    }
    _mm512_storeu_ps(out, sum.acc);
}

/* UNIT inputs are 64 bytes; the scalar unpacking does the last inputs of a row that do not fill a unit. */
#define MATMUL_FLOAT(NAME, UNIT)                                                                                       \
    void matmul_unpackf_##NAME##_avx512(const matmul_src *s, int64_t row0, int n, int64_t k0, int kn, int64_t ahead,   \
                                        matmul_panelf *p) {                                                            \
        size_t         stride = s->w->row_bytes;                                                                       \
        const uint8_t *data = s->data + (size_t)row0 * stride + (size_t)k0 * (64 / (UNIT));                            \
        int            k = 0;                                                                                          \
        for (; k + (UNIT) <= kn; k += (UNIT), data += 64) {                                                            \
            for (int r = 0; r < 16; r++) _mm_prefetch((const char *)data + ahead + (size_t)r * stride, _MM_HINT_T1);   \
            NAME##_unit(data, stride, p->w + k * MATMUL_PANEL, emit_panelf);                                           \
        }                                                                                                              \
        if (k < kn) matmul_unpackf_scalar(s, row0, n, k0 + k, kn - k, 0, (matmul_panelf *)(p->w + k * MATMUL_PANEL));  \
    }                                                                                                                  \
                                                                                                                       \
    void matmul_gemvf_##NAME##_avx512(const matmul_src *s, int64_t row0, const float *x, float *out) {                 \
        gemv_float(s, row0, x, out, UNIT, NAME##_unit);                                                                \
    }

MATMUL_FLOAT(f32, 16)
MATMUL_FLOAT(f16, 32)
MATMUL_FLOAT(bf16, 32)
