/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix tree: which computed positions can be used again.
 *
 * A radix tree over token ids whose edges are one page long: a node holds the tokens of one page (a leaf may hold
 * fewer) and, per group, the number of the page with their keys and values. Edges of page length make sharing exactly
 * as fine as the pages themselves, and a prompt that leaves the tree in the middle of a page still finds the longest
 * shared part of it (the caller copies that page). Nothing ever needs to be split.
 *
 * Children are sorted by their tokens, so the one with the longest common beginning is a neighbour of the place where a
 * new one would go: a look-up costs a binary search per page. Nodes are kept in the order of their last use with every
 * node behind (less recent than) its parent, so the least recently used node is always a leaf and eviction is a list
 * removal.
 *
 * A node may lack the page of a windowed group (the sequence had passed it), and it may carry snapshots: handles of
 * fixed (recurrent) states at exact positions. What can be used again therefore depends on the model: see
 * kv_tree_match. Used by the engine thread only.
 */
#ifndef KV_TREE_H
#define KV_TREE_H

#include "base/err.h"
#include "kv/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_tree kv_tree;

typedef struct kv_tree_options {
    int  page_tokens;
    int  window[KV_MAX_GROUPS]; /* per group; 0: needs all pages from position 0 on */
    bool needs_snapshot;        /* the model has fixed states: only snapshot positions can be used */
    /* Called when a snapshot's node goes; the owner of handles frees the state. May be NULL. */
    void (*drop_snapshot)(void *ctx, int32_t handle);
    void *ctx;
} kv_tree_options;

int  kv_tree_open(kv_tree **out, kv_pool *pool, const kv_tree_options *o, err *e);
void kv_tree_free(kv_tree *t); /* releases every page and snapshot; accepts NULL */

/* What a prompt can use again. */
typedef struct kv_match {
    int     n_tokens; /* positions 0 .. n_tokens need not be computed */
    int32_t snapshot; /* the state at n_tokens; -1: the model needs none, or n_tokens is 0 */
} kv_match;

/*
 * The longest reusable beginning of tokens[0..n), which is shorter than n by at least one: a prompt's last token is
 * always computed. Fills pages[g][0 .. ceil(n_tokens / page_tokens)) with the pages to use, taking a reference for the
 * caller on each (a page that lies behind a window, or is missing there, is -1). If n_tokens is no multiple of
 * page_tokens the last page is shared and must be copied before it is written to. Counts as a use.
 */
kv_match kv_tree_match(kv_tree *t, const int32_t *tokens, int n, int32_t *const pages[KV_MAX_GROUPS]);

/*
 * Remembers tokens[0..n), whose positions were computed into pages[g][...] (-1: given up already). The tree takes its
 * own references where it learns something new. The owner may go on writing behind position n. False: out of memory,
 * and the tree is as useful as before.
 */
bool kv_tree_insert(kv_tree *t, const int32_t *tokens, int n, const int32_t *const pages[KV_MAX_GROUPS]);

/* Attaches a state to position n of tokens, which must have been inserted. False: no such place, or one is there
 * already; the caller keeps the handle. */
bool kv_tree_add_snapshot(kv_tree *t, const int32_t *tokens, int n, int32_t handle);

/* Forgets least recently used nodes until at least need[g] pages of every group are unused, or nothing is left.
 * Returns whether they are. Pages that a sequence still holds do not become unused. */
bool kv_tree_evict(kv_tree *t, const int need[KV_MAX_GROUPS]);

/* Forgets the least recently used node; false: the tree is empty. */
bool kv_tree_evict_one(kv_tree *t);

typedef struct kv_tree_stats {
    size_t nodes, snapshots, tokens; /* tokens: positions that the tree remembers */
} kv_tree_stats;
kv_tree_stats kv_tree_stat(const kv_tree *t);

#endif
