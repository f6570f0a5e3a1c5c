/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of config.json that change a model's arithmetic.
 *
 * A family looks at the fields that it understands. This table lists those that may stand in a config.json of any
 * family, each with the values that mean nothing special. A field that is there, has another value and was not looked
 * at by anybody is refused by name: the model would open and answer wrongly. hidden_act is checked against the values
 * that the family names (nn_arch.act), unless its setup reads it.
 */
#include "nn/config.h"

#include <stdio.h>
#include <string.h>

/* usual: values that change nothing, '|' between; an absent field and null never do. */
static const struct {
    const char *field, *usual;
} known[] = {
    { "hidden_act", NULL },
    { "hidden_activation", NULL },
    { "activation_function", NULL },
    { "clip_qkv", "0" },
    { "alibi", "false" },
    { "attn_config", "" },
    { "logit_scale", "1" },
    { "logits_scaling", "1" },
    { "embedding_multiplier", "1" },
    { "residual_multiplier", "1" },
    { "attention_multiplier", "" },
    { "final_logit_softcapping", "0" },
    { "attn_logit_softcapping", "0" },
    { "qk_layernorm", "false" },
    { "use_qk_norm", "false" },
    { "use_post_norm", "false" },
    { "use_parallel_residual", "false" },
    { "parallel_attn", "false" },
    { "new_decoder_architecture", "false" },
    { "multi_query", "false" },
    { "scale_emb", "1" },
    { "scale_depth", "" },
    { "dim_model_base", "" },
    { "mup_embeddings_scale", "1" },
    { "mup_output_alpha", "1" },
    { "mup_width_scale", "1" },
    { "mup_scale_qk_dot_by_d", "false" },
    { "use_sliding_window", "false" },
    { "layer_types", "full_attention" },
    { "use_bidirectional_attention", "false" },
    { "use_dynamic_ntk", "false" },
    { "use_logn_attn", "false" },
    { "position_embedding_type", "rope|rotary|rope_gptj|absolute" },
    { "no_rope_layer_interval", "0" },
    { "attn_temperature_tuning", "false|0" },
    { "attention_chunk_size", "" },
    { "num_kv_shared_layers", "0" },
    { "hidden_size_per_layer_input", "0" },
    { "attn_output_gate", "false" },
    { "do_layer_norm_before", "true" },
    { "apply_residual_connection_post_layernorm", "false" },
    { "scale_attn_weights", "true" },
    { "scale_attn_by_inverse_layer_idx", "false" },
    { "scale_embedding", "false" },
    { "q_lora_rank", "" },
    { "kv_lora_rank", "" },
    { "num_local_experts", "0" },
    { "num_experts", "0" },
    { "n_routed_experts", "0" },
    { "routed_scaling_factor", "1" },
    { "partial_rotary_factor", "1" },
    { "rotary_pct", "1" },
    { "rope_ratio", "1" },
    { "layer_norm_elementwise_affine", "true" },
    { "_remove_final_layer_norm", "false" },
    { "enable_bias", "true" },
    { "query_pre_attn_scalar", "" },
};
enum { N_KNOWN = sizeof known / sizeof *known, N_ACTS = 3 };
_Static_assert(N_KNOWN <= sizeof((nn_config *)0)->looked, "one mark per field");

void nn_known_looked(nn_config *c, const char *name) {
    for (size_t i = 0; i < N_KNOWN; i++) {
        size_t n = strlen(known[i].field);
        if (strncmp(known[i].field, name, n) == 0 && (name[n] == 0 || name[n] == '.')) c->looked[i] = 1;
    }
}

static bool listed(const char *list, const char *text) {
    size_t len = strlen(text);
    for (const char *s = list; s && *s; s += strcspn(s, "|"), s += *s == '|') {
        if (strcspn(s, "|") == len && strncmp(s, text, len) == 0) return true;
    }
    return false;
}

/* A value as the table writes it; false for what it cannot hold. */
static bool as_text(const json_value *v, char *out, size_t bytes) {
    double      x;
    const char *s = json_cstr(v);
    if (s)
        snprintf(out, bytes, "%s", s);
    else if (json_is(v, JSON_K_BOOL))
        snprintf(out, bytes, "%s", json_bool(v, false) ? "true" : "false");
    else if (json_number(v, &x))
        snprintf(out, bytes, "%g", x);
    else
        return false;
    return true;
}

/* The first value of a list that means something, or the value itself. */
static bool is_usual(const json_value *v, const char *usual, char *shown, size_t bytes) {
    if (!v || v->kind == JSON_K_NULL) return true;
    if (json_is(v, JSON_K_ARRAY)) {
        for (size_t i = 0; i < json_count(v); i++) {
            if (!is_usual(json_at(v, i), usual, shown, bytes)) return false;
        }
        return true;
    }
    if (as_text(v, shown, bytes)) return listed(usual, shown);
    snprintf(shown, bytes, "an object");
    return false;
}

void nn_config_known(nn_config *c, const char *hf, const char *values) {
    const json_value *v = NULL;
    char              shown[80];
    nn_known_looked(c, hf);
    if (!c->file || nn_config_gguf(c)) return;
    if (c->text) v = json_get(c->text, hf);
    if (!v) v = json_get(c->root, hf);
    if (!is_usual(v, values, shown, sizeof shown))
        nn_config_fail(c, "the field \"%s\" is %s; this is not supported for %s", hf, shown, c->arch->names[0]);
}

bool nn_config_null(nn_config *c, const char *object, const char *field) {
    const json_value *where = c->text ? c->text : c->root;
    if (!c->file || nn_config_gguf(c)) return false;
    const json_value *v = json_get(object ? json_get(where, object) : where, field);
    return v && v->kind == JSON_K_NULL;
}

/* A family asks whether a layer is of one kind; a third kind would pass for the other one. */
static void check_kinds(nn_config *c, const json_value *where) {
    const char       *kinds = c->arch->kinds ? c->arch->kinds : "full_attention|sliding_attention";
    const json_value *list = json_get(where, "layer_types");
    for (size_t i = 0; json_is(list, JSON_K_ARRAY) && i < json_count(list) && !c->failed; i++) {
        const char *kind = json_cstr(json_at(list, i));
        if (kind && !listed(kinds, kind))
            nn_config_fail(c, "the field \"layer_types\" has \"%.60s\"; this is not supported for %s", kind,
                           c->arch->names[0]);
    }
}

void nn_known_check(nn_config *c) {
    const json_value *where = c->text ? c->text : c->root;
    char              shown[80];
    if (!c->file || nn_config_gguf(c)) return;
    check_kinds(c, where);
    for (int i = 0; i < (int)N_KNOWN && !c->failed; i++) {
        const char *usual = i < N_ACTS ? c->arch->act : known[i].usual;
        if (c->looked[i] || !usual) continue;
        if (!is_usual(json_get(where, known[i].field), usual, shown, sizeof shown))
            nn_config_fail(c, "the field \"%s\" is %s; this is not supported for %s", known[i].field, shown,
                           c->arch->names[0]);
    }
}
