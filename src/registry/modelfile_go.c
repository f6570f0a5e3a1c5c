/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's templates, as Ollama renders them, written in Jinja.
 *
 * A template that reads .Messages is rendered once: system messages are also joined as .System, neighbours of one role
 * are one message (but for tools), .Prompt and .Response are empty. Any other template is rendered once per turn with
 * .System, .Prompt and .Response, and at the end once more without what stands behind .Response; one that never prints
 * .Response gets it at its end.
 *
 * Blocks become their Jinja twins. What prints a structure prints JSON with <, > and & escaped, and a value of the user's
 * JSON is printed as Go prints it; only numbers keep the form in which they came (Go would write a million as 1e+06).
 * A map is walked through in the order of its keys. Not translated, and said so by the caller: templates within templates
 * (define, template, block), methods, functions that Ollama does not have, the root as a value.
 */
#include "registry/modelfile_go.h"

#include "base/err.h"
#include "registry/modelfile_params.h"

#include <ctype.h>
#include <string.h>

static void put_text(str *out, const char *text, size_t n) {
    str_puts(out, "{{ ");
    go_put_string(out, text, n);
    str_puts(out, " }}");
}

/* --- blocks --- */

static void enter(go *g, go_block block, const go_value *dot) {
    if (g->n_scopes == GO_MAX_NESTING) {
        g->bad = true;
        return;
    }
    g->scopes[g->n_scopes++] = (go_scope){ .block = block,
                                           .dot = g->dot,
                                           .dot_kind = g->dot_kind,
                                           .dot_item = g->dot_item,
                                           .n_vars = g->n_vars,
                                           .silent = g->cut };
    if (block == GO_IF) return;
    g->dot = ++g->n_dots;
    g->dot_kind = block == GO_RANGE ? dot->item : dot->kind;
    g->dot_item = block == GO_RANGE ? GO_ANY : dot->item;
}

static go_scope *innermost(go *g) {
    if (g->n_scopes) return &g->scopes[g->n_scopes - 1];
    g->bad = true;
    return NULL;
}

static void restore(go *g, const go_scope *s) {
    g->dot = s->dot;
    g->dot_kind = s->dot_kind;
    g->dot_item = s->dot_item;
}

static void leave(go *g) {
    const go_scope *s = innermost(g);
    while (s) {
        restore(g, s);
        g->n_vars = s->n_vars;
        g->n_scopes--;
        if (!s->silent) str_puts(g->out, s->block == GO_RANGE ? "{% endfor %}" : "{% endif %}");
        s = s->chained ? innermost(g) : NULL;
    }
}

/* Where an action writes: behind the cut nobody reads it. */
static str *sink(go *g) { return g->cut ? &g->unheard : g->out; }

static int declare(go *g, const char *name, const go_value *v) {
    if (g->n_vars == GO_MAX_VARS) {
        g->bad = true;
        return 0;
    }
    go_var *x = &g->vars[g->n_vars++];
    memcpy(x->name, name, strlen(name) + 1);
    x->id = ++g->n_ids;
    x->kind = v->kind;
    x->item = v->item;
    return x->id;
}

/* "$x :=" or "$x =" in front of a pipeline. */
typedef enum binding { BIND_NONE, BIND_NEW, BIND_OLD } binding;

static binding read_binding(go *g, char name[GO_MAX_WORD]) {
    const char *begin = g->at;
    if (go_takes(g, "$")) {
        go_word(g, name);
        if (*name && go_takes(g, ":=")) return BIND_NEW;
        if (*name && go_takes(g, "=")) return BIND_OLD;
    }
    g->at = begin;
    return BIND_NONE;
}

static void put_binding(go *g, binding b, const char *name, const go_value *v) {
    const go_var *old = b == BIND_OLD ? go_var_find(g, name) : NULL;
    int           id = old ? old->id : b == BIND_NEW ? declare(g, name, v) : 0;
    if (id) str_printf(sink(g), "{%% set go.v%d = %s %%}", id, str_cstr(&v->text));
}

/* if and with: the condition may declare a variable, which belongs to the block. */
static void condition(go *g, go_block block) {
    char     name[GO_MAX_WORD];
    binding  b = read_binding(g, name);
    go_value v;
    go_value_init(&v);
    go_pipeline(g, &v);
    enter(g, block, &v);
    put_binding(g, b, name, &v);
    if (block == GO_WITH)
        str_printf(sink(g), "{%% set dot%d = %s %%}{%% if dot%d %%}", g->dot, str_cstr(&v.text), g->dot);
    else
        str_printf(sink(g), "{%% if %s %%}", str_cstr(&v.text));
    go_value_deinit(&v);
}

/* A map is a list of pairs in the order of its keys; what it is shows only when it is rendered. */
static void range_action(go *g) {
    const char *begin = g->at;
    char        names[2][GO_MAX_WORD];
    int         n = 0;
    go_value    list, key, item;
    while (n < 2 && go_takes(g, "$")) {
        go_word(g, names[n++]);
        if (!go_takes(g, ",")) break;
    }
    if (n && !go_takes(g, ":=")) {
        g->at = begin;
        n = 0;
    }
    go_value_init(&list);
    go_value_init(&key);
    go_value_init(&item);
    go_pipeline(g, &list);
    enter(g, GO_RANGE, &list);
    const char *of = str_cstr(&list.text);
    str_printf(sink(g),
               "{%% set range%d = %s %%}{%% for at%d in (range%d|dictsort(true) if range%d is mapping else "
               "range%d) or [] %%}{%% set dot%d = at%d[1] if range%d is mapping else at%d %%}",
               g->dot, of, g->dot, g->dot, g->dot, g->dot, g->dot, g->dot, g->dot, g->dot);
    key.kind = GO_ANY;
    str_printf(&key.text, "(at%d[0] if range%d is mapping else loop.index0)", g->dot, g->dot);
    str_printf(&item.text, "dot%d", g->dot);
    item.kind = g->dot_kind;
    item.item = g->dot_item;
    go_value_check(g, &key);
    go_value_check(g, &item);
    if (n == 2) put_binding(g, BIND_NEW, names[0], &key);
    if (n) put_binding(g, BIND_NEW, names[n - 1], &item);
    go_value_deinit(&list);
    go_value_deinit(&key);
    go_value_deinit(&item);
}

static void else_action(go *g) {
    go_scope *s = innermost(g);
    if (!s || s->other) {
        g->bad = true;
        return;
    }
    s->other = true;
    restore(g, s);
    g->n_vars = s->n_vars;
    bool silent = s->silent, with = go_takes(g, "with");
    if (!silent) str_puts(g->out, "{% else %}");
    if (!with && !go_takes(g, "if")) return;
    condition(g, with ? GO_WITH : GO_IF);
    if (!g->bad) g->scopes[g->n_scopes - 1].chained = true;
}

static void jump(go *g, const char *what) {
    for (int i = g->n_scopes; i > 0; i--) {
        if (g->scopes[i - 1].block != GO_RANGE || g->scopes[i - 1].other) continue; /* an else is not in its loop */
        str_printf(sink(g), "{%% %s %%}", what);
        return;
    }
    g->bad = true;
}

/* --- actions --- */

static void put_value(str *out, const go_value *v) {
    const char *x = str_cstr(&v->text);
    switch (v->kind) {
    case GO_TEXT: str_printf(out, "{{ %s or '' }}", x); return;
    case GO_INT: str_printf(out, "{{ %s }}", x); return;
    case GO_BOOL: str_printf(out, "{{ 'true' if %s else 'false' }}", x); return;
    case GO_JSON: str_printf(out, "{{ %s if %s is string else go_json(%s) }}", x, x, x); return;
    case GO_TYPE:
        str_printf(out, "{{ go_show(%s[0] if %s is not string and %s|length == 1 else %s) }}", x, x, x, x);
        return;
    case GO_ANY: str_printf(out, "{{ '<no value>' if %s is none else go_show(%s) }}", x, x); return;
    }
}

static void other_action(go *g) {
    char     name[GO_MAX_WORD];
    binding  b = read_binding(g, name);
    go_value v;
    bool     answered = g->response;
    go_value_init(&v);
    g->response = false;
    go_pipeline(g, &v);
    if (b == BIND_NONE)
        put_value(sink(g), &v);
    else
        put_binding(g, b, name, &v);
    g->cut = g->cut || (g->cuts && g->response);
    g->response = g->response || answered;
    go_value_deinit(&v);
}

static void action(go *g) {
    if (go_takes(g, "/*"))
        g->at = g->end;
    else if (go_takes(g, "if"))
        condition(g, GO_IF);
    else if (go_takes(g, "with"))
        condition(g, GO_WITH);
    else if (go_takes(g, "range"))
        range_action(g);
    else if (go_takes(g, "else"))
        else_action(g);
    else if (go_takes(g, "end"))
        leave(g);
    else if (go_takes(g, "break"))
        jump(g, "break");
    else if (go_takes(g, "continue"))
        jump(g, "continue");
    else
        other_action(g);
    go_skip_space(g);
    if (g->at < g->end) g->bad = true;
}

/* The end of an action: braces inside a string or a comment do not count. NULL: there is none. */
static const char *action_end(const char *p) {
    const char *comment = p + strspn(p, " \t\r\n");
    if (comment[0] == '/' && comment[1] == '*') {
        p = strstr(comment + 2, "*/");
        return p ? strstr(p, "}}") : NULL;
    }
    for (; *p; p++) {
        if (p[0] == '}' && p[1] == '}') return p;
        if (*p != '"' && *p != '`') continue;
        char quote = *p++;
        while (*p && *p != quote) p += quote == '"' && p[0] == '\\' && p[1] ? 2 : 1;
        if (!*p) return NULL;
    }
    return NULL;
}

static int refuse(const char *open, const char *close, err *e) {
    size_t n = (size_t)(close + 2 - open);
    return err_set(
        e, ERR_UNSUPPORTED,
        "the template is written in Go's language, and '%.*s%s' in it is not supported; leave the template out "
        "(the model's own is used then) or write it in Jinja",
        (int)(n < 80 ? n : 80), open, n < 80 ? "" : "...");
}

/* Texts and actions; a minus sign with a space behind or before it trims the text beside it. */
static int body(go *g, const char *text, err *e) {
    bool trim = false;
    while (*text && !g->bad) {
        const char *open = strstr(text, "{{"), *stop = open ? open : text + strlen(text);
        bool        before = open && open[2] == '-' && isspace((unsigned char)open[3]);
        while (trim && text < stop && isspace((unsigned char)*text)) text++;
        while (before && stop > text && isspace((unsigned char)stop[-1])) stop--;
        if (stop > text) put_text(sink(g), text, (size_t)(stop - text));
        if (!open) break;
        g->at = open + 2 + before;
        const char *close = action_end(g->at);
        if (!close) return err_set(e, ERR_FORMAT, "the template is written in Go's language, and an action has no end");
        trim = close > g->at + 1 && close[-1] == '-' && isspace((unsigned char)close[-2]);
        g->end = trim ? close - 1 : close;
        while (g->end > g->at && isspace((unsigned char)g->end[-1])) g->end--;
        action(g);
        if (g->bad && !g->nomem) return refuse(open, close, e);
        text = close + 2;
    }
    if (g->nomem || !str_ok(&g->unheard)) return err_set_nomem(e);
    if (g->n_scopes) return err_set(e, ERR_FORMAT, "the template is written in Go's language, and a block has no end");
    return 0;
}

/* --- the whole --- */

/* What the translation calls; `go` also holds the variables. Neighbours are joined only where there are any. */
static const char prelude[] =
    "{%- macro go_json(v) -%}{{ v|tojson(separators=(',', ':'))|replace('<', '\\\\u003c')|replace('>', '\\\\u003e')|"
    "replace('&', '\\\\u0026') }}{%- endmacro -%}"
    "{%- macro go_show(v) -%}{%- if v is undefined -%}{%- elif v is string -%}{{ v }}{%- elif v is none -%}"
    "{{ '<nil>' }}{%- elif v is true -%}true{%- elif v is false -%}false{%- elif v is mapping -%}{{ 'map[' }}"
    "{%- for k, x in v|dictsort(true) -%}{{ ('' if loop.first else ' ') ~ k ~ ':' ~ go_show(x) }}{%- endfor -%}"
    "{{ ']' }}{%- elif v is iterable -%}{{ '[' }}{%- for x in v -%}{{ ('' if loop.first else ' ') ~ go_show(x) }}"
    "{%- endfor -%}{{ ']' }}{%- else -%}{{ v }}{%- endif -%}{%- endmacro -%}"
    "{%- set go = namespace(list=messages, same=false, role='', last=none) -%}"
    "{%- for m in messages -%}{%- if m['role'] == go.role and go.role != 'tool' -%}{%- set go.same = true -%}"
    "{%- endif -%}{%- set go.role = m['role'] -%}{%- endfor -%}"
    "{%- if go.same -%}{%- set go.list = [] -%}{%- for m in messages -%}"
    "{%- if go.last is not none and go.last['role'] == m['role'] and m['role'] != 'tool' -%}"
    "{%- set go.last = dict(go.last, content=(go.last['content'] or '') ~ '\\n\\n' ~ (m['content'] or '')) -%}"
    "{%- set go.list = go.list[:-1] + [go.last] -%}{%- else -%}{%- set go.last = m -%}"
    "{%- set go.list = go.list + [m] -%}{%- endif -%}{%- endfor -%}{%- endif -%}";

static const char by_messages[] =
    "{%- set go_messages = go.list -%}{%- set go_prompt = '' -%}{%- set go_response = '' -%}"
    "{%- set go_system = messages|selectattr('role', 'equalto', 'system')|map(attribute='content')|join('\\n\\n') -%}";

/* A turn is over when the next part of one does not fit behind it. */
static const char by_turns[] =
    "{%- set go.system = '' -%}{%- set go.prompt = '' -%}{%- set go.response = '' -%}{%- for m in go.list -%}"
    "{%- if (m['role'] == 'system' and (go.prompt or go.response)) or (m['role'] == 'user' and go.response) -%}"
    "{{ go_turn(go.system, go.prompt, go.response) }}"
    "{%- set go.system = '' -%}{%- set go.prompt = '' -%}{%- set go.response = '' -%}{%- endif -%}"
    "{%- if m['role'] == 'system' -%}{%- set go.system = m['content'] -%}{%- elif m['role'] == 'user' -%}"
    "{%- set go.prompt = m['content'] -%}{%- elif m['role'] == 'assistant' -%}{%- set go.response = m['content'] -%}"
    "{%- endif -%}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{%- set go_system = go.system -%}{%- set go_prompt = go.prompt -%}"
    "{%- set go_response = go.response -%}";

static const char last_turn[] = "{%- elif go.system or go.prompt or go.response -%}"
                                "{{ go_turn(go.system, go.prompt, go.response) }}{%- endif -%}";

static int turn(const char *text, bool cuts, str *out, err *e) {
    go g = { .out = out, .cuts = cuts };
    str_init(&g.unheard);
    int rc = body(&g, text, e);
    if (rc == 0 && !g.response) str_puts(out, "{{ go_response or '' }}");
    str_deinit(&g.unheard);
    return rc;
}

static int turns(const char *text, str *out, err *e) {
    int rc;
    str_puts(out, "{%- macro go_turn(go_system, go_prompt, go_response) -%}");
    if ((rc = turn(text, false, out, e)) < 0) return rc;
    str_puts(out, "{%- endmacro -%}");
    str_puts(out, by_turns);
    if ((rc = turn(text, true, out, e)) < 0) return rc;
    str_puts(out, last_turn);
    return 0;
}

int modelfile_go_template(const char *text, str *out, err *e) {
    str once;
    go  g = { .out = &once };
    str_init(&once);
    str_init(&g.unheard);
    int rc = body(&g, text, e);
    str_puts(out, prelude);
    if (rc == 0 && g.messages) {
        str_puts(out, by_messages);
        str_append(out, str_cstr(&once), once.len);
    } else if (rc == 0) {
        rc = turns(text, out, e);
    }
    if (rc == 0 && (!str_ok(&once) || !str_ok(out))) rc = err_set_nomem(e);
    str_deinit(&once);
    str_deinit(&g.unheard);
    return rc;
}
