/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/tree_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int kv_tree_open(kv_tree **out, kv_pool *pool, const kv_tree_options *o, err *e) {
    int rc;
    *out = NULL;
    if (o->id.page_tokens < 1 || o->id.page_tokens > PAGE_TOKENS_MAX)
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
    if (o->disk) {
        t->buffer_bytes = t->pages_bytes > o->id.state_bytes ? t->pages_bytes : o->id.state_bytes;
        t->buffer = malloc(t->buffer_bytes ? t->buffer_bytes : 1);
        rc = t->buffer ? kv_tree_adopt(t, e) : err_set_nomem(e);
        if (rc < 0) {
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
    while (t->n_roots) { /* a root goes with its last child */
        const kv_node *root = t->roots[t->n_roots - 1];
        kv_node_forget(t, root->children[root->n_children - 1]);
    }
    free(t->roots);
    free(t->buffer);
    free(t);
}

/* --- looking up --------------------------------------------------------------------------------------------------- */

/* Walks as far as the text's first n positions agree. steps has room for ceil(n / page_tokens). */
static int walk(const kv_tree *t, const kv_text *text, int n, kv_step *steps) {
    int            depth = 0, P = t->page_tokens;
    const kv_node *x = kv_root_find(t, &text->space);
    for (int at = 0; x && at < n; at += P) {
        kv_span  span = kv_text_span(text, at, n - at < P ? n - at : P);
        int      shared;
        kv_node *c = kv_child_best(x, &span, &shared);
        if (!c) break;
        steps[depth++] = (kv_step){ .x = c, .shared = shared };
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
static bool pages_present(const kv_tree *t, const kv_step *steps, int length) {
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
static length best_state(const kv_tree *t, kv_step *steps, int depth, const kv_text *text, int limit) {
    int            P = t->page_tokens, at = depth * P;
    const kv_span  span = kv_text_span(text, at, limit - at < P ? limit - at : P);
    const kv_step  walked = steps[depth];
    const kv_node *parent = walked.x->parent;
    length         best = { 0, NULL };
    kv_step        chosen = walked;
    for (int k = 0; k < parent->n_children; k++) {
        kv_node *c = parent->children[k];
        kv_span  its = kv_node_span(c);
        int      shared = kv_common(&its, &span);
        for (int q = c->n_states - 1; q >= 0; q--) {
            if (c->states[q]->offset > shared || at + c->states[q]->offset <= best.n) continue;
            steps[depth] = (kv_step){ .x = c, .shared = shared };
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
static length best_length(const kv_tree *t, kv_step *steps, int depth, const kv_text *text, int limit) {
    int P = t->page_tokens;
    for (int i = depth - 1; i >= 0; i--) {
        int end = i * P + steps[i].shared;
        if (end > limit) end = limit;
        if (end <= i * P) continue;
        if (t->o.id.state_bytes) {
            length m = best_state(t, steps, i, text, limit);
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
static bool has_room(const kv_tree *t, const kv_step *steps, int used, int n, int reserve) {
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

/* Brings everything that the length needs to the device. 0, or why not; *limit is then what may still work. */
static int bring(kv_tree *t, kv_step *steps, const length *m, int *limit, const void **state) {
    int P = t->page_tokens, used = (m->n + P - 1) / P, at = 0;
    for (int g = 0; g < t->n_groups; g++) {
        for (int i = first_page(t, g, m->n); i < used; i++) steps[i].groups |= 1u << g;
    }
    t->pin = t->clock + 1;
    if (m->state) kv_touch_state(t, m->state);
    kv_touch(t, steps[used - 1].x);
    int rc = kv_bring(t, steps, used, &at);
    /* What was lost the tree knows now, and finds something shorter or nothing. */
    if (rc < 0 && rc != ERR_NOTFOUND) *limit = at * P;
    if (rc == 0 && m->state) rc = (*state = kv_state_fetch(t, m->state)) ? 0 : ERR_NOTFOUND;
    t->pin = KV_NOTHING_PINNED;
    return rc;
}

kv_match kv_tree_match(kv_tree *t, const kv_text *text, int n, int reserve, int32_t *const pages[KV_MAX_GROUPS]) {
    const kv_match nothing = { 0, NULL };
    int            P = t->page_tokens, limit = n - 1, used;
    kv_step       *steps = n > 1 ? malloc((size_t)((n + P - 1) / P) * sizeof *steps) : NULL;
    length         m = { 0, NULL };
    const void    *state = NULL;
    if (!steps) return nothing; /* out of memory only costs the reuse */
    do {
        int depth = walk(t, text, n, steps);
        m = best_length(t, steps, depth, text, limit);
        used = (m.n + P - 1) / P;
        if (used == 0 || !has_room(t, steps, used, m.n, reserve)) {
            free(steps);
            return nothing;
        }
    } while (bring(t, steps, &m, &limit, &state) < 0);
    for (int g = 0; g < t->n_groups; g++) {
        for (int i = 0; i < used; i++) {
            pages[g][i] = i < first_page(t, g, m.n) ? -1 : steps[i].x->pages[g];
            kv_pool_retain(t->pool, g, pages[g][i]);
        }
    }
    free(steps);
    return (kv_match){ m.n, state };
}

/* --- remembering -------------------------------------------------------------------------------------------------- */

/* Where the node lacks a page that is at hand, it learns it. */
static void node_complete(kv_tree *t, kv_node *x, int index, const int32_t *const pages[KV_MAX_GROUPS]) {
    for (int g = 0; g < t->n_groups; g++) {
        if (x->pages[g] < 0 && pages[g][index] >= 0) kv_set_page(t, x, g, pages[g][index]);
    }
    if (!x->it.in[KV_DEVICE]) kv_enter(t, &x->it, KV_DEVICE);
    if ((x->host_groups & ~kv_device_groups(t, x)) == 0) kv_drop_host(t, x);
}

/* A leaf whose tokens are the beginning of these grows in place: its page is replaced by the fuller one. */
static bool node_grow(kv_tree *t, kv_node *x, const kv_span *span, int index,
                      const int32_t *const pages[KV_MAX_GROUPS]) {
    if (!kv_node_extend(t, x, span)) return false;
    /* The old page lacks the new positions; where the fuller one was given up, the node has none. */
    for (int g = 0; g < t->n_groups; g++) kv_set_page(t, x, g, pages[g][index]);
    if (!x->it.in[KV_DEVICE]) kv_enter(t, &x->it, KV_DEVICE);
    return true;
}

bool kv_tree_insert(kv_tree *t, const kv_text *text, int n, const int32_t *const pages[KV_MAX_GROUPS]) {
    int      P = t->page_tokens;
    bool     ok = true;
    kv_node *x = n > 0 ? kv_root_get(t, &text->space) : NULL;
    if (!x) return n < 1;
    for (int at = 0, index = 0; at < n; at += P, index++) {
        kv_span  span = kv_text_span(text, at, n - at < P ? n - at : P);
        int      shared;
        kv_node *c = kv_child_best(x, &span, &shared);
        if (c && shared == span.n) {
            /* Known already. Where the node has more tokens than these, our page would not hold them all. */
            if (c->n == span.n) node_complete(t, c, index, pages);
        } else if (c && shared == c->n && c->n_children == 0) {
            ok = node_grow(t, c, &span, index, pages);
        } else {
            c = kv_node_new(t, x, &span);
            ok = c != NULL;
            if (ok) node_complete(t, c, index, pages);
        }
        if (!ok) break;
        x = c;
        if (c->n < P) break; /* nothing stands below a part of a page */
    }
    if (x->parent)
        kv_touch(t, x);
    else
        kv_root_settle(t, x);
    return ok;
}

/* The node that holds position n - 1 of the text; NULL: unknown. */
static kv_node *find(const kv_tree *t, const kv_text *text, int n) {
    int      P = t->page_tokens;
    kv_node *x = n > 0 ? kv_root_find(t, &text->space) : NULL;
    for (int at = 0; x && at < n; at += P) {
        kv_span  span = kv_text_span(text, at, n - at < P ? n - at : P);
        int      shared;
        kv_node *c = kv_child_best(x, &span, &shared);
        x = shared == span.n ? c : NULL;
    }
    return x;
}

static int offset_of(const kv_tree *t, int n) { return (n - 1) % t->page_tokens + 1; }

void *kv_tree_add_state(kv_tree *t, const kv_text *text, int n) {
    kv_node *x = find(t, text, n);
    int      offset = offset_of(t, n);
    if (!x || !t->o.id.state_bytes) return NULL;
    for (int i = 0; i < x->n_states; i++) {
        if (x->states[i]->offset != offset) continue;
        kv_touch_state(t, x->states[i]);
        kv_touch(t, x);
        return NULL;
    }
    t->pin = t->clock + 1;
    kv_touch(t, x);
    bool room = kv_make_room(t, t->o.id.state_bytes), host = !room && kv_make_host_room(t, t->o.id.state_bytes);
    /* With a disk it lies beyond the budget until kv_tree_save has written it. */
    void     *bytes = room || host || t->o.disk ? malloc(t->o.id.state_bytes) : NULL;
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

void kv_tree_drop_state(kv_tree *t, const kv_text *text, int n) {
    kv_node *x = find(t, text, n);
    for (int i = 0; x && i < x->n_states; i++) {
        if (x->states[i]->offset != offset_of(t, n)) continue;
        kv_state_free(t, x->states[i]);
        return;
    }
}
