/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file leaves out means what its reference says: transformers' classes where config.json is silent, llama.cpp where a
 * GGUF file has no key. Two files that mean the same record the same tape.
 */
#include "base/file.h"
#include "base/str.h"
#include "convert/export.h"
#include "models/list.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- config.json ------------------------------------------------------------------------------------------------ */

/* Where the first text stands both others mean the same. */
static const struct {
    const char *model, *old, *said, *silent;
} pairs[] = {
    { "deepseek_v32", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.5", "\"x\": 0" },
    { "glm_moe_dsa", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.5", "\"x\": 0" },
    { "deepseek_v3", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.5", "\"x\": 0" },
    { "axk1", "\"routed_scaling_factor\": 2.5", "\"routed_scaling_factor\": 2.5", "\"x\": 0" },
    { "glm4_moe_lite", "\"routed_scaling_factor\": 1.8", "\"routed_scaling_factor\": 1.8", "\"x\": 0" },
    { "minimax_m3_chosen", "\"routed_scaling_factor\": 2.0", "\"routed_scaling_factor\": 2.0", "\"x\": 0" },
    { "deepseek_v32", "\"n_group\": 4,\n  \"topk_group\": 2", "\"n_group\": 8, \"topk_group\": 4", "\"x\": 0" },
    { "deepseek_v32", "\"n_group\": 4,\n  \"topk_group\": 2", "\"n_group\": 1, \"topk_group\": 1",
      "\"n_group\": null, \"topk_group\": null" },
    { "glm_moe_dsa", "\"n_group\": 1,\n  \"topk_group\": 1", "\"n_group\": 1, \"topk_group\": 1", "\"x\": 0" },
    { "step3p5", "    0.0,\n    0.0,\n    0.6", "    0.0,\n    0.0,\n    0.6", "    null,\n    null,\n    0.6" },
    { "minimax_m3_chosen", "\"sparse_local_block\": 1", "\"sparse_local_block\": 1",
      "\"sparse_local_block\": 1, \"sparse_init_block\": 0, \"sparse_score_type\": \"max\", "
      "\"sparse_disable_index_value\": [0, 1, 1]" },
};

static void golden_path(char *out, size_t bytes, const char *model, const char *file) {
    snprintf(out, bytes, "%.300s/tests/golden/models/%.64s/%s", HEARTH_SOURCE_DIR, model, file);
}

/* The tape of a model, or the sentence that refuses it. */
static str tape_of(const char *path) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    str         out;
    str_init(&out);
    if (model_file_open(&f, path, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0)
        str_puts(&out, e.msg);
    else
        nn_tape_print(m->tape, &out);
    nn_model_free(m);
    model_file_free(f);
    return out;
}

static str tape_with(const char *dir, const char *config, const char *old, const char *new) {
    const char *at = strstr(config, old);
    char        path[600];
    FILE       *f;
    assert_non_null(at);
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_non_null(f);
    fprintf(f, "%.*s%s%s", (int)(at - config), config, new, at + strlen(old));
    fclose(f);
    return tape_of(dir);
}

static void test_silent_configs(void **state) {
    char *dir = test_temp_dir(), link[600];
    (void)state;
    snprintf(link, sizeof link, "%s/model.safetensors", dir);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char   path[600], *config;
        size_t bytes;
        err    e = { 0 };
        golden_path(path, sizeof path, pairs[i].model, "model.safetensors");
        unlink(link);
        assert_int_equal(symlink(path, link), 0);
        golden_path(path, sizeof path, pairs[i].model, "config.json");
        assert_int_equal(file_read(&config, &bytes, path, 1 << 20, &e), 0);
        if (!strstr(config, pairs[i].old)) fail_msg("%s: config.json has no %s", pairs[i].model, pairs[i].old);
        str said = tape_with(dir, config, pairs[i].old, pairs[i].said),
            silent = tape_with(dir, config, pairs[i].old, pairs[i].silent);
        if (!strstr(str_cstr(&said), "embed")) fail_msg("%s: %s", pairs[i].model, str_cstr(&said));
        if (strcmp(str_cstr(&said), str_cstr(&silent)) != 0)
            fail_msg("%s with %s:\n%s\nand not\n%s", pairs[i].model, pairs[i].silent, str_cstr(&silent),
                     str_cstr(&said));
        str_deinit(&said);
        str_deinit(&silent);
        free(config);
    }
    test_temp_dir_remove(dir);
}

/* --- GGUF ------------------------------------------------------------------------------------------------------- */

/* A golden model as a GGUF file. */
static void as_gguf(const char *model, const char *path) {
    char        dir[600];
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    golden_path(dir, sizeof dir, model, "");
    if (model_file_open(&f, dir, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0 ||
        export_gguf(m, path, &e) < 0)
        fail_msg("%s: %s", model, e.msg);
    nn_model_free(m);
    model_file_free(f);
}

/* The file has another key of the same length in its place, which nobody knows. */
static void forget_key(const char *path, const char *key) {
    char  *data;
    size_t bytes, n = strlen(key);
    err    e = { 0 };
    int    found = 0;
    assert_int_equal(file_read(&data, &bytes, path, 1 << 26, &e), 0);
    for (size_t i = 0; i + n <= bytes; i++) {
        if (memcmp(data + i, key, n) != 0) continue;
        data[i + n - 1] = '?';
        found++;
    }
    assert_int_equal(found, 1);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
    free(data);
}

static void expect_word(const char *path, const char *word, const char *other) {
    str tape = tape_of(path);
    if (!strstr(str_cstr(&tape), word) || (other && strstr(str_cstr(&tape), other)))
        fail_msg("no \"%s\", or \"%s\", in\n%s", word, other ? other : "", str_cstr(&tape));
    str_deinit(&tape);
}

static void test_gguf_without_gating(void **state) {
    char *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    as_gguf("glm_moe_dsa", path);
    expect_word(path, "sigmoid", "softmax");
    forget_key(path, "glm-dsa.expert_gating_func");
    expect_word(path, "sigmoid", "softmax");
    as_gguf("deepseek_v32", path);
    expect_word(path, "sigmoid", "softmax");
    forget_key(path, "deepseek32.expert_gating_func");
    expect_word(path, "lacks the field \"expert_gating_func\"", NULL);
    as_gguf("deepseek_v3", path);
    expect_word(path, "sigmoid", "softmax");
    forget_key(path, "deepseek2.expert_gating_func");
    expect_word(path, "softmax", "sigmoid");
    test_temp_dir_remove(dir);
}

/* GLM 4.7 Flash is known by its size, with its head for further tokens or without. */
static void test_gguf_of_flash(void **state) {
    static const struct {
        int         n_layer, n_next, n_vocab;
        const char *score, *other;
    } rows[] = { { 47, 0, 154880, "sigmoid", "softmax" },
                 { 48, 1, 154880, "sigmoid", "softmax" },
                 { 46, 0, 154880, "softmax", "sigmoid" },
                 { 47, 0, 154879, "softmax", "sigmoid" } };
    char *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const nn_config_set set[] = { { "vocab_size", rows[i].n_vocab, false },
                                      { "block_count", rows[i].n_layer, false },
                                      { "nextn_predict_layers", rows[i].n_next, false },
                                      { "context_length", 64, false },
                                      { "embedding_length", 8, false },
                                      { "feed_forward_length", 8, false },
                                      { "attention.head_count", 1, false },
                                      { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                      { "attention.kv_lora_rank", 8, false },
                                      { "attention.key_length_mla", 16, false },
                                      { "attention.value_length_mla", 8, false },
                                      { "rope.dimension_count", 8, false },
                                      { "expert_count", 2, false },
                                      { "expert_used_count", 1, false },
                                      { "expert_gating_func", 1, false },
                                      { "expert_feed_forward_length", 8, false } };
        const synth_options o = { .arch = nn_arch_find(models_list, "deepseek2"),
                                  .set = set,
                                  .n_set = sizeof set / sizeof *set,
                                  .type = TENSOR_F16,
                                  .n_vocab = rows[i].n_vocab,
                                  .seed = 1 };
        err                 e = { 0 };
        if (synth_gguf(&o, path, &e) < 0) fail_msg("%s", e.msg);
        expect_word(path, "softmax", "sigmoid");
        forget_key(path, "deepseek2.expert_gating_func");
        expect_word(path, rows[i].score, rows[i].other);
    }
    test_temp_dir_remove(dir);
}

/* A page has a place for keys of an index where a layer has an indexer, and nowhere else. */
static void check_indexes(const char *path, const int *widths) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    if (model_file_open(&f, path, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (m->state[i].dim_index != widths[i])
            fail_msg("layer %d: an index of %d, not %d", i, m->state[i].dim_index, widths[i]);
    }
    nn_model_free(m);
    model_file_free(f);
}

static void test_gguf_without_types(void **state) {
    char *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    as_gguf("glm_moe_dsa", path);
    check_indexes(path, (const int[]){ 32, 0, 32 });
    str named = tape_of(path);
    forget_key(path, "glm-dsa.attention.indexer.types");
    check_indexes(path, (const int[]){ 32, 0, 32 });
    str silent = tape_of(path);
    assert_string_equal(str_cstr(&named), str_cstr(&silent));
    as_gguf("minimax_m3_chosen", path);
    check_indexes(path, (const int[]){ 0, 16, 16 });
    str_deinit(&named);
    str_deinit(&silent);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_silent_configs),
                                        cmocka_unit_test(test_gguf_without_gating),
                                        cmocka_unit_test(test_gguf_of_flash),
                                        cmocka_unit_test(test_gguf_without_types) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
