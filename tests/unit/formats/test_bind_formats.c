/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts that no golden model has: FP8 weights with one scale per block, per row and per tensor, and a language model
 * inside a multimodal directory. Each is made from the tiny llama together with a plain twin whose weights were
 * computed here, and both must give the same logits.
 */
#include "backend/backend.h"
#include "base/str.h"
#include "convert/safetensors_writer.h"
#include "formats/safetensors.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "nn/model.h"
#include "tensor/half.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 24, VOCAB = 320 };

static void write_config(const char *dir, const char *extra, bool nested) {
    static const char body[] =
        "\"model_type\": \"llama\", \"vocab_size\": 320, \"hidden_size\": 64, \"intermediate_size\": 128,"
        "\"num_hidden_layers\": 3, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
        "\"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, \"max_position_embeddings\": 512";
    char  path[600];
    FILE *f;
    snprintf(path, sizeof path, "%s/config.json", dir);
    f = fopen(path, "wb");
    assert_non_null(f);
    if (nested)
        fprintf(f, "{\"model_type\": \"some_vision_model\", \"text_config\": {%s}%s}", body, extra);
    else
        fprintf(f, "{%s%s}", body, extra);
    fclose(f);
}

/* Rows and columns that share a scale; 0: all of them. */
typedef struct blocks {
    int64_t rows, cols;
} blocks;

static void logits_of(const char *dir, float *out) {
    model_file *f = NULL;
    nn_model   *m = NULL;
    simple      s;
    err         e = { 0 };
    int32_t     ids[N];
    for (int i = 0; i < N; i++) ids[i] = i * 13 % VOCAB;
    if (model_file_open(&f, dir, &e) < 0 || nn_model_open(&m, f, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    simple_options o = {
        .max_len = N, .max_tokens = N, .n_threads = 1, .k_type = NN_KV_F32, .v_type = NN_KV_F32, .cpu = cpu_detect()
    };
    if (simple_open(&s, "cpu", m, &o, &e) < 0) fail_msg("%s", e.msg);
    if (simple_step(&s, &(simple_feed){ .ids = ids, .n = N, .all = true }, 1, &e) < 0) fail_msg("%s", e.msg);
    const float *logits = simple_fetch(&s, NN_FETCH_LOGITS, &e);
    assert_int_equal(nn_exec_width(s.exec, NN_FETCH_LOGITS), VOCAB);
    memcpy(out, logits, sizeof(float) * N * VOCAB);
    simple_close(&s);
    nn_model_free(m);
    model_file_free(f);
}

/* Every projection as FP8 with scales into `packed`, and its exact values as f32 into `plain`. */
static void make_fp8(const char *packed, const char *plain, blocks b, const char *ending, bool vector_scales,
                     const char *prefix) {
    char                path[600], source[600];
    model_file         *m;
    safetensors_writer *wp, *wf;
    arena               mem;
    err                 e = { 0 };
    snprintf(source, sizeof source, "%s/tests/golden/models/llama", HEARTH_SOURCE_DIR);
    assert_int_equal(model_file_open(&m, source, &e), 0);
    assert_int_equal(safetensors_writer_open(&wp, &e), 0);
    assert_int_equal(safetensors_writer_open(&wf, &e), 0);
    arena_init(&mem, 0);
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        const char         *base = strncmp(t->name, "model.", 6) == 0 ? t->name + 6 : NULL;
        char                name[300], scale_name[320];
        snprintf(name, sizeof name, "%s%s", base ? prefix : "", base ? base : t->name);
        if (!strstr(t->name, "_proj.weight")) {
            assert_int_equal(safetensors_writer_add(wp, name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
            assert_int_equal(safetensors_writer_add(wf, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e),
                             0);
            continue;
        }
        int64_t  rows = t->dims[1], cols = t->dims[0], br = b.rows ? b.rows : rows, bc = b.cols ? b.cols : cols;
        int64_t  nr = (rows + br - 1) / br, nc = (cols + bc - 1) / bc;
        uint8_t *q = arena_alloc(&mem, (size_t)(rows * cols));
        float   *v = arena_alloc(&mem, (size_t)(rows * cols) * 4), *scale = arena_calloc(&mem, (size_t)(nr * nc), 4);
        for (int64_t k = 0; k < rows * cols; k++) {
            uint16_t h;
            memcpy(&h, t->data + k * 2, 2);
            v[k] = tensor_bf16_to_f32(h);
            float *s = &scale[k / cols / br * nc + k % cols / bc];
            *s = fmaxf(*s, fabsf(v[k]) / 448.0f);
        }
        for (int64_t k = 0; k < rows * cols; k++) {
            float s = scale[k / cols / br * nc + k % cols / bc];
            q[k] = tensor_f32_to_e4m3(v[k] / s);
            v[k] = tensor_e4m3_to_f32(q[k]) * s;
        }
        int64_t dims[2] = { cols, rows }, scale_dims[2] = { vector_scales ? nr : nc, nr };
        snprintf(scale_name, sizeof scale_name, "%.*s%s", (int)(strlen(name) - strlen(".weight")), name, ending);
        assert_int_equal(safetensors_writer_add(wp, name, TENSOR_F8_E4M3, 2, dims, q, (size_t)(rows * cols), &e), 0);
        assert_int_equal(safetensors_writer_add(wp, scale_name, TENSOR_F32, vector_scales ? 1 : 2, scale_dims, scale,
                                                (size_t)(nr * nc) * 4, &e),
                         0);
        assert_int_equal(safetensors_writer_add(wf, t->name, TENSOR_F32, 2, dims, v, (size_t)(rows * cols) * 4, &e), 0);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", packed);
    assert_int_equal(safetensors_writer_write(wp, path, &e), 0);
    snprintf(path, sizeof path, "%s/model.safetensors", plain);
    assert_int_equal(safetensors_writer_write(wf, path, &e), 0);
    safetensors_writer_free(wp);
    safetensors_writer_free(wf);
    arena_deinit(&mem);
    model_file_free(m);
}

static void check(blocks b, const char *ending, bool vector_scales, const char *extra, bool nested,
                  const char *prefix) {
    char  *packed = test_temp_dir(), *plain = test_temp_dir();
    float *a = malloc(sizeof(float) * N * VOCAB), *r = malloc(sizeof(float) * N * VOCAB);
    double worst = 0, sum = 0;
    make_fp8(packed, plain, b, ending, vector_scales, prefix);
    write_config(packed, extra, nested);
    write_config(plain, "", false);
    logits_of(packed, a);
    logits_of(plain, r);
    for (int i = 0; i < N * VOCAB; i++) {
        worst = fmax(worst, fabs((double)a[i] - (double)r[i]));
        sum += (double)r[i] * (double)r[i];
    }
    if (!(worst <= 1e-4 * sqrt(sum / (N * VOCAB)))) fail_msg("%s: logits differ by %g", ending, worst);
    free(a);
    free(r);
    test_temp_dir_remove(packed);
    test_temp_dir_remove(plain);
}

static void test_fp8_blocks(void **state) {
    (void)state;
    check((blocks){ 16, 32 }, ".weight_scale_inv", false,
          ", \"quantization_config\": {\"quant_method\": \"fp8\", \"weight_block_size\": [16, 32]}", false, "model.");
}

static void test_fp8_per_tensor(void **state) {
    (void)state;
    check((blocks){ 0, 0 }, ".weight_scale", false, ", \"quantization_config\": {\"quant_method\": \"fp8\"}", false,
          "model.");
}

static void test_fp8_per_row(void **state) {
    (void)state;
    check((blocks){ 1, 0 }, ".weight_scale", false, ", \"quantization_config\": {\"quant_method\": \"fp8\"}", false,
          "model.");
    check((blocks){ 1, 0 }, ".weight_scale", true, ", \"quantization_config\": {\"quant_method\": \"fp8\"}", false,
          "model.");
}

static void test_inside_a_multimodal_model(void **state) {
    (void)state;
    check((blocks){ 0, 0 }, ".weight_scale", false, ", \"quantization_config\": {\"quant_method\": \"fp8\"}", true,
          "model.language_model.");
    check((blocks){ 0, 0 }, ".weight_scale", false, ", \"quantization_config\": {\"quant_method\": \"fp8\"}", true,
          "language_model.model.");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_fp8_blocks), cmocka_unit_test(test_fp8_per_tensor),
                                        cmocka_unit_test(test_fp8_per_row),
                                        cmocka_unit_test(test_inside_a_multimodal_model) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
