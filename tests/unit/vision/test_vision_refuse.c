/* SPDX-License-Identifier: Apache-2.0 */
/* What is not known of a model that sees is refused, and the message names it: golden models (tests/golden/vision) with
 * a word of their files changed. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "models/list.h"
#include "nn/model.h"
#include "vision/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"
#define CONFIG "config.json"
#define PICTURES "preprocessor_config.json"

static const struct {
    const char *family, *file, *from, *to, *says;
} rows[] = {
    { "glm4v", CONFIG, "\"spatial_merge_size\": 2", "\"spatial_merge_size\": 4", "downsample" },
    { "glm4v", CONFIG, "\"temporal_patch_size\": 2", "\"temporal_patch_size\": 1", "temporal_patch_size" },
    { "glm4v", CONFIG, "\"out_hidden_size\": 32", "\"out_hidden_size\": 48", "downsample" },
    { "glm4v", CONFIG, "\"image_size\": 56", "\"image_size\": 70", "position_embedding" },
    { "glm4v", CONFIG, "\"num_heads\": 2", "\"num_heads\": 3", "heads" },
    { "glm4v", CONFIG, "\"mrope_section\"", "\"sections\"", "mrope_section" },
    { "glm4v_moe", CONFIG, "\"mrope_section\"", "\"sections\"", "mrope_section" },
    { "glm4v", PICTURES, "\"shortest_edge\": 6272", "\"shortest_edge\": 62720000", "do not fit" },
    { "glm4v", PICTURES, "\"resample\": 3", "\"resample\": 5", "resample" },
    { "paddleocr_vl", CONFIG, "\"spatial_merge_size\": 2", "\"spatial_merge_size\": 0", "squares of" },
    { "paddleocr_vl", CONFIG, "\"gelu_pytorch_tanh\"", "\"gelu_new_kind\"", "hidden_act" },
    { "video_llama_3", PICTURES, "\"merge_size\": 1", "\"merge_size\": 2", "merge_size" },
    { "exaone4_5", CONFIG, "\"window_size\": 56", "\"window_size\": 14", "window_size" },
    { "qwen3_omni_moe", CONFIG, "\"num_position_embeddings\": 16", "\"num_position_embeddings\": 15",
      "num_position_embeddings" },
    { "ernie4_5_vl_moe", CONFIG, "\"temporal_merge_size\": 2", "\"temporal_merge_size\": 3", "temporal_merge_size" },
    { "ernie4_5_vl_moe", CONFIG, "\"moe_num_experts\": 4", "\"moe_num_experts\": 5", "gate.weight" },
    { "ernie4_5_vl_moe", CONFIG, "\"mrope_section\": [", "\"mrope_section\": [9,", "rotary sections" },
};

static void copy_edited(const char *family, const char *dir, const char *name, const char *from, const char *to) {
    char   path[512], *text;
    size_t n;
    err    e = { 0 };
    str    out;
    snprintf(path, sizeof path, "%s/%s/%s", DIR, family, name);
    assert_int_equal(file_read(&text, &n, path, 1 << 20, &e), 0);
    const char *at = strstr(text, from ? from : "");
    if (!at) fail_msg("%s has no %s", path, from);
    str_init(&out);
    str_printf(&out, "%.*s%s%s", (int)(at - text), text, from ? to : "", at + (from ? strlen(from) : 0));
    char *copy = path_join(dir, name);
    FILE *f = fopen(copy, "w");
    assert_non_null(f);
    assert_int_equal(fputs(str_cstr(&out), f) < 0, 0);
    assert_int_equal(fclose(f), 0);
    str_deinit(&out);
    free(copy);
    free(text);
}

/* The message of the language model or of the eyes, whichever refuses. */
static int open_both(const char *dir, err *e) {
    model_file *f;
    nn_model   *m = NULL;
    vision     *v = NULL;
    int         rc = model_file_open(&f, dir, e);
    assert_int_equal(rc, 0);
    rc = nn_model_open(&m, f, models_list, NULL, e);
    if (rc == 0) rc = vision_open(&v, f, NULL, m->dims->n_embd * m->tape->n_parts, &(vision_options){ 0 }, e);
    vision_free(v);
    nn_model_free(m);
    model_file_free(f);
    return rc;
}

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *dir = test_temp_dir(), *to = path_join(dir, "model.safetensors"), from[512];
        bool  config = strcmp(rows[i].file, CONFIG) == 0;
        err   e = { 0 };
        snprintf(from, sizeof from, "%s/%s/model.safetensors", DIR, rows[i].family);
        assert_int_equal(symlink(from, to), 0);
        copy_edited(rows[i].family, dir, CONFIG, config ? rows[i].from : NULL, rows[i].to);
        copy_edited(rows[i].family, dir, PICTURES, config ? NULL : rows[i].from, rows[i].to);
        if (open_both(dir, &e) == 0) fail_msg("%s with %s opened", rows[i].family, rows[i].to);
        if (!strstr(e.msg, rows[i].says)) fail_msg("%s with %s: %s", rows[i].family, rows[i].to, e.msg);
        free(to);
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
