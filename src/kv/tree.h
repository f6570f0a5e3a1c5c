/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The prefix tree: which computed positions can be used again, and where their bytes are.
 *
 * A radix tree over texts (kv/text.h: tokens and the content of supplied rows) whose edges are one page long: a node
 * holds the tokens of one page (a leaf may hold fewer) and, per group, the page with their keys and values. Edges of
 * page length make sharing exactly as fine as the pages themselves, and a prompt that leaves the tree in the middle of
 * a page still finds the longest shared part of it (the caller copies that page). Nothing ever needs to be split.
 * Children are sorted by their tokens, so the one with the longest common beginning is a neighbour of the place where a
 * new one would go: a look-up costs a binary search per page. Every namespace has a root of its own, which is there as
 * long as something stands below it; nothing is shared between two of them except room, which goes to what was used
 * last.
 *
 * A node may lack the page of a windowed group (the sequence had passed it), and it may carry states: the fixed
 * (recurrent) states behind one of its tokens. What can be used again therefore depends on the model: see
 * kv_tree_match.
 *
 * Bytes live in three tiers. Device: a page of the pool, or a state within the budget; host: memory with a budget of
 * its own; disk: a file (kv/disk.h). What leaves a tier goes to the next one that is there, and comes back by copy, bit
 * for bit, when a prompt matches; a node that is nowhere any more is forgotten with everything below it. Each tier is a
 * list in the order of last use. A node is always newer than its children and than its states, so the least recently
 * used one is never needed by a more recent one. Used by the engine thread only.
 */
#ifndef KV_TREE_H
#define KV_TREE_H

#include "base/err.h"
#include "kv/disk.h"
#include "kv/pool.h"
#include "kv/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kv_tree kv_tree;

/*
 * Bytes of a page on their way between the pool and host memory.
 *
 * Moves and steps take effect in the order in which they were started. A page may therefore be given to somebody else
 * as soon as the move out of it was started, and a page that is being moved in may be used by the next step at once.
 * Only the host memory must stay where it is until `moved` has returned (and may only be read meanwhile, when it is the
 * source). Every move that was started is waited for exactly once, perhaps much later and not in the order of starting.
 */
typedef enum kv_direction { KV_MOVE_OUT, KV_MOVE_IN } kv_direction; /* to host memory; to the pool */

typedef struct kv_move {
    int          group;
    int32_t      page;
    void        *host; /* page_bytes of the group */
    kv_direction direction;
} kv_move;

typedef struct kv_tree_options {
    kv_identity id;                    /* page size, bytes of pages and states; the model only matters to the disk */
    int         window[KV_MAX_GROUPS]; /* per group; 0: needs all pages from position 0 on */
    size_t      budget_bytes;          /* of pages in use and states in the first tier; 0: the pool is the limit */
    size_t      host_bytes;            /* 0: no host tier */
    kv_disk    *disk;                  /* borrowed; NULL: no disk tier */
    size_t      stage_bytes;           /* memory for pages that come from the disk together; 0: 64 MiB */
    /* Starts moving all of them, n > 0. Negative: nothing was moved, and there is nothing to wait for. May be NULL when
     * there is neither a host nor a disk tier. */
    int (*move)(void *ctx, const kv_move *moves, int n, uint64_t *ticket);
    /* Waits for what `move` started. Negative: it failed, and the bytes (of any of its pages) are not to be
     * trusted. Either way it is over: nothing of it happens any more. */
    int (*moved)(void *ctx, uint64_t ticket);
    void *ctx;
} kv_tree_options;

/* With a disk tier: begins with what the disk holds. */
int  kv_tree_open(kv_tree **out, kv_pool *pool, const kv_tree_options *o, err *e);
void kv_tree_free(kv_tree *t); /* releases every page and state; files stay; accepts NULL */

/* What a prompt can use again. */
typedef struct kv_match {
    int         n_tokens; /* positions 0 .. n_tokens need not be computed */
    const void *state;    /* the state behind them, until the next call; NULL: the model needs none, or n_tokens is 0 */
} kv_match;

/*
 * The longest reusable beginning of the text's first n positions, which is shorter than n by at least one: a prompt's
 * last token is always computed. Brings pages and the state back from lower tiers, in one move if the memory for those
 * from the disk suffices, and waits for it; where that fails the result is shorter. Fills pages[g][0 .. ceil(n_tokens /
 * page_tokens)) with the pages to use, taking a reference for the caller on each (a page that lies behind a window, or
 * is missing there, is -1). If n_tokens is not a multiple of page_tokens the last page is shared and must be copied
 * before it is written to. Counts as a use. When the pool could not hold `reserve` positions of this sequence anyway,
 * nothing is moved and the length is 0.
 */
kv_match kv_tree_match(kv_tree *t, const kv_text *text, int n, int reserve, int32_t *const pages[KV_MAX_GROUPS]);

/*
 * Remembers the text's first n positions, which were computed into pages[g][...] (-1: given up already). The tree takes
 * its own references where it learns something new. The owner may go on writing behind position n. False: out of
 * memory, and the tree is as useful as before.
 */
bool kv_tree_insert(kv_tree *t, const kv_text *text, int n, const int32_t *const pages[KV_MAX_GROUPS]);

/* Room for the state behind position n of the text, which must have been inserted: the caller fills it before any other
 * call, and with a disk calls kv_tree_save, which lets it go to its file where the budget has no room for it. NULL: it is
 * there already, there is no room and no disk, or memory is out. */
void *kv_tree_add_state(kv_tree *t, const kv_text *text, int n);
/* Takes it back: the caller could not fill it. */
void kv_tree_drop_state(kv_tree *t, const kv_text *text, int n);

/* Queues what the disk lacks of the text's first n positions; the last page only if it is full, or `all`. Waits for
 * moves, never for the disk. */
void kv_tree_save(kv_tree *t, const kv_text *text, int n, bool all);
/* Writes whatever the disk lacks and has room for. Waits for the disk. */
void kv_tree_flush(kv_tree *t);

/* Moves least recently used nodes to lower tiers (or forgets them) until at least need[g] pages of every group are
 * unused, and the budget can hold them. False: sequences hold too much, or too much is about to be used; then as little
 * as possible was moved. */
bool kv_tree_evict(kv_tree *t, const int need[KV_MAX_GROUPS]);

typedef struct kv_tree_stats {
    size_t   nodes, tokens, states;     /* that the tree remembers, in any tier */
    size_t   spaces;                    /* namespaces that they belong to */
    size_t   device_nodes, state_bytes; /* first tier */
    size_t   host_bytes, host_nodes;    /* states included in the bytes */
    uint64_t disk_bytes;                /* entries that are known to the tree */
    size_t   disk_entries;
    uint64_t to_host, from_host, from_disk, saved, not_saved; /* pages and states that moved; writes left out */
    uint64_t evicted;                                         /* pages that left the first tier for others */
} kv_tree_stats;
kv_tree_stats kv_tree_stat(const kv_tree *t);

#endif
