/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/world.h"

#include "kernels/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { QUICK_LEN = 12 };

nn_exec_options world_options(suite *s) {
    static const int sizes[] = { 16, 32, 64 };
    return (nn_exec_options){ .limits = { .max_tokens = WORLD_TOKENS,
                                          .max_seqs = WORLD_SEQS,
                                          .max_outputs = WORLD_TOKENS,
                                          .page_tokens = sizes[suite_int(s, 0, 2)],
                                          .max_pages = WORLD_PAGES,
                                          .n_pages = 2 * WORLD_SEQS * WORLD_PAGES,
                                          .n_slots = WORLD_SLOTS },
                              .n_threads = suite_chance(s, 70) ? 1 : 2,
                              .steady = true,
                              .cpu = cpu_detect() };
}

/* [0, n) in another order. */
static void shuffle(suite *s, int32_t *v, int n) {
    for (int i = 0; i < n; i++) v[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int     k = suite_int(s, 0, i);
        int32_t keep = v[i];
        v[i] = v[k];
        v[k] = keep;
    }
}

void world_place(world *w) {
    int32_t order[2 * WORLD_SEQS * WORLD_PAGES];
    for (int g = 0; g < NN_MAX_GROUPS; g++) {
        shuffle(w->s, order, 2 * WORLD_SEQS * WORLD_PAGES);
        memcpy(w->pages[g], order, sizeof w->pages[g]);
    }
    shuffle(w->s, order, WORLD_SLOTS);
    memcpy(w->slots, order, sizeof w->slots);
    memset(w->len, 0, sizeof w->len);
}

bool world_open(world *w, suite *s, const nn_model *m, const nn_exec_options *o) {
    err e;
    *w = (world){ .s = s, .m = m, .o = *o, .n_seq = WORLD_SEQS };
    int most = o->limits.page_tokens * WORLD_PAGES < WORLD_LEN ? o->limits.page_tokens * WORLD_PAGES : WORLD_LEN;
    if (s->quick) most = QUICK_LEN;
    for (int q = 0; q < WORLD_SEQS; q++) {
        w->until[q] = suite_int(s, 1, most);
        for (int i = 0; i < WORLD_LEN; i++) w->tokens[q][i] = suite_int(s, 0, m->dims->n_vocab - 1);
    }
    w->until[1] = w->until[0];
    memcpy(w->tokens[1], w->tokens[0], sizeof w->tokens[0]);
    world_place(w);
    return FACT(s, s->backend->open(&w->x, &s->device, m, o, &e) == 0, "open: %s", e.msg);
}

void world_copy(world *w, const world *from, nn_exec *x) {
    *w = *from;
    w->x = x;
    world_place(w);
}

void world_close(world *w) {
    nn_exec_free(w->x);
    w->x = NULL;
}

void world_begin(world *w) {
    w->batch = (nn_batch){ .token = w->token,
                           .pos = w->pos,
                           .seq_of = w->seq_of,
                           .q_start = w->q_start,
                           .kv_len = w->kv_len,
                           .pages_stride = WORLD_PAGES,
                           .state_slot = w->state_slot,
                           .out_rows = w->out_rows };
    for (int g = 0; g < w->x->groups.n; g++) w->batch.pages[g] = w->tables[g];
}

void world_add(world *w, int seq, int n) {
    nn_batch *b = &w->batch;
    int       k = b->n_seq++, P = w->o.limits.page_tokens;
    w->of[k] = seq;
    w->q_start[k] = b->n_tok;
    for (int i = 0; i < n; i++, b->n_tok++) {
        w->token[b->n_tok] = w->tokens[seq][w->len[seq] + i];
        w->pos[b->n_tok] = w->len[seq] + i;
        w->seq_of[b->n_tok] = k;
    }
    w->q_start[k + 1] = b->n_tok;
    w->state_slot[k] = w->slots[seq];
    for (int g = 0; g < w->x->groups.n; g++) {
        int32_t *to = &w->tables[g][k * WORLD_PAGES];
        int      window = w->x->groups.window[g], first = w->len[seq];
        memcpy(to, w->pages[g][seq], WORLD_PAGES * sizeof *to);
        /* Behind a window no page is needed. */
        for (int p = 0; window && p < WORLD_PAGES && (p + 1) * P <= first - window + 1; p++) to[p] = -1;
    }
    w->len[seq] += n;
    w->kv_len[k] = w->len[seq];
}

void world_end(world *w) {
    nn_batch *b = &w->batch;
    shuffle(w->s, w->out_rows, b->n_tok);
    b->n_out = b->n_tok;
    b->n_hidden = w->all_logits ? 0 : suite_int(w->s, 0, b->n_out / 2);
}

void world_undo(world *w) {
    for (int k = 0; k < w->batch.n_seq; k++) w->len[w->of[k]] -= w->q_start[k + 1] - w->q_start[k];
}

bool world_random_batch(world *w, bool twins) {
    bool left = false, none = true;
    for (int q = 0; q < w->n_seq; q++) left = left || w->len[q] < w->until[q];
    if (!left) return false;
    while (none) {
        world_begin(w);
        for (int q = 0; q < w->n_seq; q++) {
            int rest = w->until[q] - w->len[q], most = (WORLD_TOKENS - w->batch.n_tok) / (twins && q == 0 ? 2 : 1);
            if (rest > most) rest = most;
            if ((twins && q == 1) || rest <= 0 || (suite_chance(w->s, 35) && !(twins && q == 0))) continue;
            int n = suite_chance(w->s, 40) ? 1 : suite_int(w->s, 1, rest);
            if (w->x->groups.whole) n = w->until[q];
            if (w->x->groups.whole && n > rest) continue; /* into a batch with more room */
            world_add(w, q, n);
            if (twins && q == 0) world_add(w, 1, n);
            none = false;
        }
    }
    world_end(w);
    return true;
}

/* --- traces --------------------------------------------------------------------------------------------------------
 */

static float *floats(int64_t n) {
    float *p = calloc((size_t)n + 1, sizeof *p);
    if (!p) exit(1);
    return p;
}

void trace_init(trace *t, const nn_model *m) {
    *t = (trace){ .n_vocab = m->tape->logits ? m->tape->bufs[m->tape->logits].width : 0,
                  .n_hidden = m->tape->bufs[m->tape->hidden].width };
    t->logits = floats(WORLD_SEQS * WORLD_LEN * t->n_vocab);
    t->hidden = floats(WORLD_SEQS * WORLD_LEN * t->n_hidden);
}

void trace_deinit(trace *t) {
    free(t->logits);
    free(t->hidden);
    *t = (trace){ 0 };
}

static void take(world *w, nn_fetch_what what, int64_t rows, int64_t width, float *known, bool *has, const char *how) {
    float *got = floats(rows * width);
    err    e = { 0 };
    /* In two calls, to look at both ends of a fetch. */
    int64_t half = rows / 2;
    int     rc = w->x->backend->fetch(w->x, what, 0, half, got, &e);
    if (rc == 0) rc = w->x->backend->fetch(w->x, what, half, rows - half, got + half * width, &e);
    FACT(w->s, rc == 0, "%s: fetch: %s", how, e.msg);
    for (int64_t r = 0; r < rows && rc == 0; r++) {
        int    row = w->out_rows[r], seq = w->of[w->seq_of[row]], pos = w->pos[row];
        size_t at = (size_t)seq * WORLD_LEN + (size_t)pos;
        float *to = known + at * (size_t)width;
        if (!has[at])
            memcpy(to, got + r * width, (size_t)width * sizeof *to);
        else
            FACT(w->s, memcmp(to, got + r * width, (size_t)width * sizeof *to) == 0,
                 "%s: %s of sequence %d at position %d are other bits (batch of %d tokens, %d sequences)", how,
                 what == NN_FETCH_LOGITS ? "logits" : "hidden state", seq, pos, w->batch.n_tok, w->batch.n_seq);
        has[at] = true;
    }
    free(got);
}

void trace_take(trace *t, world *w, const char *what) {
    take(w, NN_FETCH_LOGITS, w->batch.n_out - w->batch.n_hidden, t->n_vocab, t->logits, &t->has_logits[0][0], what);
    take(w, NN_FETCH_HIDDEN, w->batch.n_out, t->n_hidden, t->hidden, &t->has_hidden[0][0], what);
}

void world_run(world *w, trace *t, const char *what) {
    while (world_random_batch(w, false)) {
        err e = { 0 };
        if (!FACT(w->s, nn_exec_step(w->x, &w->batch, &e) == 0, "%s: step: %s", what, e.msg)) return;
        trace_take(t, w, what);
    }
}
