/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree's own structures, shared by its files:
 *
 *     nodes.c   how they hang together
 *     tree.c    what is known
 *     tiers.c   where its bytes are
 *     moves.c   how they get to the device and from there
 *     adopt.c   what the disk held
 */
#ifndef KV_TREE_INTERNAL_H
#define KV_TREE_INTERNAL_H

#include "kv/tree.h"

typedef enum kv_tier { KV_DEVICE, KV_HOST, KV_DISK, KV_TIERS } kv_tier;

/* What moves between tiers: a node's pages, or a state. */
typedef struct kv_item {
    struct kv_item *newer[KV_TIERS], *older[KV_TIERS];
    bool            in[KV_TIERS];
    bool            is_state;
    uint64_t        used;       /* the tree's clock at its last use; lists are in this order */
    uint64_t        file_bytes; /* DISK */
    int64_t         file_time;  /* DISK: last use by an earlier process */
    uint64_t        ticket;     /* DISK: of its write */
} kv_item;

typedef struct kv_node kv_node;

typedef struct kv_state {
    kv_item  it; /* first */
    kv_node *node;
    int      offset; /* tokens of the node that come before the state: 1 .. n */
    void    *bytes;  /* NULL: on disk only. Either in DEVICE or in HOST otherwise */
} kv_state;

/* Bytes that may still be on their way. */
typedef struct kv_transfer {
    bool     under_way, failed;
    uint64_t ticket;
} kv_transfer;

/* A page of some text, or (without a parent, tokens and bytes) the root of a namespace. */
struct kv_node {
    kv_item     it;       /* first */
    kv_node    *parent;   /* NULL: a root */
    kv_node   **children; /* sorted by their tokens and rows */
    int         n_children, cap_children;
    kv_state  **states; /* rising offsets */
    int         n_states;
    int32_t     pages[KV_MAX_GROUPS]; /* DEVICE; -1: not there */
    uint8_t    *host;                 /* HOST: the pages of host_groups, in rising order; NULL if they have no bytes */
    kv_transfer arriving;             /* HOST: its bytes, which are only known to be good once it is over */
    unsigned    host_groups, disk_groups;
    unsigned    fresh; /* groups whose pages have a place on the device, but not yet their bytes */
    kv_key      space;
    kv_key      key;  /* with a disk only */
    kv_key     *rows; /* page_tokens of room; NULL: all tokens are plain */
    int         position;
    int         n;        /* tokens */
    int32_t     tokens[]; /* page_tokens of room */
};

typedef struct kv_list {
    kv_item *newest, *oldest;
} kv_list;

/* What a node costs that has no pages. */
enum { KV_NODE_BYTES = 512 };

struct kv_tree {
    kv_pool        *pool;
    kv_tree_options o;
    int             n_groups, page_tokens;
    size_t          pages_bytes; /* one page of every group */
    bool            looks_back;  /* some group needs every page before: a node without pages is useless */
    kv_node       **roots;       /* sorted by their namespaces */
    int             n_roots, cap_roots;
    kv_list         lists[KV_TIERS];
    uint64_t        clock;
    uint64_t        pin;     /* items used since then stay where they are */
    uint64_t        adopted; /* the clock when the tree was opened */
    uint64_t        tickets, forgotten;
    uint8_t        *buffer; /* pages of every group or a state, on their way from the disk */
    size_t          buffer_bytes;
    bool            closing;
    kv_tree_stats   stats;
};

#define KV_NOTHING_PINNED UINT64_MAX

/* One step of a walk from a root: which node, how many of its positions agree, and what is needed of it. */
typedef struct kv_step {
    kv_node *x;
    int      shared;
    unsigned groups; /* that must be on the device */
} kv_step;

/* nodes.c */
kv_node *kv_root_find(const kv_tree *t, const kv_key *space); /* NULL: nothing is known there */
kv_node *kv_root_get(kv_tree *t, const kv_key *space);        /* NULL: out of memory */
void     kv_root_settle(kv_tree *t, kv_node *root);           /* goes if it has no children */
kv_span  kv_node_span(const kv_node *x);
kv_node *kv_node_new(kv_tree *t, kv_node *parent, const kv_span *span); /* NULL: out of memory */
/* A leaf gets these positions, of which it has the first; copies in lower tiers go. False: out of memory. */
bool      kv_node_extend(kv_tree *t, kv_node *x, const kv_span *span);
kv_node  *kv_child_best(const kv_node *x, const kv_span *span, int *shared);
void      kv_node_forget(kv_tree *t, kv_node *x); /* with everything below */
kv_state *kv_state_new(kv_node *x, int offset);   /* NULL: there is one, or out of memory */
void      kv_state_free(kv_tree *t, kv_state *s);

/* tiers.c */
void        kv_enter(kv_tree *t, kv_item *it, kv_tier tier);
void        kv_leave(kv_tree *t, kv_item *it, kv_tier tier);
void        kv_touch(kv_tree *t, kv_node *x);                             /* and what is above it */
void        kv_touch_state(kv_tree *t, kv_state *s);                      /* before its node is touched */
unsigned    kv_device_groups(const kv_tree *t, const kv_node *x);         /* pages on the device */
unsigned    kv_filled_groups(const kv_tree *t, const kv_node *x);         /* whose bytes are there */
void        kv_set_page(kv_tree *t, kv_node *x, int group, int32_t page); /* -1: none */
void        kv_drop_host(kv_tree *t, kv_node *x);
void        kv_drop_file(kv_tree *t, kv_item *it); /* leaves DISK; the file is deleted */
void        kv_lose_file(kv_tree *t, kv_item *it); /* leaves DISK: there is no file */
void        kv_settle(kv_tree *t, kv_node *x);     /* a node that is nowhere is forgotten */
kv_entry    kv_describe(const kv_tree *t, const kv_item *it, unsigned groups);
bool        kv_make_room(kv_tree *t, size_t bytes); /* within the budget */
bool        kv_make_host_room(kv_tree *t, size_t bytes);
void        kv_trim_disk(kv_tree *t);                /* the directory may have been larger than it may be now */
const void *kv_state_fetch(kv_tree *t, kv_state *s); /* NULL: lost, s is gone */

/* moves.c */
int kv_transfer_wait(const kv_tree *t, kv_transfer *w); /* negative: the bytes are not to be trusted */
int kv_gather(const kv_tree *t, const kv_node *x, unsigned groups, uint8_t *out, kv_transfer *w);
int kv_bring(kv_tree *t, kv_step *steps, int n, int *at);

/* adopt.c */
int kv_tree_adopt(kv_tree *t, err *e);

#endif
