/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixes: the published recipes by which a quantized file gives its tensors different types ("Q4_K_M").
 *
 * A mix has a base type and rules: a role (what a tensor does in its layer), conditions on the layer and the model, and
 * the type. The first rule that fits decides. The rules are those of the widely used quantizer, so that a file made here
 * has the types that people expect behind a name.
 */
#ifndef CONVERT_MIX_H
#define CONVERT_MIX_H

#include "base/err.h"
#include "tensor/types.h"

typedef struct mix mix;

/* By name in any case; "Q4_K" means Q4_K_M. ERR_ARG with near names otherwise. */
int         mix_find(const mix **out, const char *name, err *e);
const mix  *mix_at(size_t i); /* NULL behind the last */
const char *mix_name(const mix *m);
tensor_type mix_base(const mix *m);
int         mix_number(const mix *m); /* general.file_type */

/* What the rules ask of a model. */
typedef struct mix_model {
    int  n_layers; /* with those that predict further tokens */
    int  n_experts;
    int  heads, kv_heads; /* of the first layer */
    bool falcon;          /* the family with other rules for its down projections */
    bool importance;      /* an importance matrix is used */
} mix_model;

typedef struct mix_tensor {
    const char *name;
    int         n_dims;
    int64_t     cols, stack; /* stack: the third dimension */
    tensor_type type;        /* as it is; mix_types replaces it */
    bool        fallback;    /* out: its rows do not fit what the mix wanted */
} mix_tensor;

/* Whether a tensor of this name and shape is quantized at all; what is small and felt everywhere is not. */
bool mix_quantizes(const char *name, int n_dims);

/* Sets the type of every tensor. pure: no rules but the base type. forced, of one entry per tensor or NULL, has types
 * (or -1) that beat the mix. */
int mix_types(const mix *m, const mix_model *model, mix_tensor *tensors, size_t n, bool pure, const int *forced,
              err *e);

/* The type that rows of cols elements get when those of `wanted` do not fit. */
tensor_type mix_fit(tensor_type wanted, int64_t cols);

/* Whether weights become this type only with an importance matrix. */
bool mix_needs_importance(const mix *m, tensor_type type);

#endif
