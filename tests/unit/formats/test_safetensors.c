/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors reader: every value of the fixtures, and a refusal with a naming sentence for every broken field. */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tensor_type order[] = {
    TENSOR_F64, TENSOR_F32, TENSOR_F16, TENSOR_BF16, TENSOR_I64,  TENSOR_I32,     TENSOR_I16,     TENSOR_I8,
    TENSOR_U8,  TENSOR_U16, TENSOR_U32, TENSOR_U64,  TENSOR_BOOL, TENSOR_F8_E4M3, TENSOR_F8_E5M2, TENSOR_F8_E8M0,
};

static void test_every_type(void **state) {
    model_file         *m = test_model_open("plain.safetensors");
    const model_tensor *t;
    (void)state;
    assert_int_equal(model_file_format(m), MODEL_HF);
    assert_int_equal(model_file_tensor_count(m), 16 + 3);
    assert_null(model_file_config(m));
    assert_null(model_file_arch(m));
    assert_int_equal(model_file_meta_count(m), 0);
    for (unsigned i = 0; i < 16; i++) {
        char name[32] = "t.";
        for (const char *p = safetensors_dtype_name(order[i]); *p; p++) {
            char c[2] = { *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p, 0 };
            strcat(name, c);
        }
        test_tensor_check(m, name, order[i], (int64_t[]){ 4, 3, 0 }, i);
    }
    test_tensor_check(m, "scalar", TENSOR_F32, (int64_t[]){ 0 }, 40);
    test_tensor_check(m, "five", TENSOR_I16, (int64_t[]){ 2, 1, 3, 1, 2, 0 }, 42);
    t = model_file_tensor(m, "empty");
    assert_non_null(t);
    assert_int_equal(t->bytes, 0);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 7);
    assert_int_equal(t->dims[1], 0);
    model_file_free(m);
}

static void test_unaligned(void **state) {
    model_file *m = test_model_open("odd.safetensors");
    (void)state;
    test_tensor_check(m, "a", TENSOR_F32, (int64_t[]){ 2, 2, 0 }, 1);
    test_tensor_check(m, "b", TENSOR_U8, (int64_t[]){ 3, 0 }, 2);
    assert_int_not_equal((uintptr_t)model_file_tensor(m, "a")->data % 4, 0);
    model_file_free(m);
}

static void test_metadata(void **state) {
    char        *path = test_fixture_path("formats/plain.safetensors"), *data;
    size_t       bytes;
    safetensors  s;
    tensor_table t;
    (void)state;
    assert_int_equal(file_read(&data, &bytes, path, 1 << 20, NULL), 0);
    tensor_table_init(&t);
    assert_int_equal(safetensors_read_memory(&s, (uint8_t *)data, bytes, &t, NULL, NULL, NULL), 0);
    assert_int_equal(s.n_metadata, 2);
    assert_string_equal(safetensors_find(&s, "format"), "pt");
    assert_string_equal(safetensors_find(&s, "note"), "caf\xC3\xA9 \"quoted\"");
    assert_null(safetensors_find(&s, "none"));
    safetensors_deinit(&s);
    tensor_table_deinit(&t);
    free(data);
    free(path);
}

/* A file with this header text and this many bytes of data: the outcome of reading it. */
static void expect(const char *header, size_t data_bytes, int code, const char *text) {
    uint64_t     len = strlen(header);
    size_t       bytes = 8 + len + data_bytes;
    uint8_t     *file = calloc(1, bytes);
    safetensors  s;
    tensor_table t;
    err          e = { 0 };
    assert_non_null(file);
    memcpy(file, &len, 8);
    memcpy(file + 8, header, len);
    tensor_table_init(&t);
    int rc = safetensors_read_memory(&s, file, bytes, &t, NULL, NULL, &e);
    if (rc != code || (code && !strstr(e.msg, text)))
        fail_msg("%s: code %d, \"%s\"; expected %d, \"%s\"", header, rc, e.msg, code, text);
    if (rc == 0) safetensors_deinit(&s);
    tensor_table_deinit(&t);
    free(file);
}

static void test_refusals(void **state) {
    str s;
    (void)state;
    expect("{}", 0, 0, "");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4],\"extra\":[{\"x\":1}]}}  ", 4, 0, "");
    expect("", 0, ERR_FORMAT, "header");
    expect("[]", 0, ERR_FORMAT, "the header is not a JSON object");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}", 4, ERR_FORMAT, "header: JSON line 1");
    expect("{} x", 0, ERR_FORMAT, "header: JSON");
    expect("{\"a\":1}", 0, ERR_FORMAT, "tensor a: its entry is not an object");
    expect("{\"a\":{\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "tensor a: dtype is missing");
    expect("{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "tensor a: shape is missing");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, ERR_FORMAT, "tensor a: data_offsets is missing");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0]}}", 4, ERR_FORMAT, "not a pair");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4,4]}}", 4, ERR_LIMIT,
           "data_offsets has more than 2");
    expect("{\"a\":{\"dtype\":\"C64\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERR_UNSUPPORTED,
           "tensor a: dtype C64 is not supported");
    expect("{\"a\":{\"dtype\":\"\\u001b[1m\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERR_UNSUPPORTED,
           "dtype \\x1B[1m");
    expect("{\"a\":{\"dtype\":7,\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "dtype is not a string");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":4,\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "shape is not an array");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[-4],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "non-negative integer");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4.5],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT, "non-negative integer");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,4],\"data_offsets\":[0,4]}}", 4, ERR_LIMIT,
           "shape has more than 8 entries");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,5]}}", 4, ERR_FORMAT,
           "lie outside the data (4 bytes)");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,0]}}", 4, ERR_FORMAT, "lie outside the data");
    expect("{\"a\":{\"dtype\":\"U16\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4, ERR_FORMAT,
           "span 4 bytes; dtype and shape need 8");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 4, ERR_FORMAT,
           "overflows");
    expect("{\"a\":{\"dtype\":\"F64\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 4, ERR_FORMAT,
           "overflows");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
           "\"data_offsets\":[3,5]}}",
           8, ERR_FORMAT, "tensors a and b overlap");
    expect("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"a\":{\"dtype\":\"U8\",\"shape\":[1],"
           "\"data_offsets\":[1,2]}}",
           8, ERR_FORMAT, "tensor a: it appears twice");
    expect("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 8, ERR_FORMAT, "its name is empty");
    expect("{\"a\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 8, ERR_FORMAT,
           "tensor a\\x0A: its name holds");
    expect("{\"__metadata__\":{\"a\":1}}", 0, ERR_FORMAT, "__metadata__: a is not a string");
    expect("{\"__metadata__\":[]}", 0, ERR_FORMAT, "__metadata__ is not an object");
    expect("{\"__metadata__\":{},\"__metadata__\":{}}", 0, ERR_FORMAT, "__metadata__ appears twice");
    str_init(&s);
    str_puts(&s, "{\"a\":");
    for (int i = 0; i < 500; i++) str_puts(&s, "{\"x\":");
    expect(str_cstr(&s), 0, ERR_LIMIT, "JSON");
    str_deinit(&s);
}

static void test_length_refusals(void **state) {
    tensor_table t;
    safetensors  s;
    err          e;
    uint8_t      bytes[16] = { 100, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
    (void)state;
    tensor_table_init(&t);
    assert_int_equal(safetensors_read_memory(&s, bytes, 10, &t, NULL, NULL, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "the file ends inside the header"));
    assert_int_equal(safetensors_read_memory(&s, bytes, 7, &t, NULL, NULL, &e), ERR_FORMAT);
    memset(bytes, 0xFF, 8);
    assert_int_equal(safetensors_read_memory(&s, bytes, 10, &t, NULL, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "the limit is 100000000"));
    tensor_table_deinit(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type), cmocka_unit_test(test_unaligned),       cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_refusals),   cmocka_unit_test(test_length_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
