/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Positions can be taken back: after every token some wrong ones are evaluated and rolled back, also into a page that
 * the prefix tree shares, and the logits that follow equal those of a straight run bit for bit. For every kind of
 * state: pages, windows, latent pages, recurrent and convolution states.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/backend.h"
#include "engine/cache.h"
#include "kernels/cpu.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 16, PAGES = 48, LENGTH = 60, BEGIN = 21, DRAFTS = 5, STEP = 32, MAX_INDEX = 8 };

static nn_exec *exec;
static cache    c;

static int32_t tokens[LENGTH], drafts[DRAFTS];

static void open_model(const fixture *f) {
    err               e;
    nn_exec_options   o = { .limits = { .max_tokens = STEP,
                                        .max_seqs = 1,
                                        .max_outputs = STEP,
                                        .max_logits = STEP,
                                        .page_tokens = PAGE,
                                        .max_pages = MAX_INDEX,
                                        .n_pages = PAGES,
                                        .n_slots = 2 },
                            .k_type = NN_KV_F16,
                            .v_type = NN_KV_F16,
                            .n_threads = 1,
                            .cpu = cpu_detect() };
    cache_options     co = { .bytes = 8 << 20 };
    const nn_backend *backend;
    nn_device         device;
    if (backend_find("cpu", &backend, &device, &e) < 0) fail_msg("%s", e.msg);
    if (backend->open(&exec, &device, f->model, &o, &e) < 0) fail_msg("%s", e.msg);
    if (cache_open(&c, exec, &co, &e) < 0) fail_msg("%s", e.msg);
}

/* Evaluates n tokens at positions from on; the last one's logits are kept in out (may be NULL). */
static void evaluate(cache_tables *t, int32_t slot, const int32_t *what, int from, int n, float *out) {
    int32_t  pos[STEP], seq_of[STEP] = { 0 }, q_start[2] = { 0, n }, kv_len = from + n, row = n - 1;
    nn_batch b = { .n_tok = n,
                   .n_seq = 1,
                   .n_out = 1,
                   .token = what,
                   .pos = pos,
                   .seq_of = seq_of,
                   .q_start = q_start,
                   .kv_len = &kv_len,
                   .pages_stride = MAX_INDEX,
                   .state_slot = &slot,
                   .out_rows = &row };
    err      e;
    for (int i = 0; i < n; i++) pos[i] = from + i;
    assert_true(cache_grow(&c, t, from + n));
    for (int g = 0; g < c.n_groups; g++) b.pages[g] = t->tables[g];
    if (nn_exec_step(exec, &b, &e) < 0) fail_msg("%s", e.msg);
    if (out && exec->backend->fetch(exec, NN_FETCH_LOGITS, 0, 1, out, &e) < 0) fail_msg("%s", e.msg);
}

static void check_model(const char *name) {
    fixture      f;
    cache_tables straight, guess, other;
    uint64_t     seed = 8;
    fixture_open(&f, name);
    open_model(&f);
    size_t n_vocab = (size_t)f.model->dims->n_vocab;
    float *want = malloc(LENGTH * n_vocab * sizeof *want), *got = malloc(n_vocab * sizeof *got);
    void  *state = malloc(c.slot_bytes + 1);
    for (int i = 0; i < LENGTH; i++) tokens[i] = (int32_t)(test_random(&seed) % n_vocab);
    assert_int_equal(cache_tables_init(&c, &straight, NULL), 0);
    assert_int_equal(cache_tables_init(&c, &guess, NULL), 0);
    assert_int_equal(cache_tables_init(&c, &other, NULL), 0);

    evaluate(&straight, 0, tokens, 0, BEGIN, NULL);
    for (int at = BEGIN; at < LENGTH; at++) evaluate(&straight, 0, tokens + at, at, 1, want + (size_t)at * n_vocab);
    cache_tables_release(&c, &straight);

    evaluate(&guess, 1, tokens, 0, BEGIN, NULL);
    for (int at = BEGIN; at < LENGTH; at++) {
        int n = 1 + (int)(test_random(&seed) % DRAFTS);
        for (int i = 0; i < n; i++) drafts[i] = (int32_t)(test_random(&seed) % n_vocab);
        /* Now and then the tree shares the page that the drafts are written to. */
        if (at % 3 == 0) cache_remember(&c, &guess, &(kv_text){ .tokens = tokens }, at, 1, CACHE_MARK);
        cache_checkpoint(&c, 1, state);
        evaluate(&guess, 1, drafts, at, n, NULL);
        assert_true(cache_rollback(&c, &guess, at, 1, state));
        assert_int_equal(guess.n_pages, (at + PAGE - 1) / PAGE);
        evaluate(&guess, 1, tokens + at, at, 1, got);
        if (memcmp(got, want + (size_t)at * n_vocab, n_vocab * sizeof *got) != 0)
            fail_msg("%s: position %d differs after a rollback", name, at);
        cache_trim(&c, &guess, at + 1);
        if (at % 3 != 0) continue;
        /* And what it shares is still what was computed. */
        assert_int_equal(cache_attach(&c, &other, &(kv_text){ .tokens = tokens }, at + 1, 0), at);
        evaluate(&other, 0, tokens + at, at, 1, got);
        if (memcmp(got, want + (size_t)at * n_vocab, n_vocab * sizeof *got) != 0)
            fail_msg("%s: the tree's page differs at %d", name, at);
        cache_tables_release(&c, &other);
    }

    /* Into a shared page when no page is left for the copy: refused, and nothing changed. */
    if (c.n_groups) {
        int32_t   taken[KV_MAX_GROUPS][PAGES], before = guess.n_pages;
        int       n_taken = 0;
        const int all[KV_MAX_GROUPS] = { 1, 1, 1, 1 };
        assert_true(LENGTH % PAGE != 0);
        cache_remember(&c, &guess, &(kv_text){ .tokens = tokens }, LENGTH, 1, CACHE_MARK);
        while (kv_tree_evict(c.tree, all)) {
            for (int g = 0; g < c.n_groups; g++) taken[g][n_taken] = kv_pool_take(c.pool, g);
            n_taken++;
        }
        int32_t page = guess.tables[0][guess.n_pages - 1];
        assert_true(kv_pool_refs(c.pool, 0, page) > 1);
        assert_false(cache_rollback(&c, &guess, LENGTH - 1, 1, state));
        assert_int_equal(guess.n_pages, before);
        assert_int_equal(guess.tables[0][guess.n_pages - 1], page);
        for (int i = 0; i < n_taken; i++) {
            for (int g = 0; g < c.n_groups; g++) kv_pool_release(c.pool, g, taken[g][i]);
        }
    }
    cache_tables_release(&c, &guess);
    for (int g = 0; g < c.n_groups; g++) assert_int_equal(kv_pool_available(c.pool, g), PAGES);
    cache_tables_deinit(&straight);
    cache_tables_deinit(&guess);
    cache_tables_deinit(&other);
    cache_close(&c);
    nn_exec_free(exec);
    free(want);
    free(got);
    free(state);
    fixture_close(&f);
}

static void test_rollback(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next",
                                         "lfm2",  "mamba2",      "kimi_linear" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) check_model(names[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rollback) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
