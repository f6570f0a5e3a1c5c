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
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)(p + (size_t)(d + e) * row) + in);
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)(p + (size_t)(d + e) * row) + in);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *)(p + (size_t)(d + e) * row) + in), scale);
    case KV_Q4_0:
        vf_load_nib(p + (size_t)(d / 2) * row + in, &lo, &hi);
        return vf_mul(vf_sub(e ? hi : lo, vf_set1(8.0f)), scale);
    case KV_F32:
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
    case KV_F16: return vf_load_f16((const uint16_t *)(const void *)p + d + x);
    case KV_BF16: return vf_load_bf16((const uint16_t *)(const void *)p + d + x);
    case KV_Q8_0: return vf_mul(vf_load_i8((const int8_t *)p + d + x), vf_set1_f16(s + g));
    case KV_Q4_0:
        vf_load_nib(p + g * 16 + in % 16, &lo, &hi);
        return vf_mul(vf_sub(in < 16 ? lo : hi, vf_set1(8.0f)), vf_set1_f16(s + g));
    case KV_F32:
    case KV_TYPE_COUNT: break;
    }
    return vf_zero();
}

/* Scores of mr lanes for the whole chunk. mr and type are constants at every call. */
INLINE void direct_score_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, const attn_where *next,
                               int k_dim) {
    const bool scaled = type == KV_Q8_0 || type == KV_Q4_0;
    for (int x0 = 0; x0 < CHUNK / VW; x0 += ND) {
        vf             acc[4][ND];
        const uint8_t *kp[ND];
        UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_zero(); }
        UNROLL for (int x = 0; x < ND; x++) kp[x] = w->k[(x0 + x) * VW / 16];
        for (int d0 = 0; d0 < k_dim; d0 += KV_GROUP) {
            const int end = d0 + KV_GROUP < k_dim ? d0 + KV_GROUP : k_dim;
            vf        scale[ND];
            UNROLL for (int x = 0; x < ND; x++) {
                const int       at = (x0 + x) * VW;
                const uint16_t *s = w->ks[at / 16] + (size_t)(d0 / KV_GROUP) * w->tokens + at % 16;
                scale[x] = scaled ? vf_load_f16(s) : vf_zero();
            }
            for (int d = d0; d < end; d += 2) { /* two: the nibbles of a byte */
                if (next) {                     /* a pass prefetches what it reads; two groups share a line */
                    const size_t o = (size_t)(type == KV_Q4_0 ? d / 2 : d) * w->k_row;
                    UNROLL for (int x = 0; x < ND; x++) {
                        if ((x0 + x) * VW % 32) continue;
                        const uint8_t *at = next->k[(x0 + x) * VW / 16] + o;
                        prefetch(at);
                        if (type != KV_Q4_0) prefetch(at + w->k_row);
                    }
                }
                UNROLL for (int e = 0; e < 2; e++) {
                    vf kv[ND];
                    UNROLL for (int x = 0; x < ND; x++) {
                        kv[x] = direct_k(type, kp[x], w->k_row, d, e, (x0 + x) * VW % 16, scale[x]);
                    }
                    UNROLL for (int r = 0; r < mr; r++) {
                        const vf qd = vf_set1(t->q[r][d + e]);
                        UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_fma(qd, kv[x], acc[r][x]);
                    }
                }
            }
        }
        UNROLL for (int r = 0; r < mr; r++) {
            UNROLL for (int x = 0; x < ND; x++) vf_store(t->s[r] + (x0 + x) * VW, acc[r][x]);
        }
    }
}

/* Values of mr lanes over the whole chunk and the fold, as value_tile does it; nv vectors from dimension d on. */
INLINE void direct_value_tile(int mr, int nv, kv_type type, const attn_tile *t, const attn_where *w,
                              const attn_where *next, int d) {
    vf acc[4][ND];
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_zero(); }
    for (int j = 0; j < CHUNK; j++) {
        const size_t    in = (size_t)(j % 16) * w->v_row;
        const uint16_t *vs = w->vs[j / 16] + (size_t)(j % 16) * w->v_groups;
        vf              vv[ND];
        if (next) {
            const size_t unit = ND * VW < 32 ? 32 : ND * VW; /* dimensions that fill lines */
            if ((size_t)d % unit == 0) {
                const size_t bits = type == KV_Q4_0 ? 4 : type == KV_Q8_0 ? 8 : 16;
                for (size_t line = 0; line < unit * bits / 8; line += 64) {
                    prefetch(next->v[j / 16] + in + (size_t)d * bits / 8 + line);
                }
            }
        }
        UNROLL for (int x = 0; x < nv; x++) vv[x] = direct_v(type, w->v[j / 16] + in, vs, d, x * VW);
        UNROLL for (int r = 0; r < mr; r++) {
            const vf pj = vf_set1(t->s[r][j]);
            UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_fma(pj, vv[x], acc[r][x]);
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < nv; x++) {
            float *at = t->o[r] + d + x * VW;
            if (!t->alone) {
                acc[r][x] = vf_fma(vf_load(at), vf_set1(t->wa[r]), vf_mul(acc[r][x], vf_set1(t->wb[r])));
            }
            vf_store(at, acc[r][x]);
        }
    }
}

INLINE void direct_value_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, const attn_where *next,
                               int v_dim) {
    int d = 0;
    for (; d + ND * VW <= v_dim; d += ND * VW) direct_value_tile(mr, ND, type, t, w, next, d);
    for (; d < v_dim; d += VW) direct_value_tile(mr, 1, type, t, w, next, d);
}

/* One function per type and number of lanes (4 or 1). */
#define DIRECT(name, type, n)                                                                                          \
    static void direct_score_##name##_##n(const attn_tile *t, const attn_where *w, const attn_where *next, int dim) {  \
        direct_score_lanes(n, type, t, w, next, dim);                                                                  \
    }                                                                                                                  \
    static void direct_value_##name##_##n(const attn_tile *t, const attn_where *w, const attn_where *next, int dim) {  \
        direct_value_lanes(n, type, t, w, next, dim);                                                                  \
    }
DIRECT(f16, KV_F16, 1)
DIRECT(f16, KV_F16, 4)
DIRECT(bf16, KV_BF16, 1)
DIRECT(bf16, KV_BF16, 4)
DIRECT(q8, KV_Q8_0, 1)
DIRECT(q8, KV_Q8_0, 4)
DIRECT(q4, KV_Q4_0, 1)
DIRECT(q4, KV_Q4_0, 4)

static void direct_scores(const attn_tile *t, kv_type type, const attn_where *w, const attn_where *next, int k_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_score_f16_1 : direct_score_f16_4)(t, w, next, k_dim); return;
    case KV_BF16: (one ? direct_score_bf16_1 : direct_score_bf16_4)(t, w, next, k_dim); return;
    case KV_Q8_0: (one ? direct_score_q8_1 : direct_score_q8_4)(t, w, next, k_dim); return;
    case KV_Q4_0: (one ? direct_score_q4_1 : direct_score_q4_4)(t, w, next, k_dim); return;
    case KV_F32:
    case KV_TYPE_COUNT: return;
    }
}

static void direct_values(const attn_tile *t, kv_type type, const attn_where *w, const attn_where *next, int v_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_value_f16_1 : direct_value_f16_4)(t, w, next, v_dim); return;
    case KV_BF16: (one ? direct_value_bf16_1 : direct_value_bf16_4)(t, w, next, v_dim); return;
    case KV_Q8_0: (one ? direct_value_q8_1 : direct_value_q8_4)(t, w, next, v_dim); return;
    case KV_Q4_0: (one ? direct_value_q4_1 : direct_value_q4_4)(t, w, next, v_dim); return;
    case KV_F32:
    case KV_TYPE_COUNT: return;
    }
}

/* Whether a layout's rows suit whole vectors. f32 pages are for reference and take the plain way. */
static bool direct_fits(const kv_layout *l) {
    return !l->v_in_k && l->k_type != KV_F32 && l->v_type != KV_F32 && l->v_dim % (VW < 16 ? 16 : VW) == 0 &&
           (l->v_type != KV_Q4_0 || l->v_dim % KV_GROUP == 0);
}

#endif
