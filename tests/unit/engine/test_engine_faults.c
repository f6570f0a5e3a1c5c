/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine on a device that fails: a wrapped CPU (tests/backend/wrap.h) refuses random steps, moves and fetches while
 * eight requests at a time compute in a cache so small that pages travel between the device, host memory and the disk.
 * Every request ends once, with its answer, bit for bit as alone, or with the injected reason; what comes after the
 * failures equals solo runs, so nothing wrong was left in the cache.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/wrap.h"
#include "nn/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROMPTS = 24, LONGEST = 70, ANSWER = 6, AT_ONCE = 8, PAGE = 16 };

static const char *const models[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next" };
enum { MODELS = sizeof models / sizeof models[0] };

typedef struct prompt {
    int32_t tokens[LONGEST];
    int     n;
} prompt;

/* A request's events: the answer, and how often it ended. */
typedef struct heard {
    answer a;
    int    ends;
} heard;

static void hear(void *ctx, const engine_event *ev) {
    heard *h = ctx;
    answer_collect(&h->a, ev);
    h->ends += ev->kind == ENGINE_DONE || ev->kind == ENGINE_ERROR;
}

/* Prompts that share beginnings, and what each is answered alone, on a device that does not fail. */
typedef struct bench {
    fixture f;
    prompt  prompts[PROMPTS];
    answer  solo[PROMPTS];
    wrap    w;
    char   *dir;
} bench;

static engine_request request_of(const prompt *p, int i, heard *h) {
    engine_request r = { .tokens = p->tokens,
                         .n_tokens = (size_t)p->n,
                         .max_tokens = ANSWER,
                         .want_logprob = true,
                         .on_event = hear,
                         .ctx = h };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)i;
    r.sampling.temperature = i % 3 == 0 ? 0.0f : 0.9f;
    return r;
}

static void bench_open(bench *b, const char *name, uint64_t seed) {
    err e;
    memset(b, 0, sizeof *b);
    fixture_open(&b->f, name);
    for (int i = 0; i < PROMPTS; i++) {
        prompt *p = &b->prompts[i];
        p->n = 20 + (int)(test_random(&seed) % (LONGEST - 20));
        int from = i ? (int)(test_random(&seed) % (uint64_t)i) : 0, shared = i ? (int)(test_random(&seed) % 60) : 0;
        for (int k = 0; k < p->n; k++) {
            bool copy = k < shared && k < b->prompts[from].n;
            p->tokens[k] =
                copy ? b->prompts[from].tokens[k] : (int32_t)(test_random(&seed) % (uint64_t)b->f.model->dims->n_vocab);
        }
    }
    engine *g = fixture_engine(&b->f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int i = 0; i < PROMPTS; i++) {
        heard          h = { 0 };
        engine_request r = request_of(&b->prompts[i], i, &h);
        engine_submit_ok(g, &r);
        engine_wait_idle(g);
        assert_true(h.ends == 1 && !h.a.failed);
        b->solo[i] = h.a;
    }
    engine_free(g);
    b->dir = test_temp_dir();
    if (wrap_init(&b->w, "cpu", seed, &e) < 0) fail_msg("%s", e.msg);
}

static void bench_close(bench *b) {
    if (wrap_misuse(&b->w)) fail_msg("%s", wrap_misuse(&b->w));
    wrap_deinit(&b->w);
    test_temp_dir_remove(b->dir);
    fixture_close(&b->f);
}

/* tiers: what the few pages cannot hold goes to host memory, and from there to the disk. */
static engine_options options_of(const bench *b, bool tiers) {
    size_t page = fixture_page_bytes(&b->f, PAGE), slot = 0;
    for (int i = 0; i < b->f.model->dims->n_layer; i++)
        slot += nn_state_fixed_floats(&b->f.model->state[i]) * sizeof(float);
    return (engine_options){ .n_threads = 1,
                             .late = tiers,
                             .max_seqs = AT_ONCE,
                             .page_tokens = PAGE,
                             .step_tokens = 48,
                             .cache_bytes = 24 * page + 10 * slot,
                             .host_cache_bytes = tiers ? 8 * page + 6 * slot : 0,
                             .disk_cache_dir = tiers ? b->dir : NULL,
                             .backend = wrap_backend };
}

/* Every one ended once: with the right answer, or with the injected reason. Returns how many failed. */
static int judge(const bench *b, const heard *h, const int *which, int n, const char *when) {
    int failed = 0;
    for (int i = 0; i < n; i++) {
        if (h[i].ends != 1) fail_msg("%s: a request ended %d times", when, h[i].ends);
        if (h[i].a.failed && (h[i].a.error.code == 0 || !strstr(h[i].a.error.msg, "injected")))
            fail_msg("%s: a request failed with \"%s\"", when, h[i].a.error.msg);
        if (!h[i].a.failed && (!answer_same(&h[i].a, &b->solo[which[i]]) || h[i].a.finish != b->solo[which[i]].finish))
            fail_msg("%s: request %d is answered otherwise than alone (%d tokens from the cache)", when, which[i],
                     h[i].a.cached);
        failed += h[i].a.failed;
    }
    return failed;
}

/* Eight requests at a time. */
static int load(bench *b, engine *g, uint64_t *seed, const char *when) {
    heard h[AT_ONCE] = { 0 };
    int   which[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++) {
        which[i] = (int)(test_random(seed) % PROMPTS);
        engine_request r = request_of(&b->prompts[which[i]], which[i], &h[i]);
        engine_submit_ok(g, &r);
    }
    engine_wait_idle(g);
    return judge(b, h, which, AT_ONCE, when);
}

/* Everything once more, without failures: as alone, and no page is lost. */
static void recover(bench *b, engine *g) {
    static heard h[PROMPTS];
    int          which[PROMPTS];
    engine_stats st;
    wrap_calm(&b->w);
    for (int round = 0; round < 2; round++) {
        memset(h, 0, sizeof h);
        for (int i = 0; i < PROMPTS; i++) {
            which[i] = i;
            engine_request r = request_of(&b->prompts[i], i, &h[i]);
            engine_submit_ok(g, &r);
        }
        engine_wait_idle(g);
        if (judge(b, h, which, PROMPTS, "after the failures") != 0) fail_msg("a request failed without a failure");
    }
    engine_stat(g, &st);
    assert_int_equal(st.running + st.waiting, 0);
    assert_true(st.pages_unused + st.pages_cached >= st.pages_total);
}

typedef struct faults {
    double submit, wait, fetch, move;
    bool   tiers, late;
} faults;

static void set_faults(bench *b, const faults *f, int code) {
    wrap_fail_share(&b->w, WRAP_SUBMIT, f->submit, code);
    wrap_fail_share(&b->w, WRAP_WAIT, f->wait, code);
    wrap_fail_share(&b->w, WRAP_FETCH, f->fetch, code);
    wrap_fail_share(&b->w, WRAP_MOVE, f->move, code);
    wrap_fail_share(&b->w, WRAP_WAIT_MOVE, f->move, code);
}

/* Until this many calls have failed. */
static void run_faults(const char *model, const faults *f, uint64_t n, uint64_t seed) {
    bench       *b = malloc(sizeof *b);
    engine_stats st;
    int          failed = 0, rounds = 0;
    assert_non_null(b);
    bench_open(b, model, seed);
    wrap_delay(&b->w, f->late);
    engine *g = fixture_engine(&b->f, options_of(b, f->tiers));
    while (wrap_failures(&b->w) < n) {
        set_faults(b, f, rounds++ % 2 ? ERR_IO : ERR_NOMEM);
        failed += load(b, g, &seed, model);
        if (rounds > 20000) fail_msg("%s: only %llu failures", model, (unsigned long long)wrap_failures(&b->w));
    }
    engine_stat(g, &st);
    assert_int_equal(st.failed_steps, wrap_failed(&b->w, WRAP_SUBMIT) + wrap_failed(&b->w, WRAP_WAIT));
    if (f->submit > 0) assert_true(failed > 0);
    assert_true(st.tokens_cached > 0);
    if (f->tiers) assert_true(st.to_host > 0 && st.from_host + st.from_disk > 0);
    recover(b, g);
    engine_free(g);
    printf("%s: %llu failures in %d rounds, %d of %d requests ended with one\n", model,
           (unsigned long long)wrap_failures(&b->w), rounds, failed, rounds * AT_ONCE);
    bench_close(b);
    free(b);
}

/* Steps and fetches fail, pages travel. 1,000 in all. */
static void test_steps(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++)
        run_faults(models[i], &(faults){ .submit = 0.05, .wait = 0.05, .fetch = 0.02, .tiers = true, .late = i % 2 },
                   250, 100 + (uint64_t)i);
}

/* Copies within the device fail: a shared page that a sequence wants for itself. */
static void test_copies(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        run_faults(models[i], &(faults){ .move = 0.3, .late = i % 2 == 0 }, 60, 200 + (uint64_t)i);
    }
}

/* Everything fails. */
static void test_moves_between_tiers(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++)
        run_faults(models[i],
                   &(faults){ .submit = 0.03, .wait = 0.03, .fetch = 0.01, .move = 0.1, .tiers = true, .late = i % 2 },
                   250, 300 + (uint64_t)i);
}

/* The device goes away in the n-th call of each kind. */
static void lose(const char *model, wrap_call call, uint64_t nth, bool tiers, bool late) {
    bench *b = malloc(sizeof *b);
    heard  h[AT_ONCE] = { 0 };
    int    which[AT_ONCE], n_lost = 0;
    assert_non_null(b);
    bench_open(b, model, 31 * nth + (uint64_t)call);
    wrap_delay(&b->w, late);
    engine *g = fixture_engine(&b->f, options_of(b, tiers));
    for (uint64_t seed = nth; tiers && seed < nth + 3; seed++) (void)load(b, g, &(uint64_t){ seed }, "before the loss");
    wrap_fail_at(&b->w, call, nth, ERR_LOST);
    for (int round = 0; round < 40 && n_lost == 0; round++) {
        memset(h, 0, sizeof h);
        int n = 0;
        for (; n < AT_ONCE; n++) { /* those that come too late are refused */
            err      e = { 0 };
            uint64_t id;
            which[n] = (n + round * 5) % PROMPTS;
            engine_request r = request_of(&b->prompts[which[n]], which[n], &h[n]);
            int            rc = engine_submit(g, &r, &id, &e);
            if (rc == 0) continue;
            assert_int_equal(rc, ERR_LOST);
            break;
        }
        engine_wait_idle(g);
        n_lost += judge(b, h, which, n, "at the loss");
        for (int i = 0; i < n; i++) {
            if (h[i].a.failed) assert_int_equal(h[i].a.error.code, ERR_LOST);
        }
        n_lost += n < AT_ONCE;
    }
    assert_true(n_lost > 0);
    wrap_calm(&b->w);
    for (int i = 0; i < 3; i++) {
        heard          late_one = { 0 };
        engine_request r = request_of(&b->prompts[i], i, &late_one);
        uint64_t       id;
        err            e = { 0 };
        assert_int_equal(engine_submit(g, &r, &id, &e), ERR_LOST);
        assert_non_null(strstr(e.msg, "injected"));
        assert_int_equal(late_one.ends, 0);
    }
    engine_free(g);
    if (tiers) { /* what is on the disk is right: another engine goes on with it */
        err e;
        wrap_deinit(&b->w);
        if (wrap_init(&b->w, "cpu", 1, &e) < 0) fail_msg("%s", e.msg);
        g = fixture_engine(&b->f, options_of(b, true));
        recover(b, g);
        engine_free(g);
    }
    bench_close(b);
    free(b);
}

static void test_lost(void **state) {
    static const wrap_call calls[] = { WRAP_SUBMIT, WRAP_WAIT, WRAP_FETCH };
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (size_t k = 0; k < sizeof calls / sizeof calls[0]; k++)
            for (uint64_t nth = 1; nth <= 12; nth += 11) lose(models[i], calls[k], nth, true, (i + (int)k) % 2);
}

/* Nobody else runs, and the step itself went well: the engine must notice all the same. */
static void test_lost_with_the_last_row(void **state) {
    bench *b = malloc(sizeof *b);
    heard  h[2] = { 0 };
    err    e = { 0 };
    (void)state;
    assert_non_null(b);
    bench_open(b, "llama", 3);
    engine        *g = fixture_engine(&b->f, options_of(b, false));
    engine_request r = request_of(&b->prompts[0], 0, &h[0]);
    uint64_t       id;
    wrap_fail_at(&b->w, WRAP_FETCH, ANSWER, ERR_LOST);
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(h[0].ends == 1 && h[0].a.failed && h[0].a.n == ANSWER - 1);
    assert_int_equal(h[0].a.error.code, ERR_LOST);
    r.ctx = &h[1];
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_LOST);
    assert_int_equal(h[1].ends, 0);
    engine_free(g);
    bench_close(b);
    free(b);
}

static void test_lost_in_moves(void **state) {
    (void)state;
    for (int i = 0; i < MODELS; i++)
        for (uint64_t nth = 1; nth <= 25; nth += 12) {
            lose(models[i], WRAP_MOVE, nth, true, i % 2);
            lose(models[i], WRAP_WAIT_MOVE, nth, true, i % 2 == 0);
        }
}

/* Whichever of its calls fails, an engine is not opened and nothing is left behind; then it is. */
static void test_open(void **state) {
    static const wrap_call calls[] = { WRAP_MEASURE, WRAP_OPEN };
    static const int       codes[] = { ERR_IO, ERR_NOMEM, ERR_UNSUPPORTED };
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        bench *b = malloc(sizeof *b);
        assert_non_null(b);
        bench_open(b, models[i], 9);
        for (size_t k = 0; k < 2; k++) {
            for (uint64_t nth = 1; nth <= 4; nth++) {
                engine_options o = options_of(b, true);
                engine        *g = NULL;
                engine_memory  mem;
                err            e = { 0 };
                uint64_t       before = wrap_failures(&b->w);
                int            code = codes[nth % 3];
                o.n_ctx = 128;
                wrap_fail_at(&b->w, calls[k], nth, code);
                int rc = engine_open(&g, b->f.model, NULL, &o, &e);
                assert_int_equal(rc, wrap_failures(&b->w) > before ? code : 0);
                assert_true((rc < 0) == (g == NULL) && (rc == 0 || strstr(e.msg, "injected")));
                engine_free(g);
                wrap_calm(&b->w);
                before = wrap_failures(&b->w);
                wrap_fail_at(&b->w, calls[k], nth, code);
                rc = engine_measure(&mem, b->f.model, &o, &e);
                assert_int_equal(rc, wrap_failures(&b->w) > before ? code : 0);
                wrap_calm(&b->w);
            }
        }
        assert_true(wrap_failures(&b->w) >= 3);
        engine *g = fixture_engine(&b->f, options_of(b, true));
        recover(b, g);
        engine_free(g);
        bench_close(b);
        free(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_steps),
                                        cmocka_unit_test(test_copies),
                                        cmocka_unit_test(test_moves_between_tiers),
                                        cmocka_unit_test(test_lost),
                                        cmocka_unit_test(test_lost_with_the_last_row),
                                        cmocka_unit_test(test_lost_in_moves),
                                        cmocka_unit_test(test_open) };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
