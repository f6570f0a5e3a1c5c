/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text to tokens, with Jinja's whitespace rules as Hugging Face sets them.
 *
 * trim_blocks: one newline after a block or comment tag vanishes. lstrip_blocks: blanks between the start of a line and
 * a block or comment tag vanish. "-" beside a delimiter strips all white space on that side, "+" switches both rules
 * off there. Line ends are normalized to \n and one newline at the end of the source is dropped. A closing delimiter
 * inside open brackets is an operator, so "{{ {'a': {}} }}" works.
 */
#include "template/ast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    parse_state *p;
    const char  *s;
    size_t       n, pos;
    size_t       counted; /* newlines before this offset are in line */
    int          line;
    bool         line_starting; /* the last match ended with a newline */
    size_t       cap;
    char         open[256]; /* closing brackets that are awaited */
    int          n_open;
} lexer;

static int line_at(lexer *x, size_t pos) {
    for (; x->counted < pos; x->counted++) x->line += x->s[x->counted] == '\n';
    return x->line;
}

static token *push(lexer *x, tok_kind kind, size_t at) {
    parse_state *p = x->p;
    p->toks = parse_grow(p, p->toks, p->n_toks, &x->cap, 256, sizeof *p->toks);
    token *t = &p->toks[p->n_toks++];
    t->kind = kind;
    t->line = line_at(x, at);
    return t;
}

static size_t skip_space(const lexer *x, size_t pos) {
    while (pos < x->n) {
        size_t next = pos;
        if (!uc_is_space(uc_next(x->s, x->n, &next))) break;
        pos = next;
    }
    return pos;
}

static size_t back_over_space(const lexer *x, size_t from, size_t pos) {
    while (pos > from) {
        size_t before = uc_prev(x->s, pos), at = before;
        if (!uc_is_space(uc_next(x->s, x->n, &at))) break;
        pos = before;
    }
    return pos;
}

static bool looking_at(const lexer *x, size_t pos, const char *text) {
    size_t n = strlen(text);
    return x->n - pos >= n && memcmp(x->s + pos, text, n) == 0;
}

/* Length of "close" with its whitespace control at pos, or 0. */
static size_t match_end(const lexer *x, size_t pos, const char *close, bool trims, bool plus) {
    if (pos >= x->n) return 0;
    if (x->s[pos] == '-' && looking_at(x, pos + 1, close)) return skip_space(x, pos + 3) - pos;
    if (plus && x->s[pos] == '+' && looking_at(x, pos + 1, close)) return 3;
    if (!looking_at(x, pos, close)) return 0;
    return trims && pos + 2 < x->n && x->s[pos + 2] == '\n' ? 3 : 2;
}

/* The data before a tag at `tag`, after the whitespace rules of the tag's sign. */
static void push_data(lexer *x, size_t from, size_t tag, char sign, bool may_lstrip) {
    size_t to = tag;
    if (sign == '-') {
        to = back_over_space(x, from, tag);
    } else if (sign != '+' && may_lstrip) {
        size_t line = tag;
        while (line > from && x->s[line - 1] != '\n') line--;
        if (line > from || x->line_starting) {
            if (back_over_space(x, line, tag) == line) to = line;
        }
    }
    if (to > from) push(x, TOK_DATA, from)->text = (view){ x->s + from, to - from };
}

static char sign_at(const lexer *x, size_t pos) {
    return pos < x->n && (x->s[pos] == '-' || x->s[pos] == '+') ? x->s[pos] : 0;
}

/* At "{%": whether this is a raw block's begin; *end is behind its tag. */
static bool match_raw(const lexer *x, size_t tag, size_t *end) {
    size_t pos = tag + 2;
    if (sign_at(x, pos)) pos++;
    pos = skip_space(x, pos);
    if (!looking_at(x, pos, "raw")) return false;
    pos = skip_space(x, pos + 3);
    if (looking_at(x, pos, "-%}")) {
        *end = skip_space(x, pos + 3);
        return true;
    }
    if (!looking_at(x, pos, "%}")) return false;
    *end = pos + 2;
    return true;
}

static void lex_raw(lexer *x, size_t begin_tag) {
    size_t from = x->pos;
    for (size_t pos = from; pos + 1 < x->n; pos++) {
        if (x->s[pos] != '{' || x->s[pos + 1] != '%') continue;
        size_t at = pos + 2;
        char   sign = sign_at(x, at);
        if (sign) at++;
        at = skip_space(x, at);
        if (!looking_at(x, at, "endraw")) continue;
        at = skip_space(x, at + 6);
        size_t n = match_end(x, at, "%}", true, true);
        if (!n) continue;
        push_data(x, from, pos, sign, true);
        x->pos = at + n;
        x->line_starting = x->s[x->pos - 1] == '\n';
        return;
    }
    parse_fail(x->p, line_at(x, begin_tag), "missing end of raw directive");
}

static void lex_comment(lexer *x, size_t tag, size_t pos) {
    for (; pos < x->n; pos++) {
        size_t n = match_end(x, pos, "#}", true, true);
        if (!n) continue;
        x->pos = pos + n;
        x->line_starting = x->s[x->pos - 1] == '\n';
        return;
    }
    parse_fail(x->p, line_at(x, tag), "missing end of comment tag");
}

static size_t digits(const lexer *x, size_t pos, const char *allowed) {
    size_t start = pos;
    while (pos < x->n) {
        size_t at = pos;
        if (at > start && x->s[at] == '_') at++;
        if (at >= x->n || !strchr(allowed, x->s[at]) || !x->s[at]) break;
        pos = at + 1;
    }
    return pos;
}

static const char DEC[] = "0123456789";

/* Length of a float literal at pos, or 0. */
static size_t match_float(const lexer *x, size_t pos) {
    size_t end = digits(x, pos, DEC);
    if (end == pos || (pos > 0 && x->s[pos - 1] == '.')) return 0;
    size_t frac = end;
    if (end < x->n && x->s[end] == '.') {
        size_t after = digits(x, end + 1, DEC);
        if (after > end + 1) frac = after;
    }
    size_t exp = 0;
    if (frac < x->n && (x->s[frac] == 'e' || x->s[frac] == 'E')) {
        size_t at = frac + 1;
        if (at < x->n && (x->s[at] == '+' || x->s[at] == '-')) at++;
        size_t after = digits(x, at, DEC);
        if (after > at) exp = after;
    }
    if (exp) return exp - pos;
    return frac > end ? frac - pos : 0;
}

static void lex_float(lexer *x, size_t n) {
    char  *text = parse_alloc(x->p, n + 1);
    size_t len = 0;
    token *t = push(x, TOK_FLOAT, x->pos);
    for (size_t i = 0; i < n; i++) {
        if (x->s[x->pos + i] != '_') text[len++] = x->s[x->pos + i];
    }
    t->value = tv_float(strtod(text, NULL));
    x->pos += n;
}

static void lex_int(lexer *x) {
    size_t   pos = x->pos, end;
    unsigned base = 10;
    tv_wide  value = 0;
    if (x->s[pos] == '0') {
        char        c = pos + 1 < x->n ? (char)(x->s[pos + 1] | 0x20) : 0;
        const char *set = c == 'b' ? "01" : c == 'o' ? "01234567" : c == 'x' ? "0123456789abcdefABCDEF" : NULL;
        size_t      at = pos + 2;
        if (set && at < x->n && x->s[at] == '_') at++;
        end = set ? digits(x, at, set) : 0;
        if (set && end > at) {
            base = c == 'b' ? 2 : c == 'o' ? 8 : 16;
            pos += 2;
        } else {
            end = digits(x, pos, "0");
        }
    } else {
        end = digits(x, pos, DEC);
    }
    for (size_t i = pos; i < end; i++) {
        char c = x->s[i];
        if (c == '_') continue;
        int d = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
        if (value > ((((tv_wide)1 << 126) - 1) / (tv_wide)base))
            parse_fail(x->p, line_at(x, x->pos), "integer literal is too large");
        value = value * (tv_wide)base + d;
    }
    token *t = push(x, TOK_INT, x->pos);
    if (value <= INT64_MAX) {
        t->value = tv_int((int64_t)value);
    } else {
        /* 16-byte alignment comes from the arena */
        tv_wide *big = parse_alloc(x->p, sizeof *big);
        *big = value;
        t->value = (tv){ .kind = TV_BIG, .u.big = big };
    }
    x->pos = end;
}

static int hex(const lexer *x, size_t pos, size_t end, int count, unsigned *out) {
    *out = 0;
    for (int i = 0; i < count; i++, pos++) {
        char c = pos < end ? x->s[pos] : 0;
        int  d = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10 : -1;
        if (d < 0) return 0;
        *out = *out * 16 + (unsigned)d;
    }
    return count;
}

static size_t put_cp(char *out, unsigned cp) {
    if (cp >= 0xD800 && cp <= 0xDFFF) cp = 0xFFFD; /* Python keeps lone surrogates; UTF-8 cannot */
    if (cp < 0x80) return (void)(out[0] = (char)cp), 1;
    if (cp < 0x800) return (void)(out[0] = (char)(0xC0 | cp >> 6)), (void)(out[1] = (char)(0x80 | (cp & 63))), 2;
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 63));
        out[2] = (char)(0x80 | (cp & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 63));
    out[2] = (char)(0x80 | (cp >> 6 & 63));
    out[3] = (char)(0x80 | (cp & 63));
    return 4;
}

/* One escape sequence at x->s[*i] (the backslash). Python decodes literals as unicode-escape after turning non-ASCII
 * characters into escapes; that makes a backslash before such a character swallow the escape's own backslash. */
static size_t unescape(lexer *x, size_t *i, size_t end, char *out) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    size_t            at = *i + 1;
    unsigned char     c = (unsigned char)x->s[at];
    const char       *simple = strchr(from, c);
    unsigned          cp = 0;
    *i = at + 1;
    if (c == '\n') return 0;
    if (simple && c) return (void)(out[0] = to[simple - from]), 1;
    if (c >= '0' && c <= '7') {
        for (int k = 0; k < 3 && at < end && x->s[at] >= '0' && x->s[at] <= '7'; k++)
            cp = cp * 8 + (unsigned)(x->s[at++] - '0');
        *i = at;
        return put_cp(out, cp);
    }
    if (c == 'x' || c == 'u' || c == 'U') {
        int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        if (!hex(x, at + 1, end, n, &cp) || cp > 0x10FFFF)
            parse_fail(x->p, line_at(x, at), "bad \\%c escape in a string", c);
        *i = at + 1 + (size_t)n;
        return put_cp(out, cp);
    }
    if (c == 'N') parse_fail(x->p, line_at(x, at), "\\N escapes are not supported");
    if (c >= 0x80) {
        size_t next = at;
        cp = uc_next(x->s, end, &next);
        *i = next;
        return (size_t)snprintf(out, 16, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    }
    out[0] = '\\';
    out[1] = (char)c;
    return 2;
}

static void lex_string(lexer *x) {
    char   quote = x->s[x->pos];
    size_t end = x->pos + 1;
    while (end < x->n && x->s[end] != quote) end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n) parse_fail(x->p, line_at(x, x->pos), "unexpected char '%c': the string has no end", quote);
    char  *out = parse_alloc(x->p, (end - x->pos) * 3 + 16); /* the longest growth is a backslash before U+10000.. */
    size_t len = 0;
    token *t = push(x, TOK_STRING, x->pos);
    for (size_t i = x->pos + 1; i < end;) {
        if (x->s[i] == '\\')
            len += unescape(x, &i, end, out + len);
        else
            out[len++] = x->s[i++];
    }
    t->text = (view){ out, len };
    x->pos = end + 1;
}

static void lex_name(lexer *x, unsigned first) {
    size_t end = x->pos, at = x->pos;
    bool   ok = uc_is_id_start(first);
    while (at < x->n) {
        unsigned cp = uc_next(x->s, x->n, &at);
        if (!uc_is_word(cp) && !uc_is_id_continue(cp)) break;
        if (!uc_is_id_continue(cp)) ok = false;
        end = at;
    }
    if (!ok) parse_fail(x->p, line_at(x, x->pos), "invalid character in identifier");
    push(x, TOK_NAME, x->pos)->text = (view){ x->s + x->pos, end - x->pos };
    x->pos = end;
}

static const struct {
    const char *text;
    tok_kind    kind;
} OPERATORS[] = {
    { "//", TOK_FLOORDIV }, { "**", TOK_POW },   { "==", TOK_EQ },      { "!=", TOK_NE },      { ">=", TOK_GE },
    { "<=", TOK_LE },       { "+", TOK_ADD },    { "-", TOK_SUB },      { "/", TOK_DIV },      { "*", TOK_MUL },
    { "%", TOK_MOD },       { "~", TOK_TILDE },  { "[", TOK_LBRACKET }, { "]", TOK_RBRACKET }, { "(", TOK_LPAREN },
    { ")", TOK_RPAREN },    { "{", TOK_LBRACE }, { "}", TOK_RBRACE },   { ">", TOK_GT },       { "<", TOK_LT },
    { "=", TOK_ASSIGN },    { ".", TOK_DOT },    { ":", TOK_COLON },    { "|", TOK_PIPE },     { ",", TOK_COMMA },
    { ";", TOK_SEMICOLON },
};

static void lex_operator(lexer *x) {
    for (size_t i = 0; i < sizeof OPERATORS / sizeof *OPERATORS; i++) {
        if (!looking_at(x, x->pos, OPERATORS[i].text)) continue;
        char c = OPERATORS[i].text[0];
        if (c == '(' || c == '[' || c == '{') {
            if (x->n_open == (int)sizeof x->open) parse_fail(x->p, line_at(x, x->pos), "brackets nest too deeply");
            x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
        } else if (c == ')' || c == ']' || c == '}') {
            if (!x->n_open) parse_fail(x->p, line_at(x, x->pos), "unexpected '%c'", c);
            char want = x->open[--x->n_open];
            if (want != c) parse_fail(x->p, line_at(x, x->pos), "unexpected '%c', expected '%c'", c, want);
        }
        push(x, OPERATORS[i].kind, x->pos)->text = (view){ x->s + x->pos, strlen(OPERATORS[i].text) };
        x->pos += strlen(OPERATORS[i].text);
        return;
    }
    parse_fail(x->p, line_at(x, x->pos), "unexpected char '%c'", x->s[x->pos]);
}

/* Inside {{ }} or {% %}: tokens up to and with the closing delimiter. */
static void lex_tag(lexer *x, bool block) {
    while (x->pos < x->n) {
        size_t n = x->n_open ? 0 : match_end(x, x->pos, block ? "%}" : "}}", block, block);
        if (n) {
            push(x, block ? TOK_BLOCK_END : TOK_VAR_END, x->pos);
            x->pos += n;
            x->line_starting = x->s[x->pos - 1] == '\n';
            return;
        }
        size_t   after = x->pos;
        unsigned cp = uc_next(x->s, x->n, &after);
        if (uc_is_space(cp)) {
            x->pos = after;
        } else if (cp >= '0' && cp <= '9') {
            size_t len = match_float(x, x->pos);
            if (len)
                lex_float(x, len);
            else
                lex_int(x);
        } else if (uc_is_word(cp)) {
            lex_name(x, cp);
        } else if (cp == '\'' || cp == '"') {
            lex_string(x);
        } else {
            lex_operator(x);
        }
    }
}

/* The source with \r\n and \r as \n, without one newline at its end. */
static void normalize(parse_state *p) {
    tmpl  *t = p->t;
    size_t len = 0;
    for (size_t i = 0; i < t->source_len; i++) {
        char c = t->source[i];
        if (c == '\r') {
            if (i + 1 < t->source_len && t->source[i + 1] == '\n') i++;
            c = '\n';
        }
        t->source[len++] = c;
    }
    if (len && t->source[len - 1] == '\n') len--;
    t->source[len] = '\0';
    t->source_len = len;
    for (size_t i = 0; i < len;) {
        unsigned cp;
        size_t   n = utf8_decode(t->source + i, len - i, &cp);
        if (!n) parse_fail(p, 1, "the template is not valid UTF-8 (byte %zu)", i);
        i += n;
    }
}

void lex_template(parse_state *p) {
    normalize(p);
    lexer  lx = { .p = p, .s = p->t->source, .n = p->t->source_len, .line = 1, .line_starting = true };
    lexer *x = &lx;
    while (x->pos < x->n) {
        size_t from = x->pos, tag = from;
        while (tag + 1 < x->n && !(x->s[tag] == '{' && strchr("{%#", x->s[tag + 1]) && x->s[tag + 1])) tag++;
        if (tag + 1 >= x->n) {
            push(x, TOK_DATA, from)->text = (view){ x->s + from, x->n - from };
            x->pos = x->n;
            break;
        }
        char   what = x->s[tag + 1], sign = sign_at(x, tag + 2);
        size_t behind = tag + 2 + (sign != 0), raw_end;
        push_data(x, from, tag, sign, what != '{');
        if (what == '#') {
            lex_comment(x, tag, behind);
        } else if (what == '%' && match_raw(x, tag, &raw_end)) {
            x->pos = raw_end;
            x->line_starting = x->s[raw_end - 1] == '\n';
            lex_raw(x, tag);
        } else {
            push(x, what == '%' ? TOK_BLOCK_BEGIN : TOK_VAR_BEGIN, tag);
            x->pos = behind;
            lex_tag(x, what == '%');
        }
    }
    push(x, TOK_EOF, x->n);
}
