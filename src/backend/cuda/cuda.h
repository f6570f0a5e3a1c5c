/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the CUDA backend.
 *
 * open uploads the matrices (repacked for the product kernels) and takes all memory: one allocation for weights, one
 * for each group of pages, one for everything else (`heap`). A step copies one block of integers, and embedding rows that
 * are not on the device, there and starts the ops' kernels in one stream; steps and moves follow each other there. Steps
 * of single tokens are recorded as graphs, by the sizes of the batch, and started as one.
 *
 * While a step is under way, one that goes ahead may be started behind it. What the host reads and writes meanwhile is
 * there twice and used in turn: the block, the lists of likeliest tokens.
 */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include "backend/cuda/adapt.h"
#include "backend/cuda/moves.h"
#include "backend/cuda/sampler.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/packed.h"
#include "kernels/cuda/times.h"
#include "nn/backend.h"
#include "nn/plan.h"

enum { CUDA_MAT_ROWS = 16 }; /* of a tile of packed weights */
enum { CUDA_PARTS_ROWS = 64 };
enum { CUDA_MAX_ROPES = 8, CUDA_EVENTS = 64, CUDA_GRAPHS = 96, CUDA_MAX_EMBEDS = 4, CUDA_TIMES = 4 };

/* A matrix or a stack of them as it is multiplied. */
typedef struct cuda_mat {
    const nn_mat *from;
    tensor_type   type;     /* F32 or one of product.h; others were recoded or made F16 */
    float         w_scale;  /* a power of two that the weights were divided by */
    size_t        at, each; /* bytes: of the first matrix in the weights, of one matrix */
    size_t        table_at; /* of the pointers to a stack's matrices */
    int           lead;     /* number of the first matrix that it shares an image and w_scale with; its own: none */
    int64_t       pitch;    /* rows of that image; 0: it has one of its own */
} cuda_mat;

/* A vector on the device; several ops may read it. */
typedef struct cuda_vec {
    const float *from;
    int64_t      n;
    size_t       at; /* bytes into the weights */
} cuda_vec;

typedef struct cuda_layer {
    cuda_pages  pages; /* of a packed layer: its f16 rows while attention reads them */
    bool        is_packed;
    cuda_packed packed;
    cuda_pages  index;    /* keys of an index; dim_k 0: it has none */
    int64_t     fixed_at; /* floats into a slot */
} cuda_layer;

/* Rows of a table of embeddings. That of the tokens lies on the device where the device can read it; other rows are
 * looked up by the host and sent along with the batch. */
typedef struct cuda_embed {
    int    op;
    bool   there;    /* the table is on the device, */
    size_t table_at; /* here in the weights, with rows of row_bytes */
    size_t row_bytes;
    float *host;   /* pinned */
    size_t at;     /* in the heap */
    size_t raw_at; /* of rows as the file has them, where the device can read those; 0: the host makes them f32 */
} cuda_embed;

/* A recorded step, by what its launches depend on. */
typedef struct cuda_step {
    int        n_tok, n_seq, n_out, n_hidden, chunks;
    bool       raw, ends; /* whether embedding rows are the file's; rows have ends of their own */
    bool       adapted;   /* rows have adapter sets */
    int        n_axes;
    bool       seen;
    cuda_graph graph; /* NULL: not recorded yet */
} cuda_step;

/* Where the parts of the heap begin, in bytes. */
typedef struct cuda_areas {
    size_t arena, image, scale, scratch, step, parts, scores, counts, route, slots, block, picks, ropes[CUDA_MAX_ROPES],
        order, items, deep, turned, open, end;
} cuda_areas;

typedef struct cuda_exec {
    nn_exec     x;
    arena       mem;
    nn_plan     plan;
    bool        planned; /* memory is counted, not taken */
    bool        lost;
    cuda_device device;
    cuda_stream stream;
    cuda_event  events[CUDA_EVENTS]; /* of ticket t: t % CUDA_EVENTS */
    nn_ticket   last;

    cuda_mat *mats;
    cuda_vec *vecs;
    int       n_mats, n_vecs;
    uint8_t  *weights, *heap, *pages[NN_MAX_GROUPS];
    size_t    weights_bytes;

    cuda_layer *layers;
    int64_t     slot_floats;
    cuda_areas  areas;
    size_t      most_kv; /* key heads of a layer */
    size_t      step_bytes, image_bytes, image_rows, scratch_bytes, parts_floats, score_floats, group_rows, group_items;
    int         max_chunks;
    size_t      tokens_at, guess_at; /* ints into the block */
    size_t      open_bytes;          /* of f16 rows of compressed pages, of one layer at a time */
    uint8_t    *together; /* [n_ops]: ops from this one on that one product computes; 0 and 1: itself alone */

    nn_rope      ropes[CUDA_MAX_ROPES];
    const float *rope_axes[CUDA_MAX_ROPES]; /* axis_of as vectors of the weights; NULL: none */
    bool         rope_made[CUDA_MAX_ROPES];
    int          n_ropes;
    cuda_embed   embeds[CUDA_MAX_EMBEDS];
    int          n_embeds;
    float       *row; /* one embedding row */

    /* The batch under way, or the last one. */
    nn_batch   batch;
    int32_t   *blocks[2], *block; /* pinned; block: the one of this batch */
    int        turn;              /* which of two this batch has: of blocks and lists */
    int        n_under_way;       /* steps that were not waited for; 2: the batch goes ahead */
    nn_ticket  ticket_of[2];
    uint64_t   n_steps, number_of[2];                /* by turn: which step this is */
    cuda_event began[CUDA_TIMES], ended[CUDA_TIMES]; /* of step n: n % CUDA_TIMES */
    cuda_batch on_device;
    int        chunks; /* of the longest row */
    /* What the image and the lists of experts hold, as far as the tape was run; 0: nothing. */
    nn_buf image_of, sorted_of;
    int    image_split, item_rows; /* item_rows: of the lists of experts */
    bool   whole;                  /* a step runs, not single ops that somebody looks at */
    bool   raw;                    /* embedding rows lie as the file has them */
    int    norm_at;                /* 1 + the norm that the next product does itself; 0: none */
    int    up_end; /* the op behind the last one that was started, where that is gate and up of a few tokens' experts */

    cuda_sampler sampler;
    void        *staging; /* pinned, for rows on their way out */
    cuda_step    steps[CUDA_GRAPHS];
    int          next_step;

    cuda_moves moves;
    cuda_adapt adapt;
} cuda_exec;

enum { CUDA_STAGING = 8 << 20 };

/* lower.c: what the ops need; refuses by name what cannot be run. */
int cuda_lower(cuda_exec *x, err *e);
int cuda_refuse(const cuda_exec *x, int op, const char *why, err *e);

size_t cuda_block_ints(const nn_limits *l, int n_groups); /* of the block that describes a batch */

/* weights.c */
int             cuda_weights_add(cuda_exec *x, const nn_op *op, int number, err *e);
int             cuda_weights_add_vec(cuda_exec *x, const float *data, int64_t n, err *e);
int             cuda_weights_load(cuda_exec *x, err *e);
size_t          cuda_weights_staging(const cuda_exec *x);
const cuda_mat *cuda_mat_of(const cuda_exec *x, const nn_mat *m);
bool            cuda_weights_scaled(const cuda_mat *w); /* F16 made of another type */
/* The F16 matrices of n products, which lie one behind the other, become one image. */
void         cuda_weights_join(cuda_exec *x, const nn_op *ops, int n);
const float *cuda_vec_of(const cuda_exec *x, const float *data); /* NULL for NULL */

/* packed.c: layers with compressed pages. Their place in a page; bytes of rotated queries; storing; attention. */
bool   cuda_is_packed(nn_kv_type type);
int    cuda_packed_lower(cuda_exec *x, int layer, nn_kv_type k, nn_kv_type v, err *e);
size_t cuda_packed_turned(const cuda_exec *x);
int    cuda_packed_put(cuda_exec *x, const nn_op *op, err *e);
/* Whether rotations by position and the store in front can be done on the way. */
bool cuda_packed_turns(const cuda_exec *x, const nn_op *op, const cuda_attn *a, const cuda_rope *r);
bool cuda_packed_direct(const cuda_exec *x, const nn_op *op,
                        const cuda_attn *a); /* single rows, from the pages' own bytes */
int  cuda_packed_attn(cuda_exec *x, const nn_op *op, cuda_attn *a, err *e);

/* pictures.c: what rows of pictures bring beside their embeddings. Floats of a row that are added further up; those of the
 * batch to the device; and the op. */
int64_t cuda_deep_width(const cuda_exec *x);
int     cuda_deep_send(cuda_exec *x, err *e);
int     cuda_deep_add(cuda_exec *x, const nn_op *op, err *e);
int     cuda_join(cuda_exec *x, const nn_op *op, err *e);
float  *cuda_input(nn_exec *base);                                      /* where supplied rows may be put, */
int     cuda_check_from(const cuda_exec *x, const nn_batch *b, err *e); /* and where another executor has left them */

/* ops.c: starts the kernels of op `number`, and of those behind it, before `end`, that go together with it. Returns how
 * many these were. */
int cuda_run_ops(cuda_exec *x, int number, int end, err *e);

/* What ops.c and experts.c share. The image of a buffer's rows, each cut into `split` rows of its own: true where it is
 * there already; made where it is not. Whether two buffers share bytes of the arena. Whether no op behind `number` reads
 * what buffer b holds now. */
cuda_act cuda_act_of(nn_act_kind act);
bool     cuda_image_of(cuda_exec *x, nn_buf b, int split, cuda_rows *out);
int      cuda_make_image(cuda_exec *x, nn_buf b, int split, cuda_rows *out, err *e);
bool     cuda_overlap(const cuda_exec *x, nn_buf a, nn_buf b);
bool     cuda_is_dead(const cuda_exec *x, nn_buf b, int number);

/* experts.c: a norm, a router's product and the choice as one kernel; products of experts and heads; those of a few
 * tokens: how many ops from `number` on are one kernel. */
bool cuda_is_router(const cuda_exec *x, int number, int end);
int  cuda_run_router(cuda_exec *x, const nn_op *op, err *e);
int  cuda_run_route(cuda_exec *x, const nn_op *op, err *e);
int  cuda_run_grouped(cuda_exec *x, const nn_op *op, err *e);
int  cuda_few_experts(const cuda_exec *x, int number, int end);
int  cuda_run_few_experts(cuda_exec *x, int number, int n, err *e);
bool cuda_is_summed(const cuda_exec *x, int number, int end); /* a weighted sum that is only added to other rows, */
int  cuda_run_combine(cuda_exec *x, const nn_op *op, int n, err *e); /* and with that where n is 2 */
int  cuda_many_ops(const cuda_exec *x, int number, int end);         /* the same of more tokens */
int  cuda_run_many(cuda_exec *x, int number, int n, err *e);

/* ahead.c: what the product in front of op `number` asks for in advance, and the memory that it leaves beside it. */
cuda_ahead cuda_ahead_of(const cuda_exec *x, int number);
size_t     cuda_beside(const cuda_exec *x, int number);

/* step.c */
int cuda_submit(nn_exec *base, const nn_batch *b, nn_ticket *step, err *e);
int cuda_wait_for(nn_exec *base, nn_ticket ticket, err *e);
int cuda_fetch(nn_exec *base, nn_fetch_what what, int64_t first, int64_t n, float *to, err *e);
int cuda_sample(nn_exec *base, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e);
int cuda_begin(nn_exec *base, const nn_batch *b, err *e);
int cuda_run(nn_exec *base, int first_op, int end_op, err *e);
int cuda_read(nn_exec *base, nn_buf b, float *to, err *e);
int cuda_write(nn_exec *base, nn_buf b, const float *from, err *e);

/* moves.c: a step's stream waits for the moves that its batch meets; what came from the device under a ticket is where it
 * belongs. */
int  cuda_moves_open(cuda_exec *x, err *e);
void cuda_moves_free(cuda_exec *x);
int  cuda_moves_meet(cuda_exec *x, const nn_batch *b, err *e);
int  cuda_moves_wait(cuda_exec *x, nn_ticket t, err *e);
int  cuda_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);

int  cuda_give_ticket(cuda_exec *x, nn_ticket *ticket, err *e); /* of what was started until now */
int  cuda_enter(cuda_exec *x, err *e);                          /* what every call does first, */
int  cuda_leave(cuda_exec *x, int rc);                          /* and last */
void cuda_steps_forget(cuda_exec *x);                           /* recordings whose rows have adapter sets */

static inline float *cuda_buf(const cuda_exec *x, nn_buf b) {
    return b ? (float *)(void *)(x->heap + x->areas.arena + x->plan.offset[b]) : NULL;
}

/* Rows of a batch whose attention parts have room at once, where that is not too much. */
static inline int cuda_parts_rows(const nn_limits *l) {
    return l->max_tokens < CUDA_PARTS_ROWS ? l->max_tokens : CUDA_PARTS_ROWS;
}

static inline int64_t cuda_buf_rows(const cuda_exec *x, nn_buf b) {
    return nn_batch_rows(&x->batch, x->x.model->tape, b);
}

static inline const nn_buf_info *cuda_info(const cuda_exec *x, nn_buf b) { return &x->x.model->tape->bufs[b]; }

static inline const float *cuda_vector(const cuda_exec *x, const nn_vec *v) {
    return v ? cuda_vec_of(x, v->data) : NULL;
}

static inline size_t cuda_align(size_t n) { return (n + 255) / 256 * 256; }

/* The matrices that an op multiplies with; NULL: none. */
static inline const nn_mat *cuda_product_of(const nn_op *op) {
    return op->kind == NN_OP_LINEAR || op->kind == NN_OP_HEAD_LINEAR || op->kind == NN_OP_EXPERTS ? op->u.linear.w
                                                                                                  : NULL;
}

#endif
