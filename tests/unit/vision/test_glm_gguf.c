/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language models of GLM 4.1V, GLM-OCR and HunyuanOCR from GGUF files: published converters put the halves of the pairs
 * that rotate apart in GLM's queries and keys, name the sections of the axes, count the layers for multi-token prediction, and
 * name HunYuan's alpha beside its base.
 * Positions with axes give the same logits as those of the directories of Hugging Face (tests/golden/vision), nearly
 * to the bit: products of permuted elements are summed in another order.
 */
#include "unit/support/support.h"

#include "base/json.h"
#include "convert/gguf_writer.h"
#include "formats/model_file.h"
#include "models/list.h"
#include "nn/model.h"
#include "tensor/half.h"
#include "tools/simple.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

enum { N_TOKENS = 40, AXES = 4 };

typedef struct family_row {
    const char *name, *arch, *root; /* root: of the language model's tensors */
    int         head_dim, n_rot, n_next;
    int32_t     sections[4];
    double      alpha;
    bool        apart; /* the halves of the pairs */
} family_row;

static const family_row families[] = {
    { "glm4v", "glm4", "model.language_model.", 16, 8, 0, { 1, 2, 1, 0 }, 0, true },
    { "glm_ocr", "glm4", "model.language_model.", 16, 16, 1, { 2, 3, 3, 0 }, 0, true },
    { "hunyuan_vl", "hunyuan_vl", "model.", 16, 16, 0, { 2, 1, 3, 2 }, 1000, false },
};

static const struct {
    const char *hf, *gguf;
} names[] = { { "input_layernorm", "attn_norm" },
              { "post_self_attn_layernorm", "post_attention_norm" },
              { "post_attention_layernorm", "ffn_norm" },
              { "post_mlp_layernorm", "post_ffw_norm" },
              { "self_attn.q_proj", "attn_q" },
              { "self_attn.k_proj", "attn_k" },
              { "self_attn.v_proj", "attn_v" },
              { "self_attn.o_proj", "attn_output" },
              { "mlp.gate_up_proj", "ffn_up" },
              { "mlp.down_proj", "ffn_down" },
              { "mlp.gate_proj", "ffn_gate" },
              { "mlp.up_proj", "ffn_up" },
              { "self_attn.query_layernorm", "attn_q_norm" },
              { "self_attn.key_layernorm", "attn_k_norm" } };

/* False: the tensor is not the language model's. */
static bool gguf_name(const family_row *f, const char *hf, char *out, size_t bytes) {
    int layer, end = 0;
    if (strcmp(hf, "lm_head.weight") == 0) snprintf(out, bytes, "output.weight");
    if (strncmp(hf, f->root, strlen(f->root)) != 0) return *out;
    hf += strlen(f->root);
    if (strcmp(hf, "embed_tokens.weight") == 0) snprintf(out, bytes, "token_embd.weight");
    if (strcmp(hf, "norm.weight") == 0) snprintf(out, bytes, "output_norm.weight");
    if (sscanf(hf, "layers.%d.%n", &layer, &end) != 1 || !end) return *out;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].hf);
        if (strncmp(hf + end, names[i].hf, n) == 0 && hf[end + (int)n] == '.')
            snprintf(out, bytes, "blk.%d.%s%s", layer, names[i].gguf, hf + end + n);
    }
    return true;
}

/* The even ones of a head's rotated rows first. */
static void part_halves(uint8_t *to, const uint8_t *from, int64_t rows, const family_row *f, size_t row) {
    for (int64_t r = 0; r < rows; r++) {
        int in = (int)(r % f->head_dim), at = in;
        if (in < f->n_rot) at = in / 2 + (in % 2) * (f->n_rot / 2);
        memcpy(to + (size_t)(r - in + at) * row, from + (size_t)r * row, row);
    }
}

static void add_tensor(gguf_writer *w, const family_row *f, const model_tensor *t, const char *name, void **keep) {
    err      e = { 0 };
    bool     vector = t->n_dims == 1, halves = f->apart && (strstr(name, "attn_q.") || strstr(name, "attn_k."));
    int64_t  rows = t->dims[t->n_dims - 1];
    size_t   bytes = vector ? (size_t)rows * sizeof(float) : t->bytes;
    float   *x = vector ? malloc(bytes) : NULL;
    uint8_t *to = malloc(bytes);
    for (int64_t i = 0; x && i < rows; i++) x[i] = tensor_bf16_to_f32(((const uint16_t *)(const void *)t->data)[i]);
    const void *from = x ? (const void *)x : t->data;
    if (halves)
        part_halves(to, from, rows, f, bytes / (size_t)rows);
    else
        memcpy(to, from, bytes);
    free(x);
    *keep = to;
    assert_int_equal(gguf_writer_add(w, name, vector ? TENSOR_F32 : t->type, t->n_dims, t->dims, to, bytes, &e), 0);
}

static const char *key_of(const family_row *f, const char *key, char out[96]) {
    snprintf(out, 96, "%s.%s", f->arch, key);
    return out;
}

static void set(gguf_writer *w, const family_row *f, const char *key, int64_t value) {
    char full[96];
    assert_int_equal(gguf_writer_set_int(w, key_of(f, key, full), META_U32, value, NULL), 0);
}

static void set_real(gguf_writer *w, const family_row *f, const char *key, double value) {
    char full[96];
    assert_int_equal(gguf_writer_set_real(w, key_of(f, key, full), META_F32, value, NULL), 0);
}

static void write_gguf(const family_row *f, const model_file *m, const nn_dims *d, const char *path) {
    size_t       n = model_file_tensor_count(m);
    void       **kept = calloc(n, sizeof *kept);
    gguf_writer *w;
    char         full[96];
    err          e = { 0 };
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", f->arch, NULL), 0);
    set(w, f, "block_count", d->n_layer + f->n_next);
    set(w, f, "context_length", d->context);
    set(w, f, "embedding_length", d->n_embd);
    set(w, f, "feed_forward_length", d->n_ff);
    set(w, f, "attention.head_count", d->n_head);
    set(w, f, "attention.head_count_kv", d->n_kv);
    set(w, f, "attention.key_length", d->head_dim);
    set(w, f, "attention.value_length", d->head_dim);
    set(w, f, "rope.dimension_count", f->n_rot);
    set(w, f, "vocab_size", d->n_vocab);
    if (f->n_next) set(w, f, "nextn_predict_layers", f->n_next);
    set_real(w, f, "rope.freq_base", 10000);
    set_real(w, f, "attention.layer_norm_rms_epsilon", (double)d->eps);
    if (f->alpha > 0) set_real(w, f, "rope.scaling.alpha", f->alpha);
    assert_int_equal(
        gguf_writer_set_array(w, key_of(f, "rope.dimension_sections", full), META_I32, f->sections, 4, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        char                name[96] = "";
        if (gguf_name(f, t->name, name, sizeof name)) {
            assert_true(*name);
            add_tensor(w, f, t, name, &kept[i]);
        }
    }
    int rc = gguf_writer_write(w, path, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    gguf_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
}

/* Of a prompt whose positions have axes that go their own ways. */
static float *logits_of(const nn_model *m) {
    int32_t tokens[N_TOKENS], axes[AXES * N_TOKENS];
    simple  s;
    err     e = { 0 };
    for (int i = 0; i < N_TOKENS; i++) {
        tokens[i] = 3 + i * 37 % 140;
        axes[i] = i / 4;
        axes[N_TOKENS + i] = i / 4 + i % 3;
        axes[2 * N_TOKENS + i] = i / 2 + i % 5;
        axes[3 * N_TOKENS + i] = i / 9;
    }
    assert_int_equal(simple_open(&s, "cpu", m, &(simple_options){ .max_len = N_TOKENS, .max_tokens = N_TOKENS }, &e),
                     0);
    assert_int_equal(simple_batch(&s, &(simple_feed){ .ids = tokens, .n = N_TOKENS, .all = true }, 1, &e), 0);
    s.batch.pos_axes = axes;
    s.batch.n_axes = AXES;
    assert_int_equal(nn_exec_step(s.exec, &s.batch, &e), 0);
    const float *got = simple_fetch(&s, NN_FETCH_LOGITS, &e);
    assert_non_null(got);
    size_t bytes = (size_t)N_TOKENS * (size_t)m->dims->n_vocab * sizeof(float);
    float *out = malloc(bytes);
    assert_non_null(out);
    memcpy(out, got, bytes);
    simple_close(&s);
    return out;
}

static void check(const family_row *f, const char *dir) {
    char        path[512], file[512];
    model_file *m, *g;
    nn_model   *one, *two;
    err         e = { 0 };
    snprintf(path, sizeof path, "%s/%s", DIR, f->name);
    snprintf(file, sizeof file, "%s/%s.gguf", dir, f->name);
    assert_int_equal(model_file_open(&m, path, &e), 0);
    assert_int_equal(nn_model_open(&one, m, models_list, NULL, &e), 0);
    write_gguf(f, m, one->dims, file);
    assert_int_equal(model_file_open(&g, file, &e), 0);
    int rc = nn_model_open(&two, g, models_list, NULL, &e);
    if (rc < 0) print_message("%s: %s\n", f->name, e.msg);
    assert_int_equal(rc, 0);
    float *a = logits_of(one), *b = logits_of(two);
    double off = 0, sum = 0;
    int    n = N_TOKENS * one->dims->n_vocab;
    for (int i = 0; i < n; i++) {
        off = fmax(off, fabs((double)a[i] - (double)b[i]));
        sum += (double)a[i] * (double)a[i];
    }
    if (off > 1e-4 * sqrt(sum / n)) print_message("%s: logits differ by %g\n", f->name, off);
    assert_true(off <= 1e-4 * sqrt(sum / n));
    free(a);
    free(b);
    nn_model_free(one);
    nn_model_free(two);
    model_file_free(m);
    model_file_free(g);
}

static void test_logits(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) check(&families[i], dir);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_logits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
