/* SPDX-License-Identifier: Apache-2.0 */
/* A model that cannot be run is refused with a sentence that says what is wrong and where. */
#include "base/file.h"
#include "base/str.h"
#include "convert/export.h"
#include "convert/safetensors_writer.h"
#include "formats/safetensors.h"
#include "models/list.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct edit {
    const char *model;     /* NULL: llama */
    const char *from, *to; /* in config.json */
    const char *from_2, *to_2;
    const char *tensor;   /* changed: */
    bool        drop;     /*   missing */
    int64_t     rows;     /*   cut to this many rows */
    bool        integers; /*   said to be I32 */
} edit;

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(text, 1, strlen(text), f) == strlen(text));
    fclose(f);
}

static void replace(str *s, const char *from, const char *to) {
    str         out;
    const char *at = from ? strstr(str_cstr(s), from) : NULL;
    assert_true(!from || at);
    if (!at) return;
    str_init(&out);
    str_append(&out, str_cstr(s), (size_t)(at - str_cstr(s)));
    str_puts(&out, to);
    str_puts(&out, at + strlen(from));
    str_deinit(s);
    *s = out;
}

/* A copy of a tiny model with one thing changed. */
static void make(const char *dir, const edit *x) {
    char                path[600], *text;
    size_t              bytes;
    str                 config;
    model_file         *m;
    safetensors_writer *w;
    void               *kept = NULL;
    err                 e;
    const char         *model = x->model ? x->model : "llama";
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", HEARTH_SOURCE_DIR, model);
    assert_int_equal(model_file_open(&m, path, &e), 0);
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        bool                me = x->tensor && strcmp(t->name, x->tensor) == 0;
        int64_t             dims[MODEL_MAX_DIMS];
        size_t              n = t->bytes;
        memcpy(dims, t->dims, sizeof dims);
        if (me && x->drop) continue;
        if (me && x->rows) {
            n = n / (size_t)dims[1] * (size_t)x->rows;
            dims[1] = x->rows;
        }
        void *numbers = me && x->integers ? calloc(2, n) : NULL; /* bf16 elements take half the bytes */
        assert_int_equal(safetensors_writer_add(w, t->name, numbers ? TENSOR_I32 : t->type, t->n_dims, dims,
                                                numbers ? numbers : t->data, numbers ? 2 * n : n, &e),
                         0);
        if (numbers) kept = numbers;
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    assert_int_equal(safetensors_writer_write(w, path, &e), 0);
    safetensors_writer_free(w);
    free(kept);
    model_file_free(m);

    snprintf(path, sizeof path, "%s/tests/golden/models/%s/config.json", HEARTH_SOURCE_DIR, model);
    assert_int_equal(file_read(&text, &bytes, path, 1 << 20, &e), 0);
    str_init(&config);
    str_puts(&config, text);
    replace(&config, x->from, x->to);
    replace(&config, x->from_2, x->to_2);
    snprintf(path, sizeof path, "%s/config.json", dir);
    write_text(path, str_cstr(&config));
    str_deinit(&config);
    free(text);
}

/* Opens it; the sentence must hold every one of the words. */
static void refuse(const edit *x, int code, const char *const *words) {
    char       *dir = test_temp_dir();
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    make(dir, x);
    assert_int_equal(model_file_open(&f, dir, &e), 0);
    int rc = nn_model_open(&m, f, models_list, NULL, &e);
    if (rc == 0) fail_msg("a broken model was accepted (%s)", words[0]);
    assert_null(m);
    assert_int_equal(rc, code);
    for (; *words; words++) {
        if (!strstr(e.msg, *words)) fail_msg("\"%s\" does not say \"%s\"", e.msg, *words);
    }
    if (!strstr(e.msg, dir)) fail_msg("\"%s\" does not name the model", e.msg);
    model_file_free(f);
    test_temp_dir_remove(dir);
}

#define WORDS(...)                                                                                                     \
    (const char *const[]) { __VA_ARGS__, NULL }

/* Opens it; gives the name of the tensor that is the head. */
static void accept(const edit *x, char *head, size_t bytes) {
    char       *dir = test_temp_dir();
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    make(dir, x);
    assert_int_equal(model_file_open(&f, dir, &e), 0);
    if (nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    snprintf(head, bytes, "%s", ((const nn_ends *)m->net.top)->head.w->name);
    nn_model_free(m);
    model_file_free(f);
    test_temp_dir_remove(dir);
}

static void test_the_unchanged_model_opens(void **state) {
    char head[64];
    (void)state;
    accept(&(edit){ 0 }, head, sizeof head);
    assert_string_equal(head, "lm_head.weight");
}

/* What is the head, as transformers 5.17 decides it. */
static void test_the_head(void **state) {
    static const char said[] = "\"tie_word_embeddings\": false";
    char              head[64];
    (void)state;
    accept(&(edit){ .from = said, .to = "\"tie_word_embeddings\": true", .tensor = "lm_head.weight", .drop = true },
           head, sizeof head);
    assert_string_equal(head, "model.embed_tokens.weight");
    accept(&(edit){ .from = said, .to = "\"tie_word_embeddings\": true" }, head,
           sizeof head); /* they differ: not tied */
    assert_string_equal(head, "lm_head.weight");
    refuse(&(edit){ .tensor = "lm_head.weight", .drop = true }, ERR_NOTFOUND,
           WORDS("lm_head.weight", "tie_word_embeddings is false"));
    refuse(&(edit){ .from = said, .to = "\"x\": 0", .tensor = "lm_head.weight", .drop = true }, ERR_NOTFOUND,
           WORDS("lm_head.weight", "tie_word_embeddings", "not in config.json"));
    refuse(&(edit){ .from = said, .to = "\"tie_word_embeddings\": \"yes\"" }, ERR_FORMAT,
           WORDS("tie_word_embeddings", "neither true nor false"));
}

/* Families whose class ties by default; LFM2's own name for the field; the same for MLX directories. */
static void test_the_head_by_default(void **state) {
    static const char *const tied[] = { "gemma", "gemma2", "gemma3_text", "gemma3_mlx4", "smollm3", "lfm2_moe" };
    static const char        said[] = "\"tie_word_embeddings\": true";
    char                     head[64];
    (void)state;
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++) {
        accept(&(edit){ .model = tied[i], .from = said, .to = "\"x\": 0" }, head, sizeof head);
        assert_string_equal(head, "model.embed_tokens.weight");
        refuse(&(edit){ .model = tied[i], .from = said, .to = "\"tie_word_embeddings\": false" }, ERR_NOTFOUND,
               WORDS("lm_head.weight", "tie_word_embeddings is false"));
    }
    refuse(&(edit){ .model = "qwen3_mlx4", .from = said, .to = "\"x\": 0" }, ERR_NOTFOUND,
           WORDS("lm_head.weight", "not in config.json"));
    accept(&(edit){ .model = "lfm2", .from = "\"tie_embedding\": true", .to = "\"x\": 0" }, head, sizeof head);
    refuse(&(edit){ .model = "lfm2", .from = "\"tie_embedding\": true", .to = "\"tie_embedding\": false" },
           ERR_NOTFOUND, WORDS("lm_head.weight", "tie_embedding is false"));
}

/* In a multimodal directory the outer config decides: its field, its type's default, the language model's default. */
static void test_the_head_of_a_multimodal_model(void **state) {
    static const char said[] = "\"tie_word_embeddings\": false", type[] = "\"model_type\": \"mistral\"";
    static const char inner_true[] =
        "\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mistral\", \"tie_word_embeddings\": true}";
    static const char inner[] = "\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mistral\"}";
    static const char foreign[] = "\"model_type\": \"some_vision\", \"text_config\": {\"model_type\": \"mistral\"}";
    edit              x = { .model = "mistral", .from = type, .tensor = "lm_head.weight", .drop = true };
    char              head[64];
    (void)state;
    x.to = inner_true;
    refuse(&x, ERR_NOTFOUND, WORDS("lm_head.weight", "tie_word_embeddings is false"));
    x.from_2 = said;
    x.to_2 = "\"x\": 0";
    accept(&x, head, sizeof head);
    x.to = inner;
    accept(&x, head, sizeof head);
    assert_string_equal(head, "model.embed_tokens.weight");
    x.to = foreign;
    refuse(&x, ERR_NOTFOUND, WORDS("lm_head.weight", "not in config.json"));
}

/* A value of a single layer is used or refused, never ignored. */
static void test_values_of_single_layers(void **state) {
    static const char at[] = "\"num_hidden_layers\": 3", to[] = "\"num_hidden_layers\": 3, \"per_layer_config\": ";
    static const struct {
        const char *value, *words[2];
    } bad[] = {
        { "{\"1\": {\"intermediate_size\": 64}}", { "intermediate_size", "layer 1" } },
        { "{\"02\": {\"skip\": [\"mlp\"]}}", { "skip", "layer 2" } },
        { "{\"3\": {}}", { "per_layer_config", "3 layers" } },
        { "{\"x\": {}}", { "per_layer_config", "3 layers" } },
        { "[1]", { "per_layer_config", "not an object" } },
    };
    char text[300], head[64];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "%s%s", to, bad[i].value);
        refuse(&(edit){ .from = at, .to = text }, ERR_FORMAT, WORDS(bad[i].words[0], bad[i].words[1]));
    }
    snprintf(text, sizeof text, "%s{\"1\": {\"intermediate_size\": 128, \"skip\": []}}", to);
    accept(&(edit){ .from = at, .to = text }, head, sizeof head);
    refuse(&(edit){ .model = "gemma4_text",
                    .from = "\"num_hidden_layers\": 4",
                    .to = "\"num_hidden_layers\": 4, \"per_layer_config\": {\"1\": {\"head_dim\": 32}}" },
           ERR_FORMAT, WORDS("layer 3", "16", "32"));
}

static void test_kinds_of_layers(void **state) {
    (void)state;
    refuse(&(edit){ .model = "glm4_moe_lite",
                    .from = "\"num_hidden_layers\": 3",
                    .to = "\"num_hidden_layers\": 3, \"mlp_layer_types\": [\"sparse\", \"dense\", \"sparse\"]" },
           ERR_FORMAT, WORDS("mlp_layer_types", "layer 1"));
    refuse(
        &(edit){ .model = "qwen3_moe", .from = "\"use_sliding_window\": false", .to = "\"use_sliding_window\": true" },
        ERR_FORMAT, WORDS("use_sliding_window"));
    refuse(&(edit){ .model = "gemma2",
                    .from = "\"num_hidden_layers\"",
                    .to = "\"use_bidirectional_attention\": true, \"num_hidden_layers\"" },
           ERR_FORMAT, WORDS("later tokens"));
}

static void test_unknown_architecture(void **state) {
    (void)state;
    refuse(&(edit){ .from = "\"model_type\": \"llama\"", .to = "\"model_type\": \"perceptron\"" }, ERR_UNSUPPORTED,
           WORDS("architecture", "perceptron"));
}

static void test_missing_field(void **state) {
    (void)state;
    refuse(&(edit){ .from = "\"num_attention_heads\"", .to = "\"x\"" }, ERR_FORMAT,
           WORDS("config.json", "num_attention_heads"));
    refuse(&(edit){ .from = "\"num_hidden_layers\"", .to = "\"x\"" }, ERR_FORMAT, WORDS("num_hidden_layers"));
    refuse(&(edit){ .from = "\"rms_norm_eps\"", .to = "\"x\"" }, ERR_FORMAT, WORDS("rms_norm_eps"));
}

static void test_senseless_fields(void **state) {
    (void)state;
    refuse(&(edit){ .from = "\"num_hidden_layers\": 3", .to = "\"num_hidden_layers\": -3" }, ERR_FORMAT,
           WORDS("layers", "-3"));
    refuse(&(edit){ .from = "\"num_hidden_layers\": 3", .to = "\"num_hidden_layers\": \"three\"" }, ERR_FORMAT,
           WORDS("num_hidden_layers", "not a number"));
    refuse(&(edit){ .from = "\"num_hidden_layers\": 3", .to = "\"num_hidden_layers\": 1e300" }, ERR_FORMAT,
           WORDS("num_hidden_layers"));
    refuse(&(edit){ .from = "\"num_key_value_heads\": 2", .to = "\"num_key_value_heads\": 3" }, ERR_FORMAT,
           WORDS("heads", "3"));
    refuse(&(edit){ .from = "\"rope_scaling\": null", .to = "\"rope_scaling\": {\"rope_type\": \"spiral\"}" },
           ERR_FORMAT, WORDS("rotary", "spiral"));
}

static void test_missing_tensor(void **state) {
    (void)state;
    refuse(&(edit){ .tensor = "model.layers.1.mlp.up_proj.weight", .drop = true }, ERR_NOTFOUND,
           WORDS("model.layers.1.mlp.up_proj.weight", "missing"));
    refuse(&(edit){ .tensor = "model.norm.weight", .drop = true }, ERR_NOTFOUND, WORDS("model.norm.weight", "missing"));
    refuse(&(edit){ .from = "\"num_hidden_layers\": 3", .to = "\"num_hidden_layers\": 4" }, ERR_NOTFOUND,
           WORDS("model.layers.3.", "missing"));
}

static void test_wrong_shape(void **state) {
    (void)state;
    refuse(&(edit){ .tensor = "model.layers.0.self_attn.q_proj.weight", .rows = 48 }, ERR_FORMAT,
           WORDS("model.layers.0.self_attn.q_proj.weight", "48 x 64", "64 x 64"));
    refuse(&(edit){ .from = "\"hidden_size\": 64", .to = "\"hidden_size\": 32" }, ERR_FORMAT,
           WORDS("model.embed_tokens.weight", "64", "32"));
}

/* The file may say so; that nobody can multiply with it is the backend's answer, by the op's name. */
static void test_wrong_type(void **state) {
    char          *dir = test_temp_dir();
    model_file    *f = NULL;
    nn_model      *m = NULL;
    simple         s;
    err            e = { 0 };
    simple_options o = { .max_len = 8, .max_tokens = 8, .n_threads = 1 };
    (void)state;
    make(dir, &(edit){ .tensor = "model.layers.2.mlp.down_proj.weight", .integers = true });
    assert_int_equal(model_file_open(&f, dir, &e), 0);
    if (nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(simple_open(&s, "cpu", m, &o, &e), ERR_UNSUPPORTED);
    if (!strstr(e.msg, "cannot run op") || !strstr(e.msg, "model.layers.2.mlp.down_proj.weight") ||
        !strstr(e.msg, "I32"))
        fail_msg("\"%s\"", e.msg);
    nn_model_free(m);
    model_file_free(f);
    test_temp_dir_remove(dir);
}

static void test_vocabulary_larger_than_the_embedding(void **state) {
    (void)state;
    refuse(&(edit){ .from = "\"vocab_size\": 320", .to = "\"vocab_size\": 400" }, ERR_FORMAT,
           WORDS("model.embed_tokens.weight", "320", "400", "vocabulary"));
}

/* The same for a GGUF: its list of tokens is what counts. */
static void test_gguf_vocabulary(void **state) {
    char               *dir = test_temp_dir(), path[600];
    const nn_config_set set[] = { { "block_count", 1, false },
                                  { "embedding_length", 64, false },
                                  { "feed_forward_length", 64, false },
                                  { "attention.head_count", 2, false },
                                  { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                  { "vocab_size", 280, false } };
    synth_options       o = { .arch = nn_arch_find(models_list, "llama"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .n_vocab = 300,
                              .seed = 1 };
    model_file         *f = NULL;
    nn_model           *m = NULL;
    err                 e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    assert_int_equal(synth_gguf(&o, path, &e), 0);
    assert_int_equal(model_file_open(&f, path, &e), 0);
    assert_int_equal(nn_model_open(&m, f, models_list, NULL, &e), ERR_FORMAT);
    if (!strstr(e.msg, "token_embd.weight") || !strstr(e.msg, "280") || !strstr(e.msg, "300")) fail_msg("%s", e.msg);
    model_file_free(f);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_unchanged_model_opens),
        cmocka_unit_test(test_the_head),
        cmocka_unit_test(test_the_head_by_default),
        cmocka_unit_test(test_the_head_of_a_multimodal_model),
        cmocka_unit_test(test_values_of_single_layers),
        cmocka_unit_test(test_kinds_of_layers),
        cmocka_unit_test(test_unknown_architecture),
        cmocka_unit_test(test_missing_field),
        cmocka_unit_test(test_senseless_fields),
        cmocka_unit_test(test_missing_tensor),
        cmocka_unit_test(test_wrong_shape),
        cmocka_unit_test(test_wrong_type),
        cmocka_unit_test(test_vocabulary_larger_than_the_embedding),
        cmocka_unit_test(test_gguf_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
