/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same chains as in attn_impl.h, reading K and V of a whole chunk straight from the pages: for few lanes, where
 * converting the chunk into scratch would cost more than the products. What a page type yields as f32 is exact, so both
 * ways give the same bits. The next chunk is prefetched beside the products, line by line.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_DIRECT_H
#define KERNELS_CPU_IMPL_ATTN_DIRECT_H

enum {
    GROUPS = ATTN_CHUNK / 16, /* 16 slots never cross a page */
    ND = VREGS >= 32 ? 4 : 2, /* vectors side by side */
    DIRECT_LANES = 8,         /* more lanes than this share a converted chunk */
};

/* Where a chunk's slots lie: group g holds positions 16 g .. 16 g + 15 of the chunk. */
typedef struct attn_where {
    const uint8_t  *k[GROUPS], *v[GROUPS];   /* first dimension of the group's K, first slot of its V */
    const uint16_t *ks[GROUPS], *vs[GROUPS]; /* scales */
    size_t          k_row, v_row;            /* bytes from dimension (q4_0: pair) to dimension, from slot to slot */
    size_t          tokens, v_groups;
} attn_where;

static void where_chunk(const attn_args *a, int kv_head, int64_t c, attn_where *w) {
    const kv_layout *l = a->layout;
    const size_t     k_bits = (size_t)kv_type_get((int)l->k_type)->value_bits;
    const size_t     v_bits = (size_t)kv_type_get((int)l->v_type)->value_bits, k_unit = k_bits < 8 ? 1 : k_bits / 8;
    w->tokens = (size_t)l->tokens;
    w->v_groups = (size_t)kv_groups(l->v_dim);
    w->k_row = w->tokens * k_unit;
    w->v_row = (size_t)l->v_dim * v_bits / 8;
    for (int g = 0; g < GROUPS; g++) {
        const int64_t  p = c * CHUNK + 16 * g;
        const size_t   slot = (size_t)(p % l->tokens);
        const uint8_t *base = (const uint8_t *)a->pages[p / l->tokens] + a->page_off;
        const uint8_t *k = base + kv_k_offset(l, kv_head), *v = base + kv_v_offset(l, kv_head);
        w->k[g] = k + slot * k_unit;
        w->v[g] = v + slot * w->v_row;
        w->ks[g] = (const uint16_t *)(const void *)(k + (size_t)l->k_dim * w->tokens * k_bits / 8) + slot;
        w->vs[g] = (const uint16_t *)(const void *)(v + w->tokens * w->v_row) + slot * w->v_groups;
    }
}

INLINE void prefetch(const void *p) { __builtin_prefetch(p, 0, 2); }

/* VW positions of dimension d + e (d even, e 0 or 1); p is at the group's dimension 0, `in` positions into the group.
 */
INLINE vf direct_k(kv_type type, const uint8_t *p, size_t row, int d, int e, int in, vf scale) {
    vf lo, hi;
    switch (type) {
    case KV_F32: return vf_load((const float *)(const void *)(p + (size_t)(d + e) * row) + in);
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)(p + (size_t)(d + e) * row) + in);
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)(p + (size_t)(d + e) * row) + in);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *)(p + (size_t)(d + e) * row) + in), scale);
    case KV_Q4_0:
        vf_load_nib(p + (size_t)(d / 2) * row + in, &lo, &hi);
        return vf_mul(vf_sub(e ? hi : lo, vf_set1(8.0f)), scale);
    case KV_TYPE_COUNT: break;
    }
    return vf_zero();
}

/* VW dimensions of one slot from dimension d + x; d is a multiple of what `x` counts in. */
INLINE vf direct_v(kv_type type, const uint8_t *p, const uint16_t *s, int d, int x) {
    /* A tile of whole scale groups begins at one, so that the nibble is known to the compiler. */
    const int in = ND * VW % KV_GROUP == 0 && x > 0 ? x % KV_GROUP : (d + x) % KV_GROUP;
    const int g = (d + x) / KV_GROUP;
    vf        lo, hi;
    switch (type) {
    case KV_F32: return vf_load((const float *)(const void *)p + d + x);
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)p + d + x);
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)p + d + x);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *)p + d + x), vf_set1_f16(s + g));
    case KV_Q4_0:
        vf_load_nib(p + g * 16 + in % 16, &lo, &hi);
        return vf_mul(vf_sub(in < 16 ? lo : hi, vf_set1(8.0f)), vf_set1_f16(s + g));
    case KV_TYPE_COUNT: break;
    }
    return vf_zero();
}

/* Scores of mr lanes for the whole chunk. mr and type are constants at every call. */
INLINE void direct_scores(int mr, kv_type type, const float *const *q, const attn_where *w, const attn_where *next,
                          int k_dim, float *const *s) {
    const bool scaled = type == KV_Q8_0 || type == KV_Q4_0;
    for (int x0 = 0; x0 < CHUNK / VW; x0 += ND) {
        vf             acc[MR][ND];
        const uint8_t *kp[ND];
        UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_zero(); }
        UNROLL for (int x = 0; x < ND; x++) kp[x] = w->k[(x0 + x) * VW / 16];
        for (int d0 = 0; d0 < k_dim; d0 += KV_GROUP) {
            const int end = d0 + KV_GROUP < k_dim ? d0 + KV_GROUP : k_dim;
            vf        scale[ND];
            UNROLL for (int x = 0; x < ND; x++) {
                const int at = (x0 + x) * VW;
                scale[x] =
                    scaled ? vf_load_f16(w->ks[at / 16] + (size_t)(d0 / KV_GROUP) * w->tokens + at % 16) : vf_zero();
            }
            for (int d = d0; d < end; d += 2) { /* two: the nibbles of a byte */
                if (next && x0 == 0) {
                    const size_t o = (size_t)(type == KV_Q4_0 ? d / 2 : d) * w->k_row;
                    for (int g = 0; g < GROUPS; g += 2) prefetch(next->k[g] + o);
                    if (type != KV_Q4_0) {
                        for (int g = 0; g < GROUPS; g += 2) prefetch(next->k[g] + o + w->k_row);
                    }
                }
                UNROLL for (int e = 0; e < 2; e++) {
                    vf kv[ND];
                    UNROLL for (int x = 0; x < ND; x++) {
                        kv[x] = direct_k(type, kp[x], w->k_row, d, e, (x0 + x) * VW % 16, scale[x]);
                    }
                    UNROLL for (int r = 0; r < mr; r++) {
                        const vf qd = vf_set1(q[r][d + e]);
                        UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_fma(qd, kv[x], acc[r][x]);
                    }
                }
            }
        }
        UNROLL for (int r = 0; r < mr; r++) {
            UNROLL for (int x = 0; x < ND; x++) vf_store(s[r] + (x0 + x) * VW, acc[r][x]);
        }
    }
}

/* Values of mr lanes over the whole chunk and the fold, as value_tile does it; nv vectors from dimension d0. */
INLINE void direct_values(int mr, int nv, kv_type type, const float *const *p, const attn_where *w,
                          const attn_where *next, int d0, float *const *o, const float *wa, const float *wb) {
    vf acc[MR][ND];
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_zero(); }
    for (int g = 0; g < GROUPS; g++) {
        for (int j = 0; j < 16; j++) {
            const uint8_t  *at = w->v[g] + (size_t)j * w->v_row;
            const uint16_t *vs = w->vs[g] + (size_t)j * w->v_groups;
            vf              vv[ND];
            if (next && d0 == 0) {
                for (size_t line = 0; line < w->v_row; line += 64) prefetch(next->v[g] + (size_t)j * w->v_row + line);
            }
            UNROLL for (int x = 0; x < nv; x++) vv[x] = direct_v(type, at, vs, d0, x * VW);
            UNROLL for (int r = 0; r < mr; r++) {
                const vf pj = vf_set1(p[r][16 * g + j]);
                UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_fma(pj, vv[x], acc[r][x]);
            }
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < nv; x++) {
            float *at = o[r] + d0 + x * VW;
            vf_store(at, wa ? vf_fma(vf_load(at), vf_set1(wa[r]), vf_mul(acc[r][x], vf_set1(wb[r]))) : acc[r][x]);
        }
    }
}

/* The type becomes a constant. */
INLINE void direct_scores_any(int mr, kv_type type, const float *const *q, const attn_where *w, const attn_where *next,
                              int k_dim, float *const *s) {
    switch (type) {
    case KV_F32: direct_scores(mr, KV_F32, q, w, next, k_dim, s); return;
    case KV_F16: direct_scores(mr, KV_F16, q, w, next, k_dim, s); return;
    case KV_BF16: direct_scores(mr, KV_BF16, q, w, next, k_dim, s); return;
    case KV_Q8_0: direct_scores(mr, KV_Q8_0, q, w, next, k_dim, s); return;
    case KV_Q4_0: direct_scores(mr, KV_Q4_0, q, w, next, k_dim, s); return;
    case KV_TYPE_COUNT: return;
    }
}

INLINE void direct_values_row(int mr, kv_type type, const float *const *p, const attn_where *w, const attn_where *next,
                              int v_dim, float *const *o, const float *wa, const float *wb) {
    int d = 0;
    for (; d + ND * VW <= v_dim; d += ND * VW) direct_values(mr, ND, type, p, w, next, d, o, wa, wb);
    for (; d < v_dim; d += VW) direct_values(mr, 1, type, p, w, next, d, o, wa, wb);
}

INLINE void direct_values_any(int mr, kv_type type, const float *const *p, const attn_where *w, const attn_where *next,
                              int v_dim, float *const *o, const float *wa, const float *wb) {
    switch (type) {
    case KV_F32: direct_values_row(mr, KV_F32, p, w, next, v_dim, o, wa, wb); return;
    case KV_F16: direct_values_row(mr, KV_F16, p, w, next, v_dim, o, wa, wb); return;
    case KV_BF16: direct_values_row(mr, KV_BF16, p, w, next, v_dim, o, wa, wb); return;
    case KV_Q8_0: direct_values_row(mr, KV_Q8_0, p, w, next, v_dim, o, wa, wb); return;
    case KV_Q4_0: direct_values_row(mr, KV_Q4_0, p, w, next, v_dim, o, wa, wb); return;
    case KV_TYPE_COUNT: return;
    }
}

/* Whether a layout's rows suit whole vectors. */
static bool direct_fits(const kv_layout *l) {
    return !l->v_in_k && l->v_dim % (VW < 16 ? 16 : VW) == 0 && (l->v_type != KV_Q4_0 || l->v_dim % KV_GROUP == 0);
}

#endif
