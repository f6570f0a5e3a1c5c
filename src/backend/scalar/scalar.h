/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the reference backend. */
#ifndef BACKEND_SCALAR_SCALAR_H
#define BACKEND_SCALAR_SCALAR_H

#include "backend/local.h"

/* Positions of one layer: page p, slot t at k + (p * page_tokens + t) * k_width. */
typedef struct scalar_layer {
    float  *k, *v;
    int64_t k_width, v_width;
    float  *fixed; /* [n_slots][fixed_floats] */
    size_t  fixed_floats;
} scalar_layer;

typedef struct scalar_exec {
    local_exec    base;
    scalar_layer *layers;
    float        *row;   /* one dequantized weight row */
    double       *score; /* max_pages * page_tokens */
} scalar_exec;

void scalar_attention(scalar_exec *x, const nn_op *op);
void scalar_latent_attention(scalar_exec *x, const nn_op *op);
void scalar_kv_store(scalar_exec *x, const nn_op *op);
void scalar_conv(scalar_exec *x, const nn_op *op);
void scalar_delta(scalar_exec *x, const nn_op *op);
void scalar_ssm(scalar_exec *x, const nn_op *op);
void scalar_scan(scalar_exec *x, const nn_op *op);
void scalar_route(scalar_exec *x, const nn_op *op);

int scalar_move(nn_exec *base, const nn_move *moves, int n, nn_ticket *ticket, err *e);

double scalar_act(nn_act_kind act, double v);

#endif
