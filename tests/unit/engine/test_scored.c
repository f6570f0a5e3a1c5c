/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts that are scored: read in whole pieces, with the scores of single tokens. */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <string.h>

enum { SCORED = 100 };
typedef struct scores {
    answer  answer;
    int     n;
    float   logprob[SCORED];
    int32_t token[SCORED], best[SCORED];
} scores;

static void collect_scores(void *ctx, const engine_event *ev) {
    scores *s = ctx;
    answer_collect(&s->answer, ev);
    if (ev->kind != ENGINE_PROMPT || s->n == SCORED) return;
    s->token[s->n] = ev->token;
    s->best[s->n] = ev->n_top ? ev->top[0].token : -1;
    s->logprob[s->n++] = ev->logprob;
}

static engine_request request_for(const int32_t *tokens) {
    engine_request r = {
        .tokens = tokens, .n_tokens = SCORED, .max_tokens = 3, .want_logprob = true, .score_prompt = true, .n_top = 2
    };
    sampling_params_default(&r.sampling);
    r.on_event = collect_scores;
    return r;
}

static uint64_t score(const fixture *f, engine_options o, const int32_t *tokens, scores *out, int n_out) {
    engine      *g = fixture_engine(f, o);
    engine_stats st;
    memset(out, 0, (size_t)n_out * sizeof *out);
    for (int i = 0; i < n_out; i++) {
        engine_request r = request_for(tokens);
        r.ctx = &out[i];
        engine_submit_ok(g, &r);
    }
    engine_wait_idle(g);
    engine_stat(g, &st);
    engine_free(g);
    return st.steps;
}

/* A prompt is scored in the pieces in which it is read; its scores are those of single tokens, bit for bit. */
static void test_scored_prompt(void **state) {
    fixture       f;
    int32_t       tokens[SCORED];
    static scores slow, quick[3];
    uint64_t      seed = 9;
    (void)state;
    fixture_open(&f, "llama");
    for (int i = 0; i < SCORED; i++) tokens[i] = (int32_t)(test_random(&seed) % (uint64_t)f.model->dims->n_vocab);
    score(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .step_tokens = 1 }, tokens, &slow, 1);
    assert_true(slow.answer.over && !slow.answer.failed && slow.n == SCORED);
    assert_memory_equal(slow.token, tokens, sizeof tokens);
    uint64_t steps = score(&f, (engine_options){ .n_threads = 2, .max_seqs = 4 }, tokens, quick, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(quick[i].n == SCORED && answer_same(&slow.answer, &quick[i].answer));
        assert_memory_equal(slow.logprob, quick[i].logprob, sizeof slow.logprob);
        assert_memory_equal(slow.best, quick[i].best, sizeof slow.best);
    }
    assert_in_range(steps, 1, 12); /* of four rows each there would be seventy-five */
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_scored_prompt) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
