/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step that begins before the tokens of the one in front are picked (nn/backend.h), so that the device never waits for
 * the host.
 *
 * It is started when the device can guess every token of the step under way: all that runs generates, one token each, and
 * nothing but the likeliest tokens is needed to pick. The tokens are picked as always when the step in front has ended,
 * and they alone count: a row that went on from another token is dropped, and so are those of sequences that ended, were
 * cancelled, paused or had to give way. What a dropped row stored lies behind what its sequence knows as evaluated, in
 * pages that nobody else is given before the step has ended: positions are written again, or never read.
 *
 * A fixed state cannot be taken back, so models that have one do not go ahead.
 */
#include "base/noalloc.h"
#include "engine/internal.h"
#include "params/chain.h"

#include <stdlib.h>

enum {
    HELD_BACK = 32, /* steps without going ahead after a wrong guess */
    MOST_TOP_K = 64 /* so many tokens are on the list of any row */
};

int ahead_open(engine *g, err *e) {
    ahead *a = &g->ahead;
    if (!g->exec->ahead || !g->backend->sample || g->cache.slot_bytes || g->whole) return 0;
    const nn_limits *l = &g->exec->options.limits;
    a->shares = calloc((size_t)g->o.max_seqs, sizeof *a->shares);
    a->from = calloc((size_t)g->o.max_seqs, sizeof *a->from);
    a->guess = calloc((size_t)(l->max_logits ? l->max_logits : l->max_outputs), sizeof *a->guess);
    a->can = a->shares && a->from && a->guess;
    return a->can ? 0 : err_set_nomem(e);
}

void ahead_close(engine *g) {
    free(g->ahead.shares);
    free(g->ahead.from);
    free(g->ahead.guess);
}

/* Whether the likeliest tokens decide the pick, and the device knows how. */
static bool guessable(const sampling_params *p) {
    for (size_t i = 0; i < p->n_bias; i++) { /* one that lowers lets no other token into the list */
        if (!(p->bias[i].bias <= 0)) return false;
    }
    if (sampling_penalizes(p) || !sampling_on_device(p)) return false;
    if (chain_greedy(p)) return true;
    for (int i = 0; i < p->n_order; i++) {
        if (p->order[i] == SAMPLING_TOP_K && p->top_k > 0) return p->top_k <= MOST_TOP_K;
        if (p->order[i] == SAMPLING_TOP_P && p->top_p < 1.0f) return false;
        if (p->order[i] == SAMPLING_MIN_P && p->min_p > 0) return false;
    }
    return false;
}

/* Whether its next step may begin when this one is not over. */
static bool goes_on(const engine *g, const share *h) {
    const sequence       *s = h->s;
    const engine_request *r = &s->request->r;
    bool                  drafts = s->seat >= 0 && (g->spec.reads > 0 || g->n_shares < DEPTH_ROWS);
    if (!h->decodes || h->n != 1 || drafts || sequence_embeds(s) || s->held_back > 0) return false;
    if (s->guide.guide || r->no_answer || r->want_logprob || r->n_top > 0) return false;
    if (s->adapter || r->second || sequence_has_grids(s)) return false;
    return guessable(sampler_params(s->sampler));
}

static bool all_go_on(engine *g) {
    int running = 0;
    for (int i = 0; i < g->n_running; i++) running += !g->running[i]->paused;
    bool all = running == g->n_shares;
    for (int i = 0; i < g->n_shares; i++) {
        all = all && goes_on(g, &g->shares[i]);
        if (g->shares[i].s->held_back > 0) g->shares[i].s->held_back--;
    }
    return all;
}

/* Whatever is picked, it is the last one. */
static bool ends_surely(const sequence *s) {
    const engine_request *r = &s->request->r;
    return (r->max_tokens > 0 && sequence_generated(s) + 1 >= r->max_tokens) || s->n_tokens + 1 >= s->n_ctx;
}

static sampling_row guess_of(const sequence *s, int position) {
    const sampling_params *p = sampler_params(s->sampler);
    return (sampling_row){ .params = guessable(p) ? p : NULL, .position = (uint64_t)position };
}

void ahead_describe(engine *g, nn_batch *b) {
    ahead *a = &g->ahead;
    if (!a->can) return;
    memset(a->guess, 0, (size_t)(b->n_out - b->n_hidden) * sizeof *a->guess);
    for (int i = 0; i < g->n_shares; i++) {
        const share *h = &g->shares[i];
        if (h->decodes && h->n_draft == 0) a->guess[h->out] = guess_of(h->s, h->s->n_tokens);
    }
    b->guess = a->guess;
}

/* The token behind the one that is picked next. */
static bool add_row(engine *g, nn_batch *b, const share *h) {
    ahead    *a = &g->ahead;
    sequence *s = h->s;
    int       at = b->n_tok, position = s->n_tokens;
    if (!cache_grow(&g->cache, &s->tables, position + 1)) return false;
    a->shares[at] = (share){ .s = s, .from = position, .n = 1, .out = at, .decodes = true };
    a->from[at] = h->out;
    a->guess[at] = guess_of(s, position + 1);
    g->token[at] = 0;
    g->pos[at] = position;
    g->kv_len[at] = position + 1;
    g->seq_of[at] = g->q_start[at] = g->out_rows[at] = at;
    g->slot[at] = s->slot;
    for (int k = 0; k < g->cache.n_groups; k++)
        memcpy(g->pages[k] + (size_t)at * (size_t)g->cache.max_pages, s->tables.tables[k],
               (size_t)s->tables.n_pages * sizeof(int32_t));
    b->n_tok = b->n_seq = b->n_out = at + 1;
    g->q_start[at + 1] = at + 1;
    return true;
}

static bool make_batch(engine *g, nn_batch *b) {
    ahead *a = &g->ahead;
    bool   room = true;
    int    depth = noalloc_pause();
    schedule_begin(g, b);
    b->ahead = a->from;
    b->guess = a->guess;
    for (int i = 0; i < g->n_shares && room; i++) {
        if (!ends_surely(g->shares[i].s)) room = add_row(g, b, &g->shares[i]);
    }
    noalloc_resume(depth);
    return room && b->n_tok > 0;
}

void ahead_start(engine *g) {
    ahead   *a = &g->ahead;
    nn_batch b;
    a->followed = false;
    if (!a->can || !all_go_on(g) || !make_batch(g, &b)) return;
    a->followed = true;
    if (g->backend->submit(g->exec, &b, &a->step.ticket, NULL) < 0) return; /* the step in front says why */
    a->n = a->step.n_tok = b.n_tok;
    a->step.waited = false;
    a->under_way = true;
}

int ahead_wait(engine *g, ahead_step *step, err *e) {
    if (!step->waited) step->rc = g->backend->wait(g->exec, step->ticket, &step->error);
    step->waited = true;
    if (step->rc < 0 && e) *e = step->error;
    return step->rc;
}

void ahead_finish(engine *g) {
    if (g->ahead.under_way) (void)ahead_wait(g, &g->ahead.step, NULL);
}

void ahead_drop(engine *g, const sequence *s) {
    ahead *a = &g->ahead;
    for (int i = 0; i < a->n && a->under_way; i++) {
        if (a->shares[i].s == s) a->shares[i].s = NULL;
    }
}

void ahead_judge(engine *g, const share *h) {
    sequence *s = h->s;
    if (!g->ahead.under_way || h->failed || h->over) return;
    if (h->asked && !h->again && h->picked.guess == s->tokens[s->n_tokens - 1]) return;
    s->held_back = HELD_BACK;
    ahead_drop(g, s);
}

bool ahead_take(engine *g, ahead_step *step) {
    ahead *a = &g->ahead;
    int    n = 0;
    if (!a->under_way) return false;
    for (int i = 0; i < a->n; i++) {
        if (a->shares[i].s && !a->shares[i].s->paused) a->shares[n++] = a->shares[i];
    }
    if (n == 0) ahead_finish(g);
    a->under_way = false;
    if (n == 0) return false;
    share *mine = g->shares;
    g->shares = a->shares;
    a->shares = mine;
    g->n_shares = n;
    g->generating = true;
    *step = a->step;
    return true;
}
