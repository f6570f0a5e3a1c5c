/* SPDX-License-Identifier: Apache-2.0 */
/* The GGUF reader: every value of the fixtures, and a refusal with a naming sentence for every broken field. */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/gguf.h"

#include <stdlib.h>
#include <string.h>

static int64_t int_of(const model_file *m, const char *key) {
    int64_t v = 0;
    if (!meta_int(model_file_meta(m, key), &v)) fail_msg("%s is not an integer", key);
    return v;
}

static void check_string(const model_file *m, const char *key, const char *text, size_t len) {
    view s;
    assert_true(meta_string(model_file_meta(m, key), &s));
    assert_int_equal(s.len, len);
    assert_memory_equal(s.data, text, len);
}

static void check_ints(const model_file *m, const char *key, meta_type elem, size_t count, const int64_t *want) {
    const meta_value *v = model_file_meta(m, key);
    int64_t           i;
    assert_non_null(v);
    assert_int_equal(v->type, META_ARRAY);
    assert_int_equal(v->elem_type, elem);
    assert_int_equal(v->count, count);
    for (size_t k = 0; k < count; k++) {
        assert_true(meta_at_int(v, k, &i));
        assert_true(i == want[k]);
    }
    assert_false(meta_at_int(v, count, &i));
}

static void check_reals(const model_file *m, const char *key, double a, double b) {
    const meta_value *v = model_file_meta(m, key);
    double            r;
    assert_true(meta_at_real(v, 0, &r) && r == a);
    assert_true(meta_at_real(v, 1, &r) && r == b);
    assert_int_equal(v->count, 2);
}

static void test_values(void **state) {
    model_file *m = test_model_open("v3.gguf");
    double      r;
    int64_t     i;
    bool        b;
    view        s;
    (void)state;
    assert_int_equal(model_file_format(m), MODEL_GGUF);
    assert_string_equal(model_file_arch(m), "llama");
    assert_int_equal(model_file_meta_count(m), 17 + 1 + 27);
    assert_string_equal(model_file_meta_key(m, 0), "general.architecture");
    assert_ptr_equal(model_file_meta_at(m, 0), model_file_meta(m, "general.architecture"));
    assert_null(model_file_meta(m, "no.such.key"));
    assert_null(model_file_meta_at(m, 45));
    assert_int_equal(int_of(m, "x.u8"), 200);
    assert_int_equal(int_of(m, "x.i8"), -100);
    assert_int_equal(int_of(m, "x.u16"), 60000);
    assert_int_equal(int_of(m, "x.i16"), -30000);
    assert_true(int_of(m, "x.u32") == 4000000000);
    assert_true(int_of(m, "x.i32") == -2000000000);
    assert_true(int_of(m, "x.i64") == INT64_MIN);
    assert_false(meta_int(model_file_meta(m, "x.u64"), &i)); /* does not fit */
    assert_true(model_file_meta(m, "x.u64")->u.u == UINT64_MAX);
    assert_true(meta_real(model_file_meta(m, "x.u64"), &r) && r == 18446744073709551616.0);
    assert_true(meta_real(model_file_meta(m, "x.f32"), &r) && r == (double)0.1f);
    assert_true(meta_real(model_file_meta(m, "x.f64"), &r) && r == 3.141592653589793);
    assert_true(meta_bool(model_file_meta(m, "x.true"), &b) && b);
    assert_true(meta_bool(model_file_meta(m, "x.false"), &b) && !b);
    assert_false(meta_bool(model_file_meta(m, "x.u8"), &b));
    assert_false(meta_string(model_file_meta(m, "x.u8"), &s));
    assert_false(meta_int(model_file_meta(m, "x.string"), &i));
    check_string(m, "x.string", "h\xC3\xA9llo\0world", 12);
    check_string(m, "x.empty", "", 0);
    check_string(m, "general.name", "Tiny \x1b[31mred\x07\xff", 15);
    model_file_free(m);
}

static void test_arrays(void **state) {
    model_file       *m = test_model_open("v3.gguf");
    const meta_value *v;
    view              s;
    bool              b;
    int64_t           i;
    (void)state;
    check_ints(m, "x.a.u8", META_U8, 3, (int64_t[]){ 1, 2, 255 });
    check_ints(m, "x.a.i8", META_I8, 2, (int64_t[]){ -1, 2 });
    check_ints(m, "x.a.u16", META_U16, 2, (int64_t[]){ 1, 65535 });
    check_ints(m, "x.a.i16", META_I16, 2, (int64_t[]){ -32768, 7 });
    check_ints(m, "x.a.u32", META_U32, 2, (int64_t[]){ 0, UINT32_MAX });
    check_ints(m, "x.a.i32", META_I32, 2, (int64_t[]){ INT32_MIN, 5 });
    check_ints(m, "x.a.i64", META_I64, 2, (int64_t[]){ INT64_MIN, 9 });
    check_ints(m, "x.a.none", META_I32, 0, NULL);
    v = model_file_meta(m, "x.a.u64");
    assert_false(meta_at_int(v, 0, &i));
    assert_true(meta_at_int(v, 1, &i) && i == 1);
    check_reals(m, "x.a.f32", 1.5, -0.25);
    check_reals(m, "x.a.f64", 1e300, -2.5);
    v = model_file_meta(m, "x.a.bool");
    assert_true(meta_at_bool(v, 0, &b) && b);
    assert_true(meta_at_bool(v, 1, &b) && !b);
    assert_true(meta_at_bool(v, 2, &b) && b);
    v = model_file_meta(m, "x.a.string");
    assert_int_equal(v->count, 3);
    assert_true(meta_at_string(v, 0, &s) && s.len == 0);
    assert_true(meta_at_string(v, 1, &s) && view_eq_c(s, "one"));
    assert_true(meta_at_string(v, 2, &s) && view_eq_c(s, "tw\xC3\xB6"));
    assert_false(meta_at_string(v, 3, &s));
    assert_false(meta_at_int(v, 0, &i));
    v = model_file_meta(m, "tokenizer.ggml.tokens");
    assert_int_equal(v->count, 8);
    assert_true(meta_at_string(v, 6, &s) && view_eq_c(s, "\xE4\xBD\xA0\xE5\xA5\xBD"));
    model_file_free(m);
}

static void check_tensors(const model_file *m, size_t count) {
    static const struct {
        const char *name;
        tensor_type type;
        int64_t     dims[5];
    } all[] = {
        { "token_embd.weight", TENSOR_Q8_0, { 64, 8 } },
        { "blk.0.attn_q.weight", TENSOR_Q4_0, { 64, 64 } },
        { "blk.0.ffn_down.weight", TENSOR_Q4_K, { 256, 3 } },
        { "blk.0.attn_norm.weight", TENSOR_F32, { 64 } },
        { "blk.1.ffn_gate_exps.weight", TENSOR_F16, { 6, 5, 2 } },
        { "blk.1.cube.weight", TENSOR_BF16, { 3, 2, 2, 2 } },
        { "output.weight", TENSOR_Q6_K, { 256, 2 } },
        { "rope_freqs.weight", TENSOR_I32, { 1 } },
    };
    assert_int_equal(model_file_tensor_count(m), count);
    for (unsigned i = 0; i < count; i++) {
        assert_string_equal(model_file_tensor_at(m, i)->name, all[i].name);
        test_tensor_check(m, all[i].name, all[i].type, all[i].dims, i + 1);
    }
    assert_null(model_file_tensor_at(m, count));
    assert_null(model_file_tensor(m, "none"));
}

static void test_tensors(void **state) {
    model_file *m = test_model_open("v3.gguf");
    (void)state;
    check_tensors(m, 8);
    for (size_t i = 0; i < 8; i++) assert_int_equal((uintptr_t)model_file_tensor_at(m, i)->data % 64, 0);
    model_file_free(m);
}

static void test_version_2(void **state) {
    model_file *m = test_model_open("v2.gguf");
    (void)state;
    check_tensors(m, 3);
    assert_true(int_of(m, "x.u32") == 4000000000);
    model_file_free(m);
}

static void test_vocabulary_only(void **state) {
    model_file *m = test_model_open("vocab-only.gguf");
    (void)state;
    assert_int_equal(model_file_tensor_count(m), 0);
    assert_int_equal(model_file_meta_count(m), 17);
    model_file_free(m);
}

static void test_split(void **state) {
    (void)state;
    for (int part = 1; part <= 3; part++) {
        char name[64];
        snprintf(name, sizeof name, "split/tiny-%05d-of-00003.gguf", part);
        model_file *m = test_model_open(name);
        check_tensors(m, 8);
        assert_string_equal(model_file_arch(m), "llama");
        assert_int_equal(int_of(m, "split.no"), 0);
        assert_int_equal(model_file_bytes(m), 4512 + 416 + 1056);
        model_file_free(m);
    }
    model_file *m = test_model_open("split"); /* the directory holds one set */
    check_tensors(m, 8);
    model_file_free(m);
}

/* Copies part `from` of the fixture set to `to` below dir. */
static void copy_part(const char *dir, int from, const char *to) {
    char   name[64], *source, *target = path_join(dir, to), *data;
    size_t bytes;
    snprintf(name, sizeof name, "formats/split/tiny-%05d-of-00003.gguf", from);
    source = test_fixture_path(name);
    assert_int_equal(file_read(&data, &bytes, source, 1 << 20, NULL), 0);
    test_write_file(target, data, bytes);
    free(data);
    free(source);
    free(target);
}

static void test_split_refusals(void **state) {
    char *dir = test_temp_dir(), *first = path_join(dir, "x-00001-of-00003.gguf"), *lone = path_join(dir, "lone.gguf");
    (void)state;
    copy_part(dir, 1, "x-00001-of-00003.gguf");
    copy_part(dir, 2, "x-00002-of-00003.gguf");
    test_refused(first, ERR_NOTFOUND, "part 3 of 3 is missing");
    test_refused(first, ERR_NOTFOUND, "x-00003-of-00003.gguf");
    copy_part(dir, 2, "x-00003-of-00003.gguf");
    test_refused(first, ERR_FORMAT, "its name says part 3 of 3, its split.no and split.count say part 2 of 3");
    copy_part(dir, 1, "lone.gguf");
    test_refused(lone, ERR_FORMAT, "one of 3 parts");
    test_refused(dir, ERR_ARG, "2 GGUF models");
    free(first);
    free(lone);
    test_temp_dir_remove(dir);
}

/* ---- broken files, built field by field ---- */

static void put(str *s, uint64_t v, size_t bytes) { str_append(s, &v, bytes); }

static void put_text(str *s, const char *text) {
    put(s, strlen(text), 8);
    str_puts(s, text);
}

static void put_head(str *s, uint32_t version, uint64_t n_tensors, uint64_t n_keys) {
    str_init(s);
    str_puts(s, "GGUF");
    put(s, version, 4);
    put(s, n_tensors, 8);
    put(s, n_keys, 8);
}

static void put_tensor(str *s, const char *name, uint32_t n_dims, const uint64_t *dims, uint32_t type,
                       uint64_t offset) {
    put_text(s, name);
    put(s, n_dims, 4);
    for (uint32_t d = 0; d < n_dims; d++) put(s, dims[d], 8);
    put(s, type, 4);
    put(s, offset, 8);
}

static void put_data(str *s, size_t bytes) {
    while (s->len % 32) str_push(s, 0);
    for (size_t i = 0; i < bytes; i++) str_push(s, (char)i);
}

/* Reads the bytes, expects this outcome (0: success), and releases them. */
static void expect(str *s, int code, const char *text) {
    tensor_table t;
    gguf         g;
    err          e = { 0 };
    /* An exact copy on the heap: a sanitizer sees a read behind the end. */
    uint8_t *copy = malloc(s->len ? s->len : 1);
    assert_non_null(copy);
    memcpy(copy, str_cstr(s), s->len);
    tensor_table_init(&t);
    int rc = gguf_read_memory(&g, copy, s->len, &t, &e);
    if (rc != code || (code && !strstr(e.msg, text)))
        fail_msg("code %d, \"%s\"; expected %d, \"%s\"", rc, e.msg, code, text);
    if (rc == 0) gguf_deinit(&g);
    tensor_table_deinit(&t);
    free(copy);
    str_deinit(s);
}

static void test_header_refusals(void **state) {
    str s;
    (void)state;
    str_init(&s);
    expect(&s, ERR_FORMAT, "not a GGUF file");
    str_puts(&s, "GGML");
    expect(&s, ERR_FORMAT, "not a GGUF file");
    put_head(&s, 1, 0, 0);
    expect(&s, ERR_UNSUPPORTED, "version 1");
    put_head(&s, 0x03000000, 0, 0);
    expect(&s, ERR_UNSUPPORTED, "big-endian");
    put_head(&s, 4, 0, 0);
    expect(&s, ERR_UNSUPPORTED, "version 4 is unknown");
    put_head(&s, 3, 0, UINT64_MAX);
    expect(&s, ERR_FORMAT, "metadata keys, more than the file can hold");
    put_head(&s, 3, UINT64_MAX / 2, 0);
    expect(&s, ERR_FORMAT, "tensors, more than the file can hold");
    put_head(&s, 3, 0, 0);
    s.len = 20;
    expect(&s, ERR_FORMAT, "the file ends inside the header");
    put_head(&s, 3, 0, 0);
    expect(&s, 0, "");
}

static void key_refused(uint32_t type, const void *value, size_t bytes, int code, const char *text) {
    str s;
    put_head(&s, 3, 0, 1);
    put_text(&s, "some.key");
    put(&s, type, 4);
    str_append(&s, value, bytes);
    expect(&s, code, text);
}

static void test_key_refusals(void **state) {
    str s;
    (void)state;
    key_refused(13, "1234567", 8, ERR_FORMAT, "some.key: value type 13 is unknown");
    key_refused(META_U64, "123", 4, ERR_FORMAT, "some.key: the file ends inside a value");
    key_refused(META_STRING, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, ERR_FORMAT,
                "some.key: the file ends inside a string");
    key_refused(META_ARRAY, "\x09\0\0\0\x01\0\0\0\0\0\0\0", 12, ERR_UNSUPPORTED, "some.key: arrays of arrays");
    key_refused(META_ARRAY, "\x0d\0\0\0\x01\0\0\0\0\0\0\0", 12, ERR_FORMAT, "element type 13 is unknown");
    key_refused(META_ARRAY, "\x08\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12, ERR_FORMAT, "strings does not fit");
    key_refused(META_ARRAY, "\x0a\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff", 12, ERR_FORMAT, "u64 values does not fit");
    key_refused(META_ARRAY, "\x08\0\0\0\x01\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0abc", 23, ERR_FORMAT, "element 0 of 1");
    put_head(&s, 3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text(&s, "twice");
        put(&s, META_U8, 4);
        put(&s, 0, 1);
    }
    expect(&s, ERR_FORMAT, "metadata key twice appears twice");
    put_head(&s, 3, 0, 1);
    put_text(&s, "a\x1b[0m");
    put(&s, META_U8, 4);
    put(&s, 0, 1);
    expect(&s, ERR_FORMAT, "metadata key 0: its name holds the control character U+001B");
    put_head(&s, 3, 0, 1);
    put_text(&s, "");
    put(&s, META_U8, 4);
    put(&s, 0, 8);
    expect(&s, ERR_FORMAT, "metadata key 0: its name is empty");
}

static void alignment_refused(uint32_t align, const char *text) {
    str s;
    put_head(&s, 3, 0, 1);
    put_text(&s, "general.alignment");
    put(&s, META_U32, 4);
    put(&s, align, 4);
    expect(&s, text ? ERR_FORMAT : 0, text);
}

static void tensor_refused(uint32_t n_dims, const uint64_t *dims, uint32_t type, uint64_t offset, int code,
                           const char *text) {
    str s;
    put_head(&s, 3, 1, 0);
    put_tensor(&s, "t.weight", n_dims, dims, type, offset);
    put_data(&s, 256);
    expect(&s, code, text);
}

static void test_tensor_refusals(void **state) {
    const uint64_t one[] = { 32 }, five[] = { 1, 1, 1, 1, 1 }, zero[] = { 32, 0 }, negative[] = { UINT64_MAX };
    const uint64_t wide[] = { (uint64_t)1 << 40, (uint64_t)1 << 40 }, bytes[] = { (uint64_t)1 << 61 },
                   part[] = { 33, 2 };
    const uint64_t *scalar = NULL;
    str             s;
    char            long_name[300];
    (void)state;
    tensor_refused(1, one, TENSOR_F32, 0, 0, "");
    tensor_refused(0, scalar, TENSOR_F32, 0, 0, "");
    tensor_refused(5, five, TENSOR_F32, 0, ERR_FORMAT, "t.weight): it has 5 dimensions");
    tensor_refused(2, zero, TENSOR_F32, 0, ERR_FORMAT, "dimension 1 is 0");
    tensor_refused(1, negative, TENSOR_F32, 0, ERR_FORMAT, "dimension 0 is -1");
    tensor_refused(2, wide, TENSOR_F32, 0, ERR_FORMAT, "product of its dimensions overflows");
    tensor_refused(1, bytes, TENSOR_F64, 0, ERR_FORMAT, "size in bytes overflows");
    tensor_refused(2, part, TENSOR_Q4_0, 0, ERR_FORMAT, "a row of 33 elements is not a whole number of Q4_0 blocks");
    tensor_refused(1, one, 4, 0, ERR_UNSUPPORTED, "tensor 0 (t.weight): tensor type 4 is unknown");
    tensor_refused(1, one, 64, 0, ERR_UNSUPPORTED, "tensor type 64 is unknown"); /* ours, never in a file */
    tensor_refused(1, one, 0xFFFFFFFF, 0, ERR_UNSUPPORTED, "is unknown");
    tensor_refused(1, one, TENSOR_F32, 4, ERR_FORMAT, "t.weight: offset 4 is not a multiple of the alignment 32");
    tensor_refused(1, one, TENSOR_F32, 160, ERR_FORMAT, "t.weight: offset 160 with 128 bytes lies beyond the end");
    tensor_refused(1, one, TENSOR_F32, UINT64_MAX - 31, ERR_FORMAT, "lies beyond the end");
    alignment_refused(0, "general.alignment is 0, not a power of two");
    alignment_refused(48, "general.alignment is 48");
    alignment_refused(128, NULL);
    put_head(&s, 3, 2, 0);
    put_tensor(&s, "a", 1, one, TENSOR_F32, 64);
    put_tensor(&s, "b", 1, one, TENSOR_F32, 0);
    put_data(&s, 256);
    expect(&s, ERR_FORMAT, "tensors b and a overlap");
    put_head(&s, 3, 2, 0);
    put_tensor(&s, "a", 1, one, TENSOR_F32, 0);
    put_tensor(&s, "a", 1, one, TENSOR_F32, 128);
    put_data(&s, 256);
    expect(&s, ERR_FORMAT, "tensor 1 (a): it appears twice");
    memset(long_name, 'x', sizeof long_name);
    long_name[256] = '\0';
    put_head(&s, 3, 1, 0);
    put_tensor(&s, long_name, 1, one, TENSOR_F32, 0);
    put_data(&s, 256);
    expect(&s, ERR_FORMAT, "its name has 256 bytes; the limit is 255");
}

static void test_corpus(void **state) {
    static const struct {
        const char *name;
        size_t      tokens;
    } files[] = { { "gpt-2", 50257 },    { "deepseek-llm", 102400 }, { "falcon", 65024 },
                  { "bert-bge", 30522 }, { "llama-spm", 32000 },     { "starcoder", 49152 } };
    (void)state;
    test_need_corpus();
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char        relative[64], *path;
        model_file *m;
        err         e = { 0 };
        snprintf(relative, sizeof relative, "vocab/%s.gguf", files[i].name);
        path = test_corpus_path(relative);
        if (!path) return;
        if (model_file_open(&m, path, &e) < 0) fail_msg("%s", e.msg);
        assert_int_equal(model_file_meta(m, "tokenizer.ggml.tokens")->count, files[i].tokens);
        assert_int_equal(model_file_tensor_count(m), 0);
        (void)test_model_walk(m);
        model_file_free(m);
        free(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),          cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_tensors),         cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_vocabulary_only), cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_refusals),  cmocka_unit_test(test_header_refusals),
        cmocka_unit_test(test_key_refusals),    cmocka_unit_test(test_tensor_refusals),
        cmocka_unit_test(test_corpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
