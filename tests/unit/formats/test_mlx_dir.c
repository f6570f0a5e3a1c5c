/* SPDX-License-Identifier: Apache-2.0 */
/* MLX directories: the packing of every module, per-layer overrides, and packed modules whose arrays do not fit. */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/safetensors_writer.h"
#include "formats/hf.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check_module(const model_file *m, const char *module, model_quant_mode mode, int bits, int group) {
    model_quant q;
    if (!model_file_quant(m, module, &q)) fail_msg("%s is not quantized", module);
    assert_int_equal(q.mode, mode);
    assert_int_equal(q.bits, bits);
    assert_int_equal(q.group, group);
}

static void test_modules(void **state) {
    model_file *m = test_model_open("mlx");
    model_quant q;
    (void)state;
    assert_int_equal(model_file_format(m), MODEL_MLX);
    assert_string_equal(model_file_arch(m), "qwen3_moe");
    assert_int_equal(model_file_hf_quant(m)->method, MODEL_HF_PLAIN); /* MLX's copy is not a Hugging Face method */
    check_module(m, "model.embed_tokens", MODEL_QUANT_AFFINE, 4, 64);
    check_module(m, "model.layers.0.self_attn.q_proj", MODEL_QUANT_AFFINE, 2, 64);
    check_module(m, "model.layers.0.self_attn.k_proj", MODEL_QUANT_AFFINE, 3, 32);
    check_module(m, "model.layers.0.self_attn.v_proj", MODEL_QUANT_AFFINE, 5, 128);
    check_module(m, "model.layers.0.self_attn.o_proj", MODEL_QUANT_AFFINE, 6, 64);
    check_module(m, "model.layers.0.mlp.down_proj", MODEL_QUANT_AFFINE, 8, 32);
    check_module(m, "model.layers.0.mlp.gate_proj", MODEL_QUANT_MXFP4, 4, 32);
    check_module(m, "model.layers.0.mlp.up_proj", MODEL_QUANT_MXFP8, 8, 32);
    check_module(m, "model.layers.0.mlp.extra_proj", MODEL_QUANT_NVFP4, 4, 16);
    check_module(m, "model.layers.0.switch_mlp.up_proj", MODEL_QUANT_AFFINE, 4, 64);
    assert_false(model_file_quant(m, "model.layers.0.mlp.router", &q)); /* false in the config */
    assert_false(model_file_quant(m, "lm_head", &q));                   /* no .scales */
    assert_false(model_file_quant(m, "model.layers.0.input_layernorm", &q));
    assert_false(model_file_quant(m, "none", &q));
    test_tensor_check(m, "model.layers.0.self_attn.k_proj.weight", TENSOR_U32, (int64_t[]){ 12, 4, 0 }, 13);
    test_tensor_check(m, "model.layers.0.self_attn.k_proj.scales", TENSOR_BF16, (int64_t[]){ 4, 4, 0 }, 14);
    test_tensor_check(m, "model.layers.0.self_attn.k_proj.biases", TENSOR_BF16, (int64_t[]){ 4, 4, 0 }, 15);
    test_tensor_check(m, "model.layers.0.switch_mlp.up_proj.weight", TENSOR_U32, (int64_t[]){ 8, 4, 3, 0 }, 70);
    test_tensor_check(m, "model.layers.0.mlp.extra_proj.scales", TENSOR_U8, (int64_t[]){ 4, 4, 0 }, 61);
    model_file_free(m);
}

static void config_refused(const char *block, int code, const char *text) {
    hf_config c;
    err       e = { 0 };
    str       s;
    str_init(&s);
    str_printf(&s, "{\"quantization\":%s}", block);
    int rc = hf_config_read(&c, str_cstr(&s), s.len, &e);
    if (rc != code || (code && !strstr(e.msg, text))) fail_msg("%s: code %d, \"%s\"", block, rc, e.msg);
    if (rc == 0) hf_config_deinit(&c);
    str_deinit(&s);
}

static void test_config_refusals(void **state) {
    (void)state;
    config_refused("{\"group_size\":64,\"bits\":4}", 0, NULL);
    config_refused("{\"group_size\":64,\"bits\":4,\"a.b\":true,\"c.d\":null,\"newer\":\"setting\",\"count\":3}", 0,
                   NULL);
    config_refused("{\"group_size\":64,\"bits\":7}", ERR_UNSUPPORTED, "quantization: 7 bits in groups of 64");
    config_refused("{\"group_size\":48,\"bits\":4}", ERR_UNSUPPORTED, "4 bits in groups of 48");
    config_refused("{\"group_size\":\"x\",\"bits\":4}", ERR_FORMAT, "group_size is not an integer");
    config_refused("{\"group_size\":64,\"bits\":1e15}", ERR_FORMAT, "bits is out of range");
    config_refused("{\"mode\":\"int7\"}", ERR_UNSUPPORTED, "mode int7 is not supported");
    config_refused("{\"mode\":\"mxfp4\",\"group_size\":64,\"bits\":4}", ERR_UNSUPPORTED, "4 bits in groups of 64");
    config_refused("{\"bits\":4,\"m.x\":{\"bits\":9}}", ERR_UNSUPPORTED, "quantization of m.x: 9 bits");
    config_refused("7", ERR_FORMAT, "quantization is not an object");
}

/* A directory with one packed module "m"; dims are fastest first. */
static void module_refused(const char *config, tensor_type weight, int64_t words, tensor_type scale, int64_t scales,
                           tensor_type bias, int64_t biases, int code, const char *text) {
    static const uint8_t zeros[4096] = { 0 };
    char                *dir = test_temp_dir(), *path = path_join(dir, "model.safetensors");
    char                *config_path = path_join(dir, "config.json");
    safetensors_writer  *w;
    size_t               bytes;
    assert_int_equal(safetensors_writer_open(&w, NULL), 0);
    assert_int_equal(safetensors_writer_set(w, "format", "mlx", NULL), 0);
    (void)tensor_row_bytes((int)weight, words * 4, &bytes);
    assert_int_equal(safetensors_writer_add(w, "m.weight", weight, 2, (int64_t[]){ words, 4 }, zeros, bytes, NULL), 0);
    (void)tensor_row_bytes((int)scale, scales * 4, &bytes);
    assert_int_equal(safetensors_writer_add(w, "m.scales", scale, 2, (int64_t[]){ scales, 4 }, zeros, bytes, NULL), 0);
    (void)tensor_row_bytes((int)bias, biases * 4, &bytes);
    if (biases)
        assert_int_equal(safetensors_writer_add(w, "m.biases", bias, 2, (int64_t[]){ biases, 4 }, zeros, bytes, NULL),
                         0);
    assert_int_equal(safetensors_writer_write(w, path, NULL), 0);
    safetensors_writer_free(w);
    if (config) test_write_file(config_path, config, strlen(config));
    if (code == 0) {
        model_file *m;
        model_quant q;
        err         e = { 0 };
        if (model_file_open(&m, dir, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(model_file_format(m), MODEL_MLX);
        assert_int_equal(model_file_quant(m, "m", &q), weight == TENSOR_U32);
        model_file_free(m);
    } else {
        test_refused(dir, code, text);
    }
    free(config_path);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_module_refusals(void **state) {
    const tensor_type u32 = TENSOR_U32, f16 = TENSOR_F16, u8 = TENSOR_U8;
    const char       *four = "{\"quantization\":{\"bits\":4,\"group_size\":64}}";
    const char       *mx = "{\"quantization\":{\"mode\":\"mxfp4\"}}";
    (void)state;
    module_refused(four, u32, 8, f16, 1, f16, 1, 0, NULL);
    /* MLX writes its block under both names; older readers of either must work */
    module_refused("{\"quantization_config\":{\"bits\":4,\"group_size\":64}}", u32, 8, f16, 1, f16, 1, 0, NULL);
    module_refused(four, u32, 7, f16, 1, f16, 1, ERR_FORMAT,
                   "module m: rows of 7 words and 1 scales do not fit 4 bits");
    module_refused(four, u32, 8, f16, 2, f16, 2, ERR_FORMAT, "module m: rows of 8 words and 2 scales");
    module_refused(four, u32, 8, f16, 1, f16, 0, ERR_FORMAT, "module m: .biases is missing");
    module_refused(four, u32, 8, f16, 1, TENSOR_BF16, 1, ERR_FORMAT, "module m: .biases is missing or differs");
    module_refused(four, u32, 8, u8, 1, u8, 1, ERR_FORMAT, "module m: .scales has the type U8");
    module_refused(mx, u32, 8, u8, 2, u8, 0, 0, NULL);
    module_refused(mx, u32, 8, u8, 2, u8, 2, ERR_FORMAT, "module m: this mode has u8 .scales and no .biases");
    module_refused(mx, u32, 8, f16, 2, u8, 0, ERR_FORMAT, "module m: this mode has u8 .scales");
    module_refused("{}", u32, 8, f16, 1, f16, 1, ERR_FORMAT,
                   "module m: it is packed, but config.json has no quantization");
    module_refused(NULL, u32, 8, f16, 1, f16, 1, ERR_FORMAT, "module m: it is packed");
    module_refused("{\"quantization\":{\"bits\":4,\"m\":false}}", u32, 8, f16, 1, f16, 1, ERR_FORMAT,
                   "says it is not quantized");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modules),
        cmocka_unit_test(test_config_refusals),
        cmocka_unit_test(test_module_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
