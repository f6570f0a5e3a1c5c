/* SPDX-License-Identifier: Apache-2.0 */
/* Importance matrices: files of both formats, their sums, and what a text makes of a model. */
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/imatrix.h"
#include "formats/model_file.h"
#include "tensor/codec.h"
#include "unit/support/model.h"
#include "unit/support/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static imatrix *make(double scale) {
    imatrix       *m;
    imatrix_entry *x;
    assert_int_equal(imatrix_open(&m, NULL), 0);
    assert_int_equal(imatrix_entry_for(m, "blk.0.ffn_up.weight", 4, 1, &x, NULL), 0);
    for (int i = 0; i < 4; i++) x->sums[i] = scale * (i + 1);
    x->counts[0] = 2;
    assert_int_equal(imatrix_entry_for(m, "blk.0.ffn_up_exps.weight", 2, 3, &x, NULL), 0);
    for (int i = 0; i < 6; i++) x->sums[i] = scale * (10 + i);
    x->counts[0] = 5, x->counts[2] = 1; /* the second expert saw nothing */
    assert_int_equal(imatrix_add_text(m, "a text", 3, 512, NULL), 0);
    return m;
}

static void test_file(void **state) {
    char    *dir = test_temp_dir(), *path = path_join(dir, "m.gguf");
    imatrix *m = make(1), *back = NULL;
    (void)state;
    assert_int_equal(imatrix_write(m, path, NULL), 0);
    assert_int_equal(imatrix_read(&back, path, NULL), 0);
    assert_int_equal(imatrix_count(back), 2);
    assert_int_equal(imatrix_chunks(back), 3);
    const float *v = imatrix_find(back, "blk.0.ffn_up.weight", 4, 1);
    assert_non_null(v);
    assert_true(v[0] == 0.5f && v[3] == 2.0f);
    v = imatrix_find(back, "blk.0.ffn_up_exps.weight", 2, 3);
    assert_true(v[0] == 2.0f && v[2] == 1.0f && v[3] == 1.0f && v[5] == 15.0f);
    assert_null(imatrix_find(back, "blk.0.ffn_up.weight", 8, 1));
    assert_null(imatrix_find(back, "blk.1.ffn_up.weight", 4, 1));
    imatrix *more = make(3);
    assert_int_equal(imatrix_add(back, more, NULL), 0);
    v = imatrix_find(back, "blk.0.ffn_up.weight", 4, 1);
    assert_true(v[0] == 1.0f && v[3] == 4.0f); /* (1 + 3) / (2 + 2), (4 + 12) / 4 */
    assert_int_equal(imatrix_chunks(back), 6);
    imatrix_free(m), imatrix_free(back), imatrix_free(more);
    free(path);
    test_temp_dir_remove(dir);
}

static void put(str *s, int32_t v) { str_append(s, &v, 4); }

static void test_older(void **state) {
    imatrix *m = NULL;
    err      e = { 0 };
    str      s;
    float    values[6] = { 2, 4, 6, 8, 10, 12 };
    (void)state;
    str_init(&s);
    put(&s, 1);
    put(&s, 24);
    str_append(&s, "blk.0.ffn_up_exps.weight", 24);
    put(&s, 2);
    put(&s, 6);
    str_append(&s, values, sizeof values);
    put(&s, 7);
    put(&s, 4);
    str_append(&s, "wiki", 4);
    assert_int_equal(imatrix_read_memory(&m, s.data, s.len, &e), 0);
    const float *v = imatrix_find(m, "blk.0.ffn_up_exps.weight", 2, 3); /* three experts, one behind the other */
    assert_non_null(v);
    assert_true(v[0] == 1.0f && v[5] == 6.0f);
    assert_int_equal(imatrix_chunks(m), 7);
    imatrix_free(m);
    for (size_t cut = 0; cut < 4 + 4 + 24 + 8 + sizeof values; cut++) {
        assert_true(imatrix_read_memory(&m, s.data, cut, &e) < 0);
        assert_null(m);
    }
    values[2] = -1;
    memcpy(s.data + 4 + 4 + 24 + 8, values, sizeof values);
    assert_int_equal(imatrix_read_memory(&m, s.data, s.len, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "negative"));
    str_deinit(&s);
}

/* The input of the first layer's query product is a normalised row times the norm's weights: its size is known. */
static void test_sums(void **state) {
    static const char text[] = "What is the capital of France? The capital of France is Paris. How many legs does a "
                               "spider have? A spider has eight legs and two parts.";
    char             *dir = test_temp_dir(), *file = path_join(dir, "t.txt"), *out = path_join(dir, "m.gguf");
    char             *said;
    str               a;
    imatrix          *m = NULL;
    model_file       *f = NULL;
    (void)state;
    test_write_file(file, text, strlen(text));
    str_init(&a);
    str_printf(&a, "imatrix '%s/models/demo/draft.gguf' '%s' '%s' --json", HEARTH_SOURCE_DIR, file, out);
    assert_int_equal(program_run("", str_cstr(&a), &said), 0);
    assert_non_null(strstr(said, "\"windows\":1"));
    free(said);
    assert_int_equal(imatrix_read(&m, out, NULL), 0);
    str_clear(&a);
    str_printf(&a, "%s/models/demo/draft.gguf", HEARTH_SOURCE_DIR);
    assert_int_equal(model_file_open(&f, str_cstr(&a), NULL), 0);
    const model_tensor *embd = model_file_tensor(f, "token_embd.weight"),
                       *q = model_file_tensor(f, "blk.0.attn_q.weight");
    int64_t      cols = q->dims[0];
    const float *got = imatrix_find(m, "blk.0.attn_q.weight", cols, 1);
    assert_non_null(got);
    assert_int_equal(embd->dims[0], cols);
    double sum = 0;
    for (int64_t i = 0; i < cols; i++) sum += (double)got[i];
    const model_tensor *norm = model_file_tensor(f, "blk.0.attn_norm.weight");
    double              weight = 0;
    for (int64_t i = 0; i < cols; i++) {
        float v;
        memcpy(&v, norm->data + 4 * i, 4);
        weight += (double)v * (double)v;
    }
    /* A normalised row has a mean square of 1 before the weights: the sum lies near the sum of their squares. */
    assert_true(sum > 0.5 * weight && sum < 2 * weight);
    assert_null(imatrix_find(m, "output.weight", cols, 1));
    imatrix_free(m);
    model_file_free(f);
    str_deinit(&a);
    free(file), free(out);
    test_temp_dir_remove(dir);
}

/* Each name a thing that is wrong. */
static void test_refuses(void **state) {
    (void)state;
    program_fails("imatrix demo /nowhere/t.txt /tmp/x.gguf", 1, "/nowhere/t.txt");
    program_fails("quantize demo x.gguf Q4_K --imatrix /nowhere/m.gguf", 1, "/nowhere/m.gguf");
    program_fails("quantize demo x.gguf Q4_K --tensor-type attn=Q9", 2, "'Q9' is not a tensor type");
    program_fails("quantize demo x.gguf Q4_K --tensor-type '[=Q8_0'", 2, "is not a regular expression");
    program_fails("quantize demo x.gguf --target-bpw 99", 2, "between 1 and 16");
    program_fails("quantize demo x.gguf Q4_K --text x.txt", 2, "--text is for --target-bpw");
    program_fails("compare demo demo", 2, "--text");
    program_fails("compare demo demo --text /nowhere/t.txt", 1, "/nowhere/t.txt");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_older),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
