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
    { "paddleocr_vl", CONFIG, "\"hidden_size\": 32,\n    \"intermediate_size\": 56",
      "\"hidden_size\": 7, \"intermediate_size\": 56", "2 heads" },
    { "paddleocr_vl", CONFIG, "\"hidden_size\": 32,\n    \"intermediate_size\": 56",
      "\"hidden_size\": 4, \"intermediate_size\": 56", "heads of 2" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\"", "\"sections\"", "mrope_section" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [", "\"xdrope_section\": [1,", "rotary sections" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [", "\"xdrope_section\": [0,", "rotary sections" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [\n      2", "\"xdrope_section\": [3", "rotary sections" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [\n      2", "\"xdrope_section\": [1", "rotary sections" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [\n      2", "\"xdrope_section\": [0", "rotary sections" },
    { "hunyuan_vl", CONFIG, "\"xdrope_section\": [\n      2", "\"xdrope_section\": [1e300", "xdrope_section" },
    { "hunyuan_vl", CONFIG, "\"xdrope\"", "\"ydrope\"", "ydrope" },
    { "hunyuan_vl", CONFIG, "\"use_qk_norm\": true", "\"use_qk_norm\": false", "use_qk_norm" },
    { "hunyuan_vl", CONFIG, "\"num_experts\": 1", "\"num_experts\": 2", "num_experts" },
    { "hunyuan_vl", CONFIG, "\"use_cla\": false", "\"use_cla\": true", "use_cla" },
    { "hunyuan_vl", CONFIG, "\"norm_type\": \"rms\"", "\"norm_type\": \"fused\"", "norm_type" },
    { "hunyuan_vl", CONFIG, "\"bilinear\"", "\"nearest\"", "interpolate_mode" },
    { "hunyuan_vl", CONFIG, "\"temporal_patch_size\": 1", "\"temporal_patch_size\": 2", "temporal_patch_size" },
    { "hunyuan_vl", CONFIG, "\"max_image_size\": 56", "\"max_image_size\": 64", "position_embedding" },
    { "hunyuan_vl", CONFIG, "\"spatial_merge_size\": 2", "\"spatial_merge_size\": 4", "proj" },
    { "hunyuan_vl", PICTURES, "\"min_pixels\": 1024", "\"min_pixels\": 1024000", "do not fit" },
    { "qianfan_ocr", CONFIG, "\"vision_feature_layer\": -1", "\"vision_feature_layer\": -2", "vision_feature_layer" },
    { "qianfan_ocr", PICTURES, "\"height\": 32", "\"height\": 64", "tiles of 64 pixels" },
    { "qianfan_ocr", PICTURES, "\"max_patches\": 6", "\"max_patches\": 65", "1 to 65 tiles" },
    { "ovis2", CONFIG, "\"softmax\"", "\"st_argmax\"", "tokenize_function" },
    { "ovis2", CONFIG, "\"num_visual_indicator_tokens\": 5", "\"num_visual_indicator_tokens\": 4",
      "num_visual_indicator_tokens" },
    { "ovis2", CONFIG, "\"hidden_stride\": 2", "\"hidden_stride\": 3", "do not fit" },
    { "ovis2", CONFIG, "\"hidden_stride\": 2", "\"hidden_stride\": 4", "head_linear" },
    { "ovis2", CONFIG, "\"vocab_size\": 69", "\"vocab_size\": 70", "head_linear" },
    { "ovis2", CONFIG, "\"vocab_size\": 69", "\"vocab_size\": 5", "5 visual words" },
    { "ovis2", CONFIG, "\"image_size\": 32", "\"image_size\": 40", "tower of 40" },
    { "ovis2", PICTURES, "\"max_patches\": 9", "\"max_patches\": 65", "1 to 65 tiles" },
    { "ovis2", PICTURES, "\"max_patches\": 9", "\"do_center_crop\": true", "do_center_crop" },
    { "video_llama_3", PICTURES, "\"merge_size\": 1", "\"merge_size\": 2", "merge_size" },
    { "gemma4", CONFIG, "\"patch_size\": 4", "\"patch_size\": 256", "pixels; up to 33554432" },
    { "exaone4_5", CONFIG, "\"window_size\": 56", "\"window_size\": 14", "window_size" },
    { "qwen3_omni_moe", CONFIG, "\"num_position_embeddings\": 16", "\"num_position_embeddings\": 15",
      "num_position_embeddings" },
    { "ernie4_5_vl_moe", CONFIG, "\"temporal_merge_size\": 2", "\"temporal_merge_size\": 3", "temporal_merge_size" },
    { "ernie4_5_vl_moe", CONFIG, "\"moe_num_experts\": 4", "\"moe_num_experts\": 5", "gate.weight" },
    { "ernie4_5_vl_moe", CONFIG, "\"mrope_section\": [", "\"mrope_section\": [9,", "rotary sections" },
    { "ernie4_5_vl_moe", CONFIG, "\"mrope_section\": [", "\"mrope_section\": [1e300,", "rotary sections" },
    { "ernie4_5_vl_moe", CONFIG, "\"moe_intermediate_size\": [", "\"moe_intermediate_size\": [1e300,", "widths" },
    { "qwen3_vl", CONFIG, "\"vocab_size\": ", "\"vocab_size\": 900000000000000, \"other\": ", "vocabulary" },
    /* 2^33 x 2^31 tiles: their product is 0 in 64 bits. */
    { "llava_next", CONFIG, "\"image_grid_pinpoints\": [", "\"image_grid_pinpoints\": [[240518168576, 60129542144],",
      "image_grid_pinpoints" },
    { "llava_onevision", CONFIG, "anyres_max_2", "anyres_max_999999999999999999999", "vision_aspect_ratio" },
    { "llava_onevision", CONFIG, "anyres_max_2", "anyres_max_4294967298", "vision_aspect_ratio" },
    { "llava_onevision", CONFIG, "anyres_max_2", "anyres_max_2x", "vision_aspect_ratio" },
    { "lfm2_vl", PICTURES, "\"tile_size\": 16", "\"tile_size\": 16384", "patches" },
    { "lfm2_vl", PICTURES, "\"downsample_factor\": 2", "\"downsample_factor\": 4096", "fit" },
    { "minicpmv", PICTURES, "\"scale_resolution\": 16", "\"scale_resolution\": 16384", "patches" },
    { "minicpmv4_6", PICTURES, "\"scale_resolution\": 32", "\"scale_resolution\": 16384", "patches" },
    { "gemma4", PICTURES, "\"max_soft_tokens\": 70,\n  \"pooling_kernel_size\": 3",
      "\"max_soft_tokens\": 4096, \"pooling_kernel_size\": 16", "patches" },
    { "idefics3", PICTURES, "\"size\": {\n    \"longest_edge\": 64", "\"size\": { \"longest_edge\": 4096", "tiles" },
    { "idefics3", PICTURES, "\"longest_edge\": 64", "\"longest_edge\": 100000", "longer side" },
    { "pixtral", PICTURES, "\"longest_edge\": 64", "\"longest_edge\": 100000", "longer side" },
    { "janus", PICTURES, "\"image_mean\": [", "\"image_mean\": [1e300,", "image_mean" },
    { "llava", PICTURES, "\"height\": 56", "\"height\": 28", "crop_size" },
    { "llava", PICTURES, "\"do_center_crop\": true", "\"do_center_crop\": false", "do_center_crop" },
    { "llava", PICTURES, "\"shortest_edge\": 56", "\"height\": 56, \"width\": 28", "of a square" },
    { "gemma4", PICTURES, "\"image_std\": [\n    1.0", "\"do_normalize\": true, \"image_std\": [\n 0.5",
      "do_normalize" },
    { "paligemma", PICTURES, "\"height\": 56", "\"height\": 70", "size is 56 x 70" },
    { "paligemma", PICTURES, "\"image_seq_length\": 16", "\"image_seq_length\": 256", "image_seq_length is 256" },
    { "paligemma", PICTURES, "\"image_seq_length\": 16", "\"image_seq_length\": -1", "image_seq_length" },
    { "paligemma", CONFIG, "\"image_size\": 56", "\"other\": 56", "for a tower of 224" },
    { "paligemma2", CONFIG, "\"model_type\": \"gemma2\"", "\"model_type\": \"gemma9\"",
      "\"paligemma\" is not supported" },
    { "granite4_vision", CONFIG, "\"2/4\"", "\"3/4\"", "downsample_rate is 3/4" },
    { "granite4_vision", CONFIG, "\"2/4\"", "\"2/4x\"", "downsample_rate" },
    { "granite4_vision", CONFIG, "\"2/4\"", "\"3/6\"", "windows of 6" },
    { "granite4_vision", CONFIG, "\"2/4\"", "\"1000000000/2000000000\"", "downsample_rate" },
    { "granite4_vision", CONFIG, "\"num_hidden_layers\": 1,", "\"num_hidden_layers\": 2,", "qformer_config" },
    { "granite4_vision", CONFIG, "\"encoder_hidden_size\": 32", "\"encoder_hidden_size\": 48", "qformer_config" },
    { "granite4_vision", CONFIG, "\"blip_2_qformer\"", "\"blip_3_qformer\"", "qformer_config" },
    { "granite4_vision", CONFIG, "\"spatial_vision_layer\": -1", "\"spatial_vision_layer\": 7",
      "vision_feature_layer is 7" },
    { "granite4_vision", CONFIG, "\"spatial_target_layers\": [", "\"spatial_target_layers\": [3,", "entries" },
    { "granite4_vision", CONFIG, "\"deepstack_layer_map\": [", "\"deepstack_layer_map\": [[-1, 3],", "named twice" },
    { "granite4_vision", CONFIG, "\"deepstack_layer_map\": [", "\"deepstack_layer_map\": [[-1, 6],", "layer 6 of 6" },
    { "granite4_vision", CONFIG, "\"deepstack_layer_map\": [", "\"deepstack_layer_map\": [[1e30, 3e9],", "layer" },
    { "granite4_vision", CONFIG, "\"full\"", "\"default\"", "vision_feature_select_strategy" },
    { "granite4_vision", CONFIG, "\"deepstack_layer_map\"", "\"map\"", "deepstack_layer_map" },
    { "llama4", PICTURES, "\"do_normalize\": true", "\"do_normalize\": false", "do_normalize" },
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

/* says NULL: it opens. */
static void check(const char *family, const char *file, const char *was, const char *is, const char *says) {
    char *dir = test_temp_dir(), *to = path_join(dir, "model.safetensors"), from[512];
    bool  config = strcmp(file, CONFIG) == 0;
    err   e = { 0 };
    snprintf(from, sizeof from, "%s/%s/model.safetensors", DIR, family);
    assert_int_equal(symlink(from, to), 0);
    copy_edited(family, dir, CONFIG, config ? was : NULL, is);
    copy_edited(family, dir, PICTURES, config ? NULL : was, is);
    int rc = open_both(dir, &e);
    if (rc == 0 && says) fail_msg("%s with %s opened", family, is);
    if (rc < 0 && !(says && strstr(e.msg, says))) fail_msg("%s with %s: %s", family, is, e.msg);
    free(to);
    test_temp_dir_remove(dir);
}

static void test_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(rows[i].family, rows[i].file, rows[i].from, rows[i].to, rows[i].says);
}

#define FACTOR "\"rescale_factor\": 0.00392156862745098"

/* Switches of processors that change pixels, where the reference heeds them; the authors' own code does not have them. */
static void test_switches(void **state) {
    static const char *const heed[] = { "gemma3",       "gemma4",        "gemma4_unified", "llava",
                                        "idefics3",     "pixtral",       "qwen2_5_vl",     "glm4v",
                                        "paddleocr_vl", "video_llama_3", "lfm2_vl",        "kimi_k25",
                                        "minicpmv4_6",  "llama4",        "janus",          "internvl",
                                        "llava_next",   "aya_vision",    "cohere2_vision", "hunyuan_vl",
                                        "qianfan_ocr",  "ovis2",         "paligemma" };
    static const char *const fixed[] = { "internvl",       "llava_next", "llava_onevision", "aya_vision",
                                         "cohere2_vision", "lfm2_vl",    "qianfan_ocr",     "ovis2" };
    static const char *const foreign[] = { "kimi_vl", "minicpmv" };
    (void)state;
    for (size_t i = 0; i < sizeof heed / sizeof *heed; i++) {
        bool anyway = false; /* pictures get their size whatever the switch says */
        for (size_t k = 0; k < sizeof fixed / sizeof *fixed; k++) anyway = anyway || strcmp(heed[i], fixed[k]) == 0;
        check(heed[i], PICTURES, "\"do_rescale\": true", "\"do_rescale\": false", "do_rescale");
        check(heed[i], PICTURES, FACTOR, "\"rescale_factor\": 0.00784313725490196", "rescale_factor");
        check(heed[i], PICTURES, FACTOR, "\"rescale_factor\": 0.003921569", NULL);
        check(heed[i], PICTURES, "\"do_resize\": true", "\"do_resize\": false", anyway ? NULL : "do_resize");
    }
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        check(foreign[i], PICTURES, "{", "{\"do_rescale\": false, \"do_resize\": false,", NULL);
    check("gemma4", PICTURES, "\"do_normalize\": false", "\"do_normalize\": true", NULL); /* by 0 and 1 */
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_refused), cmocka_unit_test(test_switches) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
