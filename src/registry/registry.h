/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which models are on this machine: a catalogue in one SQLite file.
 *
 * Tables: models (one row per name), adapters, tags and cache_entries; the statements that make them stand in
 * registry.c. PRAGMA user_version counts the migrations that a file has seen; a file of a newer program is refused.
 * Write-ahead logging with full sync: what a function reported as done survives kill -9, and other processes may read
 * and write at the same time. A registry is used by one thread.
 *
 * Names are 1 to 127 letters, digits and . _ - : / @ and begin with a letter or digit; "x" and "x:latest" are the same.
 */
#ifndef REGISTRY_REGISTRY_H
#define REGISTRY_REGISTRY_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct registry registry;

/* Texts are owned by whoever got the model from here (registry_model_deinit); NULL: not known. */
typedef struct registry_model {
    int64_t id;
    char   *name, *family, *format, *path, *dtype, *quant, *sha256, *source;
    int64_t params, n_ctx, n_layer, vocab_size, size;
    int64_t created_at, last_used; /* seconds since 1970; last_used 0: never */
} registry_model;
void registry_model_deinit(registry_model *m); /* accepts a zeroed one */

/* Makes the file, and the folder it lies in, if need be. */
int  registry_open(registry **out, const char *path, err *e);
void registry_close(registry *r); /* accepts NULL */

/* Sets m->id. A name that is taken is ERR_ARG unless replace. */
int registry_add(registry *r, registry_model *m, bool replace, err *e);
int registry_find(registry *r, const char *name, registry_model *out, err *e); /* ERR_NOTFOUND */
/* In the order of names; the caller deinits every one and frees *out. */
int registry_list(registry *r, registry_model **out, size_t *n, err *e);
/* Forgets a name and what hangs on it; the files of a model are not the registry's. */
int registry_remove(registry *r, const char *name, err *e);
/* The same model under another name, with its tags, adapters and blobs. To its own name: nothing happens. */
int registry_copy(registry *r, const char *from, const char *to, bool replace, err *e);
/* A number that changes when another handle or process has changed the file. Cheap: asked at every request. */
int registry_changes(registry *r, int64_t *out, err *e);
int registry_touch(registry *r, const char *name, err *e); /* it was used now */

/* Tags of a model: key and value. */
int registry_tag(registry *r, const char *name, const char *key, const char *value, err *e); /* value NULL: removes */
/* ERR_NOTFOUND if it has none of this key. The caller frees. */
int registry_tag_get(registry *r, const char *name, const char *key, char **out, err *e);

bool registry_name_ok(const char *name);

#endif
