/* SPDX-License-Identifier: Apache-2.0 */
/* The sampler: history, the chain in its order, mirostat, the draw. */
#include "sampling/sampling.h"

#include "base/num.h"
#include "sampling/candidates.h"
#include "sampling/rng.h"
#include "sampling/stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DRAW_PICK = 0, DRAW_XTC = 1 }; /* numbers of the draws at one position */

struct sampling_work {
    size_t   n_vocab;
    cand    *cands, *scratch; /* n_vocab each */
    float   *raw;             /* the row before anything changed it, for log-probabilities */
    int32_t *counts;          /* n_vocab, all zero between calls */
};

struct sampler {
    sampling_params p;
    sampling_bias  *bias;
    int32_t        *breakers;
    int32_t *history; /* newest last; twice max_history, so that the window can slide without copying each time */
    int32_t *z;       /* max_history of scratch for dry */
    size_t   n_history, max_history;
    double   mirostat_mu;
};

void sampling_params_default(sampling_params *p) {
    *p = (sampling_params){ .temperature = 1.0f,
                            .dynatemp_exponent = 1.0f,
                            .top_p = 1.0f,
                            .typical_p = 1.0f,
                            .xtc_threshold = 0.1f,
                            .repeat_last_n = 64,
                            .repeat_penalty = 1.0f,
                            .dry_base = 1.75f,
                            .dry_allowed_length = 2,
                            .dry_last_n = -1,
                            .mirostat_tau = 5.0f,
                            .mirostat_eta = 0.1f,
                            .n_order = SAMPLING_STAGE_COUNT };
    for (int i = 0; i < SAMPLING_STAGE_COUNT; i++) p->order[i] = (sampling_stage)i;
}

static const char *const stage_names[SAMPLING_STAGE_COUNT] = { "penalties", "dry",     "top_n_sigma",
                                                               "top_k",     "typical", "top_p",
                                                               "min_p",     "xtc",     "temperature" };

const char *sampling_stage_name(sampling_stage s) { return (unsigned)s < SAMPLING_STAGE_COUNT ? stage_names[s] : "?"; }

bool sampling_stage_parse(const char *name, sampling_stage *out) {
    for (int i = 0; i < SAMPLING_STAGE_COUNT; i++) {
        if (strcmp(name, stage_names[i]) == 0) {
            *out = (sampling_stage)i;
            return true;
        }
    }
    return false;
}

int sampling_params_check(const sampling_params *p, err *e) {
    const struct {
        const char *name;
        double      value, low, high;
    } rows[] = {
        { "temperature", p->temperature, 0, 1000 },
        { "dynatemp_range", p->dynatemp_range, 0, 1000 },
        { "dynatemp_exponent", p->dynatemp_exponent, 0, 100 },
        { "top_p", p->top_p, 0, 1 },
        { "min_p", p->min_p, 0, 1 },
        { "typical_p", p->typical_p, 0, 1 },
        { "top_n_sigma", p->top_n_sigma, -1, 1e6 },
        { "xtc_probability", p->xtc_probability, 0, 1 },
        { "xtc_threshold", p->xtc_threshold, 0, 1 },
        { "repeat_last_n", p->repeat_last_n, -1, 1e9 },
        { "repeat_penalty", p->repeat_penalty, 1e-6, 1e6 },
        { "frequency_penalty", p->frequency_penalty, -1e6, 1e6 },
        { "presence_penalty", p->presence_penalty, -1e6, 1e6 },
        { "dry_multiplier", p->dry_multiplier, 0, 1e6 },
        { "dry_base", p->dry_base, 1, 1e6 },
        { "dry_allowed_length", p->dry_allowed_length, 1, 1e9 },
        { "dry_last_n", p->dry_last_n, -1, 1e9 },
        { "mirostat", p->mirostat, 0, 2 },
        { "mirostat_tau", p->mirostat_tau, 0, 1000 },
        { "mirostat_eta", p->mirostat_eta, 0, 1000 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!(rows[i].value >= rows[i].low && rows[i].value <= rows[i].high))
            return err_set(e, ERR_ARG, "%s: %g is not between %g and %g", rows[i].name, rows[i].value, rows[i].low,
                           rows[i].high);
    }
    if (p->n_order < 0 || p->n_order > SAMPLING_STAGE_COUNT)
        return err_set(e, ERR_ARG, "samplers: %d stages, at most %d are possible", p->n_order, SAMPLING_STAGE_COUNT);
    for (int i = 0; i < p->n_order; i++) {
        if ((unsigned)p->order[i] >= SAMPLING_STAGE_COUNT)
            return err_set(e, ERR_ARG, "samplers: no stage %d", (int)p->order[i]);
        for (int j = 0; j < i; j++) {
            if (p->order[i] == p->order[j])
                return err_set(e, ERR_ARG, "samplers: %s is named twice", sampling_stage_name(p->order[i]));
        }
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        if (isnan(p->bias[i].bias))
            return err_set(e, ERR_ARG, "logit_bias: token %d has no number", (int)p->bias[i].token);
    }
    return 0;
}

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
    size_t twice;
    *out = NULL;
    int rc = sampling_params_check(p, e);
    if (rc < 0) return rc;
    if (max_history == 0) max_history = 1;
    if (!num_mul_size(max_history, 2, &twice)) return err_set_nomem(e);
    sampler *s = calloc(1, sizeof *s);
    if (!s) return err_set_nomem(e);
    s->p = *p;
    s->max_history = max_history;
    s->bias = copy_array(p->bias, p->n_bias, sizeof *s->bias);
    s->breakers = copy_array(p->dry_breakers, p->n_dry_breakers, sizeof *s->breakers);
    s->history = calloc(twice, sizeof *s->history);
    s->z = calloc(max_history, sizeof *s->z);
    s->mirostat_mu = 2.0 * (double)p->mirostat_tau;
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
    if (s->n_history == 2 * s->max_history) {
        memmove(s->history, s->history + s->max_history, s->max_history * sizeof *s->history);
        s->n_history = s->max_history;
    }
    s->history[s->n_history++] = token;
}

void sampler_rollback(sampler *s, size_t n) { s->n_history -= n < s->n_history ? n : s->n_history; }

/* The newest tokens, at most last_n of them (-1: all that is kept), in order. */
static size_t recent(const sampler *s, int last_n, const int32_t **out) {
    size_t n = s->n_history < s->max_history ? s->n_history : s->max_history;
    if (last_n >= 0 && (size_t)last_n < n) n = (size_t)last_n;
    *out = s->history + s->n_history - n;
    return n;
}

static void run_row_stage(sampler *s, sampling_work *w, float *logits, sampling_stage stage) {
    const sampling_params *p = &s->p;
    const int32_t         *tokens;
    if (stage == SAMPLING_PENALTIES) {
        if (p->repeat_penalty == 1.0f && p->frequency_penalty == 0.0f && p->presence_penalty == 0.0f) return;
        size_t n = recent(s, p->repeat_last_n, &tokens);
        stage_penalties(logits, w->n_vocab, tokens, n, p->repeat_penalty, p->frequency_penalty, p->presence_penalty,
                        w->counts);
    } else {
        if (p->dry_multiplier == 0.0f) return;
        size_t n = recent(s, p->dry_last_n, &tokens);
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
        stage_xtc(set, p->xtc_probability, p->xtc_threshold, rng_uniform(p->seed, position, DRAW_XTC));
        break;
    case SAMPLING_TEMPERATURE: stage_temperature(set, p->temperature, p->dynatemp_range, p->dynatemp_exponent); break;
    default: break;
    }
}

/* Inverse transform over the set in its present order, which is itself a function of the logits only. */
static size_t draw(cand_set *set, double uniform) {
    cand_softmax(set);
    double target = uniform * set->sum, seen = 0;
    for (size_t i = 0; i + 1 < set->count; i++) {
        seen += (double)expf((float)(set->c[i].logit - set->max));
        if (target < seen) return i;
    }
    return set->count - 1;
}

/*
 * Mirostat (Basu et al., 2020) keeps the surprise of the text near tau bits. Version 1 estimates the exponent of the
 * distribution's tail from the 100 most likely tokens and turns it into a top_k; version 2 cuts by surprise directly.
 */
static size_t mirostat(sampler *s, cand_set *set, double uniform) {
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
        double k = pow(epsilon * exp2(s->mirostat_mu) / (1 - pow((double)set->count, -epsilon)), 1 / exponent);
        stage_top_k(set, isfinite(k) && k >= 1 ? (k < 1e9 ? (int)k : 0) : 1);
    } else {
        cand_sort(set, set->count < 64 ? set->count : 64);
        cand_softmax(set);
        size_t keep = 1;
        while (keep < set->count) {
            if (keep >= set->sorted) cand_sort(set, set->sorted * 4);
            if (-log2(cand_prob(set, keep)) > s->mirostat_mu) break;
            keep++;
        }
        cand_keep(set, keep);
    }
    size_t picked = draw(set, uniform);
    double surprise = -log2(cand_prob(set, picked));
    s->mirostat_mu -= (double)p->mirostat_eta * (surprise - (double)p->mirostat_tau);
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

int sampler_pick(sampler *s, sampling_work *w, const sampling_request *r, sampling_result *out, err *e) {
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
        double uniform = rng_uniform(p->seed, r->position, DRAW_PICK);
        if (set.count == 0) {
            out->token = -1;
        } else if (p->mirostat) {
            out->token = set.c[mirostat(s, &set, uniform)].id;
        } else {
            for (int i = 0; i < p->n_order; i++) run_set_stage(s, w, &set, p->order[i], r->position);
            out->token = set.c[draw(&set, uniform)].id;
        }
    }
    if (out->token < 0) return err_set(e, ERR_ARG, "no token is allowed at this place");
    if (logprobs) out->logprob = (float)((double)w->raw[out->token] - log_sum);
    return 0;
}
