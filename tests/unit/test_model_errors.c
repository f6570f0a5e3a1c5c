/* SPDX-License-Identifier: Apache-2.0 */
/* A model that cannot be run is refused with a sentence that says what is wrong and where. */
#include "backend/simple.h"
#include "base/file.h"
#include "base/str.h"
#include "formats/safetensors.h"
#include "models/list.h"
#include "nn/export.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct edit {
    const char *from, *to; /* in config.json */
    const char *tensor;    /* changed: */
    bool        drop;      /*   missing */
    int64_t     rows;      /*   cut to this many rows */
    bool        integers;  /*   said to be I32 */
} edit;

static void write_text(const char *path, const char *text) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_true(fwrite(text, 1, strlen(text), f) == strlen(text));
    fclose(f);
}

/* A copy of the tiny llama with one thing wrong. */
static void make(const char *dir, const edit *x) {
    char                path[600], *text, *at;
    size_t              bytes;
    str                 config;
    model_file         *m;
    safetensors_writer *w;
    void               *kept = NULL;
    err                 e;
    snprintf(path, sizeof path, "%s/tests/golden/models/llama", HEARTH_SOURCE_DIR);
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

    snprintf(path, sizeof path, "%s/tests/golden/models/llama/config.json", HEARTH_SOURCE_DIR);
    assert_int_equal(file_read(&text, &bytes, path, 1 << 20, &e), 0);
    str_init(&config);
    at = x->from ? strstr(text, x->from) : NULL;
    assert_true(!x->from || at);
    if (at) {
        str_append(&config, text, (size_t)(at - text));
        str_puts(&config, x->to);
        str_puts(&config, at + strlen(x->from));
    } else {
        str_puts(&config, text);
    }
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

static void test_the_unchanged_model_opens(void **state) {
    char       *dir = test_temp_dir();
    model_file *f = NULL;
    nn_model   *m = NULL;
    err         e = { 0 };
    (void)state;
    make(dir, &(edit){ 0 });
    assert_int_equal(model_file_open(&f, dir, &e), 0);
    if (nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    nn_model_free(m);
    model_file_free(f);
    test_temp_dir_remove(dir);
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
    if (!strstr(e.msg, "cannot run op") || !strstr(e.msg, "model.layers.2.mlp.down_proj.weight") || !strstr(e.msg, "I32"))
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
    nn_synth            o = { .arch = nn_arch_find(models_list, "llama"),
                              .set = set,
                              .n_set = sizeof set / sizeof *set,
                              .n_vocab = 300,
                              .seed = 1 };
    model_file         *f = NULL;
    nn_model           *m = NULL;
    err                 e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    assert_int_equal(nn_synth_gguf(&o, path, &e), 0);
    assert_int_equal(model_file_open(&f, path, &e), 0);
    assert_int_equal(nn_model_open(&m, f, models_list, NULL, &e), ERR_FORMAT);
    if (!strstr(e.msg, "token_embd.weight") || !strstr(e.msg, "280") || !strstr(e.msg, "300")) fail_msg("%s", e.msg);
    model_file_free(f);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_unchanged_model_opens),
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
