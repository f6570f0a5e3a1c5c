/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same chains as in attn_impl.h, reading K and V of a whole chunk straight from the pages: for few lanes, where
 * converting the chunk into scratch would cost more than the products. What a page type yields as f32 is exact, so both
 * ways give the same bits. Beside the products the pages of the next chunk are prefetched, as many lines with every
 * part of a chunk's work.
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
    size_t          k_row, v_row;            /* bytes from one row of K to the next, from slot to slot of V */
    size_t          tokens, v_groups;
    int             k_group, v_group; /* dimensions that share a scale */
    const uint8_t  *area[GROUPS];     /* the head's part of every page that the chunk touches: its K, then its V */
    int             n_areas;
    size_t          k_bytes, v_bytes; /* of an area */
} attn_where;

static void where_chunk(const attn_args *a, int kv_head, int64_t c, attn_where *w) {
    const kv_layout *l = a->layout;
    const size_t     k_bits = (size_t)kv_type_get((int)l->k_type)->value_bits;
    const size_t     v_bits = (size_t)kv_type_get((int)l->v_type)->value_bits, k_unit = k_bits < 8 ? 1 : k_bits / 8;
    w->tokens = (size_t)l->tokens;
    w->v_groups = (size_t)kv_v_groups(l);
    w->k_group = l->k_group;
    w->v_group = l->v_group;
    w->k_row = w->tokens * k_unit;
    w->v_row = (size_t)l->v_dim * v_bits / 8;
    w->k_bytes = l->k_bytes;
    w->v_bytes = l->v_bytes;
    w->n_areas = 0;
    for (int g = 0; g < GROUPS; g++) {
        const int64_t  p = c * CHUNK + 16 * g;
        const size_t   slot = (size_t)(p % l->tokens);
        const uint8_t *base = (const uint8_t *)a->pages[p / l->tokens] + a->page_off;
        const uint8_t *k = base + kv_k_offset(l, kv_head), *v = base + kv_v_offset(l, kv_head);
        if (g == 0 || slot == 0) w->area[w->n_areas++] = k;
        w->k[g] = k + slot * k_unit;
        w->v[g] = v + slot * w->v_row;
        w->ks[g] = (const uint16_t *)(const void *)(k + (size_t)l->k_dim * w->tokens * k_bits / 8) + slot;
        w->vs[g] = (const uint16_t *)(const void *)(v + w->tokens * w->v_row) + slot * w->v_groups;
    }
}

/* Part number `part` of `parts` of the lines that lie in [from, from + bytes) of every area. */
static void prefetch_part(const attn_where *next, size_t from, size_t bytes, int part, int parts) {
    const size_t share = (bytes / 64 + (size_t)parts - 1) / (size_t)parts, first = share * (size_t)part;
    const size_t end = first + share < bytes / 64 ? first + share : bytes / 64;
    for (int i = 0; i < next->n_areas; i++) {
        const uint8_t *p = next->area[i] + from;
        for (size_t line = first; line < end; line++) __builtin_prefetch(p + line * 64, 0, 2);
    }
}

/* Bits of a value, as a constant. */
INLINE size_t kv_bits(kv_type type) {
    return type == KV_F32                      ? 32
           : type == KV_F16 || type == KV_BF16 ? 16
           : type == KV_Q8_0 || type == KV_FP8 ? 8
           : type == KV_Q5_0                   ? 5
           : type == KV_TQ3                    ? 3
           : type == KV_TQ2                    ? 2
                                               : 4;
}

/* fp8 is read in units of 1 / 256, which the other factor has to make good: exact, and one product less per vector. */
INLINE const float *direct_factor(kv_type type, const float *x, int n, float *own) {
    if (type != KV_FP8) return x;
    for (int i = 0; i < n; i += VW) vf_store(own + i, vf_mul(vf_load(x + i), vf_set1(KV_FP8_UNIT)));
    return own;
}

/* ND vectors of K before scaling. */
INLINE void direct_k(kv_type type, const uint8_t *const *kp, size_t o, size_t row, int e, vcode code, vf *kv) {
#ifdef VFP8_TWO
    if (type == KV_FP8) {
        vf_load_fp8_two(kp[0] + o + (size_t)e * row, kv);
        return;
    }
#endif
    UNROLL for (int x = 0; x < ND; x++) {
        kv[x] =
            type == KV_FP8 ? vf_load_fp8_part(kp[x] + o + (size_t)e * row) : kv_k_vector(type, kp[x] + o, row, e, code);
    }
}

/* The sums of a group into the scores at t->s, ND vectors from x0 on; d: the group's first dimension. */
INLINE void direct_k_fold(int mr, const attn_tile *t, const attn_where *w, int x0, int d, vf acc[4][ND]) {
    UNROLL for (int x = 0; x < ND; x++) {
        const int       at = (x0 + x) * VW;
        const uint16_t *s = w->ks[at / 16] + (size_t)(d / w->k_group) * w->tokens + at % 16;
        const vf        scale = vf_load_f16(s);
        UNROLL for (int r = 0; r < mr; r++) {
            vf_store(t->s[r] + at, d ? vf_fma(acc[r][x], scale, vf_load(t->s[r] + at)) : vf_mul(acc[r][x], scale));
        }
    }
}

/* Scores of mr lanes for the whole chunk. mr and type are constants at every call; groups are whole runs of KV_GROUP. */
INLINE void direct_score_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, const attn_where *next,
                               int k_dim) {
    const int    step = kv_k_step(type), runs = (k_dim + KV_GROUP - 1) / KV_GROUP, parts = CHUNK / VW / ND * runs;
    const int    group = kv_scaled(type) ? w->k_group : k_dim;
    const size_t unit = kv_bits(type) < 8 ? 1 : kv_bits(type) / 8, row = w->k_row,
                 stride = w->tokens * kv_bits(type) * (size_t)step / 8;
    const vcode  code = kv_vcode(type);
    const float *q[4];
    float        own[4][KV_DIM_MAX];
    int          part = 0;
    UNROLL for (int r = 0; r < mr; r++) q[r] = direct_factor(type, t->q[r], k_dim, own[r]);
    for (int x0 = 0; x0 < CHUNK / VW; x0 += ND) {
        const uint8_t *kp[ND];
        size_t         o = 0;
        UNROLL for (int x = 0; x < ND; x++) kp[x] = w->k[(x0 + x) * VW / 16] + (size_t)((x0 + x) * VW % 16) * unit;
        for (int d0 = 0; d0 < k_dim; d0 += group) {
            const int end = d0 + group < k_dim ? d0 + group : k_dim;
            vf        acc[4][ND];
            UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_zero(); }
            for (int d1 = d0; d1 < end; d1 += KV_GROUP) {
                const int run = d1 + KV_GROUP < end ? d1 + KV_GROUP : end;
                if (next) prefetch_part(next, 0, next->k_bytes, part++, parts);
                for (int d = d1; d < run; d += step, o += stride) {
                    UNROLL for (int e = 0; e < step; e++) {
                        vf kv[ND];
                        direct_k(type, kp, o, row, e, code, kv);
                        UNROLL for (int r = 0; r < mr; r++) {
                            const vf qd = vf_set1(q[r][d + e]);
                            UNROLL for (int x = 0; x < ND; x++) acc[r][x] = vf_fma(qd, kv[x], acc[r][x]);
                        }
                    }
                }
            }
            if (kv_scaled(type)) {
                direct_k_fold(mr, t, w, x0, d0, acc);
                continue;
            }
            UNROLL for (int r = 0; r < mr; r++) {
                UNROLL for (int x = 0; x < ND; x++) vf_store(t->s[r] + (x0 + x) * VW, acc[r][x]);
            }
        }
    }
}

/* What a tile of values reads beside V. */
typedef struct direct_factors {
    const float *p[4];        /* of the lanes: [groups of V][CHUNK] */
    int          part, parts; /* of what is prefetched: the tile's first, and of all tiles */
} direct_factors;

/* nv vectors of V at p, from number `in` of a group of KV_GROUP on, before scaling. */
INLINE void direct_v(kv_type type, int nv, const uint8_t *p, int in, vcode code, vf *vv) {
    const size_t bits = kv_bits(type);
#ifdef VFP8_TWO
    if (type == KV_FP8 && nv == 2 && in % 16 == 0) {
        vf_load_fp8_two(p + in, vv);
        return;
    }
#endif
    UNROLL for (int x = 0; x < nv; x++) {
        const int      i = in + x * VW;
        const uint8_t *at = p + (size_t)(i / KV_GROUP * KV_GROUP) * bits / 8;
        vv[x] = type == KV_FP8 ? vf_load_fp8_part(at + i % KV_GROUP) : kv_v_vector(type, at, i % KV_GROUP, code);
    }
}

/*
 * Values of mr lanes over the whole chunk and the fold, as value_tile does it; nv vectors from dimension d on, which is
 * number `in` of its group of KV_GROUP. split: the vectors have scales of several groups.
 */
INLINE void direct_value_tile(int mr, int nv, kv_type type, bool split, const attn_tile *t, const attn_where *w,
                              const attn_where *next, const direct_factors *f, int d, int in) {
    const size_t bits = kv_bits(type), from = (size_t)(d - in) * bits / 8;
    const vcode  code = kv_vcode(type);
    vf           acc[4][ND];
    const float *by[4][ND];
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < nv; x++) {
            acc[r][x] = vf_zero();
            by[r][x] = f->p[r] + (kv_scaled(type) ? (d + (split ? group_of(ND, x) : 0)) / w->v_group * CHUNK : 0);
        }
    }
    for (int g = 0; g < GROUPS; g++) {
        const uint8_t *p = w->v[g] + from;
        if (next) prefetch_part(next, next->k_bytes, next->v_bytes, f->part + g, f->parts);
        for (int j = 16 * g; j < 16 * g + 16; j++, p += w->v_row) {
            vf vv[ND];
            direct_v(type, nv, p, in, code, vv);
            UNROLL for (int r = 0; r < mr; r++) {
                UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_fma(vf_set1(by[r][x][j]), vv[x], acc[r][x]);
            }
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
    const bool     split = kv_scaled(type) && ND * VW > KV_GROUP && w->v_group % (ND * VW) != 0;
    float          own[4][CHUNK];
    direct_factors f;
    int            d = 0;
    f.part = 0;
    f.parts = (v_dim / (ND * VW) + v_dim % (ND * VW) / VW) * GROUPS;
    UNROLL for (int r = 0; r < mr; r++) f.p[r] = direct_factor(type, t->p[r], CHUNK, own[r]);
    for (; d + ND * VW <= v_dim; d += ND * VW, f.part += GROUPS) { /* what half of a group a tile reads: a constant */
        if (split) {
            direct_value_tile(mr, ND, type, true, t, w, next, &f, d, 0);
        } else if (ND * VW % KV_GROUP == 0 || d % KV_GROUP == 0) {
            direct_value_tile(mr, ND, type, false, t, w, next, &f, d, 0);
        } else if (ND * VW == 16) {
            direct_value_tile(mr, ND, type, false, t, w, next, &f, d, 16);
        } else {
            direct_value_tile(mr, ND, type, false, t, w, next, &f, d, d % KV_GROUP);
        }
    }
    for (; d < v_dim; d += VW, f.part += GROUPS) {
        direct_value_tile(mr, 1, type, false, t, w, next, &f, d, d % KV_GROUP);
    }
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
DIRECT(fp8, KV_FP8, 1)
DIRECT(fp8, KV_FP8, 4)
DIRECT(q8, KV_Q8_0, 1)
DIRECT(q8, KV_Q8_0, 4)
DIRECT(q5, KV_Q5_0, 1)
DIRECT(q5, KV_Q5_0, 4)
DIRECT(q4, KV_Q4_0, 1)
DIRECT(q4, KV_Q4_0, 4)
DIRECT(tq4, KV_TQ4, 1)
DIRECT(tq4, KV_TQ4, 4)
DIRECT(tq3, KV_TQ3, 1)
DIRECT(tq3, KV_TQ3, 4)
DIRECT(tq2, KV_TQ2, 1)
DIRECT(tq2, KV_TQ2, 4)

static void direct_scores(const attn_tile *t, kv_type type, const attn_where *w, const attn_where *next, int k_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_score_f16_1 : direct_score_f16_4)(t, w, next, k_dim); return;
    case KV_BF16: (one ? direct_score_bf16_1 : direct_score_bf16_4)(t, w, next, k_dim); return;
    case KV_FP8: (one ? direct_score_fp8_1 : direct_score_fp8_4)(t, w, next, k_dim); return;
    case KV_Q8_0: (one ? direct_score_q8_1 : direct_score_q8_4)(t, w, next, k_dim); return;
    case KV_Q5_0: (one ? direct_score_q5_1 : direct_score_q5_4)(t, w, next, k_dim); return;
    case KV_Q4_0: (one ? direct_score_q4_1 : direct_score_q4_4)(t, w, next, k_dim); return;
    case KV_TQ4: (one ? direct_score_tq4_1 : direct_score_tq4_4)(t, w, next, k_dim); return;
    case KV_TQ3: (one ? direct_score_tq3_1 : direct_score_tq3_4)(t, w, next, k_dim); return;
    case KV_TQ2: (one ? direct_score_tq2_1 : direct_score_tq2_4)(t, w, next, k_dim); return;
    case KV_F32:
    case KV_TYPE_COUNT: return;
    }
}

static void direct_values(const attn_tile *t, kv_type type, const attn_where *w, const attn_where *next, int v_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_value_f16_1 : direct_value_f16_4)(t, w, next, v_dim); return;
    case KV_BF16: (one ? direct_value_bf16_1 : direct_value_bf16_4)(t, w, next, v_dim); return;
    case KV_FP8: (one ? direct_value_fp8_1 : direct_value_fp8_4)(t, w, next, v_dim); return;
    case KV_Q8_0: (one ? direct_value_q8_1 : direct_value_q8_4)(t, w, next, v_dim); return;
    case KV_Q5_0: (one ? direct_value_q5_1 : direct_value_q5_4)(t, w, next, v_dim); return;
    case KV_Q4_0: (one ? direct_value_q4_1 : direct_value_q4_4)(t, w, next, v_dim); return;
    case KV_TQ4: (one ? direct_value_tq4_1 : direct_value_tq4_4)(t, w, next, v_dim); return;
    case KV_TQ3: (one ? direct_value_tq3_1 : direct_value_tq3_4)(t, w, next, v_dim); return;
    case KV_TQ2: (one ? direct_value_tq2_1 : direct_value_tq2_4)(t, w, next, v_dim); return;
    case KV_F32:
    case KV_TYPE_COUNT: return;
    }
}

/* Whether a layout's rows suit whole vectors. f32 pages are for reference and take the plain way. */
static bool direct_fits(const kv_layout *l) {
    return !l->v_in_k && l->k_type != KV_F32 && l->v_type != KV_F32 && l->v_dim % (VW < 16 ? 16 : VW) == 0 &&
           (kv_bits(l->v_type) >= 8 || l->v_dim % KV_GROUP == 0);
}

#endif
