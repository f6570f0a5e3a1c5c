/* SPDX-License-Identifier: Apache-2.0 */
/* Where a chunk of positions lies in the pages, and prefetching the next one beside the work on this one. */
#ifndef KERNELS_CPU_IMPL_ATTN_WHERE_H
#define KERNELS_CPU_IMPL_ATTN_WHERE_H

enum { GROUPS = ATTN_CHUNK / 16 }; /* 16 slots never cross a page */

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

/* The lines of a chunk, to be prefetched a few at a time: more than a processor has under way at once would stop it. */
typedef struct attn_ahead {
    const attn_where *where;
    const uint8_t    *at;    /* the next line, ... */
    int               left;  /* ... and how many there are from it on in this area; 0: none at all */
    int               areas; /* that come behind it */
    int               lines; /* of the chunk */
} attn_ahead;

static void ahead_area(attn_ahead *a) {
    a->at = a->where->area[a->where->n_areas - a->areas];
    a->left = (int)((a->where->k_bytes + a->where->v_bytes) / 64);
    a->areas--;
}

/* next: NULL for nothing. */
static void ahead_begin(attn_ahead *a, const attn_where *next) {
    *a = (attn_ahead){ .where = next };
    if (!next) return;
    a->areas = next->n_areas;
    ahead_area(a);
    a->lines = next->n_areas * a->left;
}

/* So many lines that `calls` calls make up `percent` of the chunk. */
INLINE int ahead_share(const attn_ahead *a, int percent, int calls) { return a->lines * percent / (calls * 100) + 1; }

/* n lines, or as many as are left of the area. */
INLINE void ahead_lines(attn_ahead *a, int n) {
    const uint8_t *p = a->at;
    if (n > a->left) n = a->left;
    for (int i = 0; i < n; i++) __builtin_prefetch(p + (size_t)i * 64, 0, 2);
    a->at = p + (size_t)n * 64;
    a->left -= n;
    if (a->left == 0 && a->areas > 0) ahead_area(a);
}

#endif
