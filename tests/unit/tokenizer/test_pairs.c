/* SPDX-License-Identifier: Apache-2.0 */
/* Two texts as one input: the frames of the three post-processors, which ids belong to the second text, and what is left of
 * texts that are too long. The expected ids are written down from the published forms. */
#include "tokenizer/tokenizer.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>

/* Words are tokens: [CLS] 0, [SEP] 1, a to e 2 to 6. */
static const char form[] =
    "{\"added_tokens\": [{\"id\": 0, \"content\": \"[CLS]\", \"special\": true}, {\"id\": 1, \"content\": \"[SEP]\", "
    "\"special\": true}], \"normalizer\": null, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
    "\"post_processor\": %s, "
    "\"decoder\": null, \"model\": {\"type\": \"WordLevel\", \"unk_token\": \"e\", \"vocab\": {\"[CLS]\": 0, "
    "\"[SEP]\": 1, "
    "\"a\": 2, \"b\": 3, \"c\": 4, \"d\": 5, \"e\": 6}}}";

#define ITEM(id) "{\"SpecialToken\": {\"id\": \"" id "\", \"type_id\": 0}}"
#define TEXT(id, type) "{\"Sequence\": {\"id\": \"" id "\", \"type_id\": " type "}}"
#define NAMES                                                                                                          \
    "\"special_tokens\": {\"[CLS]\": {\"id\": \"[CLS]\", \"ids\": [0], \"tokens\": [\"[CLS]\"]}, \"[SEP]\": {\"id\": " \
    "\"[SEP]\", \"ids\": [1], \"tokens\": [\"[SEP]\"]}}"

static const char bert[] = "{\"type\": \"BertProcessing\", \"sep\": [\"[SEP]\", 1], \"cls\": [\"[CLS]\", 0]}";
static const char roberta[] = "{\"type\": \"RobertaProcessing\", \"sep\": [\"[SEP]\", 1], \"cls\": [\"[CLS]\", 0], "
                              "\"trim_offsets\": true, \"add_prefix_space\": false}";
static const char template[] =
    "{\"type\": \"TemplateProcessing\", \"single\": [" ITEM("[CLS]") ", " TEXT("A", "0") ", " ITEM(
        "[SEP]") "], \"pair\": [" ITEM("[CLS]") ", " TEXT("A",
                                                          "0") ", " ITEM("[SEP]") ", " TEXT("B",
                                                                                            "1") ", " ITEM("[SEP]") "],"
                                                                                                                    " " NAMES
                                                                                                                    "}";
/* The second text first: no frame that could be used. */
static const char swapped[] = "{\"type\": \"TemplateProcessing\", \"single\": [" TEXT("A", "0") "], \"pair\": [" TEXT(
    "B", "0") ", " ITEM("[SEP]") ", " TEXT("A", "0") "], " NAMES "}";

static void expect(const char *post, const char *a, const char *b, size_t limit, const char *want, size_t second) {
    char    text[2048], got[200] = "";
    tok    *t = NULL;
    tok_ids ids = { 0 };
    size_t  at = 99;
    err     e = { 0 };
    snprintf(text, sizeof text, form, post);
    if (tok_open_json(&t, text, strlen(text), &e) < 0) fail_msg("%s", e.msg);
    if (tok_encode_pair(t, view_of(a), view_of(b), limit, &ids, &at, &e) < 0) fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.count; i++) snprintf(got + strlen(got), sizeof got - strlen(got), "%d ", ids.data[i]);
    assert_string_equal(got, want);
    assert_int_equal(at, second);
    tok_ids_deinit(&ids);
    tok_free(t);
}

static void test_frames(void **state) {
    (void)state;
    expect(bert, "a b", "c", 0, "0 2 3 1 4 1 ", 4);
    expect(template, "a b", "c", 0, "0 2 3 1 4 1 ", 4);
    expect(roberta, "a b", "c", 0, "0 2 3 1 1 4 1 ", 0);
    expect(template, "", "", 0, "0 1 1 ", 2);
    expect(swapped, "a", "b", 0, "2 3 ", 0); /* as without a frame: there is nothing around one text */
}

/* The longer text loses its end, one token at a time. */
static void test_limits(void **state) {
    (void)state;
    expect(bert, "a b c", "d", 6, "0 2 3 1 5 1 ", 4);
    expect(bert, "a", "b c d e", 6, "0 2 1 3 4 1 ", 3);
    expect(bert, "a b", "c d", 6, "0 2 3 1 4 1 ", 4);
    expect(bert, "a b", "c d", 1, "0 1 1 ", 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_frames), cmocka_unit_test(test_limits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
