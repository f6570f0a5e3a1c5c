/* SPDX-License-Identifier: Apache-2.0 */
#include "params/chain.h"

#include "params/rng.h"

#include <math.h>
#include <stdlib.h>

void stage_top_k(cand_set *s, int k) {
    if (k <= 0 || (size_t)k >= s->count) return;
    cand_sort(s, (size_t)k);
    cand_keep(s, (size_t)k);
}

/* Weights of a small set that nobody will sort any more, computed once: as cand_softmax has them. False: it is large. */
enum { SMALL = 128 };
static bool weigh(cand_set *s, double w[SMALL]) {
    double max = -INFINITY, sum = 0;
    if (s->count > SMALL) return false;
    for (size_t i = 0; i < s->count; i++) max = s->c[i].logit > max ? s->c[i].logit : max;
    for (size_t i = 0; i < s->count; i++) sum += w[i] = (double)expf((float)(s->c[i].logit - max));
    s->max = max;
    s->sum = sum;
    return s->has_sum = true;
}

void stage_top_p(cand_set *s, float p) {
    double mass = 0, w[SMALL];
    if (p >= 1.0f || s->count < 2) return;
    bool small = s->sorted == s->count && weigh(s, w);
    if (!small) cand_softmax(s);
    for (size_t i = 0; i < s->count; i++) {
        if (i >= s->sorted) cand_sort(s, s->sorted ? s->sorted * 4 : 64);
        mass += small ? w[i] / s->sum : cand_prob(s, i);
        if (mass >= (double)p) {
            cand_keep(s, i + 1);
            return;
        }
    }
}

void stage_min_p(cand_set *s, float p) {
    double max = -INFINITY;
    if (p <= 0 || s->count < 2) return;
    for (size_t i = 0; i < s->count; i++) max = s->c[i].logit > max ? s->c[i].logit : max;
    cand_keep_from(s, max + log((double)p));
}

void stage_temperature(cand_set *s, float temperature, float range, float exponent) {
    if (range > 0 && s->count > 1) {
        cand_softmax(s);
        double entropy = 0, log_sum = log(s->sum);
        for (size_t i = 0; i < s->count; i++) {
            double log_p = (double)s->c[i].logit - s->max - log_sum;
            entropy -= exp(log_p) * log_p;
        }
        double low = fmax(0.0, (double)temperature - (double)range), high = (double)temperature + (double)range;
        temperature = (float)(low + (high - low) * pow(entropy / log((double)s->count), (double)exponent));
    }
    if (temperature <= 0) { /* only the most likely remains */
        cand_sort(s, 1);
        cand_keep(s, 1);
        return;
    }
    float shift = 0;
    if (temperature < SAMPLING_TINY_TEMPERATURE) { /* differences may become -infinite, but the largest stays 0 */
        shift = -INFINITY;
        for (size_t i = 0; i < s->count; i++) shift = s->c[i].logit > shift ? s->c[i].logit : shift;
    }
    for (size_t i = 0; i < s->count; i++) {
        float v = (s->c[i].logit - shift) / temperature;
        s->c[i].logit = v < -SAMPLING_LARGEST ? -SAMPLING_LARGEST : v;
    }
    s->has_sum = false;
}

/* Inverse transform over the set in its present order, which is itself a function of the logits only. */
size_t cand_draw(cand_set *set, double uniform) {
    double w[SMALL];
    bool   small = weigh(set, w);
    if (!small) cand_softmax(set);
    double target = uniform * set->sum, seen = 0;
    for (size_t i = 0; i + 1 < set->count; i++) {
        seen += small ? w[i] : (double)expf((float)(set->c[i].logit - set->max));
        if (target < seen) return i;
    }
    return set->count - 1;
}

/* --- from the likeliest alone --------------------------------------------------------------------------------------- */

static bool in_list(const chain_list *l, int32_t token) {
    for (int i = 0; i < l->n; i++) {
        if (l->token[i] == token) return true;
    }
    return false;
}

static float lowered_by(const sampling_params *p, int32_t count) {
    return p->frequency_penalty * (float)count + p->presence_penalty;
}

/* Whether a token that the list lacks may rise. */
static bool others_rise(const chain_list *l, const sampling_row *r) {
    const sampling_params *p = r->params;
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].bias > 0 && !in_list(l, p->bias[i].token)) return true;
    }
    for (size_t i = 0; i < r->n_counts; i++) {
        bool rises = p->repeat_penalty < 1.0f || !(lowered_by(p, r->counts[i].count) >= 0);
        if (rises && !in_list(l, r->counts[i].token)) return true;
    }
    return false;
}

/* Bias and penalties of one token. */
static float changed(float x, int32_t token, const sampling_row *r) {
    const sampling_params *p = r->params;
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token == token) x += p->bias[i].bias;
    }
    for (size_t i = 0; i < r->n_counts; i++) {
        if (r->counts[i].token != token) continue;
        x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        x -= lowered_by(p, r->counts[i].count);
    }
    return x;
}

bool chain_fill(cand_set *s, const chain_list *l, const sampling_row *r) {
    bool changes = r && (r->params->n_bias > 0 || r->n_counts > 0);
    s->count = 0;
    s->has_sum = false;
    if (changes && !l->whole && others_rise(l, r)) return false;
    for (int i = 0; i < l->n; i++) {
        int32_t t = l->token[i];
        if (r && r->mask && !(r->mask[t >> 5] >> (t & 31) & 1)) continue;
        float v = changes ? changed(l->x[i], t, r) : l->x[i];
        /* Where some have changed, others may belong between those that equal the floor. */
        if (!(v > -INFINITY) || (changes && !l->whole && v <= l->floor)) continue;
        s->c[s->count++] = (cand){ v > SAMPLING_LARGEST ? SAMPLING_LARGEST : v, t };
    }
    s->sorted = changes ? 0 : s->count;
    return true;
}

static int by_id(const void *x, const void *y) {
    const cand *a = x, *b = y;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Candidates that nothing has ordered stand by their ids. */
static void unorder(cand_set *s) {
    qsort(s->c, s->count, sizeof *s->c, by_id);
    s->sorted = 0;
}

/* A set with something missing behind its floor, and the sum over everything. */
typedef struct part {
    cand_set *s;
    float     floor;
    double    sum;
    bool      whole; /* nothing is missing any more */
} part;

/* One that is as long as the set could be the number of all candidates: then nothing would be ordered. */
static bool part_top_k(part *t, int k) {
    if (k <= 0) return true;
    if ((size_t)k >= t->s->count) return false;
    stage_top_k(t->s, k);
    return t->whole = true;
}

static bool part_top_p(part *t, float p) {
    double mass = 0, most;
    if (p >= 1.0f) return true;
    if (t->sum <= 0 || t->s->count == 0) return false;
    cand_sort(t->s, t->s->count);
    most = (double)t->s->c[0].logit;
    for (size_t i = 0; i < t->s->count; i++) {
        mass += (double)expf((float)((double)t->s->c[i].logit - most)) / t->sum;
        if (mass < (double)p - CHAIN_CLOSE) continue;
        if (mass < (double)p + CHAIN_CLOSE) return false;
        cand_keep(t->s, i + 1);
        return t->whole = true;
    }
    return false;
}

static bool part_min_p(part *t, float p) {
    double most = -INFINITY;
    if (p <= 0) return true;
    for (size_t i = 0; i < t->s->count; i++) most = t->s->c[i].logit > most ? t->s->c[i].logit : most;
    if (!(most + log((double)p) > (double)t->floor)) return false;
    stage_min_p(t->s, p);
    unorder(t->s);
    return t->whole = true;
}

/* Division keeps the order, but may make two equal. */
static bool part_temperature(part *t, float temperature) {
    cand_set *s = t->s;
    size_t    count = 0;
    if (temperature < SAMPLING_TINY_TEMPERATURE) return false;
    t->floor /= temperature;
    t->sum = 0;
    stage_temperature(s, temperature, 0, 1);
    for (size_t i = 0; i < s->count; i++) {
        if (s->c[i].logit > t->floor) s->c[count++] = s->c[i];
    }
    s->count = count;
    s->sorted = 0;
    return true;
}

static bool run_part(part *t, const sampling_params *p, sampling_stage stage) {
    switch (stage) {
    case SAMPLING_TOP_K: return part_top_k(t, p->top_k);
    case SAMPLING_TOP_P: return part_top_p(t, p->top_p);
    case SAMPLING_MIN_P: return part_min_p(t, p->min_p);
    case SAMPLING_TEMPERATURE: return part_temperature(t, p->temperature);
    default: return true;
    }
}

static void run_whole(cand_set *s, const sampling_params *p, sampling_stage stage) {
    switch (stage) {
    case SAMPLING_TOP_K: stage_top_k(s, p->top_k); break;
    case SAMPLING_TOP_P: stage_top_p(s, p->top_p); break;
    case SAMPLING_MIN_P: stage_min_p(s, p->min_p); break;
    case SAMPLING_TEMPERATURE: stage_temperature(s, p->temperature, 0, 1); break;
    default: break;
    }
}

int32_t chain_pick(cand_set *s, const chain_list *l, const sampling_row *r, double sum) {
    const sampling_params *p = r->params;
    part                   t = { s, l->floor, sum, l->whole };
    if (s->count == 0) return l->whole ? -1 : SAMPLING_LEFT;
    if (chain_greedy(p)) {
        cand_sort(s, 1);
        return s->c[0].id;
    }
    if (t.whole) unorder(s);
    for (int i = 0; i < p->n_order; i++) {
        if (t.whole)
            run_whole(s, p, p->order[i]);
        else if (!run_part(&t, p, p->order[i]))
            return SAMPLING_LEFT;
    }
    if (!t.whole) return SAMPLING_LEFT;
    return s->c[cand_draw(s, rng_uniform(p->seed, r->position, SAMPLING_DRAW_PICK))].id;
}

bool chain_cuts(const sampling_params *p) {
    for (int i = 0; i < p->n_order; i++) {
        sampling_stage s = p->order[i];
        if ((s == SAMPLING_TOP_K && p->top_k > 0) || (s == SAMPLING_TOP_P && p->top_p < 1.0f) ||
            (s == SAMPLING_MIN_P && p->min_p > 0))
            return true;
    }
    return false;
}

float chain_temperature(const sampling_params *p) {
    for (int i = 0; i < p->n_order; i++) {
        if (p->order[i] == SAMPLING_TEMPERATURE) return p->temperature;
    }
    return 1.0f;
}

bool chain_greedy(const sampling_params *p) { return p->temperature <= 0 && p->dynatemp_range <= 0; }
