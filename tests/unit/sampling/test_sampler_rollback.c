/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking back is the identity. Two samplers with the same random parameters (every stage, penalties, DRY, both versions
 * of mirostat, bias) see the same random rows; one of them goes k tokens ahead on rows of its own and back before it
 * continues. Every pick, every log-probability and all that a sampler remembers stays equal, bit for bit, whether the
 * window of the history has slid or not. And picking alone changes nothing: mirostat learns when a token is accepted.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "sampling/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 300, N_TOP = 5, ROUNDS = TEST_SANITIZED ? 40 : 150, TEXT = 120 };

static uint64_t below(uint64_t *seed, uint64_t n) { return test_random(seed) % n; }
static bool     one_in(uint64_t *seed, uint64_t n) { return below(seed, n) == 0; }
static float    between(uint64_t *seed, double low, double high) {
       return (float)(low + (high - low) * (double)(test_random(seed) >> 11) * 0x1p-53);
}

static void shuffle_order(sampling_params *p, uint64_t *seed) {
    for (int i = SAMPLING_STAGE_COUNT - 1; i > 0; i--) {
        int            j = (int)below(seed, (uint64_t)i + 1);
        sampling_stage t = p->order[i];
        p->order[i] = p->order[j];
        p->order[j] = t;
    }
    if (one_in(seed, 4)) p->n_order = (int)below(seed, SAMPLING_STAGE_COUNT + 1);
}

static void random_params(sampling_params *p, sampling_bias *bias, int32_t *breakers, uint64_t *seed) {
    sampling_params_default(p);
    p->seed = test_random(seed);
    p->temperature = one_in(seed, 6) ? 0 : between(seed, 0.1, 2);
    if (one_in(seed, 3)) p->mirostat = 1 + (int)below(seed, 2);
    p->mirostat_tau = between(seed, 0.5, 6);
    p->mirostat_eta = between(seed, 0.01, 1);
    if (one_in(seed, 2)) p->top_k = 1 + (int)below(seed, 80);
    if (one_in(seed, 2)) p->top_p = between(seed, 0.3, 1);
    if (one_in(seed, 3)) p->min_p = between(seed, 0, 0.2);
    if (one_in(seed, 4)) p->typical_p = between(seed, 0.3, 1);
    if (one_in(seed, 4)) p->top_n_sigma = between(seed, 0.5, 3);
    if (one_in(seed, 4)) p->xtc_probability = between(seed, 0, 1);
    if (one_in(seed, 4)) p->dynatemp_range = between(seed, 0, 1);
    if (one_in(seed, 2)) p->repeat_penalty = between(seed, 0.8, 2);
    if (one_in(seed, 3)) p->frequency_penalty = between(seed, -0.5, 1);
    if (one_in(seed, 3)) p->presence_penalty = between(seed, -0.5, 1);
    p->repeat_last_n = one_in(seed, 3) ? -1 : (int)below(seed, 100);
    if (one_in(seed, 2)) p->dry_multiplier = between(seed, 0.1, 2);
    p->dry_allowed_length = 1 + (int)below(seed, 3);
    if (one_in(seed, 2)) p->dry_last_n = (int)below(seed, 100);
    if (one_in(seed, 2)) shuffle_order(p, seed);
    p->n_bias = below(seed, 5);
    for (size_t i = 0; i < p->n_bias; i++)
        bias[i] = (sampling_bias){ (int32_t)below(seed, VOCAB), one_in(seed, 4) ? -INFINITY : between(seed, -3, 3) };
    p->n_dry_breakers = below(seed, 3);
    for (size_t i = 0; i < p->n_dry_breakers; i++) breakers[i] = (int32_t)below(seed, VOCAB);
    p->bias = bias;
    p->dry_breakers = breakers;
}

/* A few tokens are likely, so that texts repeat themselves and DRY has something to do. */
static void random_row(float *row, uint64_t seed) {
    for (int i = 0; i < VOCAB; i++) row[i] = between(&seed, -4, 2) + (i % 40 == 0 ? 3.0f : 0.0f);
}

typedef struct pair {
    sampler       *straight, *back;
    sampling_work *w;
} pair;

static sampling_result pick(const sampler *s, sampling_work *w, uint64_t row, uint64_t position,
                            sampling_logprob top[N_TOP]) {
    float            logits[VOCAB];
    sampling_request r = { .logits = logits, .position = position, .want_logprob = true, .n_top = N_TOP, .top = top };
    sampling_result  out;
    random_row(logits, row);
    assert_int_equal(sampler_pick(s, w, &r, &out, NULL), 0);
    return out;
}

static void assert_same_memory(const sampler *a, const sampler *b) {
    const int32_t *x, *y;
    size_t         n = sampler_recent(a, -1, &x);
    assert_int_equal(n, sampler_recent(b, -1, &y));
    assert_memory_equal(x, y, n * sizeof *x);
    assert_memory_equal(&a->mu, &b->mu, sizeof a->mu);
    assert_int_equal(a->n_accepted, b->n_accepted);
    assert_int_equal(a->max_history, b->max_history);
}

/* k tokens ahead, picked or forced, and back again in one or more calls. */
static void there_and_back(pair *x, size_t k, uint64_t position, uint64_t *seed) {
    sampling_logprob top[N_TOP];
    for (size_t i = 0; i < k; i++) {
        sampling_result r = pick(x->back, x->w, test_random(seed), position + i, top);
        if (one_in(seed, 5))
            sampler_accept(x->back, (int32_t)below(seed, VOCAB));
        else
            sampler_accept_pick(x->back, &r);
    }
    while (k > 0) {
        size_t n = one_in(seed, 2) ? k : 1 + below(seed, k);
        assert_true(sampler_rollback(x->back, n));
        k -= n;
    }
}

static void test_identity(void **state) {
    uint64_t seed = 31;
    int      slid = 0, mirostats = 0;
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        sampling_params p;
        sampling_bias   bias[5];
        int32_t         breakers[3];
        pair            x;
        size_t          max_history = 1 + below(&seed, one_in(&seed, 2) ? 20 : 200);
        random_params(&p, bias, breakers, &seed);
        assert_int_equal(sampler_open(&x.straight, &p, max_history, NULL), 0);
        assert_int_equal(sampler_open(&x.back, &p, max_history, NULL), 0);
        assert_int_equal(sampling_work_open(&x.w, VOCAB, NULL), 0);
        for (uint64_t i = below(&seed, 3 * max_history + 500), token; i > 0; i--) { /* the prompt */
            token = below(&seed, 3) ? below(&seed, VOCAB) : below(&seed, 4);
            sampler_accept(x.straight, (int32_t)token);
            sampler_accept(x.back, (int32_t)token);
        }
        for (uint64_t at = 0; at < TEXT; at++) {
            sampling_logprob want_top[N_TOP], got_top[N_TOP];
            uint64_t         row = test_random(&seed);
            if (one_in(&seed, 3)) there_and_back(&x, 1 + below(&seed, 64), at, &seed);
            assert_same_memory(x.straight, x.back);
            sampling_result want = pick(x.straight, x.w, row, at, want_top);
            sampling_result got = pick(x.back, x.w, row, at, got_top);
            assert_int_equal(got.token, want.token);
            assert_memory_equal(&got.logprob, &want.logprob, sizeof got.logprob);
            assert_memory_equal(&got.mu_step, &want.mu_step, sizeof got.mu_step);
            assert_memory_equal(got_top, want_top, sizeof got_top);
            assert_same_memory(x.straight, x.back);
            sampler_accept_pick(x.straight, &want);
            sampler_accept_pick(x.back, &got);
        }
        slid += x.straight->n_accepted > max_history;
        mirostats += x.straight->mu != 2.0 * (double)p.mirostat_tau;
        sampler_free(x.straight);
        sampler_free(x.back);
        sampling_work_free(x.w);
    }
    assert_true(slid > ROUNDS / 4 && mirostats > ROUNDS / 8); /* the cases that this is about */
}

/* The bound: SAMPLER_MAX_ROLLBACK behind the furthest place, and not behind the beginning. */
static void test_bound(void **state) {
    sampling_params p;
    sampler        *s;
    const int32_t  *tokens;
    (void)state;
    sampling_params_default(&p);
    assert_int_equal(sampler_open(&s, &p, 3, NULL), 0);
    assert_true(sampler_rollback(s, 0));
    assert_false(sampler_rollback(s, 1));
    sampler_accept(s, 7);
    sampler_accept(s, 8);
    assert_false(sampler_rollback(s, 3));
    assert_int_equal(sampler_recent(s, -1, &tokens), 2);
    assert_true(sampler_rollback(s, 2));
    assert_int_equal(sampler_recent(s, -1, &tokens), 0);
    for (int i = 0; i < 5000; i++) sampler_accept(s, i);
    assert_false(sampler_rollback(s, SAMPLER_MAX_ROLLBACK + 1));
    assert_true(sampler_rollback(s, 100));
    assert_false(sampler_rollback(s, SAMPLER_MAX_ROLLBACK - 99)); /* 100 of them were used up */
    assert_true(sampler_rollback(s, SAMPLER_MAX_ROLLBACK - 100));
    assert_int_equal(sampler_recent(s, -1, &tokens), 3); /* the window is whole again */
    for (int i = 0; i < 3; i++) assert_int_equal(tokens[i], 5000 - SAMPLER_MAX_ROLLBACK - 3 + i);
    sampler_free(s);
}

/* In the engine what mirostat learns from a token reaches the next one: with nothing to learn the answer is another. */
static void test_engine_learns(void **state) {
    static const int32_t tokens[] = { 5, 60, 7, 80, 9 };
    fixture              f;
    answer               a[3] = { 0 };
    (void)state;
    fixture_open(&f, "llama");
    engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    for (int i = 0; i < 3; i++) {
        engine_request r = { .tokens = tokens,
                             .n_tokens = 5,
                             .max_tokens = 40,
                             .want_logprob = true,
                             .on_event = answer_collect,
                             .ctx = &a[i] };
        sampling_params_default(&r.sampling);
        r.sampling.mirostat = 2;
        r.sampling.mirostat_tau = 2;
        r.sampling.mirostat_eta = i == 2 ? 0.0f : 0.5f;
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        assert_true(a[i].over && !a[i].failed && a[i].n == 40);
    }
    assert_true(answer_same(&a[0], &a[1]));
    assert_false(answer_same(&a[0], &a[2]));
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_identity), cmocka_unit_test(test_bound),
                                        cmocka_unit_test(test_engine_learns) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
