/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small ops of a tape on a CUDA device: everything that is not a large product (product.h).
 *
 * One output value has one order of operations, whatever the number of rows and wherever a row stands. Sizes that
 * depend on the batch are given by the host; what else a kernel needs to know of it lies in one block of integers on
 * the device (cuda_batch), so that recorded launches can be started again with another batch of the same sizes.
 *
 * Nothing here allocates or waits. All pointers are device pointers.
 */
#ifndef KERNELS_CUDA_OPS_H
#define KERNELS_CUDA_OPS_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- the batch -------------------------------------------------------------------------------------------------- */

enum { CUDA_TILE_TOKENS = 16 };

/* Page tables: page p of sequence s in group g is block[block[1 + g] + s * block[0] + p]. */
typedef struct cuda_batch {
    const int32_t *block;
    const int32_t *pos, *seq_of, *row_end; /* [n_tok] */
    const int32_t *row_begin, *axes;       /* [n_tok], [axis][n_tok]; NULL: none */
    const int32_t *given;                  /* [n_tok]: which rows were supplied; NULL: nobody asks */
    const int32_t *q_start, *slot;         /* [n_seq + 1], [n_seq] */
    const int32_t *out_rows;               /* [n_out] */
    const int32_t *tiles;                  /* [n_tiles]: first row of up to CUDA_TILE_TOKENS rows of one sequence */
    int            n_tok, n_seq, n_out, n_tiles, page_tokens;
} cuda_batch;

/* --- rows ------------------------------------------------------------------------------------------------------- */

typedef enum cuda_norm_kind { CUDA_NORM_RMS, CUDA_NORM_LAYER, CUDA_NORM_L2 } cuda_norm_kind;

typedef struct cuda_norm {
    cuda_norm_kind kind;
    const float   *x;
    float         *out;
    int64_t        groups;          /* of all rows together */
    int            group, w_groups; /* elements of a group; groups that w and b are long: 1, or those of a row */
    const float   *w, *b;           /* NULL: none */
    float          eps;
} cuda_norm;
/* rows: where to leave out in 16 bits as well; NULL, or groups of more than CUDA_NORM_HEADS elements. */
enum { CUDA_NORM_HEADS = 512 };
int cuda_op_norm(const cuda_norm *a, const cuda_rows *rows, cuda_stream s, err *e);

typedef enum cuda_each_kind {
    CUDA_EACH_ADD,       /* y += scale * a */
    CUDA_EACH_SCALE,     /* y *= scale */
    CUDA_EACH_ACT,       /* y = act(y) */
    CUDA_EACH_GATE,      /* y *= act(a), one a for y_width / a_width elements */
    CUDA_EACH_SOFTCAP,   /* y = scale * tanh(y / scale) */
    CUDA_EACH_POS_SCALE, /* y *= 1 + scale * log1p(floor((pos + offset) / period)) */
    CUDA_EACH_DECAY,     /* y = a[element / (width / a_width)] * softplus(y + b[element]); a, b: vectors */
    CUDA_EACH_SCALE_BY,  /* y *= a[element] */
    CUDA_EACH_ADD_BY,    /* y += a * b[row * a_width] */
    CUDA_EACH_WEIGH,     /* y *= a[2 row + 1] */
    CUDA_EACH_CLIP,      /* to [-scale, scale] */
    CUDA_EACH_CLAMP,     /* to [scale, alpha] */
    CUDA_EACH_ADD_EACH,  /* y += scale * a[element] */
    CUDA_EACH_XIELU,     /* xielu[] = p, n, beta, eps (nn.h) */
    CUDA_EACH_GLU,       /* y = act(y) * a; scale != 0: the clamped form with that limit and alpha */
} cuda_each_kind;

typedef struct cuda_each {
    cuda_each_kind kind;
    cuda_act       act;
    float         *y;
    const float   *a, *b;
    int64_t        rows, width, a_width;
    float          scale, alpha;
    const int32_t *pos;
    int            period, offset;
    float          xielu[4];
} cuda_each;
int cuda_op_each(const cuda_each *a, cuda_stream s, err *e);

/* Rows of y: what lies less than `by` deviations above the mean becomes 0, the rest loses that much; or, with `like`,
 * each row is brought to the root mean square of that row of `like`, its own mean square counted as at least `by`. */
int cuda_op_row_size(float *y, const float *like, int64_t rows, int64_t width, float by, cuda_stream s, err *e);

/* CUDA_EACH_GLU without a limit; the rows of y in 16 bits as well. keep: y is read again, in f32. */
int cuda_op_glu_rows(cuda_act act, float *y, const float *up, bool keep, const cuda_rows *rows, cuda_stream s, err *e);

/* `width` columns from `offset` on of every `group` columns. */
typedef struct cuda_take {
    const float *x;
    float       *out;
    int64_t      rows, in_width;
    int          group, offset, width;
} cuda_take;
int cuda_op_take(const cuda_take *a, cuda_stream s, err *e);

/* Rows of a table of embeddings in the file's layout, one behind the other, to f32, times scale. */
bool cuda_can_embed(tensor_type type);
int cuda_op_embed(float *to, const void *rows, tensor_type type, int64_t n, int64_t cols, size_t row_bytes, float scale,
                  cuda_stream s, err *e);

/* Columns [at, at + width) of out become x. */
int cuda_op_join(float *out, int64_t out_width, int64_t at, const float *x, int64_t rows, int64_t width, cuda_stream s,
                 err *e);
/* y[row] += more[row * stride ..] for rows that were supplied. */
int cuda_op_add_supplied(float *y, const float *more, int64_t stride, const int32_t *given, int64_t rows, int64_t width,
                         cuda_stream s, err *e);

/* out[i] = x[rows[i]] for n rows. */
int cuda_op_gather(float *out, const float *x, const int32_t *rows, int64_t n, int64_t width, cuda_stream s, err *e);

/* --- rotation --------------------------------------------------------------------------------------------------- */

/* Cosines and sines of the batch's positions, [n_tok][2 * n], in double and rounded once. axis_of: which axis turns which
 * pair; NULL, or a batch without axes: the position itself does. */
int cuda_op_rope_table(float *table, const float *inv_freq, const float *axis_of, int n, float scale,
                       const cuda_batch *b, cuda_stream s, err *e);

typedef struct cuda_rope {
    float       *x;
    const float *table;
    int64_t      width;
    int          head_dim, offset, n; /* n: pairs */
    bool         interleaved;
    cuda_batch   batch;
} cuda_rope;
int cuda_op_rope(const cuda_rope *a, cuda_stream s, err *e);

/* --- pages ------------------------------------------------------------------------------------------------------ */

typedef enum cuda_page_type { CUDA_PAGE_F32, CUDA_PAGE_F16, CUDA_PAGE_BF16 } cuda_page_type;

/* Bytes of `dim` elements of one position; a multiple of 16. */
size_t cuda_page_row_bytes(cuda_page_type type, int dim);

/*
 * Where a layer's keys and values lie: in page p, from `offset` on, first [head][position] keys, then [head][position]
 * values. A latent layer has rows of the latent and the rotated part side by side, and no values of its own.
 */
typedef struct cuda_pages {
    uint8_t       *base;
    size_t         page_bytes, offset, v_offset; /* v_offset: from the page's begin */
    size_t         k_row, v_row;                 /* bytes of a position of one head */
    cuda_page_type k_type, v_type;
    int            group, n_kv, dim_k, dim_v;
    int            tokens; /* positions of a page */
    bool           step;   /* one page that holds the rows of the step, which are whole inputs */
} cuda_pages;

/* Rows of k [n_kv * dim_k] and v [n_kv * dim_v] to their places. */
int cuda_op_store(const cuda_pages *p, const float *k, const float *v, const cuda_batch *b, cuda_stream s, err *e);
/* Rotates q and k in place by a table of rope.cu and stores k and v; heads of q are as wide as those of k. */
typedef struct cuda_rope_store {
    cuda_rope    rope; /* of k; q has the same but for its buffer */
    float       *q;
    const float *v;
    int          n_head;
    cuda_pages   pages;
} cuda_rope_store;
int cuda_op_rope_store(const cuda_rope_store *a, cuda_stream s, err *e);

/* Rows of the latent [n_latent] and of the rotated part. */
int cuda_op_store_latent(const cuda_pages *p, const float *latent, int n_latent, const float *turned, int n_turned,
                         const cuda_batch *b, cuda_stream s, err *e);

/* The key of an index, dim_k of it, to its place. */
int cuda_op_store_index(const cuda_pages *p, const float *k, const cuda_batch *b, cuda_stream s, err *e);

enum {
    CUDA_ATTN_CHUNK = 128,       /* absolute positions whose part of the result is computed by itself */
    CUDA_ATTN_BESIDE = 76 << 10, /* shared memory that a block of attn_one.cu takes of a multiprocessor, at most */
    CUDA_ATTN_DIM = 1024,        /* the widest head */
};

/*
 * A row's result: for each chunk of positions it sees, the largest score, the sum of the exponentials and the weighted
 * values; folded in the order of chunks. Where few rows meet long contexts the chunks are computed by different blocks.
 */
typedef struct cuda_attn {
    cuda_pages   pages;
    cuda_batch   batch;
    const float *q, *q_turned; /* q_turned: latent layers */
    float       *out;
    int          n_head, dim_q, dim_turned; /* dim_q: of q alone */
    int          dim_out, window;
    float        scale, softcap;
    const float *sinks;
    int          chunk; /* not 0: a row sees positions of its own chunk of this many */
    int          until; /* not 0: no row sees positions from this one on; without window, chunk, turning or choice */
    int          reach; /* of a step's rows, to both sides; 0: the whole input */
    bool         spans, strict; /* nn_attn_spec */
    const float *bias;          /* [n_head][bias_wide]: added by distance, the ends for further ones; NULL: none */
    int          bias_wide;
    const float *alibi; /* [n_head]: a position scores that much times the distance less; NULL: none */
    /* Rows of the step, [n_head][apart_n]: number apart_which[distance] of the query's and the key's row is added before the
     * scale; apart_which: [apart_wide], further distances as the ends; NULL: none. */
    const float *apart_q, *apart_k, *apart_which;
    int          apart_n, apart_wide;
    float       *parts; /* cuda_attn_parts(...) floats, or NULL */
    /* Not NULL: what rope.cu and store.cu would have done in front is done on the way. q is not turned yet; k and v are
     * the rows of the batch, each the last of its sequence. cuda_attn_turns says where that can be. */
    const float *k, *v, *table;
    int          turned; /* pairs */
    bool         interleaved;
    /* Not NULL: heads of q and k are RMS-normed on the way, too, as norm.cu does it. */
    const float *q_norm, *k_norm;
    float        norm_eps;
    /* Not NULL: [n_tok][chosen_groups][1 + chosen_top]: how many positions, or blocks of chosen_block of them, the row sees, and
     * which, rising (choose.cu). Chunks are then of their ranks. */
    const int32_t *chosen;
    int            chosen_groups, chosen_top, chosen_block;
    unsigned *counts; /* of rows times key heads, zero; zero again afterwards; NULL: the batch has longer sequences */
    int       chunks; /* that the longest row has, rounded up at will; 0: one block folds all */
} cuda_attn;
int     cuda_op_attn(const cuda_attn *a, cuda_stream s, err *e);
bool    cuda_attn_plain(const cuda_attn *a);      /* whether it is computed row by row, in f32 (attn.cu) */
bool    cuda_attn_single(const cuda_attn *a);     /* whether rows of sequences of one row are best computed by chunks */
bool    cuda_attn_step_can(int dim_k, int dim_v); /* whether keys and values of a step's rows may be f16 */
bool    cuda_attn_turns(const cuda_attn *a, const cuda_rope *r);
int64_t cuda_attn_parts(int64_t rows, int n_head, int dim_out, int chunks);

/* --- indexers ---------------------------------------------------------------------------------------------------- */

/* nn_choose_spec, over the keys of an index, which lie as those of a layer with one head. */
typedef struct cuda_choose {
    cuda_pages   index;
    cuda_batch   batch;
    const float *q, *weights; /* [n_tok][n_head][dim]; [n_tok][n_head], or NULL where a group has one head */
    int32_t     *out;         /* [n_tok][n_group][1 + top] */
    float       *scores;      /* score_floats, in which a line has line_floats: cuda_choose_floats; one line at least */
    int64_t      score_floats, line_floats;
    int          n_head, n_group, top, block, local;
    int          chunks; /* that the longest row has, rounded up at will */
    int          first;  /* line of a launch; the op's own */
} cuda_choose;
bool    cuda_can_choose(bool weights, int heads, int dim); /* heads of a group */
int64_t cuda_choose_floats(int block, int chunks);
int     cuda_op_choose(const cuda_choose *a, cuda_stream s, err *e);

/* --- recurrent layers -------------------------------------------------------------------------------------------- */

/* The fixed state of slot i begins at state + i * slot_floats + offset. A sequence at position 0 begins with zeros. */
typedef struct cuda_state {
    float     *state;
    int64_t    slot_floats, offset;
    cuda_batch batch;
} cuda_state;

typedef struct cuda_conv {
    cuda_state   st; /* [kernel - 1][channels], oldest first; offset counts the first channel in */
    const float *x, *w, *bias;
    float       *out;
    int          width, kernel, channels;
    cuda_act     act;
} cuda_conv;
int cuda_op_conv(const cuda_conv *a, cuda_stream s, err *e);

typedef struct cuda_delta {
    cuda_state   st; /* [heads_v][dim_k][dim_v] */
    const float *q, *k, *v, *g, *beta;
    float       *out;
    int          heads_k, heads_v, dim_k, dim_v;
    float        scale;
    bool         tiled, per_channel;
} cuda_delta;
int cuda_op_delta(const cuda_delta *a, cuda_stream s, err *e);

typedef struct cuda_ssm {
    cuda_state   st;                /* [n_head][n_state][dim] */
    const float *x, *b, *c, *dt;    /* dt NULL: 1 */
    const float *va, *vd, *dt_bias; /* per head; vd, dt_bias: NULL: none */
    float       *out;
    int          n_head, dim, n_group, n_state;
    float        dt_min, dt_max;
} cuda_ssm;
int cuda_op_ssm(const cuda_ssm *a, cuda_stream s, err *e);

typedef struct cuda_scan {
    cuda_state   st; /* [n_state][n_channel] */
    const float *x, *b, *c, *dt, *va, *vd, *dt_bias;
    float       *out;
    int          n_channel, n_state;
} cuda_scan;
int cuda_op_scan(const cuda_scan *a, cuda_stream s, err *e);

/* --- experts ------------------------------------------------------------------------------------------------------ */

enum { CUDA_MAX_EXPERTS = 4096, CUDA_ITEM_ROWS = 8, CUDA_EXPERTS_FEW = 16, CUDA_EXPERTS_TOKENS = 4 };

typedef struct cuda_route {
    const float *logits, *bias, *expert_scale;
    float       *out; /* [n_used] (expert as int32, weight) */
    int64_t      rows;
    int          n_expert, n_used, n_group, top_group;
    bool         softmax, renorm, group_best, sparsemixer;
    float        renorm_eps, scale, jitter;
} cuda_route;
int cuda_op_route(const cuda_route *a, cuda_stream s, err *e);

/* The RMS norm of a few rows, their product with a router's F32 weights, and the choice (router.cu). */
typedef struct cuda_router {
    const float *x, *norm_w; /* norm_w NULL: none */
    float        eps;
    float       *normed; /* in f32, */
    cuda_rows    rows16; /* and in 16 bits */
    const float *w, *bias;
    float       *logits;
    unsigned    *count; /* zero; zero again afterwards */
    cuda_route   route; /* of logits; rows: at most CUDA_EXPERTS_TOKENS */
    int64_t      cols;
} cuda_router;
bool cuda_can_router(int64_t cols, int n_expert, int64_t rows);
int  cuda_op_router(const cuda_router *a, cuda_stream s, err *e);

/* Rows by expert: order[] has the row numbers sorted, item i (of items[0]) is (expert, first place in order, rows), of up
 * to item_rows rows. cuda_items_max: of items of CUDA_ITEM_ROWS, the most that there are. */
int64_t cuda_items_max(int64_t rows, int n_expert);
int     cuda_op_sort(int32_t *order, int32_t *items, const float *chosen, int64_t rows, int n_expert, int item_rows,
                     cuda_stream s, err *e);

/* out[row] = matrix of the row * x[row / in_div]. Which matrix: the row's expert, or row % n_mats. */
typedef struct cuda_grouped {
    tensor_type        type; /* F32, or one that product.h multiplies */
    int64_t            rows, cols;
    const void *const *mats; /* [n_mats], on the device */
    int                n_mats;
    cuda_rows          x;  /* 16-bit types */
    const float       *xf; /* F32: rows of cols */
    float              w_scale;
    const float       *bias;          /* [n_mats][rows], or NULL */
    const float       *chosen;        /* NULL: row % n_mats */
    const int32_t     *order, *items; /* of cuda_op_sort, where chosen is there */
    int64_t            n;             /* rows of out */
    int                in_div;
    float             *out;
} cuda_grouped;
int cuda_op_grouped(const cuda_grouped *a, cuda_stream s, err *e);

/* The experts of a few tokens (experts.cu). */
typedef struct cuda_experts {
    tensor_type    type;
    int64_t        rows, cols; /* of a matrix */
    const uint8_t *gate, *up;  /* the first matrices; up NULL: out is the weighted sum of gate's rows */
    size_t         each;       /* bytes from matrix to matrix */
    float          gate_scale, up_scale;
    const float   *gate_bias, *up_bias; /* [n_mats][rows], or NULL */
    cuda_rows      rows16;              /* a row per token */
    const float   *x;                   /* up NULL: n_used rows per token */
    const float   *chosen;
    float         *out; /* n_used gated rows per token; up NULL: one row per token */
    int            n_tok, n_used;
    cuda_act       act;
    float          limit, alpha; /* limit 0: act(gate) * up */
    bool           even;         /* weights are 1 */
    bool           add;          /* to what out holds */
    bool           known;        /* the kernel in front was that of gate and up: chosen was made before it began */
} cuda_experts;
bool cuda_can_experts(tensor_type type, int64_t cols, int n_tok, int n_used);
int  cuda_op_experts(const cuda_experts *a, cuda_stream s, err *e);

/* The experts of many tokens (experts_many.cu), rows sorted into items of item_rows, 8, 16 or 32: how many are best. */
typedef struct cuda_many_experts {
    tensor_type    type;
    int64_t        rows, cols; /* of a matrix */
    const uint8_t *gate, *up;  /* the first matrices; up NULL: out is gate's product alone */
    size_t         each;       /* bytes from matrix to matrix */
    int            n_mats, item_rows;
    float          gate_scale, up_scale;
    const float   *gate_bias, *up_bias; /* [n_mats][rows], or NULL */
    cuda_rows      x;                   /* out[row] is of x[row / in_div] */
    int            in_div;
    const int32_t *order, *items; /* of cuda_op_sort */
    int64_t        n;             /* rows of out */
    cuda_act       act;
    float          limit, alpha; /* limit 0: act(gate) * up */
    float         *out;
} cuda_many_experts;
bool cuda_can_many_experts(tensor_type type, int64_t cols);
int  cuda_item_rows(tensor_type type, int64_t rows, int n_expert, int64_t cols);
int  cuda_op_many_experts(const cuda_many_experts *a, cuda_stream s, err *e);

/* out[row] = the sum over k of weight k * y[row * n_used + k]; chosen NULL: all weights are 1. add: to what out
 * holds. */
int cuda_op_combine(float *out, const float *y, const float *chosen, int64_t rows, int n_used, int64_t width, bool add,
                    cuda_stream s, err *e);

/* F32 weights in file layout: out = x * W^T, + bias, + the old out. */
typedef struct cuda_plain {
    const float *w, *x, *bias;
    float       *out;
    int64_t      rows, cols, n;
    bool         add;
} cuda_plain;
int cuda_op_plain(const cuda_plain *a, cuda_stream s, err *e);

#ifdef __cplusplus
}
#endif
#endif
