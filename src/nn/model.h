/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model in memory: a family, its hyper-parameters, its tensors (still in the mapped file) and its tape.
 *
 * The model borrows the file: it must stay open as long as the model lives.
 */
#ifndef NN_MODEL_H
#define NN_MODEL_H

#include "base/arena.h"
#include "base/err.h"
#include "formats/model_file.h"
#include "nn/config.h"
#include "nn/nn.h"
#include "nn/tape.h"
#include "tensor/mat.h"

typedef struct nn_model_options {
    int rope_context; /* the length that dynamic and long rotary rules assume; 0: the trained one */
    /* Another rotary rule than the file's: "none", "linear" or "yarn"; NULL: the file's. Refused for models whose
     * rotation this cannot describe. */
    const char *rope_type;
    double      rope_factor;
    int         rope_original_context; /* 0: as the file says */
} nn_model_options;

/* A tensor, or a part of one, as GGUF would name it: collected while binding, for writing files. */
typedef struct nn_wanted {
    const char       *name; /* "blk.0.attn_q.weight" */
    const nn_vec     *vec;  /* one of the two; both NULL when there is no file */
    const nn_mat     *mat;
    int64_t           cols, rows;  /* of this part; a vec has rows 0 */
    int64_t           n_stack;     /* 0: a plain matrix or vec */
    int64_t           first, step; /* row r of the part is row first + r * step of the tensor */
    int64_t           total;       /* rows of the whole tensor */
    int64_t           fold;        /* a vec that GGUF keeps as rows of this many; 0: one row */
    bool              rotary;      /* rows are heads that GGUF permutes */
    struct nn_wanted *next;        /* the one bound before */
} nn_wanted;

typedef struct nn_model {
    const nn_arch       *arch;
    const model_file    *file;
    const nn_dims       *dims;
    nn_net               net;
    nn_state            *state; /* [n_layer] */
    nn_tape             *tape;
    arena                mem;
    nn_config            config;
    nn_wanted           *wanted;     /* newest first */
    struct nn_bound     *bound;      /* newest first: the matrices by all their names, for adapters */
    struct nn_bound_vec *bound_vecs; /* newest first: the vectors, likewise */
} nn_model;

/* The family for an architecture name; NULL when none of `archs` (NULL-terminated) has it. */
const nn_arch *nn_arch_find(const nn_arch *const *archs, const char *name);

/* Reads hyper-parameters, binds tensors, records the tape. On success the caller owns *out. */
int  nn_model_open(nn_model **out, const model_file *file, const nn_arch *const *archs, const nn_model_options *o,
                   err *e);
void nn_model_free(nn_model *m);

/* How a tensor of a directory lies as a matrix, with the scales beside it where it is packed. */
int nn_tensor_describe(const model_file *file, const model_tensor *t, tensor_mat *out, err *e);

/* A part of a model with its own fields: an object of config.json, or GGUF keys that begin with `keys` and a dot. */
typedef struct nn_part {
    const nn_arch    *arch;
    const json_value *config, *outer; /* of a Hugging Face directory; outer: the whole config.json */
    const char       *keys;           /* of a GGUF file: "clip.vision" */
    /* What holds where the file is silent, by GGUF's keys. */
    const nn_config_set *usual;
    size_t               n_usual;
} nn_part;
int nn_model_open_part(nn_model **out, const model_file *file, const nn_part *part, err *e);

/* Without a file: collects what a model with these values would need. There is no tape and no data. */
int nn_model_sketch(nn_model **out, const nn_arch *arch, const nn_config_set *set, size_t n_set, err *e);

#endif
