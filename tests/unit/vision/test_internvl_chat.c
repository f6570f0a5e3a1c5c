/* SPDX-License-Identifier: Apache-2.0 */
/*
 * InternVL in its authors' form: the golden models (tests/golden/vision) under their names, queries, keys and values in one
 * matrix, and with a config.json as they write it, give the same rows to the bit; only the word for a picture is another.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "convert/safetensors_writer.h"
#include "media/media.h"
#include "models/list.h"
#include "nn/model.h"
#include "vision/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision/"
#define USUAL "\"ps_version\": \"v2\","

/* A part of a name, and what stands for it there. */
static const char *const parts[][2] = {
    { "vision_tower.", "vision_model." },
    { "encoder.layer.", "encoder.layers." },
    { "embeddings.cls_token", "embeddings.class_embedding" },
    { "embeddings.position_embeddings", "embeddings.position_embedding" },
    { "patch_embeddings.projection", "patch_embedding" },
    { "attention.projection_layer", "attn.proj" },
    { "attention.", "attn." },
    { "layernorm_before", "norm1" },
    { "layernorm_after", "norm2" },
    { "lambda_", "ls" },
    { "multi_modal_projector.layer_norm", "mlp1.0" },
    { "multi_modal_projector.linear_1", "mlp1.1" },
    { "multi_modal_projector.linear_2", "mlp1.3" },
};

static void rename_tensor(const char *name, char *out, size_t bytes) {
    snprintf(out, bytes, "%s", name);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && strncmp(name, "language_model.", 15) != 0; i++) {
        char *at = strstr(out, parts[i][0]), rest[256];
        if (!at) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(parts[i][0]));
        snprintf(at, bytes - (size_t)(at - out), "%s%s", parts[i][1], rest);
    }
}

static void add(safetensors_writer *w, const char *name, const model_tensor *t, const int64_t *dims, const void *data,
                size_t bytes) {
    err e = { 0 };
    assert_int_equal(safetensors_writer_add(w, name, t->type, t->n_dims, dims, data, bytes, &e), 0);
}

/* q, k and v, one below the other. */
static void *add_fused(safetensors_writer *w, const model_file *m, const model_tensor *q, const char *name) {
    uint8_t *all = malloc(3 * q->bytes);
    int64_t  dims[MODEL_MAX_DIMS];
    char     own[256], *at;
    size_t   from = (size_t)(strstr(q->name, "q_proj") - q->name);
    for (size_t i = 0; i < 3; i++) {
        snprintf(own, sizeof own, "%s", q->name);
        own[from] = "qkv"[i];
        memcpy(all + i * q->bytes, model_file_tensor(m, own)->data, q->bytes);
    }
    memcpy(dims, q->dims, sizeof dims);
    dims[q->n_dims - 1] *= 3;
    snprintf(own, sizeof own, "%s", name);
    at = strstr(own, "q_proj");
    memmove(at, "qkv", 3);
    memmove(at + 3, at + 6, strlen(at + 6) + 1);
    add(w, own, q, dims, all, 3 * q->bytes);
    return all;
}

static void write_tensors(const model_file *m, const char *dir) {
    size_t              n = model_file_tensor_count(m);
    void              **kept = calloc(n, sizeof *kept);
    char               *path = path_join(dir, "model.safetensors");
    safetensors_writer *w;
    err                 e = { 0 };
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        bool                tower = strstr(t->name, "vision_tower.") != NULL;
        char                name[256];
        rename_tensor(t->name, name, sizeof name);
        if (tower && (strstr(name, "k_proj") || strstr(name, "v_proj"))) continue;
        if (tower && strstr(name, "q_proj"))
            kept[i] = add_fused(w, m, t, name);
        else
            add(w, name, t, t->dims, t->data, t->bytes);
    }
    if (safetensors_writer_write(w, path, &e) < 0) fail_msg("%s", e.msg);
    safetensors_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
    free(path);
}

static void write_text(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

static void write_config(const char *dir, bool large, const char *more) {
    str s;
    str_init(&s);
    str_printf(
        &s,
        "{\"architectures\": [\"InternVLChatModel\"], \"model_type\": \"internvl_chat\", \"downsample_ratio\": 0.5,"
        " \"dynamic_image_size\": true, \"force_image_size\": 32, \"max_dynamic_patch\": 6,"
        " \"min_dynamic_patch\": 1, %s"
        " \"template\": \"internvl2_5\", \"tie_word_embeddings\": %s,"
        " \"llm_config\": {\"model_type\": \"%s\", \"hidden_size\": 32, \"intermediate_size\": 64,"
        " \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, \"head_dim\": 16,"
        " \"vocab_size\": 160, \"max_position_embeddings\": 512, \"rms_norm_eps\": 1e-06,"
        " \"hidden_act\": \"silu\", \"rope_theta\": 1000000.0},"
        " \"vision_config\": {\"model_type\": \"intern_vit_6b\", \"hidden_size\": 32, \"image_size\": 32,"
        " \"patch_size\": 8, \"intermediate_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 2,"
        " \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-06, \"norm_type\": \"%s\","
        " \"qk_normalization\": %s, \"qkv_bias\": %s}}",
        more, large ? "true" : "false", large ? "qwen3" : "qwen2", large ? "rms_norm" : "layer_norm",
        large ? "true" : "false", large ? "false" : "true");
    write_text(dir, "config.json", str_cstr(&s));
    str_deinit(&s);
    write_text(dir, "preprocessor_config.json",
               "{\"crop_size\": 32, \"do_center_crop\": true, \"do_normalize\": true, \"do_resize\": true,"
               " \"image_mean\": [0.485, 0.456, 0.406], \"image_std\": [0.229, 0.224, 0.225], \"resample\": 3,"
               " \"size\": 32}");
}

static void read_picture(pixels *p) {
    char  *data = NULL;
    size_t bytes;
    err    e = { 0 };
    assert_int_equal(file_read(&data, &bytes, DIR "pictures/d.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(p, data, bytes, &media_default_limits, &e), 0);
    free(data);
}

static vision *open_eyes(const model_file *m) {
    nn_model *model;
    vision   *v;
    err       e = { 0 };
    if (nn_model_open(&model, m, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    if (vision_open(&v, m, NULL, model->dims->n_embd, &(vision_options){ 0 }, &e) < 0) fail_msg("%s", e.msg);
    assert_non_null(v);
    nn_model_free(model);
    return v;
}

static void check(bool large) {
    char              *dir = test_temp_dir();
    model_file        *usual, *own;
    const vision_rows *a, *b;
    pixels             p;
    err                e = { 0 };
    if (model_file_open(&usual, large ? DIR "internvl_6b" : DIR "internvl", &e) < 0) fail_msg("%s", e.msg);
    write_tensors(usual, dir);
    write_config(dir, large, USUAL);
    if (model_file_open(&own, dir, &e) < 0) fail_msg("%s", e.msg);
    vision *one = open_eyes(usual), *two = open_eyes(own);
    assert_string_equal(vision_placeholder(one), "<IMG_CONTEXT>");
    assert_string_equal(vision_placeholder(two), "<image>");
    assert_string_equal(vision_row_word(two), "<IMG_CONTEXT>");
    read_picture(&p);
    assert_int_equal(vision_encode(one, &p, &a, &e), 0);
    assert_int_equal(vision_encode(two, &p, &b, &e), 0);
    assert_int_equal(a->n, 28);
    assert_int_equal(b->n, 28);
    assert_memory_equal(a->data, b->data, (size_t)a->n * (size_t)a->width * sizeof *a->data);
    pixels_deinit(&p);
    vision_free(one);
    vision_free(two);
    model_file_free(own);
    model_file_free(usual);
    test_temp_dir_remove(dir);
}

static void test_same_rows(void **state) { (void)state, check(false), check(true); }

/* What would be computed otherwise is refused by name. */
static void test_refused(void **state) {
    static const char *const more[][2] = { { "\"ps_version\": \"v1\",", "ps_version" },
                                           { USUAL " \"use_thumbnail\": false,", "use_thumbnail" },
                                           { USUAL " \"select_layer\": -4,", "select_layer" } };
    (void)state;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        char       *dir = test_temp_dir();
        model_file *usual, *own;
        vision     *v;
        err         e = { 0 };
        assert_int_equal(model_file_open(&usual, DIR "internvl", &e), 0);
        write_tensors(usual, dir);
        write_config(dir, false, more[i][0]);
        if (model_file_open(&own, dir, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(vision_open(&v, own, NULL, 32, &(vision_options){ 0 }, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.msg, more[i][1]));
        model_file_free(own);
        model_file_free(usual);
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_rows), cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
