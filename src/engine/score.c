/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the model thinks of the prompt itself: the log-probability of each of its tokens behind those before it, as
 * programs that compare models ask for it. The logits of a position say how likely the next token was, so the first
 * one has none. Exponentials are those of single precision (1e-7), their sums double, in lanes whose order is fixed.
 */
#include "base/noalloc.h"
#include "engine/internal.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, WIDTH = 4 };

typedef float   floats __attribute__((vector_size(WIDTH * sizeof(float))));
typedef int32_t words __attribute__((vector_size(WIDTH * sizeof(int32_t))));
typedef double  doubles __attribute__((vector_size(WIDTH * sizeof(double))));

/* The n likeliest, the likeliest first; of equals the lower number. What is not above the last of them in the row itself
 * is not above it as a probability. */
static void find_top(const float *row, int64_t n_vocab, double norm, sampling_logprob *top, int n) {
    int have = 0;
    for (int64_t i = 0; i < n_vocab && n > 0; i++) {
        if (have == n && !(row[i] > row[top[n - 1].token])) continue;
        float v = (float)((double)row[i] - norm);
        if (have == n && !(v > top[n - 1].logprob)) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && v > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (sampling_logprob){ .token = (int32_t)i, .logprob = v };
    }
}

/* In lanes, so that a comparison need not wait for the one before it. */
static float largest(const float *row, int64_t n) {
    float   most[LANES], all = row[0];
    int64_t i = 0;
    for (int k = 0; k < LANES; k++) most[k] = row[0];
    for (; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) most[k] = row[i + k] > most[k] ? row[i + k] : most[k];
    }
    for (; i < n; i++) all = row[i] > all ? row[i] : all;
    for (int k = 0; k < LANES; k++) all = most[k] > all ? most[k] : all;
    return all;
}

/* exp(x) for x <= 0, below -87 that of -87: 2^n e^r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to a whole number and
 * leaves it in the lowest bits. */
static inline floats exp_below(floats x) {
    const floats low = { -87, -87, -87, -87 };
    words        in = x > low;
    x = (floats)(((words)x & in) | ((words)low & ~in));
    floats moved = x * 1.44269504f + 12582912.0f, n = moved - 12582912.0f;
    floats r = x - n * 0.693145752f - n * 1.42860677e-6f;
    floats p = r * 1.98412698e-4f + 1.38888889e-3f;
    p = ((p * r + 8.33333333e-3f) * r + 4.16666667e-2f) * r + 1.66666667e-1f;
    p = (p * r + 0.5f) * r * r + r + 1.0f;
    return p * (floats)(((words)moved + 127) << 23);
}

static inline void add_exp(doubles *sum, const float *row, float most) {
    floats v;
    memcpy(&v, row, sizeof v);
    *sum += __builtin_convertvector(exp_below(v - most), doubles);
}

static double log_sum(const float *row, int64_t n) {
    float   most = largest(row, n);
    doubles even = { 0 }, odd = { 0 };
    double  sum = 0;
    int64_t i = 0;
    for (; i + 2 * WIDTH <= n; i += 2 * WIDTH) {
        add_exp(&even, row + i, most);
        add_exp(&odd, row + i + WIDTH, most);
    }
    for (; i < n; i++) sum += exp((double)row[i] - (double)most);
    even += odd;
    for (int k = 0; k < WIDTH; k++) sum += even[k];
    return sum > 0 ? (double)most + log(sum) : (double)most;
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
