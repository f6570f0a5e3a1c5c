/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine with streamed experts: answers are those of the resident model whoever runs beside whom, and a read that
 * fails costs the requests of its step alone.
 */
#include "backend/backend.h"
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { REQUESTS = 16, LONGEST = 60, ANSWER = 10 };

/* The CPU backend with a reader of ours; of every engine of this program. */
static atomic_int       n_reads, fail_every;
static file_reader_hook hook;
static nn_backend       mine;

static ssize_t read_or_not(void *ctx, int fd, void *to, size_t bytes, off_t at) {
    int n = atomic_fetch_add(&n_reads, 1) + 1, every = atomic_load(&fail_every);
    (void)ctx;
    if (every && n % every == 0) {
        errno = EIO;
        return -1;
    }
    return pread(fd, to, bytes, at);
}

static int open_mine(nn_exec **out, const nn_device *d, const nn_model *m, const nn_exec_options *o, err *e) {
    nn_exec_options x = *o;
    x.reader = &hook;
    return backend_cpu.open(out, d, m, &x, e);
}

static engine_request request_of(int i, int32_t *tokens, int n_vocab, answer *a) {
    int n = 1 + i * 23 % LONGEST;
    for (int k = 0; k < n; k++) tokens[k] = (k * 31 + (k < 12 ? 0 : i * 7)) % n_vocab;
    *a = (answer){ 0 };
    engine_request r = { .tokens = tokens,
                         .n_tokens = (size_t)n,
                         .max_tokens = ANSWER,
                         .ignore_eos = true,
                         .want_logprob = true,
                         .on_event = answer_collect,
                         .ctx = a };
    sampling_params_default(&r.sampling);
    r.sampling.seed = (uint64_t)i;
    r.sampling.temperature = i % 2 ? 0.8f : 0;
    return r;
}

static void ask_all(engine *g, int n_vocab, answer *out, bool together) {
    int32_t tokens[LONGEST];
    for (int i = 0; i < REQUESTS; i++) {
        engine_request r = request_of(i, tokens, n_vocab, &out[i]);
        engine_submit_ok(g, &r);
        if (!together) engine_wait_idle(g);
    }
    engine_wait_idle(g);
}

static nn_expert_memory sizes(const fixture *f) {
    engine_memory m;
    err           e = { 0 };
    if (engine_measure(&m, f->model, &(engine_options){ .device = "cpu", .cpu = fixture_cpu() }, &e) < 0)
        fail_msg("%s", e.msg);
    return m.experts;
}

static void test_same_answers(void **state) {
    static const char *const names[] = { "qwen3_moe", "gpt_oss_mxfp4", "qwen3_next" };
    static answer            solo[REQUESTS], got[REQUESTS];
    (void)state;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        fixture f;
        fixture_open(&f, names[k]);
        nn_expert_memory size = sizes(&f);
        int              n_vocab = f.model->dims->n_vocab;
        engine *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
        ask_all(g, n_vocab, solo, false);
        engine_free(g);
        for (int way = 0; way < 3; way++) {
            engine_stats st;
            g = fixture_engine(&f, (engine_options){ .n_threads = 1 + way % 2,
                                                     .max_seqs = 6,
                                                     .step_tokens = way == 2 ? 16 : 0,
                                                     .backend = &mine,
                                                     .expert_bytes = way == 0   ? size.least
                                                                     : way == 1 ? size.most
                                                                                : size.least + size.least / 2 });
            for (int round = 0; round < 2; round++) {
                ask_all(g, n_vocab, got, true);
                for (int i = 0; i < REQUESTS; i++) {
                    if (got[i].failed) fail_msg("%s: request %d: %s", names[k], i, got[i].error.msg);
                    if (!answer_same(&solo[i], &got[i])) fail_msg("%s: way %d: request %d differs", names[k], way, i);
                }
            }
            engine_stat(g, &st);
            assert_true(st.experts.misses > 0 && st.experts.slots > 0 && st.experts.bytes > 0);
            assert_int_equal(st.experts.experts, size.count);
            engine_free(g);
        }
        fixture_close(&f);
    }
}

static void test_failed_reads(void **state) {
    static answer solo[REQUESTS], got[REQUESTS];
    fixture       f;
    engine_stats  st;
    int           failed = 0, whole = 0;
    (void)state;
    fixture_open(&f, "qwen3_moe");
    nn_expert_memory size = sizes(&f);
    int              n_vocab = f.model->dims->n_vocab;
    engine          *g = fixture_engine(&f, (engine_options){ .n_threads = 1, .max_seqs = 1, .no_prefix_cache = true });
    ask_all(g, n_vocab, solo, false);
    engine_free(g);
    g = fixture_engine(&f,
                       (engine_options){ .n_threads = 2, .max_seqs = 3, .backend = &mine, .expert_bytes = size.least });
    for (int every = 400; every >= 100; every -= 100) {
        atomic_store(&fail_every, every);
        ask_all(g, n_vocab, got, true);
        for (int i = 0; i < REQUESTS; i++) {
            assert_true(got[i].over);
            failed += got[i].failed;
            whole += !got[i].failed;
            if (!got[i].failed) assert_true(answer_same(&solo[i], &got[i]));
            if (!got[i].failed) continue;
            assert_int_equal(got[i].error.code, ERR_IO);
            assert_non_null(strstr(got[i].error.msg, "expert "));
        }
    }
    assert_true(failed > 0 && whole > 0);
    atomic_store(&fail_every, 0);
    ask_all(g, n_vocab, got, true);
    for (int i = 0; i < REQUESTS; i++) assert_true(!got[i].failed && answer_same(&solo[i], &got[i]));
    engine_stat(g, &st);
    assert_true(st.failed_steps > 0);
    engine_free(g);
    fixture_close(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_answers), cmocka_unit_test(test_failed_reads) };
    hook = (file_reader_hook){ .read = read_or_not };
    mine = backend_cpu;
    mine.open = open_mine;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
