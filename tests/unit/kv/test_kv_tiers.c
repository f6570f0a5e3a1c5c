/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree's tiers against a plain model: a page's content is the tokens that were written to it, a state is a hash of
 * everything before it. Random prompts run through a pool that is much too small, while others hold pages; whatever
 * comes back from host memory or disk must be what was computed, budgets must be kept, and where nothing had to be
 * dropped the reuse must be the longest beginning that was ever computed.
 */
#include "unit/support/support.h"

#include "kv/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { P = 4, PAGES = 24, LONGEST = 40, INDEXES = LONGEST / P + 1, HELD = 2, MAX_SEEN = 4096 };

typedef struct setting {
    const char *what;
    int         n_groups, window1;
    bool        states;
    size_t      budget, host;
    uint64_t    disk;  /* 0: none */
    bool        keeps; /* nothing is ever dropped: the reuse is known */
    int         rounds, prompts;
} setting;

typedef struct sequence {
    int32_t  pages[KV_MAX_GROUPS][INDEXES];
    int32_t *rows[KV_MAX_GROUPS];
    int      n_pages;
} sequence;

typedef struct world {
    const setting *s;
    kv_pool       *pool;
    kv_tree       *tree;
    kv_disk       *disk;
    char          *dir;
    int32_t        content[KV_MAX_GROUPS][PAGES][P];
    sequence       held[HELD];
    int32_t        seen[MAX_SEEN][LONGEST];
    int            lengths[MAX_SEEN], n_seen;
    uint64_t       seed;
} world;

static world w; /* too large for the stack */

/* Copies at once. */
static int move(void *ctx, const kv_move *moves, int n, uint64_t *ticket) {
    (void)ctx;
    for (int i = 0; i < n; i++) {
        int32_t *page = w.content[moves[i].group][moves[i].page];
        if (moves[i].direction == KV_MOVE_OUT)
            memcpy(moves[i].host, page, P * sizeof *page);
        else
            memcpy(page, moves[i].host, P * sizeof *page);
    }
    *ticket = 0;
    return 0;
}

static int moved(void *ctx, uint64_t ticket) {
    (void)ctx;
    (void)ticket;
    return 0;
}

static uint64_t state_of(const int32_t *tokens, int n) {
    uint64_t h = 1;
    for (int i = 0; i < n; i++) h = (h ^ (uint64_t)(uint32_t)tokens[i]) * 0x9E3779B97F4A7C15u + 7;
    return h;
}

static void tree_open(void) {
    const setting  *s = w.s;
    int             pages[KV_MAX_GROUPS] = { PAGES, PAGES };
    kv_tree_options o = { .id = { .page_tokens = P,
                                  .n_groups = s->n_groups,
                                  .page_bytes = { P * sizeof(int32_t), s->n_groups > 1 ? P * sizeof(int32_t) : 0 },
                                  .state_bytes = s->states ? sizeof(uint64_t) : 0 },
                          .window = { 0, s->window1 },
                          .budget_bytes = s->budget,
                          .host_bytes = s->host,
                          .move = move,
                          .moved = moved };
    kv_disk_options d = { .dir = w.dir, .max_bytes = s->disk };
    assert_int_equal(kv_pool_open(&w.pool, s->n_groups, pages, NULL), 0);
    if (s->disk) assert_int_equal(kv_disk_open(&w.disk, &o.id, &d, NULL), 0);
    o.disk = w.disk;
    assert_int_equal(kv_tree_open(&w.tree, w.pool, &o, NULL), 0);
}

static void sequence_release(sequence *q) {
    for (int g = 0; g < w.s->n_groups; g++) {
        for (int i = 0; i < q->n_pages; i++) kv_pool_release(w.pool, g, q->pages[g][i]);
    }
    q->n_pages = 0;
}

static void tree_close(void) {
    for (int i = 0; i < HELD; i++) sequence_release(&w.held[i]);
    kv_tree_flush(w.tree);
    kv_tree_free(w.tree);
    kv_disk_free(w.disk);
    w.disk = NULL;
    for (int g = 0; g < w.s->n_groups; g++) assert_int_equal(kv_pool_unused(w.pool, g), PAGES); /* none lost */
    kv_pool_free(w.pool);
}

static void check_budgets(void) {
    kv_tree_stats st = kv_tree_stat(w.tree);
    assert_true(st.host_bytes <= w.s->host);
    assert_true(st.disk_bytes <= w.s->disk);
    size_t bytes = st.state_bytes;
    for (int g = 0; g < w.s->n_groups; g++) bytes += (size_t)(PAGES - kv_pool_unused(w.pool, g)) * P * sizeof(int32_t);
    bool held = w.held[0].n_pages || w.held[1].n_pages; /* a sequence may take more than the tree can give back */
    if (w.s->budget && !held) assert_true(bytes <= w.s->budget);
}

static void check_match(const sequence *q, kv_match m, const int32_t *tokens, int n) {
    assert_true(m.n_tokens < n);
    for (int g = 0; g < w.s->n_groups; g++) {
        for (int pos = 0; pos < m.n_tokens; pos++) {
            bool    needed = g == 0 || pos > m.n_tokens - w.s->window1;
            int32_t page = q->pages[g][pos / P];
            if (!needed) continue;
            assert_true(page >= 0);
            assert_int_equal(w.content[g][page][pos % P], tokens[pos]);
        }
    }
    if (w.s->states && m.n_tokens) {
        uint64_t got;
        memcpy(&got, m.state, sizeof got);
        assert_true(got == state_of(tokens, m.n_tokens));
    } else {
        assert_null(m.state);
    }
}

/* One page of every group that nobody else writes to; -1: there is none. */
static bool take(int32_t out[KV_MAX_GROUPS]) {
    const int need[KV_MAX_GROUPS] = { 1, 1 };
    if (!kv_tree_evict(w.tree, need)) return false;
    for (int g = 0; g < w.s->n_groups; g++) out[g] = kv_pool_take(w.pool, g);
    return true;
}

static int longest_seen(const int32_t *tokens, int n) {
    int best = 0;
    for (int k = 0; k < w.n_seen; k++) {
        int i = 0;
        while (i < n && i < w.lengths[k] && w.seen[k][i] == tokens[i]) i++;
        if (i > best) best = i;
    }
    return best < n ? best : n - 1;
}

/* Runs a prompt like the engine does. False: there was no room for it. */
static bool run(sequence *q, const int32_t *tokens, int n) {
    int32_t fresh[KV_MAX_GROUPS];
    for (int g = 0; g < KV_MAX_GROUPS; g++) q->rows[g] = q->pages[g];
    kv_match m = kv_tree_match(w.tree, &(kv_text){ .tokens = tokens }, n, n, q->rows);
    check_match(q, m, tokens, n);
    q->n_pages = (m.n_tokens + P - 1) / P;
    bool room = true;
    for (int g = 0; g < w.s->n_groups; g++)
        room = room && kv_pool_available(w.pool, g) >= (n + P - 1) / P - q->n_pages + (m.n_tokens % P != 0);
    if (m.n_tokens % P) {
        if (!room || !take(fresh)) return false;
        for (int g = 0; g < w.s->n_groups; g++) {
            int32_t old = q->pages[g][q->n_pages - 1];
            if (old >= 0) memcpy(w.content[g][fresh[g]], w.content[g][old], sizeof w.content[g][0]);
            kv_pool_release(w.pool, g, old);
            q->pages[g][q->n_pages - 1] = fresh[g];
        }
    }
    if (room && w.s->keeps) assert_int_equal(m.n_tokens, longest_seen(tokens, n));
    for (int pos = m.n_tokens; pos < n; pos++) {
        if (pos % P == 0) {
            if (!take(fresh)) return false;
            for (int g = 0; g < w.s->n_groups; g++) q->pages[g][pos / P] = fresh[g];
            q->n_pages++;
        }
        for (int g = 0; g < w.s->n_groups; g++) w.content[g][q->pages[g][pos / P]][pos % P] = tokens[pos];
    }
    return true;
}

static void finish(sequence *q, const int32_t *tokens, int n) {
    if (w.s->window1) { /* the window has passed what lies behind it */
        for (int i = 0; (i + 1) * P <= n - w.s->window1; i++) {
            kv_pool_release(w.pool, 1, q->pages[1][i]);
            q->pages[1][i] = -1;
        }
    }
    assert_true(kv_tree_insert(w.tree, &(kv_text){ .tokens = tokens }, n, (const int32_t *const *)q->rows));
    if (w.s->states) {
        uint64_t value = state_of(tokens, n);
        void    *at = kv_tree_add_state(w.tree, &(kv_text){ .tokens = tokens }, n);
        if (at) memcpy(at, &value, sizeof value);
    }
    kv_tree_save(w.tree, &(kv_text){ .tokens = tokens }, n, true);
    if (w.n_seen < MAX_SEEN) {
        memcpy(w.seen[w.n_seen], tokens, (size_t)n * sizeof *tokens);
        w.lengths[w.n_seen++] = n;
    }
}

/* Somebody deletes or shortens a file. */
static void vandalize(void) {
    DIR *d = opendir(w.dir);
    int  skip = (int)(test_random(&w.seed) % 8);
    for (const struct dirent *x; (x = readdir(d));) {
        if (x->d_name[0] == '.' || skip-- > 0) continue;
        if (test_random(&w.seed) % 2) {
            (void)unlinkat(dirfd(d), x->d_name, 0);
        } else {
            int fd = openat(dirfd(d), x->d_name, O_WRONLY);
            if (fd >= 0) assert_int_equal(ftruncate(fd, (off_t)(test_random(&w.seed) % 200)), 0);
            if (fd >= 0) close(fd);
        }
        break;
    }
    closedir(d);
}

static void run_setting(const setting *s, bool vandals) {
    uint64_t moved = 0, restored = 0;
    memset(&w, 0, sizeof w);
    w.s = s;
    w.seed = 4;
    w.dir = s->disk ? test_temp_dir() : NULL;
    for (int round = 0; round < s->rounds; round++) {
        tree_open();
        for (int i = 0; i < s->prompts; i++) {
            int32_t  tokens[LONGEST];
            sequence own = { 0 }, *q = &own;
            int      n = 1 + (int)(test_random(&w.seed) % LONGEST), h = (int)(test_random(&w.seed) % 8);
            for (int k = 0; k < n; k++) tokens[k] = (int32_t)(test_random(&w.seed) % (k < 8 ? 2 : k < 24 ? 3 : 9));
            if (h < HELD) { /* takes its pages with it for a while */
                q = &w.held[h];
                sequence_release(q);
                n = 1 + n / 3;
            }
            if (run(q, tokens, n)) finish(q, tokens, n);
            if (q == &own) sequence_release(q);
            if (vandals && i % 16 == 0) vandalize();
            check_budgets();
        }
        kv_tree_stats st = kv_tree_stat(w.tree);
        moved += st.to_host + st.saved;
        restored += st.from_host + st.from_disk;
        tree_close();
        if (!s->disk) w.n_seen = 0; /* nothing is left */
    }
    if ((s->host || s->disk) && (moved == 0 || restored == 0)) fail_msg("%s: nothing moved", s->what);
    if (w.dir) test_temp_dir_remove(w.dir);
}

static const uint64_t plenty = 1u << 30;

static void test_host(void **state) {
    const setting settings[] = {
        { "all is kept", 1, 0, false, 0, 1 << 22, 0, true, 3, 300 },
        { "little host memory", 1, 0, false, 0, 8000, 0, false, 3, 2000 },
        { "window", 2, 6, false, 0, 8000, 0, false, 3, 2000 },
        { "states", 1, 0, true, PAGES * 16 - 60, 8000, 0, false, 3, 2000 },
        { "window and states", 2, 6, true, PAGES * 32 + 40, 9000, 0, false, 3, 2000 },
        { "states alone", 0, 0, true, 16000, 90000, 0, false, 3, 2000 },
        { "no tiers", 2, 6, true, PAGES * 32, 0, 0, false, 2, 1000 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) run_setting(&settings[i], false);
}

static void test_disk(void **state) {
    const setting settings[] = {
        { "all is kept", 1, 0, false, 0, 0, plenty, true, 3, 60 },
        { "both tiers", 1, 0, false, 0, 6000, plenty, true, 3, 60 },
        { "little room", 1, 0, false, 0, 6000, 40 * 4096, false, 3, 80 },
        { "window", 2, 6, false, 0, 6000, 60 * 4096, false, 2, 80 },
        { "states", 1, 0, true, PAGES * 16 + 40, 6000, 60 * 4096, false, 2, 80 },
        { "window and states", 2, 6, true, PAGES * 32 + 40, 0, plenty, false, 2, 80 },
        { "states alone", 0, 0, true, 4000, 6000, 60 * 4096, false, 2, 80 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) run_setting(&settings[i], false);
}

static void test_vandals(void **state) {
    const setting settings[] = {
        { "pages", 1, 0, false, 0, 2000, plenty, false, 4, 60 },
        { "window and states", 2, 6, true, PAGES * 32 + 40, 2000, plenty, false, 4, 60 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) run_setting(&settings[i], true);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_disk),
        cmocka_unit_test(test_vandals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
