/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of sampling as a table: everyone who reads one (HTTP, Modelfiles, YAML, the environment, flags, the C
 * API, recommendations of model files) takes its name, range, default and help from here.
 *
 * A row is a macro, so that static tables of other rooms (keys of settings, options of commands) are made of it, too:
 *
 *     ROW(ID, member of sampling_params, kind, key, low, high, default, group, environment, flag, value's name, help)
 *
 *     kind   REAL or INT, as rooms above spell it behind a prefix of their own
 *     key    the name in settings, and in every protocol that has no other word (sampling_param_name)
 *     low, high  what the sampler can compute with; a protocol may promise less (sampling_range)
 *     group  RUNTIME_SET_*: what is chosen together when a request chooses one of them
 *     flag   of commands; NULL: none
 *
 * Ranges that may surprise: temperatures far above 2 are sound, the draw only becomes uniform; repeat_penalty divides,
 * so it is not 0; top_k -1 and 0 both mean all, as other programs write it; a seed is any integer but -1, which asks
 * for a new one each time.
 */
#ifndef PARAMS_SAMPLING_TABLE_H
#define PARAMS_SAMPLING_TABLE_H

#include "params/sampling.h"

/* clang-format off */
#define SAMPLING_ROW_TEMPERATURE(ROW) \
    ROW(TEMPERATURE, temperature, REAL, "temperature", 0, 1000, 1, TEMPERATURE, "HEARTH_TEMPERATURE", "temp", "T", \
        "randomness; 0: none; unset: as recommended, else 0.8")
#define SAMPLING_ROW_TOP_K(ROW) \
    ROW(TOP_K, top_k, INT, "top_k", -1, 2147483647, 0, TOP_K, "HEARTH_TOP_K", "top-k", "N", \
        "keep this many of the likeliest tokens; 0 or -1: all; unset: as recommended, else 40")
#define SAMPLING_ROW_TOP_P(ROW) \
    ROW(TOP_P, top_p, REAL, "top_p", 0, 1, 1, TOP_P, "HEARTH_TOP_P", "top-p", "P", \
        "keep the likeliest tokens up to this total probability; 1: off; unset: as recommended, else 0.95")
#define SAMPLING_ROW_MIN_P(ROW) \
    ROW(MIN_P, min_p, REAL, "min_p", 0, 1, 0, MIN_P, "HEARTH_MIN_P", "min-p", "P", \
        "drop tokens below this share of the likeliest one's probability; 0: off")
#define SAMPLING_ROW_TYPICAL_P(ROW) \
    ROW(TYPICAL_P, typical_p, REAL, "typical_p", 0, 1, 1, TYPICAL_P, "HEARTH_TYPICAL_P", NULL, NULL, \
        "keep typical tokens up to this total probability; 1: off")
#define SAMPLING_ROW_TOP_N_SIGMA(ROW) \
    ROW(TOP_N_SIGMA, top_n_sigma, REAL, "top_n_sigma", -1, 1e6, 0, TOP_N_SIGMA, "HEARTH_TOP_N_SIGMA", NULL, NULL, \
        "keep logits within this many standard deviations of the largest; 0: off")
#define SAMPLING_ROW_REPEAT_PENALTY(ROW) \
    ROW(REPEAT_PENALTY, repeat_penalty, REAL, "repeat_penalty", 1e-6, 1e6, 1, REPEAT_PENALTY, \
        "HEARTH_REPEAT_PENALTY", "repeat-penalty", "X", "make recent tokens less likely; 1: off")
#define SAMPLING_ROW_REPEAT_LAST_N(ROW) \
    ROW(REPEAT_LAST_N, repeat_last_n, INT, "repeat_last_n", -1, 1e9, 64, REPEAT_LAST_N, "HEARTH_REPEAT_LAST_N", NULL, \
        NULL, "how many tokens count as recent; 0: none, -1: all")
#define SAMPLING_ROW_PRESENCE_PENALTY(ROW) \
    ROW(PRESENCE_PENALTY, presence_penalty, REAL, "presence_penalty", -1e6, 1e6, 0, PRESENCE_PENALTY, \
        "HEARTH_PRESENCE_PENALTY", NULL, NULL, "subtracted from the logit of every recent token; 0: off")
#define SAMPLING_ROW_FREQUENCY_PENALTY(ROW) \
    ROW(FREQUENCY_PENALTY, frequency_penalty, REAL, "frequency_penalty", -1e6, 1e6, 0, FREQUENCY_PENALTY, \
        "HEARTH_FREQUENCY_PENALTY", NULL, NULL, \
        "subtracted from a recent token's logit once for each time it appeared; 0: off")
#define SAMPLING_ROW_MIROSTAT(ROW) \
    ROW(MIROSTAT, mirostat, INT, "mirostat", 0, 2, 0, MIROSTAT, "HEARTH_MIROSTAT", NULL, NULL, \
        "version of mirostat, 1 or 2; 0: off")
#define SAMPLING_ROW_MIROSTAT_TAU(ROW) \
    ROW(MIROSTAT_TAU, mirostat_tau, REAL, "mirostat_tau", 0, 1000, 5, MIROSTAT, "HEARTH_MIROSTAT_TAU", NULL, NULL, \
        "the surprise that mirostat aims at")
#define SAMPLING_ROW_MIROSTAT_ETA(ROW) \
    ROW(MIROSTAT_ETA, mirostat_eta, REAL, "mirostat_eta", 0, 1000, 0.1, MIROSTAT, "HEARTH_MIROSTAT_ETA", NULL, NULL, \
        "how fast mirostat approaches that surprise")
#define SAMPLING_ROW_SEED(ROW) \
    ROW(SEED, seed, INT, "seed", -0x1p63, 0x1p63, 0, SEED, "HEARTH_SEED", "seed", "N", \
        "same seed, same answer; -1 or unset: a new seed")
#define SAMPLING_ROW_XTC_PROBABILITY(ROW) \
    ROW(XTC_PROBABILITY, xtc_probability, REAL, "xtc_probability", 0, 1, 0, XTC, "HEARTH_XTC_PROBABILITY", NULL, NULL, \
        "how often the likeliest tokens are left out; 0: never")
#define SAMPLING_ROW_XTC_THRESHOLD(ROW) \
    ROW(XTC_THRESHOLD, xtc_threshold, REAL, "xtc_threshold", 0, 1, 0.1, XTC, "HEARTH_XTC_THRESHOLD", NULL, NULL, \
        "probability from which a token may be left out")
#define SAMPLING_ROW_DRY_MULTIPLIER(ROW) \
    ROW(DRY_MULTIPLIER, dry_multiplier, REAL, "dry_multiplier", 0, 1e6, 0, DRY, "HEARTH_DRY_MULTIPLIER", NULL, NULL, \
        "penalty for repeating a sequence of tokens (DRY); 0: off")
#define SAMPLING_ROW_DRY_BASE(ROW) \
    ROW(DRY_BASE, dry_base, REAL, "dry_base", 1, 1e6, 1.75, DRY, "HEARTH_DRY_BASE", NULL, NULL, \
        "how the penalty grows with the length of the sequence")
#define SAMPLING_ROW_DRY_ALLOWED_LENGTH(ROW) \
    ROW(DRY_ALLOWED_LENGTH, dry_allowed_length, INT, "dry_allowed_length", 1, 1e9, 2, DRY, \
        "HEARTH_DRY_ALLOWED_LENGTH", NULL, NULL, "repeated sequences up to this length cost nothing")
#define SAMPLING_ROW_DRY_LAST_N(ROW) \
    ROW(DRY_LAST_N, dry_last_n, INT, "dry_penalty_last_n", -1, 1e9, -1, DRY, "HEARTH_DRY_PENALTY_LAST_N", NULL, NULL, \
        "how many recent tokens are searched for repeated sequences; -1: all")
#define SAMPLING_ROW_DYNATEMP_RANGE(ROW) \
    ROW(DYNATEMP_RANGE, dynatemp_range, REAL, "dynatemp_range", 0, 1000, 0, DYNATEMP, "HEARTH_DYNATEMP_RANGE", NULL, \
        NULL, "how far the temperature moves with the entropy; 0: off")
#define SAMPLING_ROW_DYNATEMP_EXPONENT(ROW) \
    ROW(DYNATEMP_EXPONENT, dynatemp_exponent, REAL, "dynatemp_exponent", 0, 100, 1, DYNATEMP, \
        "HEARTH_DYNATEMP_EXPONENT", NULL, NULL, "exponent of the curve by which the temperature follows the entropy")

#define SAMPLING_TABLE(ROW) \
    SAMPLING_ROW_TEMPERATURE(ROW) SAMPLING_ROW_TOP_K(ROW) SAMPLING_ROW_TOP_P(ROW) SAMPLING_ROW_MIN_P(ROW) \
    SAMPLING_ROW_TYPICAL_P(ROW) SAMPLING_ROW_TOP_N_SIGMA(ROW) SAMPLING_ROW_REPEAT_PENALTY(ROW) \
    SAMPLING_ROW_REPEAT_LAST_N(ROW) SAMPLING_ROW_PRESENCE_PENALTY(ROW) SAMPLING_ROW_FREQUENCY_PENALTY(ROW) \
    SAMPLING_ROW_MIROSTAT(ROW) SAMPLING_ROW_MIROSTAT_TAU(ROW) SAMPLING_ROW_MIROSTAT_ETA(ROW) SAMPLING_ROW_SEED(ROW) \
    SAMPLING_ROW_XTC_PROBABILITY(ROW) SAMPLING_ROW_XTC_THRESHOLD(ROW) SAMPLING_ROW_DRY_MULTIPLIER(ROW) \
    SAMPLING_ROW_DRY_BASE(ROW) SAMPLING_ROW_DRY_ALLOWED_LENGTH(ROW) SAMPLING_ROW_DRY_LAST_N(ROW) \
    SAMPLING_ROW_DYNATEMP_RANGE(ROW) SAMPLING_ROW_DYNATEMP_EXPONENT(ROW)
/* clang-format on */

typedef enum sampling_param {
#define SAMPLING_TABLE_ID(id, member, kind, key, low, high, dflt, group, env, flag, value, help) SAMPLING_PARAM_##id,
    SAMPLING_TABLE(SAMPLING_TABLE_ID)
#undef SAMPLING_TABLE_ID
        SAMPLING_PARAM_COUNT
} sampling_param;

typedef enum sampling_type { SAMPLING_IS_FLOAT, SAMPLING_IS_INT, SAMPLING_IS_UINT64 } sampling_type;

typedef struct sampling_field {
    const char   *key;
    sampling_type type; /* of the member */
    size_t        offset;
    double        low, high, dflt;
    const char   *flag; /* NULL: none */
    const char   *help;
} sampling_field;

extern const sampling_field sampling_param_fields[SAMPLING_PARAM_COUNT];

/* Who names parameters. */
typedef enum sampling_protocol {
    SAMPLING_BY_OPENAI,    /* with what other local servers have added */
    SAMPLING_BY_ANTHROPIC, /* three, and nothing was added */
    SAMPLING_BY_OLLAMA,    /* options of a request */
    SAMPLING_BY_MODELFILE, /* PARAMETER lines */
    SAMPLING_BY_NATIVE,    /* /infill, in the words of llama.cpp's server */
    SAMPLING_BY_SETTINGS,  /* YAML below sampling, the environment, /set */
    SAMPLING_BY_FLAG,
    SAMPLING_BY_C_API,  /* members of hearth_request */
    SAMPLING_BY_HF,     /* generation_config.json */
    SAMPLING_BY_GGUF,   /* general.sampling.* */
    SAMPLING_PROTOCOLS, /* how many */
} sampling_protocol;

enum { SAMPLING_RANDOM_SEED = -1 }; /* as a seed: a new one each time */

/* The parameter's name in a protocol: i 0 the usual one, then others that are understood; NULL: no (further) name. */
const char *sampling_param_name(sampling_param p, sampling_protocol by, size_t i);
/* The parameter of that name; SAMPLING_PARAM_COUNT: there is none. */
sampling_param sampling_param_find(const char *name, sampling_protocol by);

typedef struct sampling_limits {
    double low, high; /* both allowed */
} sampling_limits;

/* What a protocol allows: the table's range, or less where its own reference says so. */
sampling_limits sampling_range(sampling_param p, sampling_protocol by);
/* The same for integers: high is at most INT64_MAX, which a double cannot hold. */
int64_t sampling_low_int(sampling_limits r);
int64_t sampling_high_int(sampling_limits r);

/* A member as a number, and back; the value is in the table's range. A seed may be negative: it is the number's bits. */
double sampling_get(const sampling_params *p, sampling_param which);
void   sampling_set_real(sampling_params *p, sampling_param which, double v);
void   sampling_set_int(sampling_params *p, sampling_param which, int64_t v);
void   sampling_copy(sampling_params *to, const sampling_params *from, sampling_param which);

#endif
