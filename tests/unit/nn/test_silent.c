/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.json of published models that see, which name of their parts only what differs from the defaults of transformers'
 * classes: sizes are those of the models' tensors.
 */
#include "unit/support/support.h"

#include "base/arena.h"
#include "base/json.h"
#include "models/list.h"
#include "nn/config.h"
#include "nn/model.h"

#include <string.h>

typedef struct want {
    const char *json, *part; /* part: the object that is read as a tower's; NULL: the language model is read */
    int         n_layer, n_embd, n_ff, n_head, n_kv, head_dim, n_vocab;
} want;

#define LLAVA                                                                                                          \
    "{\"model_type\": \"llava\", \"image_token_index\": 32000, \"text_config\": {\"model_type\": \"llama\","           \
    " \"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"vocab_size\": 32064}, \"vision_config\": {}}"
#define LLAVA_NEXT                                                                                                     \
    "{\"model_type\": \"llava_next\", \"text_config\": {\"model_type\": \"mistral\", \"intermediate_size\": 14336,"    \
    " \"max_position_embeddings\": 32768, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-05,"                        \
    " \"rope_theta\": 1000000.0, \"sliding_window\": null, \"vocab_size\": 32064}}"
#define GEMMA3                                                                                                         \
    "{\"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240,"              \
    " \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0,"                 \
    " \"rope_type\": \"linear\"}, \"sliding_window\": 1024}}"
#define PIXTRAL                                                                                                        \
    "{\"model_type\": \"llava\", \"text_config\": {\"head_dim\": 128, \"hidden_size\": 5120,"                          \
    " \"intermediate_size\": 14336, \"max_position_embeddings\": 1024000, \"model_type\": \"mistral\","                \
    " \"num_hidden_layers\": 40, \"rms_norm_eps\": 1e-05, \"rope_theta\": 1000000000.0, \"sliding_window\": null,"     \
    " \"vocab_size\": 131072}, \"vision_config\": {\"head_dim\": 64, \"hidden_act\": \"silu\", \"image_size\": 1024,"  \
    " \"model_type\": \"pixtral\", \"patch_size\": 16, \"rope_theta\": 10000.0}}"

#define PALIGEMMA                                                                                                      \
    "{\"model_type\": \"paligemma\", \"text_config\": {\"hidden_size\": 2048, \"intermediate_size\": 16384,"           \
    " \"model_type\": \"gemma\", \"num_attention_heads\": 8, \"num_hidden_layers\": 18, \"num_image_tokens\": 256,"    \
    " \"num_key_value_heads\": 1, \"vocab_size\": 257216, \"use_bidirectional_attention\": true}}"

static const want wants[] = {
    { LLAVA, NULL, 32, 4096, 11008, 32, 32, 128, 32064 },   { LLAVA_NEXT, NULL, 32, 4096, 14336, 32, 8, 128, 32064 },
    { GEMMA3, NULL, 34, 2560, 10240, 8, 4, 256, 262208 },   { PALIGEMMA, NULL, 18, 2048, 16384, 8, 1, 256, 257216 },
    { PIXTRAL, NULL, 40, 5120, 14336, 32, 8, 128, 131072 }, { PIXTRAL, "vision_config", 24, 1024, 4096, 16, 16, 64, 1 },
};

/* Another model's file stands in for the tensors, which are not looked at. */
static void read_one(const model_file *file, const want *w) {
    const json_value *root;
    arena             mem;
    err               e = { 0 };
    arena_init(&mem, 0);
    assert_int_equal(json_parse(&root, w->json, strlen(w->json), &mem, &e), 0);
    const json_value *text = json_get(root, "text_config"), *part = w->part ? json_get(root, w->part) : NULL;
    const char       *type = json_cstr(json_get(text, "model_type"));
    const nn_arch    *arch = part ? &models_pixtral_tower : nn_arch_find(models_list, type);
    nn_config         c = { .mem = &mem,
                            .file = file,
                            .root = part ? part : root,
                            .outer = part ? root : NULL,
                            .text = part ? NULL : text,
                            .arch_name = type,
                            .arch = arch };
    assert_non_null(arch);
    nn_dims *d = arena_calloc(&mem, 1, arch->hp_size);
    if (nn_config_read(&c, arch, d, &e) < 0) fail_msg("%s: %s", type, e.msg);
    assert_int_equal(d->n_layer, w->n_layer);
    assert_int_equal(d->n_embd, w->n_embd);
    assert_int_equal(d->n_ff, w->n_ff);
    assert_int_equal(d->n_head, w->n_head);
    assert_int_equal(d->n_kv, w->n_kv);
    assert_int_equal(d->head_dim, w->head_dim);
    assert_int_equal(d->n_vocab, w->n_vocab);
    arena_deinit(&mem);
}

static void test_published(void **state) {
    model_file *file;
    err         e = { 0 };
    (void)state;
    assert_int_equal(model_file_open(&file, HEARTH_SOURCE_DIR "/tests/golden/models/llama", &e), 0);
    for (size_t i = 0; i < sizeof wants / sizeof *wants; i++) read_one(file, &wants[i]);
    model_file_free(file);
}

/* A model of text alone must say all of it. */
static void test_text_alone(void **state) {
    static const char json[] = "{\"model_type\": \"llama\", \"vocab_size\": 32064, \"rms_norm_eps\": 1e-05}";
    const json_value *root;
    model_file       *file;
    arena             mem;
    err               e = { 0 };
    (void)state;
    arena_init(&mem, 0);
    assert_int_equal(model_file_open(&file, HEARTH_SOURCE_DIR "/tests/golden/models/llama", &e), 0);
    assert_int_equal(json_parse(&root, json, strlen(json), &mem, &e), 0);
    const nn_arch *arch = nn_arch_find(models_list, "llama");
    nn_config      c = { .mem = &mem, .file = file, .root = root, .text = root, .arch_name = "llama", .arch = arch };
    assert_true(nn_config_read(&c, arch, arena_calloc(&mem, 1, arch->hp_size), &e) < 0);
    assert_non_null(strstr(e.msg, "num_hidden_layers"));
    model_file_free(file);
    arena_deinit(&mem);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published), cmocka_unit_test(test_text_alone) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
