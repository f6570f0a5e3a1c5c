/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts with a gap: the markers of code models around prefix and suffix. */
#include "unit/support/support.h"

#include "bundle/tokenizer.h"
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tok *open_vocab(const char *name) {
    char *path = test_corpus_path(name);
    tok  *t;
    err   e = { 0 };
    if (!path) skip();
    if (bundle_tokenizer_open_path(&t, path, NULL, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return t;
}

static void text_is(const tok *t, const tok_ids *ids, const char *want) {
    str text;
    str_init(&text);
    assert_int_equal(tok_decode(t, ids->data, ids->count, false, &text, NULL), 0);
    assert_string_equal(str_cstr(&text), want);
    str_deinit(&text);
}

static void test_starcoder(void **state) {
    tok    *t = open_vocab("vocab/starcoder.gguf");
    tok_ids ids = { 0 };
    (void)state;
    assert_true(infill_known(t));
    /* A marker's text inside the user's text is not a marker. */
    assert_int_equal(infill_encode(t, view_of("def f(x):\n    "), view_of("\n    return <fim_middle>"), &ids, NULL), 0);
    assert_int_equal(ids.data[0], tok_find(t, "<fim_prefix>", 12));
    assert_int_equal(ids.data[ids.count - 1], tok_find(t, "<fim_middle>", 12));
    int middles = 0;
    for (size_t i = 0; i < ids.count; i++) middles += ids.data[i] == ids.data[ids.count - 1];
    assert_int_equal(middles, 1);
    text_is(t, &ids, "<fim_prefix>def f(x):\n    <fim_suffix>\n    return <fim_middle><fim_middle>");
    tok_ids_deinit(&ids);
    tok_free(t);
}

static void test_without_markers(void **state) {
    tok    *t = open_vocab("vocab/gpt-2.gguf");
    tok_ids ids = { 0 };
    err     e = { 0 };
    (void)state;
    assert_false(infill_known(t));
    assert_int_equal(infill_encode(t, view_of("a"), view_of("b"), &ids, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "infill"));
    tok_ids_deinit(&ids);
    tok_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_starcoder), cmocka_unit_test(test_without_markers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
