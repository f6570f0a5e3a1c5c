/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapter sets in the engine: many requests over eight adapters and none, submitted in random order, in batches of any
 * mix, with preemption and the prefix cache: each answer is that of its solo run, bit for bit. Other content under the
 * same name is another set. An activated adapter uses the model's own pages in front of its start.
 */
#include "unit/support/adapter_support.h"
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <stdlib.h>
#include <string.h>

enum { ADAPTERS = 8, REQUESTS = TEST_SANITIZED ? 24 : 64, PROMPT = 40, ANSWER = 12 };

typedef struct zoo {
    fixture         f;
    test_peft       files[ADAPTERS];
    nn_adapter     *adapters[ADAPTERS];
    nn_adapter_set *sets[ADAPTERS + 1]; /* the first is none, the last has two adapters */
} zoo;

static void zoo_open(zoo *z) {
    err e = { 0 };
    fixture_open(&z->f, "llama");
    z->sets[0] = NULL;
    for (int i = 0; i < ADAPTERS; i++) {
        test_peft_make(&z->files[i], 10 + (uint64_t)i, 1 + 3 * i);
        z->adapters[i] = test_peft_open(&z->files[i], z->f.model);
    }
    for (int i = 1; i <= ADAPTERS; i++) {
        nn_adapter_use uses[] = { { z->adapters[i - 1], 0.5f + 0.25f * (float)i }, { z->adapters[0], -1 } };
        if (nn_adapter_set_open(&z->sets[i], z->f.model, uses, i == ADAPTERS ? 2 : 1, &e) < 0) fail_msg("%s", e.msg);
    }
}

static void zoo_close(zoo *z) {
    for (int i = 1; i <= ADAPTERS; i++) nn_adapter_set_free(z->sets[i]);
    for (int i = 0; i < ADAPTERS; i++) {
        nn_adapter_free(z->adapters[i]);
        test_peft_free(&z->files[i]);
    }
    fixture_close(&z->f);
}

/* Prompts share beginnings across sets: the tree would mix them up if it did not look at the set. */
static engine_request wish(const zoo *z, int i, int32_t *tokens, answer *a) {
    int n = PROMPT - i % 7;
    for (int k = 0; k < n; k++) tokens[k] = 3 + (k < 24 ? k * 5 % 300 : (k * 7 + i % 5) % 300);
    *a = (answer){ 0 };
    engine_request r = { .tokens = tokens,
                         .n_tokens = (size_t)n,
                         .adapters = z->sets[i % (ADAPTERS + 1)],
                         .max_tokens = ANSWER,
                         .ignore_eos = true,
                         .want_logprob = true,
                         .priority = i % 3,
                         .on_event = answer_collect,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.temperature = 0.8f;
    return r;
}

static void test_many(void **state) {
    zoo           z;
    static answer solo[REQUESTS], mixed[REQUESTS];
    int           order[REQUESTS];
    int32_t       tokens[PROMPT];
    uint64_t      random = 99;
    engine_stats  st;
    (void)state;
    zoo_open(&z);
    engine *g = fixture_engine(&z.f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < REQUESTS; i++) {
        engine_request r = wish(&z, i, tokens, &solo[i]);
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        assert_true(solo[i].over && !solo[i].failed);
        order[i] = i;
    }
    engine_free(g);
    for (int i = 1; i <= ADAPTERS; i++) assert_false(answer_same(&solo[0], &solo[i])); /* the sets do something */
    size_t page = fixture_page_bytes(&z.f, 16);
    g = fixture_engine(
        &z.f, (engine_options){
                  .n_threads = 2, .max_seqs = 7, .step_tokens = 48, .page_tokens = 16, .cache_bytes = 22 * page });
    for (int round = 0; round < 2; round++) { /* the second finds what the first left */
        for (int i = REQUESTS - 1; i > 0; i--) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            int k = (int)((random >> 33) % (unsigned)(i + 1)), t = order[i];
            order[i] = order[k];
            order[k] = t;
        }
        for (int i = 0; i < REQUESTS; i++) {
            engine_request r = wish(&z, order[i], tokens, &mixed[order[i]]);
            engine_submit_ok(g, &r);
        }
        engine_wait_idle(g);
        for (int i = 0; i < REQUESTS; i++) {
            if (mixed[i].failed) fail_msg("request %d: %s", i, mixed[i].error.msg);
            if (!answer_same(&solo[i], &mixed[i])) fail_msg("round %d: request %d differs from its solo run", round, i);
        }
    }
    engine_stat(g, &st);
    assert_true(st.preemptions > 0);
    assert_true(st.tokens_cached > 0);
    engine_free(g);
    zoo_close(&z);
}

/* The same name, other content: nothing of the old is used. Here the file is read again as whoever loads it does. */
static void test_replaced(void **state) {
    zoo     z;
    answer  first, second, again;
    int32_t tokens[PROMPT];
    err     e = { 0 };
    (void)state;
    zoo_open(&z);
    engine        *g = fixture_engine(&z.f, (engine_options){ .n_threads = 1, .cache_bytes = 4 << 20 });
    engine_request r = wish(&z, 1, tokens, &first);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    test_peft       changed;
    nn_adapter_set *set;
    test_peft_make(&changed, 77, 1);
    nn_adapter    *a = test_peft_open(&changed, z.f.model);
    nn_adapter_use use = { a, z.sets[1]->uses[0].scale };
    assert_int_equal(nn_adapter_set_open(&set, z.f.model, &use, 1, &e), 0);
    r = wish(&z, 1, tokens, &second);
    r.adapters = set;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_int_equal(second.cached, 0);
    assert_false(answer_same(&first, &second));
    r = wish(&z, 1, tokens, &again);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(again.cached > 0);
    assert_true(answer_same(&first, &again));
    engine_free(g);
    nn_adapter_set_free(set);
    nn_adapter_free(a);
    test_peft_free(&changed);
    zoo_close(&z);
}

/* From a position on: what is in front of it is the model's, whoever computed it. */
static void test_activated(void **state) {
    zoo     z;
    answer  base, first, second, alone;
    int32_t tokens[PROMPT];
    (void)state;
    zoo_open(&z);
    engine        *g = fixture_engine(&z.f, (engine_options){ .n_threads = 1, .cache_bytes = 4 << 20 });
    engine_request r = wish(&z, 0, tokens, &base);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    r.adapters = z.sets[3];
    r.adapters_from = 21;
    r.ctx = &first;
    first = (answer){ 0 };
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_int_equal(first.cached, 21);
    assert_false(answer_same(&base, &first));
    r.ctx = &second;
    second = (answer){ 0 };
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(second.cached > 21);
    assert_true(answer_same(&first, &second));
    r.no_cache = true;
    r.ctx = &alone;
    alone = (answer){ 0 };
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_int_equal(alone.cached, 0);
    assert_true(answer_same(&first, &alone));
    engine_free(g);
    zoo_close(&z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_replaced),
        cmocka_unit_test(test_activated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
