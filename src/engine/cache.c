/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cache.h"

#include "engine/identity.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_STATES = 8 };
#define DEFAULT_DISK_BYTES ((uint64_t)8 << 30)

/* The tree's moves as the backend takes them. */
static int move(void *ctx, const kv_move *moves, int n, uint64_t *ticket) {
    cache *c = ctx;
    if (n > c->cap_moves) {
        nn_move *grown = realloc(c->moves, (size_t)n * sizeof *grown);
        if (!grown) return ERR_NOMEM;
        c->moves = grown;
        c->cap_moves = n;
    }
    for (int i = 0; i < n; i++) {
        bool out = moves[i].direction == KV_MOVE_OUT;
        c->moves[i] = (nn_move){ .kind = NN_MOVE_PAGE,
                                 .group = moves[i].group,
                                 .from = out ? moves[i].page : NN_HOST,
                                 .to = out ? NN_HOST : moves[i].page,
                                 .host = moves[i].host };
    }
    return c->exec->backend->move(c->exec, c->moves, n, ticket, NULL);
}

static int moved(void *ctx, uint64_t ticket) {
    nn_exec *x = ((const cache *)ctx)->exec;
    return x->backend->wait(x, ticket, NULL);
}

size_t cache_states_bytes(size_t pages_bytes, size_t slot_bytes, size_t budget_bytes) {
    size_t states = DEFAULT_STATES * slot_bytes;
    if (slot_bytes == 0) return 0;
    if (budget_bytes) return budget_bytes;
    return states > pages_bytes ? states : pages_bytes;
}

static size_t budget_of(const cache *c, const cache_options *o, const kv_identity *id, int n_pages) {
    size_t pages = 0;
    if (o->bytes) return o->bytes;
    for (int g = 0; g < c->n_groups; g++) pages += (size_t)n_pages * id->page_bytes[g];
    return pages + (c->slot_bytes ? cache_states_bytes(pages, c->slot_bytes, 0) : pages);
}

int cache_open(cache *c, nn_exec *x, const cache_options *o, err *e) {
    const nn_limits *l = &x->options.limits;
    int              pages[KV_MAX_GROUPS], rc;
    *c = (cache){ .exec = x, .page_tokens = l->page_tokens, .max_pages = l->max_pages, .n_groups = x->groups.n };
    c->slot_bytes = x->memory.slot_bytes;
    kv_tree_options t = { .id = { .page_tokens = l->page_tokens,
                                  .n_groups = c->n_groups,
                                  .k_type = (int)x->options.k_type,
                                  .v_type = (int)x->options.v_type,
                                  .state_bytes = c->slot_bytes },
                          .host_bytes = o->host_bytes,
                          .move = move,
                          .moved = moved,
                          .ctx = c };
    for (int g = 0; g < x->groups.n; g++) {
        pages[g] = l->n_pages;
        t.window[g] = x->groups.window[g];
        t.id.page_bytes[g] = x->memory.page_bytes[g];
    }
    t.budget_bytes = budget_of(c, o, &t.id, l->n_pages);
    if ((rc = kv_pool_open(&c->pool, c->n_groups, pages, e)) < 0) return rc;
    if (o->disk_dir) {
        kv_disk_options d = { .dir = o->disk_dir, .max_bytes = o->disk_bytes ? o->disk_bytes : DEFAULT_DISK_BYTES };
        if ((rc = identity_of(x, &t.id.model, e)) < 0) return rc;
        if ((rc = kv_disk_open(&c->disk, &t.id, &d, e)) < 0) return rc;
        t.disk = c->disk;
    }
    return kv_tree_open(&c->tree, c->pool, &t, e);
}

void cache_close(cache *c) {
    if (c->tree) kv_tree_flush(c->tree);
    kv_tree_free(c->tree);
    kv_disk_free(c->disk);
    kv_pool_free(c->pool);
    free(c->moves);
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

/* Leaves the first n pages. */
static void truncate_tables(cache *c, cache_tables *t, int n) {
    for (int g = 0; g < c->n_groups; g++) {
        for (int i = n; i < t->n_pages; i++) kv_pool_release(c->pool, g, t->tables[g][i]);
    }
    if (n < t->n_pages) t->n_pages = n;
}

void cache_tables_release(cache *c, cache_tables *t) { truncate_tables(c, t, 0); }

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

/* The page at index becomes the sequence's own: a copy takes its place. False: there is no page, or the copy failed;
 * nothing changed. */
static bool make_private(cache *c, cache_tables *t, int index) {
    int32_t fresh[KV_MAX_GROUPS];
    nn_move moves[KV_MAX_GROUPS];
    int     n = 0;
    if (!take_pages(c, fresh)) return false;
    for (int g = 0; g < c->n_groups; g++) {
        int32_t shared = t->tables[g][index];
        if (shared >= 0) moves[n++] = (nn_move){ .kind = NN_MOVE_PAGE, .group = g, .from = shared, .to = fresh[g] };
    }
    bool copied = nn_exec_move(c->exec, moves, n, NULL) == 0;
    for (int g = 0; g < c->n_groups; g++) {
        kv_pool_release(c->pool, g, copied ? t->tables[g][index] : fresh[g]);
        if (copied) t->tables[g][index] = fresh[g];
    }
    return copied;
}

/* The slot's state from or to host memory. */
static bool move_slot(const cache *c, int32_t slot, void *host, bool out) {
    nn_move m = { .kind = NN_MOVE_SLOT, .from = out ? slot : NN_HOST, .to = out ? NN_HOST : slot, .host = host };
    return nn_exec_move(c->exec, &m, 1, NULL) == 0;
}

int cache_attach(cache *c, cache_tables *t, const kv_text *text, int n, int32_t slot) {
    int P = c->page_tokens, most = c->max_pages * P, reserve = n + 1 < most ? n + 1 : most;
    for (;;) {
        kv_match m = kv_tree_match(c->tree, text, n, reserve, t->tables);
        t->n_pages = (m.n_tokens + P - 1) / P;
        /* The state is copied first: making room below may move it. */
        if (m.state && !move_slot(c, slot, (void *)(uintptr_t)m.state, false)) {
            cache_tables_release(c, t);
            return 0;
        }
        if (m.n_tokens % P == 0 || make_private(c, t, t->n_pages - 1)) return m.n_tokens;
        /* No room for the copy; what ends at a page's end needs none. */
        n = (t->n_pages - 1) * P + 1;
        cache_tables_release(c, t);
    }
}

bool cache_grow(cache *c, cache_tables *t, int len) {
    int want = (len + c->page_tokens - 1) / c->page_tokens, had = t->n_pages;
    for (int g = 0; g < c->n_groups; g++) {
        if (kv_pool_available(c->pool, g) < want - had) return false; /* and nothing was moved in vain */
    }
    for (; t->n_pages < want; t->n_pages++) {
        int32_t fresh[KV_MAX_GROUPS];
        if (!take_pages(c, fresh)) {
            truncate_tables(c, t, had);
            return false;
        }
        for (int g = 0; g < c->n_groups; g++) t->tables[g][t->n_pages] = fresh[g];
    }
    return true;
}

void cache_retract(cache *c, cache_tables *t, int len) {
    truncate_tables(c, t, (len + c->page_tokens - 1) / c->page_tokens);
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

void cache_remember(cache *c, const cache_tables *t, const kv_text *text, int len, int32_t slot, cache_moment when) {
    if (len < 1 || !kv_tree_insert(c->tree, text, len, (const int32_t *const *)t->tables)) return;
    if (c->slot_bytes && when != CACHE_PIECE) {
        void *state = kv_tree_add_state(c->tree, text, len);
        if (state && !move_slot(c, slot, state, true)) kv_tree_drop_state(c->tree, text, len);
    }
    kv_tree_save(c->tree, text, len, when == CACHE_END);
}

bool cache_fits(const cache *c, int len) {
    int want = (len + c->page_tokens - 1) / c->page_tokens;
    if (want > c->max_pages) return false;
    for (int g = 0; g < c->n_groups; g++) {
        if (want > kv_pool_total(c->pool, g)) return false;
    }
    return true;
}

bool cache_checkpoint(const cache *c, int32_t slot, void *out) {
    return c->slot_bytes == 0 || move_slot(c, slot, out, true);
}

bool cache_rollback(cache *c, cache_tables *t, int len, int32_t slot, const void *state) {
    int  keep = (len + c->page_tokens - 1) / c->page_tokens;
    bool shared = false;
    /* Positions behind len are written again: not into a page that the tree or somebody else reads. */
    for (int g = 0; g < c->n_groups && len % c->page_tokens && keep <= t->n_pages; g++) {
        int32_t page = t->tables[g][keep - 1];
        shared = shared || (page >= 0 && kv_pool_refs(c->pool, g, page) > 1);
    }
    if (shared && !make_private(c, t, keep - 1)) return false;
    if (c->slot_bytes && !move_slot(c, slot, (void *)(uintptr_t)state, false)) return false;
    truncate_tables(c, t, keep);
    return true;
}
