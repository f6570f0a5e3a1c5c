/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matmul with f32 sums, in the words of cpu/vec: dots along the rows, as they lie in the file.
 *
 * Order of operations for one output: VW sums, sum l adds w[k] * x[k] for k = l, l + VW, ... by fma, from zero; behind
 * the end of a row both are zero. vf_sum adds the VW sums.
 *
 * A kernel takes 16 weight rows and 1 to 6 activation rows, `wide` weight rows at a time, so that their sums fill the
 * registers (24 of 32 with AVX-512: 10 loads for 24 fma). Weights are converted as they are read. The 16 rows are
 * `wide` stretches of memory, read side by side; DOTS_AHEAD bytes further each of them is fetched, at the end of a
 * stretch that of the next 16 rows.
 *
 * With many activation rows (block) it goes the other way round: a stretch of 4 weight rows is made f32 in L1, and all
 * activation rows pass over it; the sums of an output wait in memory between stretches, so the order stays as above.
 * Where FMA and not memory is the limit of dots, this is no faster: a set asks for it by MATMUL_FLOAT_BLOCKED.
 *
 * A set includes its vocabulary and this file, and says MATMUL_FLOAT_SET(set, n32, n16): how many activation rows its
 * kernels for f32 and for 16-bit weights take together.
 */
#include "kernels/cpu/matmul_floats.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 16") /* arrays of registers stay in registers only if every index is constant */

enum { DOTS_AHEAD = 1728, DOTS_WIDE = 8 };

INLINE vf part_f32(const uint8_t *p, int64_t n) { return vf_loadn((const float *)(const void *)p, n); }
INLINE vf part_f16(const uint8_t *p, int64_t n) { return vf_loadn_f16((const uint16_t *)(const void *)p, n); }
INLINE vf part_bf16(const uint8_t *p, int64_t n) { return vf_loadn_bf16((const uint16_t *)(const void *)p, n); }
INLINE vf whole_f32(const uint8_t *p) { return vf_load((const float *)(const void *)p); }
INLINE vf whole_f16(const uint8_t *p) { return vf_load_f16((const uint16_t *)(const void *)p); }
INLINE vf whole_bf16(const uint8_t *p) { return vf_load_bf16((const uint16_t *)(const void *)p); }

typedef vf load_whole_fn(const uint8_t *p);
typedef vf load_part_fn(const uint8_t *p, int64_t n);

/* The sums of 16 registers. */
INLINE void add_lanes(const float *c, float *out) {
#ifdef VSUM16
    vf_sum16(c, out);
#else
    for (int i = 0; i < MATMUL_PANEL; i++) out[i] = vf_sum(vf_load(c + i * VW));
#endif
}

/* Asks for a line between the making of v and its use: compilers gather plain prefetches in one place. */
INLINE vf with_fetch(vf v, const uint8_t *line) {
#if defined(__x86_64__)
    __asm__("prefetcht1 %1" : "+v"(v) : "m"(*line));
#else
    __builtin_prefetch(line, 0, 2);
#endif
    return v;
}

#define DOTS_STEP(LOAD_W, LOAD_X)                                                                                      \
    do {                                                                                                               \
        vf v[MATMUL_DOTSF];                                                                                            \
        UNROLLED for (int r = 0; r < n; r++) v[r] = LOAD_X;                                                            \
        UNROLLED for (int i = 0; i < wide; i++) {                                                                      \
            vf wi = LOAD_W;                                                                                            \
            UNROLLED for (int r = 0; r < n; r++) f[i][r] = vf_fma(wi, v[r], f[i][r]);                                  \
        }                                                                                                              \
    } while (0)

/* size: bytes of a weight; wide: weight rows at a time, rows first, first + 16 / wide, ... */
INLINE void dots(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, float *out, int n, int wide,
                 size_t size, load_whole_fn *whole, load_part_fn *part) {
    const int          line = 64 / (int)size, each = MATMUL_PANEL / wide; /* line: inputs of 64 bytes */
    const size_t       apart = (size_t)each * stride;
    _Alignas(64) float c[MATMUL_DOTSF * MATMUL_PANEL * VW];
    for (int first = 0; first < each; first++) {
        const uint8_t *p = w + (size_t)first * stride;
        int64_t        k = 0;
        vf             f[DOTS_WIDE][MATMUL_DOTSF];
        UNROLLED for (int i = 0; i < wide; i++) { UNROLLED for (int r = 0; r < n; r++) f[i][r] = vf_zero(); }
        for (; k + line <= cols; k += line, p += 64) {
            const uint8_t *ahead = p + DOTS_AHEAD;
            if (first == each - 1 && (size_t)k * size + DOTS_AHEAD >= stride) ahead += (size_t)(wide - 1) * apart;
            DOTS_STEP(with_fetch(whole(p + (size_t)i * apart), ahead + (size_t)i * apart), vf_load(x[r] + k));
            UNROLLED for (int j = VW; j < line; j += VW)
                DOTS_STEP(whole(p + (size_t)i * apart + (size_t)j * size), vf_load(x[r] + k + j));
        }
        for (; k < cols; k += VW, p += VW * size) {
            int64_t left = cols - k < VW ? cols - k : VW;
            DOTS_STEP(part(p + (size_t)i * apart, left), vf_loadn(x[r] + k, left));
        }
        UNROLLED for (int i = 0; i < wide; i++) {
            UNROLLED for (int r = 0; r < n; r++) vf_store(c + (r * MATMUL_PANEL + first + i * each) * VW, f[i][r]);
        }
    }
    for (int r = 0; r < n; r++) add_lanes(c + r * MATMUL_PANEL * VW, out + r * MATMUL_PANEL);
}

/* How many weight rows a kernel for n activation rows takes at once: as many sums as there are registers for. */
#define DOTS_AT_ONCE(n) (VREGS >= 32 ? ((n) <= 2 ? 8 : 4) : (n) <= 1 ? 8 : (n) <= 3 ? 4 : 2)

#define MATMUL_DOTS(type, size, n)                                                                                     \
    static void dots_##type##_##n(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, float *out) {  \
        dots(w, stride, cols, x, out, n, DOTS_AT_ONCE(n), size, whole_##type, part_##type);                            \
    }
#define MATMUL_FLOAT_TYPE(type, size)                                                                                  \
    MATMUL_DOTS(type, size, 1)                                                                                         \
    MATMUL_DOTS(type, size, 2)                                                                                         \
    MATMUL_DOTS(type, size, 3)                                                                                         \
    MATMUL_DOTS(type, size, 4)                                                                                         \
    MATMUL_DOTS(type, size, 5)                                                                                         \
    MATMUL_DOTS(type, size, 6)
#define MATMUL_DOTS_LIST(type)                                                                                         \
    { dots_##type##_1, dots_##type##_2, dots_##type##_3, dots_##type##_4, dots_##type##_5, dots_##type##_6 }

#ifdef MATMUL_FLOAT_BLOCKED
enum { BLOCK_WIDE = 4 };

/* BLOCK_WIDE weight rows of a stretch, as f32; zeros up to a whole register. */
INLINE void widen(const uint8_t *w, size_t stride, int64_t len, float *out, size_t size, load_whole_fn *whole,
                  load_part_fn *part) {
    for (int i = 0; i < BLOCK_WIDE; i++, w += stride, out += MATMUL_BLOCKF_COLS) {
        int64_t k = 0;
        for (; k + VW <= len; k += VW) vf_store(out + k, whole(w + (size_t)k * size));
        if (k < len) vf_store(out + k, part(w + (size_t)k * size, len - k));
    }
}

/* Goes on with the sums of n activation rows: sums[i * MATMUL_BLOCKF + r], VW each. */
INLINE void block_step(const float *w, int64_t len, const float *const *x, int64_t k0, float *sums, int n) {
    vf      f[BLOCK_WIDE][MATMUL_DOTSF];
    int64_t k = 0;
    UNROLLED for (int i = 0; i < BLOCK_WIDE; i++) {
        UNROLLED for (int r = 0; r < n; r++) f[i][r] = vf_load(sums + (i * MATMUL_BLOCKF + r) * VW);
    }
#define BLOCK_W(i) vf_load(w + (i)*MATMUL_BLOCKF_COLS + k)
    const int wide = BLOCK_WIDE;
    for (; k + VW <= len; k += VW) DOTS_STEP(BLOCK_W(i), vf_load(x[r] + k0 + k));
    if (k < len) DOTS_STEP(BLOCK_W(i), vf_loadn(x[r] + k0 + k, len - k));
#undef BLOCK_W
    UNROLLED for (int i = 0; i < BLOCK_WIDE; i++) {
        UNROLLED for (int r = 0; r < n; r++) vf_store(sums + (i * MATMUL_BLOCKF + r) * VW, f[i][r]);
    }
}

/* most: activation rows of a step, 3 or 6, as registers allow. */
INLINE void block(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, int n, void *scratch,
                  float *out, int most, size_t size, load_whole_fn *whole, load_part_fn *part) {
    float *wide = scratch, *sums = wide + BLOCK_WIDE * MATMUL_BLOCKF_COLS;
    memset(sums, 0, sizeof(float) * MATMUL_PANEL * MATMUL_BLOCKF * VW);
    for (int64_t k = 0; k < cols; k += MATMUL_BLOCKF_COLS) {
        int64_t len = cols - k < MATMUL_BLOCKF_COLS ? cols - k : MATMUL_BLOCKF_COLS;
        for (int i = 0; i < MATMUL_PANEL; i += BLOCK_WIDE) {
            float *to = sums + i * MATMUL_BLOCKF * VW;
            int    r = 0;
            widen(w + (size_t)i * stride + (size_t)k * size, stride, len, wide, size, whole, part);
            for (; r + most <= n; r += most) block_step(wide, len, x + r, k, to + r * VW, most);
            for (; r + 3 <= n; r += 3) block_step(wide, len, x + r, k, to + r * VW, 3);
            for (; r < n; r++) block_step(wide, len, x + r, k, to + r * VW, 1);
        }
    }
    for (int r = 0; r < n; r++) {
        for (int i = 0; i < MATMUL_PANEL; i++)
            out[r * MATMUL_PANEL + i] = vf_sum(vf_load(sums + (i * MATMUL_BLOCKF + r) * VW));
    }
}

#define MATMUL_BLOCK(type, size)                                                                                       \
    static void block_##type(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, int n,              \
                             void *scratch, float *out) {                                                              \
        block(w, stride, cols, x, n, scratch, out, VREGS >= 32 ? 6 : 3, size, whole_##type, part_##type);              \
    }

#define MATMUL_FLOAT_BLOCKS                                                                                            \
    MATMUL_BLOCK(f32, 4)                                                                                               \
    MATMUL_BLOCK(f16, 2)                                                                                               \
    MATMUL_BLOCK(bf16, 2)
#define MATMUL_BLOCK_LIST                                                                                              \
    { [TENSOR_F32] = block_f32, [TENSOR_F16] = block_f16, [TENSOR_BF16] = block_bf16 }
#else
#define MATMUL_FLOAT_BLOCKS
#define MATMUL_BLOCK_LIST                                                                                              \
    { NULL }
#endif

#define MATMUL_FLOAT_SET(set, n32, n16)                                                                                \
    MATMUL_FLOAT_TYPE(f32, 4)                                                                                          \
    MATMUL_FLOAT_TYPE(f16, 2)                                                                                          \
    MATMUL_FLOAT_TYPE(bf16, 2)                                                                                         \
    MATMUL_FLOAT_BLOCKS                                                                                                \
    const matmul_floats matmul_floats_##set = {                                                                        \
        .block = MATMUL_BLOCK_LIST,                                                                                    \
        .rows = { [TENSOR_F32] = n32, [TENSOR_F16] = n16, [TENSOR_BF16] = n16 },                                       \
        .dots = { [TENSOR_F32] = MATMUL_DOTS_LIST(f32),                                                                \
                  [TENSOR_F16] = MATMUL_DOTS_LIST(f16),                                                                \
                  [TENSOR_BF16] = MATMUL_DOTS_LIST(bf16) },                                                            \
    };
