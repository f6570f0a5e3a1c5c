/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that hear, with numbers in config.json and preprocessor_config.json that make no sense: they are refused with a
 * sentence, or hear something, and nothing worse; under sanitizers this is worth more. HEARTH_HOSTILE: see hostile.h.
 */
#include "unit/support/hostile.h"
#include "unit/support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/hearing/"

enum { WIDTH = 32, ROUNDS = 40 };

static const char *const families[] = { "audioflamingo3", "gemma3n",        "gemma4",       "gemma4_unified",
                                        "glmasr",         "musicflamingo",  "qwen2_5_omni", "qwen2_audio",
                                        "qwen3_asr",      "qwen3_omni_moe", "ultravox",     "voxtral" };
enum { N_FAMILIES = sizeof families / sizeof *families };

static const char *const names[] = { "config.json", "preprocessor_config.json" };

static char *read_text(const char *family, const char *name) {
    char  *text, path[512];
    size_t n;
    err    e = { 0 };
    snprintf(path, sizeof path, DIR "%s/%s", family, name);
    assert_int_equal(file_read(&text, &n, path, 1 << 20, &e), 0);
    return text;
}

/* A directory with its tensors and, at first, its files. */
static char *make_dir(const char *family, char *texts[2]) {
    char *dir = test_temp_dir(), *to = path_join(dir, "model.safetensors"), from[512];
    snprintf(from, sizeof from, DIR "%s/model.safetensors", family);
    assert_int_equal(symlink(from, to), 0);
    for (int i = 0; i < 2; i++) {
        texts[i] = read_text(family, names[i]);
        hostile_write(dir, names[i], texts[i]);
    }
    free(to);
    return dir;
}

static bool listen(const char *dir, const sound *sounds, err *why) {
    hostile_clock c = hostile_begin(dir);
    model_file   *m;
    bool          opened = false;
    if (model_file_open(&m, dir, why) == 0) {
        opened = hostile_hear(m, NULL, WIDTH, sounds, why);
        model_file_free(m);
    }
    hostile_end(&c);
    return opened;
}

static void change(const char *family, const sound *sounds, int rounds, uint64_t *random) {
    char *texts[2], *dir = make_dir(family, texts);
    int   opened = 0;
    err   e = { 0 };
    bool  whole = strcmp(family, "ultravox") != 0; /* opens with an mmproj file alone */
    if (whole && (!listen(dir, sounds, &e) || e.msg[0])) fail_msg("%s: %s", family, e.msg);
    for (int round = 0; round < rounds; round++) {
        int   i = round % 4 == 0;
        char *text = hostile_json(texts[i], random);
        hostile_write(dir, names[i], text);
        free(text);
        opened += listen(dir, sounds, &e);
        hostile_write(dir, names[i], texts[i]);
    }
    assert_true(opened < rounds); /* something was refused */
    for (int i = 0; i < 2; i++) free(texts[i]);
    test_temp_dir_remove(dir);
}

static void test_numbers(void **state) {
    uint64_t random = 7;
    int      rounds = hostile_rounds(ROUNDS, &random);
    sound    sounds[HOSTILE_SOUNDS];
    (void)state;
    hostile_sounds(sounds);
    for (int i = 0; i < 2 * N_FAMILIES; i++) {
        char *text = read_text(families[i / 2], names[i % 2]);
        hostile_learn(text);
        free(text);
    }
    for (int i = 0; i < N_FAMILIES; i++) change(families[i], sounds, rounds, &random);
    hostile_sounds_free(sounds);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
