/* SPDX-License-Identifier: Apache-2.0 */
/* How nodes hang together: roots by namespace, children by tokens and rows, states by offset. */
#include "kv/tree_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more in a sorted list of nodes, at its place. */
static bool list_add(kv_node ***list, int *n, int *cap, int at, kv_node *x) {
    if (*n == *cap) {
        int       more = *cap ? *cap * 2 : 2;
        kv_node **grown = realloc(*list, (size_t)more * sizeof(kv_node *));
        if (!grown) return false;
        *list = grown;
        *cap = more;
    }
    memmove(&(*list)[at + 1], &(*list)[at], (size_t)(*n - at) * sizeof(kv_node *));
    (*list)[at] = x;
    (*n)++;
    return true;
}

static void list_remove(kv_node **list, int *n, int at) {
    (*n)--;
    memmove(&list[at], &list[at + 1], (size_t)(*n - at) * sizeof(kv_node *));
}

/* --- roots -------------------------------------------------------------------------------------------------------- */

static int root_place(const kv_tree *t, const kv_key *space, bool *same) {
    int lo = 0, hi = t->n_roots;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (memcmp(t->roots[mid]->space.b, space->b, KV_KEY_BYTES) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    *same = lo < t->n_roots && kv_key_eq(&t->roots[lo]->space, space);
    return lo;
}

kv_node *kv_root_find(const kv_tree *t, const kv_key *space) {
    bool same;
    int  at = root_place(t, space, &same);
    return same ? t->roots[at] : NULL;
}

kv_node *kv_root_get(kv_tree *t, const kv_key *space) {
    bool same;
    int  at = root_place(t, space, &same);
    if (same) return t->roots[at];
    kv_node *x = calloc(1, sizeof *x);
    if (!x || !list_add(&t->roots, &t->n_roots, &t->cap_roots, at, x)) {
        free(x);
        return NULL;
    }
    x->space = *space;
    if (t->o.disk) x->key = kv_key_root(&t->o.id, space);
    t->stats.spaces++;
    return x;
}

void kv_root_settle(kv_tree *t, kv_node *root) {
    bool same;
    if (root->n_children) return;
    int at = root_place(t, &root->space, &same);
    assert(same && t->roots[at] == root);
    list_remove(t->roots, &t->n_roots, at);
    t->stats.spaces--;
    free(root->children);
    free(root);
}

/* --- children ----------------------------------------------------------------------------------------------------- */

kv_span kv_node_span(const kv_node *x) { return (kv_span){ x->tokens, x->rows, x->n }; }

/* Where the span would stand among the children; *same: that child has exactly these positions. */
static int child_place(const kv_node *x, const kv_span *span, bool *same) {
    int lo = 0, hi = x->n_children;
    *same = false;
    while (lo < hi) {
        int     mid = (lo + hi) / 2;
        kv_span c = kv_node_span(x->children[mid]);
        int     k = kv_common(&c, span);
        if (k == c.n && k == span->n) {
            *same = true;
            return mid;
        }
        if (kv_span_before(&c, span, k))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The child that shares most with the span; *shared is how much, 0 for none. */
kv_node *kv_child_best(const kv_node *x, const kv_span *span, int *shared) {
    bool     same;
    int      at = child_place(x, span, &same);
    kv_node *best = NULL;
    *shared = 0;
    for (int i = at - 1; i <= at; i++) {
        if (i < 0 || i >= x->n_children) continue;
        kv_span c = kv_node_span(x->children[i]);
        int     k = kv_common(&c, span);
        if (k > *shared) {
            *shared = k;
            best = x->children[i];
        }
    }
    return best;
}

static bool child_add(kv_node *parent, kv_node *x) {
    bool    same;
    kv_span span = kv_node_span(x);
    int     at = child_place(parent, &span, &same);
    assert(!same);
    return list_add(&parent->children, &parent->n_children, &parent->cap_children, at, x);
}

static void child_remove(kv_node *parent, const kv_node *x) {
    bool    same;
    kv_span span = kv_node_span(x);
    int     at = child_place(parent, &span, &same);
    assert(same && parent->children[at] == x);
    list_remove(parent->children, &parent->n_children, at);
}

/* Room for the content keys of these positions. False: out of memory. */
static bool reserve_rows(const kv_tree *t, kv_node *x, const kv_span *span) {
    if (!x->rows && !kv_span_plain(span)) x->rows = calloc((size_t)t->page_tokens, sizeof *x->rows);
    return x->rows || kv_span_plain(span);
}

/* The node's positions become these. */
static void set_span(const kv_tree *t, kv_node *x, const kv_span *span) {
    memcpy(x->tokens, span->tokens, (size_t)span->n * sizeof *span->tokens);
    if (x->rows) memcpy(x->rows, span->rows, (size_t)span->n * sizeof *span->rows);
    x->n = span->n;
    if (t->o.disk) x->key = kv_key_of(KV_ENTRY_PAGE, &x->parent->key, span);
}

kv_node *kv_node_new(kv_tree *t, kv_node *parent, const kv_span *span) {
    kv_node *x = calloc(1, sizeof *x + (size_t)t->page_tokens * sizeof x->tokens[0]);
    if (!x) return NULL;
    for (int g = 0; g < KV_MAX_GROUPS; g++) x->pages[g] = -1;
    x->parent = parent;
    x->space = parent->space;
    x->position = parent->parent ? parent->position + t->page_tokens : 0;
    bool ok = reserve_rows(t, x, span);
    if (ok) {
        set_span(t, x, span);
        ok = child_add(parent, x);
    }
    if (!ok) {
        free(x->rows);
        free(x);
        return NULL;
    }
    x->it.used = ++t->clock;
    t->stats.nodes++;
    t->stats.tokens += (size_t)span->n;
    return x;
}

bool kv_node_extend(kv_tree *t, kv_node *x, const kv_span *span) {
    assert(x->n_children == 0);
    if (!reserve_rows(t, x, span)) return false;
    kv_drop_host(t, x);
    kv_drop_file(t, &x->it); /* by its old key */
    child_remove(x->parent, x);
    t->stats.tokens += (size_t)(span->n - x->n);
    set_span(t, x, span);
    bool added = child_add(x->parent, x); /* room is there: one was removed */
    assert(added);
    (void)added;
    return true;
}

static void leaf_free(kv_tree *t, kv_node *x) {
    kv_node *parent = x->parent;
    assert(x->n_children == 0);
    while (x->n_states) kv_state_free(t, x->states[x->n_states - 1]);
    for (int g = 0; g < t->n_groups; g++) kv_set_page(t, x, g, -1);
    if (x->it.in[KV_DEVICE]) kv_leave(t, &x->it, KV_DEVICE);
    kv_drop_host(t, x);
    kv_drop_file(t, &x->it);
    child_remove(parent, x);
    t->stats.nodes--;
    t->stats.tokens -= (size_t)x->n;
    t->forgotten++;
    free(x->rows);
    free(x->states);
    free(x->children);
    free(x);
    if (!parent->parent) kv_root_settle(t, parent);
}

void kv_node_forget(kv_tree *t, kv_node *x) {
    for (bool last = false; !last;) {
        kv_node *leaf = x;
        while (leaf->n_children) leaf = leaf->children[leaf->n_children - 1];
        last = leaf == x;
        leaf_free(t, leaf);
    }
}

/* --- states ------------------------------------------------------------------------------------------------------- */

kv_state *kv_state_new(kv_node *x, int offset) {
    int at = 0;
    while (at < x->n_states && x->states[at]->offset < offset) at++;
    if (at < x->n_states && x->states[at]->offset == offset) return NULL;
    kv_state **grown = realloc(x->states, (size_t)(x->n_states + 1) * sizeof(kv_state *));
    if (!grown) return NULL;
    x->states = grown;
    kv_state *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->it.is_state = true;
    s->node = x;
    s->offset = offset;
    memmove(&grown[at + 1], &grown[at], (size_t)(x->n_states - at) * sizeof(kv_state *));
    grown[at] = s;
    x->n_states++;
    return s;
}

void kv_state_free(kv_tree *t, kv_state *s) {
    kv_node *x = s->node;
    int      at = 0;
    while (x->states[at] != s) at++;
    x->n_states--;
    memmove(&x->states[at], &x->states[at + 1], (size_t)(x->n_states - at) * sizeof(kv_state *));
    kv_drop_file(t, &s->it);
    for (kv_tier tier = KV_DEVICE; tier <= KV_HOST; tier++) {
        if (s->it.in[tier]) kv_leave(t, &s->it, tier);
    }
    t->stats.states--;
    free(s->bytes);
    free(s);
}
