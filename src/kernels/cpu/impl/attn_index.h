/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much a row wants to see each position, by keys that lie beside those of attention (kernels/attn.h): products of a
 * chunk of keys with many queries, with the chains of attn_impl.h.
 */
#ifndef KERNELS_CPU_IMPL_ATTN_INDEX_H
#define KERNELS_CPU_IMPL_ATTN_INDEX_H

/* Positions [j0, j1) of chunk c as f32, [k_dim][CHUNK]. Pages are read in whole groups of 16 positions. */
static void index_load(const attn_index_args *a, int64_t c, int j1, float *k) {
    const kv_layout *l = a->layout;
    for (int j = 0, n; j < j1; j += n) {
        const int64_t  p = c * CHUNK + j;
        const int      slot = (int)(p % l->tokens), left = (j1 - j + 15) / 16 * 16;
        const uint8_t *area = (const uint8_t *)a->pages[p / l->tokens] + a->page_off;
        n = l->tokens - slot < left ? l->tokens - slot : left;
        kv_load_k(l, area, slot, n, k + j, NULL, CHUNK);
    }
}

/* sum += w * max(s, 0), over whole vectors. */
static void index_fold(float *sum, const float *s, float w, bool first, int to) {
    const vf by = vf_set1(w), zero = vf_zero();
    for (int j = 0; j < to; j += VW) {
        vf_store(sum + j, vf_fma(by, vf_max(vf_load(s + j), zero), first ? zero : vf_load(sum + j)));
    }
}

static void VFN(attn_index)(const attn_index_args *a, int64_t p0, int64_t p1, float *score, void *scratch) {
    const int k_dim = a->layout->k_dim;
    float    *k = scratch, *s = k + (size_t)k_dim * CHUNK;
    for (int64_t c = p0 / CHUNK; c * CHUNK < p1; c++, score += CHUNK) {
        const int j1 = p1 - c * CHUNK < CHUNK ? (int)(p1 - c * CHUNK) : CHUNK, to = (j1 + VW - 1) / VW * VW;
        index_load(a, c, j1, k);
        for (int h = 0, n; h < a->n_head; h += n) {
            const int left = a->n_head - h;
            attn_tile t = { .k_group = k_dim };
            n = t.mr = left >= MR ? MR : left >= 4 ? 4 : left >= 2 ? 2 : 1;
            for (int r = 0; r < n; r++) {
                t.q[r] = a->q + (size_t)(h + r) * (size_t)k_dim;
                t.s[r] = a->weights ? s + (size_t)r * CHUNK : score;
            }
            tile_scores(&t, k, k_dim, 0, to);
            for (int r = 0; a->weights && r < n; r++) index_fold(score, t.s[r], a->weights[h + r], h + r == 0, to);
        }
    }
}

#endif
