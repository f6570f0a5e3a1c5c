/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The settings of an adapter: adapter_config.json of PEFT or MLX, the keys of a GGUF file.
 *
 * A field that changes what is computed is either honoured or refused by its name; fields that only matter for training
 * are listed here. A field that is not known is refused when it says anything (not null, false, zero or empty).
 */
#include "nn/adapter_impl.h"

#include <math.h>
#include <string.h>

/* --- patterns ----------------------------------------------------------------------------------------------------- */

enum { PATTERN_STEPS = 20000 };

/* Bytes of the atom at p: a character, an escape, a class; 0: something that is not understood. */
static size_t atom_bytes(const char *p) {
    if (*p == '\\') return p[1] && strchr(".-_dw", p[1]) ? 2 : 0;
    if (*p == '[') {
        const char *end = strchr(p + 1, ']');
        return end && end > p + 1 ? (size_t)(end - p) + 1 : 0;
    }
    return *p && !strchr("(){}|*+?^$", *p) ? 1 : 0;
}

static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool class_has(const char *p, size_t bytes, char c) {
    bool negated = p[1] == '^', found = false;
    for (size_t i = negated ? 2 : 1; i + 1 < bytes; i++) {
        if (i + 3 < bytes && p[i + 1] == '-') {
            found = found || (c >= p[i] && c <= p[i + 2]);
            i += 2;
        } else {
            found = found || c == p[i];
        }
    }
    return found != negated;
}

static bool atom_takes(const char *p, size_t bytes, char c) {
    if (!c) return false;
    if (*p == '\\' && p[1] == 'd') return c >= '0' && c <= '9';
    if (*p == '\\' && p[1] == 'w') return is_word(c);
    if (*p == '\\') return c == p[1];
    if (*p == '[') return class_has(p, bytes, c);
    return *p == '.' || *p == c;
}

/* Whether all of text is a match of all of the pattern. Backtracking; *steps bounds it. */
static bool match_all(const char *p, const char *text, int *steps) {
    if (--*steps < 0) return false;
    if (!*p) return !*text;
    size_t n = atom_bytes(p);
    char   how = p[n];
    if (how != '*' && how != '+' && how != '?') return atom_takes(p, n, *text) && match_all(p + n, text + 1, steps);
    size_t least = how == '+', most = how == '?' ? 1 : strlen(text), taken = 0;
    while (taken < most && atom_takes(p, n, text[taken])) taken++;
    for (size_t k = taken + 1; k-- > least;) {
        if (match_all(p + n + 1, text + k, steps)) return true;
    }
    return false;
}

/* A key of alpha_pattern: it ends the module's name, and a dot or nothing stands before it. */
static int key_matches(const char *key, const char *module, bool *out, err *e) {
    int steps = PATTERN_STEPS;
    *out = false;
    bool anchored = *key == '^';
    key += anchored;
    for (const char *p = key; *p;) {
        size_t n = atom_bytes(p);
        if (n == 0) return err_set(e, ERR_UNSUPPORTED, "the pattern \"%.80s\" is not understood", key);
        p += n;
        if (*p == '*' || *p == '+' || *p == '?') p++;
    }
    for (const char *at = module; at && !*out; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL) {
        *out = match_all(key, at, &steps);
        if (anchored) break;
    }
    return steps >= 0 ? 0 : err_set(e, ERR_LIMIT, "the pattern \"%.80s\" takes too long", key);
}

int adapter_config_scale(const adapter_source *s, const char *module, int rank, double *out, err *e) {
    double alpha = s->alpha;
    if (s->format == NN_ADAPTER_MLX) {
        *out = s->scale;
        return 0;
    }
    if (s->format == NN_ADAPTER_GGUF) {
        *out = alpha == 0 ? 1 : alpha / rank;
        return 0;
    }
    for (size_t i = 0; s->alpha_pattern && i < s->alpha_pattern->u.object.count; i++) {
        const json_member *m = &s->alpha_pattern->u.object.members[i];
        bool               fits;
        int                rc = key_matches(m->key.data, module, &fits, e);
        if (rc < 0) return err_wrap(e, rc, "alpha_pattern");
        if (!fits) continue;
        if (!json_number(&m->value, &alpha)) return err_set(e, ERR_FORMAT, "alpha_pattern: a value is not a number");
        break; /* the first one counts */
    }
    *out = s->rslora ? alpha / sqrt(rank) : alpha / rank;
    return isfinite(*out) ? 0 : err_set(e, ERR_FORMAT, "%s: the scale is not finite", module);
}

/* --- PEFT --------------------------------------------------------------------------------------------------------- */

/* Says nothing: absent, null, false, 0, "", [] or {}. */
static bool is_silent(const json_value *v) {
    if (!v) return true;
    switch (v->kind) {
    case JSON_K_NULL: return true;
    case JSON_K_BOOL: return !v->u.boolean;
    case JSON_K_INT: return v->u.integer == 0;
    case JSON_K_REAL: return v->u.real == 0;
    case JSON_K_STRING: return v->u.string.len == 0;
    default: return json_count(v) == 0;
    }
}

static bool is_in(const char *name, const char *const *list) {
    for (; *list; list++) {
        if (strcmp(name, *list) == 0) return true;
    }
    return false;
}

/* What the tensors show by themselves, what is honoured here, and what only training needs. */
static const char *const peft_known[] = { "peft_type",
                                          "task_type",
                                          "auto_mapping",
                                          "peft_version",
                                          "base_model_name_or_path",
                                          "revision",
                                          "inference_mode",
                                          "r",
                                          "target_modules",
                                          "exclude_modules",
                                          "lora_alpha",
                                          "lora_dropout",
                                          "fan_in_fan_out",
                                          "use_rslora",
                                          "layers_to_transform",
                                          "layers_pattern",
                                          "rank_pattern",
                                          "alpha_pattern",
                                          "use_dora",
                                          "target_parameters",
                                          "feedforward_modules",
                                          "init_ia3_weights",
                                          "init_lora_weights",
                                          "bias",
                                          "alora_invocation_tokens",
                                          "eva_config",
                                          "runtime_config",
                                          "megatron_core",
                                          "qalora_group_size",
                                          "loftq_config",
                                          "corda_config",
                                          "lora_ga_config",
                                          NULL };

/* Initialisations that change the base's weights: the file alone does not say the difference. */
static int check_init(const json_value *config, err *e) {
    static const char *const fine[] = { "gaussian", "eva", "orthogonal", "true", "false", NULL };
    const char              *init = json_cstr(json_get(config, "init_lora_weights"));
    if (!init || is_in(init, fine)) return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "init_lora_weights: \"%.40s\" changes the base model's weights, too; convert the adapter to plain "
                   "LoRA first",
                   init);
}

static int read_invocation(adapter_source *s, const json_value *v, err *e) {
    size_t   n = json_count(v);
    int32_t *out;
    if (is_silent(v)) return 0;
    if (!json_is(v, JSON_K_ARRAY) || n > 4096)
        return err_set(e, ERR_FORMAT, "alora_invocation_tokens is not a list of tokens");
    if (!(out = arena_calloc(&s->mem, n, sizeof *out))) return err_set_nomem(e);
    for (size_t i = 0; i < n; i++) {
        int64_t t;
        if (!json_int(json_at(v, i), &t) || t < 0 || t > INT32_MAX)
            return err_set(e, ERR_FORMAT, "alora_invocation_tokens: entry %zu is not a token", i);
        out[i] = (int32_t)t;
    }
    s->invocation = out;
    s->n_invocation = (int)n;
    return 0;
}

static int read_peft(adapter_source *s, const json_value *c, err *e) {
    const char *type = json_cstr(json_get(c, "peft_type")), *bias = json_cstr(json_get(c, "bias"));
    int         rc;
    if (!type || (strcmp(type, "LORA") != 0 && strcmp(type, "IA3") != 0))
        return err_set(e, ERR_UNSUPPORTED, "peft_type: \"%.40s\" is not supported; LORA and IA3 are", type ? type : "");
    s->ia3 = strcmp(type, "IA3") == 0;
    if (bias && strcmp(bias, "none") != 0)
        return err_set(e, ERR_UNSUPPORTED, "bias: \"%.40s\": trained biases are not supported", bias);
    for (size_t i = 0; i < c->u.object.count; i++) {
        const json_member *m = &c->u.object.members[i];
        if (!is_silent(&m->value) && !is_in(m->key.data, peft_known))
            return err_set(e, ERR_UNSUPPORTED, "%.60s is not supported at run time", m->key.data);
    }
    if ((rc = check_init(c, e)) < 0 || (rc = read_invocation(s, json_get(c, "alora_invocation_tokens"), e)) < 0)
        return rc;
    if (!s->ia3 && (!json_number(json_get(c, "lora_alpha"), &s->alpha) || !isfinite(s->alpha)))
        return err_set(e, ERR_FORMAT, "lora_alpha is missing");
    s->rslora = json_bool(json_get(c, "use_rslora"), false);
    s->dora = json_bool(json_get(c, "use_dora"), false);
    s->alpha_pattern = json_get(c, "alpha_pattern");
    if (is_silent(s->alpha_pattern)) s->alpha_pattern = NULL;
    if (s->alpha_pattern && !json_is(s->alpha_pattern, JSON_K_OBJECT))
        return err_set(e, ERR_FORMAT, "alpha_pattern is not an object");
    s->target_parameters = json_get(c, "target_parameters");
    return 0;
}

/* --- MLX ---------------------------------------------------------------------------------------------------------- */

static int read_mlx(adapter_source *s, const json_value *c, err *e) {
    const char       *type = json_cstr(json_get(c, "fine_tune_type"));
    const json_value *p = json_get(c, "lora_parameters");
    if (type && strcmp(type, "lora") != 0 && strcmp(type, "dora") != 0)
        return err_set(e, ERR_UNSUPPORTED, "fine_tune_type: \"%.40s\" is not supported; lora and dora are", type);
    s->dora = type && strcmp(type, "dora") == 0;
    if (!json_number(json_get(p, "scale"), &s->scale) || !isfinite(s->scale))
        return err_set(e, ERR_FORMAT, "lora_parameters.scale is missing");
    return 0;
}

int adapter_config_read(adapter_source *s, const char *config, size_t bytes, err *e) {
    const json_value *c;
    int               rc = json_parse(&c, config, bytes, &s->mem, e);
    if (rc < 0) return rc;
    if (!json_is(c, JSON_K_OBJECT)) return err_set(e, ERR_FORMAT, "it is not an object");
    bool mlx = json_get(c, "lora_parameters") || (json_get(c, "fine_tune_type") && !json_get(c, "peft_type"));
    s->format = mlx ? NN_ADAPTER_MLX : NN_ADAPTER_PEFT;
    return mlx ? read_mlx(s, c, e) : read_peft(s, c, e);
}

/* --- GGUF --------------------------------------------------------------------------------------------------------- */

static bool says(const gguf *g, const char *key, const char *text) {
    view v;
    return meta_string(gguf_find(g, key), &v) && view_eq_c(v, text);
}

static int read_gguf_invocation(adapter_source *s, err *e) {
    const meta_value *v = gguf_find(&s->gguf, "adapter.alora.invocation_tokens");
    if (!v || v->count == 0) return 0;
    if (v->type != META_ARRAY || v->count > 4096)
        return err_set(e, ERR_FORMAT, "adapter.alora.invocation_tokens is not a list of tokens");
    int32_t *out = arena_calloc(&s->mem, v->count, sizeof *out);
    if (!out) return err_set_nomem(e);
    for (size_t i = 0; i < v->count; i++) {
        int64_t t;
        if (!meta_at_int(v, i, &t) || t < 0 || t > INT32_MAX)
            return err_set(e, ERR_FORMAT, "adapter.alora.invocation_tokens: entry %zu is not a token", i);
        out[i] = (int32_t)t;
    }
    s->invocation = out;
    s->n_invocation = (int)v->count;
    return 0;
}

int adapter_config_gguf(adapter_source *s, const nn_model *m, err *e) {
    const gguf *g = &s->gguf;
    view        arch;
    if (!says(g, "general.type", "adapter"))
        return err_set(e, ERR_FORMAT, "general.type does not say that it is an adapter");
    if (!says(g, "adapter.type", "lora")) return err_set(e, ERR_UNSUPPORTED, "adapter.type is not lora");
    if (!meta_string(gguf_find(g, "general.architecture"), &arch))
        return err_set(e, ERR_FORMAT, "general.architecture is missing");
    bool same = false;
    for (const char *const *n = m->arch->names; *n; n++) same = same || view_eq_c(arch, *n);
    if (!same)
        return err_set(e, ERR_ARG, "it is an adapter for the architecture \"%.*s\", and the model is of \"%s\"",
                       (int)(arch.len < 40 ? arch.len : 40), arch.data, m->arch->names[0]);
    s->alpha = 0;
    if (gguf_find(g, "adapter.lora.alpha") &&
        (!meta_real(gguf_find(g, "adapter.lora.alpha"), &s->alpha) || !isfinite(s->alpha)))
        return err_set(e, ERR_FORMAT, "adapter.lora.alpha is not a number");
    return read_gguf_invocation(s, e);
}
