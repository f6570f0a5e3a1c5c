/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model written as a directory: weights in one or several safetensors files with an index, small files beside them.
 *
 * While it grows the directory is called PATH.partial; it is renamed when everything in it is complete. Every weight file
 * is written piece by piece and continued after a crash (convert/stream.h); a file `.job` in it says what the directory
 * is made of, and one of another job is emptied first. An orderly failure removes the directory unless `keep` is set.
 */
#ifndef CONVERT_DIR_H
#define CONVERT_DIR_H

#include "convert/plan.h"

typedef struct dir_file {
    const char *name;
    const void *data;
    size_t      bytes;
} dir_file;

typedef struct dir_job {
    const plan_tensor *tensors;
    size_t             n_tensors;
    const plan_tensor *beside; /* in a safetensors file of another name, which is not a weight file */
    size_t             n_beside;
    const char        *beside_name;
    const dir_file    *files; /* beside the weights */
    size_t             n_files;
    const char        *format;      /* "pt" or "mlx" */
    uint64_t           shard_bytes; /* of a weight file, at most; 0: 5 GB */
    plan_options       write;       /* path, identity, progress */
    /* Called when everything is written, before the directory gets its name; a failure ends the job. May be NULL. */
    int (*check)(void *ctx, const char *dir, err *e);
    void *check_ctx;
} dir_job;

/* bytes, elements and weight_bytes of all weight files. sha256: of the list of them, "DIGEST  NAME\n" each, which is what
 * sha256sum prints. */
int dir_write(const dir_job *j, pool *p, plan_result *out, err *e);

#endif
