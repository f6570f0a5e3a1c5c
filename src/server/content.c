/* SPDX-License-Identifier: Apache-2.0 */
#include "server/content.h"

#include "server/internal.h"

#include <string.h>

enum { MAX_FILE = 20 << 20 }; /* bytes of an encoded picture */

void content_init(content_reader *c, exchange *x, runtime_request *q) {
    *c = (content_reader){ .x = x, .q = q };
    str_init(&c->parts);
    str_init(&c->text);
    c->w = jw_of(&c->parts);
}

void content_deinit(content_reader *c) {
    str_deinit(&c->parts);
    str_deinit(&c->text);
}

void content_text(content_reader *c, view text) { str_append(&c->text, text.data, text.len); }

static void end_text(content_reader *c) {
    if (c->text.len == 0) return;
    jw_open(&c->w, '{');
    jw_put_cstr(&c->w, "type", "text");
    jw_put_text(&c->w, "text", (view){ str_cstr(&c->text), c->text.len });
    jw_close(&c->w, '}');
    str_clear(&c->text);
}

/* --- pictures --- */

static int digit_of(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char       *at = c ? strchr(digits, c == '-' ? '+' : c == '_' ? '/' : c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Spaces and line ends between are fine, and so is missing padding. */
static bool decode_base64(view in, str *out) {
    unsigned bits = 0;
    int      n = 0, padding = 0;
    if (!str_reserve(out, in.len / 4 * 3 + 3)) return false;
    for (size_t i = 0; i < in.len; i++) {
        char c = in.data[i];
        int  d = digit_of(c);
        if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
        padding += c == '=';
        if (c == '=' && padding <= 2) continue;
        if (d < 0 || padding) return false;
        bits = bits << 6 | (unsigned)d;
        if (++n % 4 == 0) {
            char bytes[3] = { (char)(bits >> 16), (char)(bits >> 8), (char)bits };
            str_append(out, bytes, 3);
        }
    }
    if (n % 4 == 1) return false;
    if (n % 4 >= 2) {
        bits <<= n % 4 == 2 ? 12 : 6;
        char bytes[2] = { (char)(bits >> 16), (char)(bits >> 8) };
        str_append(out, bytes, n % 4 == 2 ? 1 : 2);
    }
    return str_ok(out);
}

/* Its place in the request's blobs, with the picture's bytes behind its size. */
static bool add_blob(content_reader *c, const node *at, const pixels *p) {
    runtime_request *q = c->q;
    size_t           bytes = PIXELS_HEAD_BYTES + pixels_bytes(p), before = 0;
    int32_t          size[2] = { p->width, c->low ? -p->height : p->height };
    for (size_t i = 0; i < q->n_blobs; i++) before += q->blobs[i].len;
    if (before + bytes > RUNTIME_MAX_BLOB_BYTES) {
        reader_fail(&c->x->in, at, "the pictures of a request have more than %d million pixels together",
                    (int)(RUNTIME_MAX_BLOB_BYTES / PIXELS_CHANNELS / 1000000));
        return false;
    }
    view *list = q->blobs ? (view *)(uintptr_t)q->blobs : arena_calloc(&c->x->arena, RUNTIME_MAX_BLOBS, sizeof *list);
    char *copy = arena_alloc(&c->x->arena, bytes);
    if (!list || !copy) {
        reader_fail(&c->x->in, at, "out of memory");
        return false;
    }
    memcpy(copy, size, sizeof size);
    memcpy(copy + PIXELS_HEAD_BYTES, p->rgb, pixels_bytes(p));
    list[q->n_blobs] = (view){ copy, bytes };
    q->blobs = list;
    q->n_blobs++;
    return true;
}

static void put_picture(content_reader *c, const node *at, view file) {
    pixels p;
    err    e = { 0 };
    if (c->q->n_blobs == RUNTIME_MAX_BLOBS) {
        reader_fail(&c->x->in, at, "a request may have %d pictures at most", RUNTIME_MAX_BLOBS);
    } else if (file.len > MAX_FILE) {
        reader_fail(&c->x->in, at, "the picture has %zu bytes; at most %d are read", file.len, MAX_FILE);
    } else if (host_read_picture(c->x->host, file, &p, &e) < 0) {
        reader_fail(&c->x->in, at, "%s", e.msg);
    } else {
        end_text(c);
        if (add_blob(c, at, &p)) {
            jw_open(&c->w, '{');
            jw_put_cstr(&c->w, "type", "image");
            jw_put_int(&c->w, "blob", (int64_t)c->q->n_blobs - 1);
            jw_close(&c->w, '}');
            c->pictures = true;
        }
        pixels_deinit(&p);
    }
}

void content_detail(content_reader *c, const node *from) {
    view detail = { "", 0 };
    c->low = read_string(&c->x->in, from, "detail", &detail) && view_eq_c(detail, "low");
    if (detail.len && !c->low && !view_eq_c(detail, "auto") && !view_eq_c(detail, "high"))
        exchange_ignore(c->x, view_of("detail"));
}

void content_picture_base64(content_reader *c, const node *at, view base64) {
    str file;
    if (view_starts(base64, "data:")) {
        content_picture_url(c, at, base64);
        return;
    }
    str_init(&file);
    if (base64.len / 4 * 3 > MAX_FILE)
        reader_fail(&c->x->in, at, "the picture has more than %d bytes", MAX_FILE);
    else if (!decode_base64(base64, &file))
        reader_fail(&c->x->in, at, "is not base64");
    else
        put_picture(c, at, (view){ str_cstr(&file), file.len });
    str_deinit(&file);
}

static void fetch_picture(content_reader *c, const node *at, view url) {
    const fetch_rules *rules = &c->x->server->options.pictures;
    str                file;
    err                e = { 0 };
    if (rules->n_hosts == 0) {
        reader_fail(&c->x->in, at, "pictures by address are not fetched; send them as data:image/...;base64,...");
        return;
    }
    str_init(&file);
    if (c->q->n_blobs < RUNTIME_MAX_BLOBS && fetch_file(rules, url, MAX_FILE, &file, &e) < 0)
        reader_fail(&c->x->in, at, "%s", e.msg);
    else
        put_picture(c, at, (view){ str_cstr(&file), file.len });
    str_deinit(&file);
}

void content_picture_url(content_reader *c, const node *at, view url) {
    const char *comma = memchr(url.data, ',', url.len);
    if (!view_starts(url, "data:")) {
        fetch_picture(c, at, url);
        return;
    }
    if (!comma || !view_ends((view){ url.data, (size_t)(comma - url.data) }, ";base64")) {
        reader_fail(&c->x->in, at, "expected data:image/...;base64,...");
        return;
    }
    size_t head = (size_t)(comma - url.data) + 1;
    content_picture_base64(c, at, (view){ url.data + head, url.len - head });
}

void content_put(content_reader *c, jw *w) {
    if (!c->pictures) {
        jw_put_text(w, "content", (view){ str_cstr(&c->text), c->text.len });
        return;
    }
    end_text(c);
    jw_key(w, "content");
    jw_open(w, '[');
    jw_raw(w, (view){ str_cstr(&c->parts), c->parts.len });
    jw_close(w, ']');
}
