/* SPDX-License-Identifier: Apache-2.0 */
#include "params/sampling.h"

#include "params/sampling_table.h"

#include <math.h>
#include <string.h>

void sampling_params_default(sampling_params *p) {
    *p = (sampling_params){ .n_order = SAMPLING_STAGE_COUNT };
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++)
        sampling_set_real(p, (sampling_param)i, sampling_param_fields[i].dflt);
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

/* Limits are rounded as the members were: 1e-6 as a float is less than 1e-6. */
static int check_ranges(const sampling_params *p, err *e) {
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++) {
        const sampling_field *f = &sampling_param_fields[i];
        double                v = sampling_get(p, (sampling_param)i);
        bool                  is_float = f->type == SAMPLING_IS_FLOAT;
        double low = is_float ? (double)(float)f->low : f->low, high = is_float ? (double)(float)f->high : f->high;
        if (f->type == SAMPLING_IS_UINT64) continue; /* any bits are a seed */
        if (!(v >= low && v <= high))
            return err_set(e, ERR_ARG, "%s: %g is not between %.10g and %.10g", f->key, v, f->low, f->high);
    }
    return 0;
}

int sampling_params_check(const sampling_params *p, err *e) {
    int rc = check_ranges(p, e);
    if (rc < 0) return rc;
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
    if (p->together_from > 0) return false;
    if (p->dry_multiplier != 0.0f && has_stage(p, SAMPLING_DRY)) return false;
    if (p->temperature <= 0 && p->dynatemp_range <= 0) return true; /* no other stage is looked at */
    if (p->mirostat) return false;
    if (p->top_n_sigma > 0 && has_stage(p, SAMPLING_TOP_N_SIGMA)) return false;
    if (p->typical_p < 1 && has_stage(p, SAMPLING_TYPICAL)) return false;
    if (p->xtc_probability > 0 && p->xtc_threshold <= 0.5f && has_stage(p, SAMPLING_XTC)) return false;
    return p->dynatemp_range <= 0 || !has_stage(p, SAMPLING_TEMPERATURE);
}
