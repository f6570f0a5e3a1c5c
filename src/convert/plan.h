/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file will consist of, before any of it is made: output tensors, each with its type and where its rows come
 * from. Sizes follow from the plan, so the header is written first and rows are made piece by piece (convert/stream.h).
 */
#ifndef CONVERT_PLAN_H
#define CONVERT_PLAN_H

#include "convert/gguf_writer.h"
#include "convert/stream.h"
#include "tensor/mat.h"

/* Rows of a source. `raw` gives a row's bytes in `type`, or is NULL; `floats` may be NULL where raw's type can be
 * dequantized. */
typedef struct row_source {
    tensor_type type;
    const void *(*raw)(const void *ctx, int64_t row);
    void (*floats)(const void *ctx, int64_t row, float *out);
    const void *ctx;
    size_t      raw_bytes; /* of a row; rows lie one behind the other when contiguous is set */
    bool        contiguous;
} row_source;

typedef struct plan_tensor {
    const char  *name;
    tensor_type  type;
    int          n_dims;
    int64_t      dims[4]; /* fastest first */
    row_source   from;
    const float *importance;      /* of the columns; NULL: all count alike */
    int64_t      importance_rows; /* after so many rows the next column weights begin; 0: never */
} plan_tensor;

typedef struct plan_options {
    const char *path;
    uint64_t    identity;
    bool        keep, dry; /* dry: sizes only, nothing is written */
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
} plan_options;

typedef struct plan_result {
    uint64_t bytes, elements, weight_bytes; /* of the file; of its tensors */
    uint64_t checksum, resumed;
} plan_result;

int64_t plan_rows(const plan_tensor *t); /* the product of all dimensions but the first */

/* The keys were set before; the tensors are added here. The plan must outlive the call. */
int plan_write_gguf(gguf_writer *w, const plan_tensor *tensors, size_t n, const plan_options *o, pool *p,
                    plan_result *out, err *e);

/* A source over the rows of a matrix; m must outlive it. Stacked experts follow each other. */
row_source row_source_mat(const tensor_mat *m);

#endif
