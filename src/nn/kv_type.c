/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/kv_type.h"

#include "nn/model.h"
#include "nn/plan.h"

#include <stddef.h>
#include <strings.h>

static const struct {
    const char *name, *alias;
    int         bits; /* of a value, without its scale */
} types[NN_KV_TYPE_COUNT] = {
    [NN_KV_F32] = { "f32", NULL, 32 },      [NN_KV_F16] = { "f16", NULL, 16 },    [NN_KV_BF16] = { "bf16", NULL, 16 },
    [NN_KV_Q8_0] = { "q8_0", NULL, 8 },     [NN_KV_Q4_0] = { "q4_0", NULL, 4 },   [NN_KV_Q5_0] = { "q5_0", NULL, 5 },
    [NN_KV_TQ4] = { "tq4", "turbo4", 4 },   [NN_KV_TQ3] = { "tq3", "turbo3", 3 }, [NN_KV_TQ2] = { "tq2", "turbo2", 2 },
    [NN_KV_FP8] = { "fp8", "fp8_e4m3", 8 },
};

const char *nn_kv_type_name(nn_kv_type type) { return (unsigned)type < NN_KV_TYPE_COUNT ? types[type].name : "?"; }

bool nn_kv_type_parse(const char *name, nn_kv_type *out) {
    for (int i = 0; i < NN_KV_TYPE_COUNT; i++) {
        if (strcasecmp(types[i].name, name) == 0 || (types[i].alias && strcasecmp(types[i].alias, name) == 0)) {
            *out = (nn_kv_type)i;
            return true;
        }
    }
    return false;
}

static bool has_pages(const nn_state *s) {
    return s->kind == NN_STATE_PAGED_KV || s->kind == NN_STATE_PAGED_LATENT || s->kind == NN_STATE_WINDOW;
}

static bool hybrid(const nn_model *m) {
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (nn_state_fixed_floats(&m->state[i]) > 0) return true;
    }
    return false;
}

/* Whether a layer is one of the first or last `n` with pages. */
static bool at_an_end(const nn_model *m, int layer, int n) {
    int before = 0, behind = 0;
    for (int i = 0; i < m->dims->n_layer; i++) {
        if (!has_pages(&m->state[i])) continue;
        before += i < layer;
        behind += i > layer;
    }
    return before < n || behind < n;
}

static bool has_sinks(const nn_model *m, int layer) {
    for (int i = 0; i < m->tape->n_ops; i++) {
        const nn_op *op = &m->tape->ops[i];
        if (op->kind == NN_OP_ATTN && op->layer == layer && op->u.attn.sinks) return true;
    }
    return false;
}

void nn_kv_types_of_layer(const nn_kv_types *t, const nn_model *m, int layer, nn_kv_type *k, nn_kv_type *v) {
    int precise = t->precise;
    *k = t->k;
    *v = t->v;
    if (precise == NN_KV_PRECISE_USUAL) precise = hybrid(m) ? 0 : NN_KV_PRECISE_LAYERS;
    if (precise > 0 && at_an_end(m, layer, precise)) {
        if (types[*k].bits < 8) *k = NN_KV_Q8_0;
        if (types[*v].bits < 8) *v = NN_KV_Q8_0;
    }
    if (t->k_open && types[*k].bits < 16 && has_sinks(m, layer)) *k = NN_KV_F16;
}
