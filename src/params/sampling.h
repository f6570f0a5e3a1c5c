/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of sampling, and what picking a token means.
 *
 * This is what the sampler on the host (sampling/), the samplers of devices (backends) and the readers of settings have
 * to agree on: data, its check, and a definition. Whoever picks tokens follows the definition; the same row with the
 * same parameters, seed and position then gives the same token everywhere.
 *
 *
 * PICKING A TOKEN FROM A ROW
 *
 * x[0..n) is the row, float. "float" and "double" are IEEE 754 binary32 and binary64; every operation is rounded to
 * nearest by itself (no fused multiply-add). LARGEST is 1e30. A token whose x is NaN or -INFINITY is impossible: it is
 * never picked and never counted. In step 1 and from step 5 on a number above LARGEST counts as LARGEST.
 *
 *  1. Log-probabilities, if asked for, are those of the row as it came. Over the possible tokens:
 *         m = the largest x (double)          w[i] = expf((float)((double)x[i] - m))      (float)
 *         S = the sum of (double)w[i]         L = m + log(S)                              (double)
 *     and the log-probability of token i is (float)((double)x[i] - L). The most likely tokens are listed by descending
 *     x, then ascending id; where there are fewer than asked for, the rest is token -1 with -INFINITY.
 *  2. Mask. A token whose bit is 0 (bit i & 31 of word i >> 5) becomes impossible: x[i] = -INFINITY.
 *  3. Bias. For every entry in the order of the list: x[token] = x[token] + bias (float). Tokens outside of the row are
 *     skipped. What was masked stays impossible, also under an infinite bias.
 *     Then, if together_from is above 0: with m, w and S as in step 1, over the possible tokens from together_from on, where
 *     m + log(S) is greater than every possible x below together_from, these become impossible.
 *  4. Penalties, if SAMPLING_PENALTIES is in `order` and one of the three is on. For every distinct token of the row
 *     that stands count times among the last repeat_last_n tokens of the history (prompt and answer), in float:
 *         x = x > 0 ? x / repeat_penalty : x * repeat_penalty
 *         x = x - (frequency_penalty * (float)count + presence_penalty)
 *     DRY belongs here, too (before or after the penalties, as in `order`). Both precede the other stages wherever they
 *     stand, because a set that was cut has no place for a token that a penalty would bring back.
 *  5. If no token is possible, nothing can be picked: an error. If temperature and dynatemp_range are 0, the pick is
 *     the possible token with the largest x, among equals the one with the lowest id, and this is the end.
 *  6. The candidates are the possible tokens in ascending order of id, not "ordered". To order them means: by
 *     descending x, equal ones by ascending id, once; candidates that are ordered already are left as they are, also
 *     where a later division made two of them equal.
 *  7. Stages, in the order of `order`. Each leaves at least one candidate. m, w and S are as in step 1, over the
 *     candidates that are left and with the x they have by then.
 *       top_k        if 0 < top_k < the number of candidates: order; keep the first top_k.
 *       top_p        if top_p < 1 and there are at least two: order; keep the shortest beginning whose
 *                    (double)w[i] / S, added one after the other in double, reaches (double)top_p; all if none does.
 *       min_p        if min_p > 0 and there are at least two: keep x[i] with
 *                    (double)x[i] >= m + log((double)min_p), in the order they have.
 *       temperature  with t = temperature (float), in float: x = x / t; for t < 1e-8, where that may overflow,
 *                    x = (x - (float)m) / t instead. Then x = -LARGEST where it is less than that.
 *     The others are the host's (sampling_on_device), as is together_from: typical, xtc, top_n_sigma, temperature with
 *     dynatemp_range, and mirostat, which stands for all stages of this step (sampling/stages.h, sampling/sampler.c).
 *  8. The draw. u = rng_uniform(seed, position, SAMPLING_DRAW_PICK) (params/rng.h, double). The running sum of
 *     (double)w[i] over the candidates as they stand; the pick is the first whose sum, itself included, is greater than
 *     u * S, or the last one if none is.
 *
 * What may differ between two implementations: the last bit of expf and log, and the order in which sums are added.
 * Picks are therefore the same unless u * S lies so close to a border of the running sum, top_p so close to one of the
 * masses, or the limit of min_p so close to an x, that such a difference decides: closer than 1e-6 (of S, of 1, of the
 * limit). Log-probabilities may differ in their last bits. Everything else is the same, bit for bit.
 */
#ifndef PARAMS_SAMPLING_H
#define PARAMS_SAMPLING_H

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

enum { SAMPLING_DRAW_PICK = 0, SAMPLING_DRAW_XTC = 1 }; /* numbers of the draws at one position */

#define SAMPLING_LARGEST 1e30f          /* a large finite logit decides like infinity, and differences stay numbers */
#define SAMPLING_TINY_TEMPERATURE 1e-8f /* SAMPLING_LARGEST divided by less may be infinite */

typedef struct sampling_bias {
    int32_t token;
    float   bias; /* added to the logit; -INFINITY forbids */
} sampling_bias;

/* Values of sampling_params_default switch a stage off. Arrays are borrowed. */
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

    /* Tokens from this one on are one of many ways to say the same (moments of a sound): where all of them together are
     * likelier than each of the others, one of them it is. 0: there are none. */
    int32_t together_from;

    sampling_stage order[SAMPLING_STAGE_COUNT];
    int            n_order;
} sampling_params;

void sampling_params_default(sampling_params *p);

/* Refuses values that mean nothing (negative temperature, top_p beyond 1, an unknown stage), naming the field. */
int sampling_params_check(const sampling_params *p, err *e);

/* "top_k" <-> stage, for options. */
const char *sampling_stage_name(sampling_stage s);
bool        sampling_stage_parse(const char *name, sampling_stage *out);

/* Whether SAMPLING_PENALTIES does anything: whoever samples then needs the counts of the window. */
bool sampling_penalizes(const sampling_params *p);

/*
 * Whether a device can do all that these parameters switch on: bias, mask, penalties, top_k, top_p, min_p, temperature
 * and the draw, in any order. The rest is rare and would be a kernel each: false, and the host samples.
 */
bool sampling_on_device(const sampling_params *p);

/* --- what a sampler on a device is told about one row, and what it answers --- */

typedef struct sampling_count {
    int32_t token, count; /* count >= 1 */
} sampling_count;

typedef struct sampling_logprob {
    int32_t token;
    float   logprob; /* natural logarithm, of the raw distribution: before bias, penalties and filters */
} sampling_logprob;

/* All is borrowed until the answer is there. */
typedef struct sampling_row {
    const sampling_params *params;   /* sampling_on_device; seed and bias are in it */
    const uint32_t        *mask;     /* NULL: nothing is masked */
    const sampling_count  *counts;   /* of the penalties' window, each token once, in any order */
    size_t                 n_counts; /* 0 where nothing is penalized */
    uint64_t               position; /* of the token to be picked: keys the random numbers */
    bool                   want_logprob;
    int                    n_top;
    sampling_logprob      *top; /* room for n_top */
} sampling_row;

enum { SAMPLING_LEFT = -2 }; /* a device leaves this row to the host */

typedef struct sampling_result {
    int32_t token;   /* -1: none is allowed */
    float   logprob; /* if asked for */
    double  mu_step; /* what mirostat's mu gains when the pick is accepted; 0 without mirostat and on devices */
    int32_t guess;   /* of devices that go ahead (nn/backend.h): what was guessed */
} sampling_result;

#endif
