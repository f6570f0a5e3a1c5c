/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person wants to know about a model before running it, gathered from metadata, config and tensor shapes.
 *
 * Every field comes from an untrusted file: numbers are checked for range, strings are views that may hold anything.
 * A fact that the file does not state is 0, NULL or an empty view, never a guess.
 */
#ifndef FORMATS_SUMMARY_H
#define FORMATS_SUMMARY_H

#include "base/arena.h"
#include "formats/model_file.h"

#define SUMMARY_MAX_TYPES 96

typedef struct summary_type {
    char     label[24]; /* "Q4_K", "BF16", "MLX 4-bit g64" */
    size_t   tensors;   /* a packed module with its scales and biases counts as one */
    size_t   bytes;
    uint64_t parameters;
} summary_type;

typedef struct model_summary {
    const char *format; /* "GGUF", "Hugging Face", "MLX" */
    view        name, arch;
    view        method; /* quant_method of a Hugging Face config.json */

    uint64_t     parameters; /* logical elements: packed values count, their scales do not */
    size_t       file_bytes, weight_bytes;
    size_t       tensors;
    summary_type types[SUMMARY_MAX_TYPES]; /* most bytes first */
    size_t       n_types;
    char level[24]; /* what people call the file: "Q4_K_M" where it names its mix, else the first type's label */

    int64_t context, layers, embedding, heads, kv_heads, vocabulary;

    view    tokenizer, pre; /* "gpt2", "llama-bpe" / "BPE" */
    int64_t tokens;
    view    template_source; /* a metadata key or a file name; empty: the model carries none */
    size_t  template_bytes;

    /* For one sequence of `context` tokens in 16-bit floats. */
    bool        kv_known;
    uint64_t    kv_bytes;
    const char *kv_assumption;
    arena       mem;
} model_summary;

/* Views point into m, into literals or into s. A sidecar that cannot be read is as good as absent. */
void model_summary_read(model_summary *s, const model_file *m);
void model_summary_deinit(model_summary *s);

/* One "label" per type; for a tensor list. The elements it stands for; 0 for scales and other helpers of a packed one.
 */
uint64_t model_summary_tensor(const model_file *m, const model_tensor *t, char label[24]);

#endif
