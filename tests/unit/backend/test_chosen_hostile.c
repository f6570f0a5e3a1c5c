/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Choices that no sensible model makes: scores that are infinite must not push out the blocks that are always seen, and what
 * anybody wrote into the buffer of a choice is read as far as it goes and no further.
 */
#include "backend/backend.h"
#include "base/str.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "tools/simple.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 48, WIDTH = 64 };

typedef struct run {
    model_file *file;
    nn_model   *model;
    simple      s;
    int         choose; /* the first op that chooses */
} run;

/* Up to the first choice, of this many rows. */
static run run_open(const char *device, int rows) {
    run            r = { 0 };
    err            e = { 0 };
    int32_t        ids[ROWS];
    simple_options o = { .max_len = ROWS,
                         .max_tokens = ROWS,
                         .n_threads = 1,
                         .k_type = NN_KV_F32,
                         .v_type = NN_KV_F32,
                         .cpu = cpu_detect() };
    for (int i = 0; i < ROWS; i++) ids[i] = 3 + i * 7 % 100;
    if (model_file_open(&r.file, HEARTH_SOURCE_DIR "/tests/golden/models/minimax_m3_chosen", &e) < 0 ||
        nn_model_open(&r.model, r.file, models_list, NULL, &e) < 0 || simple_open(&r.s, device, r.model, &o, &e) < 0 ||
        simple_batch(&r.s, &(simple_feed){ .ids = ids, .n = rows, .all = true }, 1, &e) < 0)
        fail_msg("%s", e.msg);
    const nn_backend *b = r.s.exec->backend;
    while (r.model->tape->ops[r.choose].kind != NN_OP_CHOOSE) r.choose++;
    if (b->begin(r.s.exec, &r.s.batch, &e) < 0 || b->run(r.s.exec, 0, r.choose, &e) < 0) fail_msg("%s", e.msg);
    return r;
}

static void run_close(run *r) {
    simple_close(&r->s);
    nn_model_free(r->model);
    model_file_free(r->file);
}

static float *read_buf(run *r, nn_buf b) {
    const int64_t n = nn_batch_rows(&r->s.batch, r->model->tape, b) * r->model->tape->bufs[b].width;
    float        *v = malloc((size_t)n * sizeof *v);
    err           e;
    assert_non_null(v);
    if (r->s.exec->backend->read(r->s.exec, b, v, &e) < 0) fail_msg("%s", e.msg);
    return v;
}

static void write_buf(run *r, nn_buf b, const float *v) {
    err e;
    if (r->s.exec->backend->write(r->s.exec, b, v, &e) < 0) fail_msg("%s", e.msg);
}

static void run_ops(run *r, int first, int end) {
    err e;
    if (r->s.exec->backend->run(r->s.exec, first, end, &e) < 0) fail_msg("%s", e.msg);
}

static int32_t int_at(const float *v, int64_t i) {
    int32_t x;
    memcpy(&x, &v[i], sizeof x);
    return x;
}

/* Queries of a single huge number: the positions' scores are that times one number of their keys, and many overflow. */
static void check_infinite(const char *device) {
    run                   r = run_open(device, ROWS);
    const nn_op          *op = &r.model->tape->ops[r.choose];
    const nn_choose_spec *c = &op->u.choose;
    const int             dim = (int)r.model->tape->bufs[op->in[0]].width / c->n_head;
    float                *q = read_buf(&r, op->in[0]);
    assert_true(c->local == 1 && c->n_group * dim <= WIDTH);
    for (int k = 0; k < 2 * dim; k++) {
        memset(q, 0, (size_t)ROWS * (size_t)(c->n_head * dim) * sizeof *q);
        for (int i = 0; i < ROWS * c->n_head; i++) q[i * dim + k / 2] = k % 2 ? 3.4e38f : -3.4e38f;
        write_buf(&r, op->in[0], q);
        run_ops(&r, r.choose, r.choose + 1);
        float *out = read_buf(&r, op->out);
        for (int line = 0; line < ROWS * c->n_group; line++) {
            const int64_t at = (int64_t)line * (1 + c->top);
            const int     row = line / c->n_group, n_block = row / c->block + 1;
            assert_int_equal(int_at(out, at), n_block < c->top ? n_block : c->top);
            if (int_at(out, at + int_at(out, at)) != n_block - 1)
                fail_msg("%s: row %d does not see its own block %d", device, row, n_block - 1);
        }
        free(out);
    }
    free(q);
    run_close(&r);
}

static void test_infinite_scores(void **state) {
    (void)state;
    check_infinite("cpu");
    check_infinite("scalar");
}

/* The logits, when rows that cannot see all see their first block alone, and the first of their lists says that it has
 * `extra` more than it can have. What follows is another list, of later blocks. */
static float *logits_with(const char *device, int32_t extra, int64_t *n) {
    run                   r = run_open(device, ROWS);
    const nn_op          *op = &r.model->tape->ops[r.choose];
    const nn_choose_spec *c = &op->u.choose;
    run_ops(&r, r.choose, r.choose + 1);
    float *out = read_buf(&r, op->out);
    assert_true(c->n_group == 2);
    for (int row = c->top * c->block; row < ROWS; row++) {
        const int64_t at = (int64_t)row * c->n_group * (1 + c->top);
        const int32_t count = c->top + extra;
        memset(&out[at], 0, ((size_t)c->top + 1) * sizeof *out);
        memcpy(&out[at], &count, sizeof count);
    }
    write_buf(&r, op->out, out);
    run_ops(&r, r.choose + 1, r.model->tape->n_ops);
    free(out);
    float *logits = read_buf(&r, r.model->tape->logits);
    *n = ROWS * r.model->tape->bufs[r.model->tape->logits].width;
    run_close(&r);
    return logits;
}

static void test_counts_beyond_the_row(void **state) {
    static const char *const devices[] = { "cpu", "scalar" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t n;
        float  *right = logits_with(devices[i], 0, &n), *more = logits_with(devices[i], 1 << 20, &n);
        for (int64_t k = 0; k < n; k++) {
            if (right[k] != more[k]) fail_msg("%s: row %d", devices[i], (int)(k * ROWS / n));
        }
        free(right);
        free(more);
    }
}

/* How many blocks of one list are not in another as long. */
static int others(const float *a, const float *b) {
    int n = 0;
    for (int i = 1; i <= int_at(a, 0); i++) {
        bool there = false;
        for (int j = 1; j <= int_at(b, 0); j++) there = there || int_at(a, i) == int_at(b, j);
        n += !there;
    }
    return n;
}

/* Sixteen rows of which twelve see all: one wrong choice of the others is too much where nothing is rounded. */
static void test_one_wrong_choice_is_noticed(void **state) {
    enum { FEW = 16 };
    run                   fast = run_open("cpu", FEW), reference = run_open("scalar", FEW);
    const nn_op          *op = &fast.model->tape->ops[fast.choose];
    const nn_choose_spec *c = &op->u.choose;
    const int             dim = (int)fast.model->tape->bufs[op->in[0]].width / c->n_head;
    const int64_t         last = (int64_t)(FEW - 1) * c->n_group;
    float                *q = read_buf(&fast, op->in[0]), *right;
    int                   n_wrong = 0;
    str                   report;
    bool                  bad;
    err                   e;
    (void)state;
    assert_int_equal(c->top * c->block, FEW - 4);
    str_init(&report);
    assert_int_equal(backend_compare_op(fast.s.exec, reference.s.exec, &fast.s.batch, fast.choose, &bad, &report, &e),
                     0);
    assert_false(bad);
    right = read_buf(&fast, op->out);
    for (int k = 0; k < 2 * dim && !n_wrong; k++) {
        memset(q + last * dim, 0, (size_t)dim * sizeof *q);
        q[last * dim + k / 2] = k % 2 ? 1 : -1;
        write_buf(&fast, op->in[0], q);
        assert_int_equal(
            backend_compare_op(fast.s.exec, reference.s.exec, &fast.s.batch, fast.choose, &bad, &report, &e), 0);
        float *out = read_buf(&fast, op->out);
        n_wrong += others(out + last * (1 + c->top), right + last * (1 + c->top)) == 1;
        if (n_wrong) assert_true(bad);
        free(out);
    }
    assert_int_equal(n_wrong, 1);
    str_deinit(&report);
    free(right);
    free(q);
    run_close(&fast);
    run_close(&reference);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_infinite_scores),
                                        cmocka_unit_test(test_counts_beyond_the_row),
                                        cmocka_unit_test(test_one_wrong_choice_is_noticed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
