/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/multipart.h"

#include <string.h>
#include <strings.h>

static int wrong(err *e, const char *what) { return err_set(e, ERR_FORMAT, "the form's body is not right: %s", what); }

/* --- words --- */

static bool is_space(char c) { return c == ' ' || c == '\t'; }

static view trimmed(view v) {
    while (v.len && is_space(v.data[0])) v = (view){ v.data + 1, v.len - 1 };
    while (v.len && is_space(v.data[v.len - 1])) v.len--;
    return v;
}

/* Token characters of RFC 9110. */
static bool is_token(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_word(view v, const char *word) { return v.len == strlen(word) && strncasecmp(v.data, word, v.len) == 0; }

/* "; name=value" at the beginning of v, value a token or a text in quotes, in which a backslash makes the next
 * character plain. Takes it away; false: there is none, or it is not right. */
static bool take_parameter(view *v, view *name, view *value) {
    view   rest = trimmed(*v);
    size_t n = 0;
    if (!rest.len || rest.data[0] != ';') return false;
    rest = trimmed((view){ rest.data + 1, rest.len - 1 });
    while (n < rest.len && is_token(rest.data[n])) n++;
    *name = (view){ rest.data, n };
    if (!n || n == rest.len || rest.data[n] != '=') return false;
    rest = (view){ rest.data + n + 1, rest.len - n - 1 };
    n = 0;
    if (rest.len && rest.data[0] == '"') {
        size_t end = 1;
        while (end < rest.len && rest.data[end] != '"') end += rest.data[end] == '\\' ? 2 : 1;
        if (end >= rest.len) return false;
        *value = (view){ rest.data + 1, end - 1 };
        n = end + 1;
    } else {
        while (n < rest.len && is_token(rest.data[n])) n++;
        if (!n) return false;
        *value = (view){ rest.data, n };
    }
    *v = trimmed((view){ rest.data + n, rest.len - n });
    return true;
}

/* The part of a header's value before its parameters; *rest are these. */
static view take_main(view v, view *rest) {
    const char *end = v.len ? memchr(v.data, ';', v.len) : NULL;
    size_t      n = end ? (size_t)(end - v.data) : v.len;
    *rest = (view){ v.data + n, v.len - n };
    return trimmed((view){ v.data, n });
}

/* --- the header --- */

bool multipart_is(view content_type) {
    view rest;
    return is_word(take_main(content_type, &rest), "multipart/form-data");
}

static bool is_boundary(view v) {
    for (size_t i = 0; i < v.len; i++) {
        char c = v.data[i];
        bool letter = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && (!c || !strchr("'()+_,-./:=? ", c))) return false;
    }
    return v.len >= 1 && v.len <= MULTIPART_MAX_BOUNDARY && v.data[v.len - 1] != ' ';
}

int multipart_open(multipart *m, view content_type, view body, err *e) {
    view rest, name, value, boundary = { "", 0 };
    *m = (multipart){ .body = body };
    (void)take_main(content_type, &rest);
    while (rest.len) {
        if (!take_parameter(&rest, &name, &value)) return wrong(e, "a parameter of its Content-Type");
        if (!is_word(name, "boundary")) continue;
        if (boundary.len) return wrong(e, "Content-Type names two boundaries");
        boundary = value;
    }
    if (!is_boundary(boundary)) return wrong(e, "Content-Type names no boundary of 1 to 70 plain characters");
    memcpy(m->line, "\r\n--", 4);
    memcpy(m->line + 4, boundary.data, boundary.len);
    m->n_line = 4 + boundary.len;
    if (body.len < m->n_line || memcmp(body.data, m->line + 2, m->n_line - 2) != 0)
        return wrong(e, "it does not begin with its boundary");
    m->at = m->n_line - 2;
    return 0;
}

/* --- parts --- */

/* Where the bytes stand; the body's length where they do not. */
static size_t find(view body, size_t from, const char *what, size_t n) {
    while (from + n <= body.len) {
        const char *at = memchr(body.data + from, what[0], body.len - from - n + 1);
        if (!at) break;
        from = (size_t)(at - body.data);
        if (memcmp(at, what, n) == 0) return from;
        from++;
    }
    return body.len;
}

/* name="..." once, and perhaps a file's name. */
static int read_disposition(view v, multipart_part *out, err *e) {
    view rest, name, value;
    if (!is_word(take_main(v, &rest), "form-data")) return wrong(e, "a part's Content-Disposition is not form-data");
    while (rest.len) {
        if (!take_parameter(&rest, &name, &value)) return wrong(e, "a parameter of a part's Content-Disposition");
        if (is_word(name, "filename") || is_word(name, "filename*")) out->file = true;
        if (!is_word(name, "name")) continue;
        if (out->name.len) return wrong(e, "a part has two names");
        out->name = value;
    }
    if (!out->name.len || out->name.len > 64) return wrong(e, "a part has no name of 1 to 64 characters");
    for (size_t i = 0; i < out->name.len; i++) {
        char c = out->name.data[i];
        if (c <= ' ' || c > '~' || c == '\\' || c == '"')
            return wrong(e, "a part's name has other than plain characters");
    }
    return 0;
}

static int read_line(view line, bool *named, multipart_part *out, err *e) {
    const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
    if (!colon) return wrong(e, "a line of a part's head has no colon");
    view name = { line.data, (size_t)(colon - line.data) };
    view value = trimmed((view){ colon + 1, line.len - name.len - 1 });
    for (size_t i = 0; i < name.len; i++) {
        if (!is_token(name.data[i])) return wrong(e, "a name in a part's head");
    }
    if (is_word(name, "content-transfer-encoding") && !is_word(value, "binary") && !is_word(value, "8bit") &&
        !is_word(value, "7bit"))
        return wrong(e, "a part is encoded");
    if (!is_word(name, "content-disposition")) return 0;
    if (*named) return wrong(e, "a part has two Content-Dispositions");
    *named = true;
    return read_disposition(value, out, e);
}

static int read_head(multipart *m, multipart_part *out, err *e) {
    size_t end = find(m->body, m->at, "\r\n\r\n", 4);
    bool   named = false;
    if (end == m->body.len || end - m->at > MULTIPART_MAX_HEAD) return wrong(e, "a part's head has no end");
    while (m->at < end + 2) { /* m->at: behind the end of a line */
        size_t stop = find(m->body, m->at, "\r\n", 2);
        view   line = { m->body.data + m->at, stop - m->at };
        if (line.len && is_space(line.data[0])) return wrong(e, "a line of a part's head goes on in the next one");
        int rc = read_line(line, &named, out, e);
        if (rc < 0) return rc;
        m->at = stop + 2;
    }
    m->at = end + 4;
    return named ? 0 : wrong(e, "a part has no Content-Disposition");
}

int multipart_next(multipart *m, multipart_part *out, err *e) {
    view rest = { m->body.data + m->at, m->body.len - m->at };
    *out = (multipart_part){ 0 };
    /* Behind a boundary: two dashes at the end of all, else the end of the line. */
    if (rest.len >= 2 && memcmp(rest.data, "--", 2) == 0) {
        bool over = rest.len == 2 || (rest.len == 4 && memcmp(rest.data + 2, "\r\n", 2) == 0);
        return over ? 0 : wrong(e, "something follows its end");
    }
    if (rest.len < 2 || memcmp(rest.data, "\r\n", 2) != 0)
        return wrong(e, "a part contains something like its boundary");
    if (++m->n_parts > MULTIPART_MAX_PARTS) return wrong(e, "it has more than 64 parts");
    m->at += 2;
    int rc = read_head(m, out, e);
    if (rc < 0) return rc;
    size_t end = find(m->body, m->at, m->line, m->n_line);
    if (end == m->body.len) return wrong(e, "it has no end");
    out->data = (view){ m->body.data + m->at, end - m->at };
    m->at = end + m->n_line;
    return 1;
}
