/* SPDX-License-Identifier: Apache-2.0 */
/* Paused requests: silent, out of the others' way, and in the end the same bytes. */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <stdatomic.h>
#include <time.h>

enum { PROMPT = 40, PAUSE_AT = 10 };

static void fill(int32_t *tokens, int n, uint64_t seed, const fixture *f) {
    for (int i = 0; i < n; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f->model->dims->n_vocab);
}

static engine_request request(const int32_t *tokens, int n, int max_tokens) {
    engine_request r = { .tokens = tokens, .n_tokens = (size_t)n, .max_tokens = max_tokens, .want_logprob = true };
    sampling_params_default(&r.sampling);
    r.sampling.temperature = 0.8f;
    return r;
}

static void ask_alone(const fixture *f, engine_request r, answer *out) {
    engine *g = fixture_engine(f, (engine_options){ .n_threads = 1, .no_prefix_cache = true });
    r.on_event = answer_collect;
    r.ctx = out;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    engine_free(g);
}

/* Callbacks run on the engine thread, so what they see of each other is exact. */
typedef struct pair {
    engine  *g;
    uint64_t slow_id;
    answer   slow, other;
    int      slow_at_end; /* tokens of the slow one when the other was over */
} pair;

static void note_slow(void *ctx, const engine_event *ev) {
    pair *p = ctx;
    answer_collect(&p->slow, ev);
    if (ev->kind == ENGINE_TOKEN && p->slow.n == PAUSE_AT) engine_pause(p->g, p->slow_id);
}

static void note_other(void *ctx, const engine_event *ev) {
    pair *p = ctx;
    answer_collect(&p->other, ev);
    if (ev->kind != ENGINE_DONE) return;
    p->slow_at_end = p->slow.n;
    engine_resume(p->g, p->slow_id);
}

/* One is paused by its own callback and resumed when the other is over. With one place the paused one gives it up. */
static void check_pair(const fixture *f, int max_seqs) {
    int32_t      tokens[PROMPT];
    pair         p = { 0 };
    answer       slow = { 0 }, other = { 0 };
    engine_stats st;
    fill(tokens, PROMPT, 8, f);
    engine_request a = request(tokens, PROMPT, 40), b = request(tokens + 5, 20, 30);
    p.g = fixture_engine(f, (engine_options){ .n_threads = 1, .max_seqs = max_seqs });
    a.on_event = note_slow;
    b.on_event = note_other;
    a.ctx = b.ctx = &p;
    p.slow_id = 1; /* ids count from one; the callback may come before submit returns */
    assert_int_equal(engine_submit_ok(p.g, &a), p.slow_id);
    engine_submit_ok(p.g, &b);
    engine_wait_idle(p.g);
    engine_stat(p.g, &st);
    assert_int_equal(p.slow_at_end, PAUSE_AT);
    assert_true(p.slow.n == 40 && p.other.n == 30 && p.slow.finish == ENGINE_LENGTH);
    assert_int_equal(st.preemptions, max_seqs == 1 ? 1 : 0);
    assert_int_equal(st.paused, 0);
    engine_free(p.g);
    ask_alone(f, a, &slow);
    ask_alone(f, b, &other);
    assert_true(answer_same(&slow, &p.slow) && answer_same(&other, &p.other));
}

static void test_same_bytes(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "qwen3_next" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture f;
        fixture_open(&f, names[i]);
        check_pair(&f, 2);
        check_pair(&f, 1);
        fixture_close(&f);
    }
}

static void wait_paused(engine *g, int n) {
    engine_stats st;
    do {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        engine_stat(g, &st);
    } while (st.paused != n);
}

static void pause_self(void *ctx, const engine_event *ev) {
    pair *p = ctx;
    answer_collect(&p->slow, ev);
    if (ev->kind == ENGINE_TOKEN && p->slow.n == PAUSE_AT) engine_pause(p->g, p->slow_id);
}

/* Nothing but a paused request: the engine sleeps, and wakes for a resume, a cancel, or its end. */
static void test_alone(void **state) {
    fixture      f;
    int32_t      tokens[PROMPT];
    engine_stats before, after;
    answer       alone = { 0 };
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, PROMPT, 3, &f);
    engine_request r = request(tokens, PROMPT, 40);
    ask_alone(&f, r, &alone);
    for (int how = 0; how < 3; how++) {
        pair p = { .g = fixture_engine(&f, (engine_options){ .n_threads = 1 }), .slow_id = 1 };
        r.on_event = pause_self;
        r.ctx = &p;
        engine_submit_ok(p.g, &r);
        wait_paused(p.g, 1);
        engine_stat(p.g, &before);
        nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
        engine_stat(p.g, &after);
        assert_int_equal(after.steps, before.steps);
        assert_int_equal(after.running, 1);
        if (how == 0) {
            engine_resume(p.g, p.slow_id);
            engine_wait_idle(p.g);
            assert_true(answer_same(&alone, &p.slow));
        } else if (how == 1) {
            engine_cancel(p.g, p.slow_id);
            engine_wait_idle(p.g);
        }
        engine_free(p.g);
        assert_true(p.slow.over && (how == 0 || (p.slow.n == PAUSE_AT && p.slow.finish == ENGINE_CANCELLED)));
    }
    fixture_close(&f);
}

typedef struct counted {
    engine *g;
    answer  a[6];
    int     n_over;
} counted;

static void note_choice(void *ctx, const engine_event *ev) {
    counted *c = ctx;
    answer_collect(&c->a[ev->choice], ev);
    if (ev->kind == ENGINE_TOKEN && ev->choice == 0 && c->a[0].n == 1) engine_pause(c->g, 1);
    c->n_over += ev->kind == ENGINE_DONE;
}

typedef struct visitor {
    answer     a;
    atomic_int n_over;
} visitor;

static void note_end(void *ctx, const engine_event *ev) {
    visitor *v = ctx;
    answer_collect(&v->a, ev);
    if (ev->kind == ENGINE_DONE || ev->kind == ENGINE_ERROR) atomic_fetch_add(&v->n_over, 1);
}

/* Paused with its first token, five of six choices still waiting, in a cache that holds one sequence: others come and
 * go. */
static void test_waiting(void **state) {
    fixture f;
    int32_t tokens[PROMPT];
    (void)state;
    fixture_open(&f, "llama");
    fill(tokens, PROMPT, 5, &f);
    size_t  page = fixture_page_bytes(&f, 16);
    engine *g = fixture_engine(
        &f, (engine_options){ .n_threads = 1, .max_seqs = 4, .page_tokens = 16, .cache_bytes = 9 * page });
    counted        c = { .g = g };
    visitor        other = { 0 };
    engine_request r = request(tokens, PROMPT, 30), o = request(tokens + 3, 30, 20);
    r.n_choices = 6;
    r.on_event = note_choice;
    r.ctx = &c;
    uint64_t id = engine_submit_ok(g, &r);
    wait_paused(g, 6);
    o.on_event = note_end;
    o.ctx = &other;
    for (int i = 0; i < 3; i++) {
        other.a = (answer){ 0 };
        engine_submit_ok(g, &o);
        while (atomic_load(&other.n_over) == i) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        assert_true(other.a.over && !other.a.failed && other.a.n == 20);
    }
    wait_paused(g, 6);
    engine_resume(g, id);
    engine_wait_idle(g);
    assert_int_equal(c.n_over, 6);
    for (int i = 0; i < 6; i++) {
        answer         alone = { 0 };
        engine_request one = request(tokens, PROMPT, 30);
        one.sampling.seed += (uint64_t)i;
        ask_alone(&f, one, &alone);
        assert_true(answer_same(&alone, &c.a[i]));
    }
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_alone),
                                        cmocka_unit_test(test_waiting) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
