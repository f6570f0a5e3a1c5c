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
 * With many activation rows (block) a stretch of the 16 weight rows is made f32 once, in L2. A few activation rows at a
 * time stay in L1 while all of it passes; the sums of an output wait in memory between stretches, so the order stays as
 * above. A set asks for it by MATMUL_FLOAT_BLOCKED.
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
/* A stretch of the panel's rows, as f32; zeros up to a whole register. */
INLINE void widen(const uint8_t *w, size_t stride, int64_t len, float *out, size_t size, load_whole_fn *whole,
                  load_part_fn *part) {
    for (int i = 0; i < MATMUL_PANEL; i++, w += stride, out += MATMUL_BLOCKF_STRIDE) {
        int64_t k = 0;
        for (; k + VW <= len; k += VW) vf_store(out + k, whole(w + (size_t)k * size));
        if (k < len) vf_store(out + k, part(w + (size_t)k * size, len - k));
    }
}

enum { BLOCK_WIDE = 4, BLOCK_ROWS = VREGS >= 32 ? 6 : 3 };

/* Where the sums of activation row r and weight row i are, between stretches and before they are added across. */
INLINE float *block_sums(float *sums, int r, int i) { return sums + (r * MATMUL_PANEL + i) * VW; }

/* Goes on with the sums of n activation rows and the weight rows i, i + 4, i + 8 and i + 12. */
INLINE void block_step(const float *w, int64_t len, const float *const *x, int64_t k0, float *sums, int i0, int n,
                       bool last) {
    vf        f[BLOCK_WIDE][MATMUL_DOTSF];
    const int wide = BLOCK_WIDE, each = MATMUL_PANEL / BLOCK_WIDE;
    int64_t   k = 0;
    w += i0 * MATMUL_BLOCKF_STRIDE;
    UNROLLED for (int i = 0; i < wide; i++) {
        UNROLLED for (int r = 0; r < n; r++) f[i][r] = k0 ? vf_load(block_sums(sums, r, i0 + i * each)) : vf_zero();
    }
#define BLOCK_W(i) vf_load(w + (i)*each * MATMUL_BLOCKF_STRIDE + k)
    for (; k + VW <= len; k += VW) DOTS_STEP(BLOCK_W(i), vf_load(x[r] + k0 + k));
    if (k < len) DOTS_STEP(BLOCK_W(i), vf_loadn(x[r] + k0 + k, len - k));
#undef BLOCK_W
#ifdef VSUM16
    if (last) {
        UNROLLED for (int r = 0; r < n; r++)
            vf_store(block_sums(sums, r, i0), vf_quarters(f[0][r], f[1][r], f[2][r], f[3][r]));
        return;
    }
#else
    (void)last;
#endif
    UNROLLED for (int i = 0; i < wide; i++) {
        UNROLLED for (int r = 0; r < n; r++) vf_store(block_sums(sums, r, i0 + i * each), f[i][r]);
    }
}

/* One stretch of n activation rows; the last one gives their 16 outputs each. */
INLINE void block_rows(const float *w, int64_t len, const float *const *x, int64_t k, float *sums, float *out, int n,
                       bool last) {
    for (int i = 0; i < MATMUL_PANEL / BLOCK_WIDE; i++) block_step(w, len, x, k, sums, i, n, last);
    for (int r = 0; r < n && last; r++) {
#ifdef VSUM16
        vf_store(out + r * MATMUL_PANEL,
                 vf_quarters_sum(vf_load(block_sums(sums, r, 0)), vf_load(block_sums(sums, r, 1)),
                                 vf_load(block_sums(sums, r, 2)), vf_load(block_sums(sums, r, 3))));
#else
        add_lanes(block_sums(sums, r, 0), out + r * MATMUL_PANEL);
#endif
    }
}

INLINE void block(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, int n, void *scratch,
                  float *out, size_t size, load_whole_fn *whole, load_part_fn *part) {
    float *wide = scratch, *sums = wide + MATMUL_PANEL * MATMUL_BLOCKF_STRIDE;
    for (int64_t k = 0; k < cols; k += MATMUL_BLOCKF_COLS) {
        int64_t    len = cols - k < MATMUL_BLOCKF_COLS ? cols - k : MATMUL_BLOCKF_COLS;
        const bool last = k + len == cols, one = cols <= MATMUL_BLOCKF_COLS;
        widen(w + (size_t)k * size, stride, len, wide, size, whole, part);
        for (int r = 0, more; r < n; r += more) {
            float *to = block_sums(sums, one ? 0 : r, 0), *res = out + r * MATMUL_PANEL; /* of one stretch: in L1 */
            more = n - r >= BLOCK_ROWS ? BLOCK_ROWS : n - r >= 3 ? 3 : 1;
            if (more == BLOCK_ROWS)
                block_rows(wide, len, x + r, k, to, res, BLOCK_ROWS, last);
            else if (more == 3)
                block_rows(wide, len, x + r, k, to, res, 3, last);
            else
                block_rows(wide, len, x + r, k, to, res, 1, last);
        }
    }
}

#define MATMUL_BLOCK(type, size)                                                                                       \
    static void block_##type(const uint8_t *w, size_t stride, int64_t cols, const float *const *x, int n,              \
                             void *scratch, float *out) {                                                              \
        block(w, stride, cols, x, n, scratch, out, size, whole_##type, part_##type);                                   \
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
