/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that see, with numbers in config.json and preprocessor_config.json that make no sense, with tables of positions that
 * are too short, and with pictures that are all length: they are refused, or see something, and nothing worse; under sanitizers
 * this is worth more.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "media/media.h"
#include "vision/vision.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision/"

static const char *const families[] = {
    "internvl",         "internvl_6b",  "aya_vision",     "cohere2_vision", "llava_next",     "llava_onevision",
    "vipllava",         "lighton_ocr",  "janus",          "deepseek_vl",    "granite_vision", "gemma3",
    "gemma4",           "gemma4_e",     "gemma4_unified", "llama4",         "lfm2_vl",        "kimi_vl",
    "kimi_k25",         "minicpmv",     "minicpmv4_6",    "glm4v",          "glm4v_moe",      "glm_ocr",
    "ernie4_5_vl_moe",  "paddleocr_vl", "video_llama_3",  "qwen2_vl",       "qwen2_5_vl",     "qwen2_5_omni",
    "qwen3_vl",         "qwen3_5",      "qwen3_omni_moe", "exaone4_5",      "idefics3",       "llava",
    "llava_next_video", "mistral3",     "pixtral"
};
static const char *const values[] = {
    "0",    "-1", "1",   "3",    "7",     "28",   "56",    "64",      "-3",    "0.3",        "[1,2]",
    "null", "{}", "768", "1024", "16384", "4096", "\"x\"", "1000000", "1e300", "4294967297", "2147483647",
};
enum {
    N_FAMILIES = sizeof families / sizeof *families,
    N_VALUES = sizeof values / sizeof *values,
    ROUNDS = 16,
    N_PICTURES = 3,
    MOST_ROWS = 1000
};

static uint32_t next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Of the rows that the language model takes. */
static int width_of(const char *family) {
    if (strcmp(family, "minicpmv") == 0) return 128;
    if (strcmp(family, "qwen3_omni_moe") == 0) return 64;
    return strcmp(family, "qwen3_vl") == 0 ? 96 : 32;
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
static bool look(const char *dir, int width, const pixels *p, err *why) {
    model_file        *m;
    vision            *v = NULL;
    const vision_rows *rows;
    uint64_t           bytes, on_device;
    err                e = { 0 };
    if (model_file_open(&m, dir, &e) < 0) return false;
    bool measured = vision_measure(&bytes, &on_device, m, NULL, width, &(vision_options){ 0 }, &e) == 0;
    bool opened = measured && vision_open(&v, m, NULL, width, &(vision_options){ .n_threads = 1 }, &e) == 0 && v;
    if (opened) {
        str words;
        str_init(&words);
        bool written = vision_write(v, p, 0, &words, &e) == 0;
        /* Larger ones make sense, and take a while to look at. */
        if (written && vision_most_rows(v) <= MOST_ROWS && vision_encode(v, p, &rows, &e) == 0)
            assert_true(rows->n > 0);
        str_deinit(&words);
    }
    if (!opened && !e.msg[0]) assert_null(v); /* of another kind now: it has no eyes */
    vision_free(v);
    model_file_free(m);
    if (why) *why = e;
    return opened;
}

static void change(const char *family, const pixels *pictures) {
    static const char *const names[] = { "config.json", "preprocessor_config.json" };
    uint32_t                 state = 7;
    int                      opened = 0;
    char                    *texts[2], *dir = test_temp_dir(), from[512], *to = path_join(dir, "model.safetensors");
    snprintf(from, sizeof from, "%s%s/model.safetensors", DIR, family);
    assert_int_equal(symlink(from, to), 0);
    for (int i = 0; i < 2; i++) write_changed(dir, names[i], texts[i] = read_text(family, names[i]), NULL, NULL);
    for (int i = 0; i < N_PICTURES; i++) {
        err e = { 0 };
        if (!look(dir, width_of(family), &pictures[i], &e)) fail_msg("%s: %s", family, e.msg);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int         i = round % 3 == 0;
        const char *at = number_at(texts[i], next(&state) % strlen(texts[i]));
        write_changed(dir, names[i], texts[i], at, values[next(&state) % N_VALUES]);
        opened += look(dir, width_of(family), &pictures[round % N_PICTURES], NULL);
        write_changed(dir, names[i], texts[i], NULL, NULL);
    }
    assert_true(opened < ROUNDS); /* something was refused */
    for (int i = 0; i < 2; i++) free(texts[i]);
    free(to);
    test_temp_dir_remove(dir);
}

static void make_pictures(pixels p[N_PICTURES]) {
    static const int sizes[][2] = { { 2000, 1 }, { 1, 2000 } };
    char            *data = NULL;
    size_t           n;
    err              e = { 0 };
    assert_int_equal(file_read(&data, &n, DIR "pictures/b.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(&p[0], data, n, &media_default_limits, &e), 0);
    free(data);
    for (int i = 0; i < 2; i++) assert_int_equal(pixels_init(&p[i + 1], sizes[i][0], sizes[i][1], &e), 0);
}

static void free_pictures(pixels p[N_PICTURES]) {
    for (int i = 0; i < N_PICTURES; i++) pixels_deinit(&p[i]);
}

static void test_numbers(void **state) {
    pixels p[N_PICTURES];
    (void)state;
    make_pictures(p);
    for (int i = 0; i < N_FAMILIES; i++) change(families[i], p);
    free_pictures(p);
}

/* A copy of a family whose tensor has another number (as many digits) at a place of its shape, and as many bytes as go with it. */
static void cut_table(const char *family, const char *dir, const char *tensor, const char *shape, const char *other,
                      size_t rows) {
    char    path[512], *data, *copy = path_join(dir, "model.safetensors"), key[128];
    size_t  n;
    err     e = { 0 };
    int64_t from = 0, to = 0;
    snprintf(path, sizeof path, "%s%s/model.safetensors", DIR, family);
    assert_int_equal(file_read(&data, &n, path, 16 << 20, &e), 0);
    snprintf(key, sizeof key, "\"%s\":", tensor);
    char *at = memmem(data, n, key, strlen(key));
    assert_non_null(at);
    char *dims = strstr(at, shape), *ends = strstr(at, "\"data_offsets\":[");
    assert_true(dims && ends && strlen(shape) == strlen(other));
    memcpy(dims, other, strlen(other));
    assert_int_equal(sscanf(ends, "\"data_offsets\":[%" SCNd64 ",%" SCNd64, &from, &to), 2);
    char *last = strchr(ends, ',') + 1, text[32];
    int   digits = (int)(strchr(last, ']') - last);
    snprintf(text, sizeof text, "%*" PRId64, digits, from + (int64_t)rows * 32 * 2);
    memcpy(last, text, (size_t)digits);
    FILE *f = fopen(copy, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(copy);
    free(data);
}

/* Fewer positions than a picture has patches. */
static void test_tables(void **state) {
    static const struct {
        const char *family, *tensor, *shape, *other;
        size_t      rows;
        const char *says; /* NULL: whatever comes of it */
    } rows[] = {
        { "gemma4_unified", "model.vision_embedder.pos_embedding", "[80,2,32]", "[ 2,2,32]", 4, "positions for 2 x 2" },
        { "gemma4", "model.vision_tower.patch_embedder.position_embedding_table", "[2,128,32]", "[2,  3,32]", 6,
          "positions for 3 x 3" },
        { "kimi_vl", "vision_tower.patch_embed.pos_emb.weight", "[6,6,32]", "[1,1,32]", 1, NULL },
        { "minicpmv", "vpm.embeddings.position_embedding.weight", "[36,32]", "[ 1,32]", 1, NULL },
        { "lfm2_vl", "model.vision_tower.embeddings.position_embedding.weight", "[16,32]", "[ 0,32]", 0, NULL },
        { "paddleocr_vl", "visual.vision_model.embeddings.position_embedding.weight", "[16,32]", "[ 3,32]", 3, NULL },
        { "llava", "vision_tower.embeddings.position_embedding.weight", "[17,32]", "[ 5,32]", 5, NULL },
    };
    pixels p[N_PICTURES];
    (void)state;
    make_pictures(p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        static const char *const names[] = { "config.json", "preprocessor_config.json" };
        char                    *dir = test_temp_dir();
        for (int k = 0; k < 2; k++) {
            char *text = read_text(rows[i].family, names[k]);
            write_changed(dir, names[k], text, NULL, NULL);
            free(text);
        }
        cut_table(rows[i].family, dir, rows[i].tensor, rows[i].shape, rows[i].other, rows[i].rows);
        for (int k = 0; k < N_PICTURES; k++) {
            err  e = { 0 };
            bool opened = look(dir, width_of(rows[i].family), &p[k], &e);
            if (rows[i].says && !(opened && strstr(e.msg, rows[i].says)))
                fail_msg("%s, picture %d: %s", rows[i].family, k, opened ? e.msg : "it was not opened");
        }
        test_temp_dir_remove(dir);
    }
    free_pictures(p);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers), cmocka_unit_test(test_tables) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
