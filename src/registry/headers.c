/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/headers.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_HEADER = 16384 };

static view trim(view v) {
    while (v.len && (v.data[0] == ' ' || v.data[0] == '\t')) {
        v.data++;
        v.len--;
    }
    while (v.len && strchr(" \t\r\n", v.data[v.len - 1])) v.len--;
    return v;
}

static view take(view *v, size_t n) {
    view first = { v->data, n };
    v->data += n;
    v->len -= n;
    return first;
}

static bool equals_nocase(view v, const char *text) {
    return v.len == strlen(text) && strncasecmp(v.data, text, v.len) == 0;
}

/* Decimal digits only, the whole text. */
static bool header_number(view text, int64_t *out) {
    int64_t n = 0;
    if (text.len == 0 || text.len > 18) return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') return false;
        n = n * 10 + (text.data[i] - '0');
    }
    *out = n;
    return true;
}

bool header_content_range(view value, int64_t *first, int64_t *last, int64_t *total) {
    view v = trim(value);
    if (v.len < 6 || strncasecmp(v.data, "bytes ", 6) != 0) return false;
    take(&v, 6);
    v = trim(v);
    const char *dash = memchr(v.data, '-', v.len), *slash = memchr(v.data, '/', v.len);
    if (!dash || !slash || dash > slash) return false;
    view a = { v.data, (size_t)(dash - v.data) }, b = { dash + 1, (size_t)(slash - dash - 1) };
    view c = { slash + 1, (size_t)(v.data + v.len - slash - 1) };
    if (!header_number(a, first) || !header_number(b, last) || *last < *first) return false;
    if (view_eq_c(c, "*")) {
        *total = -1;
        return true;
    }
    return header_number(c, total) && *total > *last;
}

bool header_retry_after(const char *value, int64_t now, int64_t *seconds) {
    view v = trim(view_of(value));
    if (header_number(v, seconds)) return true;
    if (v.len == 0 || v.len > 64 || (v.data[0] >= '0' && v.data[0] <= '9') || v.data[0] == '-') return false;
    time_t then = curl_getdate(value, NULL);
    if (then == (time_t)-1) return false;
    *seconds = (int64_t)then > now ? (int64_t)then - now : 0;
    return true;
}

/* rel is a list of words: rel="next", rel=next, rel="first next". */
static bool has_word(view list, const char *word) {
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= list.len; i++) {
        bool begins = i == 0 || list.data[i - 1] == ' ', ends = i + n == list.len || list.data[i + n] == ' ';
        if (begins && ends && strncasecmp(list.data + i, word, n) == 0) return true;
    }
    return false;
}

/* One "key=value" or "key="quoted"" at the beginning of v; what follows stays in v. */
static bool next_parameter(view *v, view *key, view *value) {
    size_t n = 0;
    *v = trim(*v);
    while (n < v->len && v->data[n] != '=' && v->data[n] != ',' && v->data[n] != ';') n++;
    if (n == v->len || v->data[n] != '=') return false;
    *key = trim(take(v, n));
    take(v, 1);
    *v = trim(*v);
    if (v->len && v->data[0] == '"') {
        take(v, 1);
        for (n = 0; n < v->len && v->data[n] != '"'; n++) {
        }
        if (n == v->len) return false;
        *value = take(v, n);
        take(v, 1);
    } else {
        for (n = 0; n < v->len && v->data[n] != ',' && v->data[n] != ';'; n++) {
        }
        *value = trim(take(v, n));
    }
    *v = trim(*v);
    return true;
}

bool header_link_next(view value, str *out) {
    view v = value, key, text;
    for (;;) {
        while (v.len && v.data[0] != '<') take(&v, 1);
        const char *end = v.len ? memchr(v.data, '>', v.len) : NULL;
        if (!end) return false;
        view target = { v.data + 1, (size_t)(end - v.data - 1) };
        take(&v, target.len + 2);
        v = trim(v);
        while (v.len && v.data[0] == ';') {
            take(&v, 1);
            if (!next_parameter(&v, &key, &text)) break;
            if (equals_nocase(key, "rel") && has_word(text, "next") && target.len) {
                str_clear(out);
                str_append(out, target.data, target.len);
                return str_ok(out);
            }
        }
    }
}

bool header_challenge(view value, str *realm, str *service, str *scope) {
    view v = trim(value), key, text;
    str_clear(realm);
    str_clear(service);
    str_clear(scope);
    if (v.len < 7 || strncasecmp(v.data, "bearer ", 7) != 0) return false;
    take(&v, 7);
    while (next_parameter(&v, &key, &text)) {
        str *to = equals_nocase(key, "realm")     ? realm
                  : equals_nocase(key, "service") ? service
                  : equals_nocase(key, "scope")   ? scope
                                                  : NULL;
        if (to) {
            str_clear(to);
            str_append(to, text.data, text.len);
        }
        if (v.len == 0 || v.data[0] != ',') break;
        take(&v, 1);
    }
    return realm->len > 0 && str_ok(realm) && str_ok(service) && str_ok(scope);
}

/* --- the head of an answer --- */

void http_head_deinit(http_head *h) {
    free(h->location);
    free(h->link);
    free(h->challenge);
    memset(h, 0, sizeof *h);
}

void http_head_reset(http_head *h) {
    http_head_deinit(h);
    h->content_length = h->retry_after = h->linked_size = -1;
}

/* A strong tag without its quotes; a weak one promises too little to be kept. */
static void put_tag(char *out, size_t room, view v) {
    out[0] = '\0';
    if (view_starts(v, "W/")) return;
    if (v.len >= 2 && v.data[0] == '"' && v.data[v.len - 1] == '"') v = (view){ v.data + 1, v.len - 2 };
    if (v.len == 0 || v.len >= room || memchr(v.data, '"', v.len) || memchr(v.data, '\0', v.len)) return;
    memcpy(out, v.data, v.len);
    out[v.len] = '\0';
}

static void put_text(char **out, view v) {
    free(*out);
    *out = v.len && v.len <= MAX_HEADER && !memchr(v.data, '\0', v.len) ? strndup(v.data, v.len) : NULL;
}

static void status_line(http_head *h, view line) {
    http_head_reset(h);
    const char *space = memchr(line.data, ' ', line.len);
    int64_t     status;
    if (space && line.data + line.len - space > 3 && header_number((view){ space + 1, 3 }, &status))
        h->status = (int)status;
}

void http_head_line(http_head *h, view line, int64_t now) {
    if (line.len >= 5 && memcmp(line.data, "HTTP/", 5) == 0) {
        status_line(h, line);
        return;
    }
    const char *colon = line.len ? memchr(line.data, ':', line.len) : NULL;
    if (!colon) return;
    view name = { line.data, (size_t)(colon - line.data) };
    view value = trim((view){ colon + 1, (size_t)(line.data + line.len - colon - 1) });
    if (equals_nocase(name, "content-length")) {
        if (!header_number(value, &h->content_length)) h->content_length = -1;
    } else if (equals_nocase(name, "content-range")) {
        h->has_range = header_content_range(value, &h->range_first, &h->range_last, &h->range_total);
    } else if (equals_nocase(name, "retry-after")) {
        char text[65];
        if (value.len > 64) return;
        memcpy(text, value.data, value.len);
        text[value.len] = '\0';
        if (!header_retry_after(text, now, &h->retry_after)) h->retry_after = -1;
    } else if (equals_nocase(name, "x-linked-size")) {
        if (!header_number(value, &h->linked_size)) h->linked_size = -1;
    } else if (equals_nocase(name, "etag")) {
        put_tag(h->etag, sizeof h->etag, value);
    } else if (equals_nocase(name, "x-linked-etag")) {
        put_tag(h->linked_etag, sizeof h->linked_etag, value);
    } else if (equals_nocase(name, "x-repo-commit")) {
        put_tag(h->commit, sizeof h->commit, value);
    } else if (equals_nocase(name, "location")) {
        put_text(&h->location, value);
    } else if (equals_nocase(name, "link")) {
        put_text(&h->link, value);
    } else if (equals_nocase(name, "www-authenticate")) {
        put_text(&h->challenge, value);
    }
}
