/* SPDX-License-Identifier: Apache-2.0 */
/* Hugging Face directories: config, sharded weights, sidecars, and directories that hold less than a whole model. */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/hf.h"
#include "formats/safetensors.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void test_directory(void **state) {
    static const char *const paths[] = { "hf",
                                         "hf/",
                                         "hf/config.json",
                                         "hf/model.safetensors.index.json",
                                         "hf/tokenizer.json",
                                         "hf/model-00002-of-00002.safetensors" };
    (void)state;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        model_file *m = test_model_open(paths[i]);
        int64_t     n;
        assert_int_equal(model_file_format(m), MODEL_HF);
        assert_int_equal(model_file_tensor_count(m), 4);
        test_tensor_check(m, "model.embed_tokens.weight", TENSOR_BF16, (int64_t[]){ 64, 8, 0 }, 1);
        test_tensor_check(m, "model.layers.0.self_attn.q_proj.weight", TENSOR_BF16, (int64_t[]){ 64, 64, 0 }, 2);
        test_tensor_check(m, "model.layers.0.input_layernorm.weight", TENSOR_F32, (int64_t[]){ 64, 0 }, 3);
        test_tensor_check(m, "lm_head.weight", TENSOR_BF16, (int64_t[]){ 64, 8, 0 }, 4);
        assert_int_equal(model_file_bytes(m), 9448 + 1488);
        assert_string_equal(model_file_arch(m), "gemma3");
        assert_string_equal(json_cstr(json_get(model_file_text_config(m), "model_type")), "gemma3_text");
        assert_true(json_int(model_file_config_get(m, "vocab_size"), &n) && n == 8); /* the nested one comes first */
        assert_string_equal(json_cstr(model_file_config_get(m, "torch_dtype")), "bfloat16");
        assert_null(model_file_config_get(m, "none"));
        assert_true(json_int(json_at(json_get(model_file_generation_config(m), "eos_token_id"), 1), &n) && n == 106);
        assert_int_equal(model_file_hf_quant(m)->method, MODEL_HF_PLAIN);
        assert_null(model_file_meta(m, "general.architecture"));
        char *side = model_file_sidecar(m, "tokenizer.json");
        assert_non_null(side);
        assert_true(file_exists(side));
        free(side);
        assert_null(model_file_sidecar(m, "tokenizer.model"));
        model_file_free(m);
    }
}

static void test_quantization_config(void **state) {
    model_file           *m = test_model_open("fp8");
    const model_hf_quant *q = model_file_hf_quant(m);
    (void)state;
    assert_int_equal(model_file_tensor_count(m), 0);
    assert_string_equal(model_file_arch(m), "deepseek_v3");
    assert_int_equal(q->method, MODEL_HF_FP8);
    assert_string_equal(q->name, "fp8");
    assert_int_equal(q->block_rows, 128);
    assert_int_equal(q->block_cols, 128);
    model_file_free(m);
}

static void check_method(const char *block, model_hf_method method, const char *name, int bits, int group) {
    hf_config c;
    err       e = { 0 };
    char      text[300];
    snprintf(text, sizeof text, "{\"quantization_config\":%s}", block);
    if (hf_config_read(&c, text, strlen(text), &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(c.quant.method, method);
    assert_string_equal(c.quant.name, name);
    assert_int_equal(c.quant.bits, bits);
    assert_int_equal(c.quant.group, group);
    hf_config_deinit(&c);
}

static void test_methods(void **state) {
    (void)state;
    check_method("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":128}", MODEL_HF_GPTQ, "gptq", 4, 128);
    check_method("{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":-1}", MODEL_HF_GPTQ, "gptq", 8, 0);
    check_method("{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64,\"version\":\"gemm\"}", MODEL_HF_AWQ, "awq", 4,
                 64);
    check_method("{\"load_in_4bit\":true,\"quant_method\":\"bitsandbytes\"}", MODEL_HF_BNB_4BIT, "bitsandbytes", 0, 0);
    check_method("{\"load_in_8bit\":true}", MODEL_HF_BNB_8BIT, "bitsandbytes", 0, 0);
    check_method("{\"quant_method\":\"mxfp4\"}", MODEL_HF_MXFP4, "mxfp4", 0, 0);
    check_method("{\"quant_method\":\"compressed-tensors\"}", MODEL_HF_COMPRESSED, "compressed-tensors", 0, 0);
    check_method("{\"quant_method\":\"exl2\",\"bits\":4.65}", MODEL_HF_OTHER, "exl2", 0, 0);
}

/* ---- directories made here ---- */

static void put(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    test_write_file(path, text, strlen(text));
    free(path);
}

/* A shard with u8 tensors of one element each, written by hand: names separated by spaces. */
static void put_shard(const char *dir, const char *name, const char *tensors) {
    char    *path = path_join(dir, name), *copy = strdup(tensors), *rest = copy;
    str      s, file;
    unsigned at = 0;
    str_init(&s);
    str_init(&file);
    str_push(&s, '{');
    for (const char *t; (t = strtok_r(rest, " ", &rest)); at++)
        str_printf(&s, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}", at ? "," : "", t, at,
                   at + 1);
    str_push(&s, '}');
    uint64_t len = s.len;
    str_append(&file, &len, 8);
    str_append(&file, str_cstr(&s), s.len);
    for (unsigned i = 0; i < at; i++) str_push(&file, (char)i);
    test_write_file(path, file.data, file.len);
    str_deinit(&s);
    str_deinit(&file);
    free(copy);
    free(path);
}

static size_t tensors_in(const char *dir) {
    model_file *m;
    err         e = { 0 };
    if (model_file_open(&m, dir, &e) < 0) fail_msg("%s", e.msg);
    size_t n = model_file_tensor_count(m);
    model_file_free(m);
    return n;
}

static void index_refused(const char *index, int code, const char *text) {
    char *dir = test_temp_dir();
    put_shard(dir, "a.safetensors", "x y");
    put_shard(dir, "b.safetensors", "z x");
    put(dir, "model.safetensors.index.json", index);
    if (code == 0)
        assert_int_equal(tensors_in(dir), 3);
    else
        test_refused(dir, code, text);
    test_temp_dir_remove(dir);
}

static void test_index(void **state) {
    (void)state;
    /* b's copy of x belongs to a: passed over */
    index_refused("{\"weight_map\":{\"x\":\"a.safetensors\",\"y\":\"a.safetensors\",\"z\":\"b.safetensors\"}}", 0,
                  NULL);
    index_refused("{\"weight_map\":{\"y\":\"a.safetensors\",\"z\":\"b.safetensors\"}}", ERR_FORMAT,
                  "tensor x: it appears twice");
    index_refused("{\"weight_map\":{\"w\":\"a.safetensors\"}}", ERR_FORMAT,
                  "tensor w is missing in its shard a.safetensors");
    index_refused("{\"weight_map\":{\"w\":\"c.safetensors\"}}", ERR_IO, "c.safetensors");
    index_refused("{\"weight_map\":{\"w\":\"../c.safetensors\"}}", ERR_FORMAT, "it is not a plain file name");
    index_refused("{\"weight_map\":{\"w\":\"/etc/c.safetensors\"}}", ERR_FORMAT, "it is not a plain file name");
    index_refused("{\"weight_map\":{\"w\":\"..\"}}", ERR_FORMAT, "it is not a plain file name");
    index_refused("{\"weight_map\":{\"w\":\"c\\u0000.safetensors\"}}", ERR_FORMAT, "control character");
    index_refused("{\"weight_map\":{\"w\":\"c.bin\"}}", ERR_UNSUPPORTED, "it is not a .safetensors file");
    index_refused("{\"weight_map\":{\"w\":1}}", ERR_FORMAT, "the shard of w is not a string");
    index_refused("{\"weight_map\":[]}", ERR_FORMAT, "weight_map is not an object");
    index_refused("{\"weight_map\":{\"w\":\"a.safetensors\",\"w\":\"a.safetensors\"}}", ERR_FORMAT,
                  "tensor w appears twice");
    index_refused("{}", ERR_FORMAT, "weight_map is missing");
    index_refused("{", ERR_FORMAT, "model.safetensors.index.json: JSON line 1");
}

static void test_partial_directories(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    test_refused(dir, ERR_NOTFOUND, "holds no model");
    put(dir, "README.md", "x");
    test_refused(dir, ERR_NOTFOUND, "holds no model");
    put(dir, "tokenizer.json", "{}");
    assert_int_equal(tensors_in(dir), 0);
    put(dir, "config.json", "{\"model_type\": \"x\"}");
    assert_int_equal(tensors_in(dir), 0);
    put_shard(dir, "anything.safetensors", "a b");
    assert_int_equal(tensors_in(dir), 2);
    put_shard(dir, "adapters.safetensors", "c");
    test_refused(dir, ERR_FORMAT, "none is named model");
    put_shard(dir, "model.safetensors", "d e f");
    assert_int_equal(tensors_in(dir), 3);
    put(dir, "config.json", "[]");
    test_refused(dir, ERR_FORMAT, "config.json: it is not a JSON object");
    put(dir, "config.json", "{");
    test_refused(dir, ERR_FORMAT, "config.json: JSON line 1");
    put(dir, "config.json", "{}");
    put(dir, "generation_config.json", "{");
    test_refused(dir, ERR_FORMAT, "generation_config.json: JSON line 1");
    test_temp_dir_remove(dir);
}

static void test_set_without_index(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    put_shard(dir, "model-00001-of-00002.safetensors", "a b");
    put_shard(dir, "adapter.safetensors", "a");
    test_refused(dir, ERR_NOTFOUND, "is one of 2 shards, but the directory holds 1");
    put_shard(dir, "model-00002-of-00002.safetensors", "c");
    assert_int_equal(tensors_in(dir), 3);
    test_temp_dir_remove(dir);
}

static void test_other_files(void **state) {
    char *dir = test_temp_dir(), *path = path_join(dir, "model.gguf"), *gguf = test_fixture_path("formats/v3.gguf");
    (void)state;
    test_refused(path, ERR_IO, "No such file");
    put(dir, "model.gguf", "");
    test_refused(path, ERR_FORMAT, "is empty");
    put(dir, "model.gguf", "hello world");
    test_refused(path, ERR_FORMAT, "neither a GGUF nor a safetensors file");
    put(dir, "model.gguf", "PK\x03\x04 zip");
    test_refused(path, ERR_UNSUPPORTED, "a PyTorch or zip archive");
    put(dir, "model.gguf", "version https://git-lfs/spec/v1\noid x\n");
    test_refused(path, ERR_UNSUPPORTED, "a Git LFS pointer");
    put(dir, "model.safetensors", "version https://git-lfs/spec/v1\noid x\n");
    test_refused(dir, ERR_FORMAT, "a Git LFS pointer");
    /* the content decides, not the name */
    unlink(path);
    assert_int_equal(symlink(gguf, path), 0);
    model_file *m;
    assert_int_equal(model_file_open(&m, path, NULL), 0);
    assert_int_equal(model_file_format(m), MODEL_GGUF);
    model_file_free(m);
    char *odd = path_join(dir, "model.safetensors");
    unlink(odd);
    assert_int_equal(symlink(gguf, odd), 0);
    assert_int_equal(model_file_open(&m, odd, NULL), 0);
    assert_int_equal(model_file_format(m), MODEL_GGUF);
    model_file_free(m);
    unlink(odd);
    assert_int_equal(tensors_in(dir), 8); /* a directory with one GGUF and nothing else */
    put(dir, "mmproj-x.gguf", "GGUF");
    assert_int_equal(tensors_in(dir), 8); /* a projector beside it does not count */
    free(odd);
    free(path);
    free(gguf);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_quantization_config),
        cmocka_unit_test(test_methods),
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_partial_directories),
        cmocka_unit_test(test_set_without_index),
        cmocka_unit_test(test_other_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
