/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes two prompts the same: tokens, the content of supplied rows, the namespace. Stated case by case, and
 * against a plain model: a list of every prompt that was remembered, whose longest common beginning is computed
 * naively.
 */
#include "unit/support/kv_world.h"
#include "unit/support/support.h"

#include <stdlib.h>
#include <string.h>

enum { PLACEHOLDER = 7, MAX_SEEN = 2048 };

static world w; /* too large for the stack */

static const world_options memory = { .n_groups = 1 };

static kv_key key_of(int number) {
    kv_key k = { { 0 } };
    for (int i = 0; i < 4; i++) k.b[11 + i] = (uint8_t)(number >> (8 * i));
    return k;
}

/* Tokens first, first + 1, ... */
static void add_tokens(prompt *p, int first, int n) {
    for (int i = 0; i < n; i++) p->tokens[p->n++] = first + i;
}

/* Rows of an image stand behind placeholders. */
static void add_image(prompt *p, int image, int n) {
    for (int i = 0; i < n; i++) {
        p->rows[p->n] = key_of(image * 1000 + i + 1);
        p->tokens[p->n++] = PLACEHOLDER;
    }
}

static prompt with_image(int image, int rows) {
    prompt p = { 0 };
    add_tokens(&p, 100, 6);
    add_image(&p, image, rows);
    add_tokens(&p, 200, 5);
    return p;
}

static prompt in_space(prompt p, int space) {
    if (space) p.space = key_of(space);
    return p;
}

static int ask(prompt p) {
    int n = world_prompt(&w, &p);
    kv_world_check(&w);
    return n;
}

static void test_images(void **state) {
    (void)state;
    kv_world_open(&w, &memory);
    assert_int_equal(ask(with_image(1, 9)), 0);
    assert_int_equal(ask(with_image(1, 9)), 19); /* the same image again */
    assert_int_equal(ask(with_image(2, 9)), 6);  /* the same placeholders, another image */
    assert_int_equal(ask(with_image(2, 9)), 19);
    assert_int_equal(ask(with_image(1, 9)), 19); /* both are there */
    assert_int_equal(ask(with_image(1, 5)), 11); /* cut in the middle of a page: 6 + 5 rows */
    assert_int_equal(ask(with_image(1, 12)), 15);
    prompt text = { 0 }; /* plain tokens with the placeholder's id are not an image */
    add_tokens(&text, 100, 6);
    for (int i = 0; i < 9; i++) text.tokens[text.n++] = PLACEHOLDER;
    assert_int_equal(ask(text), 6);
    assert_int_equal(ask(text), text.n - 1);
    prompt fork = with_image(1, 9); /* leaves within the image: its 8th row differs */
    fork.rows[6 + 7] = key_of(77);
    assert_int_equal(ask(fork), 13);
    assert_int_equal(ask(fork), fork.n - 1);
    fork.rows[6 + 7] = (kv_key){ { 0 } }; /* and here it is a plain token */
    assert_int_equal(ask(fork), 13);
    prompt other = with_image(1, 9); /* the same content behind another token is something else */
    other.tokens[8] = PLACEHOLDER + 1;
    assert_int_equal(ask(other), 8);
    kv_world_close(&w);
}

/* A leaf that ends before an image grows into it, and one whose last row is supplied grows behind it. */
static void test_growing(void **state) {
    prompt p = { 0 };
    (void)state;
    kv_world_open(&w, &memory);
    add_tokens(&p, 1, 2);
    assert_int_equal(ask(p), 0);
    add_image(&p, 1, 1);
    assert_int_equal(ask(p), 2);
    prompt other = p;
    add_image(&p, 2, 1);
    assert_int_equal(ask(p), 3);
    add_tokens(&other, 50, 6);
    assert_int_equal(ask(other), 3);
    add_tokens(&p, 60, 9);
    assert_int_equal(ask(p), 4);
    assert_int_equal(ask(p), p.n - 1);
    assert_int_equal(kv_tree_stat(w.tree).tokens, 13 + 9); /* nothing is remembered twice, but for a page that forks */
    kv_world_close(&w);
}

static void test_spaces(void **state) {
    prompt p = { 0 };
    (void)state;
    add_tokens(&p, 1, 11);
    kv_world_open(&w, &memory);
    for (int space = 0; space < 3; space++) {
        assert_int_equal(ask(in_space(p, space)), 0);
        assert_int_equal(ask(in_space(p, space)), 10);
        assert_int_equal(kv_tree_stat(w.tree).spaces, space + 1);
    }
    prompt image = with_image(1, 4);
    assert_int_equal(ask(in_space(image, 1)), 0);
    assert_int_equal(ask(in_space(image, 2)), 0);
    assert_int_equal(ask(in_space(image, 1)), image.n - 1);
    kv_world_close(&w);
}

/* Thousands of adapter sets come and go: none leaves anything behind. Asking leaves nothing behind either. */
static void test_many_spaces(void **state) {
    int32_t      pages[KV_MAX_GROUPS][WORLD_INDEXES];
    int32_t     *tables[KV_MAX_GROUPS] = { pages[0], pages[1], pages[2], pages[3] };
    prompt       p = { 0 };
    const int    all[KV_MAX_GROUPS] = { WORLD_PAGES };
    const kv_key nobody = key_of(1 << 20);
    (void)state;
    add_tokens(&p, 1, 7);
    kv_world_open(&w, &memory);
    for (int space = 1; space <= 5000; space++) {
        kv_text empty = { .space = key_of(space) };
        assert_true(kv_tree_insert(w.tree, &empty, 0, (const int32_t *const *)tables));
        prompt own = in_space(p, space * 7919 % 5003);
        assert_int_equal(world_prompt(&w, &own), 0);
        assert_int_equal(world_prompt(&w, &own), 6);
        assert_true(kv_tree_stat(w.tree).spaces <= WORLD_PAGES / 2);
        if (space % 500 == 0) kv_world_check(&w);
    }
    size_t spaces = kv_tree_stat(w.tree).spaces;
    assert_int_equal(spaces, WORLD_PAGES / 2);
    kv_text text = { .tokens = p.tokens, .space = nobody };
    assert_int_equal(kv_tree_match(w.tree, &text, 7, 7, tables).n_tokens, 0);
    kv_tree_save(w.tree, &text, 7, true);
    assert_null(kv_tree_add_state(w.tree, &text, 7));
    assert_int_equal(kv_tree_stat(w.tree).spaces, spaces);
    assert_true(kv_tree_evict(w.tree, all));
    assert_int_equal(kv_tree_stat(w.tree).spaces, 0);
    kv_world_close(&w);
}

/* What would be found, without remembering anything. */
static int look(prompt p) {
    world_sequence q = { 0 };
    int            n = kv_world_run(&w, &q, &p);
    world_release(&w, &q);
    return n;
}

/* Over the disk and restarts: what was the same is found, and nothing else. */
static void test_disk(void **state) {
    char         *dir = test_temp_dir();
    world_options o = { .n_groups = 1, .dir = dir, .disk_bytes = 1 << 30 };
    (void)state;
    for (int round = 0; round < 3; round++) { /* computed; read again; read in the other order */
        kv_world_open(&w, &o);
        assert_int_equal(kv_tree_stat(w.tree).spaces, round ? 3 : 0);
        for (int i = 0; i < 6; i++) {
            int    k = round == 2 ? 5 - i : i;
            prompt p = in_space(with_image(1 + k % 2, 9), k / 2);
            int    want = round ? p.n - 1 : k % 2 ? 6 : 0;
            assert_int_equal(ask(p), want);
        }
        for (int space = 0; space < 4; space++) {
            assert_int_equal(look(in_space(with_image(1, 12), space)), space < 3 ? 15 : 0);
            assert_int_equal(look(in_space(with_image(3, 9), space)), space < 3 ? 6 : 0);
        }
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
}

/* A page that claims to belong to another namespace than the page before it is used in neither. */
static void test_claimed_space(void **state) {
    char             *dir = test_temp_dir();
    world_options     o = { .n_groups = 1, .dir = dir, .disk_bytes = 1 << 30 };
    const kv_identity id = { .page_tokens = WORLD_P, .n_groups = 1, .page_bytes = { WORLD_PAGE_BYTES } };
    (void)state;
    for (int claim = 0; claim < 2; claim++) { /* 0: the truth */
        prompt   p = { 0 };
        kv_disk *d;
        kv_key   before = kv_key_root(&id, &p.space);
        add_tokens(&p, 1, 9);
        assert_int_equal(kv_disk_open(&d, &id, &(kv_disk_options){ .dir = dir, .max_bytes = 1 << 30 }, NULL), 0);
        for (int i = 0; i < 2; i++) {
            kv_entry  x = { .kind = KV_ENTRY_PAGE, .position = i * WORLD_P, .n_tokens = WORLD_P, .groups = 1 };
            kv_span   span = { p.tokens + x.position, NULL, WORLD_P };
            uint64_t *payload = malloc(WORLD_PAGE_BYTES);
            if (claim && i) x.space = key_of(1);
            memcpy(x.tokens, span.tokens, sizeof *span.tokens * WORLD_P);
            x.parent = before;
            x.key = before = kv_key_of(KV_ENTRY_PAGE, &x.parent, &span);
            x.payload_bytes = WORLD_PAGE_BYTES;
            for (int k = 0; k < WORLD_P; k++) payload[k] = prompt_hash(&p, x.position + k + 1);
            assert_true(kv_disk_put(d, &x, payload, 1));
        }
        kv_disk_free(d);
        kv_world_open(&w, &o);
        assert_int_equal(kv_tree_stat(w.tree).nodes, claim ? 1 : 2);
        assert_int_equal(kv_tree_stat(w.tree).spaces, 1);
        assert_int_equal(look(p), claim ? 4 : 8);
        assert_int_equal(look(in_space(p, 1)), 0);
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
}

/* States hang on content and namespace like pages do, and one that could not be filled is taken back. */
static void test_states(void **state) {
    char         *dir = test_temp_dir();
    world_options o = { .n_groups = 1, .states = true, .dir = dir, .disk_bytes = 1 << 30, .host = 4000 };
    int32_t       pages[WORLD_INDEXES], *tables[KV_MAX_GROUPS] = { pages };
    (void)state;
    for (int round = 0; round < 2; round++) {
        kv_world_open(&w, &o);
        for (int k = 0; k < 4; k++) {
            prompt p = in_space(with_image(1 + k % 2, 9), k / 2), longer = p;
            add_tokens(&longer, 300, 3);
            if (round == 0) assert_int_equal(ask(p), 0); /* a state stands behind the last token only */
            assert_int_equal(look(longer), p.n);
        }
        kv_world_close(&w);
    }
    test_temp_dir_remove(dir);
    o.dir = dir = test_temp_dir();
    kv_world_open(&w, &o);
    prompt p = with_image(1, 9), longer = p;
    add_tokens(&longer, 300, 3);
    kv_text text = prompt_text(&longer);
    ask(p);
    assert_int_equal(kv_tree_stat(w.tree).states, 1);
    kv_tree_drop_state(w.tree, &text, p.n);
    kv_tree_drop_state(w.tree, &text, p.n - 1); /* there is none */
    kv_world_check(&w);
    assert_int_equal(kv_tree_stat(w.tree).states, 0);
    assert_int_equal(kv_tree_match(w.tree, &text, longer.n, 0, tables).n_tokens, 0);
    assert_non_null(memset(kv_tree_add_state(w.tree, &text, p.n), 1, sizeof(uint64_t)));
    assert_null(kv_tree_add_state(w.tree, &text, p.n));
    kv_tree_drop_state(w.tree, &text, p.n);
    assert_int_equal(kv_tree_stat(w.tree).states, 0);
    assert_int_equal(kv_tree_stat(w.tree).state_bytes, 0);
    kv_world_close(&w);
    test_temp_dir_remove(dir);
}

/* -- the plain model */

static struct {
    prompt seen[MAX_SEEN];
    int    n;
} model;

static int model_longest(const prompt *p) {
    int best = 0;
    for (int i = 0; i < model.n; i++) {
        int n = prompt_common(&model.seen[i], p);
        if (n > best) best = n;
    }
    return best < p->n ? best : p->n - 1;
}

/* Few tokens, images and namespaces, so that beginnings meet and fork everywhere; often one that was there before goes
 * on in another way. */
static prompt random_prompt(uint64_t *seed) {
    prompt p = { 0 };
    int    n = 1 + (int)(test_random(seed) % WORLD_LONGEST);
    if (model.n && test_random(seed) % 2) {
        p = model.seen[test_random(seed) % (uint64_t)model.n];
        p.n = (int)(test_random(seed) % (uint64_t)(p.n + 1));
        memset(p.rows + p.n, 0, sizeof p.rows - (size_t)p.n * sizeof *p.rows);
    } else {
        p = in_space(p, (int)(test_random(seed) % 4));
    }
    while (p.n < n) {
        int image = (int)(test_random(seed) % 6), rows = 1 + (int)(test_random(seed) % 7);
        if (image < 3) {
            add_image(&p, image, rows < n - p.n ? rows : n - p.n);
        } else {
            p.tokens[p.n++] = PLACEHOLDER + (int32_t)(test_random(seed) % 2);
        }
    }
    return p;
}

static void run_model(const world_options *o, int rounds, int prompts, uint64_t seed) {
    model.n = 0;
    for (int round = 0; round < rounds; round++) {
        kv_world_open(&w, o);
        for (int i = 0; i < prompts && model.n < MAX_SEEN; i++) {
            const int room[KV_MAX_GROUPS] = { WORLD_INDEXES };
            prompt    p = random_prompt(&seed);
            if (!o->host && !o->dir && kv_pool_unused(w.pool, 0) < room[0]) break; /* something would be lost */
            int got = world_prompt(&w, &p), want = model_longest(&p);
            if (got != want) fail_msg("round %d, prompt %d: %d positions, %d were remembered", round, i, got, want);
            model.seen[model.n++] = p;
            if (i % 16 == 0) kv_world_check(&w);
        }
        kv_world_close(&w);
        if (!o->dir) model.n = 0;
    }
}

static void test_model(void **state) {
    char *dir = test_temp_dir(), *both = test_temp_dir();
    (void)state;
    run_model(&memory, 200, 100, 1);
    run_model(&(world_options){ .n_groups = 1, .host = 1 << 22 }, 4, TEST_SANITIZED ? 120 : 500, 2);
    run_model(&(world_options){ .n_groups = 1, .dir = dir, .disk_bytes = 1 << 30 }, 3, 60, 3);
    run_model(&(world_options){ .n_groups = 1, .dir = both, .disk_bytes = 1 << 30, .host = 6000, .stage = 70 }, 3, 60,
              4);
    test_temp_dir_remove(dir);
    test_temp_dir_remove(both);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images),      cmocka_unit_test(test_growing), cmocka_unit_test(test_spaces),
        cmocka_unit_test(test_many_spaces), cmocka_unit_test(test_disk),    cmocka_unit_test(test_claimed_space),
        cmocka_unit_test(test_states),      cmocka_unit_test(test_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
