/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a family must not record, whoever lets it through: matrices that are not a whole number of heads, and choices that make
 * a buffer of a gigabyte of a file of a kilobyte. The tape says so and nothing is computed.
 */
#include "nn/model.h"
#include "nn/tape.h"
#include "tensor/mat.h"
#include "unit/support/support.h"

#include <string.h>

enum { COLS = 8, BUCKETS = 16, ROWS = 32 };

static float numbers[ROWS * COLS];

static nn_mat mat_of(tensor_mat *at, const char *name, int rows, int cols) {
    *at = (tensor_mat){
        .type = TENSOR_F32, .rows = rows, .cols = cols, .data = numbers, .row_bytes = (size_t)cols * sizeof *numbers
    };
    return (nn_mat){ .name = name, .rows = rows, .cols = cols, .at = at };
}

static void refused(nn_tape *t, const char *what) {
    assert_true(t->failed);
    if (!strstr(t->error.msg, what)) fail_msg("\"%s\" does not say \"%s\"", t->error.msg, what);
}

static nn_tape *tape_open(arena *mem, const nn_state *state) {
    nn_tape *t = NULL;
    err      e;
    arena_init(mem, 0);
    assert_int_equal(nn_tape_open(&t, mem, state, 1, &e), 0);
    return t;
}

static void test_heads_of_distances(void **state) {
    static const struct {
        int  rows, cols, n_head;
        bool fits;
    } rows[] = { { ROWS, COLS, 4, true },     { ROWS, COLS, 3, false },     { ROWS, COLS, 0, false },
                 { ROWS, COLS, 1000, false }, { ROWS, COLS / 2, 4, false }, { ROWS / 2, 2 * COLS, 4, false } };
    nn_state none = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena        mem;
        nn_tape     *t = tape_open(&mem, &none);
        tensor_mat   at[2];
        const nn_mat table = mat_of(&at[0], "far", 2 * BUCKETS, COLS),
                     w = mat_of(&at[1], "key_proj", rows[i].rows, rows[i].cols);
        nn_apart_table *p = nn_apart_open(t, &table, NULL, 1e-5f, 0, BUCKETS);
        assert_non_null(p);
        const nn_mat *m = nn_apart_rows(t, p, (nn_linear){ .w = &w }, rows[i].n_head);
        if (rows[i].fits) {
            assert_false(t->failed);
            assert_int_equal(m->n_stack, rows[i].n_head);
        } else {
            assert_null(m);
            refused(t, "key_proj");
        }
        arena_deinit(&mem);
    }
}

static void test_choices(void **state) {
    static const struct {
        int  n_head, top;
        bool fits;
    } rows[] = { { 1, 2048, true },     { 4, 16, true },        { 1, 1 << 16, true },
                 { 1, 1 << 20, false }, { 16, 1 << 13, false }, { 1, 0, false } };
    nn_state layer = nn_state_kv(1, COLS, 0);
    (void)state;
    layer.dim_index = COLS;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena        mem;
        nn_tape     *t = tape_open(&mem, &layer);
        tensor_mat   at;
        const nn_mat table = mat_of(&at, "embd", 1, rows[i].n_head * COLS);
        nn_choose(
            t, 0, nn_embed(t, &table, 1), 0,
            (nn_choose_spec){ .n_head = rows[i].n_head, .n_group = rows[i].n_head, .top = rows[i].top, .block = 1 });
        if (!rows[i].fits) refused(t, "choose");
        if (rows[i].fits && t->failed) fail_msg("%s", t->error.msg);
        arena_deinit(&mem);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_heads_of_distances), cmocka_unit_test(test_choices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
