/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/values.h"

#include <string.h>

/* --- JSON, byte by byte --- */

enum {
    S_VALUE,      /* a value must come */
    S_FIRST_ITEM, /* a value or ] */
    S_FIRST_KEY,  /* a key or } */
    S_KEY,        /* a key */
    S_COLON,      /* : */
    S_NEXT,       /* , or the container's end */
    S_STRING,     /* inside a string that is a value */
    S_KEY_STRING, /* inside a string that is a key */
    S_MINUS,      /* number: behind - */
    S_ZERO,       /* number: behind a leading 0 */
    S_INT,        /* number: digits */
    S_POINT,      /* number: behind . */
    S_FRACTION,   /* number: digits behind . */
    S_EXP,        /* number: behind e */
    S_EXP_SIGN,   /* number: behind e+ */
    S_EXP_DIGITS, /* number: digits of the exponent */
    S_WORD,       /* true, false, null */
    S_DONE,
};

static const char *const words[] = { "true", "false", "null" };

void chat_json_scan_init(chat_json_scan *s) { memset(s, 0, sizeof *s); }

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

static chat_scan value_end(chat_json_scan *s) {
    s->state = s->n_depth ? S_NEXT : S_DONE;
    return s->n_depth ? CHAT_SCAN_MORE : CHAT_SCAN_DONE;
}

static chat_scan value_begin(chat_json_scan *s, char c) {
    if (!s->kind) s->kind = c;
    if (c == '{' || c == '[') {
        if (s->n_depth == JSON_MAX_DEPTH - 1) return CHAT_SCAN_BAD;
        s->is_object[s->n_depth++] = c == '{';
        s->state = c == '{' ? S_FIRST_KEY : S_FIRST_ITEM;
    } else if (c == '"') {
        s->state = S_STRING;
    } else if (c == '-') {
        s->state = S_MINUS;
    } else if (is_digit(c)) {
        s->state = c == '0' ? S_ZERO : S_INT;
    } else if (c == 't' || c == 'f' || c == 'n') {
        s->state = S_WORD;
        s->word = c == 't' ? 0 : c == 'f' ? 1 : 2;
        s->escape = 1; /* letters read */
    } else {
        return CHAT_SCAN_BAD;
    }
    return CHAT_SCAN_MORE;
}

static chat_scan container_end(chat_json_scan *s, char c) {
    if ((c == '}') != s->is_object[s->n_depth - 1]) return CHAT_SCAN_BAD;
    s->n_depth--;
    return value_end(s);
}

static chat_scan string_byte(chat_json_scan *s, char c, str *out) {
    unsigned char u = (unsigned char)c;
    if (s->escape == 0) {
        if (c == '"') {
            str_push(out, c);
            if (s->state == S_STRING) return value_end(s);
            s->state = S_COLON;
        } else if (c == '\\') {
            s->escape = 1;
            str_push(out, c);
        } else if (u < 0x20) {
            if (c == '\n')
                str_puts(out, "\\n");
            else if (c == '\t')
                str_puts(out, "\\t");
            else if (c == '\r')
                str_puts(out, "\\r");
            else
                str_printf(out, "\\u%04x", u);
        } else {
            str_push(out, c);
        }
    } else if (s->escape == 1) {
        if (c == 'u')
            s->escape = 2;
        else if (c && strchr("\"\\/bfnrt", c))
            s->escape = 0;
        else
            return CHAT_SCAN_BAD;
        str_push(out, c);
    } else {
        if (!is_hex(c)) return CHAT_SCAN_BAD;
        s->escape = s->escape == 5 ? 0 : (uint8_t)(s->escape + 1);
        str_push(out, c);
    }
    return CHAT_SCAN_MORE;
}

/* The state behind a byte of a number, -1: the number ends before it, -2: it cannot come here. */
static int number_next(int state, char c) {
    switch (state) {
    case S_MINUS: return c == '0' ? S_ZERO : is_digit(c) ? S_INT : -2;
    case S_ZERO:
    case S_INT:
        if (is_digit(c)) return state == S_ZERO ? -2 : S_INT;
        return c == '.' ? S_POINT : c == 'e' || c == 'E' ? S_EXP : -1;
    case S_POINT: return is_digit(c) ? S_FRACTION : -2;
    case S_FRACTION: return is_digit(c) ? S_FRACTION : c == 'e' || c == 'E' ? S_EXP : -1;
    case S_EXP: return is_digit(c) ? S_EXP_DIGITS : c == '+' || c == '-' ? S_EXP_SIGN : -2;
    case S_EXP_SIGN: return is_digit(c) ? S_EXP_DIGITS : -2;
    default: return is_digit(c) ? S_EXP_DIGITS : -1;
    }
}

static chat_scan structure_byte(chat_json_scan *s, char c) {
    if (is_space(c)) return CHAT_SCAN_MORE;
    switch (s->state) {
    case S_FIRST_ITEM:
        if (c == ']') return container_end(s, c);
        return value_begin(s, c);
    case S_VALUE: return value_begin(s, c);
    case S_FIRST_KEY:
        if (c == '}') return container_end(s, c);
        /* fall through */
    case S_KEY: s->state = S_KEY_STRING; return c == '"' ? CHAT_SCAN_MORE : CHAT_SCAN_BAD;
    case S_COLON: s->state = S_VALUE; return c == ':' ? CHAT_SCAN_MORE : CHAT_SCAN_BAD;
    default:
        if (c == ',') {
            s->state = s->is_object[s->n_depth - 1] ? S_KEY : S_VALUE;
            return CHAT_SCAN_MORE;
        }
        return c == '}' || c == ']' ? container_end(s, c) : CHAT_SCAN_BAD;
    }
}

chat_scan chat_json_scan_byte(chat_json_scan *s, char c, str *out) {
    if (s->state == S_STRING || s->state == S_KEY_STRING) return string_byte(s, c, out);
    if (s->state == S_WORD) {
        const char *w = words[s->word];
        if (c != w[s->escape]) return CHAT_SCAN_BAD;
        str_push(out, c);
        if (w[++s->escape]) return CHAT_SCAN_MORE;
        s->escape = 0;
        return value_end(s);
    }
    if (s->state >= S_MINUS && s->state <= S_EXP_DIGITS) {
        int next = number_next(s->state, c);
        if (next == -2) return CHAT_SCAN_BAD;
        if (next >= 0) {
            s->state = (uint8_t)next;
            str_push(out, c);
            return CHAT_SCAN_MORE;
        }
        if (value_end(s) == CHAT_SCAN_DONE) return CHAT_SCAN_BEFORE;
    }
    if (s->state == S_DONE) return CHAT_SCAN_BEFORE;
    chat_scan r = structure_byte(s, c);
    if (r != CHAT_SCAN_BAD && !(is_space(c) && out->len == 0)) str_push(out, c);
    return r;
}

bool chat_json_scan_complete(const chat_json_scan *s) {
    return s->state == S_DONE || (s->n_depth == 0 && (s->state == S_ZERO || s->state == S_INT ||
                                                      s->state == S_FRACTION || s->state == S_EXP_DIGITS));
}

chat_place chat_json_scan_place(const chat_json_scan *s) {
    switch (s->state) {
    case S_STRING: return CHAT_PLACE_STRING;
    case S_MINUS:
    case S_POINT:
    case S_EXP:
    case S_EXP_SIGN:
    case S_ZERO:
    case S_INT:
    case S_FRACTION:
    case S_EXP_DIGITS: return CHAT_PLACE_NUMBER;
    case S_FIRST_ITEM:
    case S_FIRST_KEY:
    case S_NEXT:
    case S_DONE: return CHAT_PLACE_CLOSES;
    default: return CHAT_PLACE_OPEN;
    }
}

/* --- tools and what their schemas say of a value --- */

const json_value *chat_tool_function(const json_value *tool) {
    const json_value *f = json_get(tool, "function");
    if (!f) f = tool;
    return json_is(json_get(f, "name"), JSON_K_STRING) ? f : NULL;
}

const json_value *chat_tool_find(const json_value *tools, view name) {
    for (size_t i = 0; i < json_count(tools); i++) {
        const json_value *f = chat_tool_function(json_at(tools, i));
        if (f && view_eq(json_get(f, "name")->u.string, name)) return f;
    }
    return NULL;
}

const json_value *chat_tool_schema(const json_value *function) {
    const json_value *s = json_get(function, "parameters");
    if (!json_is(s, JSON_K_OBJECT)) s = json_get(function, "input_schema");
    return json_is(s, JSON_K_OBJECT) ? s : NULL;
}

static unsigned kind_of_name(view name) {
    static const struct {
        const char *name;
        json_kind   kind;
    } kinds[] = { { "null", JSON_K_NULL },    { "boolean", JSON_K_BOOL },  { "integer", JSON_K_INT },
                  { "number", JSON_K_INT },   { "string", JSON_K_STRING }, { "array", JSON_K_ARRAY },
                  { "object", JSON_K_OBJECT } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (view_eq_c(name, kinds[i].name)) return 1u << kinds[i].kind;
    }
    return CHAT_KINDS_ALL;
}

static unsigned kind_of_value(const json_value *v) { return 1u << (v->kind == JSON_K_REAL ? JSON_K_INT : v->kind); }

/* "#/$defs/x" and "#/definitions/x" below root; others are not followed. */
static const json_value *resolve(const json_value *root, view ref) {
    static const char *const homes[] = { "$defs", "definitions" };
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(homes[i]);
        if (ref.len < n + 4 || memcmp(ref.data, "#/", 2) != 0 || memcmp(ref.data + 2, homes[i], n) != 0 ||
            ref.data[2 + n] != '/')
            continue;
        return json_get(json_get(root, homes[i]), ref.data + 3 + n);
    }
    return NULL;
}

static unsigned kinds_of(const json_value *root, const json_value *schema, int depth) {
    static const char *const unions[] = { "anyOf", "oneOf" };
    unsigned                 kinds = CHAT_KINDS_ALL;
    const json_value        *v;
    if (depth > 8 || !json_is(schema, JSON_K_OBJECT)) return kinds;
    if ((v = json_get(schema, "type")) != NULL) {
        if (v->kind == JSON_K_STRING) kinds &= kind_of_name(v->u.string);
        if (v->kind == JSON_K_ARRAY) {
            unsigned any = 0;
            for (size_t i = 0; i < json_count(v); i++) {
                if (json_is(json_at(v, i), JSON_K_STRING)) any |= kind_of_name(json_at(v, i)->u.string);
            }
            kinds &= any;
        }
    }
    if ((v = json_get(schema, "const")) != NULL) kinds &= kind_of_value(v);
    if (json_is(v = json_get(schema, "enum"), JSON_K_ARRAY)) {
        unsigned any = 0;
        for (size_t i = 0; i < json_count(v); i++) any |= kind_of_value(json_at(v, i));
        kinds &= any;
    }
    if (json_is(v = json_get(schema, "$ref"), JSON_K_STRING))
        kinds &= kinds_of(root, resolve(root, v->u.string), depth + 1);
    for (size_t u = 0; u < 2; u++) {
        if (!json_is(v = json_get(schema, unions[u]), JSON_K_ARRAY)) continue;
        unsigned any = 0;
        for (size_t i = 0; i < json_count(v); i++) any |= kinds_of(root, json_at(v, i), depth + 1);
        kinds &= any;
    }
    if (json_is(v = json_get(schema, "allOf"), JSON_K_ARRAY)) {
        for (size_t i = 0; i < json_count(v); i++) kinds &= kinds_of(root, json_at(v, i), depth + 1);
    }
    return kinds;
}

static const json_value *member(const json_value *v, view key) {
    if (!json_is(v, JSON_K_OBJECT)) return NULL;
    for (size_t i = 0; i < v->u.object.count; i++) {
        if (view_eq(v->u.object.members[i].key, key)) return &v->u.object.members[i].value;
    }
    return NULL;
}

unsigned chat_param_kinds(const json_value *schema, view key) {
    const json_value *p = member(json_get(schema, "properties"), key);
    if (!p && json_is(json_get(schema, "additionalProperties"), JSON_K_OBJECT))
        p = json_get(schema, "additionalProperties");
    return kinds_of(schema, p, 0);
}

/* --- texts to JSON --- */

void chat_string_to_json(view text, str *out) {
    str s;
    str_init(&s);
    str_put_json(&s, text.data, text.len);
    if (s.failed)
        out->failed = true;
    else
        str_append(out, s.data + 1, s.len - 2);
    str_deinit(&s);
}

/* The whole text as one JSON value, white space around it allowed. Appends its normal form and gives its kind. */
static bool json_of(view text, str *out, char *kind) {
    chat_json_scan s;
    size_t         at = out->len, i = 0;
    chat_scan      r = CHAT_SCAN_MORE;
    str            copy;
    str_init(&copy);
    chat_json_scan_init(&s);
    while (i < text.len && r == CHAT_SCAN_MORE) r = chat_json_scan_byte(&s, text.data[i++], &copy);
    if (r == CHAT_SCAN_BEFORE) i--;
    while (i < text.len && is_space(text.data[i])) i++;
    bool ok = r != CHAT_SCAN_BAD && chat_json_scan_complete(&s) && i == text.len;
    if (ok)
        str_append(out, copy.data, copy.len);
    else
        out->len = at;
    out->failed |= copy.failed;
    str_deinit(&copy);
    *kind = s.kind;
    return ok;
}

static unsigned kind_of_byte(char c) {
    switch (c) {
    case '{': return 1u << JSON_K_OBJECT;
    case '[': return 1u << JSON_K_ARRAY;
    case '"': return CHAT_KIND_STRING;
    case 't':
    case 'f': return 1u << JSON_K_BOOL;
    case 'n': return 1u << JSON_K_NULL;
    default: return 1u << JSON_K_INT;
    }
}

void chat_text_to_json(view text, unsigned kinds, str *out) {
    size_t at = out->len;
    char   kind;
    if (kinds != CHAT_KIND_STRING) {
        if (json_of(text, out, &kind) && (kind_of_byte(kind) & kinds)) return;
        out->len = at;
        view word = text;
        while (word.len && is_space(word.data[0])) word.data++, word.len--;
        while (word.len && is_space(word.data[word.len - 1])) word.len--;
        if (view_eq_c(word, "True") || view_eq_c(word, "False")) {
            if (kinds & 1u << JSON_K_BOOL) {
                str_puts(out, word.data[0] == 'T' ? "true" : "false");
                return;
            }
        } else if (view_eq_c(word, "None") && (kinds & 1u << JSON_K_NULL)) {
            str_puts(out, "null");
            return;
        } else if (!(kinds & CHAT_KIND_STRING) && chat_python_value(word, out)) {
            return;
        }
        out->len = at;
    }
    str_put_json(out, text.data, text.len);
}
