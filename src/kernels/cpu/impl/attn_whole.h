/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over page types with scales in whole numbers: their stored numbers have eight bits at most, and where the queries
 * and the factors of values have sixteen, one instruction multiplies and adds up twice as many as of f32, exactly. Only
 * for sets that say so (VWHOLE); for these the order of operations of kernels/attn.h becomes
 *
 *     u    = max |q[d]| / 32767,  i[d] = q[d] / u rounded to nearest
 *     s[j] = u * sum over groups of scale[group][j] * (sum over d of i[d] n[j][d])
 *     w    = max over groups and j of p[j] |scale[group][j]| / 32767,  f[group][j] = p[j] scale[group][j] / w rounded
 *     o[d] = w * (sum over j of f[group][j] n[j][d])
 *
 * with exact inner sums: they depend on no order, and what a row does not see has the factor 0. Rounding q to 1 / 65534 of
 * its largest value costs a twentieth of what keys rounded to f16 cost; rounding the factors costs less than values
 * rounded to f16 do.
 *
 * A chunk becomes pairs of 32 bits with two unsigned numbers: stored ones plus WHOLE_ZERO, for which the sums make up in their
 * first term. Of K two dimensions of a position are a pair, [CHUNK / 32][k_dim / 2][32 positions], of V two positions of a
 * dimension, [v_dim / 32][CHUNK / 2][32 dimensions]. The 32 lie in four vectors: the first four of both halves, the next
 * four, and so on (vb_pairs); tiles of two vectors hold eight of the first sixteen and eight of the others.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_WHOLE_H
#define KERNELS_CPU_IMPL_ATTN_WHOLE_H

#ifdef VWHOLE

#if defined(__clang__)
#define UNROLL4 _Pragma("unroll 4")
#else
#define UNROLL4 _Pragma("GCC unroll 4")
#endif

enum { WHOLE_MOST = 32767 };

/* Largest values below this count as zero: their inverse is out of range, and what they add is nothing. */
#define WHOLE_LEAST 0x1p-100f

enum { WHOLE_ZERO = 128 };

static bool whole_k(const kv_layout *l) {
    return kv_scaled(l->k_type) && !quad_k(l) && !l->v_in_k && l->k_dim % KV_GROUP == 0;
}
static bool whole_v(const kv_layout *l) {
    return kv_scaled(l->v_type) && !quad_v(l) && !l->v_in_k && l->v_dim % KV_GROUP == 0;
}

/* n numbers, a multiple of 2 VW, each the product of x and y, rounded; returned is their sum. */
INLINE int32_t whole_round(const float *x, const float *y, int n, int16_t *to) {
    vi sum = vi_set1(0);
    for (int i = 0; i < n; i += 2 * VW) {
        const vi a = vi_round(vf_mul(vf_load(x + i), vf_load(y + i)));
        const vi b = vi_round(vf_mul(vf_load(x + i + VW), vf_load(y + i + VW)));
        sum = vi_add(sum, vi_add(a, b));
        vi_store_i16(to + i, a, b);
    }
    return vi_sum(sum);
}

/* A query: k_dim numbers of 16 bits in pairs, then the first terms of the groups' sums. */
static float whole_query(const kv_layout *l, const float *q, int32_t *to) {
    int16_t *n = (int16_t *)(void *)to;
    float    by[KV_BLOCK_MAX];
    vf       top = vf_zero(), bad = vf_zero();
    for (int d = 0; d < l->k_dim; d += VW) {
        top = vf_max(top, vf_abs(vf_load(q + d)));
        bad = vf_fma(vf_load(q + d), vf_zero(), bad);
    }
    const float most = vf_hmax(top);
    for (int i = 0; i < l->k_group; i++) by[i] = most < WHOLE_LEAST ? 0.0f : (float)WHOLE_MOST / most;
    for (int d = 0; d < l->k_dim; d += l->k_group) {
        to[l->k_dim / 2 + d / l->k_group] = -WHOLE_ZERO * whole_round(q + d, by, l->k_group, n + d);
    }
    return most * (1.0f / (float)WHOLE_MOST) + vf_sum(bad); /* a query that is not finite has no scores */
}

/* Number e of eight dimensions of K, of 16 slots at p and 16 at p2. */
INLINE vbytes whole_k_number(kv_type type, const uint8_t *p, const uint8_t *p2, size_t row, int e, vbytes code) {
    if (type == KV_Q8_0) return vb_flip(vb_two(p + (size_t)e * row, p2 + (size_t)e * row));
    if (type == KV_TQ2) {
        const vbytes x = vb_two(p + (size_t)(e / 4) * row, p2 + (size_t)(e / 4) * row);
        return vb_pick(code, vb_and(vb_shr(x, e % 4 * 2), 3));
    }
    if (type == KV_TQ3) {
        const size_t at = (size_t)(3 * e / 8) * row;
        const int    by = 3 * e % 8;
        const vbytes x = vb_shr(vb_two(p + at, p2 + at), by);
        if (by <= 5) return vb_pick(code, vb_and(x, 7));
        const vbytes next = vb_shl(vb_two(p + at + row, p2 + at + row), 8 - by);
        return vb_pick(code, vb_or(vb_and(x, 7 >> (by - 5)), vb_and(next, 7 & 7 << (8 - by))));
    }
    const vbytes x = vb_two(p + (size_t)(e / 2) * row, p2 + (size_t)(e / 2) * row);
    return vb_pick(code, vb_and(e % 2 ? vb_shr(x, 4) : x, 15));
}

/* 32 dimensions of V. */
INLINE vbytes whole_v_numbers(kv_type type, const uint8_t *p, vbytes code) {
    switch (type) {
    case KV_Q8_0: return vb_flip(vb_load(p));
    case KV_TQ4: return vb_pick(code, b32_nibs(p));
    case KV_TQ3: return vb_pick(code, b32_thirds(p));
    default: return vb_pick(code, b32_crumbs(p));
    }
}

INLINE void whole_open_k(kv_type type, const kv_layout *l, const uint8_t *p, const uint8_t *p2, int32_t *to) {
    const size_t tokens = (size_t)l->tokens, stride = tokens * kv_bits(type);
    const vbytes code = vb_codes(kv_codes(type));
    for (int d = 0; d < l->k_dim; d += 8, p += stride, p2 += stride) {
        UNROLL for (int e = 0; e < 8; e += 2, to += 32) {
            vb_pairs(whole_k_number(type, p, p2, tokens, e, code), whole_k_number(type, p, p2, tokens, e + 1, code),
                     to);
        }
    }
}

/* Dimensions [d0, d1) of n slots, the first at p, n even. */
INLINE void whole_open_v(kv_type type, const kv_layout *l, const uint8_t *p, int n, int d0, int d1, int32_t *to) {
    const size_t row = (size_t)l->v_dim * kv_bits(type) / 8, group = KV_GROUP * kv_bits(type) / 8;
    const vbytes code = vb_codes(kv_codes(type));
    p += (size_t)(d0 / KV_GROUP) * group;
    for (int d = d0; d < d1; d += KV_GROUP, p += group, to += CHUNK / 2 * 32) {
        for (int j = 0; j < n; j += 2) {
            const uint8_t *at = p + (size_t)j * row;
            vb_pairs(whole_v_numbers(type, at, code), whole_v_numbers(type, at + row, code), to + j * 16);
        }
    }
}

/* 16 slots of K at p and 16 at p2. */
static void whole_load_k(const kv_layout *l, const uint8_t *p, const uint8_t *p2, int32_t *to) {
    switch (l->k_type) {
    case KV_Q8_0: whole_open_k(KV_Q8_0, l, p, p2, to); return;
    case KV_TQ4: whole_open_k(KV_TQ4, l, p, p2, to); return;
    case KV_TQ3: whole_open_k(KV_TQ3, l, p, p2, to); return;
    default: whole_open_k(KV_TQ2, l, p, p2, to); return;
    }
}

static void whole_load_v(const kv_layout *l, const uint8_t *p, int n, int d0, int d1, int32_t *to) {
    switch (l->v_type) {
    case KV_Q8_0: whole_open_v(KV_Q8_0, l, p, n, d0, d1, to); return;
    case KV_TQ4: whole_open_v(KV_TQ4, l, p, n, d0, d1, to); return;
    case KV_TQ3: whole_open_v(KV_TQ3, l, p, n, d0, d1, to); return;
    default: whole_open_v(KV_TQ2, l, p, n, d0, d1, to); return;
    }
}

/* The head's part of the page with position p, and its slot there. Pages hold a power of two. */
static const uint8_t *whole_at(const attn_args *a, int kv_head, int64_t p, size_t *slot) {
    const kv_layout *l = a->layout;
    *slot = (size_t)p & (size_t)(l->tokens - 1);
    return (const uint8_t *)a->pages[p >> __builtin_ctz((unsigned)l->tokens)] + a->page_off + kv_k_offset(l, kv_head);
}

/* Scales of 32 positions in the order of the pairs. */
static void whole_k_scales(const kv_layout *l, const uint16_t *s, const uint16_t *s2, float *to) {
    for (int g = 0; g < kv_k_groups(l); g++, s += l->tokens, s2 += l->tokens, to += CHUNK) {
        for (int j = 0; j < 16; j += VW) {
            vf a = vf_load_f16(s + j), b = vf_load_f16(s2 + j);
            vf_pair(&a, &b);
            vf_store(to + 2 * j, a);
            vf_store(to + 2 * j + VW, b);
        }
    }
}

/* 32 slots of the chunk from 16 * g on, of which groups [g0, g1) of 16 are there; one of them stands for a missing one. */
static void whole_open_keys(attn_block *b, int g, int g0, int g1, int32_t *to) {
    const kv_layout *l = b->a->layout;
    const size_t     values = kv_value_bytes(l->k_type, l->tokens, l->k_dim);
    size_t           s, s2;
    const uint8_t   *k = whole_at(b->a, b->kv_head, b->chunk * CHUNK + 16 * (g < g0 ? g + 1 : g), &s);
    const uint8_t   *k2 = whole_at(b->a, b->kv_head, b->chunk * CHUNK + 16 * (g + 1 < g1 ? g + 1 : g), &s2);
    whole_load_k(l, k + s, k2 + s2, to);
    whole_k_scales(l, (const uint16_t *)(const void *)(k + values) + s,
                   (const uint16_t *)(const void *)(k2 + values) + s2, b->ks + 16 * g);
}

/* Dimensions [d0, d1) of slots [j0, j1) of the chunk. */
static void whole_open_values(attn_block *b, int j0, int j1, int d0, int d1, int32_t *to) {
    const kv_layout *l = b->a->layout;
    const size_t     row = (size_t)l->v_dim * (size_t)kv_type_get((int)l->v_type)->value_bits / 8;
    for (int j = j0 / 2 * 2, n; j < j1; j += n) {
        size_t         slot;
        const uint8_t *v = whole_at(b->a, b->kv_head, b->chunk * CHUNK + j, &slot) + l->k_bytes;
        n = l->tokens - (int)slot < j1 - j ? l->tokens - (int)slot : (j1 - j + 1) / 2 * 2;
        whole_load_v(l, v + slot * row, n, d0, d1, to + j / 2 * 32);
    }
}

/* The largest scale of every position behind the factors of MR lanes. */
static float *whole_largest(attn_block *b) { return b->p + (size_t)(MR * kv_v_groups(b->a->layout)) * CHUNK; }

/* Scales of slots [j0, j1) of the chunk; the others have 0. */
static void whole_v_scales(attn_block *b, int j0, int j1) {
    const kv_layout *l = b->a->layout;
    const int        groups = kv_v_groups(l);
    const size_t     values = kv_value_bytes(l->v_type, l->tokens, l->v_dim);
    float           *most = whole_largest(b);
    for (int j = j0 / 16 * 16; j < j1; j += 16) {
        size_t         slot;
        const uint8_t *v = whole_at(b->a, b->kv_head, b->chunk * CHUNK + j, &slot) + l->k_bytes + values;
        kv_load_v_scales((const uint16_t *)(const void *)v + slot * (size_t)groups, 16, groups, b->vs + j, CHUNK);
    }
    for (int i = 0; (j0 > 0 || j1 < CHUNK) && i < groups * CHUNK; i++) {
        if (i % CHUNK < j0 || i % CHUNK >= j1) b->vs[i] = 0.0f;
    }
    for (int j = 0; j < CHUNK; j += VW) {
        vf top = vf_zero(); /* scales may be negative */
        for (int g = 0; g < groups; g++) top = vf_max(top, vf_abs(vf_load(b->vs + g * CHUNK + j)));
        vf_store(most + j, top);
    }
}

/* Slots [j0, j1) of the chunk, for several tiles. A single one opens what it reads piece by piece, which stays nearer. */
static void whole_load(attn_block *b, int j0, int j1) {
    const kv_layout *l = b->a->layout;
    if (whole_v(l)) whole_v_scales(b, j0, j1);
    if (b->single) return;
    for (int g = j0 / 32 * 2; whole_k(l) && g * 16 < j1; g += 2) {
        whole_open_keys(b, g, j0 / 16, (j1 + 15) / 16, (int32_t *)(void *)b->k + g / 2 * (l->k_dim / 2) * 32);
    }
    if (whole_v(l)) whole_open_values(b, j0, j1, 0, l->v_dim, (int32_t *)(void *)b->v);
}

/* Scores of mr lanes against sixteen positions, eight from j on and eight from j + 16 on; k: of the 32 positions. */
INLINE void whole_score_tile(int mr, const attn_tile *t, const int32_t *k, int k_dim, int j, attn_ahead *ahead) {
    const int    at = j / 32 * 32 + j % 32 * 2, lines = ahead_share(ahead, 50, CHUNK / 16 * k_dim / KV_GROUP);
    const float *scale = t->ks + at;
    vf           sum[MR][2];
    k += j % 32 * 2;
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < 2; x++) sum[r][x] = vf_zero(); }
    for (int d = 0; d < k_dim; d += t->k_group, scale += CHUNK) {
        vi acc[MR][2];
        UNROLL for (int r = 0; r < mr; r++) {
            UNROLL for (int x = 0; x < 2; x++) acc[r][x] = vi_set1(t->qi[r][k_dim / 2 + d / t->k_group]);
        }
        for (int d1 = d; d1 < d + t->k_group; d1 += KV_GROUP) {
            ahead_lines(ahead, lines);
            UNROLL4 for (int i = d1 / 2; i < (d1 + KV_GROUP) / 2; i++) {
                const vi kv[2] = { vi_load(k + i * 32), vi_load(k + i * 32 + VW) };
                UNROLL for (int r = 0; r < mr; r++) {
                    const vi qd = vi_set1(t->qi[r][i]);
                    UNROLL for (int x = 0; x < 2; x++) acc[r][x] = vi_dot(acc[r][x], qd, kv[x]);
                }
            }
        }
        UNROLL for (int x = 0; x < 2; x++) {
            const vf by = vf_load(scale + VW * x);
            UNROLL for (int r = 0; r < mr; r++) { sum[r][x] = vf_fma(vf_from_vi(acc[r][x]), by, sum[r][x]); }
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        const vf by = vf_set1(t->qf[r]);
        vf_pair(&sum[r][0], &sum[r][1]);
        vf_store(t->s[r] + j, vf_mul(sum[r][0], by));
        vf_store(t->s[r] + j + 16, vf_mul(sum[r][1], by));
    }
}

/* Positions [from, to) of the chunk, and those beside them that share their vectors. */
INLINE void whole_score_lanes(int mr, const attn_tile *t, attn_block *b, int from, int to) {
    const int k_dim = b->a->layout->k_dim;
    for (int j = from / 32 * 32; j < to; j += 32) {
        int32_t *k = (int32_t *)(void *)b->k + (b->single ? 0 : j / 32 * (k_dim / 2) * 32);
        if (b->single) whole_open_keys(b, j / 16, from / 16, (to + 15) / 16, k);
        whole_score_tile(mr, t, k, k_dim, j, &b->ahead);
        whole_score_tile(mr, t, k, k_dim, j + 8, &b->ahead);
    }
}

/* Factors of one lane's values: [v_groups][CHUNK] of 16 bits, then the first terms of the groups' sums. largest: of the scales
 * of every position. */
static float whole_factors(const kv_layout *l, const float *p, const float *vs, const float *largest, int32_t *to) {
    const int groups = kv_v_groups(l);
    int16_t  *n = (int16_t *)(void *)to;
    float     x[CHUNK];
    vf        top = vf_zero();
    for (int j = 0; j < CHUNK; j += VW) top = vf_max(top, vf_mul(vf_load(p + j), vf_load(largest + j)));
    const float most = vf_hmax(top);
    const vf    by = vf_set1(most < WHOLE_LEAST ? 0.0f : (float)WHOLE_MOST / most);
    for (int j = 0; j < CHUNK; j += VW) vf_store(x + j, vf_mul(vf_load(p + j), by));
    for (int g = 0; g < groups; g++) {
        to[groups * CHUNK / 2 + g] = -WHOLE_ZERO * whole_round(x, vs + g * CHUNK, CHUNK, n + g * CHUNK);
    }
    return most * (1.0f / (float)WHOLE_MOST);
}

/* Values of mr lanes for sixteen dimensions, eight from d on and eight from d + 16 on, over pairs [from, to) of positions, then
 * the fold; v: of the 32 dimensions. */
INLINE void whole_value_tile(int mr, const attn_tile *t, const int32_t *v, int v_dim, int d, int from, int to,
                             attn_ahead *ahead) {
    const int groups = v_dim / t->v_group, g = d / t->v_group;
    const int lines = ahead_share(ahead, 50, v_dim / 16 * (CHUNK / 32));
    vi        acc[MR][2];
    v += d % 32 * 2;
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < 2; x++) acc[r][x] = vi_set1(t->w[r][groups * CHUNK / 2 + g]);
    }
    for (int i0 = from; i0 < to; i0 += 16) {
        const int end = i0 + 16 < to ? i0 + 16 : to;
        ahead_lines(ahead, lines);
        UNROLL4 for (int i = i0; i < end; i++) {
            const vi vv[2] = { vi_load(v + i * 32), vi_load(v + i * 32 + VW) };
            UNROLL for (int r = 0; r < mr; r++) {
                const vi by = vi_set1(t->w[r][g * CHUNK / 2 + i]);
                UNROLL for (int x = 0; x < 2; x++) acc[r][x] = vi_dot(acc[r][x], by, vv[x]);
            }
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        vf sum[2] = { vf_from_vi(acc[r][0]), vf_from_vi(acc[r][1]) };
        vf_pair(&sum[0], &sum[1]);
        UNROLL for (int x = 0; x < 2; x++) {
            float *at = t->o[r] + d + 16 * x;
            vf     o = vf_mul(sum[x], vf_set1(t->wf[r]));
            if (!t->alone) o = vf_fma(vf_load(at), vf_set1(t->wa[r]), vf_mul(o, vf_set1(t->wb[r])));
            vf_store(at, o);
        }
    }
}

INLINE void whole_value_lanes(int mr, const attn_tile *t, attn_block *b, int from, int to) {
    const int v_dim = b->a->layout->v_dim;
    for (int d = 0; d < v_dim; d += 32) {
        int32_t *v = (int32_t *)(void *)b->v + (b->single ? 0 : d / 32 * (CHUNK / 2) * 32);
        if (b->single) whole_open_values(b, from, to, d, d + 32, v);
        whole_value_tile(mr, t, v, v_dim, d, from / 2, (to + 1) / 2, &b->ahead);
        whole_value_tile(mr, t, v, v_dim, d + 8, from / 2, (to + 1) / 2, &b->ahead);
    }
}

/* One function per number of lanes. */
#define WHOLE(n)                                                                                                       \
    static void whole_score_##n(const attn_tile *t, attn_block *b, int from, int to) {                                 \
        whole_score_lanes(n, t, b, from, to);                                                                          \
    }                                                                                                                  \
    static void whole_value_##n(const attn_tile *t, attn_block *b, int from, int to) {                                 \
        whole_value_lanes(n, t, b, from, to);                                                                          \
    }
WHOLE(1)
WHOLE(2)
WHOLE(4)

/* from, to: positions of the chunk that a lane of the tile sees. */
static void whole_scores(const attn_tile *t, attn_block *b, int from, int to) {
    (t->mr == 4 ? whole_score_4 : t->mr == 2 ? whole_score_2 : whole_score_1)(t, b, from, to);
}

static void whole_values(attn_tile *t, attn_block *b, int from, int to) {
    const kv_layout *l = b->a->layout;
    t->v_group = l->v_group;
    for (int r = 0; r < t->mr; r++) {
        int32_t *w = (int32_t *)(void *)(b->p + (size_t)(r * kv_v_groups(l)) * CHUNK);
        for (int64_t j = 0; j < t->j0[r]; j++) t->s[r][j] = 0.0f;
        for (int64_t j = t->j1[r]; j < CHUNK; j++) t->s[r][j] = 0.0f;
        t->wf[r] = whole_factors(l, t->s[r], b->vs, whole_largest(b), w);
        t->w[r] = w;
    }
    (t->mr == 4 ? whole_value_4 : t->mr == 2 ? whole_value_2 : whole_value_1)(t, b, from, to);
}

#else

static bool  whole_k(const kv_layout *l) { return (void)l, false; }
static bool  whole_v(const kv_layout *l) { return (void)l, false; }
static float whole_query(const kv_layout *l, const float *q, int32_t *to) { return (void)l, (void)q, (void)to, 0.0f; }
static void  whole_load(attn_block *b, int j0, int j1) { (void)b, (void)j0, (void)j1; }
static void  whole_scores(const attn_tile *t, attn_block *b, int from, int to) {
     (void)t, (void)b, (void)from, (void)to;
}
static void whole_values(attn_tile *t, attn_block *b, int from, int to) { (void)t, (void)b, (void)from, (void)to; }

#endif

#endif
