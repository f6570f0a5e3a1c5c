/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file will consist of, before any of it is made: output tensors, each with its type and where its rows come
 * from. Sizes follow from the plan, so the header is written first and rows are made piece by piece (convert/stream.h).
 */
#ifndef CONVERT_PLAN_H
#define CONVERT_PLAN_H

#include "convert/gguf_writer.h"
#include "convert/stream.h"
#include "formats/model_file.h"
#include "tensor/mat.h"

/* Rows of a source. `raw` gives a row's bytes in `type`, or is NULL; `floats` may be NULL where raw's type can be
 * dequantized. `make`, where it is set, makes a row's bytes as they are written, and needs `scratch` floats for it. */
typedef struct row_source {
    tensor_type type;
    const void *(*raw)(const void *ctx, int64_t row);
    void (*floats)(const void *ctx, int64_t row, float *out);
    int (*make)(const void *ctx, int64_t row, void *out, float *scratch, err *e);
    const void *ctx;
    size_t      scratch;
    size_t      read_bytes; /* make: what a row is made from */
    size_t      raw_bytes;  /* of a row; rows lie one behind the other when contiguous is set */
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
    /* What rows come from: memory of what was read of them is given back while the file grows. */
    const model_file *const *from;
    int                      n_from;
    bool (*progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
} plan_options;

typedef struct plan_result {
    uint64_t bytes, elements, weight_bytes; /* of the file; of its tensors */
    uint64_t checksum, resumed;
    char     sha256[STREAM_SHA256]; /* of the file, in hexadecimal; empty when nothing was written */
} plan_result;

int64_t plan_rows(const plan_tensor *t); /* the product of all dimensions but the first */

/* The keys were set before; the tensors are added here. The plan must outlive the call. */
int plan_write_gguf(gguf_writer *w, const plan_tensor *tensors, size_t n, const plan_options *o, pool *p,
                    plan_result *out, err *e);

/* The same as a safetensors file; format: what its metadata calls the layout ("pt", "mlx"). */
int plan_write_safetensors(const plan_tensor *tensors, size_t n, const char *format, const plan_options *o, pool *p,
                           plan_result *out, err *e);

/* The bytes of a planned tensor; false: its type and shape do not fit. */
bool plan_bytes(const plan_tensor *t, size_t *row_bytes, size_t *bytes);

/* A row of a source as numbers. */
void row_source_floats(const row_source *s, int64_t row, float *out, int64_t cols);

/* A source over the rows of a matrix; m must outlive it. Stacked experts follow each other. */
row_source row_source_mat(const tensor_mat *m);

#endif
