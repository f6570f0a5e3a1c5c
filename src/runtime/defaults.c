/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling values and pooling: what the model recommends, under what the request chose. */
#include "formats/muted.h"
#include "runtime/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

static bool recommended(const model_file *m, sampling_param p, double *out) {
    const char *hf = sampling_param_name(p, SAMPLING_BY_HF, 0), *gguf = sampling_param_name(p, SAMPLING_BY_GGUF, 0);
    char        key[64];
    snprintf(key, sizeof key, "general.sampling.%s", gguf ? gguf : "");
    return (hf && json_number(json_get(model_file_generation_config(m), hf), out)) ||
           (gguf && meta_real(model_file_meta(m, key), out));
}

void defaults_sampling(sampling_params *p, const model_file *m) {
    sampling_params own;
    bool            sane = true;
    double          v;
    sampling_params_default(p);
    p->temperature = 0.8f;
    p->top_k = 40;
    p->top_p = 0.95f;
    own = *p;
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++) {
        if (!recommended(m, (sampling_param)i, &v)) continue;
        if (v >= sampling_param_fields[i].low && v <= sampling_param_fields[i].high)
            sampling_set_real(&own, (sampling_param)i, v);
        else
            sane = false;
    }
    if (sane) *p = own; /* a file's nonsense is not an error of the user */
}

/* --- what the model must not say --- */

int defaults_muted(runtime *r, err *e) {
    const int64_t n_vocab = r->model->dims->n_vocab;
    int64_t       id;
    size_t        n = 0;
    while (muted_at(r->file, n, &id)) n++;
    if (!(r->muted = arena_calloc(&r->mem, n + 1, sizeof *r->muted))) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) { /* a file's nonsense is not an error of the user */
        if (muted_at(r->file, i, &id) && id >= 0 && id < n_vocab)
            r->muted[r->n_muted++] = (sampling_bias){ (int32_t)id, -INFINITY };
    }
    return 0;
}

int defaults_mute(const runtime *r, sampling_params *p, arena *mem, err *e) {
    if (r->n_muted == 0) return 0;
    sampling_bias *all = arena_calloc(mem, p->n_bias + r->n_muted, sizeof *all);
    if (!all) return err_set_nomem(e);
    for (size_t i = 0; i < p->n_bias; i++) all[i] = p->bias[i];
    for (size_t i = 0; i < r->n_muted; i++) all[p->n_bias + i] = r->muted[i];
    p->bias = all;
    p->n_bias += r->n_muted;
    return 0;
}

/* --- pooling --- */

engine_pooling defaults_pooling(const runtime *r, runtime_pooling own) {
    switch (own) {
    case RUNTIME_POOL_MEAN: return ENGINE_POOL_MEAN;
    case RUNTIME_POOL_CLS: return ENGINE_POOL_CLS;
    case RUNTIME_POOL_LAST: return ENGINE_POOL_LAST;
    case RUNTIME_POOL_MAX: return ENGINE_POOL_MAX;
    case RUNTIME_POOL_DEFAULT: break;
    }
    return r->embed.pooling;
}

/* --- sampling --- */

void runtime_sampling(const runtime *r, sampling_params *out) { *out = r->wishes.sampling; }

static int random_seed(uint64_t *out, err *e) {
    return getrandom(out, sizeof *out, 0) == (ssize_t)sizeof *out ? 0 : err_set_errno(e, "no random seed");
}

#define BIT(id, member, kind, key, low, high, dflt, group, env, flag, value, help) RUNTIME_SET_##group,
const unsigned runtime_set_bits[SAMPLING_PARAM_COUNT] = { SAMPLING_TABLE(BIT) };

void defaults_overlay(sampling_params *out, const sampling_params *own, unsigned set) {
    if (set & RUNTIME_SET_TEMPERATURE) set |= RUNTIME_SET_DYNATEMP;
    set &= ~(unsigned)RUNTIME_SET_SEED; /* the caller's: without one there is a random one */
    for (int i = 0; i < SAMPLING_PARAM_COUNT; i++)
        if (set & runtime_set_bits[i]) sampling_copy(out, own, (sampling_param)i);
    if (set & RUNTIME_SET_ORDER) {
        for (int i = 0; i < SAMPLING_STAGE_COUNT; i++) out->order[i] = own->order[i];
        out->n_order = own->n_order;
    }
}

int defaults_merge(const wishes *w, const runtime_request *q, sampling_params *out, err *e) {
    const sampling_params *own = &q->sampling;
    int                    rc = 0;
    *out = w->sampling;
    defaults_overlay(out, own, q->sampling_set);
    if (q->sampling_set & RUNTIME_SET_DRY) {
        out->dry_breakers = own->dry_breakers;
        out->n_dry_breakers = own->n_dry_breakers;
    }
    if (q->sampling_set & RUNTIME_SET_SEED)
        out->seed = own->seed;
    else if (!(w->settings->sampling_set & RUNTIME_SET_SEED))
        rc = random_seed(&out->seed, e);
    out->bias = own->bias;
    out->n_bias = own->n_bias;
    return rc < 0 ? rc : sampling_params_check(out, e);
}
