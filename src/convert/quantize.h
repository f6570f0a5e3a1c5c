/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file with its matrices in other types, by a mix (convert/mix.h).
 *
 * Metadata is copied; general.file_type says what was done. The file is written piece by piece and can be continued
 * (convert/stream.h).
 */
#ifndef CONVERT_QUANTIZE_H
#define CONVERT_QUANTIZE_H

#include "convert/imatrix.h"
#include "convert/mix.h"
#include "convert/plan.h"
#include "formats/model_file.h"

/* Tensors whose name a pattern (an extended regular expression) finds get the type; the first that fits decides. */
typedef struct quantize_override {
    const char *pattern;
    int         type;
} quantize_override;

/*
 * Measures what types cost: `file` is another opening of the model, whose tensors are replaced while types are tried;
 * `divergence` says how far the file is now from what it was. Trial i of n is for a progress bar.
 */
typedef struct quantize_judge {
    model_file *file;
    int (*divergence)(void *ctx, size_t i, size_t n, double *kl, err *e);
    void *ctx;
} quantize_judge;

typedef struct quantize_options {
    const mix               *mix;
    const quantize_override *overrides;
    size_t                   n_overrides;
    bool                     pure;       /* the mix's base type everywhere */
    const imatrix           *importance; /* NULL: none */
    double                target_bpw; /* types by measured damage, so that the weights have so many bits; 0: the mix */
    const quantize_judge *judge;      /* of target_bpw; NULL: damage is guessed from noise */
    plan_options          write;      /* path, progress; identity is made here */
} quantize_options;

typedef struct quantize_line {
    const char *name;
    tensor_type was, is;
    int64_t     elements;
    bool        fallback; /* its rows do not fit the type that was meant */
    bool        plain;    /* quantized without importance although a matrix was given */
} quantize_line;

typedef struct quantize_result {
    quantize_line *lines; /* one per tensor; quantize_result_deinit frees them. Names are the model's */
    size_t         n;
    plan_result    file;
} quantize_result;

int  gguf_quantize(const model_file *in, const quantize_options *o, pool *p, quantize_result *out, err *e);
void quantize_result_deinit(quantize_result *r);

/* "REGEX=TYPE". ERR_ARG: the type is not known, or the pattern is not one. The pattern is cut out of the text. */
int quantize_override_read(quantize_override *out, char *text, err *e);

/* A number that tells one source file from another: names, sizes, shapes and the beginning of each tensor. */
uint64_t quantize_source_identity(const model_file *in);

#endif
