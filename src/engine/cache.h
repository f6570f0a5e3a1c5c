/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's cache: page numbers, the prefix tree with its tiers, and the executor whose bytes they are about.
 *
 * One budget holds pages and states; what leaves it goes to host memory and to a directory, if those are on
 * (docs/cache.md).
 *
 * Speculation: a sequence may evaluate positions that are taken back later. cache_checkpoint keeps the fixed state,
 * cache_rollback returns to it. Pages that fell behind a window do not come back, so cache_trim and cache_remember are
 * called with positions that are final.
 */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "kv/disk.h"
#include "kv/pool.h"
#include "kv/tree.h"
#include "nn/backend.h"

typedef struct cache_options {
    size_t      bytes;      /* of pages in use and states; 0: all pages and as much again, at least 8 states */
    size_t      host_bytes; /* 0: no host tier */
    const char *disk_dir;   /* NULL: no disk tier */
    uint64_t    disk_bytes; /* 0: 8 GiB */
} cache_options;

typedef struct cache {
    nn_exec *exec;
    kv_pool *pool;
    kv_tree *tree;
    kv_disk *disk; /* NULL: none */
    int      page_tokens, max_pages, n_groups;
    size_t   slot_bytes; /* 0: the model has no fixed state */
    nn_move *moves;      /* the tree's, on their way to the backend */
    int      cap_moves;
} cache;

/* Page tables of one sequence: tables[g][i] is the page of positions i * page_tokens on, or -1. */
typedef struct cache_tables {
    int32_t *tables[KV_MAX_GROUPS]; /* max_pages each */
    int      n_pages;               /* entries in use, in every group */
} cache_tables;

/* What kept states may take at most beside pages of this size; the budget is that of cache_options. */
size_t cache_states_bytes(size_t pages_bytes, size_t slot_bytes, size_t budget_bytes);

int  cache_open(cache *c, nn_exec *x, const cache_options *o, err *e);
void cache_close(cache *c); /* writes what the disk lacks; accepts a zeroed or half-opened cache */

int  cache_tables_init(const cache *c, cache_tables *t, err *e);
void cache_tables_release(cache *c, cache_tables *t); /* gives the pages back; the tables stay */
void cache_tables_deinit(cache_tables *t);

/* Attaches the longest reusable beginning of the text to empty tables, copying a page that is shared in part, and
 * loads the slot's state. Returns its length; what the device could not copy costs the reuse. */
int cache_attach(cache *c, cache_tables *t, const kv_text *text, int n, int32_t slot);

/* Makes room for positions up to len; moves cached pages away if need be. False: no room, nothing changed. */
bool cache_grow(cache *c, cache_tables *t, int len);

/* Gives up pages behind len: of drafts that nobody else has seen. */
void cache_retract(cache *c, cache_tables *t, int len);

/* Gives up pages that no position from len on looks back on. */
void cache_trim(cache *c, cache_tables *t, int len);

typedef enum cache_moment {
    CACHE_PIECE, /* a prompt is under way: pages only */
    CACHE_MARK,  /* somebody may continue from here: with the slot's state, where the model has one */
    CACHE_END,   /* nothing more comes: also what is left of the last page goes to the disk */
} cache_moment;

/* Leaves the first len positions for others. */
void cache_remember(cache *c, const cache_tables *t, const kv_text *text, int len, int32_t slot, cache_moment when);

/* Whether a sequence of len positions could ever be held. */
bool cache_fits(const cache *c, int len);

/* Keeps the slot's state in out (slot_bytes). False: the device could not copy it. */
bool cache_checkpoint(const cache *c, int32_t slot, void *out);
/* Takes positions from len on back. state: of a checkpoint at len; ignored where the model has none. False: no page for
 * the copy of one that others share, or the device could not copy: then the slot is undefined and the sequence must
 * end. */
bool cache_rollback(cache *c, cache_tables *t, int len, int32_t slot, const void *state);

#endif
