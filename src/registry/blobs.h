/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of models, stored by what is in them: D/blobs/sha256-<64 hex>, where D is the folder of the registry's
 * file.
 *
 * A blob under its own name is complete, was verified against that name and is never written again (mode 0444). Beside
 * it may lie <name>.partial and <name>.partial.json (a download under way or broken off, see transfer.h), and
 * <name>.lock, a lock file. The tables: blobs (digest, size) and model_blobs (which model uses which).
 *
 * Locks (flock, so kill -9 releases them): who makes a blob holds its lock alone; who needs it holds it shared (a pin)
 * until a model that uses it is in the registry; who frees it holds it alone. So nothing is freed between download and
 * registration, and no blob is made twice at once, whatever the number of processes. No one waits for a lock while
 * holding another one alone.
 *
 * A model of several files is a folder of relative links to blobs, D/models/<owner>/<repo>/<revision>/.
 *
 * A digest is written "sha256:<64 lower-case hex>" everywhere but in file names.
 */
#ifndef REGISTRY_BLOBS_H
#define REGISTRY_BLOBS_H

#include "base/err.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BLOB_DIGEST_CHARS = 7 + 64 + 1 };

bool blob_digest_ok(const char *digest);
void blob_digest_write(char out[BLOB_DIGEST_CHARS], const uint8_t sum[32]);

/* Where a blob lies or would lie, with a suffix ("" or ".partial"); the caller frees. */
int registry_blob_path(registry *r, const char *digest, const char *suffix, char **out, err *e);
/* Is it there, complete? size may be NULL. */
bool registry_blob_has(registry *r, const char *digest, int64_t *size);
/* D + "/" + name; the caller frees. */
int registry_data_path(registry *r, const char *name, char **out, err *e);

/* --- pins --- */

typedef struct blob_lock {
    int   fd; /* -1: holds nothing */
    char *path;
} blob_lock;

#define BLOB_LOCK_NONE ((blob_lock){ .fd = -1 })

/* A shared lock on a blob that is there; ERR_NOTFOUND if it is not. */
int registry_blob_pin(registry *r, const char *digest, blob_lock *out, err *e);
/* The lock of a maker. ERR_BUSY: another holds it (try again later). */
int registry_blob_try_lock(registry *r, const char *digest, blob_lock *out, err *e);
/* Turns a maker's lock into a pin. ERR_NOTFOUND: the blob was freed in between; the lock is gone, too. */
int  registry_blob_lock_to_pin(registry *r, const char *digest, blob_lock *l, err *e);
void blob_unlock(blob_lock *l); /* accepts BLOB_LOCK_NONE */

/* --- making --- */

/*
 * A blob from bytes that come one after the other. With a digest they must have it, or the commit is ERR_FORMAT and
 * nothing stays; without (NULL) they get the one they have. On success the blob is there and pinned.
 */
typedef struct blob_writer {
    registry             *r;
    struct evp_md_ctx_st *sum;
    int64_t               size;
    int                   fd;
    char                 *temp;
    char                  want[BLOB_DIGEST_CHARS]; /* "" if any will do */
} blob_writer;

int  blob_writer_begin(blob_writer *w, registry *r, const char *digest, err *e);
int  blob_writer_put(blob_writer *w, const void *data, size_t bytes, err *e);
int  blob_writer_commit(blob_writer *w, char digest[BLOB_DIGEST_CHARS], blob_lock *pin, err *e); /* ends w always */
void blob_writer_abort(blob_writer *w); /* accepts an ended one */

/* Gives a verified file (on the file system of the blobs) its name; the caller holds the maker's lock. */
int registry_blob_adopt(registry *r, const char *digest, const char *path, err *e);

/* --- models and blobs --- */

/* Says that a model uses a blob (pinned by the caller, or used by another model). */
int registry_blob_link(registry *r, int64_t model_id, const char *digest, int64_t size, err *e);
/* The digests of a model, in order; the caller frees each and *out. */
int registry_blob_list(registry *r, int64_t model_id, char ***out, size_t *n, err *e);

/*
 * Frees the blobs that no model uses and no one has pinned, and the folders below D/models in which no model lies. Call
 * it after models went. *freed (may be NULL): bytes of the blobs.
 */
int registry_blob_sweep(registry *r, int64_t *freed, err *e);

/*
 * The lock under which folders below D/models are made and swept: held from making a folder until its model is in the
 * registry. Waits.
 */
int registry_folders_lock(registry *r, blob_lock *out, err *e);

#endif
