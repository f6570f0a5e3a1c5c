/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that see, with numbers in config.json and preprocessor_config.json that make no sense, with tables of positions that
 * are too short, and with pictures that are all length: they are refused, or see something, and nothing worse; under sanitizers
 * this is worth more. HEARTH_HOSTILE: see hostile.h.
 */
#include "unit/support/hostile.h"
#include "unit/support/support.h"

#include "base/file.h"

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
    "llava_next_video", "mistral3",     "pixtral",        "hunyuan_vl",     "qianfan_ocr",    "ovis2",
    "paligemma",        "paligemma2",   "granite4_vision"
};
enum { N_FAMILIES = sizeof families / sizeof *families, ROUNDS = 16 };

static const char *const names[] = { "config.json", "preprocessor_config.json" };

/* Of the rows that the language model takes. */
static int width_of(const char *family) {
    if (strcmp(family, "minicpmv") == 0) return 128;
    if (strcmp(family, "qwen3_omni_moe") == 0) return 64;
    if (strcmp(family, "granite4_vision") == 0) return 7 * 32;
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

/* Whether it could be opened. */
static bool look(const char *dir, int width, const pixels *p, err *why) {
    hostile_clock c = hostile_begin(dir);
    model_file   *m;
    bool          opened = false;
    if (model_file_open(&m, dir, why) == 0) {
        opened = hostile_see(m, NULL, width, p, why);
        model_file_free(m);
    }
    hostile_end(&c);
    return opened;
}

typedef struct sight {
    int           width;
    const pixels *pictures;
} sight;

static bool opens(const char *dir, int round, const void *ctx) {
    const sight *f = ctx;
    err          e = { 0 };
    return look(dir, f->width, &f->pictures[round % HOSTILE_PICTURES], &e);
}

static void test_numbers(void **state) {
    uint64_t random = 7;
    int      rounds = hostile_rounds(ROUNDS, &random);
    char     dir[512];
    pixels   p[HOSTILE_PICTURES];
    (void)state;
    hostile_pictures(p);
    for (int i = 0; i < N_FAMILIES; i++) {
        snprintf(dir, sizeof dir, "%s%s", DIR, families[i]);
        hostile_learn(dir);
    }
    for (int i = 0; i < N_FAMILIES; i++) {
        sight f = { width_of(families[i]), p };
        err   e = { 0 };
        snprintf(dir, sizeof dir, "%s%s", DIR, families[i]);
        for (int k = 0; k < HOSTILE_PICTURES; k++) {
            if (!look(dir, f.width, &p[k], &e)) fail_msg("%s: %s", families[i], e.msg);
        }
        assert_true(hostile_dir(dir, rounds, &random, opens, &f) < rounds); /* something was refused */
    }
    hostile_pictures_free(p);
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
        { "ovis2", "model.vision_tower.transformer.embeddings.position_embedding.weight", "[16,32]", "[ 1,32]", 1,
          NULL },
        { "ovis2", "model.visual_embeddings_table.weight", "[69,32]", "[ 6,32]", 6, NULL },
        { "hunyuan_vl", "vit.embeddings.position_embedding.weight", "[50,32]", "[ 1,32]", 1, NULL },
    };
    pixels p[HOSTILE_PICTURES];
    (void)state;
    hostile_pictures(p);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = test_temp_dir();
        for (int k = 0; k < 2; k++) {
            char *text = read_text(rows[i].family, names[k]);
            hostile_write(dir, names[k], text);
            free(text);
        }
        cut_table(rows[i].family, dir, rows[i].tensor, rows[i].shape, rows[i].other, rows[i].rows);
        for (int k = 0; k < HOSTILE_PICTURES; k++) {
            err  e = { 0 };
            bool opened = look(dir, width_of(rows[i].family), &p[k], &e);
            if (rows[i].says && !(opened && strstr(e.msg, rows[i].says)))
                fail_msg("%s, picture %d: %s", rows[i].family, k, opened ? e.msg : "it was not opened");
        }
        test_temp_dir_remove(dir);
    }
    hostile_pictures_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_numbers), cmocka_unit_test(test_tables) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
