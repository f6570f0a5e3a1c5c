/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures through the public API, with a tiny model that sees (tests/golden/vision) and a vocabulary of single characters:
 * the answer depends on the picture, its prompt has the picture's rows, and what cannot be a picture is refused.
 */
#include "unit/support/letters.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "hearth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDEN HEARTH_SOURCE_DIR "/tests/golden/vision/qwen3_vl"

enum { WIDTH = 64, HEIGHT = 96, ROWS = 6, VOCAB = 160 }; /* squares of 32 pixels */

static const char ASK[] = "[{\"role\": \"user\", \"content\": [{\"type\": \"image\", \"blob\": 0}, "
                          "{\"type\": \"text\", \"text\": \"What?\"}]}]";
static const char BLIND[] = "[{\"role\": \"user\", \"content\": \"What?\"}]";
static const char TEMPLATE[] =
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for x in m['content'] %}"
    "{% if x['type'] == 'image' %}{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ x['text'] }}{% endif "
    "%}"
    "{% endfor %}{% endif %}{% endfor %}";

static char *make_model(void) {
    static const char *const files[] = { "config.json", "preprocessor_config.json", "model.safetensors" };
    static const char *const words[] = { "<|image_pad|>", "<|vision_start|>", "<|vision_end|>" };
    char                    *dir = letters_model(GOLDEN, files, sizeof files / sizeof *files);
    letters_tokenizer(dir, words, sizeof words / sizeof *words, TEMPLATE);
    return dir;
}

static hearth_request request(const char *messages, const hearth_picture *pictures, size_t n) {
    hearth_request q;
    hearth_request_init(&q, sizeof q);
    q.messages = messages;
    q.temperature = 0;
    q.max_tokens = 6;
    q.logprobs = 1;
    q.pictures = pictures;
    q.n_pictures = n;
    return q;
}

/* The log-probabilities of an answer; returns the tokens of its prompt. */
static int ask(hearth_model *m, const hearth_picture *p, float out[6]) {
    hearth_request q = request(ASK, p, 1);
    hearth_error   e;
    hearth_answer *a = hearth_submit(m, &q, &e);
    int            n = 0, prompt = 0;
    if (!a) fail_msg("%s", e.text);
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind == HEARTH_FAILED) fail_msg("%s", ev->text);
        if (ev->kind == HEARTH_STARTED) prompt = ev->prompt_tokens;
        if (ev->kind == HEARTH_TOKEN && n < 6) out[n++] = ev->logprob;
    }
    assert_int_equal(n, 6);
    hearth_answer_free(a);
    return prompt;
}

/* Its only event is a failure, or it is not even taken. */
static void refused(hearth_model *m, hearth_request q, const char *why) {
    hearth_error   e = { 0 };
    hearth_answer *a = hearth_submit(m, &q, &e);
    char           text[512] = "it was answered";
    if (!a) snprintf(text, sizeof text, "%s", e.text);
    for (const hearth_event *ev; a && (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind == HEARTH_FAILED) snprintf(text, sizeof text, "%s", ev->text);
    }
    hearth_answer_free(a);
    if (!strstr(text, why)) fail_msg("'%s' does not say '%s'", text, why);
}

static void test_pictures(void **state) {
    static uint8_t       red[WIDTH * HEIGHT * 3], mixed[WIDTH * HEIGHT * 3];
    hearth_picture       one = { WIDTH, HEIGHT, red }, other = { WIDTH, HEIGHT, mixed }, bad = { WIDTH, -1, red };
    char                *dir = make_model();
    hearth_model_options o;
    hearth_model_info    info;
    hearth_error         e;
    float                a[6], b[6], again[6];
    (void)state;
    for (size_t i = 0; i < sizeof red; i++) {
        red[i] = i % 3 == 0 ? 255 : 0;
        mixed[i] = (uint8_t)(i * 7 % 251);
    }
    hearth_model_options_init(&o, sizeof o);
    o.threads = 1;
    hearth_model *m = hearth_model_open(dir, &o, &e);
    if (!m) fail_msg("%s", e.text);
    hearth_model_describe(m, &info, sizeof info);
    assert_int_equal(info.can_see, 1);
    hearth_request with = request(ASK, &one, 1), without = request(BLIND, NULL, 0);
    int64_t        count = hearth_count(m, &with, &e);
    char          *shown = hearth_render(m, &with, &e);
    assert_non_null(shown);
    assert_int_equal(strncmp(shown, "<|vision_start|><|image_pad|>", 29), 0); /* as the template writes it */
    assert_non_null(strstr(shown, "<|image_pad|><|vision_end|>What?"));
    hearth_text_free(shown);
    assert_int_equal(count, hearth_count(m, &without, &e) + ROWS + 2);
    assert_int_equal(ask(m, &one, a), count);
    ask(m, &other, b);
    ask(m, &one, again);
    assert_memory_equal(a, again, sizeof a);
    assert_memory_not_equal(a, b, sizeof a);
    refused(m, request(ASK, NULL, 0), "bytes of a picture are missing");
    refused(m, request(ASK, &bad, 1), "cannot be taken");
    refused(m, request(ASK, &one, 33), "at most");
    refused(m, request(BLIND, &one, 1), "0 times for 1 pictures");
    hearth_model_free(m);
    o.mmproj = "/nonexistent/mmproj.gguf";
    assert_null(hearth_model_open(dir, &o, &e));
    assert_non_null(strstr(e.text, "nonexistent"));
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pictures) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
