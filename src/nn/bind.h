/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the binder: names to tensors to matrices. */
#ifndef NN_BIND_H
#define NN_BIND_H

#include "nn/model.h"
#include "tensor/mat.h"

struct nn_binder {
    nn_model          *model;
    const model_file  *file; /* NULL: a sketch; everything that is not optional is noted, nothing is bound */
    arena             *mem;
    bool               gguf;
    bool               one_added; /* a directory whose norms hold what NN_PLUS_ONE would add; see bind_one_added */
    char               gguf_prefix[32], hf_prefix[64]; /* "" in bind_top */
    const char *const *roots;                          /* NULL: those of bind.c */
    int                root;                           /* which spelling of "model." this file uses; see bind.c */
    err                error;
    bool               failed;
};

/*
 * Qwen3-Next and its kin as MLX's tools save them: 1 is added to the norms, and the kernels of the convolutions are turned
 * to [channels][taps][1], which transformers has as [channels][1][taps]. The latter tells the former.
 */
bool bind_one_added(const model_file *f);

/* One alternative of a name, with what stands behind it. */
typedef struct bind_name {
    char name[200]; /* complete, '*' still in it */
    bool transposed;
    int  part, parts; /* parts 0: the whole */
    bool interleaved;
} bind_name;

/* What a tensor of the file turned out to be. */
typedef struct bind_found {
    const model_tensor *tensor;
    char                module[256]; /* its name without the ending: companions hang on it */
    char                ending;      /* 'w' ".weight", '=' the name itself, 'b' "_blocks" */
} bind_found;

/* Which rows of the file's tensor a binding takes. */
typedef struct bind_wish {
    int64_t  cols, rows;   /* of the result */
    int64_t  first, total; /* rows of the tensor (or of the part that the name says) */
    int      stack;        /* 0: a plain matrix */
    unsigned flags;
} bind_wish;

/* Spellings of "model." in Hugging Face files; NULL ends. */
extern const char *const bind_roots[];

/* Cuts the next alternative off *list; false at the end. */
bool bind_next_name(const char **list, const char *prefix, bind_name *out);

/* Notes under which names a matrix may be meant (nn/bound.h). */
void bind_record(nn_binder *b, const nn_mat *mat, const char *gguf, const char *hf, const bind_wish *w);

void bind_record_vec(nn_binder *b, const nn_vec *vec, const char *hf, unsigned flags);

/* The newest one's rows lie in Hugging Face's tensor as nn_bind_runs says. */
void bind_record_runs(nn_binder *b, int parts, int part, const nn_run *runs, int n_runs);

void bind_fail(nn_binder *b, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* A companion: module + ending. */
const model_tensor *bind_companion(nn_binder *b, const bind_found *f, const char *ending);

/* The whole tensor as a matrix (n_experts set for 3-D ones); false after bind_fail. */
bool bind_describe(nn_binder *b, const bind_found *f, unsigned flags, tensor_mat *out);
/* Rows first, first + step, ... of m; copies where a view cannot say it. */
bool bind_take_rows(nn_binder *b, const char *name, tensor_mat *m, int64_t first, int64_t step, int64_t rows);
/* A transposed copy; plain element types only. */
bool bind_transpose(nn_binder *b, const char *name, tensor_mat *m);
/* n values as f32. */
const float *bind_floats(nn_binder *b, const model_tensor *t, int64_t *n);

#endif
