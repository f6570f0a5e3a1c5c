/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/model.h"

#include "unit/support/support.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

model_file *test_model_open(const char *relative) {
    char       *below = path_join("formats", relative), *path = test_fixture_path(below);
    model_file *m;
    err         e = { 0 };
    if (model_file_open(&m, path, &e) < 0) fail_msg("%s", e.msg);
    free(below);
    free(path);
    return m;
}

uint8_t test_pattern(unsigned seed, size_t i) { return (uint8_t)((i * 7 + seed * 31 + i / 256) % 256); }

void test_tensor_check(const model_file *m, const char *name, tensor_type type, const int64_t *dims, unsigned seed) {
    const model_tensor *t = model_file_tensor(m, name);
    int64_t             elements = 1;
    int                 d = 0;
    if (!t) fail_msg("no tensor %s", name);
    assert_string_equal(t->name, name);
    assert_int_equal(t->type, type);
    for (; dims[d]; d++) {
        assert_int_equal(t->dims[d], dims[d]);
        elements *= dims[d];
    }
    assert_int_equal(t->n_dims, d);
    for (; d < MODEL_MAX_DIMS; d++) assert_int_equal(t->dims[d], 1);
    const tensor_type_info *info = tensor_type_get(type);
    assert_int_equal(t->bytes, elements / info->block_elems * info->block_bytes);
    for (size_t i = 0; i < t->bytes; i++) {
        if (t->data[i] != test_pattern(seed, i)) fail_msg("%s: byte %zu is %u", name, i, t->data[i]);
    }
}

void test_refused(const char *path, int code, const char *text) {
    model_file *m = NULL;
    err         e = { 0 };
    int         rc = model_file_open(&m, path, &e);
    if (rc == 0) fail_msg("%s was opened; expected an error with: %s", path, text);
    assert_null(m);
    if (rc != code || e.code != code || !strstr(e.msg, text))
        fail_msg("code %d, \"%s\"; expected %d, \"%s\"", rc, e.msg, code, text);
}

uint64_t test_value_walk(const meta_value *v) {
    uint64_t sum = 0;
    int64_t  i;
    double   r;
    view     s;
    bool     b;
    if (meta_int(v, &i)) sum += (uint64_t)i;
    if (meta_real(v, &r)) sum += r > 0;
    if (meta_bool(v, &b)) sum += b;
    if (meta_string(v, &s)) {
        for (size_t k = 0; k < s.len; k++) sum += (uint8_t)s.data[k];
    }
    for (size_t k = 0; v->type == META_ARRAY && k < v->count; k++) {
        if (meta_at_int(v, k, &i)) sum += (uint64_t)i;
        if (meta_at_real(v, k, &r)) sum += r > 0;
        if (meta_at_bool(v, k, &b)) sum += b;
        if (meta_at_string(v, k, &s) && s.len) sum += (uint8_t)s.data[0] + (uint8_t)s.data[s.len - 1];
    }
    return sum;
}

uint64_t test_model_walk(const model_file *m) {
    uint64_t sum = model_file_bytes(m);
    for (size_t i = 0; i < model_file_meta_count(m); i++) {
        sum += strlen(model_file_meta_key(m, i));
        sum += test_value_walk(model_file_meta_at(m, i));
    }
    for (size_t i = 0; i < model_file_tensor_count(m); i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        model_quant         q;
        char                module[300];
        size_t              len = strlen(t->name);
        assert_ptr_equal(model_file_tensor(m, t->name), t);
        if (t->bytes) sum += t->data[0] + t->data[t->bytes - 1];
        if (len > 7 && strcmp(t->name + len - 7, ".scales") == 0) {
            snprintf(module, sizeof module, "%.*s", (int)len - 7, t->name);
            if (model_file_quant(m, module, &q)) sum += (uint64_t)(q.bits * q.group);
        }
    }
    if (model_file_arch(m)) sum += strlen(model_file_arch(m));
    sum += json_count(model_file_config(m)) + json_count(model_file_generation_config(m));
    return sum;
}

void test_write_file(const char *path, const void *data, size_t bytes) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}
