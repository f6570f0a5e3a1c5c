/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny random models in memory: a tape over random weights, as a family would record it, but of any shape. */
#ifndef TESTS_BACKEND_GEN_H
#define TESTS_BACKEND_GEN_H

#include "backend/suite.h"

typedef enum gen_mixer {
    GEN_ATTN,
    GEN_WINDOW,
    GEN_LATENT,
    GEN_CHOSEN, /* attention over chosen positions; any other where the device has none */
    GEN_CONV,
    GEN_DELTA,
    GEN_SSM,
    GEN_SCAN,
    GEN_MIXERS,
    GEN_STEP = GEN_MIXERS, /* sees the whole input: then all layers do, and batches hold whole sequences */
} gen_mixer;
typedef enum gen_ffn { GEN_GLU, GEN_MLP, GEN_MOE, GEN_FFNS } gen_ffn;

enum { GEN_ANY = -1 };

typedef struct gen_want {
    int type;       /* tensor_type of matrices, where their rows are whole blocks of it; GEN_ANY */
    int mixer, ffn; /* of the first layer; GEN_ANY. The other layers are any */
    int n_layer;    /* 0: 1 to 3 */
    int until;      /* of layers that keep all positions: the first one that is not seen; 0: any may be */
} gen_want;

nn_model *gen_model(suite *s, gen_want want); /* never NULL: without memory the program ends */
void      gen_free(nn_model *m);

/* A model of one product with this type, whatever it is: for asking a backend whether it takes it. rows 0: a few. */
nn_model *gen_product(suite *s, int type, bool embedding, int rows);
/* Whether random weights of this type can be made at all. */
bool gen_type_known(int type);

#endif
