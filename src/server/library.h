/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's view of the registry: which of its models the host offers, and work on it that takes a while.
 *
 * library_refresh is called before every request is handled. It asks the registry's file for its change counter, and
 * only if that has moved compares the list with what the host offers; so a model that another process pulled, created
 * or removed is seen by the next request. Pulls and creations run on threads of their own; several clients that pull
 * the same model share one pull, which goes on until the last of them has left. Everything here may be called from any
 * thread but the I/O thread, unless it says otherwise.
 */
#ifndef SERVER_LIBRARY_H
#define SERVER_LIBRARY_H

#include "host/host.h"
#include "registry/adapters.h"
#include "registry/pull.h"
#include "registry/registry.h"
#include "registry/search.h"

typedef struct library library;
typedef struct feed    feed;

typedef struct library_options {
    const char *path; /* of the registry's file; copied */
    host       *host; /* borrowed */
    /* Offers a model to the host, with the settings that hold for it. Not called twice at once. */
    int (*add)(void *ctx, const char *name, const char *path, err *e);
    void        *ctx;
    pull_request pull; /* where models come from; its texts stay with the caller, name and as are ignored */
} library_options;

/* Offers what is there already. A model that cannot be offered is logged and left out. */
int library_open(library **out, const library_options *o, err *e);
/* Cancels and waits for what is under way. After the server ran, before it is freed. Accepts NULL. */
void library_free(library *l);

void library_refresh(library *l); /* accepts NULL */

/* The settings that the registry has for a model (JSON), or NULL; the caller frees. Accepts l == NULL. */
void library_settings(library *l, const char *name, char **out);

/* The own name of a model that is called by where it came from; false: none, or several. The caller frees *out. */
bool library_resolve(library *l, view name, char **out);
/* The named adapters of a model, in the registry's order; none: 0. Accepts l == NULL. The caller deinits each and frees
 * *out. */
void library_adapters(library *l, const char *model, registry_adapter **out, size_t *n);
/* What the registry knows about a model; false: nothing. The caller deinits. Accepts l == NULL. */
bool library_find(library *l, const char *name, registry_model *out);

/* A request for this model was taken: the registry's last_used follows, at most once a minute. Accepts l == NULL. */
void library_used(library *l, view name);

/* A handle of one's own, made if need be; the caller closes it. */
int library_registry(library *l, registry **out, err *e);

/* One piece of a protocol's answer about a pull. The last one has the status "success". */
typedef void pull_writer(str *out, const pull_progress *p);

/* Joins the pull of this model, or begins one; the feed gets what `write` makes of its progress. With `quiet` only the
 * last piece. */
int library_pull(library *l, const char *name, bool quiet, pull_writer *write, feed *f, err *e);

/* As above, but the pull belongs to the server: it goes on when no client listens, and how it ended is remembered. */
int library_keep_pull(library *l, const char *name, err *e);
/* Cancels such a pull, or forgets one that has ended; false: there is none of this name. */
bool library_end_pull(library *l, view name);
/* {"object":"list","data":[...]}: what is under way, and the newest that have ended. Accepts NULL; any thread. */
void library_write_pulls(library *l, str *out);

/* What the hub has for these words. Somebody waits for it, so it is tried once. Any thread that may wait. */
int library_search(const library *l, const char *words, int limit, search_hits *out, err *e);

/* Runs work on a thread that library_free waits for. ERR_BUSY: too much is under way. */
int library_start(library *l, void (*work)(void *ctx), void *ctx, err *e);

/* Bytes that are free where the registry lies; 0 if that is not known. */
uint64_t library_free_bytes(library *l);

#endif
