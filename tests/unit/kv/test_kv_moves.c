/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How pages move: how many calls it takes, what is waited for and when, and that a move which fails costs what it was
 * about and nothing else. The world's device gives rubbish to whoever does not wait, and refuses to be asked twice.
 */
#include "unit/support/kv_world.h"
#include "unit/support/support.h"

#include "kv/tree_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static world w; /* too large for the stack */

static prompt counting(int first, int n) {
    prompt p = { 0 };
    for (p.n = 0; p.n < n; p.n++) p.tokens[p.n] = first + p.n;
    return p;
}

/* Everything leaves the device. */
static void evict_all(void) {
    const int all[KV_MAX_GROUPS] = { WORLD_PAGES, WORLD_PAGES };
    assert_true(kv_tree_evict(w.tree, all));
    memset(w.content, 0xBB, sizeof w.content); /* and nothing is left of it */
    kv_world_check(&w);
}

static int look(const prompt *p) {
    world_sequence q = { 0 };
    int            n = kv_world_run(&w, &q, p);
    world_release(&w, &q);
    kv_world_check(&w);
    return n;
}

/* -- how many */

static void test_host_batches(void **state) {
    prompt p = counting(1, 41);
    (void)state;
    for (int n_groups = 1; n_groups <= 2; n_groups++) {
        memset(&w, 0, sizeof w);
        kv_world_open(&w, &(world_options){ .n_groups = n_groups, .host = 1 << 20 });
        assert_int_equal(world_prompt(&w, &p), 0);
        assert_int_equal(w.n_move, 0);
        evict_all();
        assert_int_equal(w.n_move, 11); /* a node with all its groups is one */
        assert_int_equal(w.n_pages, 11 * n_groups);
        assert_int_equal(w.n_moved, 0); /* and nobody waits before the bytes are needed */
        assert_int_equal(look(&p), 40);
        assert_int_equal(w.n_move, 12); /* ten nodes come back in one */
        assert_int_equal(w.n_pages, (11 + 10) * n_groups);
        assert_int_equal(w.n_moved, 11);
        assert_int_equal(look(&p), 40);
        assert_int_equal(w.n_move, 12); /* they are there */
        kv_world_close(&w);
        assert_int_equal(w.n_moved, w.n_move);
    }
}

static void test_disk_batches(void **state) {
    static const struct {
        size_t stage;
        int    calls;
    } rows[] = {
        { 0, 1 },
        { 1, 10 }, /* one page always fits */
        { 3 * WORLD_PAGE_BYTES, 4 },
        { 5 * WORLD_PAGE_BYTES, 2 },
        { 10 * WORLD_PAGE_BYTES - 1, 2 },
        { 10 * WORLD_PAGE_BYTES, 1 },
    };
    char  *dir = test_temp_dir();
    prompt p = counting(1, 41);
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        memset(&w, 0, sizeof w);
        kv_world_open(&w, &(world_options){ .n_groups = 1, .dir = dir, .disk_bytes = 1 << 30, .stage = rows[i].stage });
        if (i == 0) {
            assert_int_equal(world_prompt(&w, &p), 0);
            assert_int_equal(w.n_move, 11); /* saved node by node */
            evict_all();
            assert_int_equal(w.n_move, 11);
            w.n_move = 0;
        }
        assert_int_equal(look(&p), 40);
        if (w.n_move != rows[i].calls) fail_msg("%zu bytes: %d calls", rows[i].stage, w.n_move);
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
}

/* Some nodes from the disk, some from host memory, some still there: one move. */
static void test_mixed_batch(void **state) {
    char     *dir = test_temp_dir();
    prompt    p = counting(1, 41), other = counting(500, 41);
    const int some[KV_MAX_GROUPS] = { WORLD_PAGES - 4 };
    (void)state;
    memset(&w, 0, sizeof w);
    kv_world_open(&w, &(world_options){ .n_groups = 1, .dir = dir, .disk_bytes = 1 << 30, .host = 1700 });
    (void)world_prompt(&w, &other);
    (void)world_prompt(&w, &p);
    assert_true(kv_tree_evict(w.tree, some));
    kv_tree_stats before = kv_tree_stat(w.tree), after;
    w.n_move = w.n_pages = 0;
    assert_int_equal(look(&p), 40);
    after = kv_tree_stat(w.tree);
    assert_int_equal(w.n_move, 1);
    assert_int_equal(w.n_pages, 6);
    assert_true(after.from_host > before.from_host && after.from_disk > before.from_disk);
    assert_int_equal(after.from_host - before.from_host + after.from_disk - before.from_disk, 6);
    kv_world_close(&w);
    test_temp_dir_remove(dir);
}

/* -- failures */

/* A copy that did not arrive is none: the prompt is computed again as far as it was lost, and then it is there. */
static void test_lost_copy(void **state) {
    prompt p = counting(1, 41);
    (void)state;
    for (int lost = 1; lost <= 11; lost++) {
        memset(&w, 0, sizeof w);
        kv_world_open(&w, &(world_options){ .n_groups = 1, .host = 1 << 20 });
        (void)world_prompt(&w, &p);
        w.fail_move = lost; /* leaves are evicted first: the 11th call is for the first page */
        evict_all();
        w.fail_move = 0;
        int want = 4 * (11 - lost);
        assert_int_equal(look(&p), want < 40 ? want : 40);
        assert_int_equal(world_prompt(&w, &p), want < 40 ? want : 40);
        evict_all();
        w.n_moved = 0;
        w.fail_moved = lost; /* asked page by page, first ones first */
        assert_int_equal(look(&p), lost < 11 ? 4 * (lost - 1) : 0);
        w.fail_moved = 0;
        (void)world_prompt(&w, &p);
        assert_int_equal(look(&p), 40);
        kv_world_close(&w);
    }
}

/* Moves in that fail leave the copies where they are. */
static void test_not_brought(void **state) {
    char  *dir = test_temp_dir();
    prompt p = counting(1, 41);
    (void)state;
    for (int way = 0; way < 4; way++) { /* host or disk; the start fails, or the move */
        memset(&w, 0, sizeof w);
        kv_world_open(&w, &(world_options){ .n_groups = 1,
                                            .host = way % 2 ? 0 : 1 << 20,
                                            .dir = way % 2 ? dir : NULL,
                                            .disk_bytes = 1 << 30,
                                            .stage = 4 * WORLD_PAGE_BYTES });
        (void)world_prompt(&w, &p);
        evict_all();
        w.for_good = true;
        *(way < 2 ? &w.fail_move : &w.fail_moved) = (way < 2 ? w.n_move : w.n_moved + (way % 2 ? 0 : 10)) + 1;
        assert_int_equal(look(&p), 0);
        assert_int_equal(kv_pool_unused(w.pool, 0), WORLD_PAGES);
        if (way % 2) { /* the second of three batches fails: the first one stays */
            w.for_good = false;
            *(way < 2 ? &w.fail_move : &w.fail_moved) = (way < 2 ? w.n_move : w.n_moved) + 2;
            assert_int_equal(look(&p), 16);
        }
        w.fail_move = w.fail_moved = 0;
        assert_int_equal(look(&p), 40);
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
}

typedef struct scenario {
    const char   *what;
    world_options o;
    int           prompts;
} scenario;

/* Prompts that share beginnings, some of them with images and in two namespaces, while one holds its pages. */
static void play(const scenario *s, const char *dir) {
    world_sequence held = { 0 };
    uint64_t       seed = 11;
    world_options  o = s->o;
    o.dir = o.disk_bytes ? dir : NULL;
    for (int start = 0; start < 2; start++) {
        kv_world_open(&w, &o);
        for (int i = 0; i < s->prompts; i++) {
            prompt p = { .n = 2 + (int)(test_random(&seed) % (WORLD_LONGEST - 2)) };
            p.space.b[0] = (uint8_t)(test_random(&seed) % 2);
            for (int k = 0; k < p.n; k++) {
                p.tokens[k] = (int32_t)(test_random(&seed) % (k < 8 ? 1 : 2));
                if (k % 16 == 15) p.rows[k].b[5] = (uint8_t)(test_random(&seed) % 2);
            }
            world_sequence own = { 0 }, *q = i % 5 ? &own : &held;
            world_release(&w, q);
            if (q == &held) p.n = 2 + p.n / 4;
            if (kv_world_run(&w, q, &p) >= 0) world_finish(&w, q, &p);
            if (q == &own) world_release(&w, q);
            kv_world_check(&w);
        }
        world_release(&w, &held);
        kv_world_close(&w);
    }
}

static const scenario scenarios[] = {
    { "host", { .n_groups = 1, .host = 6000 }, 24 },
    { "disk", { .n_groups = 1, .disk_bytes = 1 << 30, .stage = 3 * WORLD_PAGE_BYTES }, 6 },
    { "both", { .n_groups = 1, .host = 4000, .disk_bytes = 30 * 4096 }, 6 },
    { "window", { .n_groups = 2, .window1 = 6, .host = 4000, .disk_bytes = 30 * 4096 }, 6 },
    { "states", { .n_groups = 1, .states = true, .host = 4000, .disk_bytes = 30 * 4096, .budget = 24 * 32 + 40 }, 6 },
};

/* The n-th call fails, for every n of the undisturbed run; alone, or with all that follow. What comes back is looked at
 * with every prompt, the tree after every prompt; at the end nothing is held and every move was waited for. */
static void test_every_failure(void **state) {
    (void)state;
    int failed = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        int calls[2] = { 0, 0 };
        for (int n = 0; n == 0 || n <= (calls[0] > calls[1] ? calls[0] : calls[1]); n++) {
            for (int way = 0; way < (n ? 4 : 1); way++) {
                if (n > calls[way % 2] && n) continue;
                if (way / 2 && n % 8) continue;                /* the device is lost for good */
                if (TEST_SANITIZED && (n + way) % 3) continue; /* slow there */
                char *dir = test_temp_dir();
                memset(&w, 0, sizeof w);
                w.for_good = way / 2;
                *(way % 2 ? &w.fail_moved : &w.fail_move) = n;
                play(&scenarios[i], dir);
                if (n == 0) {
                    calls[0] = w.n_move;
                    calls[1] = w.n_moved;
                    if (w.n_move < 20) fail_msg("%s: only %d moves", scenarios[i].what, w.n_move);
                }
                failed += n > 0;
                test_temp_dir_remove(dir);
            }
        }
        printf("%s: %d moves\n", scenarios[i].what, calls[0]);
    }
    printf("%d runs with a failure\n", failed);
}

/*
 * Room is made while a prompt's pages are on their way in, and what is saved meanwhile must not be what is not there
 * yet. Here an old state leaves for the disk when the third page is asked for; the second one, on which it hangs, is
 * not on the disk (it has grown since) and has only just got its place.
 */
static void test_saved_meanwhile(void **state) {
    char          *dir = test_temp_dir();
    world_options  o = { .n_groups = 1, .states = true, .lazy = true, .dir = dir, .disk_bytes = 1 << 30 };
    prompt         p = counting(1, 12);
    kv_text        text = prompt_text(&p);
    world_sequence q = { .n_pages = 3, .tables = { q.pages[0] } };
    (void)state;
    o.host = 3 * (KV_NODE_BYTES + WORLD_PAGE_BYTES); /* three nodes, and no state beside them */
    memset(&w, 0, sizeof w);
    kv_world_open(&w, &o);
    for (int pos = 0; pos < 9; pos++) {
        if (pos % WORLD_P == 0) q.pages[0][pos / WORLD_P] = kv_pool_take(w.pool, 0);
        w.content[0][q.pages[0][pos / WORLD_P]][pos % WORLD_P] = prompt_hash(&p, pos + 1);
    }
    for (int n = 6; n <= 9; n += 3) {
        uint64_t value = prompt_hash(&p, n);
        assert_true(kv_tree_insert(w.tree, &text, n, (const int32_t *const *)q.tables));
        memcpy(kv_tree_add_state(w.tree, &text, n), &value, sizeof value);
        if (n == 6) kv_tree_save(w.tree, &text, WORLD_P, true);
    }
    world_release(&w, &q);
    evict_all();
    assert_int_equal(kv_tree_stat(w.tree).host_nodes, 3);
    assert_int_equal(kv_tree_stat(w.tree).state_bytes, 2 * sizeof(uint64_t));
    w.tree->o.budget_bytes = 3 * WORLD_PAGE_BYTES;
    q = (world_sequence){ .tables = { q.pages[0] } };
    kv_match m = kv_tree_match(w.tree, &text, p.n, 0, q.tables);
    assert_int_equal(m.n_tokens, 9);
    q.n_pages = 3;
    world_release(&w, &q);
    kv_world_check(&w);
    kv_world_close(&w);
    kv_world_open(&w, &o);
    assert_int_equal(look(&p), 9); /* which looks at every page */
    kv_world_close(&w);
    test_temp_dir_remove(dir);
}

/* A state for which the budget has no room beside the pages of the running sequence goes to the disk, and comes back. */
static void test_state_beyond_budget(void **state) {
    char          *dir = test_temp_dir();
    world_options  o = { .n_groups = 1, .states = true, .dir = dir, .disk_bytes = 1 << 30 };
    prompt         p = counting(1, 12);
    kv_text        text = prompt_text(&p);
    world_sequence q = { .n_pages = 2, .tables = { q.pages[0] } };
    uint64_t       value = prompt_hash(&p, 8);
    (void)state;
    for (int disk = 0; disk < 2; disk++) {
        memset(&w, 0, sizeof w);
        o.dir = disk ? dir : NULL;
        kv_world_open(&w, &o);
        w.tree->o.budget_bytes = 2 * WORLD_PAGE_BYTES;
        for (int pos = 0; pos < 8; pos++) {
            if (pos % WORLD_P == 0) q.pages[0][pos / WORLD_P] = kv_pool_take(w.pool, 0);
            w.content[0][q.pages[0][pos / WORLD_P]][pos % WORLD_P] = prompt_hash(&p, pos + 1);
        }
        assert_true(kv_tree_insert(w.tree, &text, 8, (const int32_t *const *)q.tables));
        void *room = kv_tree_add_state(w.tree, &text, 8);
        assert_int_equal(room != NULL, disk); /* nowhere to go without one */
        if (room) memcpy(room, &value, sizeof value);
        kv_tree_save(w.tree, &text, 8, false);
        assert_int_equal(kv_tree_stat(w.tree).state_bytes, 0); /* the budget holds again */
        assert_int_equal(kv_tree_stat(w.tree).states, disk);
        world_release(&w, &q);
        q.n_pages = 2;
        kv_world_check(&w);
        assert_int_equal(look(&p), disk ? 8 : 0);
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host_batches),    cmocka_unit_test(test_disk_batches),
        cmocka_unit_test(test_mixed_batch),     cmocka_unit_test(test_lost_copy),
        cmocka_unit_test(test_not_brought),     cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_saved_meanwhile), cmocka_unit_test(test_state_beyond_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
