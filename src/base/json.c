/* SPDX-License-Identifier: Apache-2.0 */
/* The streaming reader. The tree built with it is in json_tree.c. */
#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void json_reader_init(json_reader *r, const char *src, size_t len) {
    memset(r, 0, sizeof *r);
    r->src = src;
    r->len = len;
    r->expect_value = true;
    if (len >= 3 && memcmp(src, "\xEF\xBB\xBF", 3) == 0) r->pos = 3; /* byte order mark */
}

void json_reader_deinit(json_reader *r) { str_deinit(&r->scratch); }

static json_event fail(json_reader *r, int code, const char *what) {
    size_t line = 1, column = 1;
    if (r->failed) return JSON_ERROR;
    for (size_t i = 0; i < r->pos && i < r->len; i++) {
        if (r->src[i] == '\n') {
            line++;
            column = 1;
        } else {
            column++;
        }
    }
    r->failed = true;
    err_set(&r->error, code, "JSON line %zu, column %zu: %s", line, column, what);
    return JSON_ERROR;
}

static void skip_space(json_reader *r) {
    while (r->pos < r->len) {
        char c = r->src[r->pos];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') break;
        r->pos++;
    }
}

static int hex4(const char *p) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int  d = c >= '0' && c <= '9'   ? c - '0'
                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                 : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                        : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Handles the escape at pos (behind the backslash); false after fail(). */
static bool read_escape(json_reader *r) {
    char c = r->pos < r->len ? r->src[r->pos] : '\0';
    r->pos++;
    switch (c) {
    case '"':
    case '\\':
    case '/': str_push(&r->scratch, c); return true;
    case 'b': str_push(&r->scratch, '\b'); return true;
    case 'f': str_push(&r->scratch, '\f'); return true;
    case 'n': str_push(&r->scratch, '\n'); return true;
    case 'r': str_push(&r->scratch, '\r'); return true;
    case 't': str_push(&r->scratch, '\t'); return true;
    case 'u': break;
    default: r->pos--; return fail(r, ERR_FORMAT, "bad escape in a string") != JSON_ERROR;
    }
    int hi = r->len - r->pos >= 4 && r->pos <= r->len ? hex4(r->src + r->pos) : -1;
    if (hi < 0) return fail(r, ERR_FORMAT, "\\u needs four hexadecimal digits") != JSON_ERROR;
    r->pos += 4;
    if (hi >= 0xD800 && hi <= 0xDBFF && r->len - r->pos >= 6 && r->src[r->pos] == '\\' && r->src[r->pos + 1] == 'u') {
        int lo = hex4(r->src + r->pos + 2);
        if (lo >= 0xDC00 && lo <= 0xDFFF) {
            r->pos += 6;
            hi = 0x10000 + ((hi - 0xD800) << 10) + (lo - 0xDC00);
        }
    }
    str_put_utf8(&r->scratch, (unsigned)hi); /* a lone surrogate becomes U+FFFD */
    return true;
}

/* Reads the string whose opening quote is at pos into r->text. Bytes that are not UTF-8 are an error. */
static bool read_string(json_reader *r) {
    size_t begin = ++r->pos, run = begin;
    bool   copied = false;
    for (;;) {
        if (r->pos >= r->len) return fail(r, ERR_FORMAT, "the text ends inside a string") != JSON_ERROR;
        unsigned char c = (unsigned char)r->src[r->pos];
        if (c == '"') break;
        if (c == '\\') {
            if (!copied) str_clear(&r->scratch);
            copied = true;
            str_append(&r->scratch, r->src + run, r->pos - run);
            r->pos++;
            if (!read_escape(r)) return false;
            run = r->pos;
        } else if (c < 0x20) {
            return fail(r, ERR_FORMAT, "control character in a string") != JSON_ERROR;
        } else if (c < 0x80) {
            r->pos++;
        } else {
            unsigned cp;
            size_t   n = utf8_decode(r->src + r->pos, r->len - r->pos, &cp);
            if (n == 0) return fail(r, ERR_FORMAT, "bytes that are not UTF-8 in a string") != JSON_ERROR;
            r->pos += n;
        }
    }
    if (copied) {
        str_append(&r->scratch, r->src + run, r->pos - run);
        if (!str_ok(&r->scratch)) return fail(r, ERR_NOMEM, "out of memory") != JSON_ERROR;
        r->text = (view){ str_cstr(&r->scratch), r->scratch.len };
    } else {
        r->text = (view){ r->src + begin, r->pos - begin };
    }
    r->pos++;
    return true;
}

static bool take_word(json_reader *r, const char *word) {
    size_t n = strlen(word);
    if (r->len - r->pos < n || memcmp(r->src + r->pos, word, n) != 0) return false;
    r->pos += n;
    return true;
}

static bool is_digit(const json_reader *r, size_t pos) {
    return pos < r->len && r->src[pos] >= '0' && r->src[pos] <= '9';
}

static json_event read_number(json_reader *r) {
    size_t begin = r->pos, p = r->pos;
    bool   negative = r->src[p] == '-', real = false, overflow = false;
    if (negative) p++;
    if (!is_digit(r, p)) return fail(r, ERR_FORMAT, "expected a value");
    uint64_t magnitude = 0;
    if (r->src[p] == '0' && is_digit(r, p + 1)) return fail(r, ERR_FORMAT, "a number may not begin with 0");
    for (; is_digit(r, p); p++) {
        uint64_t digit = (uint64_t)(r->src[p] - '0');
        if (magnitude > (UINT64_MAX - digit) / 10) overflow = true;
        magnitude = magnitude * 10 + digit;
    }
    if (p < r->len && r->src[p] == '.') {
        real = true;
        if (!is_digit(r, ++p)) return fail(r, ERR_FORMAT, "a digit must follow the decimal point");
        while (is_digit(r, p)) p++;
    }
    if (p < r->len && (r->src[p] == 'e' || r->src[p] == 'E')) {
        real = true;
        p++;
        if (p < r->len && (r->src[p] == '+' || r->src[p] == '-')) p++;
        if (!is_digit(r, p)) return fail(r, ERR_FORMAT, "a digit must follow the exponent");
        while (is_digit(r, p)) p++;
    }
    r->pos = p;
    uint64_t largest = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    if (!real && !overflow && magnitude <= largest) {
        r->integer = (int64_t)(negative ? 0 - magnitude : magnitude);
        r->real = (double)r->integer;
        return JSON_INT;
    }
    /* strtod needs a terminator; numbers are short, and a very long one keeps its leading digits and its exponent. */
    str_clear(&r->scratch);
    str_append(&r->scratch, r->src + begin, p - begin);
    if (!str_ok(&r->scratch)) return fail(r, ERR_NOMEM, "out of memory");
    r->real = strtod(str_cstr(&r->scratch), NULL);
    r->integer = 0;
    return JSON_REAL;
}

static json_event open_container(json_reader *r, char kind) {
    if (r->depth == JSON_MAX_DEPTH) return fail(r, ERR_LIMIT, "nested too deeply");
    r->stack[r->depth++] = (uint8_t)kind;
    r->first = true;
    r->pos++;
    r->expect_value = false;
    return kind == '{' ? JSON_OBJECT_BEGIN : JSON_ARRAY_BEGIN;
}

static json_event close_container(json_reader *r) {
    char kind = (char)r->stack[--r->depth];
    r->pos++;
    r->first = false;
    r->expect_value = false;
    return kind == '{' ? JSON_OBJECT_END : JSON_ARRAY_END;
}

static json_event read_value(json_reader *r) {
    char       c = r->src[r->pos];
    json_event ev;
    r->start = r->pos;
    if (c == '{' || c == '[') return open_container(r, c);
    if (c == '"') {
        if (!read_string(r)) return JSON_ERROR;
        ev = JSON_STRING;
    } else if (take_word(r, "true")) {
        ev = JSON_TRUE;
    } else if (take_word(r, "false")) {
        ev = JSON_FALSE;
    } else if (take_word(r, "null")) {
        ev = JSON_NULL;
    } else if (take_word(r, "NaN")) {
        r->real = NAN;
        ev = JSON_REAL;
    } else if (take_word(r, "Infinity")) {
        r->real = INFINITY;
        ev = JSON_REAL;
    } else if (take_word(r, "-Infinity")) {
        r->real = -INFINITY;
        ev = JSON_REAL;
    } else {
        ev = read_number(r);
        if (ev == JSON_ERROR) return ev;
    }
    r->first = false;
    r->expect_value = false;
    return ev;
}

json_event json_next(json_reader *r) {
    if (r->failed) return JSON_ERROR;
    skip_space(r);
    if (r->depth == 0) {
        if (r->expect_value) {
            if (r->pos >= r->len) return fail(r, ERR_FORMAT, "the text is empty");
            return read_value(r);
        }
        if (r->pos < r->len) return fail(r, ERR_FORMAT, "text behind the value");
        r->done = true;
        return JSON_END;
    }
    if (r->pos >= r->len) return fail(r, ERR_FORMAT, "the text ends inside an object or array");
    char kind = (char)r->stack[r->depth - 1];
    if (r->expect_value) return read_value(r); /* behind a key */
    if (r->src[r->pos] == (kind == '{' ? '}' : ']')) return close_container(r);
    if (!r->first) {
        if (r->src[r->pos] != ',') return fail(r, ERR_FORMAT, "expected a comma or the end of the object or array");
        r->pos++;
        skip_space(r);
        if (r->pos >= r->len) return fail(r, ERR_FORMAT, "the text ends inside an object or array");
    }
    if (kind == '[') return read_value(r);
    if (r->src[r->pos] != '"') return fail(r, ERR_FORMAT, "expected a key in quotes");
    r->start = r->pos;
    if (!read_string(r)) return JSON_ERROR;
    skip_space(r);
    if (r->pos >= r->len || r->src[r->pos] != ':') return fail(r, ERR_FORMAT, "expected a colon behind the key");
    r->pos++;
    r->first = false;
    r->expect_value = true;
    return JSON_KEY;
}

bool json_skip(json_reader *r, json_event begun) {
    if (begun == JSON_ERROR) return false;
    if (begun != JSON_OBJECT_BEGIN && begun != JSON_ARRAY_BEGIN) return true;
    int depth = r->depth - 1;
    while (r->depth > depth) {
        if (json_next(r) == JSON_ERROR) return false;
    }
    return true;
}
