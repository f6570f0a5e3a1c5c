/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a tensor that lie across the rows of others: matrices that Hugging Face stores inputs by outputs (GPT-2,
 * experts of gpt-oss and Llama 4), and the matrix of latent attention whose key half GGUF files turn head by head.
 * Columns are read in tiles, a block of each row at a time, so that nothing is decoded twice.
 */
#ifndef CONVERT_TURNED_H
#define CONVERT_TURNED_H

#include "convert/rows.h"

/* Tiles that were decoded last, for all tensors of a plan; threads take turns. */
typedef struct turned_tiles turned_tiles;
/* most: the largest number of rows of a map that is turned. In mem; turned_tiles_close ends its lock. */
turned_tiles *turned_tiles_open(int64_t most, arena *mem);
void          turned_tiles_close(turned_tiles *t);

/* Row s * cols + c is column c of the s-th matrix. */
typedef struct rows_turned {
    const rows_map *map;
    int64_t         cols;
    turned_tiles   *tiles;
} rows_turned;
row_source rows_turned_source(const rows_turned *x);

/* Heads one behind the other, `stride` rows each, of which parts take some. */
typedef struct rows_heads {
    struct {
        const nn_mat *mat;      /* one matrix per head */
        int64_t       first, n; /* rows of the head */
        bool          turned;   /* they are its columns */
    } parts[2];
    int     n;
    int64_t stride;
} rows_heads;
row_source rows_heads_source(const rows_heads *x);
bool       rows_heads_plain(const rows_heads *x); /* nothing is quantized */
bool       rows_heads_complete(const rows_heads *x);

#endif
