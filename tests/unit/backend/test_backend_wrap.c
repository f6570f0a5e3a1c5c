/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wrapping test backend, and through it the conformance suite itself: with any one kind of op made wrong on
 * purpose, the suite names that very op; with none, it finds nothing. Failures come where they were asked for and leave
 * what the interface promises; a late device shows who reads or writes too early.
 */
#include "unit/support/support.h"

#include "backend/backend.h"
#include "backend/gen.h"
#include "backend/ops.h"
#include "backend/plain_sample.h"
#include "backend/wrap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A world on a wrapped cpu, and the reference. */
typedef struct bench {
    suite     s;
    wrap      w;
    nn_model *m;
    world     world;
    nn_exec  *reference;
} bench;

static void bench_open(bench *b, uint64_t seed, gen_want want) {
    nn_device         d;
    const nn_backend *scalar;
    err               e;
    *b = (bench){ .s = { .random = seed, .rounds = 1, .quick = TEST_SANITIZED } };
    assert_int_equal(wrap_init(&b->w, "cpu", seed, &e), 0);
    b->s.backend = wrap_backend;
    b->s.device = b->w.device;
    b->m = gen_model(&b->s, want);
    nn_exec_options o = world_options(&b->s);
    o.n_threads = 1;
    assert_true(world_open(&b->world, &b->s, b->m, &o));
    assert_int_equal(backend_find("scalar", &scalar, &d, &e), 0);
    assert_int_equal(scalar->open(&b->reference, &d, b->m, &o, &e), 0);
}

static void bench_close(bench *b) {
    if (wrap_misuse(&b->w)) fail_msg("%s", wrap_misuse(&b->w));
    nn_exec_free(b->reference);
    world_close(&b->world);
    gen_free(b->m);
    wrap_deinit(&b->w);
}

/* The first wrong op of a few batches, or -1. */
static int first_wrong(bench *b, char *report, size_t cap) {
    str text;
    int bad = -1;
    err e = { 0 };
    str_init(&text);
    while (bad < 0 && world_random_batch(&b->world, true))
        if (ops_check(&b->world, b->reference, &bad, &text, &e) < 0) fail_msg("%s", e.msg);
    snprintf(report, cap, "%s", str_cstr(&text));
    str_deinit(&text);
    return bad;
}

static bool has_kind(const nn_model *m, int kind) {
    for (int i = 0; i < m->tape->n_ops; i++) {
        if ((int)m->tape->ops[i].kind == kind) return true;
    }
    return false;
}

/* A model that has the kind, then the suite's check on it. */
static void check_kind(int kind) {
    bench   *b = calloc(1, sizeof *b);
    char     report[600];
    gen_want want;
    uint64_t seed = 1;
    assert_non_null(b);
    for (;; seed++) {
        want = (gen_want){
            .type = GEN_ANY, .mixer = (int)(seed % (GEN_STEP + 1)), .ffn = (int)(seed % GEN_FFNS), .n_layer = 1
        };
        bench_open(b, seed, want);
        if (has_kind(b->m, kind)) break;
        bench_close(b);
        assert_true(seed < 500);
    }
    wrap_wrong(&b->w, kind);
    int bad = first_wrong(b, report, sizeof report);
    if (bad < 0) fail_msg("%s was wrong and nobody saw it", nn_op_name((nn_op_kind)kind));
    if ((int)b->m->tape->ops[bad].kind != kind)
        fail_msg("%s was wrong, the suite says: %s", nn_op_name((nn_op_kind)kind), report);
    assert_non_null(strstr(report, nn_op_name((nn_op_kind)kind)));
    /* Right again, on pages without anything in them: nothing is found. */
    bench_close(b);
    bench_open(b, seed, want);
    if (first_wrong(b, report, sizeof report) >= 0) fail_msg("nothing is wrong, the suite says: %s", report);
    bench_close(b);
    free(b);
}

static void test_every_wrong_op_is_named(void **state) {
    (void)state;
    for (int kind = 0; kind < NN_OP_KINDS; kind++) check_kind(kind);
}

/* Also through submit: other logits come out. */
static void test_wrong_steps(void **state) {
    bench *b = calloc(1, sizeof *b);
    trace  t;
    (void)state;
    assert_non_null(b);
    bench_open(b, 3, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_GLU, .n_layer = 1 });
    trace_init(&t, b->m);
    b->world.all_logits = true;
    world_run(&b->world, &t, "right");
    assert_int_equal(b->s.n_failed, 0);
    wrap_wrong(&b->w, NN_OP_LINEAR);
    world_place(&b->world);
    b->s.n_failed = 1000; /* what follows is not shown */
    world_run(&b->world, &t, "wrong");
    assert_true(b->s.n_failed > 1000);
    trace_deinit(&t);
    bench_close(b);
    free(b);
}

/* Every n-th call of each kind fails once, with its code, and only that one. */
static void test_nth_calls(void **state) {
    static const int codes[] = { ERR_IO, ERR_NOMEM };
    (void)state;
    for (int call = 0; call < WRAP_CALLS; call++) {
        for (uint64_t nth = 1; nth <= 3; nth++) {
            bench *b = calloc(1, sizeof *b);
            int    code = codes[nth % 2], seen = 0, at = 0;
            assert_non_null(b);
            bench_open(b, 7, (gen_want){ .type = GEN_ANY, .mixer = GEN_DELTA, .ffn = GEN_MLP, .n_layer = 2 });
            nn_exec *x = b->world.x;
            float   *row = calloc(4096, sizeof *row);
            size_t   bytes = x->memory.slot_bytes;
            uint8_t *host = malloc(bytes);
            assert_true(row && host && bytes > 0);
            wrap_fail_at(&b->w, (wrap_call)call, nth, code);
            for (int round = 1; round <= 4; round++) {
                nn_move   m = { .kind = NN_MOVE_SLOT, .from = 0, .to = NN_HOST, .host = host };
                nn_memory mem;
                nn_ticket ticket;
                nn_exec  *other = NULL;
                err       e = { 0 };
                int       rc = 0;
                world_place(&b->world);
                world_begin(&b->world);
                world_add(&b->world, 0, 1);
                world_end(&b->world);
                b->world.batch.n_hidden = 0;
                switch (call) {
                case WRAP_MEASURE: rc = wrap_backend->measure(&mem, &b->s.device, b->m, &b->world.o, &e); break;
                case WRAP_OPEN:
                    rc = wrap_backend->open(&other, &b->s.device, b->m, &b->world.o, &e);
                    assert_true((rc < 0) == (other == NULL));
                    nn_exec_free(other);
                    break;
                case WRAP_MOVE:
                case WRAP_WAIT_MOVE: rc = nn_exec_move(x, &m, 1, &e); break;
                default:
                    rc = x->backend->submit(x, &b->world.batch, &ticket, &e);
                    if (rc == 0) rc = x->backend->wait(x, ticket, &e);
                    if (rc == 0) rc = x->backend->fetch(x, NN_FETCH_LOGITS, 0, 1, row, &e);
                }
                if (rc == 0) continue;
                assert_int_equal(rc, code);
                assert_int_equal(e.code, code);
                assert_non_null(strstr(e.msg, "injected"));
                assert_non_null(strstr(e.msg, wrap_call_name((wrap_call)call)));
                seen++;
                at = round;
            }
            assert_int_equal(seen, 1);
            assert_int_equal(at, (int)nth);
            assert_int_equal(wrap_failed(&b->w, (wrap_call)call), 1);
            free(row);
            free(host);
            bench_close(b);
            free(b);
        }
    }
}

/* Failed steps and moves leave garbage where they may, and nowhere else: sequences that stepped before go on, the same
 * bits; the one that failed begins again. */
static void test_what_failures_leave(void **state) {
    bench *b = calloc(1, sizeof *b);
    trace  t;
    (void)state;
    assert_non_null(b);
    for (int mixer = 0; mixer < GEN_MIXERS; mixer++) {
        bench_open(b, 20 + (uint64_t)mixer,
                   (gen_want){ .type = GEN_ANY, .mixer = mixer, .ffn = GEN_GLU, .n_layer = 2 });
        trace_init(&t, b->m);
        world_run(&b->world, &t, "undisturbed");
        world_place(&b->world);
        wrap_fail_share(&b->w, WRAP_SUBMIT, 0.2, ERR_IO);
        wrap_fail_share(&b->w, WRAP_WAIT, 0.2, ERR_NOMEM);
        wrap_fail_at(&b->w, WRAP_SUBMIT, 1, ERR_IO); /* one at least: a model that needs whole inputs has few batches */
        while (world_random_batch(&b->world, false)) {
            err e = { 0 };
            int rc = nn_exec_step(b->world.x, &b->world.batch, &e);
            if (rc == 0) trace_take(&t, &b->world, "beside failures");
            for (int k = 0; k < b->world.batch.n_seq && rc < 0; k++) b->world.len[b->world.of[k]] = 0;
        }
        assert_int_equal(b->s.n_failed, 0);
        assert_true(wrap_failures(&b->w) > 0);
        trace_deinit(&t);
        bench_close(b);
    }
    free(b);
}

/* Moves that fail: the destination is garbage, the source is not. */
static void test_failed_moves(void **state) {
    bench *b = calloc(1, sizeof *b);
    (void)state;
    assert_non_null(b);
    bench_open(b, 5, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_GLU, .n_layer = 1 });
    nn_exec *x = b->world.x;
    size_t   bytes = x->memory.page_bytes[0];
    uint8_t *a = malloc(bytes), *c = malloc(bytes);
    assert_true(a && c && bytes > 0);
    for (int way = 0; way < 2; way++) { /* at its start, and when it is waited for */
        wrap_call call = way ? WRAP_WAIT_MOVE : WRAP_MOVE;
        nn_move   in = { NN_MOVE_PAGE, 0, NN_HOST, 3, a }, out = { NN_MOVE_PAGE, 0, 3, NN_HOST, c },
                copy = { NN_MOVE_PAGE, 0, 3, 4, NULL }, out4 = { NN_MOVE_PAGE, 0, 4, NN_HOST, c };
        memset(a, 0x11, bytes);
        assert_int_equal(nn_exec_move(x, &in, 1, NULL), 0);
        wrap_fail_at(&b->w, call, 1, ERR_IO);
        memset(c, 0x22, bytes);
        assert_int_equal(nn_exec_move(x, &out, 1, NULL), ERR_IO);
        assert_memory_not_equal(a, c, bytes);
        assert_int_not_equal(c[0], 0x22);
        assert_int_equal(nn_exec_move(x, &copy, 1, NULL), 0);
        wrap_fail_at(&b->w, call, 1, ERR_IO);
        assert_int_equal(nn_exec_move(x, &copy, 1, NULL), ERR_IO);
        assert_int_equal(nn_exec_move(x, &out4, 1, NULL), 0);
        assert_memory_not_equal(a, c, bytes);
        assert_int_equal(nn_exec_move(x, &out, 1, NULL), 0);
        assert_memory_equal(a, c, bytes);
    }
    free(a);
    free(c);
    bench_close(b);
    free(b);
}

static void test_lost(void **state) {
    bench *b = calloc(1, sizeof *b);
    (void)state;
    assert_non_null(b);
    for (int way = 0; way < 2; way++) {
        bench_open(b, 5, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_GLU, .n_layer = 1 });
        nn_exec        *x = b->world.x, *other = NULL;
        const nn_batch *batch = &b->world.batch;
        nn_ticket       ticket;
        nn_memory       mem;
        float           row[4096];
        err             e = { 0 };
        wrap_fail_at(&b->w, way ? WRAP_WAIT : WRAP_SUBMIT, 1, ERR_LOST);
        world_begin(&b->world);
        world_add(&b->world, 0, 1);
        world_end(&b->world);
        assert_int_equal(nn_exec_step(x, batch, &e), ERR_LOST);
        wrap_calm(&b->w);
        assert_int_equal(x->backend->submit(x, batch, &ticket, &e), ERR_LOST);
        assert_int_equal(x->backend->wait(x, 1, &e), ERR_LOST);
        assert_int_equal(x->backend->fetch(x, NN_FETCH_LOGITS, 0, 1, row, &e), ERR_LOST);
        assert_int_equal(nn_exec_move(x, &(nn_move){ NN_MOVE_PAGE, 0, 0, 1, NULL }, 1, &e), ERR_LOST);
        assert_int_equal(x->backend->begin(x, batch, &e), ERR_LOST);
        assert_int_equal(wrap_backend->open(&other, &b->s.device, b->m, &b->world.o, &e), ERR_LOST);
        assert_int_equal(wrap_backend->measure(&mem, &b->s.device, b->m, &b->world.o, &e), ERR_LOST);
        bench_close(b);
    }
    free(b);
}

/* A late device: right for those who wait, and it tells on those who do not. */
static void test_late(void **state) {
    bench *b = calloc(1, sizeof *b);
    trace  t;
    (void)state;
    assert_non_null(b);
    bench_open(b, 9, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_GLU, .n_layer = 2 });
    nn_exec *x = b->world.x;
    size_t   bytes = x->memory.page_bytes[0];
    uint8_t *a = malloc(bytes), *c = malloc(bytes);
    assert_true(a && c && bytes > 0);
    trace_init(&t, b->m);
    world_run(&b->world, &t, "at once");
    wrap_delay(&b->w, true);
    world_place(&b->world);
    world_run(&b->world, &t, "late");
    assert_int_equal(b->s.n_failed, 0);

    /* In order although nothing was waited for between: in, copy, out. */
    nn_ticket in, copy, out;
    memset(a, 0x77, bytes);
    assert_int_equal(x->backend->move(x, &(nn_move){ NN_MOVE_PAGE, 0, NN_HOST, 1, a }, 1, &in, NULL), 0);
    assert_int_equal(x->backend->move(x, &(nn_move){ NN_MOVE_PAGE, 0, 1, 2, NULL }, 1, &copy, NULL), 0);
    assert_int_equal(x->backend->move(x, &(nn_move){ NN_MOVE_PAGE, 0, 2, NN_HOST, c }, 1, &out, NULL), 0);
    assert_int_not_equal(c[0], 0x77); /* not there yet */
    assert_int_equal(x->backend->wait(x, out, NULL), 0);
    assert_memory_equal(a, c, bytes);
    assert_int_equal(x->backend->wait(x, in, NULL), 0);
    assert_int_equal(x->backend->wait(x, copy, NULL), 0);
    assert_null(wrap_misuse(&b->w));

    /* A buffer that is used again too early. */
    assert_int_equal(x->backend->move(x, &(nn_move){ NN_MOVE_PAGE, 0, NN_HOST, 1, a }, 1, &in, NULL), 0);
    memset(a, 0, bytes);
    assert_int_equal(x->backend->wait(x, in, NULL), 0);
    assert_non_null(strstr(wrap_misuse(&b->w), "move in changed"));
    b->w.misuse = 0;
    /* Rows fetched before the step was waited for; two steps at once; a ticket twice. */
    nn_ticket step;
    float     row[4096];
    world_place(&b->world);
    world_begin(&b->world);
    world_add(&b->world, 0, 1);
    world_end(&b->world);
    assert_int_equal(x->backend->submit(x, &b->world.batch, &step, NULL), 0);
    assert_true(x->backend->fetch(x, NN_FETCH_HIDDEN, 0, 1, row, NULL) < 0);
    assert_true(x->backend->submit(x, &b->world.batch, &in, NULL) < 0);
    assert_int_equal(x->backend->wait(x, step, NULL), 0);
    assert_true(x->backend->wait(x, step, NULL) < 0);
    assert_int_equal(b->w.misuse, 3);
    b->w.misuse = 0;
    free(a);
    free(c);
    trace_deinit(&t);
    bench_close(b);
    free(b);
}

/* Two wraps with other rules, executors of both in use. */
static void test_side_by_side(void **state) {
    bench *b = calloc(2, sizeof *b);
    err    e = { 0 };
    (void)state;
    assert_non_null(b);
    for (int i = 0; i < 2; i++)
        bench_open(&b[i], 4, (gen_want){ .type = GEN_ANY, .mixer = GEN_ATTN, .ffn = GEN_GLU, .n_layer = 1 });
    wrap_fail_share(&b[0].w, WRAP_SUBMIT, 1.0, ERR_IO);
    for (int i = 0; i < 2; i++) {
        assert_true(world_random_batch(&b[i].world, false));
        assert_int_equal(nn_exec_step(b[i].world.x, &b[i].world.batch, &e), i ? 0 : ERR_IO);
    }
    assert_int_equal(wrap_calls(&b[0].w, WRAP_SUBMIT), 1);
    assert_int_equal(wrap_calls(&b[1].w, WRAP_SUBMIT), 1);
    assert_int_equal(wrap_failed(&b[1].w, WRAP_SUBMIT), 0);
    for (int i = 0; i < 2; i++) bench_close(&b[i]);
    free(b);
}

/* The suite's other parts hold on a wrapped backend, late or not: it is one. */
static void test_conforms(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        suite s = { .random = 77, .rounds = 1, .quick = TEST_SANITIZED };
        wrap  w;
        err   e;
        assert_int_equal(wrap_init(&w, "cpu", 1, &e), 0);
        wrap_delay(&w, late);
        s.backend = wrap_backend;
        s.device = w.device;
        suite_inputs(&s);
        suite_moves(&s);
        suite_batches(&s);
        suite_calls(&s);
        assert_int_equal(s.n_failed, 0);
        assert_true(s.n_facts > (TEST_SANITIZED ? 100 : 1000));
        if (wrap_misuse(&w)) fail_msg("%s", wrap_misuse(&w));
        wrap_deinit(&w);
    }
}

/* --- a backend that samples ------------------------------------------------------------------------------------- */

static bool pick_badly;

/* The definition, from the cpu's rows; or one in sixteen tokens is another one. */
static int sample(nn_exec *x, const int32_t *out_rows, const sampling_row *rows, int n, sampling_result *out, err *e) {
    size_t width = (size_t)nn_exec_width(x, NN_FETCH_LOGITS);
    float *row = malloc(width * sizeof *row);
    int    rc = row ? 0 : err_set_nomem(e);
    for (int i = 0; i < n && rc == 0; i++) {
        rc = x->backend->fetch(x, NN_FETCH_LOGITS, out_rows[i], 1, row, e);
        if (rc == 0) rc = plain_sample(row, width, &rows[i], 1, &out[i], NULL, e);
        if (rc == 0 && pick_badly && i % 16 == 3) out[i].token = (out[i].token + 1) % (int32_t)width;
    }
    free(row);
    return rc;
}

static void test_sampling_is_judged(void **state) {
    const nn_backend *cpu;
    nn_backend        b;
    nn_device         d;
    err               e;
    (void)state;
    assert_int_equal(backend_find("cpu", &cpu, &d, &e), 0);
    b = *cpu;
    b.sample = sample;
    for (int bad = 0; bad < 2; bad++) {
        suite s = { .backend = &b, .device = d, .random = 5, .rounds = 1 };
        pick_badly = bad;
        suite_sample(&s);
        assert_true(s.n_facts > 100);
        assert_int_equal(s.n_failed > 0, bad);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_wrong_op_is_named),
        cmocka_unit_test(test_wrong_steps),
        cmocka_unit_test(test_nth_calls),
        cmocka_unit_test(test_what_failures_leave),
        cmocka_unit_test(test_failed_moves),
        cmocka_unit_test(test_lost),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_conforms),
        cmocka_unit_test(test_sampling_is_judged),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
