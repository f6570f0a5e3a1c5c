/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree begins with what the disk holds. Entries name the page before them by its key, so the tree grows from the
 * root: of the entries in the order of their parents' keys, those of one parent stand together. An entry whose parent
 * is missing cannot be used; it is left to age with those of other models.
 */
#include "kv/tree_internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct adoptee {
    const kv_disk_found *from;
    kv_item             *it; /* NULL: not placed */
} adoptee;

static int by_parent(const void *a, const void *b) {
    const kv_entry *x = &((const adoptee *)a)->from->head, *y = &((const adoptee *)b)->from->head;
    return memcmp(x->parent.b, y->parent.b, KV_KEY_BYTES);
}

static int by_time(const void *a, const void *b) {
    int64_t x = ((const adoptee *)a)->from->time, y = ((const adoptee *)b)->from->time;
    return x < y ? -1 : x > y;
}

static size_t first_of(const adoptee *list, size_t n, const kv_key *parent) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (memcmp(list[mid].from->head.parent.b, parent->b, KV_KEY_BYTES) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static void enter(kv_tree *t, adoptee *a, kv_item *it) {
    a->it = it;
    it->used = ++t->clock;
    it->file_bytes = a->from->bytes;
    it->file_time = a->from->time;
    kv_enter(t, it, KV_DISK);
}

static void adopt_page(kv_tree *t, kv_node *parent, adoptee *a, kv_node **queue, size_t *n_queue) {
    const kv_entry *h = &a->from->head;
    int             shared;
    const kv_node  *known = kv_child_best(parent, h->tokens, h->n_tokens, &shared);
    if (known && shared == h->n_tokens && known->n == h->n_tokens) return; /* equal keys would mean the same file */
    kv_node *x = kv_node_new(t, parent, h->tokens, h->n_tokens);
    if (!x) return;
    x->disk_groups = h->groups;
    enter(t, a, &x->it);
    if (h->n_tokens == t->page_tokens) queue[(*n_queue)++] = x;
}

static void adopt_state(kv_tree *t, const kv_node *parent, adoptee *a) {
    const kv_entry *h = &a->from->head;
    int             shared;
    kv_node        *x = kv_child_best(parent, h->tokens, h->n_tokens, &shared);
    if (!x || shared < h->n_tokens) return;
    kv_state *s = kv_state_new(x, h->n_tokens);
    if (!s) return;
    t->stats.states++;
    enter(t, a, &s->it);
}

/* All children of one node: pages first, as states hang on them. */
static void adopt_children(kv_tree *t, kv_node *parent, adoptee *list, size_t n, kv_node **queue, size_t *n_queue) {
    int    position = parent == t->root ? 0 : parent->position + t->page_tokens;
    size_t first = first_of(list, n, &parent->key);
    for (int kind = KV_ENTRY_PAGE; kind <= KV_ENTRY_STATE; kind++) {
        for (size_t i = first; i < n && kv_key_eq(&list[i].from->head.parent, &parent->key); i++) {
            const kv_entry *h = &list[i].from->head;
            if ((int)h->kind != kind || h->position != position) continue;
            if (kind == KV_ENTRY_PAGE)
                adopt_page(t, parent, &list[i], queue, n_queue);
            else
                adopt_state(t, parent, &list[i]);
        }
    }
}

int kv_tree_adopt(kv_tree *t, err *e) {
    size_t n = 0, n_queue = 1;
    while (kv_disk_found_at(t->o.disk, n)) n++;
    adoptee  *list = calloc(n + 1, sizeof *list);
    kv_node **queue = calloc(n + 1, sizeof(kv_node *));
    if (!list || !queue) {
        free(list);
        free(queue);
        return err_set_nomem(e);
    }
    for (size_t i = 0; i < n; i++) list[i].from = kv_disk_found_at(t->o.disk, i);
    if (n) qsort(list, n, sizeof *list, by_parent);
    queue[0] = t->root;
    for (size_t i = 0; i < n_queue; i++) adopt_children(t, queue[i], list, n, queue, &n_queue);
    /* Order of use: states before their nodes, nodes before those above them. */
    if (n) qsort(list, n, sizeof *list, by_time);
    for (size_t i = 0; i < n; i++) {
        if (!list[i].it) {
            kv_disk_foreign_add(t->o.disk, list[i].from);
        } else if (list[i].it->is_state) {
            kv_touch_state(t, (kv_state *)list[i].it);
            kv_touch(t, ((kv_state *)list[i].it)->node);
        } else {
            kv_touch(t, (kv_node *)list[i].it);
        }
    }
    kv_disk_found_release(t->o.disk);
    t->adopted = t->clock;
    free(list);
    free(queue);
    return 0;
}
