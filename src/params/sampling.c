/* SPDX-License-Identifier: Apache-2.0 */
#include "params/sampling.h"

#include <math.h>
#include <string.h>

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

static bool has_stage(const sampling_params *p, sampling_stage s) {
    for (int i = 0; i < p->n_order; i++) {
        if (p->order[i] == s) return true;
    }
    return false;
}

bool sampling_penalizes(const sampling_params *p) {
    bool on = p->repeat_penalty != 1.0f || p->frequency_penalty != 0.0f || p->presence_penalty != 0.0f;
    return on && p->repeat_last_n != 0 && has_stage(p, SAMPLING_PENALTIES);
}

bool sampling_on_device(const sampling_params *p) {
    if (p->dry_multiplier != 0.0f && has_stage(p, SAMPLING_DRY)) return false;
    if (p->temperature <= 0 && p->dynatemp_range <= 0) return true; /* no other stage is looked at */
    if (p->mirostat) return false;
    if (p->top_n_sigma > 0 && has_stage(p, SAMPLING_TOP_N_SIGMA)) return false;
    if (p->typical_p < 1 && has_stage(p, SAMPLING_TYPICAL)) return false;
    if (p->xtc_probability > 0 && p->xtc_threshold <= 0.5f && has_stage(p, SAMPLING_XTC)) return false;
    return p->dynatemp_range <= 0 || !has_stage(p, SAMPLING_TEMPERATURE);
}
