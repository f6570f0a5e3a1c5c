/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the writers write is read back by our readers and by tests/golden/read_formats.py, which shares no code with
 * either. Without python3 that half says "skipped".
 */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/gguf_writer.h"
#include "convert/safetensors_writer.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CRC-32 as zlib has it, bit by bit. */
static unsigned crc32_of(const uint8_t *data, size_t bytes) {
    unsigned crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return ~crc;
}

static bool have_python(void) {
    if (system("python3 -c 'pass' >/dev/null 2>&1") == 0) return true;
    printf("skipped: python3 not found, the files are read by our own readers only\n");
    return false;
}

/* What the Python reader says about a file, or NULL after saying "skipped". The caller frees. */
static char *python_says(const char *path) {
    str    command;
    char  *text;
    size_t bytes;
    FILE  *out;
    if (!have_python()) return NULL;
    str_init(&command);
    str_printf(&command, "python3 '%s/tests/golden/read_formats.py' '%s'", HEARTH_SOURCE_DIR, path);
    out = popen(str_cstr(&command), "r");
    assert_non_null(out);
    assert_int_equal(file_read_stream(&text, &bytes, out, "python3", 1 << 20, NULL), 0);
    assert_int_equal(pclose(out), 0);
    str_deinit(&command);
    return text;
}

static void line(const char *text, const char *want) {
    if (!strstr(text, want)) fail_msg("no line \"%s\" in:\n%s", want, text);
}

static void fill(uint8_t *data, size_t bytes, unsigned seed) {
    for (size_t i = 0; i < bytes; i++) data[i] = test_pattern(seed, i);
}

static const view  words[] = { { "one", 3 }, { "", 0 }, { "tw\xC3\xB6", 4 } };
static const float reals[] = { 1.5f, -0.25f, FLT_MAX };

static void set_keys(gguf_writer *w) {
    const uint64_t   big[] = { UINT64_MAX, 7 };
    const bool       flags[] = { true, false };
    const meta_value none = { .type = META_ARRAY, .elem_type = META_STRING };
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "first", NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.u8", META_U8, 255, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.i8", META_I8, -128, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.u16", META_U16, 65535, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.i16", META_I16, -32768, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.u32", META_U32, UINT32_MAX, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.i32", META_I32, INT32_MIN, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.u64", META_U64, INT64_MAX, NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "a.i64", META_I64, INT64_MIN, NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "a.f32", META_F32, 0.5, NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "a.f64", META_F64, 0.1, NULL), 0);
    assert_int_equal(gguf_writer_set_bool(w, "a.bool", true, NULL), 0);
    assert_int_equal(gguf_writer_set_strings(w, "b.words", words, 3, NULL), 0);
    assert_int_equal(gguf_writer_set_array(w, "b.reals", META_F32, reals, 3, NULL), 0);
    assert_int_equal(gguf_writer_set_array(w, "b.big", META_U64, big, 2, NULL), 0);
    assert_int_equal(gguf_writer_set_array(w, "b.flags", META_BOOL, flags, 2, NULL), 0);
    assert_int_equal(gguf_writer_set(w, "b.none", &none, NULL), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "llama", NULL), 0); /* replaces */
}

static void check_python_gguf(const char *path, unsigned crc_a, unsigned crc_b) {
    char *text = python_says(path), want[120];
    if (!text) return;
    line(text, "gguf 3 3 18\n");
    line(text, "key general.alignment 4 128\nkey general.architecture 8 \"llama\"\nkey a.u8 0 255\nkey a.i8 1 -128\n");
    line(text, "key a.u16 2 65535\nkey a.i16 3 -32768\nkey a.u32 4 4294967295\nkey a.i32 5 -2147483648\n");
    line(text,
         "key a.u64 10 9223372036854775807\nkey a.i64 11 -9223372036854775808\nkey a.f32 6 0.5\nkey a.f64 12 0.1\n");
    line(text, "key a.bool 7 1\nkey b.words 9 [8, [\"one\", \"\", \"tw\\u00f6\"]]\n");
    line(text,
         "key b.reals 9 [6, [1.5, -0.25, 3.4028234663852886e+38]]\nkey b.big 9 [10, [18446744073709551615, 7]]\n");
    line(text, "key b.flags 9 [7, [1, 0]]\nkey b.none 9 [8, []]\n");
    snprintf(want, sizeof want, "tensor a.weight 2 [64, 3] %u\n", crc_a);
    line(text, want);
    snprintf(want, sizeof want, "tensor b.weight 0 [2, 1, 3] %u\n", crc_b);
    line(text, want);
    line(text, "tensor scalar 0 [] ");
    free(text);
}

static void test_gguf_round_trip(void **state) {
    char             *dir = test_temp_dir(), *path = path_join(dir, "x.gguf");
    uint8_t           a[108], b[24], c[4];
    gguf_writer      *w;
    model_file       *m;
    const meta_value *v;
    err               e = { 0 };
    int64_t           i;
    double            r;
    view              s;
    (void)state;
    fill(a, sizeof a, 9);
    fill(b, sizeof b, 10);
    fill(c, sizeof c, 11);
    assert_int_equal(gguf_writer_open(&w, 128, &e), 0);
    set_keys(w);
    assert_int_equal(gguf_writer_add(w, "a.weight", TENSOR_Q4_0, 2, (int64_t[]){ 64, 3 }, a, sizeof a, &e), 0);
    assert_int_equal(gguf_writer_add(w, "b.weight", TENSOR_F32, 3, (int64_t[]){ 2, 1, 3 }, b, sizeof b, &e), 0);
    assert_int_equal(gguf_writer_add(w, "scalar", TENSOR_F32, 0, NULL, c, sizeof c, &e), 0);
    if (gguf_writer_write(w, path, &e) < 0) fail_msg("%s", e.msg);
    gguf_writer_free(w);
    if (model_file_open(&m, path, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(model_file_meta_count(m), 18);
    assert_string_equal(model_file_arch(m), "llama");
    assert_true(meta_int(model_file_meta(m, "a.i64"), &i) && i == INT64_MIN);
    assert_true(meta_real(model_file_meta(m, "a.f64"), &r) && r == 0.1);
    v = model_file_meta(m, "b.words");
    for (size_t k = 0; k < 3; k++) assert_true(meta_at_string(v, k, &s) && view_eq(s, words[k]));
    assert_int_equal(v->count, 3);
    v = model_file_meta(m, "b.reals");
    assert_true(meta_at_real(v, 2, &r) && r == (double)FLT_MAX);
    assert_int_equal(model_file_tensor_count(m), 3);
    test_tensor_check(m, "a.weight", TENSOR_Q4_0, (int64_t[]){ 64, 3, 0 }, 9);
    test_tensor_check(m, "b.weight", TENSOR_F32, (int64_t[]){ 2, 1, 3, 0 }, 10);
    test_tensor_check(m, "scalar", TENSOR_F32, (int64_t[]){ 0 }, 11);
    assert_int_equal((uintptr_t)model_file_tensor(m, "b.weight")->data % 128, 0);
    model_file_free(m);
    check_python_gguf(path, crc32_of(a, sizeof a), crc32_of(b, sizeof b));
    free(path);
    test_temp_dir_remove(dir);
}

/* Copying a foreign file key by key and tensor by tensor gives a file with the same content. */
static void test_gguf_copy(void **state) {
    char        *dir = test_temp_dir(), *path = path_join(dir, "copy.gguf");
    model_file  *m = test_model_open("v3.gguf"), *copy;
    gguf_writer *w;
    err          e = { 0 };
    (void)state;
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    for (size_t i = 0; i < model_file_meta_count(m); i++)
        assert_int_equal(gguf_writer_set(w, model_file_meta_key(m, i), model_file_meta_at(m, i), &e), 0);
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        assert_int_equal(gguf_writer_add(w, t->name, t->type, t->n_dims, t->dims, t->data, t->bytes, &e), 0);
    }
    assert_int_equal(gguf_writer_write(w, path, &e), 0);
    gguf_writer_free(w);
    if (model_file_open(&copy, path, &e) < 0) fail_msg("%s", e.msg);
    /* The Python script padded the last tensor too, so the files are equal byte for byte. */
    assert_int_equal(model_file_bytes(copy), model_file_bytes(m));
    char  *one, *two;
    size_t one_bytes, two_bytes;
    assert_int_equal(file_read(&one, &one_bytes, model_file_path(m), 1 << 20, NULL), 0);
    assert_int_equal(file_read(&two, &two_bytes, path, 1 << 20, NULL), 0);
    assert_memory_equal(one, two, one_bytes);
    free(one);
    free(two);
    model_file_free(copy);
    model_file_free(m);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_gguf_refusals(void **state) {
    gguf_writer     *w;
    err              e = { 0 };
    uint8_t          data[64] = { 0 };
    const meta_value nested = { .type = META_ARRAY, .elem_type = META_ARRAY, .count = 1 };
    (void)state;
    assert_int_equal(gguf_writer_open(&w, 48, &e), ERR_ARG);
    assert_null(w);
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_int(w, "k", META_U8, 256, &e), ERR_ARG);
    assert_int_equal(gguf_writer_set_int(w, "k", META_U64, -1, &e), ERR_ARG);
    assert_int_equal(gguf_writer_set_int(w, "k", META_F32, 1, &e), ERR_ARG);
    assert_int_equal(gguf_writer_set_real(w, "k", META_U8, 1, &e), ERR_ARG);
    assert_int_equal(gguf_writer_set(w, "k", &nested, &e), ERR_ARG);
    assert_int_equal(gguf_writer_set_string(w, "", "x", &e), ERR_FORMAT);
    assert_int_equal(gguf_writer_set_int(w, "general.alignment", META_U32, 33, &e), ERR_ARG);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_Q4_0, 1, (int64_t[]){ 31 }, data, 18, &e), ERR_FORMAT);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_F32, 1, (int64_t[]){ 4 }, data, 15, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "tensor t: 15 bytes given; type and shape need 16"));
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_U8, 1, (int64_t[]){ 4 }, data, 4, &e), ERR_ARG);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_F32, 5, (int64_t[]){ 1, 1, 1, 1, 1 }, data, 4, &e), ERR_ARG);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_F32, 1, (int64_t[]){ 0 }, data, 0, &e), ERR_ARG);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_F32, 1, (int64_t[]){ 1 }, data, 4, &e), 0);
    assert_int_equal(gguf_writer_add(w, "t", TENSOR_F32, 1, (int64_t[]){ 1 }, data, 4, &e), ERR_FORMAT);
    assert_int_equal(gguf_writer_write(w, "/no/such/directory/x.gguf", &e), ERR_IO);
    gguf_writer_free(w);
}

static void test_safetensors_round_trip(void **state) {
    char               *dir = test_temp_dir(), *path = path_join(dir, "model.safetensors"), *text, want[120];
    uint8_t             a[24], b[5];
    safetensors_writer *w;
    model_file         *m;
    err                 e = { 0 };
    (void)state;
    fill(a, sizeof a, 3);
    fill(b, sizeof b, 4);
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    assert_int_equal(safetensors_writer_set(w, "format", "pt", &e), 0);
    assert_int_equal(safetensors_writer_set(w, "no\"te", "caf\xC3\xA9\n", &e), 0);
    assert_int_equal(safetensors_writer_set(w, "format", "mlx", &e), ERR_ARG);
    assert_int_equal(safetensors_writer_add(w, "b.x", TENSOR_F8_E4M3, 1, (int64_t[]){ 5 }, b, 5, &e), 0);
    assert_int_equal(safetensors_writer_add(w, "a.weight", TENSOR_BF16, 3, (int64_t[]){ 2, 3, 2 }, a, 24, &e), 0);
    assert_int_equal(safetensors_writer_add(w, "none", TENSOR_F32, 1, (int64_t[]){ 0 }, NULL, 0, &e), 0);
    assert_int_equal(safetensors_writer_add(w, "s", TENSOR_I32, 0, NULL, a, 4, &e), 0);
    assert_int_equal(safetensors_writer_add(w, "q", TENSOR_Q4_0, 1, (int64_t[]){ 32 }, a, 18, &e), ERR_ARG);
    assert_int_equal(safetensors_writer_add(w, "__metadata__", TENSOR_U8, 1, (int64_t[]){ 1 }, a, 1, &e), ERR_ARG);
    assert_int_equal(safetensors_writer_add(w, "s", TENSOR_I32, 0, NULL, a, 4, &e), ERR_FORMAT);
    assert_int_equal(safetensors_writer_add(w, "l", TENSOR_I32, 0, NULL, a, 8, &e), ERR_ARG);
    if (safetensors_writer_write(w, path, &e) < 0) fail_msg("%s", e.msg);
    safetensors_writer_free(w);
    if (model_file_open(&m, path, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(model_file_tensor_count(m), 4);
    test_tensor_check(m, "b.x", TENSOR_F8_E4M3, (int64_t[]){ 5, 0 }, 4);
    test_tensor_check(m, "a.weight", TENSOR_BF16, (int64_t[]){ 2, 3, 2, 0 }, 3);
    assert_int_equal(model_file_tensor(m, "none")->bytes, 0);
    model_file_free(m);
    if ((text = python_says(path))) {
        line(text, "metadata format \"pt\"\nmetadata no\"te \"caf\\u00e9\\n\"\n");
        snprintf(want, sizeof want,
                 "tensor b.x F8_E4M3 [5] %u\ntensor a.weight BF16 [2, 3, 2] %u\ntensor none F32 [0] 0\n",
                 crc32_of(b, 5), crc32_of(a, 24));
        line(text, want);
        free(text);
    }
    free(path);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_round_trip),
        cmocka_unit_test(test_gguf_copy),
        cmocka_unit_test(test_gguf_refusals),
        cmocka_unit_test(test_safetensors_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
