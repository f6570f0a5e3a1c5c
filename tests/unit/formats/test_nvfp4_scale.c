/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVFP4 weights of GGUF files with "X.scale" beside "X.weight": one factor for a matrix, or one per expert.
 *
 * A random NVFP4 model is written twice: with such scales, and as a twin whose weights are plain F32, each value
 * multiplied here by its factor. The reference backend must give the same logits for both, the fast one the same but
 * for the rounding of its activations. What cannot have a scale is refused by name.
 */
#include "base/pool.h"
#include "base/str.h"
#include "convert/export.h"
#include "convert/gguf_writer.h"
#include "convert/quantize.h"
#include "formats/gguf.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tensor/codec.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 12, VOCAB = 320 };

static void synth(const char *path, const char *arch, int experts, int type) {
    const nn_config_set set[] = {
        { "block_count", 2, false },
        { "embedding_length", 128, false },
        { "feed_forward_length", 192, false },
        { "attention.head_count", 4, false },
        { "attention.head_count_kv", 2, false },
        { "attention.layer_norm_rms_epsilon", 1e-5, false },
        { "attention.key_length", 32, false },
        { "attention.key_length_swa", 32, true },
        { "attention.sliding_window", 8, true },
        { "vocab_size", VOCAB, false },
        { "expert_count", experts, false },
        { "expert_used_count", experts, false }, /* all: a choice between equals may differ */
        { "expert_feed_forward_length", 64, false },
    };
    synth_options o = { .arch = nn_arch_find(models_list, arch),
                        .set = set,
                        .n_set = sizeof set / sizeof *set,
                        .type = type,
                        .n_vocab = VOCAB,
                        .seed = 7 };
    err           e = { 0 };
    if (synth_gguf(&o, path, &e) < 0) fail_msg("%s", e.msg);
}

static float factor(size_t tensor, int64_t expert) {
    return 0.3f + 0.1f * (float)((tensor * 5 + (size_t)expert * 3) % 11);
}

static const char *beside(const char *weight, const char *ending) {
    static char name[300];
    snprintf(name, sizeof name, "%.*s%s", (int)(strlen(weight) - strlen(".weight")), weight, ending);
    return name;
}

static void copy_keys(gguf_writer *w, const model_file *m) {
    err e = { 0 };
    for (size_t i = 0; i < model_file_meta_count(m); i++)
        assert_int_equal(gguf_writer_set(w, model_file_meta_key(m, i), model_file_meta_at(m, i), &e), 0);
}

/* The NVFP4 tensor i with its scales into `scaled`, its values into `plain`. Where the family has a tensor X.scale of
 * its own, that is not part of the weight. */
static void add_both(gguf_writer *scaled, gguf_writer *plain, const model_file *m, size_t i, arena *mem) {
    const model_tensor *t = model_file_tensor_at(m, i);
    bool                own = model_file_tensor(m, beside(t->name, ".scale")) != NULL;
    int64_t             stack = t->n_dims > 2 ? t->dims[2] : 1, each = t->dims[0] * t->dims[1], dims[1] = { stack };
    float              *scale = arena_alloc(mem, (size_t)stack * 4), *v = arena_alloc(mem, (size_t)(stack * each) * 4);
    err                 e = { 0 };
    assert_non_null(v);
    assert_true(tensor_dequant_row((int)t->type, t->data, v, stack * each));
    for (int64_t k = 0; k < stack; k++) scale[k] = own ? 1.0f : factor(i, k);
    for (int64_t k = 0; k < stack * each; k++) v[k] *= scale[k / each];
    assert_int_equal(gguf_writer_add(scaled, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
    assert_int_equal(gguf_writer_add(plain, t->name, TENSOR_F32, t->n_dims, t->dims, v, (size_t)(stack * each) * 4, &e),
                     0);
    if (own) return;
    assert_int_equal(
        gguf_writer_add(scaled, beside(t->name, ".scale"), TENSOR_F32, 1, dims, scale, (size_t)stack * 4, &e), 0);
    assert_int_equal(
        gguf_writer_add(scaled, beside(t->name, ".input_scale"), TENSOR_F32, 1, dims, scale, (size_t)stack * 4, &e), 0);
}

/* Returns how many weights got a scale. */
static int make_twins(const char *from, const char *scaled, const char *plain) {
    model_file  *m = NULL;
    gguf_writer *ws = NULL, *wp = NULL;
    arena        mem;
    err          e = { 0 };
    int          n = 0;
    arena_init(&mem, 0);
    assert_int_equal(model_file_open(&m, from, &e), 0);
    assert_int_equal(gguf_writer_open(&ws, 0, &e), 0);
    assert_int_equal(gguf_writer_open(&wp, 0, &e), 0);
    copy_keys(ws, m);
    copy_keys(wp, m);
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (t->type == TENSOR_NVFP4) {
            add_both(ws, wp, m, i, &mem);
            n++;
            continue;
        }
        assert_int_equal(gguf_writer_add(ws, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
        assert_int_equal(gguf_writer_add(wp, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
    }
    assert_int_equal(gguf_writer_write(ws, scaled, &e), 0);
    assert_int_equal(gguf_writer_write(wp, plain, &e), 0);
    gguf_writer_free(ws);
    gguf_writer_free(wp);
    model_file_free(m);
    arena_deinit(&mem);
    return n;
}

static void logits_of(const char *path, const char *device, float *out) {
    model_file    *f = NULL;
    nn_model      *m = NULL;
    simple         s;
    err            e = { 0 };
    int32_t        ids[N];
    simple_options o = {
        .max_len = N, .max_tokens = N, .n_threads = 1, .k_type = NN_KV_F32, .v_type = NN_KV_F32, .cpu = cpu_detect()
    };
    for (int i = 0; i < N; i++) ids[i] = i * 29 % VOCAB;
    if (model_file_open(&f, path, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    if (simple_open(&s, device, m, &o, &e) < 0) fail_msg("%s", e.msg);
    if (simple_step(&s, &(simple_feed){ .ids = ids, .n = N, .all = true }, 1, &e) < 0) fail_msg("%s", e.msg);
    memcpy(out, simple_fetch(&s, NN_FETCH_LOGITS, &e), sizeof(float) * N * VOCAB);
    simple_close(&s);
    nn_model_free(m);
    model_file_free(f);
}

/* The largest difference in standard deviations of b. */
static double difference(const float *a, const float *b) {
    double worst = 0, sum = 0;
    for (int i = 0; i < N * VOCAB; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
        sum += (double)b[i] * (double)b[i];
    }
    return worst / sqrt(sum / (N * VOCAB));
}

static void compare(const char *arch, int experts) {
    char  *dir = test_temp_dir(), from[600], scaled[600], plain[600];
    float *a = malloc(sizeof(float) * N * VOCAB), *b = malloc(sizeof(float) * N * VOCAB);
    snprintf(from, sizeof from, "%s/from.gguf", dir);
    snprintf(scaled, sizeof scaled, "%s/scaled.gguf", dir);
    snprintf(plain, sizeof plain, "%s/plain.gguf", dir);
    synth(from, arch, experts, TENSOR_NVFP4);
    assert_true(make_twins(from, scaled, plain) >= 14);
    logits_of(plain, "scalar", b);
    logits_of(scaled, "scalar", a);
    if (!(difference(a, b) <= 1e-5)) fail_msg("%s: the reference differs by %g", arch, difference(a, b));
    logits_of(scaled, "cpu", a);
    if (!(difference(a, b) <= 0.1)) fail_msg("%s: the fast backend differs by %g", arch, difference(a, b));
    logits_of(from, "scalar", a); /* without the scales it is another model */
    assert_true(difference(a, b) > 0.5);
    free(a);
    free(b);
    test_temp_dir_remove(dir);
}

static void test_matrices(void **state) {
    (void)state;
    compare("llama", 0);
}

static void test_experts(void **state) {
    (void)state;
    compare("llama", 4);
}

/* ffn_down_exps.scale and ffn_gate_inp.scale are tensors of this family, whatever the weights' type. */
static void test_scales_that_are_the_familys(void **state) {
    (void)state;
    compare("gemma4", 4);
}

/* A random model of one type with one more tensor; opening it gives the sentence. */
static void refuse(int type, const char *name, int64_t n, int code, const char *word) {
    char        *dir = test_temp_dir(), from[600], path[600];
    model_file  *m = NULL;
    nn_model    *model = NULL;
    gguf_writer *w = NULL;
    float        values[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    err          e = { 0 };
    snprintf(from, sizeof from, "%s/from.gguf", dir);
    snprintf(path, sizeof path, "%s/m.gguf", dir);
    synth(from, "llama", 0, type);
    assert_int_equal(model_file_open(&m, from, &e), 0);
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    copy_keys(w, m);
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        assert_int_equal(gguf_writer_add(w, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
    }
    assert_int_equal(gguf_writer_add(w, name, TENSOR_F32, 1, &n, values, (size_t)n * 4, &e), 0);
    assert_int_equal(gguf_writer_write(w, path, &e), 0);
    gguf_writer_free(w);
    model_file_free(m);
    assert_int_equal(model_file_open(&m, path, &e), 0);
    int rc = nn_model_open(&model, m, models_list, NULL, &e);
    assert_int_equal(rc, code);
    if (rc < 0 && (!strstr(e.msg, name) || !strstr(e.msg, word))) fail_msg("\"%s\"", e.msg);
    nn_model_free(model);
    model_file_free(m);
    test_temp_dir_remove(dir);
}

static void test_refusals(void **state) {
    (void)state;
    refuse(TENSOR_Q8_0, "blk.0.ffn_up.scale", 1, ERR_UNSUPPORTED, "only NVFP4");
    refuse(TENSOR_NVFP4, "blk.1.ffn_down.scale", 3, ERR_FORMAT, "one F32 scale");
    refuse(TENSOR_NVFP4, "blk.0.attn_norm.scale", 1, ERR_UNSUPPORTED, "cannot have a scale");
    refuse(TENSOR_NVFP4, "blk.0.ffn_up.input_scale", 1, 0, ""); /* for quantized activations, which there are none of */
}

/* Quantizing such a file anew would lose the scales. */
static void test_quantizing(void **state) {
    char           *dir = test_temp_dir(), from[600], scaled[600], plain[600], out[600];
    model_file     *m = NULL;
    pool           *p = NULL;
    const mix      *q8_0 = NULL;
    quantize_result r = { 0 };
    err             e = { 0 };
    (void)state;
    snprintf(from, sizeof from, "%s/from.gguf", dir);
    snprintf(scaled, sizeof scaled, "%s/scaled.gguf", dir);
    snprintf(plain, sizeof plain, "%s/plain.gguf", dir);
    snprintf(out, sizeof out, "%s/out.gguf", dir);
    synth(from, "llama", 0, TENSOR_NVFP4);
    make_twins(from, scaled, plain);
    assert_int_equal(pool_open(&p, 1, false, &e), 0);
    assert_int_equal(model_file_open(&m, scaled, &e), 0);
    assert_int_equal(mix_find(&q8_0, "Q8_0", &e), 0);
    quantize_options o = { .mix = q8_0, .write.path = out };
    assert_int_equal(gguf_quantize(m, &o, p, &r, &e), ERR_UNSUPPORTED);
    if (!strstr(e.msg, ".weight") || !strstr(e.msg, "scale of its own")) fail_msg("\"%s\"", e.msg);
    model_file_free(m);
    pool_free(p);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_scales_that_are_the_familys),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_quantizing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
