/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention and indexers on a device whose room for parts of results holds one row of a batch (PARTS_MOST, SCORES_MOST,
 * lower.c): the rows of a step are made one behind the other, and nothing else changes. In life that is so with many
 * sequences far behind a long context. Here two executors of a random model, of which one has no more room, run the same
 * batches: of one sequence, of a few rows of each, of one. --seed N.
 */
#include "backend/backend.h"
#include "backend/cuda/cuda.h"
#include "backend/gen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQS = 5, PAGES = 5, PAGE = 64, TOKENS = 160, FEW = 4, SINGLE = 2 };

typedef struct two {
    suite   *s;
    nn_exec *x[2]; /* the second is narrow */
    int      n_vocab, len[SEQS];
    nn_batch batch;
    int32_t  token[TOKENS], pos[TOKENS], seq_of[TOKENS], out_rows[TOKENS], q_start[SEQS + 1], kv_len[SEQS], slot[SEQS];
    int32_t  pages[SEQS * PAGES];
} two;

static void begin(two *t) {
    t->batch = (nn_batch){ .token = t->token,
                           .pos = t->pos,
                           .seq_of = t->seq_of,
                           .q_start = t->q_start,
                           .kv_len = t->kv_len,
                           .pages_stride = PAGES,
                           .state_slot = t->slot,
                           .out_rows = t->out_rows };
    for (int g = 0; g < t->x[0]->groups.n; g++) t->batch.pages[g] = t->pages;
}

static void add(two *t, int seq, int n) {
    nn_batch *b = &t->batch;
    const int k = b->n_seq++;
    t->q_start[k] = b->n_tok;
    for (int i = 0; i < n; i++, b->n_tok++) {
        t->token[b->n_tok] = suite_int(t->s, 0, t->n_vocab - 1);
        t->pos[b->n_tok] = t->len[seq]++;
        t->seq_of[b->n_tok] = k;
        t->out_rows[b->n_tok] = b->n_tok;
    }
    t->q_start[k + 1] = b->n_tok;
    t->kv_len[k] = t->len[seq];
    t->slot[k] = seq;
    for (int p = 0; p < PAGES; p++) t->pages[k * PAGES + p] = (seq + SEQS * p) % (SEQS * PAGES);
    b->n_out = b->n_tok;
}

static bool run(two *t, const char *how) {
    const size_t n = (size_t)t->batch.n_out * (size_t)t->n_vocab;
    float       *rows[2] = { calloc(n, sizeof(float)), calloc(n, sizeof(float)) };
    err          e = { 0 };
    int          rc = rows[0] && rows[1] ? 0 : err_set_nomem(&e);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = nn_exec_step(t->x[i], &t->batch, &e);
        if (rc == 0) rc = t->x[i]->backend->fetch(t->x[i], NN_FETCH_LOGITS, 0, t->batch.n_out, rows[i], &e);
    }
    FACT(t->s, rc == 0, "%s: %s", how, e.msg);
    bool same = rc == 0 && FACT(t->s, memcmp(rows[0], rows[1], n * sizeof(float)) == 0,
                                "%s: logits are other bits where rows are made one by one", how);
    free(rows[0]), free(rows[1]);
    return same;
}

static bool run_all(two *t) {
    static const int until[SEQS] = { 2 * CUDA_ATTN_CHUNK + 3, CUDA_ATTN_CHUNK + 12, 30, 7, 1 };
    for (int q = 0; q < SEQS; q++) {
        while (t->len[q] < until[q]) {
            const int left = until[q] - t->len[q];
            begin(t);
            add(t, q, left < TOKENS ? left : TOKENS);
            if (!run(t, "many rows")) return false;
        }
    }
    begin(t);
    for (int q = 0; q < SEQS; q++) add(t, q, FEW);
    if (!run(t, "a few rows each")) return false;
    for (int i = 0; i < SINGLE; i++) {
        begin(t);
        for (int q = SEQS - 1; q >= 0; q--) add(t, q, 1);
        if (!run(t, "one row each")) return false;
    }
    return true;
}

/* Room for one row's parts of the largest layer, and for one row's scores. */
static void make_narrow(nn_exec *x) {
    cuda_exec *c = (cuda_exec *)(void *)x;
    c->parts_floats /= (size_t)cuda_parts_rows(&x->options.limits);
    c->score_floats /= (size_t)x->options.limits.max_tokens;
}

static void check_model(suite *s, int mixer, nn_kv_type k, nn_kv_type v) {
    nn_model       *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = mixer, .ffn = GEN_MLP, .n_layer = 1 });
    nn_exec_options o = { .limits = { .max_tokens = TOKENS,
                                      .max_seqs = SEQS,
                                      .max_outputs = TOKENS,
                                      .page_tokens = PAGE,
                                      .max_pages = PAGES,
                                      .n_pages = SEQS * PAGES,
                                      .n_slots = SEQS },
                          .k_type = k,
                          .v_type = v,
                          .n_threads = 1,
                          .steady = true };
    two             t = { .s = s, .n_vocab = m->dims->n_vocab };
    nn_memory       mem;
    err             e = { 0 };
    if (s->backend->measure(&mem, &s->device, m, &o, NULL) < 0) o.k_type = o.v_type = NN_KV_F16;
    int rc = s->backend->open(&t.x[0], &s->device, m, &o, &e);
    if (rc == 0) rc = s->backend->open(&t.x[1], &s->device, m, &o, &e);
    if (FACT(s, rc == 0, "open: %s", e.msg)) {
        make_narrow(t.x[1]);
        if (!run_all(&t))
            printf("    mixer %d, pages of %s and %s\n", mixer, nn_kv_type_name(o.k_type), nn_kv_type_name(o.v_type));
    }
    nn_exec_free(t.x[0]);
    nn_exec_free(t.x[1]);
    gen_free(m);
}

int main(int argc, char **argv) {
    static const int mixers[] = { GEN_ATTN, GEN_WINDOW, GEN_LATENT, GEN_CHOSEN };
    suite            s = { .rounds = 1 };
    err              e;
    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--seed") != 0)) {
        fprintf(stderr, "usage: %s [--seed N]\n", argv[0]);
        return 2;
    }
    s.random = (argc == 3 ? strtoull(argv[2], NULL, 0) : 1) * 1000003u;
    if (backend_find("cuda:0", &s.backend, &s.device, &e) < 0) {
        printf("skipped: no device: %s\n", e.msg);
        return 0;
    }
    for (size_t i = 0; i < sizeof mixers / sizeof *mixers; i++) {
        check_model(&s, mixers[i], NN_KV_F16, NN_KV_F16);
        check_model(&s, mixers[i], NN_KV_F32, NN_KV_F32);
        check_model(&s, mixers[i], NN_KV_Q8_0, NN_KV_Q8_0);
        check_model(&s, mixers[i], (nn_kv_type)suite_int(&s, 0, NN_KV_TYPE_COUNT - 1),
                    (nn_kv_type)suite_int(&s, 0, NN_KV_TYPE_COUNT - 1));
    }
    printf("check %s: %ld facts, %ld do not hold\n", s.n_failed ? "FAILED" : "ok", s.n_facts, s.n_failed);
    return s.n_failed > 0;
}
