/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/tree_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int kv_tree_open(kv_tree **out, kv_pool *pool, const kv_tree_options *o, err *e) {
    int rc;
    *out = NULL;
    if (o->id.page_tokens < 1 || o->id.page_tokens > KV_MAX_PAGE_TOKENS)
        return err_set(e, ERR_ARG, "%d tokens per page", o->id.page_tokens);
    kv_tree *t = calloc(1, sizeof *t);
    if (!t) return err_set_nomem(e);
    *t = (kv_tree){ .pool = pool,
                    .o = *o,
                    .n_groups = kv_pool_groups(pool),
                    .page_tokens = o->id.page_tokens,
                    .pin = KV_NOTHING_PINNED };
    for (int g = 0; g < t->n_groups; g++) {
        t->pages_bytes += o->id.page_bytes[g];
        t->looks_back = t->looks_back || o->window[g] == 0;
    }
    t->root = calloc(1, sizeof *t->root);
    size_t largest = t->pages_bytes > o->id.state_bytes ? t->pages_bytes : o->id.state_bytes;
    if (t->root && o->disk) t->buffer = malloc(largest ? largest : 1);
    if (!t->root || (o->disk && !t->buffer)) {
        kv_tree_free(t);
        return err_set_nomem(e);
    }
    if (o->disk) {
        t->root->key = kv_key_root(&o->id);
        if ((rc = kv_tree_adopt(t, e)) < 0) {
            kv_tree_free(t);
            return rc;
        }
    }
    *out = t;
    return 0;
}

void kv_tree_free(kv_tree *t) {
    if (!t) return;
    t->closing = true;
    while (t->root && t->root->n_children) kv_node_forget(t, t->root->children[t->root->n_children - 1]);
    if (t->root) free(t->root->children);
    free(t->root);
    free(t->buffer);
    free(t);
}

/* -- children
 * ---------------------------------------------------------------------------------------------------------- */

int kv_common(const int32_t *a, int na, const int32_t *b, int nb) {
    int n = na < nb ? na : nb, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Where tokens would stand among the children; *same: that child has exactly these tokens. */
static int child_place(const kv_node *x, const int32_t *tokens, int n, bool *same) {
    int lo = 0, hi = x->n_children;
    *same = false;
    while (lo < hi) {
        int            mid = (lo + hi) / 2;
        const kv_node *c = x->children[mid];
        int            k = kv_common(c->tokens, c->n, tokens, n);
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
kv_node *kv_child_best(const kv_node *x, const int32_t *tokens, int n, int *shared) {
    bool     same;
    int      at = child_place(x, tokens, n, &same);
    kv_node *best = NULL;
    *shared = 0;
    for (int i = at - 1; i <= at; i++) {
        if (i < 0 || i >= x->n_children) continue;
        int k = kv_common(x->children[i]->tokens, x->children[i]->n, tokens, n);
        if (k > *shared) {
            *shared = k;
            best = x->children[i];
        }
    }
    return best;
}

static bool child_add(kv_node *parent, kv_node *x, int at) {
    if (parent->n_children == parent->cap_children) {
        int       cap = parent->cap_children ? parent->cap_children * 2 : 2;
        kv_node **children = realloc(parent->children, (size_t)cap * sizeof *children);
        if (!children) return false;
        parent->children = children;
        parent->cap_children = cap;
    }
    memmove(&parent->children[at + 1], &parent->children[at],
            (size_t)(parent->n_children - at) * sizeof *parent->children);
    parent->children[at] = x;
    parent->n_children++;
    return true;
}

static void child_remove(kv_node *parent, const kv_node *x) {
    bool same;
    int  at = child_place(parent, x->tokens, x->n, &same);
    assert(same && parent->children[at] == x);
    parent->n_children--;
    memmove(&parent->children[at], &parent->children[at + 1],
            (size_t)(parent->n_children - at) * sizeof *parent->children);
}

static void set_key(const kv_tree *t, kv_node *x) {
    if (t->o.disk) x->key = kv_key_of(KV_ENTRY_PAGE, &x->parent->key, x->tokens, x->n);
}

kv_node *kv_node_new(kv_tree *t, kv_node *parent, const int32_t *tokens, int n) {
    bool     same;
    kv_node *x = calloc(1, sizeof *x + (size_t)t->page_tokens * sizeof x->tokens[0]);
    if (!x) return NULL;
    for (int g = 0; g < KV_MAX_GROUPS; g++) x->pages[g] = -1;
    x->parent = parent;
    x->position = parent == t->root ? 0 : parent->position + t->page_tokens;
    x->n = n;
    memcpy(x->tokens, tokens, (size_t)n * sizeof *tokens);
    if (!child_add(parent, x, child_place(parent, tokens, n, &same))) {
        free(x);
        return NULL;
    }
    assert(!same);
    set_key(t, x);
    x->it.used = ++t->clock;
    t->stats.nodes++;
    t->stats.tokens += (size_t)n;
    return x;
}

static void leaf_free(kv_tree *t, kv_node *x) {
    assert(x->n_children == 0);
    while (x->n_states) kv_state_free(t, x->states[x->n_states - 1]);
    for (int g = 0; g < t->n_groups; g++) kv_set_page(t, x, g, -1);
    if (x->it.in[KV_DEVICE]) kv_leave(t, &x->it, KV_DEVICE);
    kv_drop_host(t, x);
    kv_drop_file(t, &x->it);
    child_remove(x->parent, x);
    t->stats.nodes--;
    t->stats.tokens -= (size_t)x->n;
    t->forgotten++;
    free(x->states);
    free(x->children);
    free(x);
}

void kv_node_forget(kv_tree *t, kv_node *x) {
    for (bool last = false; !last;) {
        kv_node *leaf = x;
        while (leaf->n_children) leaf = leaf->children[leaf->n_children - 1];
        last = leaf == x;
        leaf_free(t, leaf);
    }
}

/* -- looking up
 * -------------------------------------------------------------------------------------------------------- */

/* One step of a walk from the root: which node, and how many of its tokens agree. */
typedef struct step {
    kv_node *x;
    int      shared;
} step;

/* Walks as far as tokens[0..n) agrees. steps has room for ceil(n / page_tokens). */
static int walk(const kv_tree *t, const int32_t *tokens, int n, step *steps) {
    int            depth = 0, P = t->page_tokens;
    const kv_node *x = t->root;
    for (int at = 0; at < n; at += P) {
        int      want = n - at < P ? n - at : P, shared;
        kv_node *c = kv_child_best(x, tokens + at, want, &shared);
        if (!c) break;
        steps[depth++] = (step){ c, shared };
        if (shared < P) break;
        x = c;
    }
    return depth;
}

/* The first page of a group that position `length` and later ones look back on. */
static int first_page(const kv_tree *t, int g, int length) {
    int window = t->o.window[g];
    return window > 0 && length >= window ? (length - window + 1) / t->page_tokens : 0;
}

/* Whether the pages that position `length` and later ones look back on are all there, in some tier. */
static bool pages_present(const kv_tree *t, const step *steps, int length) {
    for (int g = 0; g < t->n_groups; g++) {
        for (int i = first_page(t, g, length); i * t->page_tokens < length; i++) {
            const kv_node *x = steps[i].x;
            if (x->pages[g] < 0 && !((x->host_groups | x->disk_groups) >> g & 1)) return false;
        }
    }
    return true;
}

typedef struct length {
    int       n;
    kv_state *state;
} length;

/*
 * The best state in one page of the walk. Several children may agree with the tokens far enough (they differ only
 * behind), and the state may hang on any of them; they stand side by side. Leaves the child in the step.
 */
static length best_state(const kv_tree *t, step *steps, int depth, const int32_t *tokens, int limit) {
    int            P = t->page_tokens, at = depth * P, want = limit - at < P ? limit - at : P;
    const step     walked = steps[depth];
    const kv_node *parent = walked.x->parent;
    length         best = { 0, NULL };
    step           chosen = walked;
    for (int k = 0; k < parent->n_children; k++) {
        kv_node *c = parent->children[k];
        int      shared = kv_common(c->tokens, c->n, tokens + at, want);
        for (int q = c->n_states - 1; q >= 0; q--) {
            if (c->states[q]->offset > shared || at + c->states[q]->offset <= best.n) continue;
            steps[depth] = (step){ c, shared };
            if (pages_present(t, steps, at + c->states[q]->offset)) {
                best = (length){ at + c->states[q]->offset, c->states[q] };
                chosen = steps[depth];
            }
            break;
        }
    }
    steps[depth] = chosen;
    return best;
}

/* The largest usable length within what agrees, and its state. */
static length best_length(const kv_tree *t, step *steps, int depth, const int32_t *tokens, int limit) {
    int P = t->page_tokens;
    for (int i = depth - 1; i >= 0; i--) {
        int end = i * P + steps[i].shared;
        if (end > limit) end = limit;
        if (end <= i * P) continue;
        if (t->o.id.state_bytes) {
            length m = best_state(t, steps, i, tokens, limit);
            if (m.n > 0) return m;
        } else if (pages_present(t, steps, end)) {
            /* Ends of pages and the end of the agreement are all that can matter: within a page the same pages serve.
             */
            return (length){ end, NULL };
        }
    }
    return (length){ 0, NULL };
}

/* Whether the pool could give the sequence everything that it does not share with running ones. */
static bool has_room(const kv_tree *t, const step *steps, int used, int n, int reserve) {
    int total = (reserve + t->page_tokens - 1) / t->page_tokens;
    for (int g = 0; g < t->n_groups; g++) {
        int first = first_page(t, g, n), held = 0;
        for (int i = first; i < used; i++) {
            int32_t page = steps[i].x->pages[g];
            held += page >= 0 && !kv_pool_idle(t->pool, g, page);
        }
        if (kv_pool_available(t->pool, g) + held < total - first) return false;
    }
    return true;
}

/* Brings everything that the length needs to the device. 0, or why not and at which page. */
static int bring(kv_tree *t, const step *steps, int used, int n, int *at) {
    for (int i = 0; i < used; i++) {
        unsigned groups = 0;
        for (int g = 0; g < t->n_groups; g++) {
            if (i >= first_page(t, g, n)) groups |= 1u << g;
        }
        int rc = kv_restore(t, steps[i].x, groups);
        *at = i;
        if (rc < 0) return rc;
    }
    return 0;
}

kv_match kv_tree_match(kv_tree *t, const int32_t *tokens, int n, int reserve, int32_t *const pages[KV_MAX_GROUPS]) {
    const kv_match nothing = { 0, NULL };
    int            P = t->page_tokens, limit = n - 1, used;
    step          *steps = n > 1 ? malloc((size_t)((n + P - 1) / P) * sizeof *steps) : NULL;
    length         m = { 0, NULL };
    const void    *state = NULL;
    if (!steps) return nothing; /* out of memory only costs the reuse */
    for (;;) {
        int depth = walk(t, tokens, n, steps), at = 0;
        m = best_length(t, steps, depth, tokens, limit);
        used = (m.n + P - 1) / P;
        if (used == 0 || !has_room(t, steps, used, m.n, reserve)) {
            free(steps);
            return nothing;
        }
        t->pin = t->clock + 1;
        if (m.state) kv_touch_state(t, m.state);
        kv_touch(t, steps[used - 1].x);
        int rc = bring(t, steps, used, m.n, &at);
        if (rc == 0 && m.state) rc = (state = kv_state_fetch(t, m.state)) ? 0 : ERR_NOTFOUND;
        t->pin = KV_NOTHING_PINNED;
        if (rc == 0) break;
        if (rc == ERR_LIMIT) limit = at * P; /* lost: the tree knows, and finds something shorter or nothing */
    }
    for (int g = 0; g < t->n_groups; g++) {
        for (int i = 0; i < used; i++) {
            pages[g][i] = i < first_page(t, g, m.n) ? -1 : steps[i].x->pages[g];
            kv_pool_retain(t->pool, g, pages[g][i]);
        }
    }
    free(steps);
    return (kv_match){ m.n, state };
}

/* -- remembering
 * ------------------------------------------------------------------------------------------------------- */

/* Where the node lacks a page that is at hand, it learns it. */
static void node_complete(kv_tree *t, kv_node *x, int index, const int32_t *const pages[KV_MAX_GROUPS]) {
    for (int g = 0; g < t->n_groups; g++) {
        if (x->pages[g] < 0 && pages[g][index] >= 0) kv_set_page(t, x, g, pages[g][index]);
    }
    if (!x->it.in[KV_DEVICE]) kv_enter(t, &x->it, KV_DEVICE);
    if ((x->host_groups & ~kv_device_groups(t, x)) == 0) kv_drop_host(t, x);
}

/* A leaf whose tokens are the beginning of these grows in place: its page is replaced by the fuller one. */
static void node_grow(kv_tree *t, kv_node *x, const int32_t *tokens, int n, int index,
                      const int32_t *const pages[KV_MAX_GROUPS]) {
    kv_node *parent = x->parent;
    bool     same;
    kv_drop_host(t, x);
    kv_drop_file(t, &x->it);
    child_remove(parent, x);
    t->stats.tokens += (size_t)(n - x->n);
    memcpy(x->tokens, tokens, (size_t)n * sizeof *tokens);
    x->n = n;
    set_key(t, x);
    /* The old page lacks the new positions; where the fuller one was given up, the node has none. */
    for (int g = 0; g < t->n_groups; g++) kv_set_page(t, x, g, pages[g][index]);
    int  at = child_place(parent, tokens, n, &same);
    bool added = child_add(parent, x, at); /* room is there: one was removed */
    assert(added && !same);
    (void)added;
}

bool kv_tree_insert(kv_tree *t, const int32_t *tokens, int n, const int32_t *const pages[KV_MAX_GROUPS]) {
    int      P = t->page_tokens;
    kv_node *x = t->root;
    for (int at = 0, index = 0; at < n; at += P, index++) {
        int      want = n - at < P ? n - at : P, shared;
        kv_node *c = kv_child_best(x, tokens + at, want, &shared);
        if (c && shared == want) {
            /* Known already. Where the node has more tokens than these, our page would not hold them all. */
            if (c->n == want) node_complete(t, c, index, pages);
        } else if (c && shared == c->n && c->n_children == 0) {
            node_grow(t, c, tokens + at, want, index, pages);
        } else {
            c = kv_node_new(t, x, tokens + at, want);
            if (!c) {
                if (x != t->root) kv_touch(t, x);
                return false;
            }
            node_complete(t, c, index, pages);
        }
        x = c;
        if (c->n < P) break; /* nothing stands below a part of a page */
    }
    if (x != t->root) kv_touch(t, x);
    return true;
}

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

/* The node that holds position n - 1 of tokens; NULL: unknown. */
static kv_node *find(const kv_tree *t, const int32_t *tokens, int n) {
    kv_node *x = t->root;
    for (int at = 0; at < n; at += t->page_tokens) {
        int      want = n - at < t->page_tokens ? n - at : t->page_tokens, shared;
        kv_node *c = kv_child_best(x, tokens + at, want, &shared);
        if (!c || shared < want) return NULL;
        x = c;
    }
    return n > 0 ? x : NULL;
}

void *kv_tree_add_state(kv_tree *t, const int32_t *tokens, int n) {
    kv_node *x = find(t, tokens, n);
    int      offset = (n - 1) % t->page_tokens + 1;
    if (!x || !t->o.id.state_bytes) return NULL;
    for (int i = 0; i < x->n_states; i++) {
        if (x->states[i]->offset != offset) continue;
        kv_touch_state(t, x->states[i]);
        kv_touch(t, x);
        return NULL;
    }
    t->pin = t->clock + 1;
    kv_touch(t, x);
    bool      room = kv_make_room(t, t->o.id.state_bytes), host = !room && kv_make_host_room(t, t->o.id.state_bytes);
    void     *bytes = room || host ? malloc(t->o.id.state_bytes) : NULL;
    kv_state *s = bytes ? kv_state_new(x, offset) : NULL;
    t->pin = KV_NOTHING_PINNED;
    if (!s) {
        free(bytes);
        return NULL;
    }
    s->bytes = bytes;
    s->it.used = ++t->clock;
    t->stats.states++;
    kv_enter(t, &s->it, host ? KV_HOST : KV_DEVICE);
    kv_touch(t, x);
    return bytes;
}
