/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that hear, with numbers in config.json and preprocessor_config.json that make no sense: they are refused with a
 * sentence, or hear something, and nothing worse; under sanitizers this is worth more. HEARTH_HOSTILE: see hostile.h.
 */
#include "unit/support/hostile.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/hearing/"

enum { WIDTH = 32, ROUNDS = 40 };

static const char *const families[] = { "audioflamingo3", "gemma3n",        "gemma4",       "gemma4_unified",
                                        "glmasr",         "musicflamingo",  "qwen2_5_omni", "qwen2_audio",
                                        "qwen3_asr",      "qwen3_omni_moe", "ultravox",     "voxtral",
                                        "whisper" };
enum { N_FAMILIES = sizeof families / sizeof *families };

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

static bool opens(const char *dir, int round, const void *ctx) {
    err e = { 0 };
    (void)round;
    return listen(dir, ctx, &e);
}

static void test_numbers(void **state) {
    uint64_t random = 7;
    int      rounds = hostile_rounds(ROUNDS, &random);
    char     dir[512];
    sound    sounds[HOSTILE_SOUNDS];
    (void)state;
    hostile_sounds(sounds);
    for (int i = 0; i < N_FAMILIES; i++) {
        snprintf(dir, sizeof dir, DIR "%s", families[i]);
        hostile_learn(dir);
    }
    for (int i = 0; i < N_FAMILIES; i++) {
        bool whole = strcmp(families[i], "ultravox") != 0; /* opens with an mmproj file alone */
        err  e = { 0 };
        snprintf(dir, sizeof dir, DIR "%s", families[i]);
        if (whole && (!listen(dir, sounds, &e) || e.msg[0])) fail_msg("%s: %s", families[i], e.msg);
        assert_true(hostile_dir(dir, rounds, &random, opens, sounds) < rounds); /* something was refused */
    }
    hostile_sounds_free(sounds);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
