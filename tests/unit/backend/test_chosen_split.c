/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Few rows that see chosen positions of a long context: workers share the positions when scores are computed and the
 * chosen ones when attention runs over them. The same bits on any number of threads, for positions and for blocks. One that
 * stops short of its context, or begins at another chunk, would be found by the one thread that does a row at a time.
 */
#include "backend/backend.h"
#include "convert/export.h"
#include "kernels/cpu.h"
#include "models/list.h"
#include "unit/support/support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 64, CONTEXT = 3001, N_PAGES = CONTEXT / PAGE + 2, MOST_ROWS = 5, VOCAB = 300 };

static const nn_config_set shape[] = {
    { "vocab_size", VOCAB, false },
    { "context_length", 4096, false },
    { "block_count", 2, false },
    { "embedding_length", 64, false },
    { "feed_forward_length", 96, false },
    { "attention.head_count", 4, false },
    { "attention.head_count_kv", 2, false },
    { "attention.layer_norm_rms_epsilon", 1e-5, true },
    { "attention.kv_lora_rank", 64, true },
    { "attention.q_lora_rank", 48, true },
    { "attention.key_length_mla", 48, false },
    { "attention.value_length_mla", 32, false },
    { "rope.dimension_count", 16, true },
    { "attention.indexer.head_count", 2, true },
    { "attention.indexer.key_length", 32, true },
    { "expert_count", 4, true },
    { "expert_used_count", 2, true },
    { "expert_feed_forward_length", 32, true },
};
enum { SHAPE = sizeof shape / sizeof *shape };

static nn_exec *open_with(const nn_model *m, int threads) {
    const nn_backend *b;
    nn_device         d;
    nn_exec          *x = NULL;
    err               e;
    nn_exec_options   o = { .limits = { .max_tokens = MOST_ROWS,
                                        .max_seqs = 1,
                                        .max_outputs = MOST_ROWS,
                                        .page_tokens = PAGE,
                                        .max_pages = N_PAGES,
                                        .n_pages = N_PAGES,
                                        .n_slots = 1 },
                            .k_type = NN_KV_F16,
                            .v_type = NN_KV_F16,
                            .end_op = m->tape->n_ops,
                            .n_threads = threads,
                            .steady = true,
                            .cpu = cpu_detect() };
    if (backend_find("cpu", &b, &d, &e) < 0 || b->open(&x, &d, m, &o, &e) < 0) fail_msg("%s", e.msg);
    return x;
}

/* Pages of f16 numbers of moderate size, the same for every executor. */
static void fill(nn_exec *x) {
    const size_t n = x->memory.page_bytes[0] / sizeof(uint16_t);
    uint16_t    *page = malloc(n * sizeof *page);
    uint32_t     r = 1;
    assert_non_null(page);
    for (int p = 0; p < N_PAGES; p++) {
        nn_move m = { .kind = NN_MOVE_PAGE, .from = NN_HOST, .to = p, .host = page };
        for (size_t i = 0; i < n; i++) {
            r = r * 1664525u + 1013904223u;
            page[i] = (uint16_t)((r >> 16 & 0x83ff) | 0x3400);
        }
        assert_int_equal(nn_exec_move(x, &m, 1, NULL), 0);
    }
    free(page);
}

/* The logits of the last rows of the context. */
static void run(nn_exec *x, int rows, float *logits) {
    int32_t pages[N_PAGES], token[MOST_ROWS], pos[MOST_ROWS], seq[MOST_ROWS] = { 0 }, out[MOST_ROWS];
    int32_t start[2] = { 0, rows }, len = CONTEXT, slot = 0;
    err     e;
    for (int i = 0; i < N_PAGES; i++) pages[i] = i;
    for (int i = 0; i < rows; i++) token[i] = 5 + i, pos[i] = CONTEXT - rows + i, out[i] = i;
    nn_batch b = { .n_tok = rows,
                   .n_seq = 1,
                   .n_out = rows,
                   .token = token,
                   .pos = pos,
                   .seq_of = seq,
                   .q_start = start,
                   .kv_len = &len,
                   .state_slot = &slot,
                   .out_rows = out,
                   .pages = { pages },
                   .pages_stride = N_PAGES };
    if (nn_exec_step(x, &b, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(x->backend->fetch(x, NN_FETCH_LOGITS, 0, rows, logits, &e), 0);
}

static void check_family(const char *name, const nn_config_set *more, size_t n_more) {
    nn_config_set set[SHAPE + 4];
    char          path[] = "/tmp/hearth-chosen-XXXXXX";
    model_file   *file;
    nn_model     *m;
    err           e;
    int           fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    memcpy(set, shape, sizeof shape);
    memcpy(set + SHAPE, more, n_more * sizeof *more);
    synth_options o = { .arch = nn_arch_find(models_list, name),
                        .set = set,
                        .n_set = SHAPE + n_more,
                        .type = TENSOR_F32,
                        .n_vocab = VOCAB,
                        .seed = 7 };
    if (synth_gguf(&o, path, &e) < 0 || model_file_open(&file, path, &e) < 0 ||
        nn_model_open(&m, file, models_list, NULL, &e) < 0)
        fail_msg("%s: %s", name, e.msg);
    for (int rows = 1; rows <= MOST_ROWS; rows += 2) {
        static float one[MOST_ROWS * VOCAB], many[MOST_ROWS * VOCAB];
        const size_t bytes = (size_t)rows * VOCAB * sizeof *one;
        for (int threads = 1; threads <= 7; threads += threads == 1 ? 1 : 2) {
            nn_exec *x = open_with(m, threads);
            fill(x);
            run(x, rows, threads == 1 ? one : many);
            if (threads > 1 && memcmp(one, many, bytes) != 0)
                fail_msg("%s: %d rows on %d threads", name, rows, threads);
            nn_exec_free(x);
        }
        for (int i = 0; i < rows * VOCAB; i++) assert_true(one[i] == one[i]);
    }
    nn_model_free(m);
    model_file_free(file);
    unlink(path);
}

static void test_positions(void **state) {
    (void)state;
    check_family("glm-dsa", (const nn_config_set[]){ { "attention.indexer.top_k", 900, true } }, 1);
}

static void test_blocks(void **state) {
    (void)state;
    check_family("minimax-m3",
                 (const nn_config_set[]){ { "attention.indexer.top_k", 9, false },
                                          { "attention.indexer.block_size", 100, false } },
                 2);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_positions), cmocka_unit_test(test_blocks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
