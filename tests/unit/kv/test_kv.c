/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages and the prefix tree, against a plain model: a list of every sequence that was inserted. A page's content is
 * modelled as the tokens that were written to it, so a match that hands out a wrong page is seen at once.
 */
#include "unit/support/support.h"

#include "kv/pool.h"
#include "kv/tree.h"

#include <stdlib.h>
#include <string.h>

enum { P = 4, PAGES = 64, LONGEST = 40, MAX_INDEX = LONGEST / P + 1 };

/* What a sequence wrote: content[page][slot] for group 0. */
typedef struct world {
    kv_pool *pool;
    kv_tree *tree;
    int32_t  content[KV_MAX_GROUPS][PAGES][P];
} world;

static void kv_world_open(world *w, int n_groups, int window1, bool snapshots) {
    int             pages[KV_MAX_GROUPS] = { PAGES, PAGES };
    kv_tree_options o = { .id = { .page_tokens = P, .n_groups = n_groups, .state_bytes = snapshots ? 1 : 0 },
                          .window = { 0, window1 } };
    memset(w, 0, sizeof *w);
    assert_int_equal(kv_pool_open(&w->pool, n_groups, pages, NULL), 0);
    assert_int_equal(kv_tree_open(&w->tree, w->pool, &o, NULL), 0);
}

static void kv_world_close(world *w) {
    kv_tree_free(w->tree);
    for (int g = 0; g < kv_pool_groups(w->pool); g++)
        assert_int_equal(kv_pool_unused(w->pool, g), PAGES); /* none lost */
    kv_pool_free(w->pool);
}

typedef struct sequence {
    int32_t  pages[KV_MAX_GROUPS][MAX_INDEX];
    int32_t *rows[KV_MAX_GROUPS];
    int      n_index;
} sequence;

static void sequence_init(sequence *s) {
    memset(s, 0, sizeof *s);
    for (int g = 0; g < KV_MAX_GROUPS; g++) s->rows[g] = s->pages[g];
}

/* Runs a prompt: match, check what came back, copy a shared part, compute the rest, insert, let go. Returns the length
 * that was reused. */
static int run_prompt(world *w, const int32_t *tokens, int n, int window) {
    sequence s;
    sequence_init(&s);
    kv_match m = kv_tree_match(w->tree, &(kv_text){ .tokens = tokens }, n, 0, s.rows);
    int      used = (m.n_tokens + P - 1) / P, n_groups = kv_pool_groups(w->pool);
    assert_true(m.n_tokens < n);
    for (int g = 0; g < n_groups; g++) {
        for (int pos = 0; pos < m.n_tokens; pos++) {
            bool    needed = g == 0 || window == 0 || pos > m.n_tokens - window;
            int32_t page = s.pages[g][pos / P];
            if (needed) assert_true(page >= 0);
            if (page >= 0 && needed) assert_int_equal(w->content[g][page][pos % P], tokens[pos]);
        }
        if (m.n_tokens % P) { /* the last page is shared: copy it */
            int32_t old = s.pages[g][used - 1], fresh = kv_pool_take(w->pool, g);
            assert_true(fresh >= 0);
            if (old >= 0) memcpy(w->content[g][fresh], w->content[g][old], sizeof w->content[g][0]);
            kv_pool_release(w->pool, g, old);
            s.pages[g][used - 1] = fresh;
        }
        for (int pos = m.n_tokens; pos < n; pos++) {
            if (pos % P == 0) {
                s.pages[g][pos / P] = kv_pool_take(w->pool, g);
                assert_true(s.pages[g][pos / P] >= 0);
            }
            w->content[g][s.pages[g][pos / P]][pos % P] = tokens[pos];
        }
    }
    s.n_index = (n + P - 1) / P;
    /* A windowed sequence has given up what lies behind its window. */
    if (n_groups > 1 && window > 0) {
        for (int i = 0; (i + 1) * P <= n - window; i++) {
            kv_pool_release(w->pool, 1, s.pages[1][i]);
            s.pages[1][i] = -1;
        }
    }
    assert_true(kv_tree_insert(w->tree, &(kv_text){ .tokens = tokens }, n, (const int32_t *const *)s.rows));
    for (int g = 0; g < n_groups; g++) {
        for (int i = 0; i < s.n_index; i++) kv_pool_release(w->pool, g, s.pages[g][i]);
    }
    return m.n_tokens;
}

static void test_shared_beginnings(void **state) {
    world         w;
    const int32_t a[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, b[] = { 1, 2, 3, 4, 5, 6, 70, 80 }, c[] = { 1, 2, 3 };
    (void)state;
    kv_world_open(&w, 1, 0, false);
    assert_int_equal(run_prompt(&w, a, 10, 0), 0);
    assert_int_equal(run_prompt(&w, a, 10, 0), 9); /* the last token is always computed */
    assert_int_equal(run_prompt(&w, b, 8, 0), 6);  /* leaves in the middle of a page */
    assert_int_equal(run_prompt(&w, b, 8, 0), 7);
    assert_int_equal(run_prompt(&w, c, 3, 0), 2);
    assert_int_equal(run_prompt(&w, a, 1, 0), 0);
    assert_int_equal(kv_tree_stat(w.tree).tokens, 10 + 4); /* b's second page is its own */
    kv_world_close(&w);
}

/* A conversation that grows turn by turn evaluates every token once, plus the replayed one. */
static void test_growing_conversation(void **state) {
    world   w;
    int32_t tokens[LONGEST];
    (void)state;
    kv_world_open(&w, 1, 0, false);
    for (int i = 0; i < LONGEST; i++) tokens[i] = 100 + i;
    int known = 0;
    for (int n = 3; n <= LONGEST; n += 7) {
        assert_int_equal(run_prompt(&w, tokens, n, 0), known);
        known = n;
    }
    kv_world_close(&w);
}

/* Random prompts over a small alphabet: the reuse equals the longest common beginning with anything inserted before,
 * as long as nothing was evicted. */
static void test_longest_prefix(void **state) {
    static int32_t seen[200][LONGEST];
    int            lengths[200];
    uint64_t       seed = 3;
    (void)state;
    for (int round = 0; round < 60; round++) {
        world w;
        int   count = 0;
        kv_world_open(&w, 1, 0, false);
        while (kv_pool_unused(w.pool, 0) > MAX_INDEX && count < 200) {
            int n = 1 + (int)(test_random(&seed) % LONGEST), best = 0;
            for (int i = 0; i < n; i++) seen[count][i] = (int32_t)(test_random(&seed) % (i < 12 ? 2 : 3));
            for (int k = 0; k < count; k++) {
                int i = 0;
                while (i < n && i < lengths[k] && seen[k][i] == seen[count][i]) i++;
                if (i > best) best = i;
            }
            if (best > n - 1) best = n - 1;
            int got = run_prompt(&w, seen[count], n, 0);
            assert_int_equal(got, best);
            lengths[count++] = n;
        }
        kv_world_close(&w);
    }
}

static void test_eviction(void **state) {
    world    w;
    uint64_t seed = 9;
    (void)state;
    kv_world_open(&w, 2, 6, false);
    for (int round = 0; round < 3000; round++) {
        int32_t tokens[LONGEST];
        int     n = 1 + (int)(test_random(&seed) % LONGEST);
        for (int i = 0; i < n; i++) tokens[i] = (int32_t)(test_random(&seed) % 2);
        const int need[KV_MAX_GROUPS] = { MAX_INDEX + 1, MAX_INDEX + 1 };
        assert_true(kv_tree_evict(w.tree, need));
        run_prompt(&w, tokens, n, 6);
    }
    /* The most recent prompt survives the eviction of everything older. */
    const int32_t keep[] = { 7, 7, 7, 7, 7, 7, 7, 7, 7 };
    run_prompt(&w, keep, 9, 6);
    const int need[KV_MAX_GROUPS] = { PAGES - 3, PAGES - 3 };
    assert_true(kv_tree_evict(w.tree, need));
    assert_int_equal(run_prompt(&w, keep, 9, 6), 8);
    const int impossible[KV_MAX_GROUPS] = { PAGES + 1, 0 };
    assert_false(kv_tree_evict(w.tree, impossible));
    assert_int_equal(kv_tree_stat(w.tree).nodes, 3); /* nothing was forgotten in vain */
    const int all[KV_MAX_GROUPS] = { PAGES, PAGES };
    assert_true(kv_tree_evict(w.tree, all));
    assert_int_equal(kv_tree_stat(w.tree).nodes, 0);
    kv_world_close(&w);
}

/* A window that was passed cannot be entered again further back, but its end can. */
static void test_window(void **state) {
    world   w;
    int32_t tokens[LONGEST];
    (void)state;
    kv_world_open(&w, 2, 6, false);
    for (int i = 0; i < 30; i++) tokens[i] = i;
    assert_int_equal(run_prompt(&w, tokens, 30, 6), 0);
    tokens[30] = 30;
    assert_int_equal(run_prompt(&w, tokens, 31, 6), 30); /* goes on at the end */
    tokens[10] = 99;                                     /* leaves at 10, whose window is gone */
    assert_int_equal(run_prompt(&w, tokens, 20, 6), 0);
    kv_world_close(&w);
}

static bool add_state(kv_tree *t, const int32_t *tokens, int n, uint8_t value) {
    uint8_t *bytes = kv_tree_add_state(t, &(kv_text){ .tokens = tokens }, n);
    if (bytes) *bytes = value;
    return bytes != NULL;
}

static void test_states(void **state) {
    world    w;
    int32_t  tokens[20];
    sequence s;
    (void)state;
    kv_world_open(&w, 1, 0, true);
    for (int i = 0; i < 20; i++) tokens[i] = i;
    assert_int_equal(run_prompt(&w, tokens, 18, 0), 0);
    assert_int_equal(run_prompt(&w, tokens, 18, 0), 0); /* no state is known anywhere */
    assert_true(add_state(w.tree, tokens, 6, 60));
    assert_true(add_state(w.tree, tokens, 8, 80));
    assert_true(add_state(w.tree, tokens, 17, 170));
    assert_false(add_state(w.tree, tokens, 8, 81)); /* one is there */
    assert_false(add_state(w.tree, tokens, 20, 1)); /* never computed */
    const struct { int n, want; } rows[] = { { 18, 17 }, { 17, 8 }, { 9, 8 }, { 8, 6 }, { 7, 6 }, { 6, 0 } };
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        sequence_init(&s);
        kv_match m = kv_tree_match(w.tree, &(kv_text){ .tokens = tokens }, rows[k].n, 0, s.rows);
        assert_int_equal(m.n_tokens, rows[k].want);
        if (rows[k].want)
            assert_int_equal(*(const uint8_t *)m.state, rows[k].want * 10);
        else
            assert_null(m.state);
        for (int i = 0; i < (m.n_tokens + P - 1) / P; i++) kv_pool_release(w.pool, 0, s.pages[0][i]);
    }
    assert_int_equal(kv_tree_stat(w.tree).states, 3);
    kv_world_close(&w);
}

static void test_pool(void **state) {
    kv_pool *p;
    int      pages[] = { 2 };
    (void)state;
    assert_int_equal(kv_pool_open(&p, 1, pages, NULL), 0);
    int32_t a = kv_pool_take(p, 0), b = kv_pool_take(p, 0);
    assert_true(a >= 0 && b >= 0 && a != b);
    assert_int_equal(kv_pool_take(p, 0), -1);
    kv_pool_retain(p, 0, a);
    kv_pool_release(p, 0, a);
    assert_int_equal(kv_pool_unused(p, 0), 0);
    kv_pool_release(p, 0, a);
    assert_int_equal(kv_pool_unused(p, 0), 1);
    kv_pool_release(p, 0, -1);
    kv_pool_release(p, 0, b);
    kv_pool_free(p);
    assert_int_equal(kv_pool_open(&p, 9, pages, NULL), ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_shared_beginnings),
        cmocka_unit_test(test_growing_conversation),
        cmocka_unit_test(test_longest_prefix),
        cmocka_unit_test(test_eviction),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_states),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
