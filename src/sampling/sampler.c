/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: history, the chain in its order, mirostat, the draw. */
#include "sampling/sampler.h"

#include "base/num.h"
#include "params/candidates.h"
#include "params/rng.h"
#include "sampling/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct sampling_work {
    size_t   n_vocab;
    cand    *cands, *scratch; /* n_vocab each */
    float   *raw;             /* the row before anything changed it, for log-probabilities */
    int32_t *counts;          /* n_vocab, all zero between calls */
};

int sampling_work_open(sampling_work **out, size_t n_vocab, err *e) {
    sampling_work *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w) {
        w->n_vocab = n_vocab;
        w->cands = calloc(n_vocab, sizeof *w->cands);
        w->scratch = calloc(n_vocab, sizeof *w->scratch);
        w->raw = calloc(n_vocab, sizeof *w->raw);
        w->counts = calloc(n_vocab, sizeof *w->counts);
    }
    if (!w || !w->cands || !w->scratch || !w->raw || !w->counts) {
        sampling_work_free(w);
        return err_set_nomem(e);
    }
    *out = w;
    return 0;
}

void sampling_work_free(sampling_work *w) {
    if (!w) return;
    free(w->cands);
    free(w->scratch);
    free(w->raw);
    free(w->counts);
    free(w);
}

static void *copy_array(const void *src, size_t count, size_t bytes) {
    void *p = calloc(count ? count : 1, bytes);
    if (p && count) memcpy(p, src, count * bytes);
    return p;
}

int sampler_open(sampler **out, const sampling_params *p, size_t max_history, err *e) {
    size_t kept, cap;
    *out = NULL;
    int rc = sampling_params_check(p, e);
    if (rc < 0) return rc;
    if (max_history == 0) max_history = 1;
    if (!num_add_size(max_history, SAMPLER_MAX_ROLLBACK, &kept) || !num_mul_size(kept, 2, &cap))
        return err_set_nomem(e);
    sampler *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    s->p = *p;
    s->max_history = max_history;
    s->bias = copy_array(p->bias, p->n_bias, sizeof *s->bias);
    s->breakers = copy_array(p->dry_breakers, p->n_dry_breakers, sizeof *s->breakers);
    s->cap_history = cap;
    s->history = calloc(cap, sizeof *s->history);
    s->z = calloc(max_history, sizeof *s->z);
    s->mu = 2.0 * (double)p->mirostat_tau;
    if (!s->bias || !s->breakers || !s->history || !s->z) {
        sampler_free(s);
        return err_set_nomem(e);
    }
    s->p.bias = s->bias;
    s->p.dry_breakers = s->breakers;
    *out = s;
    return 0;
}

void sampler_free(sampler *s) {
    if (!s) return;
    free(s->bias);
    free(s->breakers);
    free(s->history);
    free(s->z);
    free(s);
}

void sampler_accept(sampler *s, int32_t token) {
    if (s->n_history == s->cap_history) {
        size_t kept = s->max_history + SAMPLER_MAX_ROLLBACK;
        memmove(s->history, s->history + s->n_history - kept, kept * sizeof *s->history);
        s->n_history = kept;
    }
    s->history[s->n_history++] = token;
    s->mu_before[s->n_accepted++ % SAMPLER_MAX_ROLLBACK] = s->mu;
    if (s->n_undo < SAMPLER_MAX_ROLLBACK) s->n_undo++;
}

void sampler_accept_pick(sampler *s, const sampling_result *picked) {
    sampler_accept(s, picked->token);
    s->mu += picked->mu_step;
}

bool sampler_rollback(sampler *s, size_t n) {
    if (n > s->n_undo) return false;
    if (n == 0) return true;
    s->n_history -= n;
    s->n_accepted -= n;
    s->n_undo -= n;
    s->mu = s->mu_before[s->n_accepted % SAMPLER_MAX_ROLLBACK];
    return true;
}

size_t sampler_recent(const sampler *s, int last_n, const int32_t **out) {
    size_t n = s->n_history < s->max_history ? s->n_history : s->max_history;
    if (last_n >= 0 && (size_t)last_n < n) n = (size_t)last_n;
    *out = s->history + s->n_history - n;
    return n;
}

const sampling_params *sampler_params(const sampler *s) { return &s->p; }

size_t sampler_counts(const sampler *s, sampling_work *w, sampling_count *out) {
    const int32_t *tokens;
    size_t         n = sampling_penalizes(&s->p) ? sampler_recent(s, s->p.repeat_last_n, &tokens) : 0, distinct = 0;
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] >= 0 && (size_t)tokens[i] < w->n_vocab) w->counts[tokens[i]]++;
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= w->n_vocab || w->counts[tokens[i]] == 0) continue;
        out[distinct++] = (sampling_count){ tokens[i], w->counts[tokens[i]] };
        w->counts[tokens[i]] = 0;
    }
    return distinct;
}

static void run_row_stage(const sampler *s, sampling_work *w, float *logits, sampling_stage stage) {
    const sampling_params *p = &s->p;
    const int32_t         *tokens;
    if (stage == SAMPLING_PENALTIES) {
        if (!sampling_penalizes(p)) return;
        size_t n = sampler_recent(s, p->repeat_last_n, &tokens);
        stage_penalties(logits, w->n_vocab, tokens, n, p->repeat_penalty, p->frequency_penalty, p->presence_penalty,
                        w->counts);
    } else {
        if (p->dry_multiplier == 0.0f) return;
        size_t n = sampler_recent(s, p->dry_last_n, &tokens);
        stage_dry(logits, w->n_vocab, tokens, n, p->dry_multiplier, p->dry_base, p->dry_allowed_length, p->dry_breakers,
                  p->n_dry_breakers, s->z, w->counts);
    }
}

static void run_set_stage(const sampler *s, sampling_work *w, cand_set *set, sampling_stage stage, uint64_t position) {
    const sampling_params *p = &s->p;
    switch (stage) {
    case SAMPLING_TOP_N_SIGMA: stage_top_n_sigma(set, p->top_n_sigma); break;
    case SAMPLING_TOP_K: stage_top_k(set, p->top_k); break;
    case SAMPLING_TYPICAL: stage_typical(set, p->typical_p, w->scratch); break;
    case SAMPLING_TOP_P: stage_top_p(set, p->top_p); break;
    case SAMPLING_MIN_P: stage_min_p(set, p->min_p); break;
    case SAMPLING_XTC:
        stage_xtc(set, p->xtc_probability, p->xtc_threshold, rng_uniform(p->seed, position, SAMPLING_DRAW_XTC));
        break;
    case SAMPLING_TEMPERATURE: stage_temperature(set, p->temperature, p->dynatemp_range, p->dynatemp_exponent); break;
    default: break;
    }
}

/*
 * Mirostat (Basu et al., 2020) keeps the surprise of the text near tau bits. Version 1 estimates the exponent of the
 * distribution's tail from the 100 most likely tokens and turns it into a top_k; version 2 cuts by surprise directly.
 */
static size_t mirostat(const sampler *s, cand_set *set, double uniform, double *mu_step) {
    const sampling_params *p = &s->p;
    stage_temperature(set, p->temperature, 0, 1);
    if (set->count == 1) return 0;
    if (p->mirostat == 1) {
        size_t m = set->count < 100 ? set->count : 100;
        double above = 0, below = 0;
        cand_sort(set, m);
        cand_softmax(set);
        for (size_t i = 0; i + 1 < m; i++) {
            double t = log((double)(i + 2) / (double)(i + 1));
            above += t * log(cand_prob(set, i) / cand_prob(set, i + 1));
            below += t * t;
        }
        double exponent = above / below, epsilon = exponent - 1;
        double k = pow(epsilon * exp2(s->mu) / (1 - pow((double)set->count, -epsilon)), 1 / exponent);
        stage_top_k(set, isfinite(k) && k >= 1 ? (k < 1e9 ? (int)k : 0) : 1);
    } else {
        cand_sort(set, set->count < 64 ? set->count : 64);
        cand_softmax(set);
        size_t keep = 1;
        while (keep < set->count) {
            if (keep >= set->sorted) cand_sort(set, set->sorted * 4);
            if (-log2(cand_prob(set, keep)) > s->mu) break;
            keep++;
        }
        cand_keep(set, keep);
    }
    size_t picked = cand_draw(set, uniform);
    double surprise = -log2(cand_prob(set, picked));
    *mu_step = -((double)p->mirostat_eta * (surprise - (double)p->mirostat_tau));
    return picked;
}

/* Logarithm of the sum of exp over the row, for probabilities of the raw distribution; fills r->top. */
static double raw_logprobs(sampling_work *w, const sampling_request *r) {
    cand_set set = { .c = w->cands };
    cand_fill(&set, r->logits, w->n_vocab);
    if (set.count == 0) return 0;
    cand_softmax(&set);
    double log_sum = set.max + log(set.sum);
    cand_sort(&set, (size_t)(r->n_top > 0 ? r->n_top : 0));
    for (int i = 0; i < r->n_top; i++) {
        bool there = (size_t)i < set.count;
        r->top[i].token = there ? set.c[i].id : -1;
        r->top[i].logprob = there ? (float)((double)set.c[i].logit - log_sum) : -INFINITY;
    }
    return log_sum;
}

static void apply_mask(float *logits, size_t n_vocab, const uint32_t *mask) {
    for (size_t base = 0; base < n_vocab; base += 32) {
        uint32_t bits = mask[base / 32];
        size_t   end = base + 32 < n_vocab ? 32 : n_vocab - base;
        if (bits == UINT32_MAX) continue;
        for (size_t i = 0; i < end; i++) {
            if (!(bits >> i & 1)) logits[base + i] = -INFINITY;
        }
    }
}

/* Tokens from `from` on count together; where they win, the others are impossible. */
static void weigh_together(float *logits, size_t n_vocab, size_t from) {
    double alone = -INFINITY, most = -INFINITY, sum = 0;
    if (from >= n_vocab) return;
    for (size_t i = 0; i < n_vocab; i++) {
        double *at = i < from ? &alone : &most, x = (double)fminf(logits[i], SAMPLING_LARGEST);
        if (logits[i] > -INFINITY && x > *at) *at = x; /* not where it is NaN */
    }
    for (size_t i = from; i < n_vocab && most > -INFINITY; i++) {
        if (logits[i] > -INFINITY) sum += (double)expf((float)((double)fminf(logits[i], SAMPLING_LARGEST) - most));
    }
    if (!(sum > 0) || !(most + log(sum) > alone)) return;
    for (size_t i = 0; i < from; i++) logits[i] = -INFINITY;
}

int sampler_pick(const sampler *s, sampling_work *w, const sampling_request *r, sampling_result *out, err *e) {
    const sampling_params *p = &s->p;
    float                 *logits = r->logits;
    double                 log_sum = 0;
    cand_set               set = { .c = w->cands };
    *out = (sampling_result){ .token = -1 };
    bool logprobs = r->want_logprob || r->n_top > 0;
    if (logprobs) {
        log_sum = raw_logprobs(w, r);
        memcpy(w->raw, logits, w->n_vocab * sizeof *w->raw);
    }
    if (r->mask) apply_mask(logits, w->n_vocab, r->mask);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token >= 0 && (size_t)p->bias[i].token < w->n_vocab) logits[p->bias[i].token] += p->bias[i].bias;
    }
    if (p->together_from > 0) weigh_together(logits, w->n_vocab, (size_t)p->together_from);
    /* Stages over the row come before stages over the set, whatever the order says: a set has no place for tokens that
     * a penalty would bring back. */
    for (int i = 0; i < p->n_order; i++) {
        if (p->order[i] == SAMPLING_PENALTIES || p->order[i] == SAMPLING_DRY) run_row_stage(s, w, logits, p->order[i]);
    }
    if (p->temperature <= 0 && p->dynatemp_range <= 0) {
        /* greedy: no filter can remove the most likely token but xtc, which greedy ignores */
        out->token = cand_first(logits, w->n_vocab);
    } else {
        cand_fill(&set, logits, w->n_vocab);
        double uniform = rng_uniform(p->seed, r->position, SAMPLING_DRAW_PICK);
        if (set.count == 0) {
            out->token = -1;
        } else if (p->mirostat) {
            out->token = set.c[mirostat(s, &set, uniform, &out->mu_step)].id;
        } else {
            for (int i = 0; i < p->n_order; i++) run_set_stage(s, w, &set, p->order[i], r->position);
            out->token = set.c[cand_draw(&set, uniform)].id;
        }
    }
    if (out->token < 0) return err_set(e, ERR_ARG, "no token is allowed at this place");
    if (logprobs) out->logprob = (float)((double)fminf(w->raw[out->token], SAMPLING_LARGEST) - log_sum);
    return 0;
}
