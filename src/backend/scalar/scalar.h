/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the reference backend. */
#ifndef BACKEND_SCALAR_SCALAR_H
#define BACKEND_SCALAR_SCALAR_H

#include "backend/local.h"

/* Positions of one layer: page p, slot t at k + (p * page_tokens + t) * k_width. */
typedef struct scalar_layer {
    float  *k, *v, *index;
    int64_t k_width, v_width, index_width;
    float  *fixed; /* [n_slots][fixed_floats] */
    size_t  fixed_floats;
} scalar_layer;

typedef struct scalar_exec {
    local_exec    base;
    scalar_layer *layers;
    float        *row;   /* one dequantized weight row */
    double       *score; /* max_pages * page_tokens */
    bool         *taken; /* the same */

    const nn_adapter_set *sets[NN_MAX_SETS + 1];
} scalar_exec;

/* Where position p of sequence s lies: an index into a layer's [page][slot] array. */
size_t scalar_slot_of(const scalar_exec *x, int layer, int s, int64_t p);
void   scalar_index_store(scalar_exec *x, const nn_op *op);
void   scalar_choose(scalar_exec *x, const nn_op *op);
/* Takes from score[0 .. hi) of row t what key head g of n_kv does not see, where positions were chosen. */
void scalar_keep_chosen(scalar_exec *x, const nn_choice *c, int t, int g, int n_kv, int64_t hi);
void scalar_attention(scalar_exec *x, const nn_op *op);
void scalar_latent_attention(scalar_exec *x, const nn_op *op);
void scalar_kv_store(scalar_exec *x, const nn_op *op);
void scalar_conv(scalar_exec *x, const nn_op *op);
void scalar_delta(scalar_exec *x, const nn_op *op);
void scalar_ssm(scalar_exec *x, const nn_op *op);
void scalar_scan(scalar_exec *x, const nn_op *op);
void scalar_route(scalar_exec *x, const nn_op *op);

int scalar_adapt_set(nn_exec *base, int number, const nn_adapter_set *set, err *e);
int scalar_adapt_begin(scalar_exec *x, err *e);
/* What the set of a row of the op's output does to the op; NULL: nothing. */
const nn_set_op *scalar_adapt_of(const scalar_exec *x, const nn_op *op, int64_t row);
void scalar_adapt_row(scalar_exec *x, const nn_set_op *o, const tensor_mat *m, int expert, const float *bias,
                      const float *in, float *out, bool acc);
void scalar_adapt_embed(const nn_set_op *o, const nn_op *op, int32_t token, float *y);

int scalar_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);

double scalar_act(nn_act_kind act, double v);

#endif
