/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model thinks of the prompt itself: the log-probability of each of its tokens behind those before it, as
 * programs that compare models ask for it. The logits of a position say how likely the next token was, so the first
 * one has none. Everything is summed in double precision, in the order of the vocabulary.
 */
#include "base/noalloc.h"
#include "engine/internal.h"

#include <math.h>

/* The n likeliest, the likeliest first; of equals the lower number. */
static void find_top(const float *row, int64_t n_vocab, double norm, sampling_logprob *top, int n) {
    int have = 0;
    for (int64_t i = 0; i < n_vocab && n > 0; i++) {
        float v = (float)((double)row[i] - norm);
        if (have == n && !(v > top[n - 1].logprob)) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && v > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (sampling_logprob){ .token = (int32_t)i, .logprob = v };
    }
}

static double log_sum(const float *row, int64_t n) {
    double most = (double)row[0], sum = 0;
    for (int64_t i = 1; i < n; i++) most = (double)row[i] > most ? (double)row[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp((double)row[i] - most);
    return sum > 0 ? most + log(sum) : most;
}

static void give(sequence *s, const engine *g, float logprob, int n_top) {
    engine_event ev = { .kind = ENGINE_PROMPT,
                        .choice = s->choice,
                        .token = s->tokens[s->n_scored++],
                        .logprob = logprob,
                        .top = g->top,
                        .n_top = n_top };
    int          depth = noalloc_pause();
    s->request->r.on_event(s->request->r.ctx, &ev);
    noalloc_resume(depth);
}

int score_rows(engine *g, const share *h) {
    sequence             *s = h->s;
    const engine_request *r = &s->request->r;
    int                   from = s->n_evaluated - h->n;
    if (s->n_scored == 0) give(s, g, 0, 0);
    for (int i = 0; i < h->n && from + i + 1 < s->n_prompt; i++) {
        if (from + i + 1 < s->n_scored) continue; /* it had to give way and is computed once more */
        int rc = g->backend->fetch(g->exec, NN_FETCH_LOGITS, h->out - h->n + 1 + i, 1, g->row, &s->error);
        if (rc < 0) return rc;
        double norm = log_sum(g->row, g->n_vocab);
        find_top(g->row, g->n_vocab, norm, g->top, r->n_top);
        give(s, g, (float)((double)g->row[s->tokens[s->n_scored]] - norm), r->n_top);
    }
    return 0;
}
