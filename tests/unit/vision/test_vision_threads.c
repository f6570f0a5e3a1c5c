/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a picture have the same bits whatever the number of threads: towers of every family (tests/golden/vision). */
#include "base/file.h"
#include "formats/model_file.h"
#include "models/list.h"
#include "nn/model.h"
#include "vision/vision.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

static const char *const families[] = { "gemma3",         "llava",      "idefics3",     "mistral3",
                                        "pixtral",        "qwen2_vl",   "qwen2_5_vl",   "qwen3_vl",
                                        "gemma4",         "qwen3_5",    "gemma4_e",     "gemma4_unified",
                                        "glm4v",          "glm_ocr",    "paddleocr_vl", "ernie4_5_vl_moe",
                                        "internvl",       "aya_vision", "llava_next",   "llava_onevision",
                                        "granite_vision", "janus",      "llama4",       "lfm2_vl",
                                        "kimi_vl",        "kimi_k25",   "minicpmv4_6",  "minicpmv",
                                        "hunyuan_vl",     "ovis2",      "paligemma",    "granite4_vision" };

/* Returns how many values the rows have. */
static size_t encode(const model_file *f, const nn_model *m, const pixels *p, int n_threads, float **out) {
    vision            *v;
    const vision_rows *rows = NULL;
    err                e = { 0 };
    int                rc = vision_open(&v, f, NULL, m->dims->n_embd * m->tape->n_parts,
                                        &(vision_options){ .device = "cpu", .n_threads = n_threads }, &e);
    if (rc == 0) rc = vision_encode(v, p, &rows, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    size_t n = (size_t)rows->n * (size_t)rows->width;
    *out = malloc(n * sizeof **out);
    assert_non_null(*out);
    memcpy(*out, rows->data, n * sizeof **out);
    vision_free(v);
    return n;
}

static void check_family(const char *family) {
    char        path[512];
    model_file *f = NULL;
    nn_model   *m = NULL;
    pixels      p;
    float      *alone;
    err         e = { 0 };
    snprintf(path, sizeof path, "%s/%s", DIR, family);
    if (!dir_exists(path)) {
        print_message("skipped: there is no %s\n", path);
        return;
    }
    int rc = model_file_open(&f, path, &e);
    if (rc == 0) rc = nn_model_open(&m, f, models_list, NULL, &e);
    if (rc == 0) rc = pixels_init(&p, 333, 222, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    for (size_t i = 0; i < pixels_bytes(&p); i++) p.rgb[i] = (uint8_t)(i * 2654435761u >> 24);
    size_t n = encode(f, m, &p, 1, &alone);
    assert_true(n > 0);
    for (int threads = 2; threads <= 5; threads += 3) {
        float *got;
        assert_int_equal(encode(f, m, &p, threads, &got), n);
        assert_memory_equal(got, alone, n * sizeof *got);
        free(got);
    }
    free(alone);
    pixels_deinit(&p);
    nn_model_free(m);
    model_file_free(f);
}

static void test_threads(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) check_family(families[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_threads) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
