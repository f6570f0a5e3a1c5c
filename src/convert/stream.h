/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large file written in pieces that are made while it is written.
 *
 * The layout of the file is known before the first row is made: a head, then tensors at their offsets, zeros between
 * them. Rows are made in pieces of about a megabyte (less where they are made from far more), by as many threads as the pool has; a thread makes a piece, writes
 * it to its place and notes it in a journal. Which rows a piece has depends on the file alone, so the bytes are the same
 * for any number of threads, and memory is a few megabytes per thread whatever the model's size.
 *
 * While it grows the file is called PATH.partial, its journal PATH.journal. Success renames the one and removes the
 * other. When the process is killed both stay, and the same job goes on from there: a piece that the journal names is
 * read back and kept if its checksum is right. An orderly failure (a stop that was asked for, a full disk) removes both,
 * unless `keep` is set.
 *
 * Journal, little-endian: "HRTHJRN1", u64 identity of the job, u64 pieces; then per piece u64 number, u64 XXH64 of its
 * bytes, u64 XXH64 of the two. A record that was cut off is ignored.
 */
#ifndef CONVERT_STREAM_H
#define CONVERT_STREAM_H

#include "base/err.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes n rows from `first` on. scratch: as many floats as the tensor asked for. Called by several threads. */
typedef int (*stream_fill)(const void *ctx, int64_t first, int64_t n, void *out, float *scratch, err *e);

typedef struct stream_tensor {
    uint64_t    offset; /* in the file */
    int64_t     rows;
    size_t      row_bytes;
    size_t      read_bytes; /* what a row is made from, where that is more than the row */
    size_t      scratch;
    stream_fill fill;
    const void *ctx;
} stream_tensor;

typedef struct stream_job {
    const char          *path;
    const void          *head;
    size_t               head_bytes;
    const stream_tensor *tensors; /* by offset */
    size_t               n_tensors;
    uint64_t             bytes;    /* of the whole file */
    uint64_t             identity; /* of what the rows are made from: another one does not continue */
    bool                 keep;
    bool (*progress)(void *ctx, uint64_t done,
                     uint64_t total); /* may be NULL; false: stop. From one thread at a time */
    void *progress_ctx;
    /* May be NULL; after every STREAM_REST bytes or so, written or read, whichever are more; from any thread. */
    void (*rest)(const void *ctx);
    const void *rest_ctx;
} stream_job;

enum { STREAM_SHA256 = 65, STREAM_REST = 64 << 20 };

typedef struct stream_result {
    uint64_t checksum;              /* XXH64 of the pieces' checksums: depends on the bytes alone */
    uint64_t resumed;               /* bytes that were there already */
    char     sha256[STREAM_SHA256]; /* of the file, in hexadecimal */
} stream_result;

int stream_write(const stream_job *j, pool *p, stream_result *out, err *e);

/* SHA-256 of a file's bytes. */
int stream_sha256(const char *path, char out[STREAM_SHA256], err *e);

/* Bytes that can be written beside `path`; 0 where the system does not say. */
uint64_t stream_room(const char *path);
/* ERR_IO with the bytes that are missing where `need` of them do not fit there. */
int stream_check_room(const char *path, uint64_t need, err *e);

/* Gives back the pages of a mapped file that were read: they can be read again, at the cost of reading them again. */
void stream_forget(const void *data, size_t bytes);

#endif
