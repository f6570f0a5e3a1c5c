/* SPDX-License-Identifier: Apache-2.0 */
/* Words with marks of time become pieces and subtitles; whatever a model says, moments rise and nothing is lost. */
#include "unit/support/support.h"

#include "server/openai/times.h"

#include <stdio.h>
#include <string.h>

/* "begin end text|" for each piece. */
static void expect_pieces(const char *told, double seconds, const char *want, const char *language) {
    times t;
    str   got;
    str_init(&got);
    times_read(&t, view_of(told), seconds);
    assert_false(t.failed);
    for (size_t i = 0; i < t.n; i++)
        str_printf(&got, "%g %g%.*s|", t.pieces[i].begin, t.pieces[i].end, (int)t.pieces[i].text.len,
                   t.pieces[i].text.data);
    assert_string_equal(str_cstr(&got), want);
    assert_true(view_eq_c(t.language, language));
    str_deinit(&got);
    times_deinit(&t);
}

static void test_pieces(void **state) {
    (void)state;
    expect_pieces("", 3, "", "");
    expect_pieces("<|+0.000|><|0.00|> So it is.<|1.20|><|1.20|> And was.<|2.00|>", 3, "0 1.2 So it is.|1.2 2 And was.|",
                  "");
    expect_pieces("<|+0.000|><|en|><|transcribe|><|0.50|> a<|1.00|><|+27.300|><|0.20|> b<|1.00|>", 30,
                  "0.5 1 a|27.5 28.3 b|", "en");
    expect_pieces("<|+0.000|><|yue|><|translate|> no moment", 2.5, "0 2.5 no moment|", "yue");
    expect_pieces("<|+0.000|><|1.00|> open", 4, "1 4 open|", ""); /* the sound ends it, */
    expect_pieces("<|+0.000|><|1.00|> open<|+2.000|><|0.00|> next", 4, "1 2 open|2 4 next|",
                  "");                                                                  /* or the next part does */
    expect_pieces("<|+0.000|><|1.00|> late", 0.5, "1 1 late|", "");                     /* behind the sound's end */
    expect_pieces("<|+0.000|><|1.00|><|2.00|><|2.50|> a<|1.00|>", 4, "2.5 2.5 a|", ""); /* backwards */
    expect_pieces("<|+0.000|><|0.00|>   <|1.00|> a<|2.00|>", 4, "1 2 a|", "");
    /* What looks like a mark and is none is text. */
    expect_pieces("<|+0.000|><|0.00|> a <|en|> b<|1.00|>", 4, "0 1 a <|en|> b|", "");
    expect_pieces("<|0.00|> <|1.2.3|><|x1|><|<||><|.5|><|5|><|5.|> <|<|1.00|>", 4,
                  "0 1 <|1.2.3|><|x1|><|<||><|.5|><|5|><|5.|> <||", "");
    expect_pieces("<|0.00|> a<|1.00", 4, "0 4 a<|1.00|", "");
    expect_pieces("<|99999999999999999999.00|>a<|", 4, "0 4<|99999999999999999999.00|>a<||", "");
}

static void test_subtitles(void **state) {
    const char *told = "<|+3599.900|><|0.00|> one\n\ntwo --> three<|0.15|><|0.15|> four<|61.00|>";
    times       t;
    str         out;
    (void)state;
    str_init(&out);
    times_read(&t, view_of(told), 4000);
    times_put_srt(&t, &out);
    assert_string_equal(
        str_cstr(&out),
        "1\n00:59:59,900 --> 01:00:00,050\none  two -> three\n\n2\n01:00:00,050 --> 01:01:00,900\nfour\n\n");
    str_clear(&out);
    times_put_vtt(&t, &out);
    assert_string_equal(
        str_cstr(&out),
        "WEBVTT\n\n00:59:59.900 --> 01:00:00.050\none  two -> three\n\n01:00:00.050 --> 01:01:00.900\nfour\n\n");
    str_clear(&out);
    times_put_text(&t, &out);
    assert_string_equal(str_cstr(&out), "one\n\ntwo --> three four");
    str_deinit(&out);
    times_deinit(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pieces), cmocka_unit_test(test_subtitles) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
