/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text is cut into tokens once; a definition is the range of tokens behind its colon. Unfolding walks these ranges
 * from `start` and writes the pattern as it goes, so nothing but the tokens is kept.
 */
#include "grammar/lark.h"

#include "base/arena.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TOKENS = 20000,
    MAX_DEFINITIONS = 500,
    MAX_DEPTH = 100,
    MAX_PATTERN = 1 << 16,
    MAX_IGNORED = 16,
    MEMORY = 16 << 20
};

typedef enum kind { END, LINE, NAME, TERMINAL, TEXT, PATTERN, NUMBER, DIRECTIVE, MARK } kind;

typedef struct token {
    kind kind;
    view text;  /* of TEXT and PATTERN: between the quotes or slashes */
    view flags; /* behind them */
    char mark;  /* of MARK: itself; '>' for "->", '.' for ".." */
    int  line;
} token;

typedef struct definition {
    view        name;
    int         from, to; /* tokens of the body */
    const char *pattern;  /* of an imported terminal, already in our dialect */
    bool        open;     /* being unfolded */
} definition;

typedef struct lark {
    view       source;
    size_t     at;
    int        line;
    token     *tokens;
    int        n_tokens;
    definition defs[MAX_DEFINITIONS];
    int        n_defs;
    int        ignored[MAX_IGNORED], n_ignored; /* first tokens */
    str       *out;
    int        next; /* the token at hand, while unfolding */
    int        depth;
    bool       in_terminal;
    err       *e;
    int        rc;
} lark;

static void unfold(lark *l, definition *d);
static void put_choices(lark *l, int to);

static void fail(lark *l, int code, int line, const char *what, view name) {
    int n = name.len < 60 ? (int)name.len : 60;
    if (l->rc == 0) l->rc = err_set(l->e, code, "lark, line %d: %s %.*s", line, what, n, name.data);
}

/* --- tokens --- */

static token *add(lark *l, kind k, size_t from, size_t to) {
    if (l->n_tokens == MAX_TOKENS - 1) {
        fail(l, ERR_LIMIT, l->line, "the grammar is too long", view_of(""));
        return &l->tokens[l->n_tokens];
    }
    token *t = &l->tokens[l->n_tokens++];
    *t = (token){ .kind = k, .text = { l->source.data + from, to - from }, .line = l->line };
    return t;
}

static char look(const lark *l, size_t ahead) {
    return l->at + ahead < l->source.len ? l->source.data[l->at + ahead] : '\0';
}

/* A text in quotes or a pattern between slashes; a backslash takes the next character along. */
static void add_quoted(lark *l, kind k) {
    char   quote = look(l, 0);
    size_t from = ++l->at;
    bool   in_class = false;
    for (; look(l, 0) && look(l, 0) != '\n'; l->at++) {
        char c = look(l, 0);
        if (c == quote && !in_class) break;
        if (c == '\\') l->at++;
        in_class = k == PATTERN && (c == '[' || (in_class && c != ']'));
    }
    if (look(l, 0) != quote) {
        fail(l, ERR_FORMAT, l->line, "this is not closed:", (view){ l->source.data + from - 1, l->at - from + 1 });
        return;
    }
    token *t = add(l, k, from, l->at++);
    size_t flags = l->at;
    while (isalpha((unsigned char)look(l, 0))) l->at++;
    t->flags = (view){ l->source.data + flags, l->at - flags };
}

static void add_word(lark *l) {
    size_t from = l->at, first = from;
    while (isalnum((unsigned char)look(l, 0)) || look(l, 0) == '_') l->at++;
    while (first < l->at && l->source.data[first] == '_') first++;
    bool upper = first < l->at && isupper((unsigned char)l->source.data[first]);
    bool digit = isdigit((unsigned char)l->source.data[from]);
    add(l, digit ? NUMBER : upper ? TERMINAL : NAME, from, l->at);
}

static void add_mark(lark *l) {
    static const char plain[] = ":|()[]{}?*+~!.,->";
    bool              arrow = look(l, 0) == '-' && look(l, 1) == '>', dots = look(l, 0) == '.' && look(l, 1) == '.';
    if (!look(l, 0) || !strchr(plain, look(l, 0)) || (look(l, 0) == '-' && !arrow)) {
        fail(l, ERR_UNSUPPORTED, l->line, "this is not understood:", (view){ l->source.data + l->at, 1 });
        return;
    }
    size_t n = arrow || dots ? 2 : 1;
    token *t = add(l, MARK, l->at, l->at + n);
    t->mark = arrow ? '>' : dots ? '2' : look(l, 0);
    l->at += n;
}

static void cut(lark *l) {
    while (l->at < l->source.len && l->rc == 0) {
        char c = look(l, 0);
        if (c == '\n') {
            add(l, LINE, l->at, l->at + 1);
            l->line++;
            l->at++;
        } else if (c == ' ' || c == '\t' || c == '\r') {
            l->at++;
        } else if (c == '#' || (c == '/' && look(l, 1) == '/')) {
            while (look(l, 0) && look(l, 0) != '\n') l->at++;
        } else if (c == '"') {
            add_quoted(l, TEXT);
        } else if (c == '/') {
            add_quoted(l, PATTERN);
        } else if (c == '%') {
            size_t from = ++l->at;
            while (isalpha((unsigned char)look(l, 0))) l->at++;
            add(l, DIRECTIVE, from, l->at);
        } else if (isalnum((unsigned char)c) || c == '_') {
            add_word(l);
        } else {
            add_mark(l);
        }
    }
    l->tokens[l->n_tokens] = (token){ .kind = END, .text = view_of(""), .line = l->line };
}

/* --- definitions --- */

static const struct {
    const char *name, *pattern;
} common[] = {
    { "DIGIT", "[0-9]" },
    { "HEXDIGIT", "[0-9a-fA-F]" },
    { "INT", "[0-9]+" },
    { "SIGNED_INT", "[+-]?[0-9]+" },
    { "DECIMAL", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+)" },
    { "FLOAT", "(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)" },
    { "SIGNED_FLOAT", "[+-]?(?:[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?)" },
    { "NUMBER", "(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?" },
    { "SIGNED_NUMBER", "[+-]?(?:[0-9]+(?:\\.[0-9]*)?|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?" },
    { "ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\[^\\n])*\"" },
    { "LCASE_LETTER", "[a-z]" },
    { "UCASE_LETTER", "[A-Z]" },
    { "LETTER", "[a-zA-Z]" },
    { "WORD", "[a-zA-Z]+" },
    { "CNAME", "[a-zA-Z_][a-zA-Z_0-9]*" },
    { "WS_INLINE", "[ \\t]+" },
    { "WS", "[ \\t\\f\\r\\n]+" },
    { "CR", "\\r" },
    { "LF", "\\n" },
    { "NEWLINE", "(?:\\r?\\n)+" },
    { "SH_COMMENT", "#[^\\n]*" },
    { "CPP_COMMENT", "\\/\\/[^\\n]*" },
    { "C_COMMENT", "\\/\\*(?:[^*]|\\*+[^*\\/])*\\*+\\/" },
    { "SQL_COMMENT", "--[^\\n]*" },
};

static definition *find(lark *l, view name) {
    for (int i = 0; i < l->n_defs; i++) {
        if (view_eq(l->defs[i].name, name)) return &l->defs[i];
    }
    return NULL;
}

static definition *define(lark *l, const token *t) {
    if (find(l, t->text)) fail(l, ERR_FORMAT, t->line, "there are two definitions of", t->text);
    if (l->n_defs == MAX_DEFINITIONS) fail(l, ERR_LIMIT, t->line, "there are too many definitions:", t->text);
    if (l->rc < 0) return &l->defs[0];
    l->defs[l->n_defs] = (definition){ .name = t->text };
    return &l->defs[l->n_defs++];
}

static void import_one(lark *l, const token *name, const token *as) {
    for (size_t i = 0; i < sizeof common / sizeof common[0]; i++) {
        if (!view_eq_c(name->text, common[i].name)) continue;
        define(l, as)->pattern = common[i].pattern;
        return;
    }
    fail(l, ERR_UNSUPPORTED, name->line, "there is no import of", name->text);
}

static bool is_mark(const token *t, char mark) { return t->kind == MARK && t->mark == mark; }

/* "common.NAME", "common.NAME -> OTHER" or "common (A, B)". */
static int read_import(lark *l, int i) {
    const token *t = l->tokens;
    if (!view_eq_c(t[i].text, "common")) {
        fail(l, ERR_UNSUPPORTED, t[i].line, "only `common` can be imported, not", t[i].text);
        return i;
    }
    if (is_mark(&t[i + 1], '(')) {
        for (i += 2; t[i].kind == TERMINAL && l->rc == 0; i += is_mark(&t[i + 1], ',') ? 2 : 1)
            import_one(l, &t[i], &t[i]);
        if (!is_mark(&t[i], ')')) fail(l, ERR_FORMAT, t[i].line, "an import ends with", t[i].text);
        return i + 1;
    }
    if (!is_mark(&t[i + 1], '.') || t[i + 2].kind != TERMINAL) {
        fail(l, ERR_FORMAT, t[i].line, "an import needs the name of a terminal behind", t[i].text);
        return i;
    }
    bool renamed = is_mark(&t[i + 3], '>');
    import_one(l, &t[i + 2], &t[renamed ? i + 4 : i + 2]);
    return i + (renamed ? 5 : 3);
}

/* Where a body that begins here ends: at a line that the next one does not go on with "|". */
static int body_end(const lark *l, int i) {
    int depth = 0;
    for (; l->tokens[i].kind != END; i++) {
        const token *t = &l->tokens[i];
        if (is_mark(t, '(') || is_mark(t, '[')) depth++;
        if (is_mark(t, ')') || is_mark(t, ']')) depth--;
        if (t->kind != LINE || depth > 0) continue;
        int k = i;
        while (l->tokens[k].kind == LINE) k++;
        if (!is_mark(&l->tokens[k], '|')) return i;
    }
    return i;
}

static int read_directive(lark *l, int i) {
    const token *t = &l->tokens[i];
    if (view_eq_c(t->text, "import")) return read_import(l, i + 1);
    if (!view_eq_c(t->text, "ignore") || l->n_ignored == MAX_IGNORED) {
        fail(l, ERR_UNSUPPORTED, t->line, "there is no support for %", t->text);
        return i;
    }
    l->ignored[l->n_ignored++] = i + 1;
    return body_end(l, i);
}

/* "?name.2: body": marks before a name and priorities behind it shape trees, not texts. */
static int read_definition(lark *l, int i) {
    const token *t = l->tokens;
    while (is_mark(&t[i], '?') || is_mark(&t[i], '!')) i++;
    if (t[i].kind != NAME && t[i].kind != TERMINAL) {
        fail(l, ERR_FORMAT, t[i].line, "a definition begins with", t[i].text);
        return i;
    }
    definition *d = define(l, &t[i++]);
    if (is_mark(&t[i], '.') && t[i + 1].kind == NUMBER) i += 2;
    if (is_mark(&t[i], '{')) fail(l, ERR_UNSUPPORTED, t[i].line, "there is no support for the template", d->name);
    if (!is_mark(&t[i], ':')) fail(l, ERR_FORMAT, t[i].line, "a colon is missing behind", d->name);
    if (l->rc < 0) return i;
    d->from = i + 1;
    return d->to = body_end(l, d->from);
}

static void read_all(lark *l) {
    int i = 0;
    while (l->rc == 0 && l->tokens[i].kind != END) {
        if (l->tokens[i].kind == LINE)
            i++;
        else if (l->tokens[i].kind == DIRECTIVE)
            i = read_directive(l, i);
        else
            i = read_definition(l, i);
    }
}

/* --- unfolding --- */

static void put_byte(str *out, unsigned char c, bool any_case) {
    if (any_case && isalpha(c) && c < 0x80)
        str_printf(out, "[%c%c]", c, c ^ 0x20);
    else if (c < 0x20 || c == 0x7f)
        str_printf(out, "\\x%02x", c);
    else if (strchr("\\^$.|?*+()[]{}/-", c))
        str_printf(out, "\\%c", c);
    else
        str_push(out, (char)c);
}

/* One character of a text in quotes; behind it in *i. */
static unsigned char text_char(lark *l, const token *t, size_t *i) {
    static const char names[] = "nrtfv0", means[] = "\n\r\t\f\v";
    char              c = t->text.data[(*i)++];
    if (c != '\\' || *i == t->text.len) return (unsigned char)c;
    c = t->text.data[(*i)++];
    const char *at = c ? strchr(names, c) : NULL;
    if (at) return (unsigned char)means[at - names];
    if (isalnum((unsigned char)c)) fail(l, ERR_UNSUPPORTED, t->line, "there is no support for an escape of", t->text);
    return (unsigned char)c;
}

static void put_text(lark *l, const token *t) {
    bool any_case = view_eq_c(t->flags, "i");
    if (t->flags.len && !any_case) fail(l, ERR_UNSUPPORTED, t->line, "there is no support for the flags of", t->text);
    for (size_t i = 0; i < t->text.len && l->rc == 0;) put_byte(l->out, text_char(l, t, &i), any_case);
}

static void put_range(lark *l, const token *from, const token *to) {
    size_t a = 0, b = 0;
    str_push(l->out, '[');
    if (from->text.len) put_byte(l->out, text_char(l, from, &a), false);
    str_push(l->out, '-');
    if (to->kind == TEXT && to->text.len) put_byte(l->out, text_char(l, to, &b), false);
    str_push(l->out, ']');
    if (to->kind != TEXT || a != from->text.len || b != to->text.len || !a || !b || (from->text.data[0] & 0x80) ||
        (to->text.data[0] & 0x80))
        fail(l, ERR_UNSUPPORTED, from->line, "a range has one ASCII character on each side, unlike", from->text);
}

/* Between the terminals of a rule there may be what is ignored. */
static void put_ignored(lark *l) {
    int next = l->next;
    if (l->in_terminal || l->n_ignored == 0) return;
    l->in_terminal = true;
    str_puts(l->out, "(?:");
    for (int i = 0; i < l->n_ignored && l->rc == 0; i++) {
        if (i) str_push(l->out, '|');
        l->next = l->ignored[i];
        put_choices(l, body_end(l, l->ignored[i]));
    }
    str_puts(l->out, ")*");
    l->in_terminal = false;
    l->next = next;
}

static void put_name(lark *l, const token *t) {
    definition *d = find(l, t->text);
    bool        outer = l->in_terminal;
    if (!d) fail(l, ERR_FORMAT, t->line, "there is no definition of", t->text);
    if (outer && t->kind == NAME) fail(l, ERR_FORMAT, t->line, "a terminal cannot refer to the rule", t->text);
    if (l->rc < 0) return;
    l->in_terminal = outer || t->kind == TERMINAL;
    unfold(l, d);
    l->in_terminal = outer;
    if (t->kind == TERMINAL) put_ignored(l);
}

static void put_atom(lark *l, int to) {
    const token *t = &l->tokens[l->next++];
    if (is_mark(t, '(') || is_mark(t, '[')) {
        char close = t->mark == '(' ? ')' : ']';
        str_puts(l->out, "(?:");
        put_choices(l, to);
        if (!is_mark(&l->tokens[l->next++], close)) fail(l, ERR_FORMAT, t->line, "a group is not closed:", t->text);
        str_puts(l->out, close == ']' ? ")?" : ")");
    } else if (t->kind == NAME || t->kind == TERMINAL) {
        if (is_mark(&l->tokens[l->next], '{'))
            fail(l, ERR_UNSUPPORTED, t->line, "there is no support for the template", t->text);
        put_name(l, t);
    } else if (t->kind == TEXT && is_mark(&l->tokens[l->next], '2')) {
        put_range(l, t, &l->tokens[l->next + 1]);
        l->next += 2;
        put_ignored(l);
    } else if (t->kind == TEXT) {
        put_text(l, t);
        put_ignored(l);
    } else if (t->kind == PATTERN) {
        str_puts(l->out, "(?:");
        if (l->rc == 0) l->rc = grammar_plain_pattern(t->text, t->flags, false, l->out, l->e);
        str_push(l->out, ')');
        put_ignored(l);
    } else {
        fail(l, ERR_FORMAT, t->line, "this is not understood:", t->text);
    }
}

static long put_number(lark *l) {
    const token *t = &l->tokens[l->next++];
    long         n = t->kind == NUMBER ? strtol(t->text.data, NULL, 10) : -1;
    if (n < 0 || n > 10000) fail(l, ERR_FORMAT, t->line, "a number from 0 to 10000 is missing before", t->text);
    return n;
}

/* "?", "*", "+", "~ 3" or "~ 3..5" behind an atom. */
static void put_count(lark *l) {
    const token *t = &l->tokens[l->next];
    if (is_mark(t, '?') || is_mark(t, '*') || is_mark(t, '+')) {
        str_push(l->out, t->mark);
        l->next++;
    } else if (is_mark(t, '~')) {
        l->next++;
        long least = put_number(l), most = least;
        if (is_mark(&l->tokens[l->next], '2')) {
            l->next++;
            most = put_number(l);
        }
        str_printf(l->out, "{%ld,%ld}", least, most);
    }
}

static bool ends(const lark *l, int to) {
    const token *t = &l->tokens[l->next];
    return l->next >= to || is_mark(t, '|') || is_mark(t, ')') || is_mark(t, ']');
}

static void put_choices(lark *l, int to) {
    if (++l->depth > MAX_DEPTH)
        fail(l, ERR_LIMIT, l->tokens[l->next].line, "the grammar is nested too deeply", view_of(""));
    for (bool more = true; more && l->rc == 0;) {
        while (!ends(l, to) && l->rc == 0) {
            if (l->tokens[l->next].kind == LINE) {
                l->next++;
            } else if (is_mark(&l->tokens[l->next], '>')) { /* the name of a branch of the tree */
                l->next += 2;
            } else {
                str_puts(l->out, "(?:");
                put_atom(l, to);
                str_push(l->out, ')');
                put_count(l);
            }
            if (l->out->len > MAX_PATTERN)
                fail(l, ERR_LIMIT, l->tokens[l->next].line, "the grammar unfolds into too long a pattern", view_of(""));
        }
        more = l->next < to && is_mark(&l->tokens[l->next], '|');
        if (more) str_push(l->out, '|');
        if (more) l->next++;
    }
    l->depth--;
}

static void unfold(lark *l, definition *d) {
    int next = l->next;
    if (d->open) {
        fail(l, ERR_UNSUPPORTED, l->tokens[d->from].line,
             "only rules that do not refer to themselves are supported, unlike", d->name);
        return;
    }
    if (d->pattern) {
        str_printf(l->out, "(?:%s)", d->pattern);
        return;
    }
    d->open = true;
    l->next = d->from;
    str_puts(l->out, "(?:");
    put_choices(l, d->to);
    if (l->next < d->to) fail(l, ERR_FORMAT, l->tokens[l->next].line, "this closes nothing:", l->tokens[l->next].text);
    str_push(l->out, ')');
    l->next = next;
    d->open = false;
}

int grammar_lark_pattern(view source, str *out, err *e) {
    arena mem;
    arena_init(&mem, MEMORY);
    lark *l = arena_calloc(&mem, 1, sizeof *l);
    if (l) *l = (lark){ .source = source, .line = 1, .out = out, .e = e };
    if (!l || !(l->tokens = arena_calloc(&mem, MAX_TOKENS, sizeof *l->tokens))) {
        arena_deinit(&mem);
        return err_set_nomem(e);
    }
    cut(l);
    if (l->rc == 0) read_all(l);
    definition *start = l->rc == 0 ? find(l, view_of("start")) : NULL;
    if (l->rc == 0 && !start) fail(l, ERR_FORMAT, l->line, "there is no definition of", view_of("start"));
    if (start) put_ignored(l);
    if (start) unfold(l, start);
    int rc = l->rc < 0 ? l->rc : str_ok(out) ? 0 : err_set_nomem(e);
    arena_deinit(&mem);
    return rc;
}
