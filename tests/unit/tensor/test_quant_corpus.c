/* SPDX-License-Identifier: Apache-2.0 */
/* Dequantizing agrees with the blocks and floats of the corpus, which another implementation wrote. */
#include "base/file.h"
#include "base/json.h"
#include "tensor/codec.h"
#include "tensor/half.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Distance in units of the last place; NaN equals NaN, +0 equals -0. */
static uint32_t ulps(float a, float b) {
    if (isnan(a) || isnan(b)) return isnan(a) && isnan(b) ? 0 : UINT32_MAX;
    int64_t x = (int32_t)tensor_f32_bits(a), y = (int32_t)tensor_f32_bits(b);
    if (x < 0) x = INT32_MIN - x;
    if (y < 0) y = INT32_MIN - y;
    int64_t d = x < y ? y - x : x - y;
    return d > UINT32_MAX ? UINT32_MAX : (uint32_t)d;
}

static bool read_corpus(char **data, size_t *bytes, const char *name, const char *suffix) {
    char relative[64];
    err  e = { 0 };
    snprintf(relative, sizeof relative, "quants/%s%s", name, suffix);
    char *path = test_corpus_path(relative);
    if (!path) return false;
    if (file_read(data, bytes, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return true;
}

static void check_type(const char *name, int64_t elems, int64_t block_elems, int64_t block_bytes, int64_t number) {
    char  *blocks, *floats;
    size_t blocks_bytes, floats_bytes, row_bytes;
    int    type;
    if (!read_corpus(&blocks, &blocks_bytes, name, ".blocks")) return;
    assert_true(read_corpus(&floats, &floats_bytes, name, ".f32"));
    assert_true(tensor_type_parse(name, &type));
    const tensor_type_info *t = tensor_type_get(type);
    assert_int_equal(type, number);
    assert_int_equal(t->block_elems, block_elems);
    assert_int_equal(t->block_bytes, block_bytes);
    assert_true(tensor_row_bytes(type, elems, &row_bytes));
    assert_int_equal(row_bytes, blocks_bytes);
    assert_int_equal(floats_bytes, elems * 4);

    float *got = malloc((size_t)elems * sizeof *got), *span = malloc((size_t)elems * sizeof *span);
    assert_true(tensor_dequant_row(type, blocks, got, elems));
    long exact = 0;
    for (int64_t i = 0; i < elems; i++) {
        float want;
        memcpy(&want, floats + 4 * i, 4);
        uint32_t d = ulps(got[i], want);
        if (d > 1) fail_msg("%s: element %lld is %a, expected %a", name, (long long)i, (double)got[i], (double)want);
        exact += d == 0;
    }
    printf("%-8s %ld of %lld bit for bit\n", name, exact, (long long)elems);

    /* The same row as a matrix, in spans that begin and end inside blocks. */
    tensor_mat m = { .type = (tensor_type)type, .rows = 1, .cols = elems, .data = blocks, .row_bytes = row_bytes };
    assert_true(tensor_mat_valid(&m));
    uint64_t rng = 7;
    for (int k = 0; k < 200; k++) {
        int64_t from = (int64_t)(test_random(&rng) % (uint64_t)elems);
        int64_t n = (int64_t)(test_random(&rng) % (uint64_t)(elems - from)) + 1;
        tensor_mat_dequant_span(&m, 0, 0, from, n, span);
        for (int64_t i = 0; i < n; i++) assert_int_equal(ulps(span[i], got[from + i]), 0);
    }
    free(span);
    free(got);
    free(floats);
    free(blocks);
}

static void test_corpus(void **state) {
    (void)state;
    test_need_corpus();
    char             *text;
    size_t            bytes;
    arena             a;
    err               e = { 0 };
    const json_value *index;
    if (!read_corpus(&text, &bytes, "index", ".json")) return;
    arena_init(&a, 0);
    if (json_parse(&index, text, bytes, &a, &e) < 0) fail_msg("%s", e.msg);
    assert_true(json_count(index) >= 25);
    for (size_t i = 0; i < index->u.object.count; i++) {
        const json_member *m = &index->u.object.members[i];
        int64_t            elems, block_elems, block_bytes, number;
        char               name[32];
        snprintf(name, sizeof name, "%.*s", (int)m->key.len, m->key.data);
        assert_true(json_int(json_get(&m->value, "elems"), &elems));
        assert_true(json_int(json_get(&m->value, "block_elems"), &block_elems));
        assert_true(json_int(json_get(&m->value, "block_bytes"), &block_bytes));
        assert_true(json_int(json_get(&m->value, "ggml_type"), &number));
        check_type(name, elems, block_elems, block_bytes, number);
    }
    arena_deinit(&a);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_corpus) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
