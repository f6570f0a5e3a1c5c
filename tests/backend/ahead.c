/* SPDX-License-Identifier: Apache-2.0 */
/* A step that begins with guessed tokens, behind one that is under way, gives the bits of a step that was told these tokens;
 * and where no decision is close, a guess is what the definition picks. States nothing where executors do not go ahead. */
#include "backend/gen.h"
#include "backend/plain_sample.h"
#include "backend/world.h"

#include <stdlib.h>
#include <string.h>

typedef struct chain {
    world          *w;
    sampling_params params[WORLD_SEQS];
    sampling_row    rows[WORLD_SEQS]; /* by row of logits */
    sampling_result out[WORLD_SEQS];
    int32_t         at[WORLD_SEQS], from[WORLD_SEQS];
    float          *logits, *again; /* [WORLD_SEQS][n_vocab] */
    size_t          n_vocab;
} chain;

/* The next token of every sequence that has room for two more. */
static bool next_batch(world *w) {
    int room = w->o.limits.page_tokens * WORLD_PAGES < WORLD_LEN ? w->o.limits.page_tokens * WORLD_PAGES : WORLD_LEN;
    world_begin(w);
    for (int q = 0; q < w->n_seq; q++) {
        if (w->len[q] + 2 <= room) world_add(w, q, 1);
    }
    world_end(w);
    return w->batch.n_tok > 0;
}

static void ask(chain *c) {
    suite *s = c->w->s;
    for (int i = 0; i < c->w->batch.n_out; i++) {
        sampling_params *p = &c->params[i];
        sampling_params_default(p);
        p->temperature = suite_chance(s, 30) ? 0 : (float)suite_int(s, 5, 15) * 0.1f;
        p->top_k = suite_int(s, 1, c->n_vocab < 80 ? (int)c->n_vocab / 2 : 40); /* fewer than there are: ordered */
        p->top_p = suite_chance(s, 50) ? (float)suite_int(s, 50, 99) * 0.01f : 1;
        p->min_p = suite_chance(s, 20) ? (float)suite_int(s, 1, 20) * 0.01f : 0;
        p->seed = suite_u64(s);
        c->rows[i] = (sampling_row){ .params = p, .position = suite_u64(s) % 1000 };
        c->at[i] = i;
    }
}

static bool fetch(chain *c, int n, float *to) {
    err e = { 0 };
    return FACT(c->w->s, c->w->x->backend->fetch(c->w->x, NN_FETCH_LOGITS, 0, n, to, &e) == 0, "fetch: %s", e.msg);
}

/* The step, and the one behind it with what was guessed; `again`: the logits of the second. */
static bool run_ahead(chain *c) {
    world            *w = c->w;
    const nn_backend *b = w->x->backend;
    nn_ticket         first, second;
    int32_t           row_of[WORLD_SEQS];
    err               e = { 0 };
    int               n = w->batch.n_out, rc;
    w->batch.guess = c->rows;
    for (int r = 0; r < n; r++) row_of[w->out_rows[r]] = r;
    if (!FACT(w->s, b->submit(w->x, &w->batch, &first, &e) == 0, "a step: %s", e.msg)) return false;
    world_begin(w);
    for (int k = 0; k < n; k++) world_add(w, w->of[k], 1);
    for (int k = 0; k < n; k++) {
        c->from[k] = row_of[k];
        w->token[k] = -1; /* nobody looks */
    }
    world_end(w);
    w->batch.ahead = c->from;
    if (!FACT(w->s, b->submit(w->x, &w->batch, &second, &e) == 0, "a step ahead: %s", e.msg)) return false;
    rc = b->wait(w->x, first, &e);
    if (rc == 0) rc = b->sample(w->x, c->at, c->rows, n, c->out, &e);
    if (rc == 0) rc = b->wait(w->x, second, &e);
    return FACT(w->s, rc == 0, "waiting and picking: %s", e.msg) && fetch(c, n, c->again);
}

/* What was guessed, as the definition has it. */
static void check_guesses(chain *c, int n) {
    for (int r = 0; r < n; r++) {
        sampling_result want;
        double          margin;
        err             e = { 0 };
        int rc = plain_sample(c->logits + (size_t)r * c->n_vocab, c->n_vocab, &c->rows[r], 1, &want, &margin, &e);
        FACT(c->w->s, rc == 0 && (c->out[r].guess == want.token || margin < 1e-5), "token %d was guessed instead of %d",
             (int)c->out[r].guess, (int)want.token);
        FACT(c->w->s, c->out[r].token == SAMPLING_LEFT || c->out[r].token == want.token || margin < 1e-6,
             "token %d was picked instead of %d", (int)c->out[r].token, (int)want.token);
    }
}

static void check_step(chain *c) {
    world *w = c->w;
    err    e = { 0 };
    int    n = w->batch.n_out;
    size_t bytes = (size_t)n * c->n_vocab * sizeof *c->logits;
    ask(c);
    if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step: %s", e.msg) || !fetch(c, n, c->logits)) return;
    if (!run_ahead(c)) return;
    check_guesses(c, n);
    /* Once more with tokens that are known. */
    for (int k = 0; k < n; k++) w->token[k] = w->tokens[w->of[k]][w->pos[k]] = c->out[c->from[k]].guess;
    w->batch.ahead = NULL;
    if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step: %s", e.msg) || !fetch(c, n, c->logits)) return;
    FACT(w->s, memcmp(c->logits, c->again, bytes) == 0, "guessed tokens give other bits");
}

/* No step is under way that something could be guessed from. */
static void refuses(chain *c) {
    world    *w = c->w;
    nn_ticket ticket;
    err       e = { 0 };
    for (int k = 0; k < w->batch.n_tok; k++) c->from[k] = 0;
    w->batch.ahead = c->from;
    FACT(w->s, w->x->backend->submit(w->x, &w->batch, &ticket, &e) < 0 && e.msg[0], "a guess from nothing was taken");
    w->batch.ahead = NULL;
}

/* False: its executors do not go ahead. */
static bool check_model(suite *s, const nn_model *m) {
    nn_exec_options o = world_options(s);
    world          *w = malloc(sizeof *w);
    chain           c = { .w = w, .n_vocab = (size_t)m->dims->n_vocab };
    err             e = { 0 };
    bool            goes = false;
    c.logits = malloc(WORLD_SEQS * c.n_vocab * sizeof *c.logits);
    c.again = malloc(WORLD_SEQS * c.n_vocab * sizeof *c.again);
    if (!w || !c.logits || !c.again) exit(1);
    if (world_open(w, s, m, &o)) {
        w->all_logits = true;
        goes = w->x->ahead && !w->x->memory.slot_bytes && !w->x->groups.whole;
        if (goes) {
            while (world_random_batch(w, false) &&
                   FACT(s, nn_exec_step(w->x, &w->batch, &e) == 0, "a step: %s", e.msg)) {
            }
            for (int i = 0; i < (s->quick ? 3 : 12) && next_batch(w); i++) check_step(&c);
            if (next_batch(w)) refuses(&c);
        }
        world_close(w);
    }
    free(c.logits);
    free(c.again);
    free(w);
    return goes;
}

void suite_ahead(suite *s) {
    FACT(s, true, "executors need not go ahead");
    /* Models with fixed states are drawn, too. */
    for (int i = 0, n = 0; i < 40 && n < suite_models(s, 4) && s->backend->sample; i++) {
        nn_model *m = gen_model(s, (gen_want){ .type = GEN_ANY, .mixer = GEN_ANY, .ffn = GEN_ANY });
        n += check_model(s, m);
        gen_free(m);
    }
}
