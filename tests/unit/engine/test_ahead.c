/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on a device that begins steps before the tokens in front are picked: a wrapped CPU (tests/backend/wrap.h) that
 * guesses, sometimes wrongly, and sometimes has to leave a pick. Answers are those of a CPU that does none of this, whoever
 * else is there: requests with guides, penalties and log-probabilities, which nothing goes ahead of; requests that are
 * cancelled or paused in the middle, sequences that have to give way, steps that fail.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REQUESTS = 20, LONGEST = 40, PAGE = 16 };

typedef struct prompt {
    int32_t tokens[LONGEST];
    int     n, answer;
} prompt;

typedef struct world {
    fixture f;
    prompt  prompts[REQUESTS];
    answer  solo[REQUESTS];
    wrap    w;
} world;

/* A request's events, and what is done when some of them come. */
typedef struct heard {
    answer   a;
    engine  *g;
    uint64_t id;
    int      ends, cancel_at, pause_at; /* tokens; 0: never */
    bool     paused;
} heard;

static void hear(void *ctx, const engine_event *ev) {
    heard *h = ctx;
    answer_collect(&h->a, ev);
    h->ends += ev->kind == ENGINE_DONE || ev->kind == ENGINE_ERROR;
    if (ev->kind != ENGINE_TOKEN) return;
    if (h->cancel_at && h->a.n == h->cancel_at) engine_cancel(h->g, h->id);
    if (!h->pause_at || h->a.n != h->pause_at) return;
    h->paused = true;
    engine_pause(h->g, h->id);
    engine_resume(h->g, h->id);
}

/* plain: all of a kind that steps go ahead of. */
static engine_request request_of(const prompt *p, int i, bool plain, heard *h) {
    engine_request r = {
        .tokens = p->tokens, .n_tokens = (size_t)p->n, .max_tokens = p->answer, .on_event = hear, .ctx = h
    };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)i;
    r.sampling.temperature = i % 2 ? 0.8f : 0.0f;
    r.sampling.top_k = 20;
    r.sampling.top_p = i % 4 == 1 ? 0.9f : 1.0f;
    if (plain) return r;
    r.want_logprob = i % 5 == 1;
    r.sampling.repeat_penalty = i % 7 == 2 ? 1.3f : 1.0f;
    r.priority = i % 6 == 0;
    return r;
}

static uint64_t submit(engine *g, engine_request *r, int i, bool plain) {
    if (!plain && i % 8 == 3) r->guide = test_guide((uint64_t)i, engine_vocab(g), 0);
    return engine_submit_ok(g, r);
}

/* What each is answered alone, on a CPU where nothing goes ahead. */
static void answer_alone(world *o, bool plain) {
    engine *g = fixture_engine(
        &o->f, (engine_options){ .device = "cpu", .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < REQUESTS; i++) {
        heard          h = { .g = g };
        engine_request r = request_of(&o->prompts[i], i, plain, &h);
        submit(g, &r, i, plain);
        engine_wait_idle(g);
        assert_true(h.ends == 1 && !h.a.failed && h.a.n == o->prompts[i].answer);
        o->solo[i] = h.a;
    }
    engine_free(g);
}

static world *open_world(const char *model) {
    world   *o = calloc(1, sizeof *o);
    uint64_t seed = 5;
    assert_non_null(o);
    fixture_open(&o->f, model);
    for (int i = 0; i < REQUESTS; i++) {
        prompt *p = &o->prompts[i];
        p->n = 1 + (int)(test_random(&seed) % LONGEST);
        p->answer = 8 + (int)(test_random(&seed) % 24);
        for (int k = 0; k < p->n; k++)
            p->tokens[k] = (int32_t)(test_random(&seed) % (uint64_t)o->f.model->dims->n_vocab);
    }
    return o;
}

static void wrap_begin(world *o, double misses, double leaves) {
    err e;
    if (wrap_init(&o->w, "cpu", 5, &e) < 0) fail_msg("%s", e.msg);
    wrap_ahead(&o->w, misses, leaves);
}

static void wrap_end(world *o) {
    if (wrap_misuse(&o->w)) fail_msg("%s", wrap_misuse(&o->w));
    wrap_deinit(&o->w);
}

static void close_world(world *o) {
    fixture_close(&o->f);
    free(o);
}

static engine *open_engine(const world *o, int seqs, int pages) {
    return fixture_engine(&o->f, (engine_options){ .n_threads = 1,
                                                   .late = true,
                                                   .max_seqs = seqs,
                                                   .page_tokens = PAGE,
                                                   .step_tokens = 64,
                                                   .cache_bytes = fixture_page_bytes(&o->f, PAGE) * (size_t)pages,
                                                   .backend = wrap_backend });
}

static void assert_no_page_lost(engine *g) {
    engine_stats st;
    engine_stat(g, &st);
    assert_int_equal(st.running + st.waiting, 0);
    assert_true(st.pages_unused + st.pages_cached >= st.pages_total);
}

/* All of them at once, twice: the second time from the cache. */
static void check_all(world *o, engine *g, bool plain, const char *what) {
    static heard h[REQUESTS];
    for (int round = 0; round < 2; round++) {
        memset(h, 0, sizeof h);
        for (int i = 0; i < REQUESTS; i++) {
            h[i].g = g;
            engine_request r = request_of(&o->prompts[i], i, plain, &h[i]);
            h[i].id = submit(g, &r, i, plain);
        }
        engine_wait_idle(g);
        for (int i = 0; i < REQUESTS; i++) {
            if (h[i].ends != 1 || h[i].a.failed) fail_msg("%s: request %d failed: %s", what, i, h[i].a.error.msg);
            if (!answer_same(&h[i].a, &o->solo[i])) fail_msg("%s: request %d is answered otherwise", what, i);
        }
    }
    assert_no_page_lost(g);
}

/* Guesses that are always right, sometimes wrong, picks that are left; steps that are carried out late or at once; few
 * pages; in the end requests of all kinds. */
static void check_ways(const char *model, bool plain, int first, int last) {
    world *o = open_world(model);
    answer_alone(o, plain);
    for (int way = first; way <= last; way++) {
        wrap_begin(o, way % 2 ? 0.02 : 0, way % 3 == 1 ? 0.02 : 0);
        wrap_delay(&o->w, way < 3);
        engine *g = open_engine(o, way == 2 ? 3 : 8, way == 3 ? 14 : 400);
        check_all(o, g, plain, model);
        engine_free(g);
        /* 26 to 230 of them; fewer on a busy machine, where beginnings are computed between steps. */
        if (plain && o->w.n_ahead == 0) fail_msg("%s: no step went ahead", model);
        if (way % 2 && o->w.n_missed == 0) fail_msg("%s: no guess was wrong", model);
        wrap_end(o);
    }
    close_world(o);
}

static void test_same(void **state) {
    (void)state;
    check_ways("llama", true, 0, 3);
    check_ways("llama", false, 4, 5);
    check_ways("gemma3_text", true, 1, 1);
    check_ways("deepseek_v3", true, 3, 3);
}

/* A single sequence goes ahead in all steps but those of its beginning and its end. */
static void test_every_step(void **state) {
    (void)state;
    world       *o = open_world("llama");
    engine_stats st;
    answer_alone(o, true);
    wrap_begin(o, 0, 0);
    engine        *g = open_engine(o, 1, 400);
    heard          h = { .g = g };
    engine_request r = request_of(&o->prompts[0], 0, true, &h);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    engine_stat(g, &st);
    assert_true(answer_same(&h.a, &o->solo[0]));
    assert_int_equal(o->w.n_ahead, o->prompts[0].answer - 2);
    assert_int_equal(st.steps, o->prompts[0].answer + (o->prompts[0].n > 64));
    engine_free(g);
    wrap_end(o);
    close_world(o);
}

/* What was cancelled ends early with the beginning of its answer, what was paused goes on as if nothing had been. */
static void test_orders(void **state) {
    (void)state;
    static heard h[REQUESTS];
    world       *o = open_world("llama");
    answer_alone(o, true);
    wrap_begin(o, 0.02, 0.02);
    for (int round = 0; round < 4; round++) {
        wrap_delay(&o->w, round % 2);
        engine *g = open_engine(o, 6, 400);
        memset(h, 0, sizeof h);
        for (int i = 0; i < REQUESTS; i++) {
            h[i].g = g;
            h[i].id = (uint64_t)i + 1; /* ids rise from 1 */
            h[i].cancel_at = i % 3 == 0 ? 2 + i % 5 : 0;
            h[i].pause_at = i % 3 == 1 ? 3 + i % 4 : 0;
            engine_request r = request_of(&o->prompts[i], i, true, &h[i]);
            assert_int_equal(engine_submit_ok(g, &r), h[i].id);
        }
        engine_wait_idle(g);
        for (int i = 0; i < REQUESTS; i++) {
            bool cancelled = h[i].a.finish == ENGINE_CANCELLED;
            if (h[i].ends != 1 || h[i].a.failed) fail_msg("request %d failed: %s", i, h[i].a.error.msg);
            if (cancelled && h[i].cancel_at == 0) fail_msg("request %d was cancelled", i);
            if (h[i].a.n < (cancelled ? h[i].cancel_at : o->solo[i].n)) fail_msg("request %d is too short", i);
            if (memcmp(h[i].a.tokens, o->solo[i].tokens, (size_t)h[i].a.n * sizeof(int32_t)) != 0)
                fail_msg("request %d is answered otherwise", i);
        }
        assert_no_page_lost(g);
        engine_free(g);
    }
    wrap_end(o);
    close_world(o);
}

/* Steps fail when they are started or waited for, in front and ahead. Requests end with the reason or are right. */
static void test_faults(void **state) {
    (void)state;
    static heard h[REQUESTS];
    world       *o = open_world("llama");
    int          failed = 0;
    answer_alone(o, true);
    wrap_begin(o, 0.02, 0.02);
    engine *g = open_engine(o, 6, 40);
    for (int round = 0; round < 10; round++) {
        wrap_delay(&o->w, round % 2);
        wrap_fail_share(&o->w, WRAP_SUBMIT, 0.03, ERR_IO);
        wrap_fail_share(&o->w, WRAP_WAIT, 0.03, ERR_IO);
        memset(h, 0, sizeof h);
        for (int i = 0; i < REQUESTS; i++) {
            h[i].g = g;
            engine_request r = request_of(&o->prompts[i], i, true, &h[i]);
            engine_submit_ok(g, &r);
        }
        engine_wait_idle(g);
        for (int i = 0; i < REQUESTS; i++) {
            assert_int_equal(h[i].ends, 1);
            if (h[i].a.failed && !strstr(h[i].a.error.msg, "injected")) fail_msg("%s", h[i].a.error.msg);
            if (!h[i].a.failed && !answer_same(&h[i].a, &o->solo[i])) fail_msg("request %d is answered otherwise", i);
            failed += h[i].a.failed;
        }
    }
    assert_true(failed > 0);
    wrap_calm(&o->w);
    check_all(o, g, true, "after the failures");
    engine_free(g);
    wrap_end(o);
    close_world(o);
}

static const char *const models[] = { "llama", "gemma3_text", "deepseek_v3" };
enum { MODELS = sizeof models / sizeof models[0] };

static void run_at(world *o, engine *g, heard *h, bool logprobs) {
    memset(h, 0, REQUESTS * sizeof *h);
    for (int i = 0; i < REQUESTS; i++) {
        h[i].g = g;
        engine_request r = request_of(&o->prompts[i], i, true, &h[i]);
        r.want_logprob = logprobs;
        h[i].id = engine_submit_ok(g, &r);
    }
    engine_wait_idle(g);
}

/* On the device that HEARTH_TEST_DEVICE names: nothing goes ahead of requests that want log-probabilities, so these say
 * what the others are to be answered, alone, together and with few pages. */
static void test_device(void **state) {
    (void)state;
    static heard want[REQUESTS], got[REQUESTS];
    for (int m = 0; m < MODELS; m++) {
        world *o = open_world(models[m]);
        for (int way = 0; way < 4; way++) {
            engine *g = fixture_engine(
                &o->f, (engine_options){ .n_threads = 1,
                                         .max_seqs = way == 1 ? 1 : 8,
                                         .page_tokens = PAGE,
                                         .cache_bytes = fixture_page_bytes(&o->f, PAGE) * (way == 3 ? 14u : 400u) });
            run_at(o, g, way ? got : want, way == 0);
            for (int i = 0; i < REQUESTS && way > 0; i++) {
                assert_true(got[i].ends == 1 && !got[i].a.failed && got[i].a.n == want[i].a.n);
                if (memcmp(got[i].a.tokens, want[i].a.tokens, (size_t)want[i].a.n * sizeof(int32_t)) != 0)
                    fail_msg("%s, way %d: request %d is answered otherwise", models[m], way, i);
            }
            assert_no_page_lost(g);
            engine_free(g);
        }
        close_world(o);
    }
}

int main(void) {
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),   cmocka_unit_test(test_every_step), cmocka_unit_test(test_orders),
        cmocka_unit_test(test_faults), cmocka_unit_test(test_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
