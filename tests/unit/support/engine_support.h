/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the engine share: reference models, answers that are collected, a small guide. */
#ifndef TESTS_ENGINE_SUPPORT_H
#define TESTS_ENGINE_SUPPORT_H

#include "engine/engine.h"

typedef struct fixture {
    model_file *file;
    nn_model   *model;
} fixture;

void   fixture_open(fixture *f, const char *name); /* a model of tests/golden/models; fails the test */
void   fixture_close(fixture *f);
size_t fixture_page_bytes(const fixture *f, int page_tokens); /* of one page in all layers */

/* The types of pages: f16, or what the environment says, HEARTH_TEST_KV=K,V,PRECISE (tq4,q5_0,1: layers at either end that stay
 * precise); then true. A model whose heads do not fit such blocks gets q4_0, which fits all. */
bool fixture_page_types(const fixture *f, engine_options *o);

/* The instruction sets: what there is, or of that what HEARTH_TEST_CPU names (scalar: kernels that a sanitizer sees). */
unsigned fixture_cpu(void);

/* Fails the test; the options' types and instruction sets are filled in. n_ctx 0: 128. */
engine  *fixture_engine(const fixture *f, engine_options o);
uint64_t engine_submit_ok(engine *g, const engine_request *r);

enum { ANSWER_MAX = 64 };

/* What came back of one choice. on_event = answer_collect, ctx = the answer. */
typedef struct answer {
    int           n, cached, progress;
    int32_t       tokens[ANSWER_MAX];
    float         logprobs[ANSWER_MAX];
    engine_finish finish;
    bool          over, failed;
    err           error;
} answer;

void answer_collect(void *ctx, const engine_event *ev);
bool answer_same(const answer *a, const answer *b); /* every token and log-probability, bit for bit */

/*
 * A guide that needs no grammar: the tokens allowed at a place are a function of (rule, number of accepted tokens, last
 * one), about a third of the vocabulary, everything at every fourth place. Behind `length` tokens (0: never) nothing
 * may follow. Counts calls in two threads at once as misuse.
 */
engine_guide *test_guide(uint64_t rule, int64_t n_vocab, int length);
bool          test_guide_allows(uint64_t rule, int n_accepted, int32_t last, int32_t token);
/* Whether an answer keeps the rule. */
bool test_guide_kept(uint64_t rule, int length, const answer *a);
int  test_guide_misuse(void); /* since the program began */
int  test_guides_alive(void);

#endif
