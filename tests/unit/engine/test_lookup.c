/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drafts by looking up, without an engine: an answer is known, and every step takes what the drafter says as far as it is
 * right, and one token more. How many steps an answer takes says how good the drafts are: a copy goes through in drafts of
 * the greatest length, a copy with changes loses about two steps per change.
 */
#include "unit/support/support.h"

#include "engine/drafter.h"

#include <string.h>

enum { TEXT = 600, MOST = 16, COMMON = 12, WORDS = 2000 };

/* Words as texts have them: every other one of a few. */
static int32_t any_word(uint64_t *s) {
    uint64_t r = test_random(s);
    return (int32_t)(r % 2 ? r / 2 % COMMON : COMMON + r / 2 % WORDS);
}

static int steps_of(const int32_t *hint, int n_hint, const int32_t *prompt, int n_prompt, const int32_t *answer,
                    int n) {
    static int32_t tokens[4 * TEXT];
    int32_t        draft[MOST];
    drafter       *d;
    err            e;
    int            steps = 0;
    if (draft_lookup_open(&d, 2, 4 * TEXT, &e) < 0) fail_msg("%s", e.msg);
    memcpy(tokens, prompt, (size_t)n_prompt * sizeof *tokens);
    memcpy(tokens + n_prompt, answer, (size_t)n * sizeof *tokens);
    draft_seq seq = {
        .seat = 1, .tokens = tokens, .n_tokens = n_prompt, .n_prompt = n_prompt, .hint = hint, .n_hint = n_hint
    };
    d->begin(d, &seq);
    for (; seq.n_tokens < n_prompt + n; steps++) {
        draft_ask ask = { .seq = seq, .draft = draft, .most = MOST };
        d->propose(d, &ask, 1);
        assert_in_range(ask.grade, 0, DRAFT_GRADES - 1);
        for (int i = 0; i < ask.n && seq.n_tokens < n_prompt + n - 1 && draft[i] == tokens[seq.n_tokens]; i++)
            seq.n_tokens++;
        seq.n_tokens++;
    }
    d->end(d, &seq);
    d->free(d);
    return steps;
}

/* Every so many words another one of 1 to `longest` tokens. */
static int change(const int32_t *text, int n, int every, int longest, int32_t *out, uint64_t *s) {
    int m = 0;
    for (int i = 0; i < n; i++) {
        if (i % every != every - 1)
            out[m++] = text[i];
        else
            for (uint64_t k = 1 + test_random(s) % (uint64_t)longest; k > 0; k--) out[m++] = any_word(s);
    }
    return m;
}

static void test_copies(void **state) {
    int32_t  text[TEXT], out[4 * TEXT], prompt[2] = { 1, 2 };
    uint64_t s = 5;
    (void)state;
    for (int i = 0; i < TEXT; i++) text[i] = any_word(&s);
    int same = steps_of(text, TEXT, prompt, 2, text, TEXT);
    assert_in_range(same, TEXT / (MOST + 1), TEXT / (MOST + 1) + 12);
    for (int longest = 1; longest <= 3; longest++) {
        int n = change(text, TEXT, 12, longest, out, &s), changes = TEXT / 12;
        int steps = steps_of(text, TEXT, prompt, 2, out, n);
        print_message("%d tokens, %d changes of 1 to %d: %d steps\n", n, changes, longest, steps);
        /* A change is found by one step; each of its further tokens is one; then one until the text is found again. */
        assert_true(steps <= same + changes * (longest + 3) / 2);
        assert_int_equal(steps_of(NULL, 0, text, TEXT, out, n), steps); /* from the prompt as from a prediction */
    }
}

/* Nothing of the answer stood anywhere: a step per token, and no draft that reaches beyond what there is. */
static void test_strange(void **state) {
    int32_t text[TEXT], out[TEXT];
    (void)state;
    for (int i = 0; i < TEXT; i++) {
        text[i] = i;
        out[i] = TEXT + i;
    }
    assert_int_equal(steps_of(text, TEXT, text, TEXT, out, TEXT), TEXT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_strange),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
