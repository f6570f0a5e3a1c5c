/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns through PCRE2 with its JIT, in UTF and UCP mode, with limits so that a hostile pattern gives an error.
 *
 * The patterns were written for other engines (Oniguruma, Rust's regex, Python's regex). What reads differently there
 * is rewritten before compiling: \s is the White_Space property (PCRE2's also has U+180E), \w counts marks and
 * connector punctuation, \h is a hexadecimal digit, \uXXXX is a code point. Class intersections and nested classes are
 * refused.
 */
#include "tokenizer/internal.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATTERN_BYTES = 1 << 16, MATCH_LIMIT = 20000000, HEAP_LIMIT_KIB = 32768, JIT_STACK_MAX = 8 << 20 };

struct regex {
    pcre2_code *code;
};

#define WHITE "\\x09-\\x0d\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WORD_ONIG "\\p{L}\\p{M}\\p{Nd}\\p{Pc}"
#define WORD_RUST "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}"

static bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/* Rewrites the escape at p[*i] (the backslash); appends to out. */
static int translate_escape(const char *p, size_t n, size_t *i, bool in_class, unsigned flags, str *out, err *e) {
    const char *word = flags & REGEX_RUST_WORD ? WORD_RUST : WORD_ONIG;
    char        c = *i + 1 < n ? p[*i + 1] : '\0';
    const char *set = c == 's' || c == 'S'   ? WHITE
                      : c == 'w' || c == 'W' ? word
                      : c == 'h' || c == 'H' ? "0-9a-fA-F"
                                             : NULL;
    if (set) {
        bool negated = c == 'S' || c == 'W' || c == 'H';
        if (!in_class) {
            str_printf(out, negated ? "[^%s]" : "[%s]", set);
        } else if (!negated) {
            str_puts(out, set);
        } else if (c == 'S') {
            str_puts(out, "\\S"); /* differs from ours in U+180E alone */
        } else {
            return err_set(e, ERR_UNSUPPORTED, "pattern: \\%c inside a character class", c);
        }
        *i += 2;
        return 0;
    }
    if (c == 'u' && n - *i >= 6 && is_hex(p[*i + 2]) && is_hex(p[*i + 3]) && is_hex(p[*i + 4]) && is_hex(p[*i + 5])) {
        str_printf(out, "\\x{%.4s}", p + *i + 2);
        *i += 6;
        return 0;
    }
    str_push(out, '\\');
    if (*i + 1 < n) str_push(out, c);
    *i += 2;
    return 0;
}

static int translate(const char *p, size_t n, unsigned flags, str *out, err *e) {
    bool in_class = false;
    int  rc;
    for (size_t i = 0, class_start = 0; i < n;) {
        if (p[i] == '\\') {
            if ((rc = translate_escape(p, n, &i, in_class, flags, out, e)) < 0) return rc;
            continue;
        }
        if (!in_class && p[i] == '[') {
            in_class = true;
            str_push(out, p[i++]);
            if (i < n && p[i] == '^') str_push(out, p[i++]);
            class_start = i;
            continue;
        }
        if (in_class) {
            if (p[i] == '&' && i + 1 < n && p[i + 1] == '&')
                return err_set(e, ERR_UNSUPPORTED, "pattern: a character class intersection (&&)");
            if (p[i] == '[' && i + 1 < n && p[i + 1] == ':') {
                const char *close = memmem(p + i, n - i, ":]", 2);
                if (close) {
                    size_t len = (size_t)(close - (p + i)) + 2;
                    str_append(out, p + i, len);
                    i += len;
                    continue;
                }
            }
            if (p[i] == '[') return err_set(e, ERR_UNSUPPORTED, "pattern: a character class inside another one");
            if (p[i] == ']' && i > class_start) in_class = false;
        }
        str_push(out, p[i++]);
    }
    return 0;
}

int regex_open(regex **out, const char *pattern, size_t bytes, unsigned flags, err *e) {
    str        text;
    int        code = 0, rc;
    PCRE2_SIZE at = 0;
    regex     *r = NULL;
    *out = NULL;
    if (bytes > MAX_PATTERN_BYTES)
        return err_set(e, ERR_LIMIT, "a pattern of %zu bytes (limit %d)", bytes, MAX_PATTERN_BYTES);
    str_init(&text);
    rc = translate(pattern, bytes, flags, &text, e);
    if (rc == 0 && (!str_ok(&text) || !(r = calloc(1, sizeof *r)))) rc = err_set_nomem(e);
    if (rc == 0) {
        uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
        options |= flags & REGEX_MULTILINE ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
        r->code = pcre2_compile((PCRE2_SPTR)str_cstr(&text), text.len, options, &code, &at, NULL);
        if (!r->code) {
            char message[128] = "";
            pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
            rc = err_set(e, ERR_UNSUPPORTED, "pattern '%.200s': %s", str_cstr(&text), message);
        } else {
            (void)pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without a JIT the interpreter does the work */
        }
    }
    str_deinit(&text);
    if (rc < 0) {
        regex_free(r);
        return rc;
    }
    *out = r;
    return 0;
}

void regex_free(regex *r) {
    if (!r) return;
    pcre2_code_free(r->code);
    free(r);
}

static bool scratch(tok_ctx *c) {
    if (c->match_data) return true;
    pcre2_match_context *m = pcre2_match_context_create(NULL);
    pcre2_jit_stack     *stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL);
    c->match_data = pcre2_match_data_create(8, NULL);
    c->match_context = m;
    c->jit_stack = stack;
    if (!c->match_data || !m || !stack) return false;
    pcre2_set_match_limit(m, MATCH_LIMIT);
    pcre2_set_heap_limit(m, HEAP_LIMIT_KIB);
    pcre2_jit_stack_assign(m, NULL, stack);
    return true;
}

void regex_scratch_free(tok_ctx *c) {
    pcre2_match_data_free(c->match_data);
    pcre2_match_context_free(c->match_context);
    pcre2_jit_stack_free(c->jit_stack);
}

int regex_next(const regex *r, tok_ctx *c, const char *text, size_t bytes, size_t from, size_t *start, size_t *end,
               err *e) {
    if (!scratch(c)) return err_set_nomem(e);
    int n = pcre2_match(r->code, (PCRE2_SPTR)text, bytes, from, PCRE2_NO_UTF_CHECK, c->match_data, c->match_context);
    if (n == PCRE2_ERROR_NOMATCH) return 0;
    if (n < 0) {
        char message[128] = "";
        pcre2_get_error_message(n, (PCRE2_UCHAR *)message, sizeof message);
        return err_set(e, ERR_LIMIT, "the pre-tokenizer's pattern needs too much work on this text: %s", message);
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(c->match_data);
    *start = v[0];
    *end = v[1];
    if (*end < *start)
        return err_set(e, ERR_UNSUPPORTED, "the pre-tokenizer's pattern sets a match that ends before it starts");
    return 1;
}
