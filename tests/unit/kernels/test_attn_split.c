/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A long context shared among threads: logits of single tokens behind 1,100 positions are the same bits with 1 and with
 * 4 threads, for one sequence and for two of different length, with full, windowed and latent attention and with sinks.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "backend/backend.h"
#include "kernels/cpu.h"
#include "tools/simple.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST = 1100, SECOND = 1033, STEPS = 3, PIECE = 256 };

static int32_t token_at(const fixture *f, int seq, int i) {
    return (int32_t)(((unsigned)i * 2654435761u + (unsigned)seq * 40503u) >> 8) % f->model->dims->n_vocab;
}

static void must(int rc, const err *e) {
    if (rc < 0) fail_msg("%s", e->msg);
}

/* out: [STEPS][1 + 2][n_vocab]: the first sequence alone, then both in one step. */
static void run(const fixture *f, int n_threads, float *out) {
    simple         s;
    err            e;
    int            length[2] = { FIRST, SECOND };
    size_t         n_vocab = (size_t)f->model->dims->n_vocab;
    int32_t        ids[PIECE];
    simple_options o = { .n_seq = 2,
                         .max_len = 1200,
                         .n_threads = n_threads,
                         .steady = true,
                         .k_type = NN_KV_F16,
                         .v_type = NN_KV_F16,
                         .cpu = cpu_detect() };
    must(simple_open(&s, "cpu", f->model, &o, &e), &e);
    for (int q = 0; q < 2; q++)
        for (int at = 0; at < length[q]; at += PIECE) {
            int n = length[q] - at < PIECE ? length[q] - at : PIECE;
            for (int i = 0; i < n; i++) ids[i] = token_at(f, q, at + i);
            must(simple_step(&s, &(simple_feed){ .seq = q, .ids = ids, .n = n }, 1, &e), &e);
        }
    for (int step = 0; step < STEPS; step++) {
        int32_t     a = token_at(f, 0, 5000 + step), b = token_at(f, 1, 6000 + step);
        simple_feed feeds[2] = { { .seq = 0, .ids = &a, .n = 1 }, { .seq = 1, .ids = &b, .n = 1 } };
        must(simple_step(&s, feeds, 1, &e), &e);
        memcpy(out, simple_fetch(&s, NN_FETCH_LOGITS, &e), n_vocab * sizeof *out);
        must(simple_step(&s, feeds, 2, &e), &e);
        memcpy(out + n_vocab, simple_fetch(&s, NN_FETCH_LOGITS, &e), 2 * n_vocab * sizeof *out);
        out += 3 * n_vocab;
    }
    simple_close(&s);
}

static void test_same_bits(void **state) {
    static const char *const names[] = { "llama", "gemma3_text", "deepseek_v3", "gpt_oss" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        fixture f;
        fixture_open(&f, names[i]);
        size_t n = (size_t)f.model->dims->n_vocab * 3 * STEPS;
        float *one = calloc(n, sizeof *one), *four = calloc(n, sizeof *four);
        assert_non_null(one);
        assert_non_null(four);
        run(&f, 1, one);
        run(&f, 4, four);
        if (memcmp(one, four, n * sizeof *one) != 0) fail_msg("%s: other logits with 4 threads", names[i]);
        free(one);
        free(four);
        fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_bits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
