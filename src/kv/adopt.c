/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree begins with what the disk holds. Entries name the page before them by its key, so the tree grows from the
 * roots, one for every namespace with a first page: of the entries in the order of their parents' keys, those of one
 * parent stand together. An entry whose parent is missing cannot be used; it is left to age with those of other models.
 */
#include "kv/tree_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct adoptee {
    const kv_disk_found *from;
    bool                 placed;
} adoptee;

typedef struct adoption {
    kv_tree  *t;
    adoptee  *list; /* by the parents' keys */
    size_t    n;
    kv_node **queue; /* roots and full pages, whose children are looked for */
    size_t    n_queue;
    kv_item **items; /* what found its place; parents come first */
    size_t    n_items;
} adoption;

static int by_parent(const void *a, const void *b) {
    const kv_entry *x = &((const adoptee *)a)->from->head, *y = &((const adoptee *)b)->from->head;
    return memcmp(x->parent.b, y->parent.b, KV_KEY_BYTES);
}

static int position_of(const kv_item *it) {
    return it->is_state ? ((const kv_state *)it)->node->position : ((const kv_node *)it)->position;
}

/* Of equal times what is further down is older, and a state older than its node. */
static int by_use(const void *a, const void *b) {
    const kv_item *x = *(kv_item *const *)a, *y = *(kv_item *const *)b;
    if (x->file_time != y->file_time) return x->file_time < y->file_time ? -1 : 1;
    int p = position_of(x), q = position_of(y);
    return p != q ? (p > q ? -1 : 1) : (int)y->is_state - (int)x->is_state;
}

static size_t first_of(const adoption *d, const kv_key *parent) {
    size_t lo = 0, hi = d->n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (memcmp(d->list[mid].from->head.parent.b, parent->b, KV_KEY_BYTES) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void place(adoption *d, adoptee *a, kv_item *it) {
    a->placed = true;
    it->file_bytes = a->from->bytes;
    it->file_time = a->from->time;
    d->items[d->n_items++] = it;
}

static void adopt_page(adoption *d, kv_node *parent, adoptee *a) {
    const kv_entry *h = &a->from->head;
    const kv_span   span = { h->tokens, h->rows, h->n_tokens };
    int             shared;
    const kv_node  *known = kv_child_best(parent, &span, &shared);
    if (known && shared == h->n_tokens && known->n == h->n_tokens) return; /* equal keys would mean the same file */
    kv_node *x = kv_node_new(d->t, parent, &span);
    if (!x) return;
    x->disk_groups = h->groups;
    place(d, a, &x->it);
    if (h->n_tokens == d->t->page_tokens) d->queue[d->n_queue++] = x;
}

static void adopt_state(adoption *d, const kv_node *parent, adoptee *a) {
    const kv_entry *h = &a->from->head;
    const kv_span   span = { h->tokens, h->rows, h->n_tokens };
    int             shared;
    kv_node        *x = kv_child_best(parent, &span, &shared);
    kv_state       *s = x && shared == h->n_tokens ? kv_state_new(x, h->n_tokens) : NULL;
    if (!s) return;
    d->t->stats.states++;
    place(d, a, &s->it);
}

/* All children of one node: pages first, as states hang on them. */
static void adopt_children(adoption *d, kv_node *parent) {
    int    position = parent->parent ? parent->position + d->t->page_tokens : 0;
    size_t first = first_of(d, &parent->key);
    for (int kind = KV_ENTRY_PAGE; kind <= KV_ENTRY_STATE; kind++) {
        for (size_t i = first; i < d->n && kv_key_eq(&d->list[i].from->head.parent, &parent->key); i++) {
            const kv_entry *h = &d->list[i].from->head;
            if ((int)h->kind != kind || h->position != position || !kv_key_eq(&h->space, &parent->space)) continue;
            if (kind == KV_ENTRY_PAGE)
                adopt_page(d, parent, &d->list[i]);
            else
                adopt_state(d, parent, &d->list[i]);
        }
    }
}

/* A first page's key was checked against its namespace. */
static void adopt_roots(adoption *d) {
    for (size_t i = 0; i < d->n; i++) {
        const kv_entry *h = &d->list[i].from->head;
        if (h->position != 0 || h->kind != KV_ENTRY_PAGE || kv_root_find(d->t, &h->space)) continue;
        kv_node *root = kv_root_get(d->t, &h->space);
        if (root) d->queue[d->n_queue++] = root;
    }
}

/* Whoever used an item used everything above it, too. */
static void order(adoption *d) {
    for (size_t i = d->n_items; i-- > 0;) {
        const kv_item *it = d->items[i];
        kv_node       *above = it->is_state ? ((const kv_state *)it)->node : ((const kv_node *)it)->parent;
        if (above->it.file_time < it->file_time) above->it.file_time = it->file_time;
    }
    if (d->n_items) qsort(d->items, d->n_items, sizeof(kv_item *), by_use);
    for (size_t i = 0; i < d->n_items; i++) {
        d->items[i]->used = ++d->t->clock;
        kv_enter(d->t, d->items[i], KV_DISK);
    }
}

int kv_tree_adopt(kv_tree *t, err *e) {
    adoption d = { .t = t };
    while (kv_disk_found_at(t->o.disk, d.n)) d.n++;
    d.list = calloc(d.n + 1, sizeof *d.list);
    d.queue = calloc(2 * d.n + 1, sizeof(kv_node *)); /* an entry makes a node, and perhaps a root */
    d.items = calloc(d.n + 1, sizeof(kv_item *));
    bool ok = d.list && d.queue && d.items;
    if (ok) {
        for (size_t i = 0; i < d.n; i++) d.list[i].from = kv_disk_found_at(t->o.disk, i);
        if (d.n) qsort(d.list, d.n, sizeof *d.list, by_parent);
        adopt_roots(&d);
        for (size_t i = 0; i < d.n_queue; i++) adopt_children(&d, d.queue[i]);
        for (size_t i = 0; i < d.n; i++) {
            if (!d.list[i].placed) kv_disk_foreign_add(t->o.disk, d.list[i].from);
        }
        for (int i = t->n_roots - 1; i >= 0; i--) kv_root_settle(t, t->roots[i]); /* memory may have been out */
        order(&d);
        kv_disk_found_release(t->o.disk);
        t->adopted = t->clock;
        kv_trim_disk(t);
    }
    free(d.list);
    free(d.queue);
    free(d.items);
    return ok ? 0 : err_set_nomem(e);
}
