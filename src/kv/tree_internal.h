/* SPDX-License-Identifier: Apache-2.0 */
/* The tree's own structures, shared by tree.c (what is known), tiers.c (where its bytes are) and adopt.c (what the disk
 * held). */
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

struct kv_node {
    kv_item    it; /* first */
    kv_node   *parent;
    kv_node  **children; /* sorted by their tokens */
    int        n_children, cap_children;
    kv_state **states; /* rising offsets */
    int        n_states;
    int32_t    pages[KV_MAX_GROUPS]; /* DEVICE; -1: not there */
    uint8_t   *host;                 /* HOST: the pages of host_groups, in rising order; NULL if they have no bytes */
    unsigned   host_groups, disk_groups;
    kv_key     key; /* with a disk only */
    int        position;
    int        n;        /* tokens */
    int32_t    tokens[]; /* page_tokens of room */
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
    kv_node        *root;
    kv_list         lists[KV_TIERS];
    uint64_t        clock;
    uint64_t        pin;     /* items used since then stay where they are */
    uint64_t        adopted; /* the clock when the tree was opened */
    uint64_t        tickets, forgotten;
    uint8_t        *buffer; /* pages of every group or a state, on their way from the disk */
    bool            closing;
    kv_tree_stats   stats;
};

#define KV_NOTHING_PINNED UINT64_MAX

/* tree.c */
int       kv_common(const int32_t *a, int na, const int32_t *b, int nb);
kv_node  *kv_node_new(kv_tree *t, kv_node *parent, const int32_t *tokens, int n); /* NULL: out of memory */
kv_node  *kv_child_best(const kv_node *x, const int32_t *tokens, int n, int *shared);
void      kv_node_forget(kv_tree *t, kv_node *x); /* with everything below */
kv_state *kv_state_new(kv_node *x, int offset);   /* NULL: there is one, or out of memory */
void      kv_state_free(kv_tree *t, kv_state *s);

/* tiers.c */
void     kv_enter(kv_tree *t, kv_item *it, kv_tier tier);
void     kv_leave(kv_tree *t, kv_item *it, kv_tier tier);
void     kv_touch(kv_tree *t, kv_node *x);        /* and what is above it */
void     kv_touch_state(kv_tree *t, kv_state *s); /* before its node is touched */
unsigned kv_device_groups(const kv_tree *t, const kv_node *x);
void     kv_set_page(kv_tree *t, kv_node *x, int group, int32_t page); /* -1: none */
void     kv_drop_host(kv_tree *t, kv_node *x);
void     kv_drop_file(kv_tree *t, kv_item *it);  /* leaves DISK; the file is deleted */
bool     kv_make_room(kv_tree *t, size_t bytes); /* within the budget */
bool     kv_make_host_room(kv_tree *t, size_t bytes);
void     kv_trim_disk(kv_tree *t);                       /* the directory may have been larger than it may be now */
int kv_restore(kv_tree *t, kv_node *x, unsigned groups); /* ERR_LIMIT: no room; ERR_NOTFOUND: lost, x may be gone */
const void *kv_state_fetch(kv_tree *t, kv_state *s);     /* NULL: lost, s is gone */

/* adopt.c */
int kv_tree_adopt(kv_tree *t, err *e);

#endif
