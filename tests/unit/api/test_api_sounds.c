/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sounds through the public API, with a tiny model that sees and hears (tests/golden/hearing/gemma4), processors in one file as newer
 * directories have them, and a vocabulary of single characters: the answer depends on the sound and on whether it stands before or
 * behind a picture, the prompt has as many rows, and what cannot be a sound is refused.
 */
#include "unit/support/letters.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "hearth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GOLDENS HEARTH_SOURCE_DIR "/tests/golden/hearing"

enum { VOCAB = 160, SAMPLES = 8200, ROWS = 13, SIDE = 24, TOKENS = 6 }; /* 51 frames; four of them are a row */

#define AUDIO(n) "{\"type\": \"audio\", \"blob\": " #n "}"
#define IMAGE(n) "{\"type\": \"image\", \"blob\": " #n "}"
#define USER(parts) "[{\"role\": \"user\", \"content\": [" parts ", {\"type\": \"text\", \"text\": \"What?\"}]}]"
static const char TEMPLATE[] =
    "{% for m in messages %}{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for x in m['content'] %}"
    "{% if x['type'] == 'image' %}{{ '<|image|>' }}{% elif x['type'] == 'audio' %}{{ '<|audio|>' }}"
    "{% else %}{{ x['text'] }}{% endif %}{% endfor %}{% endif %}{% endfor %}";
static const char *const WORDS[] = { "<|audio|>", "<|audio>", "<audio|>", "<x>", "<|image|>", "<|image>", "<image|>" };
static const char        PROCESSORS[] =
    "{\"image_processor\": {\"image_processor_type\": \"Gemma4ImageProcessor\", \"patch_size\": 4, "
    "\"max_soft_tokens\": 70, "
    "\"pooling_kernel_size\": 3, \"resample\": 3}, \"feature_extractor\": {\"feature_extractor_type\": "
    "\"Gemma4AudioFeatureExtractor\", \"feature_size\": 16, \"per_bin_mean\": null, \"mel_floor\": 0.001, \"dither\": "
    "0.0}}";

static hearth_request request(const char *messages, const hearth_sound *sounds, size_t n) {
    hearth_request q;
    hearth_request_init(&q, sizeof q);
    q.messages = messages;
    q.temperature = 0;
    q.max_tokens = TOKENS;
    q.logprobs = 1;
    q.sounds = sounds;
    q.n_sounds = n;
    return q;
}

/* The log-probabilities of an answer; returns the tokens of its prompt. */
static int ask(hearth_model *m, hearth_request q, float out[TOKENS]) {
    hearth_error   e;
    hearth_answer *a = hearth_submit(m, &q, &e);
    int            n = 0, prompt = 0;
    if (!a) fail_msg("%s", e.text);
    for (const hearth_event *ev; (ev = hearth_next(a, -1)) != NULL;) {
        if (ev->kind == HEARTH_FAILED) fail_msg("%s", ev->text);
        if (ev->kind == HEARTH_STARTED) prompt = ev->prompt_tokens;
        if (ev->kind == HEARTH_TOKEN && n < TOKENS) out[n++] = ev->logprob;
    }
    assert_int_equal(n, TOKENS);
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

static void check_refusals(hearth_model *m, const float *x) {
    hearth_sound none = { x, 0, 16000, 0 }, slow = { x, SAMPLES, 100, 0 }, far = { x, SAMPLES, 16000, 1 };
    hearth_sound nothing = { NULL, SAMPLES, 16000, 0 }, one = { x, SAMPLES, 16000, 0 };
    refused(m, request(USER(AUDIO(0)), NULL, 0), "bytes of a sound are missing");
    refused(m, request(USER(AUDIO(0)), &none, 1), "0 samples cannot be taken");
    refused(m, request(USER(AUDIO(0)), &nothing, 1), "cannot be taken");
    refused(m, request(USER(AUDIO(0)), &slow, 1), "sounds: number 0");
    refused(m, request(USER(AUDIO(0)), &far, 1), "cannot be blob 1 of 1");
    refused(m, request(USER(AUDIO(0)), &one, 33), "32 at most");
    refused(m, request(USER(IMAGE(0)), &one, 1), "picture");
}

/* A sound of twice the rate is nearly the same sound; a picture beside it counts, too, and so does their order. */
static void check_answers(hearth_model *m, const float *x, const float *twice, const uint8_t *rgb) {
    hearth_sound   a = { x, SAMPLES, 16000, 0 }, other = { x + 200, SAMPLES, 16000, 0 };
    hearth_sound   fine = { twice, 2 * SAMPLES, 32000, 0 }, behind = { x, SAMPLES, 16000, 1 };
    hearth_picture p = { SIDE, SIDE, rgb };
    hearth_request q = request(USER(AUDIO(0)), &a, 1), before;
    hearth_error   e;
    float          got[5][TOKENS];
    int            n = ask(m, q, got[0]);
    assert_int_equal(n, strlen("What?") + ROWS + 2);
    assert_int_equal(n, hearth_count(m, &q, &e));
    assert_int_equal(ask(m, request(USER(AUDIO(0)), &other, 1), got[1]), n);
    assert_memory_not_equal(got[0], got[1], sizeof got[0]);
    ask(m, q, got[1]);
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    assert_int_equal(ask(m, request(USER(AUDIO(0)), &fine, 1), got[1]), n);
    assert_true(fabsf(got[1][0] - got[0][0]) < 0.05f);
    q = request(USER(IMAGE(0) ", " AUDIO(1)), &behind, 1);
    before = request(USER(AUDIO(0) ", " IMAGE(1)), &a, 1);
    q.pictures = before.pictures = &p;
    q.n_pictures = before.n_pictures = 1;
    int both = ask(m, q, got[2]);
    assert_true(both > n + 2);
    assert_int_equal(ask(m, before, got[3]), both);
    assert_memory_not_equal(got[2], got[3], sizeof got[2]);
}

static void test_sounds(void **state) {
    static const char *const files[] = { "config.json", "model.safetensors" };
    static float             x[SAMPLES + 200], twice[2 * SAMPLES];
    static uint8_t           rgb[SIDE * SIDE * 3];
    char                    *dir = letters_model(GOLDENS "/gemma4", files, 2);
    hearth_model_options     o;
    hearth_model_info        info;
    hearth_error             e;
    (void)state;
    for (int i = 0; i < SAMPLES + 200; i++) x[i] = 0.4f * sinf((float)i * (0.1f + (float)i * 1e-5f));
    for (int i = 0; i < 2 * SAMPLES; i++) twice[i] = 0.4f * sinf((float)i / 2 * (0.1f + (float)i / 2 * 1e-5f));
    for (size_t i = 0; i < sizeof rgb; i++) rgb[i] = (uint8_t)(i * 7 % 251);
    letters_put(dir, "processor_config.json", PROCESSORS, strlen(PROCESSORS));
    letters_tokenizer(dir, WORDS, sizeof WORDS / sizeof *WORDS, TEMPLATE);
    hearth_model_options_init(&o, sizeof o);
    o.threads = 1;
    hearth_model *m = hearth_model_open(dir, &o, &e);
    if (!m) fail_msg("%s", e.text);
    hearth_model_describe(m, &info, sizeof info);
    assert_int_equal(info.can_see, 1);
    assert_int_equal(info.can_hear, 1);
    check_answers(m, x, twice, rgb);
    check_refusals(m, x);
    hearth_model_free(m);
    test_temp_dir_remove(dir);
}

/* Voxtral as it is published: a vocabulary in tekken.json and no template. */
static const char TEKKEN[] =
    "{\"config\":{\"pattern\":\"\\\\p{L}+|.|\\\\s+\",\"default_vocab_size\":160,\"default_num_special_tokens\":152,"
    "\"version\":\"v11\"},\"vocab\":[{\"rank\":0,\"token_bytes\":\"Vw==\"},{\"rank\":1,\"token_bytes\":\"aA==\"},"
    "{\"rank\":2,\"token_bytes\":\"YQ==\"},{\"rank\":3,\"token_bytes\":\"dA==\"},{\"rank\":4,\"token_bytes\":\"Pw==\"},"
    "{\"rank\":5,\"token_bytes\":\"IA==\"},{\"rank\":6,\"token_bytes\":\"Cg==\"},{\"rank\":7,\"token_bytes\":\"aGE=\"}]"
    ","
    "\"special_tokens\":[{\"rank\":1,\"token_str\":\"<s>\"},{\"rank\":2,\"token_str\":\"</s>\"},"
    "{\"rank\":3,\"token_str\":\"[INST]\"},{\"rank\":4,\"token_str\":\"[/INST]\"},{\"rank\":17,\"token_str\":"
    "\"[SYSTEM_PROMPT]\"},{\"rank\":150,\"token_str\":\"[AUDIO]\"},{\"rank\":151,\"token_str\":\"[BEGIN_AUDIO]\"}]}";

static void test_tekken(void **state) {
    static const char *const files[] = { "config.json", "preprocessor_config.json", "model.safetensors" };
    static float             x[SAMPLES];
    hearth_sound             sound = { x, SAMPLES, 16000, 0 };
    char                    *dir = letters_model(GOLDENS "/voxtral", files, 3);
    hearth_model_info        info;
    hearth_error             e;
    (void)state;
    for (int i = 0; i < SAMPLES; i++) x[i] = 0.4f * sinf((float)i * 0.2f);
    letters_put(dir, "tekken.json", TEKKEN, strlen(TEKKEN));
    hearth_model *m = hearth_model_open(dir, NULL, &e);
    if (!m) fail_msg("%s", e.text);
    hearth_model_describe(m, &info, sizeof info);
    assert_int_equal(info.can_hear, 1);
    hearth_request q = request(USER(AUDIO(0)), &sound, 1);
    char          *shown = hearth_render(m, &q, &e);
    assert_non_null(shown);
    assert_non_null(strstr(shown, "[INST][BEGIN_AUDIO][AUDIO]"));
    assert_non_null(strstr(shown, "[AUDIO]What?[/INST]"));
    hearth_text_free(shown);
    /* <s> [INST] [BEGIN_AUDIO], two pieces of five rows, W ha t ? [/INST] */
    assert_int_equal(hearth_count(m, &q, &e), 3 + 2 * 5 + 5);
    hearth_model_free(m);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sounds), cmocka_unit_test(test_tekken) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
