/* SPDX-License-Identifier: Apache-2.0 */
/* One grammar under several threads: every one sees the masks that one thread alone sees. */
#include "unit/support/support.h"

#include "grammar/grammar.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TOKENS = 257, WORDS = (TOKENS + 31) / 32, THREADS = 4, ROUNDS = 6 };

static const char SOURCE[] = "root ::= value\n"
                             "value ::= object | array | string | [0-9]+ | \"true\"\n"
                             "object ::= \"{\" (string \": \" value (\", \" string \": \" value)*)? \"}\"\n"
                             "array ::= \"[\" (value (\", \" value)*)? \"]\"\n"
                             "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" [\"nrt])* \"\\\"\"\n";
static const char TEXT[] = "{\"a\": [1, 25, \"x\\\"y\", {\"k\": true}], \"long key with words\": [[[\"deep\"]]]}";

typedef struct job {
    grammar             *g;
    const grammar_vocab *v;
    uint32_t             masks[sizeof TEXT][WORDS];
    int                  rounds;
    bool                 ok;
} job;

static void *walk(void *ctx) {
    job *j = ctx;
    j->ok = true;
    for (int round = 0; round < j->rounds && j->ok; round++) {
        grammar_matcher *m;
        if (grammar_matcher_open(&m, j->g, j->v, NULL) < 0) {
            j->ok = false;
            break;
        }
        for (size_t i = 0; i + 1 < sizeof TEXT && j->ok; i++)
            j->ok = grammar_matcher_mask(m, j->masks[i], NULL) == 0 && grammar_matcher_accept_bytes(m, TEXT + i, 1);
        j->ok = j->ok && grammar_matcher_may_end(m);
        grammar_matcher_free(m);
    }
    return NULL;
}

static void test_threads(void **state) {
    static job     jobs[THREADS], alone;
    static char    bytes[256];
    view           texts[TOKENS] = { 0 };
    int32_t        end = TOKENS - 1;
    pthread_t      threads[THREADS];
    grammar_vocab *v;
    grammar       *g;
    err            e = { 0 };
    (void)state;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (view){ &bytes[i], 1 };
    }
    assert_int_equal(grammar_vocab_open_texts(&v, texts, TOKENS, &end, 1, &e), 0);
    if (grammar_from_gbnf(&g, view_of(SOURCE), &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < THREADS; i++) {
        jobs[i] = (job){ .g = g, .v = v, .rounds = ROUNDS };
        assert_int_equal(pthread_create(&threads[i], NULL, walk, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    grammar_unref(g);
    assert_int_equal(grammar_from_gbnf(&g, view_of(SOURCE), &e), 0);
    alone = (job){ .g = g, .v = v, .rounds = 1 };
    walk(&alone);
    assert_true(alone.ok);
    for (int i = 0; i < THREADS; i++) {
        assert_true(jobs[i].ok);
        assert_memory_equal(jobs[i].masks, alone.masks, sizeof alone.masks);
    }
    grammar_unref(g);
    grammar_vocab_free(v);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
