/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From one row of logits to one token.
 *
 * The chain is data: a list of stages run in order over a candidate set. Every stage is a plain function; nothing here
 * knows a model or a tokenizer. The default order is
 *
 *     penalties -> dry -> top_n_sigma -> top_k -> typical -> top_p -> min_p -> xtc -> temperature -> pick
 *
 * Masks and logit bias come before all stages. Random numbers come from a counter-based generator keyed by the
 * request's seed and the token's position, so a draw depends on nothing else. Ties are broken by the lower token id.
 * A row with a NaN is treated as if that token were impossible.
 */
#ifndef SAMPLING_SAMPLING_H
#define SAMPLING_SAMPLING_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sampling_stage {
    SAMPLING_PENALTIES,
    SAMPLING_DRY,
    SAMPLING_TOP_N_SIGMA,
    SAMPLING_TOP_K,
    SAMPLING_TYPICAL,
    SAMPLING_TOP_P,
    SAMPLING_MIN_P,
    SAMPLING_XTC,
    SAMPLING_TEMPERATURE,
    SAMPLING_STAGE_COUNT,
} sampling_stage;

typedef struct sampling_bias {
    int32_t token;
    float   bias; /* added to the logit; -INFINITY forbids */
} sampling_bias;

/* Values of sampling_params_default switch a stage off. Arrays are borrowed by sampler_open, which copies them. */
typedef struct sampling_params {
    float    temperature;                       /* 0: the most likely token, no randomness */
    float    dynatemp_range, dynatemp_exponent; /* temperature +- range by the entropy; range 0: off */
    int      top_k;                             /* <= 0: off */
    float    top_p, min_p, typical_p;           /* 1, 0, 1: off */
    float    top_n_sigma;                       /* <= 0: off */
    float    xtc_probability, xtc_threshold;    /* 0: off; a threshold above 0.5 never applies */
    int      repeat_last_n;                     /* 0: off, -1: the whole history */
    float    repeat_penalty, frequency_penalty, presence_penalty;
    float    dry_multiplier, dry_base; /* multiplier 0: off */
    int      dry_allowed_length, dry_last_n;
    int      mirostat; /* 0, 1, 2; replaces all truncating stages */
    float    mirostat_tau, mirostat_eta;
    uint64_t seed;

    const sampling_bias *bias;
    size_t               n_bias;
    const int32_t       *dry_breakers; /* tokens that a repeated sequence may not contain */
    size_t               n_dry_breakers;

    sampling_stage order[SAMPLING_STAGE_COUNT];
    int            n_order;
} sampling_params;

void sampling_params_default(sampling_params *p);

/* Refuses values that mean nothing (negative temperature, top_p beyond 1, an unknown stage), naming the field. */
int sampling_params_check(const sampling_params *p, err *e);

/* "top_k" <-> stage, for options. */
const char *sampling_stage_name(sampling_stage s);
bool        sampling_stage_parse(const char *name, sampling_stage *out);

typedef struct sampling_logprob {
    int32_t token;
    float   logprob; /* natural logarithm, of the raw distribution: before bias, penalties and filters */
} sampling_logprob;

/* Scratch memory for rows of n_vocab logits; one per thread that samples. */
typedef struct sampling_work sampling_work;
int                          sampling_work_open(sampling_work **out, size_t n_vocab, err *e);
void                         sampling_work_free(sampling_work *w);

/* What one sequence remembers: its history (seeded with the prompt) and mirostat's state. */
typedef struct sampler sampler;
int                    sampler_open(sampler **out, const sampling_params *p, size_t max_history, err *e);
void                   sampler_free(sampler *s);
/* Appends to the history. Never allocates; beyond max_history the oldest tokens are forgotten. */
void sampler_accept(sampler *s, int32_t token);
/* Takes back the last n accepted tokens (a rejected draft). */
void sampler_rollback(sampler *s, size_t n);

typedef struct sampling_request {
    float          *logits;   /* n_vocab of them; destroyed */
    const uint32_t *mask;     /* NULL, or one bit per token, lowest first; a 0 forbids */
    uint64_t        position; /* of the token to be picked: keys the random numbers */
    /* Ask for log-probabilities: of the picked token and of the n_top most likely ones. */
    bool              want_logprob;
    int               n_top;
    sampling_logprob *top; /* room for n_top */
} sampling_request;

typedef struct sampling_result {
    int32_t token;
    float   logprob; /* if asked for */
} sampling_result;

/* Picks a token; ERR_ARG when the row allows none. Does not call sampler_accept and never allocates. */
int sampler_pick(sampler *s, sampling_work *w, const sampling_request *r, sampling_result *out, err *e);

#endif
