/* SPDX-License-Identifier: Apache-2.0 */
#include "server/content.h"

#include "server/internal.h"

#include <string.h>

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

/* --- pictures and sounds --- */

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

/* A place of so many bytes in the request's blobs, and the part that names it; NULL: it cannot be had. */
static char *add_blob(content_reader *c, const node *at, const char *type, size_t bytes) {
    runtime_request *q = c->q;
    size_t           before = 0;
    for (size_t i = 0; i < q->n_blobs; i++) before += q->blobs[i].len;
    if (before + bytes > RUNTIME_MAX_BLOB_BYTES) {
        reader_fail(&c->x->in, at,
                    "the pictures and sounds of a request have more than %d million pixels or %d minutes together",
                    (int)(RUNTIME_MAX_BLOB_BYTES / PIXELS_CHANNELS / 1000000),
                    (int)(RUNTIME_MAX_BLOB_BYTES / sizeof(float) / SOUND_RATE / 60));
        return NULL;
    }
    view *list = q->blobs ? (view *)(uintptr_t)q->blobs : arena_calloc(&c->x->arena, RUNTIME_MAX_BLOBS, sizeof *list);
    char *copy = arena_alloc(&c->x->arena, bytes);
    if (!list || !copy) {
        reader_fail(&c->x->in, at, "out of memory");
        return NULL;
    }
    list[q->n_blobs] = (view){ copy, bytes };
    q->blobs = list;
    end_text(c);
    jw_open(&c->w, '{');
    jw_put_cstr(&c->w, "type", type);
    jw_put_int(&c->w, "blob", (int64_t)q->n_blobs++);
    jw_close(&c->w, '}');
    c->media = true;
    return copy;
}

/* Whether one more may come. */
static bool check_file(content_reader *c, const node *at, const char *what, size_t bytes) {
    if (c->q->n_blobs == RUNTIME_MAX_BLOBS)
        reader_fail(&c->x->in, at, "a request may have %d %ss at most", RUNTIME_MAX_BLOBS, what);
    else if (bytes > CONTENT_MAX_FILE)
        reader_fail(&c->x->in, at, "the %s has %zu bytes; at most %d are read", what, bytes, CONTENT_MAX_FILE);
    else
        return true;
    return false;
}

static void put_picture(content_reader *c, const node *at, view file) {
    pixels p;
    err    e = { 0 };
    if (!check_file(c, at, "picture", file.len)) return;
    if (host_read_picture(c->x->host, file, &p, &e) < 0) {
        reader_fail(&c->x->in, at, "%s", e.msg);
        return;
    }
    int32_t size[2] = { p.width, c->low ? -p.height : p.height };
    char   *to = add_blob(c, at, "image", PIXELS_HEAD_BYTES + pixels_bytes(&p));
    if (to) {
        memcpy(to, size, sizeof size);
        memcpy(to + PIXELS_HEAD_BYTES, p.rgb, pixels_bytes(&p));
    }
    pixels_deinit(&p);
}

static void put_sound(content_reader *c, const node *at, view file) {
    sound s;
    err   e = { 0 };
    if (!check_file(c, at, "sound", file.len)) return;
    if (host_read_sound(c->x->host, file, &s, &e) < 0) {
        reader_fail(&c->x->in, at, "%s", e.msg);
        return;
    }
    char *to = add_blob(c, at, "audio", sound_bytes(&s));
    if (to) sound_write(&s, to);
    sound_deinit(&s);
}

void content_detail(content_reader *c, const node *from) {
    view detail = { "", 0 };
    c->low = read_string(&c->x->in, from, "detail", &detail) && view_eq_c(detail, "low");
    if (detail.len && !c->low && !view_eq_c(detail, "auto") && !view_eq_c(detail, "high"))
        exchange_ignore(c->x, view_of("detail"));
}

/* The bytes of a file; false: they are not, and that was said. */
static bool read_base64(content_reader *c, const node *at, view base64, const char *what, str *file) {
    if (base64.len / 4 * 3 > CONTENT_MAX_FILE)
        reader_fail(&c->x->in, at, "the %s has more than %d bytes", what, CONTENT_MAX_FILE);
    else if (!decode_base64(base64, file))
        reader_fail(&c->x->in, at, "is not base64");
    else
        return true;
    return false;
}

void content_picture_base64(content_reader *c, const node *at, view base64) {
    str file;
    if (view_starts(base64, "data:")) {
        content_picture_url(c, at, base64);
        return;
    }
    str_init(&file);
    if (read_base64(c, at, base64, "picture", &file)) put_picture(c, at, (view){ str_cstr(&file), file.len });
    str_deinit(&file);
}

void content_sound(content_reader *c, const node *from) {
    static const char *const formats[] = { "wav", "mp3", NULL };
    reader                  *r = &c->x->in;
    view                     data, format;
    int                      which = 0;
    if (!need_kind(r, from, NODE_OBJECT) || !need_string(r, from, "data", &data)) return;
    if (!need_string(r, from, "format", &format) || !read_choice(r, from, "format", formats, &which)) return;
    node at = node_get(from, "data");
    content_sound_base64(c, &at, data);
}

void content_sound_base64(content_reader *c, const node *at, view base64) {
    str file;
    str_init(&file);
    if (read_base64(c, at, base64, "sound", &file)) put_sound(c, at, (view){ str_cstr(&file), file.len });
    str_deinit(&file);
}

/* How sounds begin: WAV (pictures in RIFF files have another name there), MP3 with and without a title (eleven bits that are
 * one, which no picture has, and a layer). */
static bool begins_sound(view file) {
    if (file.len >= 12 && memcmp(file.data, "RIFF", 4) == 0) return memcmp(file.data + 8, "WAVE", 4) == 0;
    if (view_starts(file, "ID3")) return true;
    return file.len >= 2 && (uint8_t)file.data[0] == 0xff && (file.data[1] & 0xe0) == 0xe0 &&
           (file.data[1] & 0x06) != 0;
}

void content_medium_base64(content_reader *c, const node *at, view base64) {
    str file, head;
    str_init(&head);
    str_init(&file);
    bool heard = decode_base64((view){ base64.data, base64.len < 16 ? base64.len : 16 }, &head) &&
                 begins_sound((view){ str_cstr(&head), head.len });
    if (!heard)
        content_picture_base64(c, at, base64);
    else if (read_base64(c, at, base64, "sound", &file))
        put_sound(c, at, (view){ str_cstr(&file), file.len });
    str_deinit(&head);
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
    if (c->q->n_blobs < RUNTIME_MAX_BLOBS && fetch_file(rules, url, CONTENT_MAX_FILE, &file, &e) < 0)
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
    if (!c->media) {
        jw_put_text(w, "content", (view){ str_cstr(&c->text), c->text.len });
        return;
    }
    end_text(c);
    jw_key(w, "content");
    jw_open(w, '[');
    jw_raw(w, (view){ str_cstr(&c->parts), c->parts.len });
    jw_close(w, ']');
}
