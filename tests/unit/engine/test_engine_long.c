/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long prompts: 16,384 tokens go through in pages and pieces, show progress, can be cancelled between two steps, and
 * are not computed again. How long they take is bench_long's business; here the times are printed only.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { LONG = TEST_SANITIZED ? 4096 : 16384 };
enum { PIECE = 256 };

typedef struct watch {
    engine    *g;
    uint64_t   id;
    atomic_int progress, after_cancel;
    int        cancel_at; /* progress events; 0: never */
    int        last, tokens, cached;
    double     at, longest_gap, cpu, longest_cpu; /* between events, in seconds; cpu: of the engine's thread */
    bool       in_order, over, cancelled;
} watch;

static double thread_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note(void *ctx, const engine_event *ev) {
    watch *w = ctx;
    double t = clock_s(), cpu = thread_seconds();
    if (t - w->at > w->longest_gap) w->longest_gap = t - w->at;
    if (w->cpu > 0 && cpu - w->cpu > w->longest_cpu) w->longest_cpu = cpu - w->cpu;
    w->at = t;
    w->cpu = cpu;
    if (ev->kind == ENGINE_PROGRESS) {
        w->in_order = w->in_order && ev->done > w->last && ev->done <= ev->total && ev->total == LONG;
        w->last = ev->done;
        if (w->cancelled) w->after_cancel++;
        if (++w->progress == w->cancel_at) {
            engine_cancel(w->g, w->id);
            w->cancelled = true;
        }
    }
    w->tokens += ev->kind == ENGINE_TOKEN;
    if (ev->kind != ENGINE_DONE) return;
    w->over = true;
    w->cached = ev->usage.cached_tokens;
    assert_int_equal(ev->finish, w->cancel_at ? ENGINE_CANCELLED : ENGINE_LENGTH);
}

static void run(engine *g, watch *w, const int32_t *tokens) {
    engine_request r = { .tokens = tokens, .n_tokens = LONG, .max_tokens = 2, .on_event = note, .ctx = w };
    err            e;
    sampling_params_default(&r.sampling);
    w->g = g;
    w->in_order = true;
    w->at = clock_s();
    if (engine_submit(g, &r, &w->id, &e) < 0) fail_msg("%s", e.msg);
    engine_wait_idle(g);
    assert_true(w->over && w->in_order);
}

static void check_long(const char *name) {
    fixture        f;
    static int32_t tokens[LONG];
    engine_stats   before, st;
    uint64_t       seed = 4;
    fixture_open(&f, name);
    for (int i = 0; i < LONG; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f.model->dims->n_vocab);
    engine *g = fixture_engine(&f, (engine_options){ .n_ctx = LONG + 64, .n_threads = 2, .step_tokens = PIECE });

    /* A cancel at the third piece: no further step for it. */
    watch stopped = { .cancel_at = 3 };
    engine_stat(g, &before);
    run(g, &stopped, tokens);
    engine_stat(g, &st);
    assert_int_equal(stopped.after_cancel, 0);
    assert_int_equal(st.steps - before.steps, 3);
    assert_int_equal(st.tokens_evaluated, 3 * PIECE);

    /* The rest: what was computed is not computed again; every page is accounted for. */
    watch  all = { 0 };
    double begin = clock_s();
    run(g, &all, tokens);
    double took = clock_s() - begin;
    engine_stat(g, &st);
    assert_int_equal(all.cached, 3 * PIECE);
    assert_int_equal(all.tokens, 2);
    assert_int_equal(st.tokens_evaluated, LONG + 1); /* and the first generated token */
    assert_true(all.progress >= (LONG - 3 * PIECE) / PIECE - 1);
    assert_true(all.longest_cpu < 2.0); /* its own time: a loaded machine is not our doing */
    assert_true(st.pages_cached >= LONG / 32);
    assert_int_equal(st.pages_cached + st.pages_unused, st.pages_total);

    /* Again: one token, and as many steps as generate. */
    watch again = { 0 };
    engine_stat(g, &before);
    run(g, &again, tokens);
    engine_stat(g, &st);
    assert_int_equal(again.cached, LONG - 1);
    assert_int_equal(st.tokens_evaluated - before.tokens_evaluated, 2);
    print_message("%s: %d tokens in %.2f s, %d progress events, %.0f ms apart at most\n", name, LONG - 3 * PIECE, took,
                  all.progress, all.longest_gap * 1e3);
    engine_free(g);
    fixture_close(&f);
}

static void test_long_transformer(void **state) {
    (void)state;
    check_long("llama");
}

static void test_long_window(void **state) {
    (void)state;
    check_long("mistral");
}

/* Somebody else cancels: at most the step that is under way is finished. */
static void test_cancel_from_outside(void **state) {
    fixture        f;
    static int32_t tokens[LONG];
    watch          w = { .g = NULL, .in_order = true, .cancel_at = 1 << 30 };
    err            e;
    (void)state;
    fixture_open(&f, "llama");
    engine        *g = fixture_engine(&f, (engine_options){ .n_ctx = LONG + 64, .n_threads = 1, .step_tokens = 64 });
    engine_request r = { .tokens = tokens, .n_tokens = LONG, .max_tokens = 2, .on_event = note, .ctx = &w };
    sampling_params_default(&r.sampling);
    if (engine_submit(g, &r, &w.id, &e) < 0) fail_msg("%s", e.msg);
    while (w.progress < 2) {
    }
    engine_cancel(g, w.id);
    int seen = w.progress;
    engine_wait_idle(g);
    assert_true(w.over);
    assert_in_range(w.progress - seen, 0, 1);
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_transformer),
        cmocka_unit_test(test_long_window),
        cmocka_unit_test(test_cancel_from_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
