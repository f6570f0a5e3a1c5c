/* SPDX-License-Identifier: Apache-2.0 */
/* Supplied embeddings: the table's own rows give what the tokens give; anything else disturbs nobody. */
#include "backend/gen.h"
#include "backend/world.h"

#include "tensor/codec.h"

#include <stdlib.h>
#include <string.h>

/* The rows of these sequences are supplied: the table's, or noise. */
static void supply(world *w, bool noise, const bool *which, float *embd, const float **rows, int32_t *row_end,
                   int32_t *row_begin) {
    const nn_op  *op = &w->m->tape->ops[0];
    const nn_mat *table = op->u.embed.table;
    nn_batch     *b = &w->batch;
    for (int t = 0; t < b->n_tok; t++) {
        float *row = embd + (int64_t)t * table->cols * w->m->tape->n_parts;
        row_end[t] = w->pos[t] + 1; /* as if nothing were said */
        row_begin[t] = w->pos[t];
        rows[t] = which[w->of[w->seq_of[t]]] ? row : NULL;
        if (!rows[t]) continue;
        tensor_mat_dequant_row(table->at, 0, w->token[t], row);
        for (int64_t i = 0; i < table->cols; i++) row[i] = noise ? suite_normal(w->s) : row[i] * op->u.embed.scale;
        for (int64_t i = table->cols; i < table->cols * w->m->tape->n_parts; i++)
            row[i] = noise ? suite_normal(w->s) : 0; /* what is added further up */
        w->token[t] = -1;                            /* not looked up */
    }
    b->embd = rows;
    if (w->s->backend->can & NN_BATCH_ROW_END) b->row_end = row_end;
    if (w->s->backend->can & NN_BATCH_WIDE) b->row_begin = row_begin;
}

static void run(world *w, trace *t, bool noise, const bool *which) {
    float *embd =
        calloc((size_t)(WORLD_TOKENS * w->m->tape->n_parts * w->m->tape->ops[0].u.embed.table->cols), sizeof *embd);
    const float *rows[WORLD_TOKENS];
    int32_t      row_end[WORLD_TOKENS], row_begin[WORLD_TOKENS];
    if (!embd) exit(1);
    while (world_random_batch(w, false)) {
        err e = { 0 };
        supply(w, noise, which, embd, rows, row_end, row_begin);
        /* Noise leaves a trace of its own: only the others' rows are looked at. */
        if (noise) {
            int n = 0;
            for (int r = 0; r < w->batch.n_out; r++) {
                if (!which[w->of[w->seq_of[w->out_rows[r]]]]) w->out_rows[n++] = w->out_rows[r];
            }
            w->batch.n_out = n;
            w->batch.n_hidden = 0;
        }
        if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step with supplied rows: %s", e.msg)) break;
        trace_take(t, w, noise ? "beside noise" : "supplied rows");
    }
    free(embd);
}

static void check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    trace           t;
    bool            which[WORLD_SEQS];
    if (!w) exit(1);
    if (world_open(w, s, m, &o)) {
        trace_init(&t, m);
        world_run(w, &t, "tokens");
        for (int q = 0; q < WORLD_SEQS; q++) which[q] = q % 2 == 0;
        for (int noise = 0; noise < 2; noise++) {
            world_place(w);
            run(w, &t, noise, which);
        }
        trace_deinit(&t);
        world_close(w);
    }
    free(w);
}

void suite_inputs(suite *s) {
    if (!(s->backend->can & NN_BATCH_EMBD)) { /* that it is refused by name is a fact of batches.c */
        FACT(s, true, "nothing to see");
        return;
    }
    for (int i = 0; i < suite_models(s, 6); i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = GEN_ANY });
        check_model(s, m);
        gen_free(m);
    }
}
