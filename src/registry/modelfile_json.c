/* SPDX-License-Identifier: Apache-2.0 */
/* A Modelfile's content as the JSON settings of a model, and back. */
#include "base/json.h"
#include "registry/modelfile.h"
#include "registry/modelfile_params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETTINGS = 64 << 20 };

/* --- to JSON --- */

typedef struct writer {
    str *out;
    bool first;
} writer;

static void put_key(writer *w, const char *key, size_t len) {
    if (!w->first) str_push(w->out, ',');
    w->first = false;
    str_put_json(w->out, key, len);
    str_push(w->out, ':');
}

static void put_text(writer *w, const char *key, const char *text) {
    put_key(w, key, strlen(key));
    str_put_json(w->out, text, strlen(text));
}

static const modelfile_pair *param_of(const modelfile *m, view key) {
    for (size_t i = 0; i < m->n_params; i++) {
        if (view_eq_c(key, m->params[i].name)) return &m->params[i];
    }
    return NULL;
}

/* What Ollama writes for "no limit" is the absence of the key here. */
static bool says_nothing(const modelfile_pair *p) { return p->value[0] == '-' && strcmp(p->name, "max_tokens") == 0; }

static void put_number(writer *w, const modelfile_pair *p) {
    put_key(w, p->name, strlen(p->name));
    if (p->kind == PARAM_INT)
        str_printf(w->out, "%lld", strtoll(p->value, NULL, 10));
    else
        str_put_real(w->out, strtod(p->value, NULL));
}

static void put_stop(writer *w, const modelfile *m) {
    bool first = true;
    put_key(w, "stop", 4);
    str_push(w->out, '[');
    for (size_t i = 0; i < m->n_params; i++) {
        if (m->params[i].kind != PARAM_STOP) continue;
        if (!first) str_push(w->out, ',');
        first = false;
        str_put_json(w->out, m->params[i].value, strlen(m->params[i].value));
    }
    str_push(w->out, ']');
}

/* What the base has in the section, and over it the parameters of m. */
static void put_section(writer *outer, const modelfile *m, const char *section, const json_value *settings) {
    const json_value *base = json_get(settings, section);
    str               text;
    writer            w = { &text, true };
    str_init(&text);
    for (size_t i = 0; json_is(base, JSON_K_OBJECT) && i < base->u.object.count; i++) {
        const json_member *k = &base->u.object.members[i];
        if (param_of(m, k->key)) continue;
        put_key(&w, k->key.data, k->key.len);
        json_write(&k->value, &text);
    }
    for (size_t i = 0; i < modelfile_n_params; i++) { /* in one order, so that equal settings are equal texts */
        const modelfile_param *of = &modelfile_params[i];
        const modelfile_pair  *p = of->key ? param_of(m, view_of(of->key)) : NULL;
        if (!p || !of->section || strcmp(of->section, section) != 0 || says_nothing(p)) continue;
        if (p->kind == PARAM_STOP)
            put_stop(&w, m);
        else if (p->kind == PARAM_PAGES)
            put_text(&w, p->name, p->value);
        else
            put_number(&w, p);
    }
    if (text.len) {
        put_key(outer, section, strlen(section));
        str_printf(outer->out, "{%s}", str_cstr(&text));
    }
    if (!str_ok(&text)) outer->out->failed = true;
    str_deinit(&text);
}

static void put_messages(writer *w, const modelfile *m) {
    put_key(w, "messages", 8);
    str_push(w->out, '[');
    for (size_t i = 0; i < m->n_messages; i++) {
        writer inner = { w->out, true };
        str_puts(w->out, i ? ",{" : "{");
        put_text(&inner, "role", m->messages[i].name);
        put_text(&inner, "content", m->messages[i].value);
        str_push(w->out, '}');
    }
    str_push(w->out, ']');
}

static void put_adapters(writer *w, const modelfile *m) {
    put_key(w, "adapters", 8);
    str_push(w->out, '[');
    for (size_t i = 0; i < m->n_adapters; i++) {
        writer inner = { w->out, true };
        str_puts(w->out, i ? ",{" : "{");
        put_text(&inner, "path", m->adapters[i]);
        str_push(w->out, '}');
    }
    str_push(w->out, ']');
}

/* Is the key of the base replaced by something in m? */
static bool replaced(const modelfile *m, view key) {
    if (view_eq_c(key, "context")) return param_of(m, key) != NULL;
    if (view_eq_c(key, "system")) return m->system != NULL;
    if (view_eq_c(key, "template") || view_eq_c(key, "template_file")) return m->template_text != NULL;
    if (view_eq_c(key, "license")) return m->license != NULL;
    if (view_eq_c(key, "draft")) return m->draft != NULL;
    if (view_eq_c(key, "mmproj")) return m->mmproj != NULL;
    if (view_eq_c(key, "messages")) return m->n_messages > 0;
    if (view_eq_c(key, "adapters")) return m->n_adapters > 0;
    return view_eq_c(key, "sampling") || view_eq_c(key, "kv_cache"); /* merged */
}

static int parse_settings(const json_value **out, const char *text, arena *a, err *e) {
    *out = NULL;
    if (!text || !*text) return 0;
    int rc = json_parse(out, text, strlen(text), a, e);
    if (rc == 0 && !json_is(*out, JSON_K_OBJECT)) rc = err_set(e, ERR_FORMAT, "expected an object");
    return rc < 0 ? err_wrap(e, rc, "settings of the model") : 0;
}

int modelfile_settings(const modelfile *m, const char *base, str *out, err *e) {
    const json_value     *old;
    const modelfile_pair *context = param_of(m, view_of("context"));
    writer                w = { out, true };
    arena                 a;
    arena_init(&a, MAX_SETTINGS);
    int rc = parse_settings(&old, base, &a, e);
    if (rc == 0) {
        str_push(out, '{');
        for (size_t i = 0; old && i < old->u.object.count; i++) {
            const json_member *k = &old->u.object.members[i];
            if (replaced(m, k->key)) continue;
            put_key(&w, k->key.data, k->key.len);
            json_write(&k->value, out);
        }
        if (context) put_number(&w, context);
        if (m->system) put_text(&w, "system", m->system);
        if (m->template_text) put_text(&w, "template", m->template_text);
        put_section(&w, m, "sampling", old);
        put_section(&w, m, "kv_cache", old);
        if (m->n_messages) put_messages(&w, m);
        if (m->n_adapters) put_adapters(&w, m);
        if (m->draft) put_text(&w, "draft", m->draft);
        if (m->mmproj) put_text(&w, "mmproj", m->mmproj);
        if (m->license) put_text(&w, "license", m->license);
        str_push(out, '}');
        if (!str_ok(out)) rc = err_set_nomem(e);
    }
    arena_deinit(&a);
    return rc;
}

/* --- from JSON --- */

/* Would the reader take exactly this text from between these quotes? */
static bool holds(const char *text, const char *quotes) {
    size_t n = strlen(quotes), len = strlen(text);
    if (strchr(text, '\r')) return false;
    if (n == 0)
        return len > 0 && !strchr(text, '\n') && text[0] != '"' && !strchr(" \t", text[0]) &&
               !strchr(" \t", text[len - 1]);
    if (n == 1 && strncmp(text, "\"\"", 2) == 0) return false; /* would read as three */
    if (n == 1 && len && text[0] == '"' && len == 1) return false;
    /* no line but the last may end with the quotes, blanks aside */
    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        const char *stop = end;
        while (stop > p && (stop[-1] == ' ' || stop[-1] == '\t')) stop--;
        size_t have = (size_t)(stop - text);
        if (have + n >= 2 * n && (size_t)(stop - p) >= n && memcmp(stop - n, quotes, n) == 0) return false;
        /* the opening quotes are part of the first line */
        if (p == text && have < n && have + n >= 2 * n) return false;
    }
    return true;
}

static int put_line(str *out, const char *instruction, const char *text, err *e) {
    static const char *const quotes[] = { "", "\"\"\"", "\"" };
    for (size_t i = 0; i < 3; i++) {
        if (!holds(text, quotes[i])) continue;
        str_printf(out, "%s %s%s%s\n", instruction, quotes[i], text, quotes[i]);
        return 0;
    }
    return err_set(e, ERR_UNSUPPORTED, "%s: a Modelfile cannot hold this text", instruction);
}

static int put_value(str *out, const char *prefix, const char *name, const json_value *v, err *e) {
    str head;
    int rc = 0;
    str_init(&head);
    str_printf(&head, "%s%s", prefix, name);
    if (json_is(v, JSON_K_STRING)) {
        rc = put_line(out, str_cstr(&head), json_cstr(v), e);
    } else {
        str_printf(out, "%s ", str_cstr(&head));
        json_write(v, out);
        str_push(out, '\n');
    }
    str_deinit(&head);
    return rc;
}

static int put_params(str *out, const char *prefix, const json_value *settings, err *e) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < modelfile_n_params; i++) {
        const modelfile_param *p = &modelfile_params[i];
        if (!p->key) continue;
        const json_value *v = json_get(p->section ? json_get(settings, p->section) : settings, p->key);
        if (!v) continue;
        if (json_is(v, JSON_K_ARRAY)) {
            for (size_t k = 0; rc == 0 && k < json_count(v); k++)
                rc = put_value(out, prefix, p->name, json_at(v, k), e);
        } else {
            rc = put_value(out, prefix, p->name, v, e);
        }
    }
    return rc;
}

static int put_text_of(str *out, const char *instruction, const json_value *settings, const char *key, err *e) {
    const char *text = json_cstr(json_get(settings, key));
    return text ? put_line(out, instruction, text, e) : 0;
}

static void put_foreign(str *out, const json_value *settings) {
    static const char *const known[] = { "context",  "system",  "template", "sampling", "messages",
                                         "adapters", "license", "draft",    "kv_cache" };
    for (size_t i = 0; settings && i < settings->u.object.count; i++) {
        view key = settings->u.object.members[i].key;
        bool in = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++) in = in || view_eq_c(key, known[k]);
        if (!in) str_printf(out, "# a Modelfile has no word for %.*s\n", (int)key.len, key.data);
    }
}

static int put_rest(str *out, const json_value *settings, err *e) {
    const json_value *messages = json_get(settings, "messages"), *adapters = json_get(settings, "adapters");
    int               rc = 0;
    for (size_t i = 0; rc == 0 && i < json_count(adapters); i++) {
        const char *path = json_cstr(json_get(json_at(adapters, i), "path"));
        if (path) rc = put_line(out, "ADAPTER", path, e);
    }
    for (size_t i = 0; rc == 0 && i < json_count(messages); i++) {
        const char *role = json_cstr(json_get(json_at(messages, i), "role"));
        if (role) rc = put_value(out, "MESSAGE ", role, json_get(json_at(messages, i), "content"), e);
    }
    return rc;
}

int modelfile_print(const char *from, const char *settings, str *out, err *e) {
    const json_value *v;
    arena             a;
    arena_init(&a, MAX_SETTINGS);
    int rc = parse_settings(&v, settings, &a, e);
    if (rc == 0) rc = put_line(out, "FROM", from, e);
    if (rc == 0) rc = put_text_of(out, "TEMPLATE", v, "template", e);
    if (rc == 0) rc = put_text_of(out, "SYSTEM", v, "system", e);
    if (rc == 0) rc = put_params(out, "PARAMETER ", v, e);
    if (rc == 0) rc = put_rest(out, v, e);
    if (rc == 0) rc = put_text_of(out, "DRAFT", v, "draft", e);
    if (rc == 0) rc = put_text_of(out, "LICENSE", v, "license", e);
    if (rc == 0) put_foreign(out, v);
    if (rc == 0 && !str_ok(out)) rc = err_set_nomem(e);
    arena_deinit(&a);
    return rc;
}

int modelfile_print_params(const char *settings, str *out, err *e) {
    const json_value *v;
    arena             a;
    arena_init(&a, MAX_SETTINGS);
    int rc = parse_settings(&v, settings, &a, e);
    if (rc == 0) rc = put_params(out, "", v, e);
    arena_deinit(&a);
    return rc;
}
