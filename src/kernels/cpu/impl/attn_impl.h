/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over pages, for every instruction set (see vec/scalar.h; the order of operations is in kernels/attn.h).
 *
 * Work goes in blocks of up to ATTN_LANES lanes. A lane is one query row of one head; all lanes of a block share a K/V
 * head. For a chunk of positions the block reads K and V once as f32 into scratch (K [k_dim][ATTN_CHUNK],
 * V [ATTN_CHUNK][v_dim], scales [groups][ATTN_CHUNK]), then runs tiles of MR lanes over it: scores, softmax, values, fold. A tile only changes how
 * many chains run side by side, never a chain.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_IMPL_H
#define KERNELS_CPU_IMPL_ATTN_IMPL_H

#include <math.h>
#include <string.h>

enum { MR = VREGS >= 32 ? ATTN_TILE_LANES : 4, NR = VREGS >= 32 ? 4 : 3, CHUNK = ATTN_CHUNK, TILE = ATTN_TILE_LANES };

#include "kernels/cpu/impl/attn_where.h"

typedef struct attn_block {
    const attn_args *a;
    int              kv_head, n;    /* lanes in use */
    const float     *q[ATTN_LANES]; /* [k_dim] */
    int              head[ATTN_LANES];
    int              row[ATTN_LANES];
    int64_t          pos[ATTN_LANES];
    int64_t          lo[ATTN_LANES], hi[ATTN_LANES]; /* positions the lane sees */
    float           *k, *v, *s;                      /* chunk in f32; scores [lane][CHUNK] */
    float           *ks, *vs;                        /* scales of the chunk: [groups][CHUNK] */
    float           *p;               /* probabilities times scales of V: [MR][groups][CHUNK], and CHUNK more */
    const float     *read_k, *read_v; /* these, or a page that is such a chunk */
    float           *o;               /* [lane][v_dim] */
    float           *rotated;         /* queries of rotated keys: [lane][k_dim] */
    const int32_t   *qi[ATTN_LANES];  /* or in whole numbers (attn_quads.h, attn_whole.h), ... */
    float            qf[ATTN_LANES];  /* ... and what brings them back */
    int64_t          chunk;           /* that runs now, ... */
    bool             single;          /* ... all of it in one tile */

    attn_ahead ahead; /* what is prefetched while it runs */
    float      m[ATTN_LANES], l[ATTN_LANES];
} attn_block;

static void block_scratch(attn_block *b, const attn_args *a, void *scratch) {
    const kv_layout *l = a->layout;
    b->a = a;
    b->k = scratch;
    b->v = b->k + (size_t)l->k_dim * CHUNK;
    b->s = b->v + (size_t)l->v_dim * CHUNK;
    b->read_k = b->k;
    b->read_v = b->v;
    b->o = b->s + (size_t)ATTN_LANES * CHUNK;
    b->ks = b->o + (size_t)ATTN_LANES * (size_t)l->v_dim;
    b->vs = l->v_in_k ? b->ks : b->ks + (size_t)kv_k_groups(l) * CHUNK;
    b->p = b->ks + (size_t)(kv_k_groups(l) + kv_v_groups(l)) * CHUNK;
    b->rotated = b->p + (size_t)(ATTN_TILE_LANES * kv_v_groups(l) + 1) * CHUNK;
    ahead_begin(&b->ahead, NULL);
}

/* V from K in the latent form: slots [j0, j1) of the chunk, transposed. */
static void latent_values(attn_block *b, int j0, int j1) {
    const int v_dim = b->a->layout->v_dim;
    for (int d = 0; d < v_dim;) {
        const int nd = v_dim - d < 16 ? v_dim - d : 16;
        int       j = j0;
#ifdef VTRANSPOSE
        for (; nd == 16 && j + VW <= j1; j += VW) {
            for (int x = 0; x < 16; x += VW) {
                vf r[VW];
                UNROLL16 for (int i = 0; i < VW; i++) r[i] = vf_load(b->k + (d + x + i) * CHUNK + j);
                vf_transpose(r);
                UNROLL16 for (int i = 0; i < VW; i++) vf_store(b->v + (j + i) * v_dim + d + x, r[i]);
            }
        }
#endif
        for (; j < j1; j++) {
            for (int i = 0; i < nd; i++) b->v[j * v_dim + d + i] = b->k[(d + i) * CHUNK + j];
        }
        d += nd;
    }
}

/* A page that is a chunk in f32 already, as the layers of encoders and towers have it. */
static bool block_lies(const kv_layout *l) {
    return l->k_type == KV_F32 && l->v_type == KV_F32 && l->tokens == CHUNK && !l->v_in_k;
}

/* A tile: up to TILE lanes of one chunk. */
typedef struct attn_tile {
    int          mr;
    const float *q[TILE]; /* [k_dim] */
    float       *s[TILE]; /* scores, then probabilities: [CHUNK] */
    const float *p[TILE]; /* these, or times scales: [v_groups][CHUNK] */
    const float *ks;      /* scales of a converted chunk: [k_groups][CHUNK]; NULL: there are none */
    int          k_group; /* dimensions that share a scale; v_group 0: there are none */
    int          v_group;
    float       *o[TILE];            /* where the values go: [v_dim] */
    float        wa[TILE], wb[TILE]; /* o = o * wa + values * wb */
    bool         alone;              /* o = values */
    int64_t      j0[TILE], j1[TILE]; /* positions of the chunk that the lane sees */

    const int32_t *qi[TILE], *w[TILE]; /* whole numbers (attn_whole.h): queries and factors of values in pairs, ... */
    float          qf[TILE], wf[TILE]; /* ... and what brings them back */
} attn_tile;

/* Dimensions [d, end) of the dot products of mr lanes and nv vectors of positions, each one chain from zero. */
INLINE void score_chains(int mr, int nv, const float *const *q, const float *k, int d, int end, vf acc[MR][NR]) {
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_zero(); }
    for (k += (size_t)d * CHUNK; d < end; d++, k += CHUNK) {
        vf kv[NR];
        UNROLL for (int x = 0; x < nv; x++) kv[x] = vf_load(k + x * VW);
        UNROLL for (int r = 0; r < mr; r++) {
            const vf qd = vf_set1(q[r][d]);
            UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_fma(qd, kv[x], acc[r][x]);
        }
    }
}

/* Scores of mr lanes against nv vectors of positions from j on; mr and nv are constants at every call. */
INLINE void score_tile(int mr, int nv, const attn_tile *t, const float *k, int k_dim, int j) {
    vf acc[MR][NR];
    if (!t->ks) {
        score_chains(mr, nv, t->q, k + j, 0, k_dim, acc);
        UNROLL for (int r = 0; r < mr; r++) {
            UNROLL for (int x = 0; x < nv; x++) vf_store(t->s[r] + j + x * VW, acc[r][x]);
        }
        return;
    }
    const float *scale = t->ks + j;
    for (int d = 0; d < k_dim; d += t->k_group, scale += CHUNK) {
        score_chains(mr, nv, t->q, k + j, d, d + t->k_group < k_dim ? d + t->k_group : k_dim, acc);
        UNROLL for (int x = 0; x < nv; x++) {
            const vf by = vf_load(scale + x * VW);
            UNROLL for (int r = 0; r < mr; r++) {
                float *at = t->s[r] + j + x * VW;
                vf_store(at, d ? vf_fma(acc[r][x], by, vf_load(at)) : vf_mul(acc[r][x], by));
            }
        }
    }
}

/* Positions [from, to) of the chunk, whole vectors. */
INLINE void score_lanes(int mr, const attn_tile *t, const float *k, int k_dim, int from, int to) {
    int j = from;
    for (; j + NR * VW <= to; j += NR * VW) score_tile(mr, NR, t, k, k_dim, j);
    for (; j < to; j += VW) score_tile(mr, 1, t, k, k_dim, j);
}

/* Adds -|pos - j| * slope to the scaled scores of whole vectors; at: the query's position minus the chunk's first. */
static void lean_lane(float *s, int from, int to, int64_t at, float slope) {
    float away[CHUNK + VW];
    for (int j = from; j < to + VW - 1 && j < CHUNK; j++) away[j] = -fabsf((float)(at - j));
    for (int j = from; j < to; j += VW) vf_store(s + j, vf_fma(vf_load(away + j), vf_set1(slope), vf_load(s + j)));
}

/*
 * Scores to probabilities of one lane, in place: positions [j0, j1) of the chunk. Sets *m and *l. whole: the lane sees
 * the whole chunk, nothing to mask. bias: [CHUNK] or NULL; at, slope: see lean_lane.
 */
INLINE void softmax_lane(bool whole, const attn_args *a, float *s, const float *bias, int64_t j0, int64_t j1,
                         int64_t at, float slope, float *m, float *l) {
    const vf  scale = vf_set1(a->scale), low = vf_set1(-INFINITY);
    const int from = whole ? 0 : (int)j0 / VW * VW, to = whole ? CHUNK : (int)j1;
    vf        top = low, sum = vf_zero();
    if (a->softcap > 0.0f) {
        const vf cap = vf_set1(a->softcap);
        for (int j = from; j < to; j += VW) {
            vf_store(s + j, vf_mul(cap, vf_tanh(vf_div(vf_mul(vf_load(s + j), scale), cap))));
        }
    } else if (bias || a->alibi) {
        for (int j = from; j < to; j += VW) vf_store(s + j, vf_mul(vf_load(s + j), scale));
    }
    for (int j = from; bias && j < to; j += VW) vf_store(s + j, vf_add(vf_load(s + j), vf_load(bias + j)));
    if (a->alibi) lean_lane(s, from, to, at, slope);
    const bool scaled = a->softcap > 0.0f || bias || a->alibi;
    for (int j = from; j < to; j += VW) {
        const vf x = scaled ? vf_load(s + j) : vf_mul(vf_load(s + j), scale);
        if (!scaled) vf_store(s + j, x);
        top = vf_max(top, whole ? x : vf_sel(vm_range(j0 - j, j1 - j), x, low));
    }
    *m = vf_hmax(top);
    const vf mm = vf_set1(*m == -INFINITY ? 0.0f : *m);
    for (int j = from; j < to; j += VW) {
        vf p = vf_exp(vf_sub(vf_load(s + j), mm));
        if (!whole) p = vf_sel(vm_range(j0 - j, j1 - j), p, vf_zero());
        vf_store(s + j, p);
        sum = vf_add(sum, p);
    }
    *l = vf_sum(sum);
}

static void lane_softmax(const attn_args *a, float *s, const float *bias, int64_t j0, int64_t j1, int64_t at,
                         float slope, float *m, float *l) {
    if (j0 == 0 && j1 == CHUNK) {
        softmax_lane(true, a, s, bias, j0, j1, at, slope, m, l);
    } else {
        softmax_lane(false, a, s, bias, j0, j1, at, slope, m, l);
    }
}

/* Adds the terms by distance of positions [j0, j1) of chunk c. */
static void lane_apart(const attn_block *b, int lane, int64_t c, int64_t j0, int64_t j1, float *to) {
    const attn_args *a = b->a;
    const int64_t    reach = a->apart_reach, first = c * CHUNK - b->pos[lane];
    const size_t     head = (size_t)b->head[lane] * (size_t)a->apart_n;
    const float     *q = a->apart_q + (size_t)b->row[lane] * a->apart_stride + head;
    const float     *k = a->apart_k + (size_t)(c * CHUNK) * a->apart_stride + head;
    for (int64_t j = j0; j < j1; j++) {
        const int64_t d = first + j < -reach ? -reach : first + j > reach ? reach : first + j;
        const size_t  which = (size_t)(int32_t)a->apart_which[reach + d];
        to[j] += a->scale * (q[which] + k[(size_t)j * a->apart_stride + which]);
    }
}

/* What is added to the scores of chunk c for one lane, of its positions [j0, j1), into to; NULL: nothing is. */
static const float *lane_bias(const attn_block *b, int lane, int64_t c, int64_t j0, int64_t j1, float *to) {
    const attn_args *a = b->a;
    const int64_t    reach = a->bias_reach, first = c * CHUNK - b->pos[lane];
    if (!a->bias && !a->apart_which) return NULL;
    const float *row = a->bias ? a->bias + (size_t)b->head[lane] * (size_t)(2 * reach + 1) + reach : NULL;
    for (int j = 0; j < CHUNK; j++) {
        const int64_t d = first + j < -reach ? -reach : first + j > reach ? reach : first + j;
        to[j] = row ? row[d] : 0.0f;
    }
    if (a->apart_which) lane_apart(b, lane, c, j0, j1, to);
    return to;
}

/* n: floats of a single vector; with several vectors (nv > 1) they are whole. */
INLINE vf value_load(int nv, const float *at, int64_t n) { return nv > 1 ? vf_load(at) : vf_loadn(at, n); }

/* by: the factors of each vector, [CHUNK]. */
INLINE void value_chain(int nv, int64_t n, vf *acc, const float *const *by, const float *v, int v_dim, int64_t j0,
                        int64_t j1) {
    for (int64_t j = j0; j < j1; j++) {
        UNROLL for (int x = 0; x < nv; x++) {
            acc[x] = vf_fma(vf_set1(by[x][j]), value_load(nv, v + j * v_dim + x * VW, n), acc[x]);
        }
    }
}

/* Where the scale of vector x of a tile of n stands: the first of its whole groups where tiles hold such, so that the
 * compiler sees which vectors share one. */
INLINE int group_of(int n, int x) { return n * VW % KV_GROUP == 0 ? x * VW / KV_GROUP * KV_GROUP : x * VW; }

/*
 * Values of mr lanes for nv vectors of dimensions from d on, then the fold. Lanes may see different positions: what
 * they share runs side by side, the rest alone. split: the vectors have scales of several groups.
 */
INLINE void value_tile(int mr, int nv, bool split, const attn_tile *t, const float *v, int v_dim, int d) {
    const int64_t n = v_dim - d;
    vf            acc[MR][NR];
    const float  *by[MR][NR];
    int64_t       from = t->j0[0], to = t->j1[0];
    v += d;
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < nv; x++) {
            acc[r][x] = vf_zero();
            by[r][x] = t->p[r] + (t->v_group ? (d + (split ? group_of(NR, x) : 0)) / t->v_group * CHUNK : 0);
        }
        if (t->j0[r] > from) from = t->j0[r];
        if (t->j1[r] < to) to = t->j1[r];
    }
    if (from > to) from = to; /* nothing shared */
    UNROLL for (int r = 0; r < mr; r++) {
        value_chain(nv, n, acc[r], by[r], v, v_dim, t->j0[r], from < t->j1[r] ? from : t->j1[r]);
    }
    for (int64_t j = from; j < to; j++) {
        vf vv[NR];
        UNROLL for (int x = 0; x < nv; x++) vv[x] = value_load(nv, v + j * v_dim + x * VW, n);
        UNROLL for (int r = 0; r < mr; r++) {
            UNROLL for (int x = 0; x < nv; x++) acc[r][x] = vf_fma(vf_set1(by[r][x][j]), vv[x], acc[r][x]);
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        value_chain(nv, n, acc[r], by[r], v, v_dim, to > t->j0[r] ? to : t->j0[r], t->j1[r]);
        UNROLL for (int x = 0; x < nv; x++) {
            float *at = t->o[r] + d + x * VW;
            if (!t->alone) {
                const vf o = vf_mul(acc[r][x], vf_set1(t->wb[r]));
                acc[r][x] = vf_fma(value_load(nv, at, n), vf_set1(t->wa[r]), o);
            }
            vf_storen(at, acc[r][x], nv > 1 ? VW : n);
        }
    }
}

INLINE void value_lanes(int mr, const attn_tile *t, const float *v, int v_dim) {
    int d = 0;
    for (; d + NR * VW <= v_dim; d += NR * VW) {
        if (t->v_group && d / t->v_group != (d + NR * VW - 1) / t->v_group) {
            value_tile(mr, NR, true, t, v, v_dim, d);
        } else {
            value_tile(mr, NR, false, t, v, v_dim, d);
        }
    }
    for (; d < v_dim; d += VW) value_tile(mr, 1, false, t, v, v_dim, d);
}

/* One function per number of lanes: constants inside, calls outside. */
#define LANES(n)                                                                                                       \
    static void score_##n(const attn_tile *t, const float *k, int k_dim, int from, int to) {                           \
        score_lanes(n, t, k, k_dim, from, to);                                                                         \
    }                                                                                                                  \
    static void value_##n(const attn_tile *t, const float *v, int v_dim) { value_lanes(n, t, v, v_dim); }
LANES(1)
LANES(2)
LANES(4)
#if VREGS >= 32
LANES(6)
#else
#define score_6 score_4
#define value_6 value_4
#endif

static void tile_scores(const attn_tile *t, const float *k, int k_dim, int from, int to) {
    (t->mr == 6 ? score_6 : t->mr == 4 ? score_4 : t->mr == 2 ? score_2 : score_1)(t, k, k_dim, from, to);
}

static void tile_values(const attn_tile *t, const float *v, int v_dim) {
    (t->mr == 6 ? value_6 : t->mr == 4 ? value_4 : t->mr == 2 ? value_2 : value_1)(t, v, v_dim);
}

/*
 * Weights of the folds of n lanes, and their new maxima and sums; cm, cl: those of the chunk. A chunk without any
 * finite score changes nothing. The exponentials are taken together: a register for each lane would wait for its own
 * stores.
 */
static void fold_weights(int n, float *m, float *l, const float *cm, const float *cl, float *wa, float *wb) {
    float e[2 * TILE + VW] = { 0 }, top[TILE] = { 0 };
    for (int r = 0; r < n; r++) {
        if (cm[r] == -INFINITY) continue;
        top[r] = m[r] > cm[r] ? m[r] : cm[r];
        e[2 * r] = m[r] - top[r];
        e[2 * r + 1] = cm[r] - top[r];
    }
    for (int i = 0; i < 2 * n; i += VW) vf_store(e + i, vf_exp(vf_load(e + i)));
    for (int r = 0; r < n; r++) {
        wa[r] = 1.0f;
        wb[r] = 0.0f;
        if (cm[r] == -INFINITY) continue;
        wa[r] = e[2 * r];
        wb[r] = e[2 * r + 1];
        l[r] = l[r] * wa[r] + cl[r] * wb[r];
        m[r] = top[r];
    }
}

#include "kernels/cpu/impl/attn_direct.h"
#include "kernels/cpu/impl/attn_quads.h"
#include "kernels/cpu/impl/attn_whole.h"

static void block_lane(attn_block *b, int row, int head) {
    const attn_args *a = b->a;
    const int        i = b->n++;
    const int        k_dim = a->layout->k_dim, block = a->layout->k_block;
    b->q[i] = a->q + (size_t)row * a->q_stride + (size_t)head * (size_t)k_dim;
    if (quad_k(a->layout) || whole_k(a->layout)) {
        int32_t *n = (int32_t *)(void *)(b->rotated + (size_t)i * (size_t)k_dim);
        float    y[KV_DIM_MAX];
        kv_rotate(b->q[i], k_dim, block, y);
        b->qf[i] = (quad_k(a->layout) ? quad_query : whole_query)(a->layout, y, n);
        b->qi[i] = n;
    } else if (block) {
        float *y = b->rotated + (size_t)i * (size_t)k_dim;
        kv_rotate(b->q[i], k_dim, block, y);
        b->q[i] = y;
    }
    b->head[i] = head;
    b->row[i] = row;
    b->pos[i] = a->pos[row];
    attn_row_range(a, row, &b->lo[i], &b->hi[i]);
}

/* Brings positions [p0, p1), all of chunk c, into the block's K and V. */
static void block_load(attn_block *b, int64_t c, int64_t p0, int64_t p1) {
    const attn_args *a = b->a;
    const kv_layout *l = a->layout;
    if (block_lies(l)) {
        const uint8_t *base = (const uint8_t *)a->pages[c] + a->page_off;
        b->read_k = (const float *)(const void *)(base + kv_k_offset(l, b->kv_head));
        b->read_v = (const float *)(const void *)(base + kv_v_offset(l, b->kv_head));
        return;
    }
    const int  j0 = (int)(p0 - c * CHUNK), j1 = (int)(p1 - c * CHUNK);
    const bool other_k = quad_k(l) || whole_k(l), other_v = quad_v(l) || whole_v(l);
    if (quad_k(l)) quad_load_k(b, j0, j1);
    if (quad_v(l)) quad_load_v(b, j0, j1);
    if (whole_k(l) || whole_v(l)) whole_load(b, j0, j1);
    if (other_k && other_v) return;
    for (int64_t page = p0 / l->tokens; page * l->tokens < p1; page++) {
        const uint8_t *base = (const uint8_t *)a->pages[page] + a->page_off;
        /* Positions of this page inside the chunk; K in whole groups of 16 slots. */
        int64_t s = page * l->tokens > c * CHUNK ? page * l->tokens : c * CHUNK;
        int64_t e = (page + 1) * l->tokens < (c + 1) * CHUNK ? (page + 1) * l->tokens : (c + 1) * CHUNK;
        if (e > (p1 + 15) / 16 * 16) e = (p1 + 15) / 16 * 16;
        if (s < p0 / 16 * 16) s = p0 / 16 * 16;
        if (!other_k) {
            kv_load_k(l, base + kv_k_offset(l, b->kv_head), (int)(s - page * l->tokens), (int)(e - s),
                      b->k + (s - c * CHUNK), b->ks + (s - c * CHUNK), CHUNK);
        }
        if (e > p1) e = p1;
        if (s < p0) s = p0;
        if (l->v_in_k) {
            latent_values(b, (int)(s - c * CHUNK), (int)(e - c * CHUNK));
        } else if (!other_v) {
            kv_load_v(l, base + kv_v_offset(l, b->kv_head), (int)(s - page * l->tokens), (int)(e - s),
                      b->v + (s - c * CHUNK) * l->v_dim, b->vs + (s - c * CHUNK), CHUNK);
        }
    }
}

/* Probabilities times the scales of V, where it has such. */
static void tile_factors(attn_tile *t, attn_block *b) {
    const kv_layout *l = b->a->layout;
    const int        groups = kv_v_groups(l);
    t->v_group = kv_scaled(l->v_type) ? l->v_group : 0;
    for (int r = 0; r < t->mr; r++) {
        float *p = b->p + (size_t)(r * groups) * CHUNK;
        t->p[r] = t->v_group ? p : t->s[r];
        for (int i = 0; t->v_group && i < groups * CHUNK; i += VW) {
            vf_store(p + i, vf_mul(vf_load(t->s[r] + i % CHUNK), vf_load(b->vs + i)));
        }
    }
}

/*
 * mr lanes of chunk c, their numbers in lane[]. part: where each lane's own result goes instead of the fold. w: read
 * the pages directly.
 */
static void tile_run(int mr, attn_block *b, const int *lane, int64_t c, float *const *part, const attn_where *w) {
    const attn_args *a = b->a;
    const int        k_dim = a->layout->k_dim, v_dim = a->layout->v_dim;
    int64_t          from = CHUNK, to = 0;
    attn_tile        t = { .mr = mr,
                           .alone = part != NULL,
                           .ks = kv_scaled(a->layout->k_type) ? b->ks : NULL,
                           .k_group = a->layout->k_group };
    for (int r = 0; r < mr; r++) {
        const int64_t lo = b->lo[lane[r]] - c * CHUNK, hi = b->hi[lane[r]] - c * CHUNK;
        t.q[r] = b->q[lane[r]];
        t.qi[r] = b->qi[lane[r]];
        t.qf[r] = b->qf[lane[r]];
        t.s[r] = b->s + (size_t)lane[r] * CHUNK;
        t.o[r] = part ? part[lane[r]] : b->o + (size_t)lane[r] * (size_t)v_dim;
        t.j0[r] = lo > 0 ? lo : 0;
        t.j1[r] = hi < CHUNK ? hi : CHUNK;
        if (t.j0[r] < from) from = t.j0[r];
        if (t.j1[r] > to) to = t.j1[r];
    }
    if (quad_k(a->layout)) {
        quad_scores(&t, b, (int)from, (int)to);
    } else if (w) {
        direct_scores(&t, a->layout->k_type, w, &b->ahead, k_dim);
    } else if (whole_k(a->layout)) {
        whole_scores(&t, b, (int)from, (int)to);
    } else {
        tile_scores(&t, b->read_k, k_dim, (int)from / VW * VW, (int)(to + VW - 1) / VW * VW);
    }
    float cm[TILE] = { 0 }, cl[TILE] = { 0 }, m[TILE], l[TILE], bias[CHUNK];
    for (int r = 0; r < mr; r++) {
        const float slope = a->alibi ? a->alibi[b->head[lane[r]]] : 0.0f;
        lane_softmax(a, t.s[r], lane_bias(b, lane[r], c, t.j0[r], t.j1[r], bias), t.j0[r], t.j1[r],
                     b->pos[lane[r]] - c * CHUNK, slope, &cm[r], &cl[r]);
        m[r] = b->m[lane[r]];
        l[r] = b->l[lane[r]];
        if (part) {
            t.o[r][v_dim] = cm[r];
            t.o[r][v_dim + 1] = cl[r];
        }
    }
    if (!part) {
        fold_weights(mr, m, l, cm, cl, t.wa, t.wb);
        for (int r = 0; r < mr; r++) {
            b->m[lane[r]] = m[r];
            b->l[lane[r]] = l[r];
        }
    }
    if (quad_v(a->layout)) {
        quad_values(&t, b, (int)from, (int)to);
        return;
    }
    if (whole_v(a->layout)) {
        whole_values(&t, b, (int)from, (int)to);
        return;
    }
    tile_factors(&t, b);
    if (w) {
        direct_values(&t, a->layout->v_type, w, &b->ahead, v_dim);
    } else {
        tile_values(&t, b->read_v, v_dim);
    }
}

/* Few lanes that see the whole chunk: no conversion, but of a side that is read in bytes. False: not that case. */
static bool block_direct(attn_block *b, const int *lane, int n, int64_t c, int64_t last, float *const *part) {
    const kv_layout *l = b->a->layout;
    attn_where       w, next, *ahead = NULL;
    if (n > DIRECT_LANES || !direct_fits(l) || (quad_k(l) && quad_v(l))) return false;
    if (!(quad_k(l) || direct_type(l->k_type)) || !(quad_v(l) || direct_type(l->v_type))) return false;
    for (int i = 0; i < n; i++) {
        if (b->lo[lane[i]] > c * CHUNK || b->hi[lane[i]] < (c + 1) * CHUNK) return false;
    }
    where_chunk(b->a, b->kv_head, c, &w);
    if (c < last) where_chunk(b->a, b->kv_head, c + 1, &next), ahead = &next;
    b->chunk = c;
    ahead_begin(&b->ahead, ahead);
    b->ahead.lines /= (n + TILE - 1) / TILE; /* each tile its share */
    if (quad_k(l)) quad_load_k(b, 0, CHUNK);
    if (quad_v(l)) quad_load_v(b, 0, CHUNK);
    for (int g = 0; kv_scaled(l->v_type) && !quad_v(l) && g < GROUPS; g++) {
        kv_load_v_scales(w.vs[g], 16, (int)w.v_groups, b->vs + 16 * g, CHUNK);
    }
    for (int i = 0, mr; i < n; i += mr) {
        mr = direct_lanes(n - i, quad_k(l) || quad_v(l));
        tile_run(mr, b, lane + i, c, part, &w);
    }
    return true;
}

/* last: no whole chunk lies behind this one, so that prefetching stops. */
static void block_chunk(attn_block *b, int64_t c, int64_t last, float *const *part) {
    int        lane[ATTN_LANES], n = 0;
    int64_t    p0 = INT64_MAX, p1 = 0;
    attn_where next, *ahead = NULL;
    for (int i = 0; i < b->n; i++) {
        const int64_t s = b->lo[i] > c * CHUNK ? b->lo[i] : c * CHUNK;
        const int64_t e = b->hi[i] < (c + 1) * CHUNK ? b->hi[i] : (c + 1) * CHUNK;
        if (s >= e) continue;
        lane[n++] = i;
        if (s < p0) p0 = s;
        if (e > p1) p1 = e;
    }
    if (n == 0) return;
    if (block_direct(b, lane, n, c, last, part)) return;
    b->chunk = c;
    b->single = n == MR || n <= 2;
    if (n <= DIRECT_LANES && c < last && (quad_k(b->a->layout) || whole_k(b->a->layout)))
        where_chunk(b->a, b->kv_head, c + 1, &next), ahead = &next;
    ahead_begin(&b->ahead, ahead);
    block_load(b, c, p0, p1);
    int i = 0;
    for (; i + MR <= n; i += MR) tile_run(MR, b, lane + i, c, part, NULL);
    if (i + 4 <= n) tile_run(4, b, lane + i, c, part, NULL), i += 4;
    if (i + 2 <= n) tile_run(2, b, lane + i, c, part, NULL), i += 2;
    for (; i < n; i++) tile_run(1, b, lane + i, c, part, NULL);
}

/* O / L, with the sink in the sum, rotated back. */
static void lane_finish(const attn_args *a, int head, const float *o, float m, float l, float *out) {
    const int v_dim = a->layout->v_dim;
    float     w = 0.0f;
    if (l != 0.0f) w = 1.0f / l;
    if (a->sinks && l != 0.0f) {
        const float one = 1.0f;
        float       wa, wb;
        fold_weights(1, &m, &l, &a->sinks[head], &one, &wa, &wb);
        w = wa / l;
    }
    const vf vw = vf_set1(w);
    for (int d = 0; d < v_dim; d += VW) {
        const vf x = vf_mul(vf_loadn(o + d, v_dim - d), vw);
        vf_storen(out + d, w == 0.0f ? vf_zero() : x, v_dim - d);
    }
    if (a->layout->v_block) kv_rotate_back(out, v_dim, a->layout->v_block);
}

static void block_rows(attn_block *b, int row0, int row1, int head0, int head1) {
    const attn_args *a = b->a;
    const int        v_dim = a->layout->v_dim;
    int64_t          lo = INT64_MAX, hi = 0;
    b->n = 0;
    for (int t = row0; t < row1; t++) {
        for (int h = head0; h < head1; h++) block_lane(b, t, h);
    }
    for (int i = 0; i < b->n; i++) {
        b->m[i] = -INFINITY;
        b->l[i] = 0.0f;
        if (b->lo[i] >= b->hi[i]) continue;
        if (b->lo[i] < lo) lo = b->lo[i];
        if (b->hi[i] > hi) hi = b->hi[i];
    }
    memset(b->o, 0, (size_t)b->n * (size_t)v_dim * sizeof(float));
    for (int64_t c = lo / CHUNK; lo < hi && c <= (hi - 1) / CHUNK; c++) block_chunk(b, c, hi / CHUNK - 1, NULL);
    for (int i = 0; i < b->n; i++) {
        const int row = row0 + i / (head1 - head0);
        lane_finish(a, b->head[i], b->o + (size_t)i * (size_t)v_dim, b->m[i], b->l[i],
                    a->out + (size_t)row * a->out_stride + (size_t)b->head[i] * (size_t)v_dim);
    }
}

static void VFN(attn_rows)(const attn_args *a, int row0, int row1, int head0, int head1, void *scratch) {
    const int  group = a->n_head / a->layout->n_kv;
    attn_block b;
    block_scratch(&b, a, scratch);
    for (int h = head0; h < head1;) {
        b.kv_head = h / group;
        int end = (b.kv_head + 1) * group;
        if (end > head1) end = head1;
        if (end > h + ATTN_LANES) end = h + ATTN_LANES;
        const int rows = ATTN_LANES / (end - h);
        for (int t = row0; t < row1; t += rows) block_rows(&b, t, t + rows < row1 ? t + rows : row1, h, end);
        h = end;
    }
}

static void VFN(attn_partial)(const attn_args *a, int row, int head0, int head1, int64_t chunk0, int64_t chunk1,
                              float *part, int64_t part_first, int64_t part_chunks, void *scratch) {
    const int    group = a->n_head / a->layout->n_kv;
    const size_t stride = attn_part_floats(a->layout->v_dim);
    float       *at[ATTN_LANES];
    attn_block   b;
    block_scratch(&b, a, scratch);
    for (int h = head0; h < head1;) {
        b.kv_head = h / group;
        int end = (b.kv_head + 1) * group;
        if (end > head1) end = head1;
        if (end > h + ATTN_LANES) end = h + ATTN_LANES;
        b.n = 0;
        for (int i = h; i < end; i++) block_lane(&b, row, i);
        const int64_t last = (b.hi[0] / CHUNK < chunk1 ? b.hi[0] / CHUNK : chunk1) - 1;
        for (int64_t c = chunk0; c < chunk1; c++) {
            for (int i = h; i < end; i++) {
                at[i - h] = part + (size_t)((int64_t)i * part_chunks + (c - part_first)) * stride;
            }
            block_chunk(&b, c, last, at);
        }
        h = end;
    }
}

static void VFN(attn_combine)(const attn_args *a, int row, int head0, int head1, const float *part, int64_t part_first,
                              int64_t part_chunks) {
    const int    v_dim = a->layout->v_dim;
    const size_t stride = attn_part_floats(v_dim);
    int64_t      lo, hi;
    float        o[MR][KV_DIM_MAX];
    attn_row_range(a, row, &lo, &hi);
    for (int h0 = head0, n; h0 < head1; h0 += n) { /* heads side by side: an exponential takes long, eight no longer */
        float m[MR], l[MR], cm[MR], cl[MR], wa[MR], wb[MR];
        n = head1 - h0 < MR ? head1 - h0 : MR;
        for (int i = 0; i < n; i++) {
            m[i] = -INFINITY;
            l[i] = 0.0f;
            memset(o[i], 0, (size_t)v_dim * sizeof(float));
        }
        for (int64_t c = lo / CHUNK; lo < hi && c <= (hi - 1) / CHUNK; c++) {
            const float *p[MR];
            for (int i = 0; i < n; i++) {
                p[i] = part + (size_t)((int64_t)(h0 + i) * part_chunks + (c - part_first)) * stride;
                cm[i] = p[i][v_dim];
                cl[i] = p[i][v_dim + 1];
            }
            fold_weights(n, m, l, cm, cl, wa, wb);
            for (int i = 0; i < n; i++) {
                const vf a4 = vf_set1(wa[i]), b4 = vf_set1(wb[i]);
                for (int d = 0; d < v_dim; d += VW) {
                    const vf x = vf_mul(vf_loadn(p[i] + d, v_dim - d), b4);
                    vf_storen(o[i] + d, vf_fma(vf_loadn(o[i] + d, v_dim - d), a4, x), v_dim - d);
                }
            }
        }
        for (int i = 0; i < n; i++) {
            lane_finish(a, h0 + i, o[i], m[i], l[i],
                        a->out + (size_t)row * a->out_stride + (size_t)(h0 + i) * (size_t)v_dim);
        }
    }
}

#include "kernels/cpu/impl/attn_index.h"

#endif
