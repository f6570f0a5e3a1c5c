/* SPDX-License-Identifier: Apache-2.0 */
#include "sampling/stages.h"

#include "params/sampling.h"

#include <math.h>
#include <stdlib.h>

void stage_penalties(float *logits, size_t n_vocab, const int32_t *recent, size_t n, float repeat, float frequency,
                     float presence, int32_t *counts) {
    for (size_t i = 0; i < n; i++) {
        if (recent[i] >= 0 && (size_t)recent[i] < n_vocab) counts[recent[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        if (recent[i] < 0 || (size_t)recent[i] >= n_vocab) continue;
        int32_t *count = &counts[recent[i]];
        float   *logit = &logits[recent[i]];
        if (*count == 0) continue; /* done at its first occurrence */
        *logit = *logit > 0 ? *logit / repeat : *logit * repeat;
        *logit -= frequency * (float)*count + presence;
        *count = 0;
    }
}

static bool is_breaker(int32_t token, const int32_t *breakers, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (breakers[i] == token) return true;
    }
    return false;
}

/*
 * Reversed, the history is r[0..n) with r[0] the newest. The sequence that a token x at history place i would repeat is
 * the longest common extension of r and r shifted behind x: the Z function of r, computed in linear time.
 */
void stage_dry(float *logits, size_t n_vocab, const int32_t *history, size_t n, float multiplier, float base,
               int allowed_length, const int32_t *breakers, size_t n_breakers, int32_t *z, int32_t *best) {
    size_t usable = 0; /* newest tokens before the first breaker: a repeated sequence lies within them */
    if (n < 2) return;
    while (usable < n && !is_breaker(history[n - 1 - usable], breakers, n_breakers)) usable++;
    if (usable == 0) return;
#define REVERSED(i) history[n - 1 - (i)]
    z[0] = (int32_t)n;
    for (size_t i = 1, left = 0, right = 0; i < n; i++) {
        size_t k = i < right ? (size_t)z[i - left] : 0;
        if (i < right && k > right - i) k = right - i;
        while (i + k < n && REVERSED(k) == REVERSED(i + k)) k++;
        z[i] = (int32_t)k;
        if (i + k > right) {
            left = i;
            right = i + k;
        }
    }
    /* A match of length z[i] begins at i, so the token that followed it is REVERSED(i - 1). */
    for (size_t i = 1; i < n; i++) {
        int32_t token = REVERSED(i - 1);
        int32_t length = z[i] < (int32_t)usable ? z[i] : (int32_t)usable;
        if (length < allowed_length || length == 0 || token < 0 || (size_t)token >= n_vocab) continue;
        if (is_breaker(token, breakers, n_breakers)) continue;
        if (length > best[token]) best[token] = length;
    }
    for (size_t i = 1; i < n; i++) {
        int32_t token = REVERSED(i - 1);
        if (token < 0 || (size_t)token >= n_vocab || best[token] == 0) continue;
        float excess = (float)(best[token] - allowed_length);
        /* Beyond this the penalty decides anyway; the bound keeps it finite. */
        logits[token] -= multiplier * powf(base, fminf(excess, 80.0f / logf(fmaxf(base, 1.0001f))));
        best[token] = 0;
    }
#undef REVERSED
}

void stage_top_n_sigma(cand_set *s, float n) {
    double sum = 0, squares = 0, max = -INFINITY;
    if (n <= 0 || s->count < 2) return;
    for (size_t i = 0; i < s->count; i++) {
        sum += s->c[i].logit;
        max = s->c[i].logit > max ? s->c[i].logit : max;
    }
    double mean = sum / (double)s->count;
    for (size_t i = 0; i < s->count; i++) squares += (s->c[i].logit - mean) * (s->c[i].logit - mean);
    cand_keep_from(s, max - (double)n * sqrt(squares / (double)s->count));
}

void stage_typical(cand_set *s, float p, cand *scratch) {
    if (p >= 1.0f || s->count < 2) return;
    cand_softmax(s);
    double entropy = 0, log_sum = log(s->sum);
    for (size_t i = 0; i < s->count; i++) {
        double log_p = (double)s->c[i].logit - s->max - log_sum;
        entropy -= exp(log_p) * log_p;
    }
    /* Sorted by how far the surprise lies from the entropy: the same lazy set, with that distance negated as the key
     * and the candidate's index as the id. */
    cand_set by_distance = { .c = scratch, .count = s->count };
    for (size_t i = 0; i < s->count; i++) {
        double surprise = log_sum + s->max - (double)s->c[i].logit;
        scratch[i] = (cand){ (float)-fabs(surprise - entropy), (int32_t)i };
    }
    double mass = 0;
    size_t kept = 0;
    while (kept < s->count && mass < (double)p) {
        if (kept >= by_distance.sorted) cand_sort(&by_distance, by_distance.sorted ? by_distance.sorted * 4 : 64);
        mass += cand_prob(s, (size_t)scratch[kept].id);
        kept++;
    }
    for (size_t i = 0; i < kept; i++) scratch[i] = s->c[scratch[i].id];
    for (size_t i = 0; i < kept; i++) s->c[i] = scratch[i];
    s->count = kept;
    s->sorted = 0;
    s->has_sum = false;
}

void stage_xtc(cand_set *s, float probability, float threshold, double uniform) {
    if (probability <= 0 || threshold > 0.5f || s->count < 2 || uniform >= (double)probability) return;
    cand_softmax(s);
    size_t above = 0;
    /* At most 1 / threshold candidates can reach it, so few need to be sorted. */
    for (;; above++) {
        if (above >= s->count) break;
        if (above >= s->sorted) cand_sort(s, s->sorted ? s->sorted * 4 : 16);
        if (cand_prob(s, above) < (double)threshold) break;
    }
    if (above < 2) return;
    for (size_t i = above - 1; i < s->count; i++) s->c[i - (above - 1)] = s->c[i];
    s->count -= above - 1;
    s->sorted -= above - 1;
    s->has_sum = false;
}
