/* SPDX-License-Identifier: Apache-2.0 */
#include "server/grpc/pb.h"

#include <string.h>

/* --- reading --- */

pb_reader pb_reader_of(view bytes) {
    const uint8_t *p = (const uint8_t *)bytes.data;
    return (pb_reader){ p, p + bytes.len, false };
}

static bool fail(pb_reader *r) {
    r->failed = true;
    return false;
}

static bool read_varint(pb_reader *r, uint64_t *out) {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (r->at == r->end) return fail(r);
        uint8_t b = *r->at++;
        if (shift == 63 && b > 1) return fail(r);
        v |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) {
            *out = v;
            return true;
        }
    }
    return fail(r);
}

static bool read_fixed(pb_reader *r, size_t bytes, uint64_t *out) {
    uint64_t v = 0;
    if ((size_t)(r->end - r->at) < bytes) return fail(r);
    for (size_t i = 0; i < bytes; i++) v |= (uint64_t)r->at[i] << (8 * i);
    r->at += bytes;
    *out = v;
    return true;
}

/* One field of any wire type; the inside of a group is left to the caller. */
static bool read_item(pb_reader *r, pb_item *out) {
    uint64_t tag, len;
    if (!read_varint(r, &tag)) return false;
    *out = (pb_item){ .number = (uint32_t)(tag >> 3), .wire = (pb_wire)(tag & 7) };
    if (tag >> 3 == 0 || tag >> 3 >= 1u << 29) return fail(r);
    switch (out->wire) {
    case PB_VARINT: return read_varint(r, &out->value);
    case PB_FIXED64: return read_fixed(r, 8, &out->value);
    case PB_FIXED32: return read_fixed(r, 4, &out->value);
    case PB_LENGTH:
        if (!read_varint(r, &len) || len > (uint64_t)(r->end - r->at)) return fail(r);
        out->bytes = (view){ (const char *)r->at, (size_t)len };
        r->at += len;
        return true;
    case PB_GROUP:
    case PB_GROUP_END: return true;
    }
    return fail(r);
}

/* Groups went out of use long ago; whoever has one in a field that is not known here is not refused for it. */
static bool skip_group(pb_reader *r, uint32_t number) {
    uint32_t open[PB_MAX_DEPTH] = { number };
    int      depth = 1;
    pb_item  it;
    while (depth) {
        if (!read_item(r, &it)) return fail(r);
        if (it.wire == PB_GROUP) {
            if (depth == PB_MAX_DEPTH) return fail(r);
            open[depth++] = it.number;
        } else if (it.wire == PB_GROUP_END && open[--depth] != it.number) {
            return fail(r);
        }
    }
    return true;
}

bool pb_next(pb_reader *r, pb_item *out) {
    while (!r->failed && r->at < r->end) {
        if (!read_item(r, out)) return false;
        if (out->wire == PB_GROUP_END) return fail(r);
        if (out->wire != PB_GROUP) return true;
        if (!skip_group(r, out->number)) return false;
    }
    return false;
}

/* --- writing --- */

void pb_put_varint(str *out, uint64_t v) {
    char   bytes[10];
    size_t n = 0;
    do {
        bytes[n++] = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    str_append(out, bytes, n);
}

void pb_put_tag(str *out, int number, pb_wire wire) { pb_put_varint(out, (uint64_t)number << 3 | (uint64_t)wire); }

void pb_put_int(str *out, int number, int64_t v) {
    if (v == 0) return;
    pb_put_tag(out, number, PB_VARINT);
    pb_put_varint(out, (uint64_t)v);
}

static void put_fixed(str *out, uint64_t bits, size_t n) {
    char bytes[8];
    for (size_t i = 0; i < n; i++) bytes[i] = (char)(bits >> (8 * i));
    str_append(out, bytes, n);
}

void pb_put_double(str *out, int number, double v) {
    uint64_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (bits == 0) return;
    pb_put_tag(out, number, PB_FIXED64);
    put_fixed(out, bits, 8);
}

void pb_put_text(str *out, int number, view text) {
    if (text.len == 0) return;
    pb_put_tag(out, number, PB_LENGTH);
    pb_put_varint(out, text.len);
    str_append(out, text.data, text.len);
}

void pb_put_floats(str *out, int number, const float *v, size_t n) {
    if (n == 0) return;
    pb_put_tag(out, number, PB_LENGTH);
    pb_put_varint(out, n * 4);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &v[i], sizeof bits);
        put_fixed(out, bits, 4);
    }
}

size_t pb_open(str *out, int number) {
    pb_put_tag(out, number, PB_LENGTH);
    str_push(out, 0); /* the length of a short one; a longer one is moved */
    return out->len;
}

void pb_close(str *out, size_t at) {
    char     bytes[10];
    size_t   n = 0, len = out->len - at;
    uint64_t v = len;
    if (!str_ok(out) || at == 0) return;
    do {
        bytes[n++] = (char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        v >>= 7;
    } while (v);
    if (n > 1) {
        str_append(out, bytes, n - 1); /* room */
        if (!str_ok(out)) return;
        memmove(out->data + at + n - 1, out->data + at, len);
    }
    memcpy(out->data + at - 1, bytes, n);
}

bool pb_is_utf8(view text) {
    unsigned c;
    for (size_t at = 0, n; at < text.len; at += n) {
        n = (unsigned char)text.data[at] < 0x80 ? 1 : utf8_decode(text.data + at, text.len - at, &c);
        if (n == 0) return false;
    }
    return true;
}

void pb_put_utf8(str *out, int number, view text) {
    if (pb_is_utf8(text)) {
        pb_put_text(out, number, text);
        return;
    }
    size_t   open = pb_open(out, number), n;
    unsigned c;
    for (size_t at = 0; at < text.len; at += n ? n : 1) {
        n = utf8_decode(text.data + at, text.len - at, &c);
        str_put_utf8(out, n ? c : 0xfffd);
    }
    pb_close(out, open);
}
