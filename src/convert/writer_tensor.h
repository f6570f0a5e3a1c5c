/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor that a writer takes: checked, then noted in the writer's table. */
#ifndef CONVERT_WRITER_TENSOR_H
#define CONVERT_WRITER_TENSOR_H

#include "formats/table.h"

typedef struct writer_tensor {
    const char    *name;
    tensor_type    type;
    int            n_dims;
    const int64_t *dims; /* fastest first */
    const void    *data;
    size_t         bytes;
} writer_tensor;

/* What a format allows: dimensions, the smallest of them, and whether it has the type. */
typedef struct writer_limits {
    const char *format;
    int         max_dims;
    int64_t     least;
    bool (*has_type)(tensor_type type);
} writer_limits;

int writer_tensor_add(tensor_table *t, const writer_tensor *w, const writer_limits *l, err *e);

#endif
