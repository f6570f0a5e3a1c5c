/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/parser.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { S_HEAD, S_HEAD_DONE, S_BODY, S_CHUNK_SIZE, S_CHUNK_DATA, S_CHUNK_END, S_TRAILER, S_DONE, S_FAILED };
enum { MAX_SIZE_LINE = 256, MAX_TRAILER_BYTES = 8192, MAX_METHOD = 16 };

void http_parser_init(http_parser *p, http_limits limits) {
    memset(p, 0, sizeof *p);
    p->limits = limits;
    p->state = S_HEAD;
    str_init(&p->small);
}

void http_request_free(http_request *r) {
    if (!r) return;
    str_deinit(&r->head);
    str_deinit(&r->decoded);
    str_deinit(&r->body);
    free(r);
}

void http_parser_deinit(http_parser *p) {
    http_request_free(p->request);
    p->request = NULL;
    str_deinit(&p->small);
}

const view *http_request_get(const http_request *r, const char *name) {
    for (size_t i = 0; i < r->n_headers; i++) {
        if (view_eq_c(r->headers[i].name, name)) return &r->headers[i].value;
    }
    return NULL;
}

static http_event fail(http_parser *p, int status, const char *reason) {
    p->state = S_FAILED;
    p->status = status;
    p->reason = reason;
    return HTTP_ERROR;
}

/* --- characters --- */

static bool is_token(unsigned char c) {
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static bool view_ieq(view a, const char *text) {
    return a.len == strlen(text) && strncasecmp(a.data, text, a.len) == 0;
}

/* What stands behind the colon, if there is one: nothing or a number up to 65535. */
static bool is_port_good(view h) {
    size_t   at = 0;
    unsigned port = 0;
    if (h.len && h.data[0] == '[') {
        while (at < h.len && h.data[at] != ']') at++;
        if (at++ == h.len) return false;
        if (at < h.len && h.data[at] != ':') return false;
    } else {
        while (at < h.len && h.data[at] != ':') at++;
    }
    for (at++; at < h.len; at++) {
        if (h.data[at] < '0' || h.data[at] > '9') return false;
        port = port * 10 + (unsigned)(h.data[at] - '0');
        if (port > 65535) return false;
    }
    return true;
}

static bool is_host(view h) {
    for (size_t i = 0; i < h.len; i++) {
        unsigned char c = (unsigned char)h.data[i];
        bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || strchr("-._:[]~%", c);
        if (!ok || c == 0) return false;
    }
    return is_port_good(h);
}

/* --- the request line --- */

static http_event decode_path(http_parser *p, view raw) {
    http_request *r = p->request;
    for (size_t i = 0; i < raw.len; i++) {
        unsigned char c = (unsigned char)raw.data[i];
        if (c == '%') {
            int hi = i + 2 < raw.len ? hex_value(raw.data[i + 1]) : -1, lo = hi < 0 ? -1 : hex_value(raw.data[i + 2]);
            if (hi < 0 || lo < 0) return fail(p, 400, "the target contains a bad percent escape");
            c = (unsigned char)(hi * 16 + lo);
            if (c < 0x20 || c == 0x7f) return fail(p, 400, "the target contains an escaped control character");
            i += 2;
        }
        str_push(&r->decoded, (char)c);
    }
    if (!str_ok(&r->decoded)) return fail(p, 503, "out of memory");
    r->path = (view){ r->decoded.data, r->decoded.len };
    return HTTP_MORE;
}

static http_event parse_request_line(http_parser *p, view line) {
    http_request *r = p->request;
    const char   *sp = memchr(line.data, ' ', line.len);
    size_t        n = sp ? (size_t)(sp - line.data) : 0;
    if (n == 0) return fail(p, 400, "the request line does not have the form METHOD TARGET HTTP/1.1");
    if (n > MAX_METHOD) return fail(p, 501, "the method is not known");
    for (size_t i = 0; i < n; i++) {
        if (!is_token((unsigned char)line.data[i]))
            return fail(p, 400, "the method contains a character that is not allowed");
    }
    r->method = (view){ line.data, n };
    view rest = { sp + 1, line.len - n - 1 };
    sp = memchr(rest.data, ' ', rest.len);
    if (!sp || sp == rest.data) return fail(p, 400, "the request line does not have the form METHOD TARGET HTTP/1.1");
    view target = { rest.data, (size_t)(sp - rest.data) };
    view version = { sp + 1, rest.len - target.len - 1 };
    for (size_t i = 0; i < target.len; i++) {
        unsigned char c = (unsigned char)target.data[i];
        if (c <= 0x20 || c >= 0x7f) return fail(p, 400, "the target contains a character that is not allowed");
    }
    if (version.len != 8 || memcmp(version.data, "HTTP/", 5) != 0 || version.data[6] != '.')
        return fail(p, 400, "the request line does not have the form METHOD TARGET HTTP/1.1");
    if (version.data[5] != '1' || (version.data[7] != '0' && version.data[7] != '1'))
        return fail(p, 505, "only HTTP/1.1 and HTTP/1.0 are supported");
    r->minor = version.data[7] - '0';
    r->keep_alive = r->minor == 1;
    r->query = target; /* cut up when the Host header is known */
    return HTTP_MORE;
}

/* --- header lines --- */

static http_event parse_length(http_parser *p, view v) {
    uint64_t n = 0;
    if (v.len == 0 || v.len > 18) return fail(p, 400, "Content-Length is not a number");
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] < '0' || v.data[i] > '9') return fail(p, 400, "Content-Length is not a number");
        n = n * 10 + (uint64_t)(v.data[i] - '0');
    }
    p->request->content_length = n;
    return HTTP_MORE;
}

static void parse_connection(http_request *r, view v) {
    for (size_t i = 0; i < v.len;) {
        size_t end = i;
        while (end < v.len && v.data[end] != ',') end++;
        size_t from = i, to = end;
        while (from < to && (v.data[from] == ' ' || v.data[from] == '\t')) from++;
        while (to > from && (v.data[to - 1] == ' ' || v.data[to - 1] == '\t')) to--;
        view item = { v.data + from, to - from };
        if (view_ieq(item, "close")) r->keep_alive = false;
        if (view_ieq(item, "keep-alive") && r->minor == 0) r->keep_alive = true;
        i = end + 1;
    }
}

/* Checks one line "name: value" and cuts it; also used for trailers. */
static const char *split_header(char *line, size_t len, http_header *out) {
    size_t n = 0;
    if (line[0] == ' ' || line[0] == '\t') return "a header line is folded";
    while (n < len && is_token((unsigned char)line[n])) n++;
    if (n == 0 || n == len || line[n] != ':') return "a header line does not have the form name: value";
    size_t from = n + 1, to = len;
    while (from < to && (line[from] == ' ' || line[from] == '\t')) from++;
    while (to > from && (line[to - 1] == ' ' || line[to - 1] == '\t')) to--;
    for (size_t i = from; i < to; i++) {
        unsigned char c = (unsigned char)line[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) return "a header value contains a control character";
    }
    for (size_t i = 0; i < n; i++) {
        if (line[i] >= 'A' && line[i] <= 'Z') line[i] = (char)(line[i] + 32);
    }
    out->name = (view){ line, n };
    out->value = (view){ line + from, to - from };
    return NULL;
}

static http_event read_headers(http_parser *p) {
    http_request *r = p->request;
    int           n_host = 0, n_length = 0, n_coding = 0;
    for (size_t i = 0; i < r->n_headers; i++) {
        view name = r->headers[i].name, v = r->headers[i].value;
        if (view_eq_c(name, "host")) {
            if (n_host++) return fail(p, 400, "the request has more than one Host header");
            if (!is_host(v)) return fail(p, 400, "the Host header does not name a host");
            r->host = v;
        } else if (view_eq_c(name, "content-length")) {
            if (n_length++) return fail(p, 400, "the request has more than one Content-Length header");
            if (parse_length(p, v) == HTTP_ERROR) return HTTP_ERROR;
        } else if (view_eq_c(name, "transfer-encoding")) {
            if (n_coding++) return fail(p, 400, "the request has more than one Transfer-Encoding header");
            if (!view_ieq(v, "chunked")) return fail(p, 501, "the only supported transfer coding is chunked");
            if (r->minor == 0) return fail(p, 400, "an HTTP/1.0 request may not have a Transfer-Encoding");
            r->chunked = true;
        } else if (view_eq_c(name, "connection")) {
            parse_connection(r, v);
        } else if (view_eq_c(name, "expect")) {
            if (!view_ieq(v, "100-continue")) return fail(p, 417, "the only supported expectation is 100-continue");
            r->expect_continue = r->minor == 1;
        }
    }
    if (n_length && n_coding) return fail(p, 400, "the request has both a Content-Length and a Transfer-Encoding");
    if (r->minor == 1 && n_host == 0) return fail(p, 400, "the Host header is missing");
    return HTTP_MORE;
}

static http_event read_target(http_parser *p) {
    http_request *r = p->request;
    view          t = r->query;
    if (view_eq_c(t, "*")) {
        r->path = t;
        r->query = (view){ t.data, 0 };
        return view_eq_c(r->method, "OPTIONS") ? HTTP_MORE : fail(p, 400, "the target * is only allowed with OPTIONS");
    }
    if (t.data[0] != '/') {
        size_t skip = t.len > 7 && strncasecmp(t.data, "http://", 7) == 0    ? 7
                      : t.len > 8 && strncasecmp(t.data, "https://", 8) == 0 ? 8
                                                                             : 0;
        size_t end = skip;
        while (end < t.len && t.data[end] != '/' && t.data[end] != '?') end++;
        if (!skip || end == t.len || t.data[end] != '/') return fail(p, 400, "the target must begin with /");
        if (r->host.len != end - skip || strncasecmp(r->host.data, t.data + skip, r->host.len) != 0)
            return fail(p, 400, "the target and the Host header name different hosts");
        t = (view){ t.data + end, t.len - end };
    }
    if (memchr(t.data, '#', t.len)) return fail(p, 400, "the target has a fragment");
    const char *q = memchr(t.data, '?', t.len);
    size_t      n = q ? (size_t)(q - t.data) : t.len;
    r->query = q ? (view){ q + 1, t.len - n - 1 } : (view){ t.data + t.len, 0 };
    return decode_path(p, (view){ t.data, n });
}

/* Views are cut only now: the head no longer moves. */
static http_event finish_head(http_parser *p) {
    http_request *r = p->request;
    char         *text = r->head.data;
    size_t        at = 0;
    while (at < p->line) {
        char  *end = memchr(text + at, '\n', r->head.len - at);
        size_t len = (size_t)(end - (text + at)) - 1;
        if (at == 0) {
            if (parse_request_line(p, (view){ text, len }) == HTTP_ERROR) return HTTP_ERROR;
        } else {
            if (r->n_headers == HTTP_MAX_HEADERS) return fail(p, 431, "there are too many header lines");
            const char *wrong = split_header(text + at, len, &r->headers[r->n_headers++]);
            if (wrong) return fail(p, str_ok(&p->small) ? 400 : 503, wrong);
        }
        at += len + 2;
    }
    if (read_headers(p) == HTTP_ERROR || read_target(p) == HTTP_ERROR) return HTTP_ERROR;
    r->no_limit = p->limits.no_limit && p->limits.no_limit(r);
    if (r->content_length > p->limits.body_bytes && !r->no_limit) return fail(p, 413, "the body is too large");
    p->state = S_HEAD_DONE;
    return HTTP_HEAD;
}

/* A line that cannot become valid is refused at once, not at the end of the head. */
static http_event check_line(http_parser *p, const char *line, size_t len, bool complete) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)line[i];
        if (c == '\r' && (i + 1 < len || complete)) return fail(p, 400, "a CR is not followed by LF");
        if (c == 0) return fail(p, 400, "the head contains a NUL character");
    }
    return HTTP_MORE;
}

static http_event feed_head(http_parser *p, const char *data, size_t n, size_t *used) {
    http_request *r = p->request;
    while (*used < n) {
        const char *from = data + *used, *nl = memchr(from, '\n', n - *used);
        size_t      take = nl ? (size_t)(nl - from) + 1 : n - *used;
        size_t      room = p->limits.head_bytes - r->head.len;
        if (take > room) {
            *used = n;
            return fail(p, p->line == 0 ? 414 : 431, p->line == 0 ? "the target is too long" : "the head is too large");
        }
        str_append(&r->head, from, take);
        if (!str_ok(&r->head)) return fail(p, 503, "out of memory");
        *used += take;
        size_t      len = r->head.len - p->line;
        const char *line = r->head.data + p->line;
        if (p->line == 0 && len > HTTP_MAX_LINE) return fail(p, 414, "the target is too long");
        if (!nl) {
            size_t     old = p->scan > p->line ? p->scan - p->line - 1 : 0;
            http_event ev = check_line(p, line + old, len - old, false);
            p->scan = r->head.len;
            return ev;
        }
        p->scan = r->head.len;
        if (len < 2 || line[len - 2] != '\r') return fail(p, 400, "a line does not end with CR LF");
        if (check_line(p, line, len - 2, true) == HTTP_ERROR) return HTTP_ERROR;
        if (len == 2) {
            if (p->line == 0) { /* one empty line before a request is forgiven, as the standard asks */
                if (p->left++) return fail(p, 400, "there are too many empty lines before the request");
                str_clear(&r->head);
                p->scan = 0;
                continue;
            }
            return finish_head(p);
        }
        p->line = r->head.len;
    }
    return HTTP_MORE;
}

/* --- the body --- */

static http_event take_body(http_parser *p, const char *data, size_t n, size_t *used) {
    size_t take = n - *used;
    if (take > p->left) take = (size_t)p->left;
    str_append(&p->request->body, data + *used, take);
    if (!str_ok(&p->request->body)) return fail(p, 503, "out of memory");
    *used += take;
    p->left -= take;
    return HTTP_MORE;
}

/* Collects a line that ends with CR LF into p->small; true when it is complete (without its end). */
static bool take_line(http_parser *p, const char *data, size_t n, size_t *used, size_t limit, const char **wrong) {
    while (*used < n) {
        char c = data[(*used)++];
        bool cr = p->small.len && p->small.data[p->small.len - 1] == '\r';
        if (cr != (c == '\n')) {
            *wrong = cr ? "a CR is not followed by LF" : "a line does not end with CR LF";
            return false;
        }
        if (c == '\n') {
            p->small.data[--p->small.len] = '\0';
            return true;
        }
        if (p->small.len >= limit) {
            *wrong = "a line of the chunked body is too long";
            return false;
        }
        str_push(&p->small, c);
        if (!str_ok(&p->small)) {
            *wrong = "out of memory";
            return false;
        }
    }
    return false;
}

static http_event read_chunk_size(http_parser *p) {
    const char *s = str_cstr(&p->small);
    size_t      len = p->small.len, digits = 0;
    uint64_t    size = 0;
    while (digits < len && hex_value(s[digits]) >= 0) {
        if (digits == 15) return fail(p, 400, "the chunk size is too large");
        size = size * 16 + (uint64_t)hex_value(s[digits++]);
    }
    if (digits == 0 || (digits < len && s[digits] != ';'))
        return fail(p, 400, "the chunk size is not a hexadecimal number");
    for (size_t i = digits; i < len; i++) {
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return fail(p, 400, "a chunk extension contains a control character");
    }
    if (!p->request->no_limit && size > p->limits.body_bytes - p->request->body.len)
        return fail(p, 413, "the body is too large");
    p->left = size;
    p->state = size ? S_CHUNK_DATA : S_TRAILER;
    str_clear(&p->small);
    return HTTP_MORE;
}

static http_event read_trailer(http_parser *p) {
    http_header ignored;
    if (p->small.len == 0) {
        p->state = S_DONE;
        return HTTP_COMPLETE;
    }
    p->trailer_bytes += p->small.len;
    if (p->trailer_bytes > MAX_TRAILER_BYTES) return fail(p, 431, "the trailer is too large");
    const char *wrong = split_header(p->small.data, p->small.len, &ignored);
    if (wrong) return fail(p, str_ok(&p->small) ? 400 : 503, wrong);
    str_clear(&p->small);
    return HTTP_MORE;
}

static http_event feed_chunked(http_parser *p, const char *data, size_t n, size_t *used) {
    const char *wrong = NULL;
    http_event  ev = HTTP_MORE;
    while (ev == HTTP_MORE && *used < n) {
        switch (p->state) {
        case S_CHUNK_SIZE:
            if (take_line(p, data, n, used, MAX_SIZE_LINE, &wrong)) ev = read_chunk_size(p);
            break;
        case S_CHUNK_DATA:
            ev = take_body(p, data, n, used);
            if (p->left == 0 && ev == HTTP_MORE) p->state = S_CHUNK_END;
            break;
        case S_CHUNK_END:
            if (take_line(p, data, n, used, 1, &wrong)) {
                if (p->small.len) return fail(p, 400, "a chunk is longer than its size");
                p->state = S_CHUNK_SIZE;
            }
            break;
        default:
            if (take_line(p, data, n, used, HTTP_MAX_LINE, &wrong)) ev = read_trailer(p);
            break;
        }
        if (wrong) return fail(p, str_ok(&p->small) ? 400 : 503, wrong);
    }
    return ev;
}

http_event http_parser_feed(http_parser *p, const char *data, size_t n, size_t *used) {
    *used = 0;
    if (p->state == S_FAILED) return HTTP_ERROR;
    if (p->state == S_DONE) return HTTP_COMPLETE;
    if (!p->request) {
        if (n == 0) return HTTP_MORE;
        p->request = calloc(1, sizeof *p->request);
        if (!p->request) return fail(p, 503, "out of memory");
        p->line = p->scan = p->trailer_bytes = 0;
        p->left = 0;
    }
    if (p->state == S_HEAD) return feed_head(p, data, n, used);
    if (p->state == S_HEAD_DONE) {
        p->left = p->request->content_length;
        p->state = p->request->chunked ? S_CHUNK_SIZE : S_BODY;
    }
    if (p->state != S_BODY) return feed_chunked(p, data, n, used);
    if (take_body(p, data, n, used) == HTTP_ERROR) return HTTP_ERROR;
    if (p->left) return HTTP_MORE;
    p->state = S_DONE;
    return HTTP_COMPLETE;
}

http_request *http_parser_take(http_parser *p) {
    http_request *r = p->request;
    p->request = NULL;
    p->state = S_HEAD;
    str_clear(&p->small);
    return r;
}
