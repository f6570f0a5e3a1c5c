/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention over cache pages (kernels/kvpage.h), and the store into them.
 *
 * Order of operations, the same in every slot, so that a row's bits depend on its query, its position and the stored
 * K and V only - not on the rows beside it, the split over threads, the page size or the place of pages:
 *
 *   Positions are cut into chunks of ATTN_CHUNK, aligned to position 0. For one query row, head and chunk, with K and V
 *   read as f32 (exact for every page type without scales):
 *
 *     s[j] = scale * sum over d of q[d] k[j][d]      one chain of fma from zero in the order of d; see below
 *     s[j] = cap * tanh(s[j] / cap)                  with a soft-cap
 *     s[j] = s[j] + bias[distance of j]              with biases
 *     s[j] = s[j] + scale * (tq + tk)                with terms by distance of the query's row and of the key's
 *     s[j] = fma(-|pos - j|, slope, s[j])            with ALiBi, slope of the head
 *     m    = max s[j]                                over the row's positions
 *     p[j] = exp(s[j] - m),  l = sum p[j]            lane by lane, then across
 *     o[d] = sum over j of p[j] v[j][d]              one chain of fma from zero in the order of j; see below
 *
 *   Page types with scales keep numbers n and a scale for each group of dimensions. There the chain of a score runs over
 *   the numbers of one group, and the groups' sums are put together in order: the first sum times its scale, then
 *   fma(sum, scale, before). Of values, o[d] = sum over j of (p[j] scale[j]) n[j][d], the product of p and scale rounded.
 *   AVX-512 and AVX2 round q and these products to 8 or 16 bits and add up whole numbers instead (cpu/impl/attn_quads.h,
 *   cpu/impl/attn_whole.h).
 *
 *   Chunks are folded in order into (M, L, O), starting from (-inf, 0, 0):
 *
 *     M' = max(M, m),  a = exp(M - M'),  b = exp(m - M')
 *     L  = L a + l b
 *     O  = O a + o b
 *
 *   A sink is a logit that takes part in the sum only. The result is O / L.
 *
 *   Page types that store rotated keys or values (kernels/kvpage.h) give k and v in rotated space: there q is rotated
 *   first, once for each row and head, and O / L is rotated back at the end.
 *
 * attn_rows does everything for a range of rows and heads. For few rows over a long context, attn_partial computes
 * chunk results and attn_combine folds them: the same bits, but the context can be split over threads.
 *
 * Row t sits at position pos[t] and sees positions [max(0, pos - window + 1), pos + 1) when causal (window 0: from 0),
 * otherwise all of [0, kv_len), with `after` at most so many behind its own. row_end, if not NULL, replaces the end (a row
 * inside an image sees the whole image), and row_begin the beginning; when causal, only where that is earlier (a row inside
 * a prompt sees the whole prompt, whatever its window). Ends are clipped to kv_len, and to `until`. A row that sees nothing
 * gives zeros. Pages outside every row's range are not touched and may be NULL. K and V of all positions below kv_len are
 * stored before the call.
 *
 * scratch: attn_scratch_bytes(), 64-byte aligned, one per thread.
 */
#ifndef KERNELS_ATTN_H
#define KERNELS_ATTN_H

#include "kernels/kvpage.h"
#include "kernels/slot.h"

enum {
    ATTN_CHUNK = 64,
    ATTN_LANES = 64,     /* query rows times heads that share one reading of a chunk */
    ATTN_TILE_LANES = 6, /* of these, the most that run side by side */
};

/* The rows of one sequence in one layer. */
typedef struct attn_args {
    const float *q;                    /* row t, head h at q + t * q_stride + h * k_dim */
    float       *out;                  /* row t, head h at out + t * out_stride + h * v_dim */
    size_t       q_stride, out_stride; /* in floats */
    int          n_rows, n_head;       /* n_head is a multiple of layout->n_kv */

    const kv_layout   *layout;
    const void *const *pages;    /* page i holds positions i * tokens and following */
    size_t             page_off; /* where this layer's part begins inside a page */
    int64_t            kv_len;

    const int32_t *pos;       /* [n_rows] */
    const int32_t *row_end;   /* [n_rows] or NULL */
    const int32_t *row_begin; /* [n_rows] or NULL */
    int32_t        window;    /* 0: none */
    int32_t        chunk;     /* 0: none; else a row sees positions of its own chunk of this many only */
    int32_t        until;     /* 0: none; else no row sees positions from this one on */
    bool           causal;
    int32_t        after; /* not causal: positions behind the row's own that it sees; 0: all */
    float          scale;
    float          softcap; /* 0: none */
    const float   *sinks;   /* [n_head] or NULL */
    const float   *bias;    /* [n_head][2 * bias_reach + 1] by j - pos, further ones as the ends; or NULL */
    int32_t        bias_reach;
    const float   *alibi; /* [n_head] slopes, or NULL */

    /* Terms by distance: of a score number which[j - pos] of row t's and of position j's, head h at apart_q + t * apart_stride
     * + h * apart_n (apart_k the same with j). */
    const float *apart_q, *apart_k; /* or NULL */
    const float *apart_which;       /* whole numbers, [2 * apart_reach + 1], further distances as the ends */
    int32_t      apart_reach, apart_n;
    size_t       apart_stride; /* in floats */
} attn_args;

/* Bytes of scratch that attn_rows and attn_partial need for this shape. */
size_t attn_scratch_bytes(const kv_layout *l, int n_head);

/* Positions [*lo, *hi) that row t sees; *lo == *hi: none. Chunks are *lo / ATTN_CHUNK .. (*hi - 1) / ATTN_CHUNK. */
void attn_row_range(const attn_args *a, int row, int64_t *lo, int64_t *hi);

/*
 * The scores by which an indexer chooses positions. Keys lie in pages of one head with v_in_k, of a type without scales. For
 * each position j,
 *
 *     s[h][j]  = sum over d of q[h][d] k[j][d]                   one chain of fma from zero in the order of d
 *     score[j] = sum over h of weights[h] * max(s[h][j], 0)      one chain of fma from zero in the order of h
 *
 * or, without weights and with one head, score[j] = s[0][j].
 */
typedef struct attn_index_args {
    const float       *q;       /* [n_head][k_dim] */
    const float       *weights; /* [n_head] or NULL */
    int                n_head;
    const kv_layout   *layout;
    const void *const *pages; /* as in attn_args */
    size_t             page_off;
} attn_index_args;

/* Positions [p0, p1), p0 at the beginning of a chunk: that of p at score + p - p0. What stands behind the last of them, up to
 * the next multiple of 16, is overwritten. scratch: attn_scratch_bytes() of the layout. */
typedef void attn_index_fn(const attn_index_args *a, int64_t p0, int64_t p1, float *score, void *scratch);

/* Floats of one partial result: o[v_dim], m, l, padded to a multiple of 16. */
static inline size_t attn_part_floats(int v_dim) { return (size_t)(v_dim + 2 + 15) / 16 * 16; }

/* Rows [row0, row1), query heads [head0, head1): complete results into out. */
typedef void attn_rows_fn(const attn_args *a, int row0, int row1, int head0, int head1, void *scratch);

/*
 * One row, heads [head0, head1), chunks [chunk0, chunk1): the result of chunk c and head h goes to
 * part + ((size_t)h * part_chunks + (c - part_first)) * attn_part_floats(v_dim).
 */
typedef void attn_partial_fn(const attn_args *a, int row, int head0, int head1, int64_t chunk0, int64_t chunk1,
                             float *part, int64_t part_first, int64_t part_chunks, void *scratch);

/* Folds all chunks of one row, heads [head0, head1), into out. part_first is the row's first chunk. */
typedef void attn_combine_fn(const attn_args *a, int row, int head0, int head1, const float *part, int64_t part_first,
                             int64_t part_chunks);

/*
 * Stores n consecutive positions of heads [head0, head1) into slots slot .. slot + n - 1 of one page (all in that
 * page). Row i, head h at k + i * k_stride + h * k_dim (v the same with v_dim; unused with v_in_k). page is the page's
 * start plus page_off. f16 saturates at +-65504. Stored bytes depend on the row only.
 */
typedef void kv_store_fn(const kv_layout *l, void *page, int slot, int n, int head0, int head1, const float *k,
                         size_t k_stride, const float *v, size_t v_stride);

#define KERNELS_ATTN_SLOTS(X)                                                                                          \
    X(attn_rows_fn, rows)                                                                                              \
    X(attn_partial_fn, partial)                                                                                        \
    X(attn_combine_fn, combine)                                                                                        \
    X(attn_index_fn, index)                                                                                            \
    X(kv_store_fn, kv_store)

typedef struct kernels_attn {
    KERNELS_ATTN_SLOTS(KERNEL_SLOT)
} kernels_attn;

void kernels_attn_init_scalar(kernels_attn *t);
void kernels_attn_init_avx2(kernels_attn *t, unsigned cpu);
void kernels_attn_init_avxvnni(kernels_attn *t);
void kernels_attn_init_avx512(kernels_attn *t, unsigned cpu);
void kernels_attn_init_neon(kernels_attn *t, unsigned cpu);
void kernels_attn_list(const kernels_attn *t, kernels_visit *visit, void *ctx);

#endif
