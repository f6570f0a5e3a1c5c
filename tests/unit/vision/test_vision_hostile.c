/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that see, with numbers in config.json and preprocessor_config.json that make no sense: they are refused, or see
 * something, and nothing worse; under sanitizers this is worth more.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "media/media.h"
#include "vision/vision.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision/"

static const char *const families[] = { "internvl",   "internvl_6b",     "aya_vision",    "cohere2_vision",
                                        "llava_next", "llava_onevision", "vipllava",      "lighton_ocr",
                                        "janus",      "deepseek_vl",     "granite_vision" };
static const char *const values[] = { "0",  "-1",  "1",     "3",    "7",          "1000000", "2147483647", "1e300",
                                      "-3", "0.3", "[1,2]", "null", "4294967297", "{}",      "\"x\"",      "64" };
enum { N_FAMILIES = sizeof families / sizeof *families, N_VALUES = sizeof values / sizeof *values, ROUNDS = 48 };

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static char *read_text(const char *family, const char *name) {
    char  *text = NULL, path[512];
    size_t n;
    err    e = { 0 };
    snprintf(path, sizeof path, "%s%s/%s", DIR, family, name);
    assert_int_equal(file_read(&text, &n, path, 1 << 20, &e), 0);
    return text;
}

/* The beginning of a number at or behind a place, outside of texts. */
static const char *number_at(const char *text, size_t from) {
    bool quoted = false;
    for (const char *s = text; *s; s++) {
        if (*s == '"') quoted = !quoted;
        if (!quoted && (size_t)(s - text) >= from && isdigit((unsigned char)*s)) return s;
    }
    return NULL;
}

static void write_changed(const char *dir, const char *name, const char *text, const char *at, const char *value) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    if (at) {
        size_t n = strspn(at, "0123456789.eE+-");
        fprintf(f, "%.*s%s%s", (int)(at - text), text, value, at + n);
    } else {
        fputs(text, f);
    }
    assert_int_equal(fclose(f), 0);
    free(path);
}

/* Whether it could be opened. */
static bool look(const char *dir, const pixels *p) {
    model_file        *m;
    vision            *v = NULL;
    const vision_rows *rows;
    uint64_t           bytes, on_device;
    err                e = { 0 };
    if (model_file_open(&m, dir, &e) < 0) return false;
    bool measured = vision_measure(&bytes, &on_device, m, NULL, 32, &(vision_options){ 0 }, &e) == 0;
    bool opened = measured && vision_open(&v, m, NULL, 32, &(vision_options){ .n_threads = 1 }, &e) == 0 && v;
    if (opened) {
        str words;
        str_init(&words);
        if (vision_encode(v, p, &rows, &e) == 0 && vision_write(v, p, 0, &words, &e) == 0) assert_true(rows->n > 0);
        str_deinit(&words);
    }
    if (!opened && !e.msg[0]) assert_null(v); /* of another kind now: it has no eyes */
    vision_free(v);
    model_file_free(m);
    return opened;
}

static void change(const char *family, const pixels *p) {
    static const char *const names[] = { "config.json", "preprocessor_config.json" };
    uint32_t                 state = 7;
    int                      opened = 0;
    char                    *texts[2], *dir = test_temp_dir(), from[512], *to = path_join(dir, "model.safetensors");
    snprintf(from, sizeof from, "%s%s/model.safetensors", DIR, family);
    assert_int_equal(symlink(from, to), 0);
    for (int i = 0; i < 2; i++) write_changed(dir, names[i], texts[i] = read_text(family, names[i]), NULL, NULL);
    assert_true(look(dir, p));
    for (int round = 0; round < ROUNDS; round++) {
        int         i = round % 3 == 0;
        const char *at = number_at(texts[i], next(&state) % strlen(texts[i]));
        write_changed(dir, names[i], texts[i], at, values[next(&state) % N_VALUES]);
        opened += look(dir, p);
        write_changed(dir, names[i], texts[i], NULL, NULL);
    }
    assert_true(opened < ROUNDS); /* something was refused */
    for (int i = 0; i < 2; i++) free(texts[i]);
    free(to);
    test_temp_dir_remove(dir);
}

static void test_numbers(void **state) {
    char  *data = NULL;
    size_t n;
    pixels p;
    err    e = { 0 };
    (void)state;
    assert_int_equal(file_read(&data, &n, DIR "pictures/b.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(&p, data, n, &media_default_limits, &e), 0);
    for (int i = 0; i < N_FAMILIES; i++) change(families[i], &p);
    pixels_deinit(&p);
    free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
