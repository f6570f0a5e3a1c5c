/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random texts under real schemas: whatever allowed token comes next, there is always a way on, every token of a mask
 * is accepted, and tokens outside of it are not.
 */
#include "unit/support/support.h"

#include "base/json.h"
#include "bundle/tokenizer.h"
#include "grammar/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t seed = 4711;

static unsigned pick(unsigned n) { return (unsigned)(test_random(&seed) % n); }

/* A token of the mask, by starting anywhere; -1: none. */
static int32_t any_token(const uint32_t *mask, size_t words) {
    size_t at = pick((unsigned)words);
    for (size_t i = 0; i < words; i++, at = at + 1 == words ? 0 : at + 1) {
        unsigned bit = pick(32);
        if (!mask[at]) continue;
        while (!((mask[at] >> bit) & 1)) bit = (bit + 1) & 31;
        return (int32_t)(at * 32 + bit);
    }
    return -1;
}

static void walk(const char *name, grammar *g, const grammar_vocab *v, const tok *t) {
    size_t           words = grammar_vocab_mask_words(v);
    uint32_t        *mask = malloc(words * sizeof *mask);
    grammar_matcher *m;
    err              e = { 0 };
    assert_int_equal(grammar_matcher_open(&m, g, v, &e), 0);
    for (int i = 0; i < 50; i++) {
        int32_t id;
        if (grammar_matcher_mask(m, mask, &e) < 0) fail_msg("%s: %s", name, e.msg);
        if ((id = any_token(mask, words)) < 0) fail_msg("%s: nothing may follow after %d tokens", name, i);
        for (int k = 0; k < 20; k++) {
            int32_t other = (int32_t)pick((unsigned)tok_count(t));
            bool    bit = (mask[other >> 5] >> (other & 31)) & 1, ok = grammar_matcher_accept(m, other, NULL) == 0;
            if (ok) grammar_matcher_rollback(m, 1);
            if (ok != bit) fail_msg("%s: token %d: mask %d, accepted %d", name, other, bit, ok);
        }
        if (grammar_matcher_accept(m, id, &e) < 0) fail_msg("%s: %s", name, e.msg);
        if (grammar_matcher_must_end(m)) break;
    }
    grammar_matcher_free(m);
    free(mask);
}

static void test_walks(void **state) {
    test_need_corpus();
    char *sample = test_corpus_path("schemas/sample.jsonl"), *model = test_corpus_path("vocab/gpt-2.gguf"),
         *line = NULL;
    size_t         cap = 0, n = 0, walked = 0;
    ssize_t        len;
    tok           *t;
    grammar_vocab *v;
    FILE          *f;
    err            e = { 0 };
    (void)state;
    if (bundle_tokenizer_open_path(&t, model, NULL, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(grammar_vocab_open(&v, t, &e), 0);
    assert_non_null(f = fopen(sample, "r"));
    while ((len = getline(&line, &cap, f)) > 0) {
        arena             a;
        const json_value *c;
        str               schema;
        grammar          *g;
        if (n++ % 7 != 3) continue;
        arena_init(&a, 0);
        str_init(&schema);
        assert_int_equal(json_parse(&c, line, (size_t)len, &a, &e), 0);
        json_write(json_get(c, "schema"), &schema);
        if (grammar_from_schema(&g, (view){ schema.data, schema.len }, &e) == 0) {
            walk(json_cstr(json_get(c, "name")), g, v, t);
            grammar_unref(g);
            walked++;
        }
        str_deinit(&schema);
        arena_deinit(&a);
    }
    assert_true(walked > n / 7 * 8 / 10);
    fclose(f);
    free(line);
    free(sample);
    free(model);
    grammar_vocab_free(v);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_walks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
