/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing GGUF files from what binding a model has noted: names, shapes and values as published files have them.
 *
 * export_gguf turns an opened model (usually a Hugging Face directory) into a GGUF file; weights keep their type.
 * synth_gguf writes a model that does not exist: any family, any size, any weight type, random weights, a vocabulary
 * that a tokenizer accepts. Both leave tokenizers of real models alone (the converter of checkpoints is another tool).
 */
#ifndef CONVERT_EXPORT_H
#define CONVERT_EXPORT_H

#include "convert/plan.h"
#include "formats/gguf.h"
#include "nn/model.h"

int export_gguf(const nn_model *m, const char *path, err *e);

typedef struct synth_options {
    const nn_arch       *arch;
    const nn_config_set *set; /* hyper-parameters by GGUF key, without the architecture */
    size_t               n_set;
    int                  type; /* tensor_type of matrices; rows that are not a whole number of blocks become F16 */
    int64_t              n_vocab;
    uint64_t             seed;
    double      outliers;  /* two channels of each key head are a third of this to this times as large; 0: none */
    const char *rank_form; /* makes it a ranking model that is asked in this form; NULL: it is none */
    const char *control;   /* texts of further control tokens, separated by commas; NULL: none */
    const char *vectors;   /* that the family need not have, of every layer: NAME=N or NAME=NxSTACK, with commas */
    bool        untied;    /* the head has a matrix of its own */
} synth_options;

int synth_gguf(const synth_options *s, const char *path, err *e);

/* The tensors of a GGUF file of this model, in mem, with their rows where they lie. Weights whose type GGUF does not have
 * are planned as F16 and have no raw rows. */
int export_plan(const nn_model *m, arena *mem, plan_tensor **out, size_t *n, err *e);

/* The metadata that a model's configuration noted; tensors: also those that follow from it. */
int export_keys(gguf_writer *w, const nn_model *m, bool tensors, err *e);

#endif
