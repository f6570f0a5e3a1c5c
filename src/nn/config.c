/* SPDX-License-Identifier: Apache-2.0 */
/* Hyper-parameters: look-ups in GGUF metadata, config.json or given values; the dims that every family has. */
#include "nn/config.h"

#include "base/str.h"
#include "tensor/types.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LAYERS = NN_MAX_LAYERS, MAX_WIDTH = 1 << 24 };

void nn_config_fail(nn_config *c, const char *fmt, ...) {
    if (c->failed) return;
    va_list ap;
    char    text[400];
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    c->failed = true;
    err_set(&c->error, ERR_FORMAT, "%s", text);
}

bool nn_config_gguf(const nn_config *c) { return !c->file || model_file_format(c->file) == MODEL_GGUF; }

bool nn_config_arch(const nn_config *c, const char *name) { return strcmp(c->arch_name, name) == 0; }

void *nn_config_alloc(nn_config *c, size_t count, size_t bytes) {
    static max_align_t nothing[4096]; /* what a failed allocation points at; nobody uses a failed config's values */
    void              *p = arena_calloc(c->mem, count ? count : 1, bytes);
    if (!p) {
        if (!c->failed) err_set_nomem(&c->error);
        c->failed = true;
        return count * bytes <= sizeof nothing ? (void *)nothing : NULL;
    }
    return p;
}

/* --- finding a value -------------------------------------------------------------------------------------------- */

typedef struct value {
    const meta_value *meta;
    const json_value *json;
    const double     *set;
} value;

bool nn_config_next_name(const char **list, char *out, size_t out_bytes) {
    const char *s = *list;
    if (!s || !*s) return false;
    size_t n = strcspn(s, "|");
    if (n >= out_bytes) n = out_bytes - 1;
    memcpy(out, s, n);
    out[n] = '\0';
    s += n;
    *list = *s == '|' ? s + 1 : NULL;
    return true;
}

static const json_value *walk_path(const json_value *v, char *path) {
    while (v && path) {
        char *dot = strchr(path, '.');
        if (dot) *dot = '\0';
        bool place = json_is(v, JSON_K_ARRAY) && path[strspn(path, "0123456789")] == '\0';
        v = place ? json_at(v, strtoul(path, NULL, 10)) : json_get(v, path);
        path = dot ? dot + 1 : NULL;
    }
    return v && v->kind != JSON_K_NULL ? v : NULL;
}

static value find_set(const nn_config *c, const char *gguf, bool fallback) {
    char name[192];
    for (size_t i = 0; i < c->n_set; i++) {
        const char *list = gguf;
        while (c->set[i].fallback == fallback && nn_config_next_name(&list, name, sizeof name)) {
            if (strcmp(c->set[i].key, name) == 0) return (value){ .set = &c->set[i].value };
        }
    }
    return (value){ 0 };
}

/* Whether rotations around the language model's part are another part's (Music Flamingo's ears): it says its own. */
static bool rotates_itself(const nn_config *c, const char *name) {
    return strncmp(name, "rope_parameters.", 16) == 0 && c->text && c->text != c->root &&
           (json_get(c->text, "rope_theta") || json_is(json_get(c->text, "rope_parameters"), JSON_K_OBJECT));
}

static value find(nn_config *c, const char *gguf, const char *hf) {
    value v = find_set(c, gguf, false);
    char  name[192], full[256];
    if (v.set || !c->file) return v;
    if (nn_config_gguf(c)) {
        while (nn_config_next_name(&gguf, name, sizeof name)) {
            snprintf(full, sizeof full, "%s.%s", c->arch_name, name);
            v.meta = model_file_meta(c->file, full);
            if (v.meta) return v;
        }
        return v;
    }
    const char *names = hf;
    for (const char *rest = hf; nn_config_next_name(&rest, name, sizeof name);) nn_known_looked(c, name);
    while (nn_config_next_name(&hf, name, sizeof name)) {
        char copy[192];
        memcpy(copy, name, sizeof copy);
        if (c->text) v.json = walk_path(c->text, copy);
        if (!v.json && !rotates_itself(c, name)) v.json = walk_path(c->root, name);
        if (v.json) return v;
    }
    v.set = nn_silent_find(c, names);
    return v;
}

static bool found(value v) { return v.meta || v.json || v.set; }

/* --- what a value is -------------------------------------------------------------------------------------------- */

static bool is_list(value v) { return (v.meta && v.meta->type == META_ARRAY) || json_is(v.json, JSON_K_ARRAY); }

static int list_count(value v) {
    size_t n = v.meta ? v.meta->count : json_count(v.json);
    return n > INT32_MAX ? INT32_MAX : (int)n;
}

/* {"__float__": "Infinity"}: how transformers writes what JSON has no number for. */
static bool tagged_float(const json_value *j, double *out) {
    const char *s = json_is(j, JSON_K_OBJECT) ? json_cstr(json_get(j, "__float__")) : NULL;
    if (!s) return false;
    bool minus = *s == '-';
    if (strcmp(s + minus, "Infinity") != 0) return false;
    *out = minus ? -INFINITY : INFINITY;
    return true;
}

/* A number or bool as a double; index -1: the value itself. */
static bool number(value v, int index, double *out) {
    bool b;
    if (v.set) {
        *out = *v.set;
        return true;
    }
    if (v.meta) {
        int64_t i;
        if (index >= 0) {
            if (meta_at_bool(v.meta, (size_t)index, &b)) {
                *out = b;
                return true;
            }
            if (meta_at_int(v.meta, (size_t)index, &i)) {
                *out = (double)i;
                return true;
            }
            return meta_at_real(v.meta, (size_t)index, out);
        }
        if (meta_real(v.meta, out)) return true;
        if (!meta_bool(v.meta, &b)) return false;
        *out = b;
        return true;
    }
    const json_value *j = index >= 0 ? json_at(v.json, (size_t)index) : v.json;
    if (json_number(j, out) || tagged_float(j, out)) return true;
    if (!json_is(j, JSON_K_BOOL)) return false;
    *out = json_bool(j, false);
    return true;
}

static const char *key_shown(const nn_config *c, const char *gguf, const char *hf) {
    const char *k = nn_config_gguf(c) ? gguf : hf;
    return k ? k : gguf ? gguf : hf ? hf : "?";
}

/* --- notes ------------------------------------------------------------------------------------------------------ */

static nn_config_note *note(nn_config *c, const char *gguf, char type) {
    if (!gguf) return NULL;
    size_t          n = strcspn(gguf, "|");
    nn_config_note *m;
    for (m = c->notes; m; m = m->next) {
        if (strlen(m->key) == n && memcmp(m->key, gguf, n) == 0) break;
    }
    if (!m) {
        char *key = arena_strndup(c->mem, gguf, n);
        m = arena_calloc(c->mem, 1, sizeof *m);
        if (!m || !key) return NULL;
        m->key = key;
        m->next = c->notes;
        c->notes = m;
    }
    m->type = type;
    return m;
}

/* The names are only of use where config.json was not what was read. */
static void note_hf(nn_config *c, nn_config_note *m, const char *hf) {
    if (m && hf && nn_config_gguf(c) && c->file) m->hf = arena_strdup(c->mem, hf);
}

static void note_number(nn_config *c, const char *gguf, char type, double x) {
    nn_config_note *m = note(c, gguf, type);
    if (m) m->value = x;
}

void nn_config_note_real(nn_config *c, const char *key, double x) { note_number(c, key, 'f', x); }

void nn_config_derived(nn_config *c, const char *gguf, double x) { note_number(c, gguf, 'f', x); }

void nn_config_derived_int(nn_config *c, const char *gguf, int64_t x) { note_number(c, gguf, 'i', (double)x); }

void nn_config_derived_bool(nn_config *c, const char *gguf, bool x) { note_number(c, gguf, 'b', x); }

void nn_config_derived_layers(nn_config *c, const char *gguf, const int *values) {
    nn_config_note *m = !c->failed ? note(c, gguf, 'I') : NULL;
    if (!m) return;
    m->list = values;
    m->n_list = c->n_layer;
}

void nn_config_derived_reals(nn_config *c, const char *gguf, const float *values) {
    nn_config_note *m = !c->failed ? note(c, gguf, 'F') : NULL;
    if (!m) return;
    m->reals = values;
    m->n_list = c->n_layer;
}

void nn_config_note_int(nn_config *c, const char *key, int64_t x) { note_number(c, key, 'i', (double)x); }

void nn_config_note_ints(nn_config *c, const char *key, const int *list, int n) {
    nn_config_note *m = !c->failed ? note(c, key, 'I') : NULL;
    if (!m) return;
    m->list = list;
    m->n_list = n;
}

void nn_config_note_text(nn_config *c, const char *key, const char *text) {
    nn_config_note *m = note(c, key, 's');
    if (m) m->text = text;
}

void nn_config_note_tensor(nn_config *c, const char *name, const float *data, int n) {
    nn_config_note *m = note(c, name, 't');
    if (!m) return;
    m->reals = data;
    m->n_list = n;
}

void nn_config_derived_vec(nn_config *c, const char *name, const float *data, int n) {
    if (!c->failed) nn_config_note_tensor(c, name, data, n);
}

/* --- look-ups --------------------------------------------------------------------------------------------------- */

static double get_number(nn_config *c, const char *gguf, const char *hf, char type, double dflt) {
    double x = dflt;
    value  v = find(c, gguf, hf);
    if (c->failed) return dflt == NN_REQUIRED ? 0 : dflt;
    if (!found(v) && dflt == NN_REQUIRED) v = find_set(c, gguf, true);
    if (!found(v)) {
        if (dflt == NN_REQUIRED) {
            nn_config_fail(c, "%s lacks the field \"%s\"", nn_config_gguf(c) ? "the metadata" : "config.json",
                           key_shown(c, gguf, hf));
            return 0;
        }
    } else {
        if (is_list(v) ? !number(v, 0, &x) : !number(v, -1, &x)) {
            nn_config_fail(c, "the field \"%s\" is not a number", key_shown(c, gguf, hf));
            return 0;
        }
        if (type == 'i' && (x != floor(x) || fabs(x) > 1e15)) {
            nn_config_fail(c, "the field \"%s\" is %g, not a whole number in range", key_shown(c, gguf, hf), x);
            return 0;
        }
        if (type == 'f' && !(fabs(x) <= FLT_MAX)) { /* most become floats */
            nn_config_fail(c, "the field \"%s\" is not finite, or too large", key_shown(c, gguf, hf));
            return 0;
        }
        note_number(c, gguf, type, x);
        if (gguf) note_hf(c, note(c, gguf, type), hf);
    }
    return x;
}

int64_t nn_config_int(nn_config *c, const char *gguf, const char *hf, int64_t dflt) {
    return (int64_t)get_number(c, gguf, hf, 'i', dflt == NN_REQUIRED_INT ? NN_REQUIRED : (double)dflt);
}

double nn_config_real(nn_config *c, const char *gguf, const char *hf, double dflt) {
    return get_number(c, gguf, hf, 'f', dflt);
}

bool nn_config_bool(nn_config *c, const char *gguf, const char *hf, bool dflt) {
    return get_number(c, gguf, hf, 'b', dflt) != 0;
}

bool nn_config_has(nn_config *c, const char *gguf, const char *hf) { return found(find(c, gguf, hf)); }

bool nn_config_lists(nn_config *c, const char *gguf, const char *hf, int64_t wanted) {
    value  v = find(c, gguf, hf);
    double x;
    for (int i = 0, n = is_list(v) ? list_count(v) : 0; i < n; i++) {
        if (number(v, i, &x) && x == (double)wanted) return true;
    }
    return false;
}

double nn_config_real_of(nn_config *c, const char *gguf, const char *hf, int index, double dflt) {
    value  v = find(c, gguf, hf);
    double x = dflt;
    if (!is_list(v)) return dflt;
    if (!number(v, index, &x) || isnan(x))
        nn_config_fail(c, "the field \"%s\" has no number at place %d", key_shown(c, gguf, hf), index);
    return x;
}

double nn_config_real_at(nn_config *c, const char *hf, int index, double dflt) {
    return nn_config_real_of(c, NULL, hf, index, dflt);
}

int nn_config_leading(nn_config *c, const char *gguf, const char *hf_count, int dflt, const char *hf_list,
                      const char *text) {
    value list = find(c, NULL, hf_list);
    int   n = 0;
    if (!is_list(list)) {
        n = (int)nn_config_int(c, gguf, hf_count, nn_config_gguf(c) ? 0 : dflt);
        if (!nn_config_gguf(c)) nn_config_derived_int(c, gguf, n); /* a default is not the other format's */
        return n;
    }
    for (int i = 0; i < c->n_layer && !c->failed; i++) {
        const char *s = json_cstr(json_at(list.json, (size_t)i));
        if (!s)
            nn_config_fail(c, "the field \"%s\" has no entry for layer %d", hf_list, i);
        else if (strcmp(s, text) != 0)
            continue;
        else if (n++ < i)
            nn_config_fail(
                c, "the field \"%s\" has \"%s\" for layer %d behind layers of another kind; that is not supported",
                hf_list, text, i);
    }
    nn_config_derived_int(c, gguf, n);
    return n;
}

void nn_config_unsaid(nn_config *c, const char *field) { c->unsaid = field; }

int nn_config_count(nn_config *c, const char *gguf, const char *hf) {
    value v = find(c, gguf, hf);
    return is_list(v) ? list_count(v) : 0;
}

const char *nn_config_text(nn_config *c, const char *gguf, const char *hf) {
    value       v = find(c, gguf, hf);
    const char *text = NULL;
    view        s;
    if (v.meta && meta_string(v.meta, &s)) text = arena_strndup(c->mem, s.data, s.len);
    if (v.json) text = json_cstr(v.json);
    if (text) nn_config_note_text(c, gguf, text);
    if (text && gguf) note_hf(c, note(c, gguf, 's'), hf);
    return text;
}

bool nn_config_is(nn_config *c, const char *gguf, const char *hf, const char *text, bool dflt) {
    const char *s = nn_config_text(c, gguf, hf);
    return s ? strcmp(s, text) == 0 : dflt;
}

nn_act_kind nn_config_act(nn_config *c, const char *gguf, const char *hf, nn_act_kind dflt) {
    static const struct {
        const char *name;
        nn_act_kind act;
    } rows[] = { { "gelu", NN_ACT_GELU },           { "gelu_python", NN_ACT_GELU },
                 { "geglu", NN_ACT_GELU },          { "gelu_new", NN_ACT_GELU_TANH },
                 { "gelu_fast", NN_ACT_GELU_TANH }, { "gelu_pytorch_tanh", NN_ACT_GELU_TANH },
                 { "silu", NN_ACT_SILU },           { "swish", NN_ACT_SILU },
                 { "swiglu", NN_ACT_SILU },         { "relu", NN_ACT_RELU },
                 { "relu2", NN_ACT_RELU2 },         { "tanh", NN_ACT_TANH } };
    const char *s = nn_config_text(c, gguf, hf);
    for (size_t i = 0; s && i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(s, rows[i].name) != 0) continue;
        if (!gguf && rows[i].act != dflt) nn_config_unsaid(c, hf);
        return rows[i].act;
    }
    if (s) nn_config_fail(c, "the field \"%s\" is \"%.40s\", which is not supported", key_shown(c, gguf, hf), s);
    return dflt;
}

/* PaliGemma says it of its prompts, and a batch has these as spans. */
static bool means_prompts(const nn_config *c) {
    const char *outer = json_cstr(json_get(c->root, "model_type"));
    return outer && strcmp(outer, "paligemma") == 0;
}

bool nn_config_causal(nn_config *c) {
    bool later = nn_config_bool(c, NULL, "use_bidirectional_attention", false);
    return nn_config_bool(c, "attention.causal", "is_causal", true) && (!later || means_prompts(c));
}

static bool is_known(const char *text, const char *known) {
    char name[64];
    while (nn_config_next_name(&known, name, sizeof name)) {
        if (strcmp(name, text) == 0) return true;
    }
    return false;
}

bool nn_config_letter_at(nn_config *c, const char *hf, int index, char letter, const char *names) {
    value       v = find(c, NULL, hf);
    const char *text = json_cstr(is_list(v) ? json_at(v.json, (size_t)index) : v.json);
    if (!text) return false;
    return is_list(v) ? is_known(text, names) : strlen(text) == (size_t)c->n_layer && text[index] == letter;
}

void nn_config_only(nn_config *c, const char *gguf, const char *hf, const char *known) {
    value       v = find(c, gguf, hf);
    const char *text = found(v) ? nn_config_text(c, gguf, hf) : NULL;
    if (!found(v) || (text && is_known(text, known))) return;
    if (text)
        nn_config_fail(c, "the field \"%s\" is \"%.60s\"; this family knows %s only", key_shown(c, gguf, hf), text,
                       known);
    else
        nn_config_fail(c, "the field \"%s\" is not a text", key_shown(c, gguf, hf));
}

void nn_config_only_number(nn_config *c, const char *gguf, const char *hf, double known) {
    value  v = find(c, gguf, hf);
    double x;
    for (int i = 0, n = is_list(v) ? list_count(v) : 1; i < n && found(v) && !c->failed; i++) {
        if (!number(v, is_list(v) ? i : -1, &x) || x != known)
            nn_config_fail(c, "the field \"%s\" is not %g; another value is not supported in this family",
                           key_shown(c, gguf, hf), known);
    }
}

int nn_config_same_int(nn_config *c, const char *gguf, const char *hf, int dflt) {
    const int *all = nn_config_layer_ints(c, gguf, hf, dflt);
    for (int i = 1; i < c->n_layer && !c->failed; i++) {
        if (all[i] != all[0])
            nn_config_fail(c, "the field \"%s\" differs between layers; that is not supported", key_shown(c, gguf, hf));
    }
    return c->failed ? dflt : all[0];
}

/* null: what an entry null stands for; NAN: nothing. */
static const float *read_reals(nn_config *c, const char *gguf, const char *hf, double null, int *n) {
    value v = find(c, gguf, hf);
    *n = 0;
    if (!is_list(v)) return NULL;
    int    count = list_count(v);
    float *out = count > 0 && count <= MAX_WIDTH ? arena_calloc(c->mem, (size_t)count, sizeof *out) : NULL;
    for (int i = 0; out && i < count; i++) {
        double            x;
        const json_value *j = v.json ? json_at(v.json, (size_t)i) : NULL;
        bool              ok = j && j->kind == JSON_K_NULL ? !isnan(x = null) : number(v, i, &x);
        if (!ok || !(fabs(x) <= FLT_MAX)) {
            nn_config_fail(c, "the field \"%s\" has an entry that is not a number", key_shown(c, gguf, hf));
            return NULL;
        }
        out[i] = (float)x;
    }
    if (out) *n = count;
    return out;
}

const float *nn_config_reals(nn_config *c, const char *gguf, const char *hf, int *n) {
    return read_reals(c, gguf, hf, NAN, n);
}

const float *nn_config_layer_reals(nn_config *c, const char *gguf, const char *hf, double dflt) {
    int          n;
    const float *given = read_reals(c, gguf, hf, dflt, &n);
    float       *out = nn_config_alloc(c, (size_t)c->n_layer, sizeof *out);
    if (given && n < c->n_layer)
        nn_config_fail(c, "the field \"%s\" has %d numbers for %d layers", key_shown(c, gguf, hf), n, c->n_layer);
    for (int i = 0; i < c->n_layer && !c->failed; i++) out[i] = given ? given[i] : (float)dflt;
    return out;
}

const int *nn_config_layer_ints(nn_config *c, const char *gguf, const char *hf, int dflt) {
    int  *out = nn_config_alloc(c, (size_t)c->n_layer, sizeof *out);
    value v = find(c, gguf, hf);
    bool  differ = is_list(v);
    nn_override_looked(c, hf);
    for (int i = 0; i < c->n_layer && !c->failed; i++) {
        double x = dflt;
        value  own = { .json = nn_override_find(c, i, hf) };
        bool   ok = found(own)   ? number(own, -1, &x)
                    : !found(v)  ? true
                    : is_list(v) ? number(v, i, &x)
                                 : number(v, -1, &x);
        if (!ok || x != floor(x) || fabs(x) > MAX_WIDTH)
            nn_config_fail(c, "the field \"%s\" has no whole number for layer %d", key_shown(c, gguf, hf), i);
        else
            out[i] = (int)x;
        differ = differ || found(own);
    }
    nn_config_note *m = (differ || found(v)) && !c->failed ? note(c, gguf, differ ? 'I' : 'i') : NULL;
    if (m) {
        m->list = out;
        m->n_list = c->n_layer;
        m->value = c->n_layer ? out[0] : dflt;
        if (differ || !m->hf) note_hf(c, m, hf); /* one number keeps the name that it was found under first */
    }
    return out;
}

const int *nn_config_layer_is(nn_config *c, const char *gguf, const char *hf, const char *text, int every) {
    int   *out = nn_config_alloc(c, (size_t)c->n_layer, sizeof *out);
    value  v = find(c, gguf, hf);
    double x;
    if (found(v) && !is_list(v) && number(v, -1, &x)) every = x >= 0 && x < MAX_LAYERS ? (int)x : 0;
    for (int i = 0; i < c->n_layer && !c->failed; i++) {
        const char *s = is_list(v) ? json_cstr(json_at(v.json, (size_t)i)) : NULL;
        if (s)
            out[i] = strcmp(s, text) == 0;
        else if (!is_list(v))
            out[i] = every ? (i + 1) % every != 0 : 0;
        else if (number(v, i, &x))
            out[i] = x != 0;
        else
            nn_config_fail(c, "the field \"%s\" has no entry for layer %d", key_shown(c, gguf, hf), i);
    }
    nn_config_note *m = !c->failed ? note(c, gguf, 'B') : NULL;
    if (m) {
        m->list = out;
        m->n_list = c->n_layer;
        m->text = text;
        note_hf(c, m, hf);
    }
    return out;
}

bool nn_config_layer_has(nn_config *c, int i, const char *tensor) {
    char name[160];
    snprintf(name, sizeof name, "blk.%d.%s", i, tensor);
    return !c->file || (nn_config_gguf(c) && model_file_tensor(c->file, name));
}

const float *nn_config_tensor(nn_config *c, const char *name, int64_t n) {
    const model_tensor *t = c->file ? model_file_tensor(c->file, name) : NULL;
    if (!t) return NULL;
    if (t->type != TENSOR_F32 || t->dims[0] != n || t->bytes != (size_t)n * 4) {
        nn_config_fail(c, "tensor %s: expected %lld values of type F32", name, (long long)n);
        return NULL;
    }
    float *out = arena_alloc(c->mem, t->bytes);
    if (out) memcpy(out, t->data, t->bytes);
    return out;
}

/* --- around a part of a model -----------------------------------------------------------------------------------  */

int nn_config_outer_ints(nn_config *c, const char *gguf, const char *hf, int *out, int most) {
    const json_value *part = nn_config_step_out(c);
    value             v = find(c, gguf, hf);
    bool              list = is_list(v);
    int               n = list ? list_count(v) : found(v);
    if (n > most) nn_config_fail(c, "the field \"%s\" has %d numbers, more than %d", key_shown(c, gguf, hf), n, most);
    for (int i = 0; i < n && !c->failed; i++) {
        double x = 0;
        if (!number(v, list ? i : -1, &x) || x != floor(x) || fabs(x) > 1e6)
            nn_config_fail(c, "the field \"%s\" is not of whole numbers", key_shown(c, gguf, hf));
        else
            out[i] = (int)x;
    }
    c->root = part;
    return c->failed ? 0 : n;
}

/* --- dims and tables -------------------------------------------------------------------------------------------- */

/* max: the largest integer. A family's integers are counts and widths that it adds and multiplies. */
static void read_keys(nn_config *c, const nn_key *keys, void *hp, double max) {
    for (const nn_key *k = keys; k && k->type && !c->failed; k++) {
        double x = get_number(c, k->gguf, k->hf, k->type, k->dflt);
        char  *at = (char *)hp + k->offset;
        if (k->type == 'i') {
            int i = fabs(x) <= max ? (int)x : 0;
            if (fabs(x) > max) nn_config_fail(c, "the field \"%s\" is %g: too large", key_shown(c, k->gguf, k->hf), x);
            memcpy(at, &i, sizeof i);
        } else if (k->type == 'f') {
            float f = (float)x;
            memcpy(at, &f, sizeof f);
        } else {
            bool b = x != 0;
            memcpy(at, &b, sizeof b);
        }
    }
}

#define DIM(field, type, gguf, hf, dflt)                                                                               \
    { offsetof(nn_dims, field), type, gguf, hf, dflt }
static const nn_key dim_keys[] = {
    DIM(n_layer, 'i', "block_count",
        "num_hidden_layers|n_layer|num_layers|n_layers|num_transformer_layers|depth|"
        "encoder_layers|conf_num_hidden_layers",
        NN_REQUIRED),
    DIM(n_embd, 'i', "embedding_length", "hidden_size|n_embd|d_model|dim|model_dim", NN_REQUIRED),
    DIM(context, 'i', "context_length",
        "max_position_embeddings|n_positions|max_seq_len|seq_length|model_max_length|max_context_length", 0),
    { 0 },
};
static const nn_key head_keys[] = {
    DIM(n_head, 'i', "attention.head_count",
        "num_attention_heads|n_head|n_heads|attention_heads|num_heads|"
        "encoder_attention_heads|conf_num_attention_heads",
        NN_REQUIRED),
    { 0 },
};
static const nn_key kv_keys[] = {
    DIM(n_kv, 'i', "attention.head_count_kv",
        "num_key_value_heads|num_kv_heads|num_query_groups|multi_query_group_num|attn_config.kv_n_heads", 0),
    DIM(head_dim, 'i', "attention.key_length", "head_dim|kv_channels|d_kv", 0),
    { 0 },
};
static const nn_key ff_keys[] = {
    DIM(n_ff, 'i', "feed_forward_length",
        "intermediate_size|n_inner|ffn_dim|block_ff_dim|ffn_hidden_size|hidden_dim|d_ff|"
        "ffn_config.ffn_hidden_size|encoder_ffn_dim",
        NN_REQUIRED),
    { 0 },
};
static const nn_key eps_keys[] = {
    DIM(eps, 'f', "attention.layer_norm_rms_epsilon|attention.layer_norm_epsilon",
        "rms_norm_eps|layer_norm_eps|layer_norm_epsilon|norm_epsilon|norm_eps|layernorm_epsilon", NN_REQUIRED),
    { 0 },
};

static int read_vocab(nn_config *c) {
    if (c->file && nn_config_gguf(c)) {
        const meta_value *tokens = model_file_meta(c->file, "tokenizer.ggml.tokens");
        if (tokens && tokens->type == META_ARRAY && tokens->count <= MAX_WIDTH) {
            /* Ollama's files with a tower inside list words for parts of pictures that the model has no rows for. */
            const model_tensor *rows = model_file_tensor(c->file, "token_embd.weight");
            bool fewer = rows && rows->n_dims == 2 && rows->dims[1] > 0 && rows->dims[1] < (int64_t)tokens->count &&
                         nn_config_has(c, "vision.block_count", NULL);
            return fewer ? (int)rows->dims[1] : (int)tokens->count;
        }
    }
    return (int)fmax(-1, fmin(get_number(c, "vocab_size", "vocab_size", 'i', NN_REQUIRED), INT32_MAX));
}

static bool is_one_of(const char *const *list, const char *name) {
    for (; list && name && *list; list++) {
        if (strcmp(*list, name) == 0) return true;
    }
    return false;
}

/* Whether a missing head is the embedding. GGUF has no key for it and leaves the head out where it is tied. A
 * multimodal config.json decides at its top level, as transformers does; LFM2's own name comes before the common one,
 * as there. A config.json that says nothing follows the outer model type's class, or, where that is not one of ours,
 * the language model's. */
static void read_tied(nn_config *c) {
    static const char *const names[] = { "tie_embedding", "tie_word_embeddings" };
    const char              *outer, *inner;
    double                   x;
    c->tied = true;
    if (!c->file || nn_config_gguf(c)) return;
    for (int i = 0; i < 4; i++) {
        value v = { .json = json_get(i % 2 ? c->text : c->root, names[i / 2]) };
        if (!v.json || v.json->kind == JSON_K_NULL) continue;
        if (!json_is(v.json, JSON_K_BOOL) || !number(v, -1, &x)) {
            nn_config_fail(c, "the field \"%s\" is neither true nor false", names[i / 2]);
            return;
        }
        c->tied = x != 0;
        c->tied_by = names[i / 2];
        return;
    }
    static const char *const around[] = { "internvl", "aya_vision", "cohere2_vision", "lighton_ocr", "deepseek_vl",
                                          "ovis2",    NULL };
    outer = json_cstr(json_get(c->root, "model_type"));
    inner = json_cstr(json_get(c->text, "model_type"));
    c->tied = is_one_of(around, outer) || is_one_of(c->arch->tied, outer) ||
              (!is_one_of(c->arch->names, outer) && is_one_of(c->arch->tied, inner));
}

static void check_dims(nn_config *c, const nn_dims *d, unsigned lacks) {
    const struct {
        const char *name;
        int         v, max;
        unsigned    unless;
    } rows[] = {
        { "number of layers", d->n_layer, MAX_LAYERS, 0 },   { "embedding length", d->n_embd, MAX_WIDTH, 0 },
        { "vocabulary size", d->n_vocab, MAX_WIDTH, 0 },     { "number of heads", d->n_head, 65536, NN_LACKS_HEADS },
        { "head size", d->head_dim, 65536, NN_LACKS_HEADS }, { "feed-forward length", d->n_ff, MAX_WIDTH, NN_LACKS_FF },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!(lacks & rows[i].unless) && (rows[i].v <= 0 || rows[i].v > rows[i].max))
            nn_config_fail(c, "the %s is %d; it must lie between 1 and %d", rows[i].name, rows[i].v, rows[i].max);
    }
    if (lacks & NN_LACKS_HEADS) return;
    if (d->n_kv < 0 || d->n_kv > d->n_head || (d->n_kv && d->n_head % d->n_kv))
        nn_config_fail(c, "%d attention heads cannot share %d key heads", d->n_head, d->n_kv);
    if ((int64_t)d->n_head * d->head_dim > MAX_WIDTH)
        nn_config_fail(c, "%d heads of %d elements are too many", d->n_head, d->head_dim);
}

static void check_layers(nn_config *c, int64_t n) {
    if (!c->failed && (n <= 0 || n > MAX_LAYERS))
        nn_config_fail(c, "the number of layers is %lld; it must lie between 1 and %d", (long long)n, MAX_LAYERS);
}

void nn_config_layers(nn_config *c, nn_dims *d, int64_t n) {
    check_layers(c, n);
    if (!c->failed) c->n_layer = d->n_layer = (int)n;
}

int nn_config_read(nn_config *c, const nn_arch *arch, void *hp, err *e) {
    nn_dims *d = hp;
    c->arch = arch;
    int n_kinds = nn_config_count(c, NULL, "layers_block_type"); /* Nemotron-H: what transformers saves counts so */
    if (n_kinds && !nn_config_has(c, NULL, dim_keys[0].hf)) {
        read_keys(c, dim_keys + 1, d, INT32_MAX);
        d->n_layer = n_kinds;
        nn_config_derived_int(c, dim_keys[0].gguf, n_kinds);
    } else {
        read_keys(c, dim_keys, d, INT32_MAX);
    }
    check_layers(c, d->n_layer);
    c->n_layer = c->failed ? 0 : d->n_layer;
    if (!c->failed) d->n_vocab = arch->lacks & NN_LACKS_VOCAB ? 1 : read_vocab(c);
    if (!(arch->lacks & NN_LACKS_HEADS)) {
        read_keys(c, head_keys, d, INT32_MAX);
        read_keys(c, kv_keys, d, INT32_MAX);
        if (d->n_kv == 0 && !is_list(find(c, kv_keys[0].gguf, kv_keys[0].hf))) d->n_kv = d->n_head;
        if (d->head_dim == 0 && d->n_head > 0) d->head_dim = d->n_embd / d->n_head;
    }
    if (!(arch->lacks & NN_LACKS_FF)) read_keys(c, ff_keys, d, INT32_MAX);
    if (!(arch->lacks & NN_LACKS_EPS)) read_keys(c, eps_keys, d, INT32_MAX);
    read_keys(c, arch->keys, hp, MAX_WIDTH);
    if (!c->failed) read_tied(c);
    if (!c->failed) check_dims(c, d, arch->lacks);
    if (!c->failed && arch->setup) arch->setup(c, hp);
    if (!c->failed) nn_known_check(c);
    if (!c->failed) nn_overrides_check(c);
    if (!c->failed) return 0;
    if (e) *e = c->error;
    return c->error.code;
}
