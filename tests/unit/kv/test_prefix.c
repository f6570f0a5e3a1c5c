/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nothing is computed twice: conversations that share a system prompt, on a transformer, a sliding-window model, a
 * latent-attention model and a hybrid one. The number of evaluated tokens is exact: each distinct token once, in one
 * engine, over a restart from disk, with an arena so small that pages have to go to host memory or disk and come back,
 * when conversations fork, and when requests with a common beginning arrive together. Every answer equals, bit for bit,
 * that of an engine without a prefix cache.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "kernels/cpu.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SYSTEM_MAX = 2000, /* ends in the middle of a page */
    CONVERSATIONS_MAX = TEST_SANITIZED ? 4 : 20,
    TURNS_MAX = TEST_SANITIZED ? 3 : 5,
    USER = 11,
    REPLY = 6,
    FORKED = 4, /* conversations that are continued in a second way from their second answer on */
    TURN = USER + REPLY,
    LONGEST_MAX = SYSTEM_MAX + TURNS_MAX * TURN,
};

/* Less in the small form (test_small); the facts are the same. */
static int n_system = SYSTEM_MAX, n_conversations = CONVERSATIONS_MAX, n_turns = TURNS_MAX;
static int longest(void) { return n_system + n_turns * TURN; }

typedef struct conversation {
    int32_t tokens[LONGEST_MAX], other[USER];
    answer  answers[TURNS_MAX], fork;
} conversation;

static conversation world[CONVERSATIONS_MAX];

/* Conversations that are run without a cache (under a sanitizer only their first turn); what the others answer must be
 * the same in every way of running them. */
static int references(void) { return getenv("HEARTH_LONG") ? n_conversations : 1; }

static void make_world(const fixture *f) {
    uint64_t seed = 77, n_vocab = (uint64_t)f->model->dims->n_vocab;
    memset(world, 0, sizeof world);
    for (int i = 0; i < n_system; i++) world[0].tokens[i] = (int32_t)(test_random(&seed) % n_vocab);
    for (int c = 0; c < n_conversations; c++) {
        memcpy(world[c].tokens, world[0].tokens, (size_t)n_system * sizeof *world[c].tokens);
        for (int turn = 0; turn < n_turns; turn++) {
            int32_t *user = world[c].tokens + n_system + turn * TURN;
            for (int i = 0; i < USER; i++) user[i] = (int32_t)(test_random(&seed) % n_vocab);
            user[0] = (int32_t)((unsigned)(c * n_turns + turn) % n_vocab); /* no two messages begin alike */
        }
        for (int i = 0; i < USER; i++) world[c].other[i] = (int32_t)(test_random(&seed) % n_vocab);
        world[c].other[0] = (int32_t)((n_conversations * n_turns + c) % (int)n_vocab);
    }
}

static answer ask_marked(engine *g, const int32_t *tokens, int n, uint64_t seed, const int32_t *marks, size_t n_marks) {
    answer         a = { 0 };
    engine_request r = { .tokens = tokens,
                         .n_tokens = (size_t)n,
                         .max_tokens = REPLY,
                         .want_logprob = true,
                         .marks = marks,
                         .n_marks = n_marks,
                         .on_event = answer_collect,
                         .ctx = &a };
    sampling_params_default(&r.sampling);
    r.sampling.seed = seed;
    r.sampling.temperature = seed % 2 ? 0.8f : 0.0f;
    engine_submit_ok(g, &r);
    engine_wait_idle(g);
    assert_true(a.over && !a.failed && a.n == REPLY);
    return a;
}

static answer ask_plain(engine *g, const int32_t *tokens, int n) { return ask_marked(g, tokens, n, 0, NULL, 0); }

/* The beginning of a conversation; marks are the ends of its messages. */
static answer ask(engine *g, const int32_t *tokens, int n, uint64_t seed) {
    int32_t marks[2 * TURNS_MAX + 1];
    size_t  n_marks = 0;
    for (int at = n_system; at < n; at += n_marks % 2 ? USER : REPLY) marks[n_marks++] = at;
    return ask_marked(g, tokens, n, seed, marks, n_marks);
}

static answer ask_turn(engine *g, int c, int turn) {
    return ask(g, world[c].tokens, n_system + turn * TURN + USER, (uint64_t)(c * n_turns + turn));
}

static answer ask_fork(engine *g, int c) {
    int32_t tokens[LONGEST_MAX];
    int     n = n_system + 2 * TURN;
    memcpy(tokens, world[c].tokens, (size_t)n * sizeof *tokens);
    memcpy(tokens + n, world[c].other, sizeof world[c].other);
    return ask(g, tokens, n + USER, 1000 + (uint64_t)c);
}

static void keep_answer(int c, int turn, const answer *a) {
    world[c].answers[turn] = *a;
    memcpy(world[c].tokens + n_system + turn * TURN + USER, a->tokens, REPLY * sizeof *a->tokens);
}

/* Every prompt from its first token on. */
static void run_reference(const fixture *f) {
    engine *g = fixture_engine(
        f, (engine_options){ .n_threads = 1, .n_ctx = longest() + 1, .max_seqs = 1, .no_prefix_cache = true });
    for (int turn = 0; turn < (TEST_SANITIZED ? 1 : n_turns); turn++) {
        for (int c = 0; c < references(); c++) {
            answer a = ask_turn(g, c, turn);
            assert_int_equal(a.cached, 0);
            keep_answer(c, turn, &a);
        }
    }
    for (int c = 0; !TEST_SANITIZED && c < FORKED && c < references(); c++) world[c].fork = ask_fork(g, c);
    engine_free(g);
}

/* One turn of all conversations, checked against what is known of them. */
static void run_turn(engine *g, int turn, const char *what) {
    for (int c = 0; c < n_conversations; c++) {
        answer a = ask_turn(g, c, turn);
        if (world[c].answers[turn].n == 0) keep_answer(c, turn, &a);
        if (!answer_same(&a, &world[c].answers[turn])) fail_msg("%s: conversation %d, turn %d differs", what, c, turn);
        /* What was known: the system prompt, and in later turns all but the last token of the previous answer. */
        int known = turn ? n_system + turn * TURN - 1 : c ? n_system : 0;
        if (a.cached != known)
            fail_msg("%s: conversation %d, turn %d: %d tokens cached, not %d", what, c, turn, a.cached, known);
    }
}

static void run_forks(engine *g, const char *what) {
    for (int c = 0; c < FORKED; c++) {
        answer a = ask_fork(g, c);
        if (world[c].fork.n == 0) world[c].fork = a;
        if (!answer_same(&a, &world[c].fork)) fail_msg("%s: fork %d differs", what, c);
        if (a.cached != n_system + 2 * TURN) fail_msg("%s: fork %d: %d tokens cached", what, c, a.cached);
    }
}

static engine_stats stats_of(engine *g) {
    engine_stats st;
    engine_wait_idle(g);
    engine_stat(g, &st);
    return st;
}

/* Tokens of all conversations and forks but the last one of each, whose successor nobody asked for. */
static int distinct(void) { return n_system + n_conversations * (n_turns * TURN - 1) + FORKED * (TURN - 1); }

static void check_model(const char *name) {
    fixture f;
    fixture_open(&f, name);
    make_world(&f);
    run_reference(&f);
    size_t page = fixture_page_bytes(&f, 32);
    char  *dir = test_temp_dir();

    /* One engine with room for everything. */
    engine_options roomy = { .n_threads = 1, .n_ctx = longest() + 1, .max_seqs = 2, .cache_bytes = 64u << 20 };
    engine        *g = fixture_engine(&f, roomy);
    for (int turn = 0; turn < n_turns; turn++) run_turn(g, turn, "roomy");
    run_forks(g, "roomy");
    engine_stats st = stats_of(g);
    assert_int_equal(st.tokens_evaluated, distinct());
    assert_int_equal(st.to_host + st.from_host + st.from_disk + st.to_disk, 0);
    engine_free(g);

    /* A restart in the middle: the second engine continues from disk. */
    engine_options kept = roomy;
    kept.disk_cache_dir = dir;
    g = fixture_engine(&f, kept);
    for (int turn = 0; turn < n_turns - 2; turn++) run_turn(g, turn, "before the restart");
    st = stats_of(g);
    uint64_t evaluated = st.tokens_evaluated;
    assert_int_equal(st.from_disk, 0);
    engine_free(g);
    g = fixture_engine(&f, kept);
    for (int turn = n_turns - 2; turn < n_turns; turn++) run_turn(g, turn, "after the restart");
    run_forks(g, "after the restart");
    st = stats_of(g);
    assert_int_equal(evaluated + st.tokens_evaluated, distinct());
    assert_true(st.from_disk > 0);
    engine_free(g);

    /* An arena that holds one conversation; the others wait in host memory. */
    engine_options tight = roomy;
    tight.late = true;
    tight.max_seqs = 1;
    tight.cache_bytes = page * (size_t)((longest() + 31) / 32 + 4);
    tight.host_cache_bytes = 64u << 20;
    g = fixture_engine(&f, tight);
    for (int turn = 0; turn < n_turns; turn++) run_turn(g, turn, "host tier");
    run_forks(g, "host tier");
    st = stats_of(g);
    assert_int_equal(st.tokens_evaluated, distinct());
    assert_true(st.to_host > 0 && st.from_host > 0);
    assert_int_equal(st.preemptions, 0);
    engine_free(g);

    /* The same with the disk alone, in a directory of its own. */
    char *other = test_temp_dir();
    tight.host_cache_bytes = 0;
    tight.disk_cache_dir = other;
    g = fixture_engine(&f, tight);
    for (int turn = 0; turn < n_turns; turn++) run_turn(g, turn, "disk tier");
    run_forks(g, "disk tier");
    st = stats_of(g);
    assert_int_equal(st.tokens_evaluated, distinct());
    assert_true(st.from_disk > 0);
    engine_free(g);

    test_temp_dir_remove(other);
    test_temp_dir_remove(dir);
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
static void test_hybrid(void **state) {
    (void)state;
    check_model("qwen3_next");
}
static void test_latent(void **state) {
    (void)state;
    if (!TEST_SANITIZED) check_model("deepseek_v3");
}

/* A long prompt without marks: a hybrid model can be continued at 8192, before the prompt's end and at the answer's
 * end, and keeps no other states. */
static void test_long_prompt(void **state) {
    enum { PROMPT = 8400, SHARED = 8300 };
    static int32_t tokens[PROMPT];
    uint64_t       seed = 3;
    fixture        f;
    (void)state;
    if (TEST_SANITIZED || test_small()) return;
    fixture_open(&f, "qwen3_next");
    for (int i = 0; i < PROMPT; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f.model->dims->n_vocab);
    engine *g = fixture_engine(
        &f, (engine_options){ .n_threads = 1, .n_ctx = PROMPT + 32, .max_seqs = 1, .cache_bytes = 64u << 20 });
    assert_int_equal(ask_plain(g, tokens, PROMPT).cached, 0);
    assert_int_equal(stats_of(g).states, 3);
    assert_int_equal(ask_plain(g, tokens, PROMPT).cached, PROMPT - 1);
    tokens[SHARED] = (tokens[SHARED] + 1) % (int32_t)f.model->dims->n_vocab;
    assert_int_equal(ask_plain(g, tokens, PROMPT).cached, 8192);
    engine_free(g);
    fixture_close(&f);
}

/* --- requests that arrive together ---------------------------------------------------------------------------- */

enum {
    CROWD_MAX = 16,
    BEGINNING_MAX = 800,
    GROUP = 4, /* every GROUP of them share SECOND more */
    SECOND = 24,
    OWN = 50, /* behind n_beginning, SECOND included */
    CROWD_LEN_MAX = BEGINNING_MAX + OWN,
};

static int n_crowd = CROWD_MAX, n_beginning = BEGINNING_MAX; /* what all of them share */
static int crowd_len(void) { return n_beginning + OWN; }

typedef struct crowd {
    int32_t       tokens[CROWD_MAX][CROWD_LEN_MAX];
    answer        alone[CROWD_MAX], together[CROWD_MAX];
    engine       *g;
    uint64_t      ids[CROWD_MAX];
    int           cancel_after; /* events of the first request; 0: never */
    int           seen;
    atomic_ullong first; /* its id, once it is known */
} crowd;

static crowd them;

static void make_crowd(const fixture *f, bool groups) {
    uint64_t seed = 5, n_vocab = (uint64_t)f->model->dims->n_vocab;
    memset(&them, 0, sizeof them);
    for (int c = 0; c < n_crowd; c++) {
        int from = c ? n_beginning : 0;
        memcpy(them.tokens[c], them.tokens[0], sizeof them.tokens[c]);
        if (groups && c % GROUP) { /* the group's first one has the second beginning */
            memcpy(them.tokens[c], them.tokens[c - c % GROUP], sizeof them.tokens[c]);
            from = n_beginning + SECOND;
        }
        for (int i = from; i < crowd_len(); i++) them.tokens[c][i] = (int32_t)(test_random(&seed) % n_vocab);
        them.tokens[c][n_beginning] = groups ? c / GROUP : c; /* no two parts begin alike */
        them.tokens[c][n_beginning + SECOND] = c;
    }
}

/* Cancels the first request at its n-th event, from within the engine's thread. */
static void collect_and_cancel(void *ctx, const engine_event *ev) {
    answer_collect(ctx, ev);
    if (ctx == &them.together[0] && them.cancel_after && ++them.seen == them.cancel_after)
        engine_cancel(them.g, atomic_load(&them.first));
}

static void submit_crowd(int c, answer *a) {
    engine_request r = { .tokens = them.tokens[c],
                         .n_tokens = (size_t)crowd_len(),
                         .max_tokens = REPLY,
                         .want_logprob = true,
                         .client = (uint64_t)(c % 3),
                         .on_event = collect_and_cancel,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)c;
    r.sampling.temperature = c % 2 ? 0.8f : 0.0f;
    them.ids[c] = engine_submit_ok(them.g, &r);
    if (c == 0) atomic_store(&them.first, them.ids[0]);
}

/* One after the other; without a prefix cache, but under a sanitizer, where that would take too long. */
static void run_alone(const fixture *f) {
    them.g = fixture_engine(f, (engine_options){ .n_threads = 1,
                                                 .n_ctx = crowd_len() + REPLY + 1,
                                                 .max_seqs = 1,
                                                 .cache_bytes = 64u << 20,
                                                 .no_prefix_cache = !TEST_SANITIZED });
    for (int c = 0; c < n_crowd; c++) {
        submit_crowd(c, &them.alone[c]);
        engine_wait_idle(them.g);
    }
    engine_free(them.g);
}

/* All at once. */
static engine_stats run_together(const fixture *f, int step_tokens, int cancel_after) {
    them.g = fixture_engine(f, (engine_options){ .n_threads = 1,
                                                 .n_ctx = crowd_len() + REPLY + 1,
                                                 .max_seqs = n_crowd,
                                                 .step_tokens = step_tokens,
                                                 .cache_bytes = 64u << 20 });
    memset(them.together, 0, sizeof them.together);
    them.cancel_after = cancel_after;
    them.seen = 0;
    for (int c = 0; c < n_crowd; c++) submit_crowd(c, &them.together[c]);
    engine_stats st = stats_of(them.g);
    engine_free(them.g);
    for (int c = 0; c < n_crowd; c++) {
        const answer *a = &them.together[c];
        assert_true(a->over && !a->failed);
        if (c == 0 && a->finish == ENGINE_CANCELLED) continue;
        if (!answer_same(a, &them.alone[c])) fail_msg("request %d of the crowd answers otherwise", c);
    }
    return st;
}

static void check_crowd(const char *name) {
    fixture  f;
    uint64_t seed = 11;
    fixture_open(&f, name);
    for (int groups = TEST_SANITIZED; groups < 2; groups++) {
        const uint64_t each =
            (uint64_t)(n_beginning + n_crowd * (OWN + REPLY - 1) - (groups ? (n_crowd - n_crowd / GROUP) * SECOND : 0));
        make_crowd(&f, groups);
        run_alone(&f);
        if (!TEST_SANITIZED) assert_int_equal(run_together(&f, 256, 0).tokens_evaluated, each);
        assert_int_equal(run_together(&f, 96, 0).tokens_evaluated, each);
        for (int i = 0; i < (TEST_SANITIZED || test_small() ? 1 : 6); i++) {
            engine_stats st = run_together(&f, 64, 1 + (int)(test_random(&seed) % 16));
            if (st.tokens_evaluated > each)
                fail_msg("%s: %llu tokens evaluated, %llu are distinct", name, (unsigned long long)st.tokens_evaluated,
                         (unsigned long long)each);
        }
    }
    fixture_close(&f);
}

static void test_together_transformer(void **state) {
    (void)state;
    check_crowd("llama");
}
static void test_together_window(void **state) {
    (void)state;
    check_crowd("gemma3_text");
}
static void test_together_hybrid(void **state) {
    (void)state;
    check_crowd("qwen3_next");
}
static void test_together_latent(void **state) {
    (void)state;
    check_crowd("deepseek_v3");
}

int main(void) {
    if (test_small()) {
        n_system = 200;
        n_conversations = FORKED;
        n_turns = 3;
        n_crowd = 8;
        n_beginning = 300; /* more than a step's, so that all are there before it has been evaluated */
        print_message(
            "small: %d conversations of %d turns behind %d tokens, crowds of %d; not a prompt of 8400 tokens\n",
            n_conversations, n_turns, n_system, n_crowd);
    }
    test_filter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),     cmocka_unit_test(test_sliding_window),
        cmocka_unit_test(test_hybrid),          cmocka_unit_test(test_latent),
        cmocka_unit_test(test_long_prompt),     cmocka_unit_test(test_together_transformer),
        cmocka_unit_test(test_together_window), cmocka_unit_test(test_together_hybrid),
        cmocka_unit_test(test_together_latent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
