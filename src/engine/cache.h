/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's cache: page numbers, the prefix tree and snapshots of fixed states over one executor. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "kv/pool.h"
#include "kv/tree.h"
#include "nn/backend.h"

typedef struct cache {
    nn_exec *exec;
    kv_pool *pool;
    kv_tree *tree;
    int      page_tokens, max_pages, n_groups;
    size_t   slot_bytes; /* 0: the model has no fixed state */
    void   **snapshots;  /* by handle; NULL: free */
    int      n_snapshots, max_snapshots;
} cache;

/* Page tables of one sequence: tables[g][i] is the page of positions i * page_tokens on, or -1. */
typedef struct cache_tables {
    int32_t *tables[KV_MAX_GROUPS]; /* max_pages each */
    int      n_pages;               /* entries in use, in every group */
} cache_tables;

int  cache_open(cache *c, nn_exec *x, err *e);
void cache_close(cache *c);

int  cache_tables_init(const cache *c, cache_tables *t, err *e);
void cache_tables_release(cache *c, cache_tables *t); /* gives the pages back; the tables stay */
void cache_tables_deinit(cache_tables *t);

/* Attaches the longest reusable beginning of the tokens to empty tables, copying a page that is shared in part, and
 * loads the slot's state. Returns its length. */
int cache_attach(cache *c, cache_tables *t, const int32_t *tokens, int n, int32_t slot);

/* Makes room for positions up to len; forgets cached pages if need be. False: no room, nothing changed. */
bool cache_grow(cache *c, cache_tables *t, int len);

/* Gives up pages that no position from len on looks back on. */
void cache_trim(cache *c, cache_tables *t, int len);

/* Leaves the first len positions for others, with a snapshot of the slot's state at len where the model has one. */
void cache_remember(cache *c, const cache_tables *t, const int32_t *tokens, int len, int32_t slot);

/* Whether a sequence of len positions could ever be held. */
bool cache_fits(const cache *c, int len);

#endif
