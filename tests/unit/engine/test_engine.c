/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on the reference models: an answer depends on its request alone. Every request is run by itself on one
 * thread without a cache; then all together, with another number of threads, in other pieces, with the cache, and with
 * so few pages that sequences have to give way. Tokens and log-probabilities must be equal bit for bit.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS_MAX = 32, LONGEST = 70, ANSWER = 12, CONTEXT = 128 };

static int n_requests = REQUESTS_MAX; /* fewer in the small form (test_small) */

typedef struct prompt {
    int32_t tokens[LONGEST];
    int     n;
} prompt;

/* Prompts that share beginnings of many lengths, as conversations do. */
static void make_prompts(prompt *p, int n_vocab) {
    uint64_t seed = 11;
    for (int i = 0; i < n_requests; i++) {
        p[i].n = 1 + (int)(test_random(&seed) % LONGEST);
        int shared = i ? (int)(test_random(&seed) % (uint64_t)p[i].n) : 0,
            from = i ? (int)(test_random(&seed) % (uint64_t)i) : 0;
        for (int k = 0; k < p[i].n; k++) {
            bool copy = k < shared && k < p[from].n;
            p[i].tokens[k] = copy ? p[from].tokens[k] : (int32_t)(test_random(&seed) % (uint64_t)n_vocab);
        }
    }
}

static engine_request request_of(const prompt *p, int i, answer *a) {
    engine_request r = { .tokens = p->tokens,
                         .n_tokens = (size_t)p->n,
                         .max_tokens = ANSWER,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)i;
    r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f; /* greedy and seeded sampling */
    r.sampling.top_k = i % 3 == 1 ? 20 : 0;
    r.sampling.repeat_penalty = i % 4 == 1 ? 1.2f : 1.0f;
    r.priority = i % 5 == 0;
    return r;
}

/* Every fourth request is guided; of those every other one ends early. */
static bool is_guided(int i) { return i % 4 == 2; }
static int  guide_length(int i) { return i % 8 == 2 ? 7 : 0; }

static void submit(engine *g, engine_request *r, int i) {
    if (is_guided(i)) r->guide = test_guide((uint64_t)i, engine_vocab(g), guide_length(i));
    engine_submit_ok(g, r);
}

static void assert_same(const answer *a, const answer *b, const char *what, int i) {
    if (!answer_same(a, b) || a->finish != b->finish) fail_msg("request %d differs: %s", i, what);
}

/* After everything ended a page is unused or cached. */
static void assert_no_page_lost(engine *g, bool few) {
    engine_stats st;
    engine_wait_idle(g);
    engine_stat(g, &st);
    assert_int_equal(st.running + st.waiting, 0);
    assert_true(st.pages_unused + st.pages_cached >= st.pages_total);
    if (few && !test_small()) assert_true(st.preemptions > 0); /* with few requests that depends on who ends first */
}

static void check_model(const char *name) {
    static answer solo[REQUESTS_MAX], got[REQUESTS_MAX];
    static prompt prompts[REQUESTS_MAX];
    fixture       f;
    fixture_open(&f, name);
    make_prompts(prompts, f.model->dims->n_vocab);

    memset(solo, 0, sizeof solo);
    engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < n_requests; i++) {
        engine_request r = request_of(&prompts[i], i, &solo[i]);
        submit(g, &r, i);
        engine_wait_idle(g);
        bool early = is_guided(i) && guide_length(i);
        assert_true(solo[i].over && !solo[i].failed && solo[i].n == (early ? guide_length(i) : ANSWER));
        assert_int_equal(solo[i].finish, early ? ENGINE_STOP_TOKEN : ENGINE_LENGTH);
        if (is_guided(i)) assert_true(test_guide_kept((uint64_t)i, guide_length(i), &solo[i]));
        assert_int_equal(solo[i].cached, 0);
    }
    engine_free(g);

    /* {threads, sequences at once, tokens a step, pages' bytes, no cache} */
    const struct {
        const char    *what;
        engine_options o;
        int            few_pages;
    } ways[] = {
        { "all together", { .n_threads = 2, .max_seqs = 16 }, 0 },
        { "without the cache", { .n_threads = 1, .max_seqs = 8, .no_prefix_cache = true }, 0 },
        { "small pieces", { .n_threads = 2, .max_seqs = 5, .step_tokens = 7 }, 0 },
        { "told late", { .n_threads = 2, .max_seqs = 12, .late = true }, 0 },
        { "pages of 16", { .n_threads = 1, .max_seqs = 16, .page_tokens = 16, .step_tokens = 64 }, 0 },
        { "few pages", { .n_threads = 2, .max_seqs = 8, .page_tokens = 16, .step_tokens = 64, .late = true }, 14 },
    };
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        engine_options o = ways[k].o;
        o.cache_bytes = fixture_page_bytes(&f, o.page_tokens ? o.page_tokens : 32) *
                        (size_t)(ways[k].few_pages ? ways[k].few_pages : 5000);
        g = fixture_engine(&f, o);
        for (int round = 0; round < 2; round++) { /* the second time everything may come from the cache */
            memset(got, 0, sizeof got);
            for (int i = 0; i < n_requests; i++) {
                engine_request r = request_of(&prompts[i], i, &got[i]);
                submit(g, &r, i);
            }
            engine_wait_idle(g);
            for (int i = 0; i < n_requests; i++) {
                assert_true(got[i].over && !got[i].failed);
                assert_same(&solo[i], &got[i], ways[k].what, i);
                if (round == 1 && !o.no_prefix_cache && !ways[k].few_pages && prompts[i].n > 1 &&
                    got[i].cached != prompts[i].n - 1)
                    fail_msg("%s: %s: request %d: %d of %d tokens cached", name, ways[k].what, i, got[i].cached,
                             prompts[i].n);
            }
        }
        assert_no_page_lost(g, ways[k].few_pages != 0);
        engine_free(g);
    }
    assert_int_equal(test_guide_misuse() + test_guides_alive(), 0);
    fixture_close(&f);
}

static void test_transformer(void **state) {
    (void)state;
    check_model("llama");
}
static void test_sliding_window(void **state) {
    (void)state;
    check_model("gemma3_text");
}
static void test_latent(void **state) {
    (void)state;
    check_model("deepseek_v3");
}
static void test_hybrid(void **state) {
    (void)state;
    check_model("qwen3_next");
}

/* Several choices share the prompt: it is evaluated once, and choice i equals a request with seed + i. */
typedef struct choices {
    answer a[4];
} choices;
static void collect_choice(void *ctx, const engine_event *ev) { answer_collect(&((choices *)ctx)->a[ev->choice], ev); }

static void test_choices(void **state) {
    fixture       f;
    static prompt prompts[REQUESTS_MAX];
    choices       c = { 0 };
    engine_stats  st;
    (void)state;
    fixture_open(&f, "llama");
    make_prompts(prompts, f.model->dims->n_vocab);
    prompts[0].n = LONGEST;
    for (int k = 0; k < LONGEST; k++) prompts[0].tokens[k] = k % 50;
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    engine_request r = request_of(&prompts[0], 1, NULL);
    r.n_choices = 4;
    r.on_event = collect_choice;
    r.ctx = &c;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    engine_stat(g, &st);
    /* The prompt once, the replayed token of three choices, and the generated ones but the last. */
    assert_int_equal(st.tokens_evaluated, LONGEST + 3 + 4 * (ANSWER - 1));
    for (int i = 0; i < 4; i++) {
        answer         one = { 0 };
        engine_request alone = request_of(&prompts[0], 1, &one);
        alone.sampling.seed = 1 + (uint64_t)i;
        engine_submit_ok(g, &alone);
        engine_wait_idle(g);
        assert_same(&one, &c.a[i], "a choice", i);
    }
    engine_free(g);
    fixture_close(&f);
}

/* A growing conversation evaluates every token once, plus one per request. */
static void test_turns(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next" };
    (void)state;
    for (size_t m = 0; m < sizeof names / sizeof names[0]; m++) {
        fixture      f;
        int32_t      tokens[CONTEXT];
        int          n = 0;
        uint64_t     seed = 5, expected = 0;
        engine_stats st;
        fixture_open(&f, names[m]);
        engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
        for (int turn = 0; turn < 4; turn++) {
            answer a = { 0 };
            int    fresh = 9 + turn;
            for (int k = 0; k < fresh; k++)
                tokens[n++] = (int32_t)(test_random(&seed) % (uint64_t)f.model->dims->n_vocab);
            prompt p = { .n = n };
            memcpy(p.tokens, tokens, sizeof p.tokens < sizeof tokens ? sizeof p.tokens : sizeof tokens);
            engine_request r = request_of(&p, 0, &a);
            r.tokens = tokens;
            r.max_tokens = 5;
            engine_submit_ok(g, &r);
            engine_wait_idle(g);
            assert_int_equal(a.n, 5);
            memcpy(tokens + n, a.tokens, 5 * sizeof *tokens);
            /* The first 4 generated tokens were evaluated while generating; the last one comes with the next turn. */
            expected += (uint64_t)fresh + 4 + (turn ? 1 : 0);
            n += 5;
        }
        engine_stat(g, &st);
        assert_true(st.tokens_evaluated >= expected && st.tokens_evaluated <= expected + 4);
        engine_free(g);
        fixture_close(&f);
    }
}

typedef struct gate {
    pthread_mutex_t lock;
    pthread_cond_t  moved;
    int             tokens;
    bool            over;
    engine_finish   finish;
} gate;

static void count_tokens(void *ctx, const engine_event *ev) {
    gate *w = ctx;
    pthread_mutex_lock(&w->lock);
    w->tokens += ev->kind == ENGINE_TOKEN;
    if (ev->kind == ENGINE_DONE) {
        w->over = true;
        w->finish = ev->finish;
    }
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static void test_cancel_and_limits(void **state) {
    fixture f;
    gate    w = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };
    int32_t tokens[CONTEXT + 1] = { 0 };
    err     e;
    (void)state;
    fixture_open(&f, "llama");
    engine        *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
    uint64_t       id;
    engine_request r = { .tokens = tokens, .n_tokens = 3, .on_event = count_tokens, .ctx = &w };
    sampling_params_default(&r.sampling);
    assert_int_equal(engine_submit(g, &r, &id, &e), 0);
    pthread_mutex_lock(&w.lock);
    while (w.tokens < 3) pthread_cond_wait(&w.moved, &w.lock);
    pthread_mutex_unlock(&w.lock);
    engine_cancel(g, id);
    engine_wait_idle(g);
    assert_true(w.over);
    assert_true(w.finish == ENGINE_CANCELLED || w.tokens == CONTEXT - 3);
    /* A full context ends the answer. */
    w.over = false;
    w.tokens = 0;
    assert_int_equal(engine_submit(g, &r, &id, &e), 0);
    engine_wait_idle(g);
    assert_int_equal(w.finish, ENGINE_LENGTH);
    assert_int_equal(w.tokens, CONTEXT - 3);
    /* Too long, empty, out of the vocabulary: refused at once, with the numbers. */
    r.n_tokens = CONTEXT;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_CONTEXT);
    assert_non_null(strstr(e.msg, "128"));
    r.n_tokens = 0;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    r.n_tokens = 1;
    tokens[0] = 1 << 30;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_ARG);
    /* Freed while busy: the request still ends. */
    tokens[0] = 1;
    w.over = false;
    assert_int_equal(engine_submit(g, &r, &id, &e), 0);
    engine_free(g);
    assert_true(w.over);
    fixture_close(&f);
}

int main(void) {
    if (test_small()) {
        n_requests = 8;
        print_message("small: %d requests of %d; not asked: whether sequences had to give way\n", n_requests,
                      REQUESTS_MAX);
    }
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_latent),
        cmocka_unit_test(test_hybrid),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_cancel_and_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
