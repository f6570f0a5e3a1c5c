/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's templates that walk through .Messages, as published Modelfiles have them, written in Jinja.
 *
 * Action by action: if, else, range, with and variables become their Jinja twins; functions (eq, ne, lt, le, gt, ge,
 * and, or, not, len, index, slice, json) become operators; fields become members of messages, tools and calls. The dot is
 * the variable of the innermost range or with. What prints a structure prints JSON, as there. Where messages are
 * rendered .Prompt and .Response are empty. Anything else (templates within templates, assignments to outer variables,
 * pipes) is not translated: the caller says so.
 */
#include "registry/modelfile_params.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NESTING = 32, MAX_WORD = 64 };

#define COMPACT "|tojson(separators=(',', ':'))"

typedef enum scope_kind { SCOPE_IF, SCOPE_RANGE, SCOPE_WITH } scope_kind;

typedef struct scope {
    scope_kind kind;
    int        dot; /* number of the variable that the dot was before; 0: the root */
} scope;

typedef struct go {
    const char *at, *end; /* of the action at hand */
    str        *out;
    scope       scopes[MAX_NESTING];
    int         n_scopes, dot, n_dots, depth;
    bool        json; /* the value at hand is a structure */
    bool        bad;
} go;

static void expression(go *g, str *out);

static void skip_space(go *g) {
    while (g->at < g->end && isspace((unsigned char)*g->at)) g->at++;
}

/* A word of letters, digits and _; empty: there is none. */
static void word(go *g, char *out) {
    size_t n = 0;
    while (g->at < g->end && (isalnum((unsigned char)*g->at) || *g->at == '_')) {
        if (n + 1 == MAX_WORD) g->bad = true;
        if (n + 1 < MAX_WORD) out[n++] = *g->at;
        g->at++;
    }
    out[n] = '\0';
}

/* --- operands --- */

static void put_root(go *g, const char *field, str *out) {
    static const struct {
        const char *name, *jinja;
        bool        json;
    } fields[] = { { "System", "go_system", false },
                   { "Messages", "messages", true },
                   { "Tools", "(tools or [])", true },
                   { "Prompt", "''", false },
                   { "Response", "''", false },
                   { "Suffix", "''", false },
                   { "Think", "(enable_thinking or false)", false },
                   { "IsThinkSet", "(enable_thinking is defined)", false } };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(field, fields[i].name) != 0) continue;
        str_puts(out, fields[i].jinja);
        g->json = fields[i].json;
        return;
    }
    g->bad = true;
}

static void put_field(go *g, const char *field, str *out) {
    static const struct {
        const char *name, *key;
        bool        json;
    } fields[] = { { "Role", "role", false },
                   { "Content", "content", false },
                   { "Thinking", "thinking", false },
                   { "ToolCalls", "tool_calls", true },
                   { "ToolName", "name", false },
                   { "ToolCallID", "tool_call_id", false },
                   { "Function", "function", true },
                   { "Name", "name", false },
                   { "Arguments", "arguments", true },
                   { "Parameters", "parameters", true },
                   { "Description", "description", false },
                   { "Type", "type", false },
                   { "ID", "id", false } };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (strcmp(field, fields[i].name) != 0) continue;
        str_printf(out, "['%s']", fields[i].key);
        g->json = fields[i].json;
        return;
    }
    g->bad = true;
}

/* .A.B behind a variable, or at the dot; root: the first one is a field of the root. */
static void fields(go *g, bool root, str *out) {
    char name[MAX_WORD];
    while (!g->bad && g->at < g->end && *g->at == '.') {
        g->at++;
        word(g, name);
        if (!*name) {
            g->bad = root || g->at[-1] != '.';
            return;
        }
        if (root)
            put_root(g, name, out);
        else
            put_field(g, name, out);
        root = false;
    }
}

static void variable(go *g, str *out) {
    char name[MAX_WORD];
    g->at++;
    word(g, name);
    g->json = false;
    if (*name) str_printf(out, "go_%s", name);
    fields(g, !*name, out);
}

static void dot(go *g, str *out) {
    bool bare = g->at + 1 >= g->end || !isalpha((unsigned char)g->at[1]);
    if (g->dot) str_printf(out, "dot%d", g->dot);
    g->json = bare;
    if (bare) {
        g->bad = g->bad || !g->dot;
        g->at++;
        return;
    }
    fields(g, !g->dot, out);
}

/* Go's and Jinja's strings share the escapes that occur; raw ones are written anew. */
static void string(go *g, str *out) {
    char quote = *g->at++;
    str_push(out, '\'');
    while (g->at < g->end && *g->at != quote) {
        bool escaped = quote == '"' && *g->at == '\\' && g->at + 1 < g->end;
        if (escaped && g->at[1] != '\'')
            str_push(out, *g->at++);
        else if (escaped)
            g->at++;
        if (*g->at == '\'' || (quote == '`' && *g->at == '\\')) str_push(out, '\\');
        if (*g->at == '\n')
            str_puts(out, "\\n");
        else
            str_push(out, *g->at);
        g->at++;
    }
    if (g->at >= g->end) g->bad = true;
    g->at++;
    str_push(out, '\'');
}

static bool operand(go *g, str *out) {
    skip_space(g);
    if (g->bad || g->at >= g->end || *g->at == ')') return false;
    if (*g->at == '(') {
        g->at++;
        str_push(out, '(');
        expression(g, out);
        str_push(out, ')');
        skip_space(g);
        if (g->at >= g->end || *g->at != ')') g->bad = true;
        g->at++;
        fields(g, false, out);
    } else if (*g->at == '"' || *g->at == '`') {
        g->json = false;
        string(g, out);
    } else if (*g->at == '$') {
        variable(g, out);
    } else if (*g->at == '.') {
        dot(g, out);
    } else if (isdigit((unsigned char)*g->at) || *g->at == '-') {
        g->json = false;
        do str_push(out, *g->at++);
        while (g->at < g->end && isdigit((unsigned char)*g->at));
    } else {
        char name[MAX_WORD];
        word(g, name);
        g->json = false;
        if (strcmp(name, "true") == 0 || strcmp(name, "false") == 0)
            str_puts(out, name);
        else if (strcmp(name, "nil") == 0)
            str_puts(out, "none");
        else
            g->bad = true;
    }
    return !g->bad;
}

/* --- functions --- */

enum { MAX_ARGS = 8 };

static void call(go *g, const char *name, const str *a, int n, str *out) {
    static const char *const compare[][2] = { { "eq", "==" }, { "ne", "!=" }, { "lt", "<" },
                                              { "le", "<=" }, { "gt", ">" },  { "ge", ">=" } };
    g->json = false;
    for (size_t i = 0; i < sizeof compare / sizeof *compare; i++) {
        if (strcmp(name, compare[i][0]) != 0 || n < 2) continue;
        for (int k = 1; k < n; k++)
            str_printf(out, "%s%s %s %s", k > 1 ? " or " : "", str_cstr(&a[0]), compare[i][1], str_cstr(&a[k]));
        return;
    }
    if ((strcmp(name, "and") == 0 || strcmp(name, "or") == 0) && n > 0) {
        for (int k = 0; k < n; k++)
            str_printf(out, "%s(%s)", k ? (name[0] == 'a' ? " and " : " or ") : "", str_cstr(&a[k]));
    } else if (strcmp(name, "not") == 0 && n == 1) {
        str_printf(out, "not (%s)", str_cstr(&a[0]));
    } else if (strcmp(name, "len") == 0 && n == 1) {
        str_printf(out, "(%s)|length", str_cstr(&a[0]));
    } else if (strcmp(name, "index") == 0 && n == 2) {
        str_printf(out, "(%s)[%s]", str_cstr(&a[0]), str_cstr(&a[1]));
    } else if (strcmp(name, "slice") == 0 && (n == 2 || n == 3)) {
        str_printf(out, "(%s)[%s:%s]", str_cstr(&a[0]), str_cstr(&a[1]), n == 3 ? str_cstr(&a[2]) : "");
    } else if (strcmp(name, "json") == 0 && n == 1) {
        str_printf(out, "(%s)" COMPACT, str_cstr(&a[0]));
    } else {
        g->bad = true;
    }
}

static void expression(go *g, str *out) {
    char        name[MAX_WORD] = "";
    const char *begin;
    skip_space(g);
    begin = g->at;
    if (++g->depth > MAX_NESTING) g->bad = true;
    if (g->at < g->end && isalpha((unsigned char)*g->at)) word(g, name);
    if (!*name || strcmp(name, "true") == 0 || strcmp(name, "false") == 0 || strcmp(name, "nil") == 0) {
        g->at = begin;
        if (!operand(g, out)) g->bad = true;
    } else {
        str args[MAX_ARGS];
        int n = 0;
        for (int i = 0; i < MAX_ARGS; i++) str_init(&args[i]);
        while (n < MAX_ARGS && operand(g, &args[n])) n++;
        if (n == MAX_ARGS) g->bad = true;
        if (!g->bad) call(g, name, args, n, out);
        for (int i = 0; i < MAX_ARGS; i++) str_deinit(&args[i]);
    }
    g->depth--;
}

/* --- actions --- */

static bool takes(go *g, const char *what) {
    size_t n = strlen(what);
    skip_space(g);
    if ((size_t)(g->end - g->at) < n || memcmp(g->at, what, n) != 0) return false;
    if (isalnum((unsigned char)what[n - 1]) && g->at + n < g->end && isalnum((unsigned char)g->at[n])) return false;
    g->at += n;
    return true;
}

static void enter(go *g, scope_kind kind) {
    if (g->n_scopes == MAX_NESTING) {
        g->bad = true;
        return;
    }
    g->scopes[g->n_scopes++] = (scope){ kind, g->dot };
    if (kind != SCOPE_IF) g->dot = ++g->n_dots;
}

static void range_action(go *g) {
    const char *begin = g->at;
    char        names[2][MAX_WORD] = { "", "" };
    int         n = 0;
    str         list;
    for (; n < 2 && takes(g, "$"); n++) {
        word(g, names[n]);
        if (!takes(g, ",")) {
            n++;
            break;
        }
    }
    if (!n || !takes(g, ":=")) {
        g->at = begin;
        n = 0;
    }
    str_init(&list);
    expression(g, &list);
    enter(g, SCOPE_RANGE);
    str_printf(g->out, "{%% for dot%d in (%s) or [] %%}", g->dot, str_cstr(&list));
    if (n == 2 && strcmp(names[0], "_") != 0) str_printf(g->out, "{%% set go_%s = loop.index0 %%}", names[0]);
    if (n && strcmp(names[n - 1], "_") != 0) str_printf(g->out, "{%% set go_%s = dot%d %%}", names[n - 1], g->dot);
    str_deinit(&list);
}

static void leave(go *g) {
    if (!g->n_scopes) {
        g->bad = true;
        return;
    }
    scope s = g->scopes[--g->n_scopes];
    g->dot = s.dot;
    str_puts(g->out, s.kind == SCOPE_RANGE ? "{% endfor %}" : "{% endif %}");
}

static void other_action(go *g) {
    const char *begin = g->at;
    char        name[MAX_WORD];
    str         value;
    if (takes(g, "$")) {
        word(g, name);
        if (*name && takes(g, ":=")) {
            str_printf(g->out, "{%% set go_%s = ", name);
            expression(g, g->out);
            str_puts(g->out, " %}");
            return;
        }
    }
    g->at = begin;
    str_init(&value);
    expression(g, &value);
    if (g->json)
        str_printf(g->out, "{{ (%s) if (%s) is string else (%s)" COMPACT " }}", str_cstr(&value), str_cstr(&value),
                   str_cstr(&value));
    else
        str_printf(g->out, "{{ %s }}", str_cstr(&value));
    str_deinit(&value);
}

static void action(go *g) {
    if (takes(g, "/*")) {
        g->at = g->end;
    } else if (takes(g, "if")) {
        enter(g, SCOPE_IF);
        str_puts(g->out, "{% if ");
        expression(g, g->out);
        str_puts(g->out, " %}");
    } else if (takes(g, "else")) {
        if (!g->n_scopes) g->bad = true;
        if (g->n_scopes) g->dot = g->scopes[g->n_scopes - 1].kind == SCOPE_IF ? g->dot : g->scopes[g->n_scopes - 1].dot;
        bool more = takes(g, "if");
        str_puts(g->out, more ? "{% elif " : "{% else %}");
        if (more) expression(g, g->out);
        if (more) str_puts(g->out, " %}");
    } else if (takes(g, "end")) {
        leave(g);
    } else if (takes(g, "range")) {
        range_action(g);
    } else if (takes(g, "with")) {
        str value;
        str_init(&value);
        expression(g, &value);
        enter(g, SCOPE_WITH);
        str_printf(g->out, "{%% set dot%d = %s %%}{%% if dot%d %%}", g->dot, str_cstr(&value), g->dot);
        str_deinit(&value);
    } else {
        other_action(g);
    }
    skip_space(g);
    if (g->at < g->end) g->bad = true;
}

/* --- the whole --- */

bool modelfile_go_messages(const char *text, str *out) {
    go   g = { .out = out };
    bool trim = false;
    if (!strstr(text, ".Messages")) return false;
    str_puts(out, "{% set go_system = messages|selectattr('role', 'equalto', "
                  "'system')|map(attribute='content')|join('\\n\\n') %}");
    while (*text && !g.bad) {
        const char *open = strstr(text, "{{"), *stop = open ? open : text + strlen(text), *close;
        while (trim && text < stop && isspace((unsigned char)*text)) text++;
        while (open && open[2] == '-' && stop > text && isspace((unsigned char)stop[-1])) stop--;
        if (stop > text) modelfile_go_text(out, (view){ text, (size_t)(stop - text) });
        if (!open) break;
        g.at = open + 2 + (open[2] == '-');
        if (!(close = strstr(g.at, "}}"))) return false;
        trim = close > g.at && close[-1] == '-';
        g.end = trim ? close - 1 : close;
        while (g.end > g.at && isspace((unsigned char)g.end[-1])) g.end--;
        action(&g);
        text = close + 2;
    }
    return !g.bad && g.n_scopes == 0;
}
