/* SPDX-License-Identifier: Apache-2.0 */
/* Models that see the whole input: every op against the reference, the same bits in any company, pairs of texts, and a
 * batch that does not hold an input whole is refused. */
#include "backend/gen.h"
#include "backend/ops.h"

#include <stdlib.h>
#include <string.h>

/* Every sequence alone, then in random company; the second halves belong to a second text where pairs is set. */
static void run(world *w, trace *t, bool pairs, bool alone) {
    int32_t segment[WORLD_TOKENS];
    world_place(w);
    for (int q = 0;;) {
        err e = { 0 };
        if (alone && q == w->n_seq) return;
        if (alone) {
            world_begin(w);
            world_add(w, q, w->until[q]);
            world_end(w);
            q++;
        } else if (!world_random_batch(w, false)) {
            return;
        }
        for (int i = 0; i < w->batch.n_tok; i++) segment[i] = w->pos[i] >= w->kv_len[w->seq_of[i]] / 2;
        if (pairs) w->batch.segment = segment;
        if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step: %s", e.msg)) return;
        trace_take(t, w, alone ? "alone" : "in company");
    }
}

static void check_bits(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    trace           t;
    if (!w) exit(1);
    if (world_open(w, s, m, &o)) {
        bool can = s->backend->can & NN_BATCH_SEGMENT;
        w->all_logits = true;
        for (int pairs = 0; pairs < 1 + can; pairs++) {
            trace_init(&t, m);
            run(w, &t, pairs, true);
            for (int i = 0; i < 2; i++) run(w, &t, pairs, false);
            trace_deinit(&t);
        }
        world_close(w);
    }
    free(w);
}

static void check_refusal(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    nn_ticket       ticket;
    err             e = { 0 };
    if (!w) exit(1);
    if (world_open(w, s, m, &o)) {
        w->until[0] = 6;
        world_begin(w);
        world_add(w, 0, 3);
        world_end(w);
        FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "the first rows: %s", e.msg);
        world_begin(w);
        world_add(w, 0, 3);
        world_end(w);
        int rc = w->x->backend->submit(w->x, &w->batch, &ticket, &e);
        FACT(s, rc == ERR_ARG && strstr(e.msg, "whole"), "rows that go on: %d, \"%s\"", rc, e.msg);
        world_close(w);
    }
    free(w);
}

void suite_whole(suite *s) {
    for (int i = 0; i < suite_models(s, 4); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = GEN_STEP, .ffn = i % GEN_FFNS });
        ops_check_model(s, m, NN_KV_F16, NN_KV_F16, 0);
        check_bits(s, m);
        check_refusal(s, m);
        gen_free(m);
    }
}
