/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same chains as in attn_impl.h, reading K and V of a whole chunk straight from the pages: for few lanes, where
 * converting the chunk into scratch would cost more than the products. What a page type yields as f32 is exact, so both
 * ways give the same bits. Beside the products the pages of the next chunk are prefetched, a few lines at a time.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_DIRECT_H
#define KERNELS_CPU_IMPL_ATTN_DIRECT_H

enum {
    ND = VREGS >= 32 ? 4 : 2, /* vectors side by side */
    DIRECT_LANES = 8,         /* more lanes than this share a converted chunk */
};

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
INLINE void direct_score_lanes(int mr, kv_type type, const attn_tile *t, const attn_where *w, attn_ahead *ahead,
                               int k_dim) {
    const int    step = kv_k_step(type), runs = (k_dim + KV_GROUP - 1) / KV_GROUP;
    const int    lines = ahead_share(ahead, 50, CHUNK / VW / ND * runs);
    const int    group = kv_scaled(type) ? w->k_group : k_dim;
    const size_t unit = kv_bits(type) < 8 ? 1 : kv_bits(type) / 8, row = w->k_row,
                 stride = w->tokens * kv_bits(type) * (size_t)step / 8;
    const vcode  code = kv_vcode(type);
    const float *q[4];
    float        own[4][KV_DIM_MAX];
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
                ahead_lines(ahead, lines);
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
    const float *p[4];  /* of the lanes: [groups of V][CHUNK] */
    int          lines; /* prefetched beside sixteen positions */
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
                              attn_ahead *ahead, const direct_factors *f, int d, int in) {
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
    const bool     split = kv_scaled(type) && ND * VW > KV_GROUP && w->v_group % (ND * VW) != 0;
    float          own[4][CHUNK];
    direct_factors f;
    int            d = 0;
    f.lines = ahead_share(ahead, 50, (v_dim / (ND * VW) + v_dim % (ND * VW) / VW) * GROUPS);
    UNROLL for (int r = 0; r < mr; r++) f.p[r] = direct_factor(type, t->p[r], CHUNK, own[r]);
    for (; d + ND * VW <= v_dim; d += ND * VW) { /* what half of a group a tile reads: a constant */
        if (split) {
            direct_value_tile(mr, ND, type, true, t, w, ahead, &f, d, 0);
        } else if (ND * VW % KV_GROUP == 0 || d % KV_GROUP == 0) {
            direct_value_tile(mr, ND, type, false, t, w, ahead, &f, d, 0);
        } else if (ND * VW == 16) {
            direct_value_tile(mr, ND, type, false, t, w, ahead, &f, d, 16);
        } else {
            direct_value_tile(mr, ND, type, false, t, w, ahead, &f, d, d % KV_GROUP);
        }
    }
    for (; d < v_dim; d += VW) {
        direct_value_tile(mr, 1, type, false, t, w, ahead, &f, d, d % KV_GROUP);
    }
}

/* One function per type and number of lanes (4 or 1). */
#define DIRECT(name, type, n)                                                                                          \
    static void direct_score_##name##_##n(const attn_tile *t, const attn_where *w, attn_ahead *ahead, int dim) {       \
        direct_score_lanes(n, type, t, w, ahead, dim);                                                                 \
    }                                                                                                                  \
    static void direct_value_##name##_##n(const attn_tile *t, const attn_where *w, attn_ahead *ahead, int dim) {       \
        direct_value_lanes(n, type, t, w, ahead, dim);                                                                 \
    }
DIRECT(f16, KV_F16, 1)
DIRECT(f16, KV_F16, 4)
DIRECT(bf16, KV_BF16, 1)
DIRECT(bf16, KV_BF16, 4)
DIRECT(fp8, KV_FP8, 1)
DIRECT(fp8, KV_FP8, 4)
#ifndef VQUADS
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
#endif

static void direct_scores(const attn_tile *t, kv_type type, const attn_where *w, attn_ahead *ahead, int k_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_score_f16_1 : direct_score_f16_4)(t, w, ahead, k_dim); return;
    case KV_BF16: (one ? direct_score_bf16_1 : direct_score_bf16_4)(t, w, ahead, k_dim); return;
    case KV_FP8: (one ? direct_score_fp8_1 : direct_score_fp8_4)(t, w, ahead, k_dim); return;
#ifndef VQUADS
    case KV_Q8_0: (one ? direct_score_q8_1 : direct_score_q8_4)(t, w, ahead, k_dim); return;
    case KV_Q5_0: (one ? direct_score_q5_1 : direct_score_q5_4)(t, w, ahead, k_dim); return;
    case KV_Q4_0: (one ? direct_score_q4_1 : direct_score_q4_4)(t, w, ahead, k_dim); return;
    case KV_TQ4: (one ? direct_score_tq4_1 : direct_score_tq4_4)(t, w, ahead, k_dim); return;
    case KV_TQ3: (one ? direct_score_tq3_1 : direct_score_tq3_4)(t, w, ahead, k_dim); return;
    case KV_TQ2: (one ? direct_score_tq2_1 : direct_score_tq2_4)(t, w, ahead, k_dim); return;
#endif
    default: return;
    }
}

static void direct_values(const attn_tile *t, kv_type type, const attn_where *w, attn_ahead *ahead, int v_dim) {
    const bool one = t->mr == 1;
    switch (type) {
    case KV_F16: (one ? direct_value_f16_1 : direct_value_f16_4)(t, w, ahead, v_dim); return;
    case KV_BF16: (one ? direct_value_bf16_1 : direct_value_bf16_4)(t, w, ahead, v_dim); return;
    case KV_FP8: (one ? direct_value_fp8_1 : direct_value_fp8_4)(t, w, ahead, v_dim); return;
#ifndef VQUADS
    case KV_Q8_0: (one ? direct_value_q8_1 : direct_value_q8_4)(t, w, ahead, v_dim); return;
    case KV_Q5_0: (one ? direct_value_q5_1 : direct_value_q5_4)(t, w, ahead, v_dim); return;
    case KV_Q4_0: (one ? direct_value_q4_1 : direct_value_q4_4)(t, w, ahead, v_dim); return;
    case KV_TQ4: (one ? direct_value_tq4_1 : direct_value_tq4_4)(t, w, ahead, v_dim); return;
    case KV_TQ3: (one ? direct_value_tq3_1 : direct_value_tq3_4)(t, w, ahead, v_dim); return;
    case KV_TQ2: (one ? direct_value_tq2_1 : direct_value_tq2_4)(t, w, ahead, v_dim); return;
#endif
    default: return;
    }
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
