/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Importance matrices: for every product with a weight the sum of squares of its input, by column and by expert, over
 * some text. An error in a column of the weight costs as much as that column's input is large.
 *
 * Files are GGUF (general.type "imatrix"; per weight W the tensors W.in_sum2, F32 {columns, experts}, and W.counts, F32
 * {1, experts}; imatrix.datasets, imatrix.chunk_count, imatrix.chunk_size). The older format is read, too: i32 entries;
 * per entry i32 length, name, i32 calls, i32 values, F32 values (mean times calls); at the end, where they are not
 * missing, i32 chunks, i32 length and the name of the text. Sums of several texts can be added.
 */
#ifndef CONVERT_IMATRIX_H
#define CONVERT_IMATRIX_H

#include "base/err.h"
#include "convert/gguf_writer.h"

#include <stdint.h>

typedef struct imatrix imatrix;

typedef struct imatrix_entry {
    const char *name; /* of the weight */
    int64_t     cols, experts;
    double     *sums;   /* cols for each expert */
    double     *counts; /* rows that each expert has seen */
    float      *mean;   /* what imatrix_find gives; made by it */
} imatrix_entry;

int  imatrix_open(imatrix **out, err *e); /* an empty one */
void imatrix_free(imatrix *m);
int  imatrix_read(imatrix **out, const char *path, err *e);
int  imatrix_read_memory(imatrix **out, const void *data, size_t bytes, err *e);
int  imatrix_write(const imatrix *m, const char *path, err *e); /* GGUF, atomically */

/* The entry of a weight, made empty when it is not there. ERR_FORMAT: it is there with another shape. */
int imatrix_entry_for(imatrix *m, const char *name, int64_t cols, int64_t experts, imatrix_entry **out, err *e);

/* Adds the sums of another one. */
int imatrix_add(imatrix *to, const imatrix *from, err *e);

size_t               imatrix_count(const imatrix *m);
const imatrix_entry *imatrix_at(const imatrix *m, size_t index);

/* What was read: a text, in chunks of so many tokens. */
int     imatrix_add_text(imatrix *m, const char *name, int64_t chunks, int64_t chunk_size, err *e);
int64_t imatrix_chunks(const imatrix *m);

/* Mean squares for cols * experts columns of a weight; NULL when it is not there or has another shape. An expert that
 * saw nothing has ones. */
const float *imatrix_find(const imatrix *m, const char *name, int64_t cols, int64_t experts);

/* Keys of a file that was quantized with it. */
int      imatrix_note(const imatrix *m, gguf_writer *w, err *e);
uint64_t imatrix_identity(const imatrix *m);

#endif
