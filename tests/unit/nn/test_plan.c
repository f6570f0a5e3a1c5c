/* SPDX-License-Identifier: Apache-2.0 */
/* Two buffers that are alive together never share bytes; a barrier stands wherever two items touch the same bytes. */
#include "models/list.h"
#include "nn/divide.h"
#include "nn/plan.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <string.h>

static bool used_by(const nn_op *op, nn_buf b) {
    if (op->out == b) return true;
    for (int k = 0; k < NN_MAX_IN; k++) {
        if (op->in[k] == b) return true;
    }
    return false;
}

static void test_no_two_living_buffers_share_bytes(void **state) {
    static const char *const models[] = { "llama",      "gemma4_text", "gemma4_text_moe", "deepseek_v3",
                                          "qwen3_next", "mamba2",      "gpt_oss" };
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof models / sizeof *models); i++) {
        const char *name = models[i / 2];
        bool        waves = i % 2;
        char        path[600];
        model_file *f;
        nn_model   *m;
        nn_plan     p;
        arena       mem;
        err         e = { 0 };
        size_t      all = 0;
        snprintf(path, sizeof path, "%s/tests/golden/models/%s", HEARTH_SOURCE_DIR, name);
        assert_int_equal(model_file_open(&f, path, &e), 0);
        assert_int_equal(nn_model_open(&m, f, models_list, NULL, &e), 0);
        arena_init(&mem, 0);
        const nn_limits limits = { .max_tokens = 40, .max_outputs = 7 };
        assert_int_equal(nn_plan_arena(&p, m->tape, &limits, waves, &mem, &e), 0);
        const nn_tape *t = m->tape;
        for (nn_buf a = 1; a < t->n_bufs; a++) {
            int    first = t->n_ops, last = -1;
            size_t bytes = (size_t)(t->bufs[a].rows == NN_ROWS_TOKENS ? 40 : 7) * (size_t)t->bufs[a].mult *
                           (size_t)t->bufs[a].width * 4;
            for (int k = 0; k < t->n_ops; k++) {
                if (!used_by(&t->ops[k], a)) continue;
                first = k < first ? k : first;
                last = k;
            }
            nn_mixture x; /* its ops run again for other rows */
            for (int from = 0; waves && nn_mixture_next(t, from, &x); from = x.sum + 1) {
                if (first > x.last || last < x.first) continue;
                first = x.first < first ? x.first : first;
                last = x.last > last ? x.last : last;
            }
            if (a == t->logits) last = t->n_ops;
            all += bytes;
            assert_true(p.offset[a] % 64 == 0 && p.offset[a] + bytes <= p.bytes);
            for (nn_buf b = 1; b < t->n_bufs; b++) {
                size_t other = (size_t)(t->bufs[b].rows == NN_ROWS_TOKENS ? 40 : 7) * (size_t)t->bufs[b].mult *
                               (size_t)t->bufs[b].width * 4;
                bool overlap = p.offset[a] < p.offset[b] + other && p.offset[b] < p.offset[a] + bytes;
                if (a == b || !overlap) continue;
                for (int k = first; k <= last && k < t->n_ops; k++) {
                    if (used_by(&t->ops[k], b))
                        fail_msg("%s: op %d uses buffer %d, whose bytes belong to %d then", name, k, b, a);
                }
            }
        }
        assert_true(p.bytes < all); /* sharing happens */
        arena_deinit(&mem);
        nn_model_free(m);
        model_file_free(f);
    }
}

static void test_barriers(void **state) {
    nn_hazards h = { .n = 0 };
    (void)state;
    assert_false(nn_hazards_next(&h, (nn_span[]){ { 0, 64, true } }, 1));
    assert_false(nn_hazards_next(&h, (nn_span[]){ { 64, 128, true } }, 1));                    /* beside it */
    assert_true(nn_hazards_next(&h, (nn_span[]){ { 32, 40, false }, { 200, 300, true } }, 2)); /* reads a write */
    assert_false(nn_hazards_next(&h, (nn_span[]){ { 32, 40, false } }, 1));                    /* reads may meet */
    assert_false(nn_hazards_next(&h, (nn_span[]){ { 64, 128, true } }, 1));                    /* before the barrier */
    assert_true(nn_hazards_next(&h, (nn_span[]){ { 0, 33, true } }, 1));                       /* writes what is read */
    assert_true(nn_hazards_next(&h, (nn_span[]){ { 0, 1, true } }, 1));                        /* writes a write */
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_two_living_buffers_share_bytes),
                                        cmocka_unit_test(test_barriers) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
