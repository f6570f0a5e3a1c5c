/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/kv_world.h"

#include "unit/support/support.h"

#include "kv/tree_internal.h"

#include <stdlib.h>
#include <string.h>

/* -- the device */

struct world_transfer {
    world_transfer *next;
    uint64_t        ticket;
    int             n;
    kv_move        *moves;
    uint8_t        *taken; /* what stood in the pages that move out */
};

static bool fails(const world *w, int call, int at) { return at > 0 && (call == at || (w->for_good && call > at)); }

static int move(void *ctx, const kv_move *moves, int n, uint64_t *ticket) {
    world *w = ctx;
    assert_true(n > 0);
    if (fails(w, ++w->n_move, w->fail_move)) return ERR_IO;
    w->n_pages += n;
    world_transfer *x = calloc(1, sizeof *x);
    *x = (world_transfer){ .next = w->under_way, .ticket = w->tickets++, .n = n };
    x->moves = malloc((size_t)n * sizeof *moves);
    x->taken = malloc((size_t)n * WORLD_PAGE_BYTES);
    memcpy(x->moves, moves, (size_t)n * sizeof *moves);
    for (int i = 0; i < n; i++) {
        uint64_t *page = w->content[moves[i].group][moves[i].page];
        assert_true(moves[i].page >= 0 && kv_pool_refs(w->pool, moves[i].group, moves[i].page) > 0);
        if (moves[i].direction == KV_MOVE_OUT) {
            memcpy(x->taken + (size_t)i * WORLD_PAGE_BYTES, page, WORLD_PAGE_BYTES);
            memset(moves[i].host, 0xEE, WORLD_PAGE_BYTES);
        } else {
            memset(page, 0xDD, WORLD_PAGE_BYTES);
        }
    }
    w->under_way = x;
    *ticket = x->ticket;
    return 0;
}

static int moved(void *ctx, uint64_t ticket) {
    world           *w = ctx;
    world_transfer **at = &w->under_way;
    while (*at && (*at)->ticket != ticket) at = &(*at)->next;
    world_transfer *x = *at;
    assert_non_null(x); /* once, and only what was started */
    bool bad = fails(w, ++w->n_moved, w->fail_moved);
    for (int i = 0; i < x->n && !bad; i++) {
        const kv_move *m = &x->moves[i];
        if (m->direction == KV_MOVE_OUT)
            memcpy(m->host, x->taken + (size_t)i * WORLD_PAGE_BYTES, WORLD_PAGE_BYTES);
        else
            memcpy(w->content[m->group][m->page], m->host, WORLD_PAGE_BYTES);
    }
    *at = x->next;
    free(x->moves);
    free(x->taken);
    free(x);
    return bad ? ERR_IO : 0;
}

void kv_world_open(world *w, const world_options *o) {
    int             pages[KV_MAX_GROUPS] = { WORLD_PAGES, WORLD_PAGES };
    kv_tree_options t = { .id = { .page_tokens = WORLD_P,
                                  .n_groups = o->n_groups,
                                  .page_bytes = { WORLD_PAGE_BYTES, o->n_groups > 1 ? WORLD_PAGE_BYTES : 0 },
                                  .state_bytes = o->states ? sizeof(uint64_t) : 0 },
                          .window = { 0, o->window1 },
                          .budget_bytes = o->budget,
                          .host_bytes = o->host,
                          .stage_bytes = o->stage,
                          .move = move,
                          .moved = moved,
                          .ctx = w };
    kv_disk_options d = { .dir = o->dir, .max_bytes = o->disk_bytes };
    w->o = *o;
    w->disk = NULL;
    memset(w->content, 0, sizeof w->content);
    assert_int_equal(kv_pool_open(&w->pool, o->n_groups, pages, NULL), 0);
    if (o->dir) assert_int_equal(kv_disk_open(&w->disk, &t.id, &d, NULL), 0);
    t.disk = w->disk;
    assert_int_equal(kv_tree_open(&w->tree, w->pool, &t, NULL), 0);
}

void kv_world_close(world *w) {
    kv_world_check(w);
    kv_tree_flush(w->tree);
    kv_world_check(w);
    kv_tree_free(w->tree);
    kv_disk_free(w->disk);
    assert_null(w->under_way);
    for (int g = 0; g < w->o.n_groups; g++) assert_int_equal(kv_pool_unused(w->pool, g), WORLD_PAGES);
    kv_pool_free(w->pool);
    w->pool = NULL;
    w->tree = NULL;
    w->disk = NULL;
}

/* -- the tree against itself */

typedef struct sums {
    size_t nodes, tokens, states, in[KV_TIERS][2];
    int    cached[KV_MAX_GROUPS][WORLD_PAGES];
} sums;

static void check_item(const kv_item *it, sums *s) {
    bool anywhere = false;
    for (kv_tier k = 0; k < KV_TIERS; k++) {
        s->in[k][it->is_state] += it->in[k];
        anywhere = anywhere || it->in[k];
    }
    assert_true(anywhere);
}

static void check_node(const world *w, const kv_node *x, sums *s) {
    const kv_tree *t = w->tree;
    check_item(&x->it, s);
    s->nodes++;
    s->tokens += (size_t)x->n;
    s->states += (size_t)x->n_states;
    assert_true(x->n >= 1 && x->n <= WORLD_P && (x->n == WORLD_P || x->n_children == 0));
    assert_true(kv_key_eq(&x->space, &x->parent->space));
    assert_int_equal(x->position, x->parent->parent ? x->parent->position + WORLD_P : 0);
    kv_span span = kv_node_span(x);
    assert_true(!x->rows || !kv_span_plain(&span)); /* keys only where there are supplied rows */
    for (int g = 0; g < t->n_groups; g++) {
        if (x->pages[g] < 0) continue;
        assert_true(x->it.in[KV_DEVICE]);
        s->cached[g][x->pages[g]]++;
    }
    assert_true(x->it.in[KV_HOST] || (!x->host && !x->host_groups && !x->arriving.under_way && !x->arriving.failed));
    assert_true(x->it.in[KV_DISK] || !x->disk_groups);
    for (int i = 0; i < x->n_states; i++) {
        const kv_state *q = x->states[i];
        check_item(&q->it, s);
        assert_true(q->node == x && q->offset <= x->n && q->it.used < x->it.used);
        assert_true((q->bytes != NULL) == (q->it.in[KV_DEVICE] || q->it.in[KV_HOST]));
    }
    for (int i = 0; i < x->n_children; i++) {
        const kv_node *c = x->children[i];
        kv_span        its = kv_node_span(c), before = { 0 };
        assert_true(c->parent == x && c->it.used < x->it.used);
        if (i > 0) before = kv_node_span(x->children[i - 1]);
        if (i > 0) assert_true(kv_span_before(&before, &its, kv_common(&before, &its)));
        check_node(w, c, s);
    }
}

void kv_world_check(const world *w) {
    const kv_tree *t = w->tree;
    kv_tree_stats  st = kv_tree_stat(t);
    sums           s = { 0 };
    assert_int_equal(st.spaces, t->n_roots);
    for (int i = 0; i < t->n_roots; i++) {
        assert_true(t->roots[i]->n_children > 0 && !t->roots[i]->parent);
        assert_true(i == 0 || memcmp(&t->roots[i - 1]->space, &t->roots[i]->space, KV_KEY_BYTES) < 0);
        for (int k = 0; k < t->roots[i]->n_children; k++) check_node(w, t->roots[i]->children[k], &s);
    }
    assert_true(s.nodes == st.nodes && s.tokens == st.tokens && s.states == st.states);
    assert_true(s.in[KV_DEVICE][0] == st.device_nodes && s.in[KV_HOST][0] == st.host_nodes);
    assert_true(s.in[KV_DISK][0] + s.in[KV_DISK][1] == st.disk_entries);
    assert_int_equal(s.in[KV_DEVICE][1] * t->o.id.state_bytes, st.state_bytes);
    assert_true(st.host_bytes <= t->o.host_bytes);
    for (kv_tier k = 0; k < KV_TIERS; k++) {
        size_t n = 0;
        for (const kv_item *it = t->lists[k].newest; it; it = it->older[k], n++) {
            assert_true(it->in[k] && (!it->older[k] || it->older[k]->used < it->used));
        }
        assert_int_equal(n, s.in[k][0] + s.in[k][1]);
    }
    for (int g = 0; g < t->n_groups; g++) {
        int unused = 0, idle = 0;
        for (int i = 0; i < WORLD_PAGES; i++) {
            int refs = kv_pool_refs(w->pool, g, i);
            assert_true(refs >= s.cached[g][i]);
            assert_int_equal(kv_pool_idle(w->pool, g, i), refs > 0 && refs == s.cached[g][i]);
            unused += refs == 0;
            idle += refs > 0 && refs == s.cached[g][i];
        }
        assert_int_equal(kv_pool_unused(w->pool, g), unused);
        assert_int_equal(kv_pool_available(w->pool, g), unused + idle);
    }
}

/* -- prompts */

kv_text prompt_text(const prompt *p) {
    bool supplied = false;
    for (int i = 0; i < p->n; i++) supplied = supplied || !kv_key_is_none(&p->rows[i]);
    return (kv_text){ .tokens = p->tokens, .rows = supplied ? p->rows : NULL, .space = p->space };
}

static uint64_t mix(uint64_t h, const void *data, size_t bytes) {
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x9E3779B97F4A7C15u + 7;
    return h ^ h >> 29;
}

uint64_t prompt_hash(const prompt *p, int n) {
    uint64_t h = mix(1, &p->space, sizeof p->space);
    for (int i = 0; i < n; i++) {
        h = mix(h, &p->tokens[i], sizeof p->tokens[i]);
        h = mix(h, &p->rows[i], sizeof p->rows[i]);
    }
    return h;
}

int prompt_common(const prompt *a, const prompt *b) {
    int i = 0;
    if (memcmp(&a->space, &b->space, sizeof a->space) != 0) return 0;
    while (i < a->n && i < b->n && a->tokens[i] == b->tokens[i] &&
           memcmp(&a->rows[i], &b->rows[i], sizeof a->rows[i]) == 0)
        i++;
    return i;
}

static void check_match(const world *w, const world_sequence *q, kv_match m, const prompt *p) {
    assert_true(m.n_tokens < p->n);
    for (int g = 0; g < w->o.n_groups; g++) {
        for (int pos = 0; pos < m.n_tokens; pos++) {
            bool    needed = g == 0 || w->o.window1 == 0 || pos > m.n_tokens - w->o.window1;
            int32_t page = q->pages[g][pos / WORLD_P];
            if (!needed) continue;
            assert_true(page >= 0);
            assert_true(w->content[g][page][pos % WORLD_P] == prompt_hash(p, pos + 1) + (uint64_t)g);
        }
    }
    if (w->o.states && m.n_tokens) {
        uint64_t got;
        memcpy(&got, m.state, sizeof got);
        assert_true(got == prompt_hash(p, m.n_tokens));
    } else {
        assert_null(m.state);
    }
}

static bool take(world *w, int32_t out[KV_MAX_GROUPS]) {
    const int need[KV_MAX_GROUPS] = { 1, 1 };
    if (!kv_tree_evict(w->tree, need)) return false;
    for (int g = 0; g < w->o.n_groups; g++) out[g] = kv_pool_take(w->pool, g);
    return true;
}

int kv_world_run(world *w, world_sequence *q, const prompt *p) {
    int32_t fresh[KV_MAX_GROUPS];
    kv_text text = prompt_text(p);
    for (int g = 0; g < KV_MAX_GROUPS; g++) q->tables[g] = q->pages[g];
    kv_match m = kv_tree_match(w->tree, &text, p->n, p->n, q->tables);
    check_match(w, q, m, p);
    q->n_pages = (m.n_tokens + WORLD_P - 1) / WORLD_P;
    if (m.n_tokens % WORLD_P) {
        if (!take(w, fresh)) return -1;
        for (int g = 0; g < w->o.n_groups; g++) {
            int32_t old = q->pages[g][q->n_pages - 1];
            if (old >= 0) memcpy(w->content[g][fresh[g]], w->content[g][old], sizeof w->content[g][old]);
            kv_pool_release(w->pool, g, old);
            q->pages[g][q->n_pages - 1] = fresh[g];
        }
    }
    for (int pos = m.n_tokens; pos < p->n; pos++) {
        if (pos % WORLD_P == 0) {
            if (!take(w, fresh)) return -1;
            for (int g = 0; g < w->o.n_groups; g++) q->pages[g][pos / WORLD_P] = fresh[g];
            q->n_pages++;
        }
        for (int g = 0; g < w->o.n_groups; g++)
            w->content[g][q->pages[g][pos / WORLD_P]][pos % WORLD_P] = prompt_hash(p, pos + 1) + (uint64_t)g;
    }
    return m.n_tokens;
}

void world_finish(world *w, world_sequence *q, const prompt *p) {
    kv_text text = prompt_text(p);
    if (w->o.window1) { /* the window has passed what lies behind it */
        for (int i = 0; (i + 1) * WORLD_P <= p->n - w->o.window1; i++) {
            kv_pool_release(w->pool, 1, q->pages[1][i]);
            q->pages[1][i] = -1;
        }
    }
    assert_true(kv_tree_insert(w->tree, &text, p->n, (const int32_t *const *)q->tables));
    if (w->o.states) {
        uint64_t value = prompt_hash(p, p->n);
        void    *at = kv_tree_add_state(w->tree, &text, p->n);
        if (at) memcpy(at, &value, sizeof value);
    }
    if (!w->o.lazy) kv_tree_save(w->tree, &text, p->n, true);
}

void world_release(world *w, world_sequence *q) {
    for (int g = 0; g < w->o.n_groups; g++) {
        for (int i = 0; i < q->n_pages; i++) kv_pool_release(w->pool, g, q->pages[g][i]);
    }
    q->n_pages = 0;
}

int world_prompt(world *w, const prompt *p) {
    world_sequence q = { 0 };
    int            n = kv_world_run(w, &q, p);
    if (n >= 0) world_finish(w, &q, p);
    world_release(w, &q);
    return n;
}
