/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Page types through the engine, on the demo model: with every type and with types that differ by layer and side an
 * answer is the same alone, in a batch, in pieces, from the prefix cache and from disk; entries that were written with
 * other types are never read; which layers get which type, what is refused, and what auto chooses.
 */
#include "unit/support/engine_support.h"
#include "unit/support/runtime_support.h"
#include "unit/support/support.h"

#include "kernels/cpu.h"
#include "models/list.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT = 75, REPLY = 4, OTHERS = 2, CONTEXT = 128 };

static fixture demo;

static const nn_kv_types kinds[] = {
    { NN_KV_Q8_0, NN_KV_Q8_0, 0, false }, { NN_KV_Q5_0, NN_KV_Q5_0, 0, false },
    { NN_KV_Q4_0, NN_KV_Q4_0, 0, false }, { NN_KV_TQ4, NN_KV_TQ4, 0, false },
    { NN_KV_TQ3, NN_KV_TQ3, 0, false },   { NN_KV_TQ2, NN_KV_TQ2, 0, false },
    { NN_KV_FP8, NN_KV_FP8, 0, false },   { NN_KV_Q8_0, NN_KV_TQ4, NN_KV_PRECISE_USUAL, false },
    { NN_KV_TQ3, NN_KV_Q5_0, 1, true },
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static engine *engine_with(const nn_kv_types *t, engine_options o) {
    engine *g;
    err     e;
    o.n_threads = 1;
    o.n_ctx = CONTEXT;
    o.cpu = cpu_detect();
    o.k_type = t->k;
    o.v_type = t->v;
    o.precise_layers = t->precise;
    o.k_open = t->k_open;
    if (engine_open(&g, demo.model, NULL, &o, &e) < 0) fail_msg("%s", e.msg);
    return g;
}

static void prompt_of(int number, int32_t *tokens) {
    uint64_t seed = 5;
    for (int i = 0; i < PROMPT; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)demo.model->dims->n_vocab);
    tokens[0] = 100 + number;
}

static void submit(engine *g, const int32_t *tokens, answer *a) {
    engine_request r = { .tokens = tokens,
                         .n_tokens = PROMPT,
                         .max_tokens = REPLY,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = a };
    *a = (answer){ 0 };
    sampling_params_default(&r.sampling);
    engine_submit_ok(g, &r);
}

static answer ask(engine *g, int number) {
    int32_t tokens[PROMPT];
    answer  a;
    prompt_of(number, tokens);
    submit(g, tokens, &a);
    engine_wait_idle(g);
    assert_true(a.over && !a.failed && a.n == REPLY);
    return a;
}

/* In one go; beside others in pieces of 32 tokens; again from the cache; after a restart from disk. */
static void test_every_type(void **state) {
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        char   *dir = test_temp_dir();
        engine *g = engine_with(&kinds[i], (engine_options){ .max_seqs = 1, .no_prefix_cache = true });
        answer  want = ask(g, 0), got[1 + OTHERS], again;
        int32_t tokens[1 + OTHERS][PROMPT];
        engine_free(g);
        g = engine_with(&kinds[i], (engine_options){ .max_seqs = 4, .step_tokens = 32, .disk_cache_dir = dir });
        for (int k = OTHERS; k >= 0; k--) {
            prompt_of(k, tokens[k]);
            submit(g, tokens[k], &got[k]);
        }
        engine_wait_idle(g);
        if (!answer_same(&got[0], &want)) fail_msg("types %d: differs in a batch", i);
        again = ask(g, 0);
        if (!answer_same(&again, &want) || again.cached != PROMPT - 1) fail_msg("types %d: %d cached", i, again.cached);
        engine_free(g);
        g = engine_with(&kinds[i], (engine_options){ .max_seqs = 1, .disk_cache_dir = dir });
        again = ask(g, 0);
        if (!answer_same(&again, &want) || again.cached == 0) fail_msg("types %d: %d from disk", i, again.cached);
        engine_free(g);
        test_temp_dir_remove(dir);
    }
}

/* One directory for all: what another choice of types wrote is not even opened. */
static void test_foreign_types(void **state) {
    static const nn_kv_types others[] = {
        { NN_KV_TQ4, NN_KV_TQ4, 0, false },  { NN_KV_TQ4, NN_KV_TQ4, 1, false }, { NN_KV_TQ4, NN_KV_TQ4, 2, false },
        { NN_KV_TQ4, NN_KV_Q4_0, 0, false }, { NN_KV_F16, NN_KV_TQ4, 0, false }, { NN_KV_F16, NN_KV_F16, 0, false },
    };
    char *dir = test_temp_dir();
    (void)state;
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            engine *g = engine_with(&others[i], (engine_options){ .max_seqs = 1, .disk_cache_dir = dir });
            answer  a = ask(g, 0);
            if (round == 0 ? a.cached != 0 : a.cached == 0)
                fail_msg("types %zu, round %d: %d cached", i, round, a.cached);
            engine_free(g);
        }
    }
    test_temp_dir_remove(dir);
}

static void expect(const nn_model *m, nn_kv_types t, int layer, nn_kv_type k, nn_kv_type v) {
    nn_kv_type got_k, got_v;
    nn_kv_types_of_layer(&t, m, layer, &got_k, &got_v);
    if (got_k != k || got_v != v)
        fail_msg("layer %d: %s and %s, not %s and %s", layer, nn_kv_type_name(got_k), nn_kv_type_name(got_v),
                 nn_kv_type_name(k), nn_kv_type_name(v));
}

static void test_layers(void **state) {
    const int         last = demo.model->dims->n_layer - 1;
    const nn_kv_types usual = { NN_KV_TQ4, NN_KV_TQ3, NN_KV_PRECISE_USUAL, true };
    fixture           f;
    (void)state;
    for (int i = 0; i <= last; i++) {
        bool end = i < 2 || i > last - 2;
        expect(demo.model, usual, i, end ? NN_KV_Q8_0 : NN_KV_TQ4, end ? NN_KV_Q8_0 : NN_KV_TQ3);
        expect(demo.model, (nn_kv_types){ NN_KV_F16, NN_KV_Q8_0, 2, true }, i, NN_KV_F16, NN_KV_Q8_0);
    }
    fixture_open(&f, "qwen3_next"); /* hybrid: no precise layers by themselves */
    for (int i = 0; i < f.model->dims->n_layer; i++) expect(f.model, usual, i, NN_KV_TQ4, NN_KV_TQ3);
    fixture_close(&f);
    fixture_open(&f, "gpt_oss"); /* sinks: keys stay, unless they were asked for */
    expect(f.model, (nn_kv_types){ NN_KV_Q8_0, NN_KV_TQ4, 0, true }, 0, NN_KV_F16, NN_KV_TQ4);
    expect(f.model, (nn_kv_types){ NN_KV_Q8_0, NN_KV_TQ4, 0, false }, 0, NN_KV_Q8_0, NN_KV_TQ4);
    fixture_close(&f);
}

/* Heads of 16: no block to rotate. q8_0 is stored as it is, the others are refused by name. */
static void test_refused(void **state) {
    engine        *g;
    err            e;
    fixture        f;
    engine_options o = { .n_ctx = 64, .n_threads = 1, .cpu = cpu_detect(), .k_type = NN_KV_Q8_0, .v_type = NN_KV_TQ4 };
    (void)state;
    fixture_open(&f, "llama");
    assert_int_equal(engine_open(&g, f.model, NULL, &o, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "tq4"));
    assert_non_null(strstr(e.msg, "16"));
    o.v_type = NN_KV_Q8_0;
    assert_int_equal(engine_open(&g, f.model, NULL, &o, &e), 0);
    engine_free(g);
    fixture_close(&f);
}

static size_t page_bytes(engine_options o) {
    engine_memory m;
    err           e;
    o.cpu = cpu_detect();
    if (engine_measure(&m, demo.model, &o, &e) < 0) fail_msg("%s", e.msg);
    return m.page_bytes;
}

/* Heads of 64, as the 1.24 B shape has them: how many tokens fit into the bytes of f16, counted by the engine. */
static void test_density(void **state) {
    engine_options o = { .n_ctx = 1024, .k_type = NN_KV_F16, .v_type = NN_KV_F16 };
    const double   f16 = (double)page_bytes(o);
    (void)state;
    o.k_type = o.v_type = NN_KV_TQ4;
    assert_true(f16 / (double)page_bytes(o) >= 3.5);
    o.k_type = o.v_type = NN_KV_TQ3;
    assert_true(f16 / (double)page_bytes(o) >= 4.5);
}

/* The first choice at which the context fits into the cache, and the last one where none does. */
static void test_auto(void **state) {
    int                     n;
    const engine_kv_choice *c = engine_kv_choices(&n);
    (void)state;
    for (int i = 0; i < n; i++) {
        engine_options o = { .n_ctx = 1024, .k_type = c[i].k, .v_type = c[i].v, .precise_layers = NN_KV_PRECISE_USUAL };
        const size_t   page = page_bytes(o);
        o.kv_auto = true;
        o.cache_bytes = page * 34;
        assert_int_equal(page_bytes(o), page);
        if (i == n - 1) {
            o.cache_bytes = page * 8;
            assert_int_equal(page_bytes(o), page);
        }
    }
}

static int setup(void **state) {
    err e;
    (void)state;
    if (model_file_open(&demo.file, TEST_DEMO, &e) < 0 ||
        nn_model_open(&demo.model, demo.file, models_list, &(nn_model_options){ 0 }, &e) < 0)
        fail_msg("%s", e.msg);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fixture_close(&demo);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type), cmocka_unit_test(test_foreign_types), cmocka_unit_test(test_layers),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_density),       cmocka_unit_test(test_auto),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
