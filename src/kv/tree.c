/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/tree.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct snapshot {
    int     offset; /* tokens of the node that come before the state: 1 .. n */
    int32_t handle;
} snapshot;

typedef struct node node;
struct node {
    node     *parent;
    node    **children; /* sorted by their tokens */
    int       n_children, cap_children;
    node     *newer, *older; /* order of use; the root is not in it */
    snapshot *snapshots;     /* rising offsets */
    int       n_snapshots;
    int32_t   pages[KV_MAX_GROUPS]; /* -1: not kept */
    int       n;                    /* tokens */
    int32_t   tokens[];             /* page_tokens of room */
};

struct kv_tree {
    kv_pool        *pool;
    kv_tree_options o;
    int             n_groups;
    node           *root;
    node           *newest, *oldest;
    kv_tree_stats   stats;
};

static node *node_new(const kv_tree *t) {
    node *x = calloc(1, sizeof *x + (size_t)t->o.page_tokens * sizeof x->tokens[0]);
    if (x) {
        for (int g = 0; g < KV_MAX_GROUPS; g++) x->pages[g] = -1;
    }
    return x;
}

int kv_tree_open(kv_tree **out, kv_pool *pool, const kv_tree_options *o, err *e) {
    *out = NULL;
    if (o->page_tokens < 1) return err_set(e, ERR_ARG, "%d tokens per page", o->page_tokens);
    kv_tree *t = calloc(1, sizeof *t);
    if (!t) return err_set_nomem(e);
    *t = (kv_tree){ .pool = pool, .o = *o, .n_groups = kv_pool_groups(pool) };
    t->root = node_new(t);
    if (!t->root) {
        free(t);
        return err_set_nomem(e);
    }
    *out = t;
    return 0;
}

void kv_tree_free(kv_tree *t) {
    if (!t) return;
    while (kv_tree_evict_one(t)) {
    }
    free(t->root->children);
    free(t->root);
    free(t);
}

/* -- order of use
 * ------------------------------------------------------------------------------------------------------ */

static void list_remove(kv_tree *t, node *x) {
    *(x->newer ? &x->newer->older : &t->newest) = x->older;
    *(x->older ? &x->older->newer : &t->oldest) = x->newer;
    x->newer = x->older = NULL;
}

static void list_push(kv_tree *t, node *x) {
    x->older = t->newest;
    x->newer = NULL;
    *(t->newest ? &t->newest->newer : &t->oldest) = x;
    t->newest = x;
}

/* The node and its ancestors become the newest, the one nearest to the root last: no node is ever newer than its
 * parent. */
static void touch(kv_tree *t, node *x) {
    for (; x != t->root; x = x->parent) {
        list_remove(t, x);
        list_push(t, x);
    }
}

/* -- children
 * ---------------------------------------------------------------------------------------------------------- */

static int common(const int32_t *a, int na, const int32_t *b, int nb) {
    int n = na < nb ? na : nb, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Where tokens would stand among the children; *same: that child has exactly these tokens. */
static int child_place(const node *x, const int32_t *tokens, int n, bool *same) {
    int lo = 0, hi = x->n_children;
    *same = false;
    while (lo < hi) {
        int   mid = (lo + hi) / 2;
        node *c = x->children[mid];
        int   k = common(c->tokens, c->n, tokens, n);
        if (k == c->n && k == n) {
            *same = true;
            return mid;
        }
        bool before = k == c->n || (k < n && c->tokens[k] < tokens[k]);
        if (before)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The child that shares most with tokens; *shared is how much, 0 for none. */
static node *child_best(const node *x, const int32_t *tokens, int n, int *shared) {
    bool  same;
    int   at = child_place(x, tokens, n, &same);
    node *best = NULL;
    *shared = 0;
    for (int i = at - 1; i <= at; i++) {
        if (i < 0 || i >= x->n_children) continue;
        int k = common(x->children[i]->tokens, x->children[i]->n, tokens, n);
        if (k > *shared) {
            *shared = k;
            best = x->children[i];
        }
    }
    return best;
}

static bool child_add(node *parent, node *x, int at) {
    if (parent->n_children == parent->cap_children) {
        int    cap = parent->cap_children ? parent->cap_children * 2 : 2;
        node **children = realloc(parent->children, (size_t)cap * sizeof *children);
        if (!children) return false;
        parent->children = children;
        parent->cap_children = cap;
    }
    memmove(&parent->children[at + 1], &parent->children[at],
            (size_t)(parent->n_children - at) * sizeof *parent->children);
    parent->children[at] = x;
    parent->n_children++;
    x->parent = parent;
    return true;
}

static void child_remove(node *parent, const node *x) {
    bool same;
    int  at = child_place(parent, x->tokens, x->n, &same);
    assert(same && parent->children[at] == x);
    parent->n_children--;
    memmove(&parent->children[at], &parent->children[at + 1],
            (size_t)(parent->n_children - at) * sizeof *parent->children);
}

/* -- looking up
 * -------------------------------------------------------------------------------------------------------- */

/* One step of a walk from the root: which node, and how many of its tokens agree. */
typedef struct step {
    node *x;
    int   shared;
} step;

/* Walks as far as tokens[0..n) agrees. steps has room for ceil(n / page_tokens). */
static int walk(const kv_tree *t, const int32_t *tokens, int n, step *steps) {
    int         depth = 0, P = t->o.page_tokens;
    const node *x = t->root;
    for (int at = 0; at < n; at += P) {
        int   want = n - at < P ? n - at : P, shared;
        node *c = child_best(x, tokens + at, want, &shared);
        if (!c) break;
        steps[depth++] = (step){ c, shared };
        if (shared < P) break;
        x = c;
    }
    return depth;
}

/* Whether the pages that position `length` and later ones look back on are all there. */
static bool pages_present(const kv_tree *t, const step *steps, int length) {
    int P = t->o.page_tokens;
    for (int g = 0; g < t->n_groups; g++) {
        int first = t->o.window[g] > 0 && length >= t->o.window[g] ? length - t->o.window[g] + 1 : 0;
        for (int i = first / P; i * P < length; i++) {
            if (steps[i].x->pages[g] < 0) return false;
        }
    }
    return true;
}

/*
 * The best snapshot in one page of the walk. Several children may agree with the tokens far enough (they differ only
 * behind), and the state may hang on any of them; they stand side by side. Leaves the child in the step.
 */
static kv_match best_snapshot(const kv_tree *t, step *steps, int depth, const int32_t *tokens, int limit) {
    int         P = t->o.page_tokens, at = depth * P, want = limit - at < P ? limit - at : P;
    const step  walked = steps[depth];
    const node *parent = walked.x->parent;
    kv_match    best = { 0, -1 };
    step        chosen = walked;
    for (int k = 0; k < parent->n_children; k++) {
        node *c = parent->children[k];
        int   shared = common(c->tokens, c->n, tokens + at, want);
        for (int q = c->n_snapshots - 1; q >= 0; q--) {
            if (c->snapshots[q].offset > shared || at + c->snapshots[q].offset <= best.n_tokens) continue;
            steps[depth] = (step){ c, shared };
            if (pages_present(t, steps, at + c->snapshots[q].offset)) {
                best = (kv_match){ at + c->snapshots[q].offset, c->snapshots[q].handle };
                chosen = steps[depth];
            }
            break;
        }
    }
    steps[depth] = chosen;
    return best;
}

/* The largest usable length within what agrees, and its snapshot. */
static kv_match best_length(const kv_tree *t, step *steps, int depth, const int32_t *tokens, int limit) {
    int P = t->o.page_tokens;
    for (int i = depth - 1; i >= 0; i--) {
        int end = i * P + steps[i].shared;
        if (end > limit) end = limit;
        if (end <= i * P) continue;
        if (t->o.needs_snapshot) {
            kv_match m = best_snapshot(t, steps, i, tokens, limit);
            if (m.n_tokens > 0) return m;
        } else if (pages_present(t, steps, end)) {
            /* Ends of pages and the end of the agreement are all that can matter: within a page the same pages serve.
             */
            return (kv_match){ end, -1 };
        }
    }
    return (kv_match){ 0, -1 };
}

kv_match kv_tree_match(kv_tree *t, const int32_t *tokens, int n, int32_t *const pages[KV_MAX_GROUPS]) {
    int   P = t->o.page_tokens;
    step *steps = n > 1 ? malloc((size_t)((n + P - 1) / P) * sizeof *steps) : NULL;
    if (!steps) return (kv_match){ 0, -1 }; /* out of memory only costs the reuse */
    int      depth = walk(t, tokens, n, steps);
    kv_match m = best_length(t, steps, depth, tokens, n - 1);
    int      used = (m.n_tokens + P - 1) / P;
    for (int g = 0; g < t->n_groups; g++) {
        int first = t->o.window[g] > 0 && m.n_tokens >= t->o.window[g] ? m.n_tokens - t->o.window[g] + 1 : 0;
        for (int i = 0; i < used; i++) {
            pages[g][i] = i < first / P ? -1 : steps[i].x->pages[g];
            kv_pool_retain(t->pool, g, pages[g][i]);
        }
    }
    if (used > 0) touch(t, steps[used - 1].x);
    free(steps);
    return m;
}

/* -- remembering
 * ------------------------------------------------------------------------------------------------------- */

static void node_set_page(kv_tree *t, node *x, int g, int32_t page) {
    kv_pool_retain(t->pool, g, page);
    kv_pool_release(t->pool, g, x->pages[g]);
    x->pages[g] = page;
}

/* Where the node lacks a page that is at hand, it learns it. */
static void node_complete(kv_tree *t, node *x, int index, const int32_t *const pages[KV_MAX_GROUPS]) {
    for (int g = 0; g < t->n_groups; g++) {
        if (x->pages[g] < 0 && pages[g][index] >= 0) node_set_page(t, x, g, pages[g][index]);
    }
}

/* A leaf whose tokens are the beginning of these grows in place: its page is replaced by the fuller one. */
static void node_grow(kv_tree *t, node *x, const int32_t *tokens, int n, int index,
                      const int32_t *const pages[KV_MAX_GROUPS]) {
    node *parent = x->parent;
    child_remove(parent, x);
    t->stats.tokens += (size_t)(n - x->n);
    memcpy(x->tokens, tokens, (size_t)n * sizeof *tokens);
    x->n = n;
    /* The old page lacks the new positions; where the fuller one was given up, the node has none. */
    for (int g = 0; g < t->n_groups; g++) node_set_page(t, x, g, pages[g][index]);
    bool same;
    int  at = child_place(parent, tokens, n, &same);
    bool added = child_add(parent, x, at); /* room is there: one was removed */
    assert(added && !same);
    (void)added;
}

bool kv_tree_insert(kv_tree *t, const int32_t *tokens, int n, const int32_t *const pages[KV_MAX_GROUPS]) {
    int   P = t->o.page_tokens;
    node *x = t->root;
    for (int at = 0, index = 0; at < n; at += P, index++) {
        int   want = n - at < P ? n - at : P, shared;
        bool  same;
        node *c = child_best(x, tokens + at, want, &shared);
        if (c && shared == want) {
            /* Known already. Where the node has more tokens than these, our page would not hold them all. */
            if (c->n == want) node_complete(t, c, index, pages);
        } else if (c && shared == c->n && c->n_children == 0) {
            node_grow(t, c, tokens + at, want, index, pages);
        } else {
            c = node_new(t);
            if (!c) return false;
            memcpy(c->tokens, tokens + at, (size_t)want * sizeof *tokens);
            c->n = want;
            if (!child_add(x, c, child_place(x, c->tokens, want, &same))) {
                free(c);
                return false;
            }
            list_push(t, c);
            t->stats.nodes++;
            t->stats.tokens += (size_t)want;
            node_complete(t, c, index, pages);
        }
        x = c;
        if (c->n < P) break; /* nothing stands below a part of a page */
    }
    if (x != t->root) touch(t, x);
    return true;
}

bool kv_tree_add_snapshot(kv_tree *t, const int32_t *tokens, int n, int32_t handle) {
    int   P = t->o.page_tokens;
    node *x = t->root;
    if (n < 1) return false;
    for (int at = 0; at < n; at += P) {
        int   want = n - at < P ? n - at : P, shared;
        node *c = child_best(x, tokens + at, want, &shared);
        if (!c || shared < want) return false;
        x = c;
    }
    int offset = (n - 1) % P + 1, at = 0;
    while (at < x->n_snapshots && x->snapshots[at].offset < offset) at++;
    if (at < x->n_snapshots && x->snapshots[at].offset == offset) return false;
    snapshot *grown = realloc(x->snapshots, (size_t)(x->n_snapshots + 1) * sizeof *grown);
    if (!grown) return false;
    memmove(&grown[at + 1], &grown[at], (size_t)(x->n_snapshots - at) * sizeof *grown);
    grown[at] = (snapshot){ offset, handle };
    x->snapshots = grown;
    x->n_snapshots++;
    t->stats.snapshots++;
    return true;
}

/* -- forgetting
 * -------------------------------------------------------------------------------------------------------- */

bool kv_tree_evict_one(kv_tree *t) {
    node *x = t->oldest;
    if (!x) return false;
    assert(x->n_children == 0);
    child_remove(x->parent, x);
    list_remove(t, x);
    for (int g = 0; g < t->n_groups; g++) kv_pool_release(t->pool, g, x->pages[g]);
    for (int i = 0; i < x->n_snapshots; i++) {
        if (t->o.drop_snapshot) t->o.drop_snapshot(t->o.ctx, x->snapshots[i].handle);
    }
    t->stats.nodes--;
    t->stats.tokens -= (size_t)x->n;
    t->stats.snapshots -= (size_t)x->n_snapshots;
    free(x->snapshots);
    free(x->children);
    free(x);
    return true;
}

bool kv_tree_evict(kv_tree *t, const int need[KV_MAX_GROUPS]) {
    for (;;) {
        bool enough = true;
        for (int g = 0; g < t->n_groups; g++) enough = enough && kv_pool_unused(t->pool, g) >= need[g];
        if (enough) return true;
        if (!kv_tree_evict_one(t)) return false;
    }
}

kv_tree_stats kv_tree_stat(const kv_tree *t) { return t->stats; }
