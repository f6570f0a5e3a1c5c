/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cache.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SNAPSHOTS = 1024 };

static void drop_snapshot(void *ctx, int32_t handle) {
    cache *c = ctx;
    free(c->snapshots[handle]);
    c->snapshots[handle] = NULL;
    c->n_snapshots--;
}

int cache_open(cache *c, nn_exec *x, err *e) {
    const nn_limits *l = &x->options.limits;
    int              pages[KV_MAX_GROUPS], rc;
    *c = (cache){ .exec = x, .page_tokens = l->page_tokens, .max_pages = l->max_pages, .n_groups = x->groups.n };
    if (!x->backend->page_copy)
        return err_set(e, ERR_UNSUPPORTED, "the %s backend cannot hold a cache", x->backend->name);
    kv_tree_options o = { .page_tokens = l->page_tokens, .drop_snapshot = drop_snapshot, .ctx = c };
    for (int g = 0; g < x->groups.n; g++) {
        pages[g] = l->n_pages;
        o.window[g] = x->groups.window[g];
    }
    c->slot_bytes = x->backend->slot_bytes(x);
    o.needs_snapshot = c->slot_bytes > 0;
    c->max_snapshots = c->slot_bytes ? MAX_SNAPSHOTS : 0;
    c->snapshots = calloc((size_t)c->max_snapshots + 1, sizeof *c->snapshots);
    if (!c->snapshots) return err_set_nomem(e);
    if ((rc = kv_pool_open(&c->pool, c->n_groups, pages, e)) < 0) return rc;
    return kv_tree_open(&c->tree, c->pool, &o, e);
}

void cache_close(cache *c) {
    kv_tree_free(c->tree);
    kv_pool_free(c->pool);
    free(c->snapshots);
    *c = (cache){ 0 };
}

int cache_tables_init(const cache *c, cache_tables *t, err *e) {
    *t = (cache_tables){ 0 };
    for (int g = 0; g < KV_MAX_GROUPS; g++) {
        t->tables[g] = calloc((size_t)c->max_pages, sizeof *t->tables[g]);
        if (!t->tables[g]) {
            cache_tables_deinit(t);
            return err_set_nomem(e);
        }
    }
    return 0;
}

void cache_tables_release(cache *c, cache_tables *t) {
    for (int g = 0; g < c->n_groups; g++) {
        for (int i = 0; i < t->n_pages; i++) kv_pool_release(c->pool, g, t->tables[g][i]);
    }
    t->n_pages = 0;
}

void cache_tables_deinit(cache_tables *t) {
    for (int g = 0; g < KV_MAX_GROUPS; g++) free(t->tables[g]);
    *t = (cache_tables){ 0 };
}

/* One unused page in every group, making room in the tree. False: there is none. */
static bool take_pages(cache *c, int32_t out[KV_MAX_GROUPS]) {
    const int need[KV_MAX_GROUPS] = { 1, 1, 1, 1 };
    if (!kv_tree_evict(c->tree, need)) return false;
    for (int g = 0; g < c->n_groups; g++) out[g] = kv_pool_take(c->pool, g);
    return true;
}

int cache_attach(cache *c, cache_tables *t, const int32_t *tokens, int n, int32_t slot) {
    kv_match m = kv_tree_match(c->tree, tokens, n, t->tables);
    int      P = c->page_tokens, part = m.n_tokens % P;
    t->n_pages = (m.n_tokens + P - 1) / P;
    /* The state is copied first: making room below may drop the snapshot. */
    if (m.n_tokens > 0 && c->slot_bytes) c->exec->backend->slot_write(c->exec, slot, c->snapshots[m.snapshot]);
    if (part == 0) return m.n_tokens;
    int     last = t->n_pages - 1;
    int32_t fresh[KV_MAX_GROUPS];
    if (!take_pages(c, fresh)) { /* no room for the copy: without a fixed state whole pages can still be used */
        for (int g = 0; g < c->n_groups; g++) kv_pool_release(c->pool, g, t->tables[g][last]);
        t->n_pages = last;
        if (c->slot_bytes) {
            cache_tables_release(c, t);
            return 0;
        }
        return last * P;
    }
    for (int g = 0; g < c->n_groups; g++) {
        int32_t shared = t->tables[g][last];
        if (shared >= 0) c->exec->backend->page_copy(c->exec, g, shared, fresh[g]);
        kv_pool_release(c->pool, g, shared);
        t->tables[g][last] = fresh[g];
    }
    return m.n_tokens;
}

bool cache_grow(cache *c, cache_tables *t, int len) {
    int want = (len + c->page_tokens - 1) / c->page_tokens, had = t->n_pages;
    for (; t->n_pages < want; t->n_pages++) {
        int32_t fresh[KV_MAX_GROUPS];
        if (!take_pages(c, fresh)) {
            for (; t->n_pages > had; t->n_pages--) {
                for (int g = 0; g < c->n_groups; g++) kv_pool_release(c->pool, g, t->tables[g][t->n_pages - 1]);
            }
            return false;
        }
        for (int g = 0; g < c->n_groups; g++) t->tables[g][t->n_pages] = fresh[g];
    }
    return true;
}

void cache_trim(cache *c, cache_tables *t, int len) {
    for (int g = 0; g < c->n_groups; g++) {
        int window = c->exec->groups.window[g];
        if (window == 0) continue;
        for (int i = (len - window + 1) / c->page_tokens - 1; i >= 0 && i < t->n_pages && t->tables[g][i] >= 0; i--) {
            kv_pool_release(c->pool, g, t->tables[g][i]);
            t->tables[g][i] = -1;
        }
    }
}

void cache_remember(cache *c, const cache_tables *t, const int32_t *tokens, int len, int32_t slot) {
    if (len < 1 || !kv_tree_insert(c->tree, tokens, len, (const int32_t *const *)t->tables)) return;
    if (!c->slot_bytes) return;
    while (c->n_snapshots == c->max_snapshots) {
        if (!kv_tree_evict_one(c->tree)) return;
    }
    int32_t handle = 0;
    while (c->snapshots[handle]) handle++;
    void *state = malloc(c->slot_bytes);
    if (!state) return;
    c->exec->backend->slot_read(c->exec, slot, state);
    c->snapshots[handle] = state;
    c->n_snapshots++;
    if (!kv_tree_add_snapshot(c->tree, tokens, len, handle)) drop_snapshot(c, handle);
}

bool cache_fits(const cache *c, int len) {
    int want = (len + c->page_tokens - 1) / c->page_tokens;
    if (want > c->max_pages) return false;
    for (int g = 0; g < c->n_groups; g++) {
        if (want > kv_pool_total(c->pool, g)) return false;
    }
    return true;
}
