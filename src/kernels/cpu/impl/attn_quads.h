/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over page types with scales in bytes: their stored numbers have eight bits at most, and an instruction that
 * multiplies four bytes by four others and adds up the products does four times the work of one on f32, exactly. Only for
 * sets that have such (VQUADS), and for numbers that those can hold (vq_fits); for these the order of operations of
 * kernels/attn.h becomes
 *
 *     u    = max |q[d]| / most,  i[d] = q[d] / u rounded to nearest
 *     s[j] = u * sum over groups of scale[group][j] * (sum over d of i[d] n[j][d])
 *     w    = max over groups and j of p[j] |scale[group][j]| / QUAD_MOST,  f[group][j] = p[j] scale[group][j] / w rounded
 *     o[d] = w * (sum over j of f[group][j] n[j][d])
 *
 * with exact inner sums: they depend on no order, and what a row does not see has the factor 0. Factors are two bytes each,
 * the sums of the upper ones are made first and count 256 times. So are queries over q8_0, whose keys lose a few parts in
 * 100,000 of their square; over the other types a byte is enough (most = 127): it loses about as much, and their keys lose 30 to
 * 2,000 times that.
 *
 * A chunk becomes unsigned bytes, the stored numbers plus quad_zero, for which the sums make up in their first term, in fours
 * that one instruction adds up: of K four dimensions of a position, of V four positions of a dimension. VBYTES positions (or
 * dimensions) are four vectors of such fours, as vb_quads leaves them; vf_quads brings results into order.
 *
 *     K   [CHUNK / VBYTES][k_dim / 4][4 vectors]     dimensions of types in nibbles go 0 2 4 6 1 3 5 7 of eight, as they lie
 *     V   [v_dim / VBYTES, rounded up][CHUNK / 4][4 vectors]
 */
#ifndef KERNELS_CPU_IMPL_ATTN_QUADS_H
#define KERNELS_CPU_IMPL_ATTN_QUADS_H

#ifdef VQUADS

enum { QUAD_MOST = 127 * 257, QUADS = CHUNK / 4, QUAD_BLOCKS = CHUNK / VBYTES, QUAD_GROUPS = VBYTES / KV_GROUP };

/* Percent of the next chunk's lines that are prefetched while keys or values are opened, scored, summed: as long as these take. */
enum { AHEAD_OPEN = 15, AHEAD_SCORES = 30, AHEAD_VALUES = 40 };

/* Largest values below this count as zero: their inverse is out of range, and what they add is nothing. */
#define QUAD_LEAST 0x1p-100f

INLINE int  quad_zero(kv_type type) { return type == KV_Q5_0 ? 16 : type == KV_Q4_0 ? 8 : 128; }
INLINE int  quad_top(kv_type type) { return type == KV_Q5_0 ? 31 : type == KV_Q4_0 ? 15 : 255; }
INLINE bool quad_nibbles(kv_type type) { return type == KV_Q4_0 || type == KV_TQ4; }
INLINE int  quad_parts(kv_type type) { return type == KV_Q8_0 ? 2 : 1; } /* bytes of a query's number */

static bool quad_type(kv_type type) { return kv_scaled(type) && vq_fits(quad_top(type)); }
static bool quad_k(const kv_layout *l) { return quad_type(l->k_type) && !l->v_in_k && l->k_dim % KV_GROUP == 0; }
static bool quad_v(const kv_layout *l) { return quad_type(l->v_type) && !l->v_in_k && l->v_dim % KV_GROUP == 0; }

/* VBYTES products of x and y, rounded, as upper and lower bytes; returned is their sum. */
INLINE vi quad_round(const float *x, const float *y, vi sum, int8_t *upper, int8_t *lower) {
    vi a[4];
    UNROLL for (int i = 0; i < 4; i++) {
        a[i] = vi_round(vf_mul(vf_load(x + i * VW), vf_load(y + i * VW)));
        sum = vi_add(sum, a[i]);
    }
    vb_split(a, upper, lower);
    return sum;
}

/* A query: words of upper bytes where it has such, of lower bytes, then the first terms of the groups' sums. */
static float quad_query(const kv_layout *l, const float *q, int32_t *to) {
    const int n = l->k_dim, groups = n / l->k_group, parts = quad_parts(l->k_type);
    int8_t    bytes[2][KV_DIM_MAX + VBYTES];
    float     x[KV_DIM_MAX + VBYTES], by[VBYTES];
    vf        top = vf_zero(), bad = vf_zero();
    for (int d = 0; d < n; d += VW) {
        top = vf_max(top, vf_abs(vf_load(q + d)));
        bad = vf_fma(vf_load(q + d), vf_zero(), bad);
    }
    const float largest = vf_hmax(top), most = parts > 1 ? (float)QUAD_MOST : 127.0f;
    for (int i = 0; i < VBYTES; i++) by[i] = largest < QUAD_LEAST ? 0.0f : most / largest;
    for (int d = 0; d < n; d++) {
        const int from = quad_nibbles(l->k_type) ? d / 8 * 8 + (d % 4 * 2 + d % 8 / 4) : d;
        x[d] = q[from];
    }
    for (int d = n; d < n + VBYTES; d++) x[d] = 0.0f;
    for (int d = 0; d < n; d += VBYTES) {
        (void)quad_round(x + d, by, vi_set1(0), bytes[0] + d, bytes[1] + d);
    }
    int8_t *n8 = (int8_t *)(void *)to;
    if (parts > 1) memcpy(n8, bytes[0], (size_t)n);
    memcpy(n8 + (parts - 1) * n, bytes[1], (size_t)n);
    for (int g = 0; g < groups; g++) {
        int sum = 0;
        for (int d = g * l->k_group; d < (g + 1) * l->k_group; d++) {
            sum += bytes[1][d] + (parts > 1 ? 256 * bytes[0][d] : 0);
        }
        to[parts * n / 4 + g] = -quad_zero(l->k_type) * sum;
    }
    return largest * (1.0f / most) + vf_sum(bad); /* a query that is not finite has no scores */
}

/* Number e of eight dimensions of K, of sixteen slots at each p. */
INLINE vbytes quad_k_number(kv_type type, const uint8_t *const *p, size_t at, size_t row, int e, vbytes code) {
    if (type == KV_Q8_0) return vb_flip(vb_sixteens(p, at + (size_t)e * row));
    if (type == KV_TQ2) {
        return vb_pick(code, vb_and(vb_shr(vb_sixteens(p, at + (size_t)(e / 4) * row), e % 4 * 2), 3));
    }
    if (type == KV_TQ3) {
        const size_t first = at + (size_t)(3 * e / 8) * row;
        const int    by = 3 * e % 8;
        const vbytes x = vb_shr(vb_sixteens(p, first), by);
        if (by <= 5) return vb_pick(code, vb_and(x, 7));
        const vbytes next = vb_shl(vb_sixteens(p, first + row), 8 - by);
        return vb_pick(code, vb_or(vb_and(x, 7 >> (by - 5)), vb_and(next, 7 & 7 << (8 - by))));
    }
    const vbytes x = vb_sixteens(p, at + (size_t)(e / 2) * row), fifth = vb_sixteens(p, at + 4 * row);
    return vb_or(vb_and(e % 2 ? vb_shr(x, 4) : x, 15), vb_and(e < 4 ? vb_shl(fifth, 4 - e) : vb_shr(fifth, e - 4), 16));
}

/* Eight dimensions of VBYTES positions: two times four vectors. */
INLINE void quad_k_eight(kv_type type, const uint8_t *const *p, size_t at, size_t row, vbytes code, uint8_t *to) {
    vbytes y[4], n[8];
    if (quad_nibbles(type)) {
        UNROLL for (int e = 0; e < 4; e++) n[e] = vb_sixteens(p, at + (size_t)e * row);
        vb_quads(n[0], n[1], n[2], n[3], y);
        UNROLL for (int x = 0; x < 4; x++) {
            const vbytes even = vb_and(y[x], 15), odd = vb_and(vb_shr(y[x], 4), 15);
            vb_store(to + x * VBYTES, type == KV_TQ4 ? vb_pick(code, even) : even);
            vb_store(to + (4 + x) * VBYTES, type == KV_TQ4 ? vb_pick(code, odd) : odd);
        }
        return;
    }
    UNROLL for (int e = 0; e < 8; e++) n[e] = quad_k_number(type, p, at, row, e, code);
    vb_quads(n[0], n[1], n[2], n[3], y);
    UNROLL for (int x = 0; x < 4; x++) vb_store(to + x * VBYTES, y[x]);
    vb_quads(n[4], n[5], n[6], n[7], y);
    UNROLL for (int x = 0; x < 4; x++) vb_store(to + (4 + x) * VBYTES, y[x]);
}

INLINE void quad_open_k(kv_type type, attn_block *b, const uint8_t *const *p, uint8_t *to) {
    const kv_layout *l = b->a->layout;
    const size_t     tokens = (size_t)l->tokens, stride = tokens * kv_bits(type);
    const vbytes     code = vb_codes(kv_codes(type));
    const int        eights = l->k_dim / 8, lines = ahead_share(&b->ahead, AHEAD_OPEN, eights * QUAD_BLOCKS);
    for (int i = 0; i < eights; i++, to += 8 * VBYTES) {
        ahead_lines(&b->ahead, lines);
        quad_k_eight(type, p, (size_t)i * stride, tokens, code, to);
    }
}

/* The head's part of the page with position p, and its slot there. Pages hold a power of two. */
static const uint8_t *quad_at(const attn_block *b, int64_t p, size_t *slot) {
    const kv_layout *l = b->a->layout;
    *slot = (size_t)p & (size_t)(l->tokens - 1);
    return (const uint8_t *)b->a->pages[p >> __builtin_ctz((unsigned)l->tokens)] + b->a->page_off +
           kv_k_offset(l, b->kv_head);
}

/* Scales of VBYTES positions in the order of the vectors. */
static void quad_k_scales(const kv_layout *l, const uint16_t *const *s, float *to) {
    for (int g = 0; g < kv_k_groups(l); g++, to += CHUNK) {
        for (int x0 = 0; x0 < 4; x0 += VQN) {
            vf v[VQN];
            UNROLL for (int i = 0; i < VQN; i++) {
                const int at = (x0 / VQN + i * (4 / VQN)) * VW;
                v[i] = vf_load_f16(s[at / 16] + (size_t)(g * l->tokens) + at % 16);
            }
            vf_quads(v);
            UNROLL for (int i = 0; i < VQN; i++) vf_store(to + (x0 + i) * VW, v[i]);
        }
    }
}

/* Keys of slots [j0, j1) of the chunk; of sixteen that are not there others stand in. */
static void quad_load_k(attn_block *b, int j0, int j1) {
    const kv_layout *l = b->a->layout;
    const size_t     values = kv_value_bytes(l->k_type, l->tokens, l->k_dim);
    for (int block = j0 / VBYTES; block * VBYTES < j1; block++) {
        const uint8_t  *p[VBYTES / 16];
        const uint16_t *s[VBYTES / 16];
        uint8_t        *to = (uint8_t *)(void *)b->k + (size_t)block * (size_t)l->k_dim * VBYTES;
        for (int i = 0; i < VBYTES / 16; i++) {
            const int g = block * (VBYTES / 16) + i, low = j0 / 16, high = (j1 + 15) / 16 - 1;
            size_t    slot;
            p[i] = quad_at(b, b->chunk * CHUNK + 16 * (g < low ? low : g > high ? high : g), &slot);
            s[i] = (const uint16_t *)(const void *)(p[i] + values) + slot;
            p[i] += slot;
        }
        switch (l->k_type) {
#ifdef VQUADS_ALL
        case KV_Q8_0: quad_open_k(KV_Q8_0, b, p, to); break;
        case KV_TQ4: quad_open_k(KV_TQ4, b, p, to); break;
        case KV_TQ3: quad_open_k(KV_TQ3, b, p, to); break;
        case KV_TQ2: quad_open_k(KV_TQ2, b, p, to); break;
#endif
        case KV_Q5_0: quad_open_k(KV_Q5_0, b, p, to); break;
        default: quad_open_k(KV_Q4_0, b, p, to); break;
        }
        quad_k_scales(l, s, b->ks + block * VBYTES);
    }
}

/* VBYTES dimensions of V, of which n groups are there. */
INLINE vbytes quad_v_numbers(kv_type type, const uint8_t *p, int n, vbytes code) {
    const size_t group = KV_GROUP * kv_bits(type) / 8;
    switch (type) {
    case KV_Q8_0: return vb_flip(vb_bytes(p, n));
    case KV_Q5_0: return vb_or(vb_nibs(p, group, n), vb_fifths(p + 16, group, n));
    case KV_Q4_0: return vb_nibs(p, group, n);
    case KV_TQ4: return vb_pick(code, vb_nibs(p, group, n));
    case KV_TQ3: return vb_pick(code, vb_thirds(p, group, n));
    default: return vb_pick(code, vb_crumbs(p, group, n));
    }
}

INLINE void quad_open_v(kv_type type, attn_block *b, int j0, int j1) {
    const kv_layout *l = b->a->layout;
    const size_t     row = (size_t)l->v_dim * kv_bits(type) / 8, unit = VBYTES * kv_bits(type) / 8;
    const int        groups = l->v_dim / KV_GROUP, units = (groups + QUAD_GROUPS - 1) / QUAD_GROUPS;
    const int        lines = ahead_share(&b->ahead, AHEAD_OPEN, QUADS);
    const vbytes     code = vb_codes(kv_codes(type));
    for (int j = j0 / 4; j < (j1 + 3) / 4; j++) {
        uint8_t       *to = (uint8_t *)(void *)b->v + (size_t)j * 4 * VBYTES;
        size_t         slot;
        const uint8_t *p = quad_at(b, b->chunk * CHUNK + 4 * j, &slot) + l->k_bytes;
        p += slot * row;
        ahead_lines(&b->ahead, lines);
        for (int u = 0; u < units; u++, p += unit, to += QUADS * 4 * VBYTES) {
            const int n = groups - u * QUAD_GROUPS;
            vbytes    y[4], v[4];
            UNROLL for (int i = 0; i < 4; i++) v[i] = quad_v_numbers(type, p + (size_t)i * row, n, code);
            vb_quads(v[0], v[1], v[2], v[3], y);
            UNROLL for (int x = 0; x < 4; x++) vb_store(to + x * VBYTES, y[x]);
        }
    }
}

/* The largest scale of every position behind the factors of MR lanes. */
static float *quad_largest(attn_block *b) { return b->p + (size_t)(MR * kv_v_groups(b->a->layout)) * CHUNK; }

/* Scales of slots [j0, j1) of the chunk; the others have 0. */
static void quad_v_scales(attn_block *b, int j0, int j1) {
    const kv_layout *l = b->a->layout;
    const int        groups = kv_v_groups(l);
    const size_t     values = kv_value_bytes(l->v_type, l->tokens, l->v_dim);
    float           *most = quad_largest(b);
    for (int j = j0 / 16 * 16; j < j1; j += 16) {
        size_t         slot;
        const uint8_t *v = quad_at(b, b->chunk * CHUNK + j, &slot) + l->k_bytes + values;
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

/* Values of slots [j0, j1) of the chunk. */
static void quad_load_v(attn_block *b, int j0, int j1) {
    quad_v_scales(b, j0, j1);
    switch (b->a->layout->v_type) {
#ifdef VQUADS_ALL
    case KV_Q8_0: quad_open_v(KV_Q8_0, b, j0, j1); return;
    case KV_TQ4: quad_open_v(KV_TQ4, b, j0, j1); return;
    case KV_TQ3: quad_open_v(KV_TQ3, b, j0, j1); return;
    case KV_TQ2: quad_open_v(KV_TQ2, b, j0, j1); return;
#endif
    case KV_Q5_0: quad_open_v(KV_Q5_0, b, j0, j1); return;
    default: quad_open_v(KV_Q4_0, b, j0, j1); return;
    }
}

/* `quads` fours of VQN vectors at n, four vectors apart, times one word each of mr lanes, added to total. */
INLINE void quad_sums(int mr, const uint8_t *n, const int32_t *const *by, int quads, vi total[MR][VQN]) {
    vq acc[MR][VQN];
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < VQN; x++) acc[r][x] = vq_begin(total[r][x]); }
    UNROLL for (int i = 0; i < quads; i++, n += 4 * VBYTES) {
        vbytes v[VQN];
        UNROLL for (int x = 0; x < VQN; x++) v[x] = vb_load(n + x * VBYTES);
        UNROLL for (int r = 0; r < mr; r++) {
            const vi w = vi_set1(by[r][i]);
            UNROLL for (int x = 0; x < VQN; x++) acc[r][x] = vq_dot(acc[r][x], v[x], w);
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        UNROLL for (int x = 0; x < VQN; x++) total[r][x] = vq_end(total[r][x], acc[r][x]);
    }
}

/* Scores of mr lanes against VQN vectors of the block of positions, from vector x0 on. */
INLINE void quad_score_tile(int mr, int parts, int run, const attn_tile *t, attn_ahead *ahead, const uint8_t *k,
                            int k_dim, int block, int x0) {
    const int    groups = k_dim / t->k_group, quads = t->k_group / 4;
    const int    lines = ahead_share(ahead, AHEAD_SCORES, QUAD_BLOCKS * (4 / VQN) * parts * k_dim / 4 / run);
    const float *scale = t->ks + block * VBYTES + x0 * VW;
    vf           sum[MR][VQN];
    k += x0 * VBYTES;
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < VQN; x++) sum[r][x] = vf_zero(); }
    for (int g = 0; g < groups; g++, scale += CHUNK) {
        vi total[MR][VQN];
        UNROLL for (int r = 0; r < mr; r++) {
            const vi first = vi_set1(parts > 1 ? 0 : t->qi[r][k_dim / 4 + g]);
            UNROLL for (int x = 0; x < VQN; x++) total[r][x] = first;
        }
        for (int part = 0; part < parts; part++) {
            for (int i = g * quads; i < (g + 1) * quads; i += run) {
                const int32_t *by[MR];
                ahead_lines(ahead, lines);
                UNROLL for (int r = 0; r < mr; r++) by[r] = t->qi[r] + part * k_dim / 4 + i;
                quad_sums(mr, k + (size_t)i * 4 * VBYTES, by, run, total);
            }
            if (part + 1 == parts) break;
            UNROLL for (int r = 0; r < mr; r++) {
                const vi first = vi_set1(t->qi[r][parts * k_dim / 4 + g]);
                UNROLL for (int x = 0; x < VQN; x++) total[r][x] = vi_add(vi_shl8(total[r][x]), first);
            }
        }
        UNROLL for (int x = 0; x < VQN; x++) {
            const vf by = vf_load(scale + VW * x);
            UNROLL for (int r = 0; r < mr; r++) sum[r][x] = vf_fma(vf_from_vi(total[r][x]), by, sum[r][x]);
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        float *s = t->s[r] + block * VBYTES;
        vf_quads(sum[r]);
        UNROLL for (int x = 0; x < VQN; x++) {
            vf_store(s + (x0 / VQN + x * (4 / VQN)) * VW, vf_mul(sum[r][x], vf_set1(t->qf[r])));
        }
    }
}

/* Positions [from, to) of the chunk, and those beside them that share their vectors. */
INLINE void quad_score_lanes(int mr, const attn_tile *t, attn_block *b, int from, int to) {
    const kv_layout *l = b->a->layout;
    const int        run = vq_most(quad_top(l->k_type));
    for (int block = from / VBYTES; block * VBYTES < to; block++) {
        const uint8_t *k = (const uint8_t *)(const void *)b->k + (size_t)block * (size_t)l->k_dim * VBYTES;
        for (int x0 = 0; x0 < 4; x0 += VQN) {
            if (quad_parts(l->k_type) > 1) {
                quad_score_tile(mr, 2, 8, t, &b->ahead, k, l->k_dim, block, x0);
            } else if (run == 8) {
                quad_score_tile(mr, 1, 8, t, &b->ahead, k, l->k_dim, block, x0);
            } else {
                quad_score_tile(mr, 1, 4, t, &b->ahead, k, l->k_dim, block, x0);
            }
        }
    }
}

/* Factors of one lane's values: of every group the words of upper bytes, those of lower bytes, then the first terms of the groups'
 * sums. largest: of the scales of every position. */
static float quad_factors(const kv_layout *l, const float *p, const float *vs, const float *largest, int32_t *to) {
    const int groups = kv_v_groups(l);
    float     x[CHUNK];
    vf        top = vf_zero();
    for (int j = 0; j < CHUNK; j += VW) top = vf_max(top, vf_mul(vf_load(p + j), vf_load(largest + j)));
    const float most = vf_hmax(top);
    const vf    by = vf_set1(most < QUAD_LEAST ? 0.0f : (float)QUAD_MOST / most);
    for (int j = 0; j < CHUNK; j += VW) vf_store(x + j, vf_mul(vf_load(p + j), by));
    for (int g = 0; g < groups; g++) {
        int8_t *n = (int8_t *)(void *)(to + g * 2 * QUADS);
        vi      sum = vi_set1(0);
        for (int j = 0; j < CHUNK; j += VBYTES) sum = quad_round(x + j, vs + g * CHUNK + j, sum, n + j, n + CHUNK + j);
        to[groups * 2 * QUADS + g] = -quad_zero(l->v_type) * vi_sum(sum);
    }
    return most * (1.0f / (float)QUAD_MOST);
}

/* As quad_sums with words of two groups of dimensions, `apart` words from one another. */
INLINE void quad_sums_two(int mr, const uint8_t *n, const int32_t *const *by, int apart, int quads, vi total[MR][VQN]) {
    UNROLL for (int i = 0; i < quads; i++, n += 4 * VBYTES) {
        vbytes v[VQN];
        UNROLL for (int x = 0; x < VQN; x++) v[x] = vb_load(n + x * VBYTES);
        UNROLL for (int r = 0; r < mr; r++) {
            const vi w = vi_set2(by[r][i], by[r][i + apart]);
            UNROLL for (int x = 0; x < VQN; x++) {
                total[r][x] = vq_end(total[r][x], vq_dot(vq_begin(total[r][x]), v[x], w));
            }
        }
    }
}

/* Values of mr lanes for VQN vectors of unit u of dimensions, from vector x0 on, over fours [from, to) of positions, then the
 * fold. two: the dimensions have two scales. */
INLINE void quad_value_tile(int mr, int run, bool two, const attn_tile *t, attn_ahead *ahead, const uint8_t *v,
                            int v_dim, int u, int x0, int from, int to) {
    const int groups = v_dim / t->v_group, g = u * VBYTES / t->v_group, units = (v_dim + VBYTES - 1) / VBYTES;
    const int lines = ahead_share(ahead, AHEAD_VALUES, units * (4 / VQN) * 2 * QUADS / run);
    vi        total[MR][VQN];
    v += x0 * VBYTES;
    UNROLL for (int r = 0; r < mr; r++) { UNROLL for (int x = 0; x < VQN; x++) total[r][x] = vi_set1(0); }
    for (int part = 0; part < 2; part++) {
        for (int i = from / run * run; i < to; i += run) { /* what nobody sees has the factor 0, whatever lies there */
            const int32_t *by[MR];
            ahead_lines(ahead, lines);
            UNROLL for (int r = 0; r < mr; r++) by[r] = t->w[r] + (g * 2 + part) * QUADS + i;
            if (two) {
                quad_sums_two(mr, v + (size_t)i * 4 * VBYTES, by, 2 * QUADS, run, total);
            } else {
                quad_sums(mr, v + (size_t)i * 4 * VBYTES, by, run, total);
            }
        }
        if (part == 1) break;
        UNROLL for (int r = 0; r < mr; r++) {
            const int32_t *first = t->w[r] + groups * 2 * QUADS + g;
            const vi       w = two ? vi_set2(first[0], first[1]) : vi_set1(first[0]);
            UNROLL for (int x = 0; x < VQN; x++) total[r][x] = vi_add(vi_shl8(total[r][x]), w);
        }
    }
    UNROLL for (int r = 0; r < mr; r++) {
        vf sum[VQN];
        UNROLL for (int x = 0; x < VQN; x++) sum[x] = vf_from_vi(total[r][x]);
        vf_quads(sum);
        UNROLL for (int x = 0; x < VQN; x++) {
            const int d = u * VBYTES + (x0 / VQN + x * (4 / VQN)) * VW;
            float    *at = t->o[r] + d;
            vf        o = vf_mul(sum[x], vf_set1(t->wf[r]));
            if (d >= v_dim) continue;
            if (!t->alone) o = vf_fma(vf_load(at), vf_set1(t->wa[r]), vf_mul(o, vf_set1(t->wb[r])));
            vf_store(at, o);
        }
    }
}

INLINE void quad_value_lanes(int mr, const attn_tile *t, attn_block *b, int from, int to) {
    const int      v_dim = b->a->layout->v_dim, run = vq_most(quad_top(b->a->layout->v_type));
    const uint8_t *v = (const uint8_t *)(const void *)b->v;
    for (int u = 0; u * VBYTES < v_dim; u++, v += (size_t)QUADS * 4 * VBYTES) {
        const bool two = QUAD_GROUPS > 1 && t->v_group == KV_GROUP && u * VBYTES + KV_GROUP < v_dim;
        for (int x0 = 0; x0 < 4; x0 += VQN) {
            if (two) {
                quad_value_tile(mr, 8, true, t, &b->ahead, v, v_dim, u, x0, from, to);
            } else if (run == 8) {
                quad_value_tile(mr, 8, false, t, &b->ahead, v, v_dim, u, x0, from, to);
            } else {
                quad_value_tile(mr, 4, false, t, &b->ahead, v, v_dim, u, x0, from, to);
            }
        }
    }
}

/* One function per number of lanes. */
#define QUAD_LANES(n)                                                                                                  \
    static void quad_score_##n(const attn_tile *t, attn_block *b, int from, int to) {                                  \
        quad_score_lanes(n, t, b, from, to);                                                                           \
    }                                                                                                                  \
    static void quad_value_##n(const attn_tile *t, attn_block *b, int from, int to) {                                  \
        quad_value_lanes(n, t, b, from, to);                                                                           \
    }
QUAD_LANES(1)
QUAD_LANES(2)
QUAD_LANES(4)
#if VREGS >= 32
QUAD_LANES(6)
#else
#define quad_score_6 quad_score_4
#define quad_value_6 quad_value_4
#endif

/* from, to: positions of the chunk that a lane of the tile sees. */
static void quad_scores(const attn_tile *t, attn_block *b, int from, int to) {
    (t->mr == 6 ? quad_score_6 : t->mr == 4 ? quad_score_4 : t->mr == 2 ? quad_score_2 : quad_score_1)(t, b, from, to);
}

static void quad_values(attn_tile *t, attn_block *b, int from, int to) {
    const kv_layout *l = b->a->layout;
    t->v_group = l->v_group;
    for (int r = 0; r < t->mr; r++) {
        int32_t *w = (int32_t *)(void *)(b->p + (size_t)(r * kv_v_groups(l)) * CHUNK);
        for (int64_t j = 0; j < t->j0[r]; j++) t->s[r][j] = 0.0f;
        for (int64_t j = t->j1[r]; j < CHUNK; j++) t->s[r][j] = 0.0f;
        t->wf[r] = quad_factors(l, t->s[r], b->vs, quad_largest(b), w);
        t->w[r] = w;
    }
    (t->mr == 6   ? quad_value_6
     : t->mr == 4 ? quad_value_4
     : t->mr == 2 ? quad_value_2
                  : quad_value_1)(t, b, from / 4, (to + 3) / 4);
}

#else

static bool  quad_k(const kv_layout *l) { return (void)l, false; }
static bool  quad_v(const kv_layout *l) { return (void)l, false; }
static float quad_query(const kv_layout *l, const float *q, int32_t *to) { return (void)l, (void)q, (void)to, 0.0f; }
static void  quad_load_k(attn_block *b, int j0, int j1) { (void)b, (void)j0, (void)j1; }
static void  quad_load_v(attn_block *b, int j0, int j1) { (void)b, (void)j0, (void)j1; }
static void quad_scores(const attn_tile *t, attn_block *b, int from, int to) { (void)t, (void)b, (void)from, (void)to; }
static void quad_values(attn_tile *t, attn_block *b, int from, int to) { (void)t, (void)b, (void)from, (void)to; }

#endif

#endif
