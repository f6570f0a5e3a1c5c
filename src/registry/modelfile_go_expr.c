/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of Go's templates in Jinja: operands with their fields, functions, pipes. See modelfile_go.h. */
#include "registry/modelfile_go.h"

#include <ctype.h>
#include <string.h>

void go_value_init(go_value *v) {
    *v = (go_value){ .kind = GO_TEXT, .item = GO_ANY };
    str_init(&v->text);
}

void go_value_deinit(go_value *v) { str_deinit(&v->text); }

void go_value_check(go *g, const go_value *v) {
    if (!str_ok(&v->text)) g->bad = g->nomem = true;
}

void go_skip_space(go *g) {
    while (g->at < g->end && isspace((unsigned char)*g->at)) g->at++;
}

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

void go_word(go *g, char out[GO_MAX_WORD]) {
    size_t n = 0;
    for (; g->at < g->end && is_word(*g->at); g->at++) {
        if (n + 1 < GO_MAX_WORD)
            out[n++] = *g->at;
        else
            g->bad = true;
    }
    out[n] = '\0';
}

bool go_takes(go *g, const char *what) {
    size_t n = strlen(what);
    go_skip_space(g);
    if ((size_t)(g->end - g->at) < n || memcmp(g->at, what, n) != 0) return false;
    if (is_word(what[n - 1]) && g->at + n < g->end && is_word(g->at[n])) return false;
    g->at += n;
    return true;
}

go_var *go_var_find(go *g, const char *name) {
    for (int i = g->n_vars; i > 0; i--) {
        if (strcmp(g->vars[i - 1].name, name) == 0) return &g->vars[i - 1];
    }
    g->bad = true;
    return NULL;
}

void go_put_string(str *out, const char *text, size_t n) {
    str_push(out, '\'');
    for (size_t i = 0; i < n; i++) {
        switch (text[i]) {
        case '\'':
        case '\\': str_printf(out, "\\%c", text[i]); break;
        case '\n': str_puts(out, "\\n"); break;
        case '\r': str_puts(out, "\\r"); break;
        default: str_push(out, text[i]);
        }
    }
    str_push(out, '\'');
}

/* --- operands --- */

typedef struct field {
    const char *name, *jinja;
    go_kind     kind, item;
} field;

/* Where messages are walked through, .Prompt and .Response are empty; where turns are, .Messages does not occur. */
static void root_field(go *g, const char *name, go_value *out) {
    static const field fields[] = { { "System", "go_system", GO_TEXT, GO_ANY },
                                    { "Messages", "go_messages", GO_JSON, GO_JSON },
                                    { "Tools", "(tools or [])", GO_JSON, GO_JSON },
                                    { "Prompt", "go_prompt", GO_TEXT, GO_ANY },
                                    { "Response", "go_response", GO_TEXT, GO_ANY },
                                    { "Suffix", "''", GO_TEXT, GO_ANY },
                                    { "Think", "(enable_thinking or false)", GO_BOOL, GO_ANY },
                                    { "ThinkLevel", "(reasoning_effort or '')", GO_TEXT, GO_ANY },
                                    { "IsThinkSet", "(enable_thinking is defined)", GO_BOOL, GO_ANY } };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(name, fields[i].name) != 0) continue;
        str_puts(&out->text, fields[i].jinja);
        out->kind = fields[i].kind;
        out->item = fields[i].item;
        if (i == 1) g->messages = true;
        if (strcmp(name, "Response") == 0) g->response = true;
        return;
    }
    g->bad = true;
}

static void member(go *g, const char *name, go_value *out) {
    static const field fields[] = { { "Role", "role", GO_TEXT, GO_ANY },
                                    { "Content", "content", GO_TEXT, GO_ANY },
                                    { "Thinking", "thinking", GO_TEXT, GO_ANY },
                                    { "ToolCalls", "tool_calls", GO_JSON, GO_JSON },
                                    { "ToolName", "name", GO_TEXT, GO_ANY },
                                    { "ToolCallID", "tool_call_id", GO_TEXT, GO_ANY },
                                    { "Function", "function", GO_JSON, GO_ANY },
                                    { "Name", "name", GO_TEXT, GO_ANY },
                                    { "Arguments", "arguments", GO_JSON, GO_ANY },
                                    { "Parameters", "parameters", GO_JSON, GO_ANY },
                                    { "Properties", "properties", GO_JSON, GO_JSON },
                                    { "Required", "required", GO_ANY, GO_ANY },
                                    { "Enum", "enum", GO_ANY, GO_ANY },
                                    { "Items", "items", GO_ANY, GO_ANY },
                                    { "Description", "description", GO_TEXT, GO_ANY },
                                    { "Type", "type", GO_TYPE, GO_ANY },
                                    { "ID", "id", GO_TEXT, GO_ANY } };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(name, fields[i].name) != 0) continue;
        str_printf(&out->text, "['%s']", fields[i].jinja);
        out->kind = fields[i].kind;
        out->item = fields[i].item;
        return;
    }
    g->bad = true;
}

/* .A.B behind a value; root: the first one is a field of the root. */
static void members(go *g, bool root, go_value *out) {
    char name[GO_MAX_WORD];
    while (!g->bad && g->at < g->end && *g->at == '.') {
        g->at++;
        go_word(g, name);
        if (root)
            root_field(g, name, out);
        else
            member(g, name, out);
        root = false;
    }
}

static void variable(go *g, go_value *out) {
    char name[GO_MAX_WORD];
    g->at++;
    go_word(g, name);
    if (!*name) { /* $ is the root, which is not a value by itself */
        g->bad = g->bad || g->at >= g->end || *g->at != '.';
        members(g, true, out);
        return;
    }
    const go_var *v = go_var_find(g, name);
    if (!v) return;
    str_printf(&out->text, "go.v%d", v->id);
    out->kind = v->kind;
    out->item = v->item;
    members(g, false, out);
}

static void dot(go *g, go_value *out) {
    bool bare = g->at + 1 >= g->end || !is_word(g->at[1]);
    if (!g->dot) {
        g->bad = g->bad || bare;
        members(g, true, out);
        return;
    }
    str_printf(&out->text, "dot%d", g->dot);
    out->kind = g->dot_kind;
    out->item = g->dot_item;
    if (bare)
        g->at++;
    else
        members(g, false, out);
}

/* Behind a backslash: what means the same in Jinja. \x is a byte there and a character here. */
static bool is_escape(const char *at, const char *end) {
    if (*at != 'u') return strchr("\\\"ntrabfv", *at) != NULL;
    for (int i = 1; i <= 4; i++) {
        if (at + i >= end || !isxdigit((unsigned char)at[i])) return false;
    }
    return true;
}

/* The escapes of Go that Jinja does not have are not understood; raw strings are written anew. */
static void string(go *g, go_value *out) {
    const char *from = ++g->at;
    if (from[-1] == '`') {
        while (g->at < g->end && *g->at != '`') g->at++;
        go_put_string(&out->text, from, (size_t)(g->at - from));
    } else {
        str_push(&out->text, '\'');
        for (; g->at < g->end && *g->at != '"'; g->at++) {
            if (*g->at == '\'') str_push(&out->text, '\\');
            str_push(&out->text, *g->at);
            if (*g->at != '\\') continue;
            g->at++;
            if (g->at >= g->end || !is_escape(g->at, g->end)) g->bad = true;
            if (g->at < g->end) str_push(&out->text, *g->at);
        }
        str_push(&out->text, '\'');
    }
    if (g->at >= g->end) g->bad = true;
    g->at++;
    out->kind = GO_TEXT;
}

/* A decimal number; 017 and 0x1f would be other numbers there, or none here. */
static void number(go *g, go_value *out) {
    const char *from = g->at, *digits = from + (*from == '-');
    for (g->at = digits; g->at < g->end && isdigit((unsigned char)*g->at);) g->at++;
    bool whole = g->at > digits && (*digits != '0' || g->at == digits + 1);
    if (g->at + 1 < g->end && *g->at == '.' && isdigit((unsigned char)g->at[1])) {
        for (g->at++; g->at < g->end && isdigit((unsigned char)*g->at);) g->at++;
    }
    if (!whole || (g->at < g->end && is_word(*g->at))) g->bad = true;
    out->kind = GO_INT;
    str_printf(&out->text, "(%.*s)", (int)(g->at - from), from);
}

static void call(go *g, const char *name, const go_value *a, int n, go_value *out);

static void named(go *g, go_value *out) {
    char name[GO_MAX_WORD];
    go_word(g, name);
    out->kind = GO_BOOL;
    if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0)
        str_puts(&out->text, name);
    else if (strcmp(name, "nil") == 0)
        str_puts(&out->text, "none");
    else
        call(g, name, NULL, 0, out);
}

static bool operand(go *g, go_value *out) {
    go_skip_space(g);
    if (g->bad || g->at >= g->end || *g->at == ')' || *g->at == '|') return false;
    char c = *g->at;
    if (c == '(') {
        g->at++;
        go_pipeline(g, out);
        if (!go_takes(g, ")")) g->bad = true;
        members(g, false, out);
    } else if (c == '"' || c == '`') {
        string(g, out);
    } else if (c == '$') {
        variable(g, out);
    } else if (c == '.') {
        dot(g, out);
    } else if (isdigit((unsigned char)c) || c == '-') {
        number(g, out);
    } else {
        named(g, out);
    }
    return !g->bad;
}

/* --- functions --- */

enum { MAX_ARGS = 8 };

static const char *at(const go_value *a, int i) { return str_cstr(&a[i].text); }

static bool compare(const char *name, const go_value *a, int n, str *out) {
    static const char *const signs[][2] = { { "eq", "==" }, { "ne", "!=" }, { "lt", "<" },
                                            { "le", "<=" }, { "gt", ">" },  { "ge", ">=" } };
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (strcmp(name, signs[i][0]) != 0 || n < 2 || (i > 0 && n > 2)) continue;
        for (int k = 1; k < n; k++) str_printf(out, "%s%s %s %s", k > 1 ? " or " : "", at(a, 0), signs[i][1], at(a, k));
        return true;
    }
    return false;
}

/* printf with a format that is written out and holds %s, %d, %v and %% only: a joined text. */
static bool format(const go_value *a, int n, str *out) {
    const char *p = n ? at(a, 0) : "";
    int         k = 1;
    if (*p != '\'') return false;
    for (; *p; p++) {
        if (p[0] != '%') {
            str_push(out, *p);
        } else if (p[1] == '%') {
            str_push(out, *p++);
        } else if (p[1] && strchr("sdv", p[1]) && k < n) {
            str_printf(out, "' ~ go_show(%s) ~ '", at(a, k++));
            p++;
        } else {
            return false;
        }
    }
    return k == n;
}

static bool gives_text(const char *name, const go_value *a, int n, str *out) {
    if (strcmp(name, "json") == 0 && n == 1)
        str_printf(out, "go_json(%s)", at(a, 0));
    else if (strcmp(name, "print") == 0 && n == 1)
        str_printf(out, "go_show(%s)", at(a, 0));
    else if (strcmp(name, "currentDate") == 0)
        str_puts(out, "strftime_now('%Y-%m-%d')");
    else
        return strcmp(name, "printf") == 0 && format(a, n, out);
    return true;
}

/* The rest: what is given back is one of the arguments, or a part of the first one. */
static bool gives_part(const char *name, const go_value *a, int n, go_value *out) {
    bool both = strcmp(name, "and") == 0;
    if ((both || strcmp(name, "or") == 0) && n > 0) {
        for (int k = 0; k < n; k++) str_printf(&out->text, "%s%s", k ? (both ? " and " : " or ") : "", at(a, k));
        out->kind = a[n - 1].kind;
        out->item = a[n - 1].item;
    } else if (strcmp(name, "slice") == 0 && (n == 2 || n == 3)) {
        str_printf(&out->text, "%s[%s:%s]", at(a, 0), at(a, 1), n == 3 ? at(a, 2) : "");
        out->kind = a[0].kind;
        out->item = a[0].item;
    } else if (strcmp(name, "index") == 0 && n >= 2) {
        str_puts(&out->text, at(a, 0));
        for (int k = 1; k < n; k++) str_printf(&out->text, "[%s]", at(a, k));
        out->kind = n == 2 ? a[0].item : GO_ANY;
    } else {
        return false;
    }
    return true;
}

static void call(go *g, const char *name, const go_value *a, int n, go_value *out) {
    str_push(&out->text, '(');
    if (compare(name, a, n, &out->text)) {
        out->kind = GO_BOOL;
    } else if (strcmp(name, "not") == 0 && n == 1) {
        str_printf(&out->text, "not %s", at(a, 0));
        out->kind = GO_BOOL;
    } else if (strcmp(name, "len") == 0 && n == 1) {
        str_printf(&out->text, "%s|length", at(a, 0));
        out->kind = GO_INT;
    } else if (gives_text(name, a, n, &out->text)) {
        out->kind = GO_TEXT;
    } else if (!gives_part(name, a, n, out)) {
        g->bad = true;
    }
    str_push(&out->text, ')');
}

/* One command of a pipeline; `last`, if there is one, is its last argument. */
static void command(go *g, go_value *last, go_value *out) {
    char        name[GO_MAX_WORD] = "";
    const char *begin;
    go_value    args[MAX_ARGS];
    int         n = 0;
    go_skip_space(g);
    begin = g->at;
    if (g->at < g->end && isalpha((unsigned char)*g->at)) go_word(g, name);
    if (!*name || strcmp(name, "true") == 0 || strcmp(name, "false") == 0 || strcmp(name, "nil") == 0) {
        g->at = begin;
        if (last || !operand(g, out)) g->bad = true;
        return;
    }
    for (int i = 0; i < MAX_ARGS; i++) go_value_init(&args[i]);
    while (n < MAX_ARGS && operand(g, &args[n])) n++;
    if (last && n < MAX_ARGS) {
        go_value spare = args[n];
        args[n++] = *last;
        *last = spare;
    }
    if (n == MAX_ARGS) g->bad = true;
    for (int i = 0; i < n; i++) go_value_check(g, &args[i]);
    if (!g->bad) call(g, name, args, n, out);
    for (int i = 0; i < MAX_ARGS; i++) go_value_deinit(&args[i]);
}

void go_pipeline(go *g, go_value *out) {
    if (++g->depth > GO_MAX_NESTING) g->bad = true;
    if (!g->bad) command(g, NULL, out);
    while (!g->bad && go_takes(g, "|")) {
        go_value last = *out;
        go_value_init(out);
        command(g, &last, out);
        go_value_deinit(&last);
    }
    go_value_check(g, out);
    g->depth--;
}
