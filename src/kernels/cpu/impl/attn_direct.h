/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same chains as in attn_impl.h, reading K and V of a whole chunk straight from the pages: for few lanes, where
 * converting the chunk into scratch would cost more than the products. What a page type yields as f32 is exact, so both
 * ways give the same bits. Beside the products the pages of the next chunk are prefetched, a few lines at a time.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_DIRECT_H
#define KERNELS_CPU_IMPL_ATTN_DIRECT_H

enum {
    ND = 4,           /* the most vectors side by side */
    DIRECT_LANES = 8, /* more lanes than this share a converted chunk */

    /* Dimensions of K beside which lines are prefetched at once: the wider a vector, the sooner the next are due. */
    AHEAD_DIMS = VW >= 16 ? 4 : KV_GROUP,
};

/* Vectors beside mr lanes: as many sums as registers hold, since one waits for the last one of its own. */
INLINE int direct_vectors(int mr) { return VREGS >= 32 || mr <= 2 ? 4 : 2; }

/* The same for scores; one lane alone would be ahead of the memory there, and its prefetches would come in bursts. */
INLINE int direct_score_vectors(int mr) { return VREGS < 32 && mr == 1 ? 2 : direct_vectors(mr); }

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

/* nd vectors of K before scaling. */
INLINE void direct_k(int nd, kv_type type, const uint8_t *const *kp, size_t o, size_t row, int e, vcode code, vf *kv) {
#ifdef VFP8_TWO
    if (type == KV_FP8) {
        UNROLL for (int x = 0; x < nd; x += 2) vf_load_fp8_two(kp[x] + o + (size_t)e * row, kv + x);
        return;
    }
#endif
    UNROLL for (int x = 0; x < nd; x++) {
        kv[x] =
            type == KV_FP8 ? vf_load_fp8_part(kp[x] + o + (size_t)e * row) : kv_k_vector(type, kp[x] + o, row, e, code);
    }
}

/* The sums of a group into the scores at t->s, nd vectors from x0 on; d: the group's first dimension. */
INLINE void direct_k_fold(int mr, int nd, const attn_tile *t, const attn_where *w, int x0, int d, vf acc[TILE][ND]) {
    UNROLL for (int x = 0; x < nd; x++) {
        const int       at = (x0 + x) * VW;
        const uint16_t *s = w->ks[at / 16] + (size_t)(d / w->k_group) * w->tokens + at % 16;
        const vf        scale = vf_load_f16(s);
        UNROLL for (int r = 0; r < mr; r++) {
            vf_store(t->s[r] + at, d ? vf_fma(acc[r][x], scale, vf_load(t->s[r] + at)) : vf_mul(acc[r][x], scale));
        }
    }
}

/* Scores of mr lanes for the whole chunk. mr and type are constants at every call; groups are whole runs of KV_GROUP. */
INLINE void direct_score_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, attn_ahead *ahead,
                               int k_dim) {
    const int    nd = direct_score_vectors(mr), step = kv_k_step(type);
    const int    lines = ahead_share(ahead, 50, CHUNK / VW / nd * ((k_dim + AHEAD_DIMS - 1) / AHEAD_DIMS));
    const int    group = kv_scaled(type) ? w->k_group : k_dim;
    const size_t unit = kv_bits(type) < 8 ? 1 : kv_bits(type) / 8, row = w->k_row,
                 stride = w->tokens * kv_bits(type) * (size_t)step / 8;
    const vcode  code = kv_vcode(type);
    const float *q[TILE];
    float        own[TILE][KV_DIM_MAX];
    UNROLL for (int r = 0; r < mr; r++) q[r] = direct_factor(type, t->q[r], k_dim, own[r]);
    for (int x0 = 0; x0 < CHUNK / VW; x0 += nd) {
        const uint8_t *kp[ND];
        size_t         o = 0;
        UNROLL for (int x = 0; x < nd; x++) kp[x] = w->k[(x0 + x) * VW / 16] + (size_t)((x0 + x) * VW % 16) * unit;
        for (int d0 = 0; d0 < k_dim; d0 += group) {
            const int end = d0 + group < k_dim ? d0 + group : k_dim;
            vf        acc[TILE][ND];
            UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < nd; x++) acc[r][x] = vf_zero(); }
            for (int d1 = d0; d1 < end; d1 += AHEAD_DIMS) {
                const int to = d1 + AHEAD_DIMS < end ? d1 + AHEAD_DIMS : end;
                ahead_lines(ahead, lines);
                for (int d = d1; d < to; d += step, o += stride) {
                    UNROLL for (int e = 0; e < step; e++) {
                        vf kv[ND];
                        direct_k(nd, type, kp, o, row, e, code, kv);
                        UNROLL for (int r = 0; r < mr; r++) {
                            const vf qd = vf_set1(q[r][d + e]);
                            UNROLL for (int x = 0; x < nd; x++) acc[r][x] = vf_fma(qd, kv[x], acc[r][x]);
                        }
                    }
                }
            }
            if (kv_scaled(type)) {
                direct_k_fold(mr, nd, t, w, x0, d0, acc);
                continue;
            }
            UNROLL for (int r = 0; r < mr; r++) {
                UNROLL for (int x = 0; x < nd; x++) vf_store(t->s[r] + (x0 + x) * VW, acc[r][x]);
            }
        }
    }
}

/* What a tile of values reads beside V. */
typedef struct direct_factors {
    const float *p[TILE]; /* of the lanes: [groups of V][CHUNK] */
    int          lines;   /* prefetched beside sixteen positions */
} direct_factors;

/* nv vectors of V at p, from number `in` of a group of KV_GROUP on, before scaling. */
INLINE void direct_v(kv_type type, int nv, const uint8_t *p, int in, vcode code, vf *vv) {
    const size_t bits = kv_bits(type);
#ifdef VFP8_TWO
    if (type == KV_FP8 && nv % 2 == 0 && in % 16 == 0) {
        UNROLL for (int x = 0; x < nv; x += 2) vf_load_fp8_two(p + in + x * VW, vv + x);
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
                              attn_ahead *ahead, const direct_factors *f, int d, int in) {
    const size_t bits = kv_bits(type), from = (size_t)(d - in) * bits / 8;
    const vcode  code = kv_vcode(type);
    vf           acc[TILE][ND];
    const float *by[TILE][ND];
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < nv; x++) {
            acc[r][x] = vf_zero();
            by[r][x] = f->p[r] + (kv_scaled(type) ? (d + (split ? group_of(nv, x) : 0)) / w->v_group * CHUNK : 0);
        }
    }
    for (int g = 0; g < GROUPS; g++) {
        const uint8_t *p = w->v[g] + from;
        ahead_lines(ahead, f->lines);
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

INLINE void direct_value_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, attn_ahead *ahead,
                               int v_dim) {
    const int      nd = direct_vectors(mr);
    const bool     split = kv_scaled(type) && nd * VW > KV_GROUP && w->v_group % (nd * VW) != 0;
    float          own[TILE][CHUNK];
    direct_factors f;
    int            d = 0;
    f.lines = ahead_share(ahead, 50, (v_dim / (nd * VW) + v_dim % (nd * VW) / VW) * GROUPS);
    UNROLL for (int r = 0; r < mr; r++) f.p[r] = direct_factor(type, t->p[r], CHUNK, own[r]);
    for (; d + nd * VW <= v_dim; d += nd * VW) { /* what half of a group a tile reads: a constant */
        if (split) {
            direct_value_tile(mr, nd, type, true, t, w, ahead, &f, d, 0);
        } else if (nd * VW % KV_GROUP == 0 || d % KV_GROUP == 0) {
            direct_value_tile(mr, nd, type, false, t, w, ahead, &f, d, 0);
        } else if (nd * VW == 16) {
            direct_value_tile(mr, nd, type, false, t, w, ahead, &f, d, 16);
        } else {
            direct_value_tile(mr, nd, type, false, t, w, ahead, &f, d, d % KV_GROUP);
        }
    }
    for (; d < v_dim; d += VW) {
        direct_value_tile(mr, 1, type, false, t, w, ahead, &f, d, d % KV_GROUP);
    }
}

/* One function per type and number of lanes: constants inside, calls outside. */
typedef void direct_fn(const attn_tile *t, const attn_where *w, attn_ahead *ahead, int dim);
#define DIRECT_N(name, type, n)                                                                                        \
    static void direct_score_##name##_##n(const attn_tile *t, const attn_where *w, attn_ahead *ahead, int dim) {       \
        direct_score_lanes(n, type, t, w, ahead, dim);                                                                 \
    }                                                                                                                  \
    static void direct_value_##name##_##n(const attn_tile *t, const attn_where *w, attn_ahead *ahead, int dim) {       \
        direct_value_lanes(n, type, t, w, ahead, dim);                                                                 \
    }
#define DIRECT(name, type)                                                                                             \
    DIRECT_N(name, type, 1)                                                                                            \
    DIRECT_N(name, type, 2)                                                                                            \
    DIRECT_N(name, type, 3)                                                                                            \
    DIRECT_N(name, type, 4)                                                                                            \
    DIRECT_N(name, type, 5)                                                                                            \
    DIRECT_N(name, type, 6)                                                                                            \
    static direct_fn *const direct_score_##name[TILE] = { direct_score_##name##_1, direct_score_##name##_2,            \
                                                          direct_score_##name##_3, direct_score_##name##_4,            \
                                                          direct_score_##name##_5, direct_score_##name##_6 };          \
    static direct_fn *const direct_value_##name[TILE] = { direct_value_##name##_1, direct_value_##name##_2,            \
                                                          direct_value_##name##_3, direct_value_##name##_4,            \
                                                          direct_value_##name##_5, direct_value_##name##_6 };
DIRECT(f16, KV_F16)
DIRECT(bf16, KV_BF16)
DIRECT(fp8, KV_FP8)
#ifndef VQUADS
DIRECT(q8, KV_Q8_0)
DIRECT(q5, KV_Q5_0)
DIRECT(q4, KV_Q4_0)
DIRECT(tq4, KV_TQ4)
DIRECT(tq3, KV_TQ3)
DIRECT(tq2, KV_TQ2)
#endif

static void direct_scores(const attn_tile *t, kv_type type, const attn_where *w, attn_ahead *ahead, int k_dim) {
    switch (type) {
    case KV_F16: direct_score_f16[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_BF16: direct_score_bf16[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_FP8: direct_score_fp8[t->mr - 1](t, w, ahead, k_dim); return;
#ifndef VQUADS
    case KV_Q8_0: direct_score_q8[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_Q5_0: direct_score_q5[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_Q4_0: direct_score_q4[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_TQ4: direct_score_tq4[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_TQ3: direct_score_tq3[t->mr - 1](t, w, ahead, k_dim); return;
    case KV_TQ2: direct_score_tq2[t->mr - 1](t, w, ahead, k_dim); return;
#endif
    default: return;
    }
}

static void direct_values(const attn_tile *t, kv_type type, const attn_where *w, attn_ahead *ahead, int v_dim) {
    switch (type) {
    case KV_F16: direct_value_f16[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_BF16: direct_value_bf16[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_FP8: direct_value_fp8[t->mr - 1](t, w, ahead, v_dim); return;
#ifndef VQUADS
    case KV_Q8_0: direct_value_q8[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_Q5_0: direct_value_q5[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_Q4_0: direct_value_q4[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_TQ4: direct_value_tq4[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_TQ3: direct_value_tq3[t->mr - 1](t, w, ahead, v_dim); return;
    case KV_TQ2: direct_value_tq2[t->mr - 1](t, w, ahead, v_dim); return;
#endif
    default: return;
    }
}

/* Lanes of the next tile of n: tiles as equal as can be. bytes: one side is read in bytes, whose tiles have 4, 2 or 1. */
static int direct_lanes(int n, bool bytes) {
    if (bytes) return n >= 4 ? 4 : n >= 2 ? 2 : 1;
    const int tiles = (n + TILE - 1) / TILE;
    return (n + tiles - 1) / tiles;
}

/* Whether a side is read here at all: f32 pages are for reference and take the plain way, and where numbers with scales are read as
 * bytes, so do the few that are not. */
static bool direct_type(kv_type type) {
#ifdef VQUADS
    if (kv_scaled(type)) return false;
#endif
    return type != KV_F32;
}

/* Whether a layout's rows suit whole vectors. */
static bool direct_fits(const kv_layout *l) {
    return !l->v_in_k && l->v_dim % (VW < 16 ? 16 : VW) == 0 && (kv_bits(l->v_type) >= 8 || l->v_dim % KV_GROUP == 0);
}

#endif
