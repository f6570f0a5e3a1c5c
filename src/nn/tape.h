/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tape: what forward recorded, a linear list of ops over activation buffers.
 *
 * A buffer is a matrix of f32 with a symbolic number of rows (tokens of the batch, rows whose end is wanted, or those
 * of them that get logits, times a constant for per-expert rows) and a fixed width. Ops run in order; there is no
 * graph. `acc` says that the op also reads what it writes. Buffer 0 does not exist. Each op names the layer whose state
 * it touches, or -1.
 */
#ifndef NN_TAPE_H
#define NN_TAPE_H

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "nn/nn.h"

typedef enum nn_op_kind {
    NN_OP_EMBED,
    NN_OP_EMBED_POS,
    NN_OP_EMBED_SEG,
    NN_OP_ADD_SUPPLIED,
    NN_OP_NORM,
    NN_OP_LINEAR,
    NN_OP_HEAD_LINEAR,
    NN_OP_ROPE,
    NN_OP_POS_SCALE,
    NN_OP_KV_STORE,
    NN_OP_ATTN,
    NN_OP_LATENT_STORE,
    NN_OP_LATENT_ATTN,
    NN_OP_INDEX_STORE,
    NN_OP_CHOOSE,
    NN_OP_GLU,
    NN_OP_ACT,
    NN_OP_ADD,
    NN_OP_SCALE,
    NN_OP_CLIP,
    NN_OP_CLAMP,
    NN_OP_SPARSIFY,
    NN_OP_SCALE_EACH,
    NN_OP_ADD_EACH,
    NN_OP_ADD_BY,
    NN_OP_MATCH_SIZE,
    NN_OP_GATE,
    NN_OP_TAKE,
    NN_OP_JOIN,
    NN_OP_ROUTE,
    NN_OP_EXPERTS,
    NN_OP_WEIGH,
    NN_OP_COMBINE,
    NN_OP_CONV,
    NN_OP_DECAY,
    NN_OP_DELTA,
    NN_OP_SSM,
    NN_OP_SCAN,
    NN_OP_OUTPUTS,
    NN_OP_SOFTCAP,
    NN_OP_XIELU,
    NN_OP_KINDS,
} nn_op_kind;

typedef enum nn_norm_kind { NN_NORM_RMS, NN_NORM_LAYER, NN_NORM_L2 } nn_norm_kind;
typedef enum nn_row_kind {
    NN_ROWS_TOKENS,
    NN_ROWS_OUTPUTS, /* rows that the caller wants to see the end of */
    NN_ROWS_LOGITS,  /* the first of them: those that also go through the head */
} nn_row_kind;

enum { NN_MAX_IN = 5, NN_MAX_EXPERTS = 4096, NN_MAX_CHOSEN = 1 << 20, NN_MAX_CHOICES = 1 << 16 };

typedef struct nn_op {
    nn_op_kind kind;
    int        layer; /* state it reads or writes; -1: none */
    bool       acc;   /* out is read too */
    nn_buf     out;   /* 0: writes state only */
    nn_buf     in[NN_MAX_IN];
    union {
        struct {
            const nn_mat *table;
            float         scale;
            int           offset;
            bool          by_token; /* EMBED: supplied rows do not count; token 0 stands for them */
        } embed;
        int part; /* ADD_SUPPLIED */
        struct {
            float lo, hi;
        } clamp;
        struct {
            nn_norm_kind  kind;
            int           group;
            const nn_vec *w, *b; /* as wide as the group, or as the row */
            float         eps;
        } norm;
        nn_linear linear; /* HEAD_LINEAR: a stack, one per head; EXPERTS: one per expert */
        struct {
            nn_rope rope;
            int     head_dim, offset;
        } rope;
        struct {
            float beta;
            int   period, offset; /* added to the position */
        } pos_scale;
        nn_attn_spec   attn;   /* LATENT_ATTN: dim_k latent, dim_v rotated part; what was chosen is its last input */
        nn_choose_spec choose; /* in: query, and weights of heads where they are added up */
        nn_glu_spec    glu;
        nn_act_kind    act;   /* ACT, GATE */
        float          scale; /* ADD, SCALE; SOFTCAP: the cap; CLIP: the limit; SPARSIFY: deviations; MATCH_SIZE: eps */
        const nn_vec  *each;  /* SCALE_EACH */
        struct {
            const nn_vec *w;
            float         scale;
        } add_each;
        int      column; /* ADD_BY */
        nn_xielu xielu;
        struct {
            int group, offset, width;
        } take;
        struct { /* in: router's logits; out: n_used (expert as int32, weight) pairs */
            int           n_expert, n_used, n_group, top_group;
            nn_score      score;
            bool          renorm, group_best;
            float         renorm_eps, scale, jitter;
            const nn_vec *bias, *expert_scale;
        } route;
        struct {
            int  n_used;
            bool even; /* COMBINE: the weights are in the rows already */
        } combine;     /* COMBINE, WEIGH */
        struct {
            const nn_vec *w, *bias;
            int           kernel, channel0;
            nn_act_kind   act;
        } conv;
        struct {
            const nn_vec *a, *dt_bias;
        } decay;
        nn_delta_spec delta;
        nn_ssm_spec   ssm;
        nn_scan_spec  scan;
    } u;
} nn_op;

typedef struct nn_buf_info {
    nn_row_kind rows;
    int         mult; /* rows per token or output */
    int64_t     width;
} nn_buf_info;

struct nn_tape {
    arena          *mem;
    nn_op          *ops;
    int             n_ops, cap_ops;
    nn_buf_info    *bufs; /* [n_bufs]; entry 0 unused */
    int             n_bufs, cap_bufs;
    int             n_layer;
    const nn_state *state;          /* [n_layer]: what the layers declared, to check ops against */
    int             n_axes;         /* of positions that its rotations know; 0: they take the position itself */
    int             n_parts;        /* of a supplied row: the embedding, and what is added further up */
    bool            strict;         /* some layers do not see spans whole */
    bool            windows;        /* some layers see so many positions only */
    nn_buf          hidden, logits; /* what the head reads (after the last norm), and what it makes of it; 0: no head */
    nn_buf          inner;          /* what a further head makes of inner states (nn_tape_tap); 0: nothing */
    err             error;
    bool            failed;
};

int           nn_tape_open(nn_tape **out, arena *mem, const nn_state *state, int n_layer, err *e);
const char   *nn_op_name(nn_op_kind kind);
const nn_mat *nn_op_weights(const nn_op *op); /* the matrices that an op reads; NULL: none */
/* Adds what a head reads that goes on from inner states: for each of these layers, in rising order, its input times a
 * matrix, added up to output rows. Fails by name where the inputs of layers are not one stream of sums. */
int nn_tape_tap(nn_tape *t, const int *layers, const nn_linear *w, int n, err *e);
/* One line per op: number, name, buffers with widths, weights with types, parameters. */
void nn_tape_print(const nn_tape *t, str *out);
void nn_op_print(const nn_tape *t, const nn_op *op, str *out);
/* The same without the names and types of weights and with rotary frequencies: two files of one model give the same. */
void nn_tape_outline(const nn_tape *t, str *out);

#endif
