/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of nn/batch.h, broken one at a time: refused with a sentence by submit and by begin, and the executor goes
 * on as if nothing had been asked. */
#include "backend/gen.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *what;
    int         code; /* 0: what the backend cannot do, or a wrong use of what it can */
    unsigned    bit;
} rules[] = {
    { "no tokens", ERR_LIMIT, 0 },
    { "too many tokens", ERR_LIMIT, 0 },
    { "no sequences", ERR_LIMIT, 0 },
    { "too many sequences", ERR_LIMIT, 0 },
    { "less than no outputs", ERR_LIMIT, 0 },
    { "too many outputs", ERR_LIMIT, 0 },
    { "less than no hidden rows", ERR_LIMIT, 0 },
    { "more hidden rows than outputs", ERR_LIMIT, 0 },
    { "rows before the first sequence", ERR_ARG, 0 },
    { "rows behind the last sequence", ERR_ARG, 0 },
    { "a sequence without rows", ERR_ARG, 0 },
    { "a row of another sequence", ERR_ARG, 0 },
    { "a position below 0", ERR_ARG, 0 },
    { "a gap between positions", ERR_ARG, 0 },
    { "a length that does not follow", ERR_ARG, 0 },
    { "a page table that is too short", ERR_LIMIT, 0 },
    { "a slot below 0", ERR_ARG, 0 },
    { "a slot that does not exist", ERR_ARG, 0 },
    { "no page table", ERR_ARG, 0 },
    { "a page that does not exist", ERR_ARG, 0 },
    { "a page below 0", ERR_ARG, 0 },
    { "a token below 0", ERR_ARG, 0 },
    { "a token that does not exist", ERR_ARG, 0 },
    { "an output below 0", ERR_ARG, 0 },
    { "an output that does not exist", ERR_ARG, 0 },
    { "neither a token nor an embedding", 0, NN_BATCH_EMBD },
    { "a row that does not see itself", 0, NN_BATCH_ROW_END },
    { "a row that sees behind the end", 0, NN_BATCH_ROW_END },
    { "adapters", 0, NN_BATCH_ADAPTER },
    { "axes", 0, NN_BATCH_AXES },
    { "several axes without positions", 0, NN_BATCH_AXES },
    { "a third text of a pair", 0, NN_BATCH_SEGMENT },
    { "a row that sees nothing", 0, NN_BATCH_ROW_BEGIN },
};
enum { RULES = sizeof rules / sizeof rules[0] };

/* Breaks rule i in the world's batch. */
static void break_rule(world *w, int i, const int32_t *zeros, const int32_t *far, const float *const *nothing) {
    nn_batch        *b = &w->batch;
    const nn_limits *l = &w->o.limits;
    int              s = b->n_seq - 1, t = b->n_tok - 1;
    switch (i) {
    case 0: b->n_tok = 0; break;
    case 1: b->n_tok = l->max_tokens + 1; break;
    case 2: b->n_seq = 0; break;
    case 3: b->n_seq = l->max_seqs + 1; break;
    case 4: b->n_out = -1; break;
    case 5: b->n_out = l->max_outputs + 1; break;
    case 6: b->n_hidden = -1; break;
    case 7: b->n_hidden = b->n_out + 1; break;
    case 8: w->q_start[0] = 1; break;
    case 9: w->q_start[b->n_seq] = b->n_tok - 1; break;
    case 10: w->q_start[s] = b->n_tok; break;
    case 11: w->seq_of[t] = s + 1; break;
    case 12: w->pos[w->q_start[s]] = -1; break;
    case 13: w->pos[t] += 1; break;
    case 14: w->kv_len[s] += 1; break;
    case 15: b->pages_stride = 0; break;
    case 16: w->state_slot[s] = -1; break;
    case 17: w->state_slot[s] = l->n_slots; break;
    case 18: b->pages[0] = NULL; break;
    case 19: w->tables[0][s * WORLD_PAGES + w->pos[t] / l->page_tokens] = l->n_pages; break;
    case 20: w->tables[0][s * WORLD_PAGES + w->pos[t] / l->page_tokens] = -1; break;
    case 21: w->token[t] = -1; break;
    case 22: w->token[t] = w->m->dims->n_vocab; break;
    case 23: w->out_rows[b->n_out - 1] = -1; break;
    case 24: w->out_rows[b->n_out - 1] = b->n_tok; break;
    case 25:
        b->embd = nothing;
        w->token[t] = -1;
        break;
    case 26: b->row_end = zeros; break;
    case 27: b->row_end = far; break;
    case 28: b->adapter = zeros; break;
    case 29: b->pos_axes = zeros; break;
    case 30: b->n_axes = 2; break;
    case 31: b->segment = far; break;
    default: b->row_begin = far; break;
    }
}

static void try_rule(world *w, int i) {
    const float *const nothing[WORLD_TOKENS] = { NULL };
    int32_t            zeros[WORLD_TOKENS] = { 0 }, far[WORLD_TOKENS];
    world             *keep = malloc(sizeof *keep);
    unsigned           can = w->s->backend->can;
    nn_ticket          ticket = 0;
    if (!keep) exit(1);
    if (rules[i].bit & can &
        ~(unsigned)(NN_BATCH_EMBD | NN_BATCH_ROW_END | NN_BATCH_ROW_BEGIN | NN_BATCH_SEGMENT |
                    NN_BATCH_AXES)) { /* what it can do is not a mistake */
        free(keep);
        return;
    }
    for (int k = 0; k < WORLD_TOKENS; k++) far[k] = INT32_MAX;
    *keep = *w;
    break_rule(w, i, zeros, far, nothing);
    unsigned needs = nn_batch_for(w->m->tape, rules[i].bit); /* of this model */
    int      code = rules[i].code ? rules[i].code : rules[i].bit && !(needs & ~can) ? ERR_ARG : ERR_UNSUPPORTED;
    for (int k = 0; k < 2; k++) {
        err e = { 0 };
        int rc = k ? w->x->backend->begin(w->x, &w->batch, &e) : w->x->backend->submit(w->x, &w->batch, &ticket, &e);
        FACT(w->s, rc == code && e.code == rc && strlen(e.msg) > 10, "%s: %d, \"%s\"", rules[i].what, rc, e.msg);
    }
    *w = *keep;
    free(keep);
}

/* More rows of logits than there is room for. */
static void try_logits(suite *s, const nn_model *m, const nn_exec_options *options) {
    nn_exec_options o = *options;
    world          *w = malloc(sizeof *w);
    nn_ticket       ticket;
    err             e = { 0 };
    o.limits.max_logits = 1;
    if (w && world_open(w, s, m, &o)) {
        world_begin(w);
        w->until[2] = w->until[2] < 2 ? 2 : w->until[2];
        world_add(w, 2, 2);
        world_end(w);
        w->batch.n_hidden = 0;
        int rc = w->x->backend->submit(w->x, &w->batch, &ticket, &e);
        FACT(s, rc == ERR_LIMIT && e.msg[0], "too many rows of logits: %d, \"%s\"", rc, e.msg);
        w->batch.n_hidden = 1;
        FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "one row of logits: %s", e.msg);
        world_close(w);
    }
    free(w);
}

void suite_batches(suite *s) {
    int next = 0;
    for (int i = 0; i < 4 * s->rounds || next < RULES; i++) {
        nn_model       *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = i % GEN_MIXERS, .ffn = GEN_ANY });
        nn_exec_options o = world_options(s);
        world          *w = malloc(sizeof *w);
        trace           t;
        if (!w) exit(1);
        if (world_open(w, s, m, &o)) {
            trace_init(&t, m);
            world_run(w, &t, "good batches");
            world_place(w);
            while (world_random_batch(w, false)) {
                err e = { 0 };
                for (int k = 0; k < 5; k++) try_rule(w, next++ % RULES);
                if (!FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "the good batch: %s", e.msg)) break;
                trace_take(&t, w, "after bad batches");
            }
            trace_deinit(&t);
            world_close(w);
        }
        try_logits(s, m, &o);
        free(w);
        gen_free(m);
    }
}
