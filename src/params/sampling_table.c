/* SPDX-License-Identifier: Apache-2.0 */
#include "params/sampling_table.h"

#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* The type is the member's own, so a row cannot be wrong about it. */
#define TYPE_OF(member)                                                                                                \
    _Generic(((sampling_params *)0)->member, float                                                                     \
             : SAMPLING_IS_FLOAT, int                                                                                  \
             : SAMPLING_IS_INT, uint64_t                                                                               \
             : SAMPLING_IS_UINT64)
#define FIELD(id, member, kind, key, low, high, dflt, group, env, flag, value, help)                                   \
    { key, TYPE_OF(member), offsetof(sampling_params, member), low, high, dflt, flag, help },

const sampling_field sampling_param_fields[SAMPLING_PARAM_COUNT] = { SAMPLING_TABLE(FIELD) };

/* --- names --- */

typedef struct word {
    sampling_protocol by;
    sampling_param    param;
    const char       *name; /* NULL: the key */
} word;

/* Protocols that have words of their own; the others have all of the table's keys. */
static const word words[] = {
    { SAMPLING_BY_ANTHROPIC, SAMPLING_PARAM_TEMPERATURE, NULL },
    { SAMPLING_BY_ANTHROPIC, SAMPLING_PARAM_TOP_P, NULL },
    { SAMPLING_BY_ANTHROPIC, SAMPLING_PARAM_TOP_K, NULL },

    { SAMPLING_BY_C_API, SAMPLING_PARAM_TEMPERATURE, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_TOP_P, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_MIN_P, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_TYPICAL_P, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_TOP_K, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_REPEAT_PENALTY, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_FREQUENCY_PENALTY, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_PRESENCE_PENALTY, NULL },
    { SAMPLING_BY_C_API, SAMPLING_PARAM_SEED, NULL },

    { SAMPLING_BY_HF, SAMPLING_PARAM_TEMPERATURE, NULL },
    { SAMPLING_BY_HF, SAMPLING_PARAM_TOP_K, NULL },
    { SAMPLING_BY_HF, SAMPLING_PARAM_TOP_P, NULL },
    { SAMPLING_BY_HF, SAMPLING_PARAM_MIN_P, NULL },
    { SAMPLING_BY_HF, SAMPLING_PARAM_REPEAT_PENALTY, "repetition_penalty" },

    { SAMPLING_BY_GGUF, SAMPLING_PARAM_TEMPERATURE, "temp" },
    { SAMPLING_BY_GGUF, SAMPLING_PARAM_TOP_K, NULL },
    { SAMPLING_BY_GGUF, SAMPLING_PARAM_TOP_P, NULL },
    { SAMPLING_BY_GGUF, SAMPLING_PARAM_MIN_P, NULL },
    { SAMPLING_BY_GGUF, SAMPLING_PARAM_REPEAT_PENALTY, "penalty_repeat" },
};

/* A second name for the same: what clients of servers built on transformers send. */
static const word aliases[] = {
    { SAMPLING_BY_OPENAI, SAMPLING_PARAM_REPEAT_PENALTY, "repetition_penalty" },
    { SAMPLING_BY_OLLAMA, SAMPLING_PARAM_REPEAT_PENALTY, "repetition_penalty" },
    { SAMPLING_BY_NATIVE, SAMPLING_PARAM_REPEAT_PENALTY, "repetition_penalty" },
};

static const word *find_word(const word *list, size_t n, sampling_param p, sampling_protocol by) {
    for (size_t i = 0; i < n; i++)
        if (list[i].by == by && list[i].param == p) return &list[i];
    return NULL;
}

const char *sampling_param_name(sampling_param p, sampling_protocol by, size_t i) {
    const sampling_field *f = &sampling_param_fields[p];
    const word           *w;
    if (i > 1) return NULL;
    if (i == 1) return (w = find_word(aliases, COUNT(aliases), p, by)) ? w->name : NULL;
    switch (by) {
    case SAMPLING_BY_FLAG: return f->flag;
    case SAMPLING_BY_ANTHROPIC:
    case SAMPLING_BY_C_API:
    case SAMPLING_BY_HF:
    case SAMPLING_BY_GGUF: w = find_word(words, COUNT(words), p, by); return !w ? NULL : w->name ? w->name : f->key;
    default: return f->key;
    }
}

sampling_param sampling_param_find(const char *name, sampling_protocol by) {
    for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) {
        const char *known;
        for (size_t i = 0; (known = sampling_param_name((sampling_param)p, by, i)); i++)
            if (strcmp(known, name) == 0) return (sampling_param)p;
    }
    return SAMPLING_PARAM_COUNT;
}

/* --- ranges --- */

/* What the reference of a protocol promises its clients, where it is less than the sampler can do: a client that tests
 * for the refusal gets it. */
static const struct {
    sampling_protocol by;
    sampling_param    param;
    sampling_limits   range;
} narrower[] = {
    { SAMPLING_BY_OPENAI, SAMPLING_PARAM_TEMPERATURE, { 0, 2 } },
    { SAMPLING_BY_OPENAI, SAMPLING_PARAM_FREQUENCY_PENALTY, { -2, 2 } },
    { SAMPLING_BY_OPENAI, SAMPLING_PARAM_PRESENCE_PENALTY, { -2, 2 } },
    { SAMPLING_BY_ANTHROPIC, SAMPLING_PARAM_TEMPERATURE, { 0, 1 } },
    { SAMPLING_BY_ANTHROPIC, SAMPLING_PARAM_TOP_K, { 0, INT32_MAX } },
};

sampling_limits sampling_range(sampling_param p, sampling_protocol by) {
    for (size_t i = 0; i < COUNT(narrower); i++)
        if (narrower[i].by == by && narrower[i].param == p) return narrower[i].range;
    return (sampling_limits){ sampling_param_fields[p].low, sampling_param_fields[p].high };
}

int64_t sampling_low_int(sampling_limits r) { return r.low <= -0x1p63 ? INT64_MIN : (int64_t)r.low; }
int64_t sampling_high_int(sampling_limits r) { return r.high >= 0x1p63 ? INT64_MAX : (int64_t)r.high; }

/* --- members --- */

static void *member(sampling_params *p, sampling_param which) {
    return (char *)p + sampling_param_fields[which].offset;
}

double sampling_get(const sampling_params *p, sampling_param which) {
    const void *at = (const char *)p + sampling_param_fields[which].offset;
    switch (sampling_param_fields[which].type) {
    case SAMPLING_IS_FLOAT: return (double)*(const float *)at;
    case SAMPLING_IS_INT: return *(const int *)at;
    case SAMPLING_IS_UINT64: break;
    }
    return (double)*(const uint64_t *)at;
}

void sampling_set_real(sampling_params *p, sampling_param which, double v) {
    if (sampling_param_fields[which].type == SAMPLING_IS_FLOAT)
        *(float *)member(p, which) = (float)v;
    else
        sampling_set_int(p, which, v >= 0x1p63 ? INT64_MAX : (int64_t)v);
}

void sampling_set_int(sampling_params *p, sampling_param which, int64_t v) {
    switch (sampling_param_fields[which].type) {
    case SAMPLING_IS_FLOAT: *(float *)member(p, which) = (float)v; break;
    case SAMPLING_IS_INT: *(int *)member(p, which) = (int)v; break;
    case SAMPLING_IS_UINT64: *(uint64_t *)member(p, which) = (uint64_t)v; break;
    }
}

void sampling_copy(sampling_params *to, const sampling_params *from, sampling_param which) {
    static const size_t sizes[] = { sizeof(float), sizeof(int), sizeof(uint64_t) };
    memcpy(member(to, which), (const char *)from + sampling_param_fields[which].offset,
           sizes[sampling_param_fields[which].type]);
}
