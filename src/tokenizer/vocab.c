/* SPDX-License-Identifier: Apache-2.0 */
/* The vocabulary: texts in one blob, an index from text to id, and GPT-2's byte alphabet. */
#include "base/map.h"
#include "base/num.h"
#include "tokenizer/internal.h"

#include <stdlib.h>
#include <string.h>

void vocab_deinit(vocab *v) {
    free(v->off);
    free(v->len);
    free(v->cls);
    free(v->score);
    free(v->slots);
    str_deinit(&v->blob);
    *v = (vocab){ 0 };
}

static bool grow(vocab *v, uint32_t n, bool scores) {
    uint32_t cap = v->cap + v->cap / 2;
    if (n <= v->cap && (!scores || v->score)) return true;
    if (cap < n) cap = n;
    if (cap < 64) cap = 64;
    uint32_t *off = realloc(v->off, (size_t)cap * sizeof *off);
    if (off) v->off = off;
    uint32_t *len = realloc(v->len, (size_t)cap * sizeof *len);
    if (len) v->len = len;
    uint8_t *cls = realloc(v->cls, cap);
    if (cls) v->cls = cls;
    if (!off || !len || !cls) return false;
    if (scores || v->score) {
        bool    fresh = !v->score;
        double *score = realloc(v->score, (size_t)cap * sizeof *score);
        if (!score) return false;
        v->score = score;
        if (fresh) memset(score, 0, (size_t)cap * sizeof *score);
    }
    v->cap = cap;
    return true;
}

bool vocab_reserve(vocab *v, uint32_t n, size_t text_bytes, bool scores) {
    return grow(v, n, scores) && str_reserve(&v->blob, text_bytes);
}

int vocab_set(vocab *v, uint32_t id, const char *text, size_t bytes, tok_class cls, double score, err *e) {
    if (id >= TOK_MAX_TOKENS) return err_set(e, ERR_LIMIT, "token id %u is beyond the limit of %d", id, TOK_MAX_TOKENS);
    if (bytes > TOK_MAX_TOKEN_BYTES)
        return err_set(e, ERR_LIMIT, "token %u has %zu bytes, more than %d", id, bytes, TOK_MAX_TOKEN_BYTES);
    if (v->blob.len + bytes > UINT32_MAX - 1) return err_set(e, ERR_LIMIT, "the vocabulary's texts are too large");
    if (id >= v->n) {
        if (!grow(v, id + 1, v->score != NULL)) return err_set_nomem(e);
        for (uint32_t i = v->n; i <= id; i++) {
            v->off[i] = v->len[i] = 0;
            v->cls[i] = TOK_UNDEFINED;
            if (v->score) v->score[i] = 0;
        }
        v->n = id + 1;
    }
    v->off[id] = (uint32_t)v->blob.len;
    v->len[id] = (uint32_t)bytes;
    v->cls[id] = (uint8_t)cls;
    if (v->score) v->score[id] = score;
    if (bytes > v->max_len) v->max_len = (uint32_t)bytes;
    str_append(&v->blob, text, bytes);
    return str_ok(&v->blob) ? 0 : err_set_nomem(e);
}

view vocab_text(const vocab *v, uint32_t id) {
    return id < v->n ? (view){ v->blob.data ? v->blob.data + v->off[id] : "", v->len[id] } : (view){ "", 0 };
}

uint32_t vocab_hash(const vocab *v, const char *text, size_t bytes) {
    uint64_t h = hash_bytes(text, bytes, v->seed);
    return (uint32_t)(h ^ h >> 32);
}

int vocab_index(vocab *v, err *e) {
    map      seeded; /* lends its random seed */
    uint32_t n_slots = 64;
    map_init(&seeded);
    v->seed = seeded.seed ^ (uint64_t)(uintptr_t)v * 0x9E3779B97F4A7C15u;
    map_deinit(&seeded);
    while (n_slots < v->n * 2) n_slots *= 2;
    free(v->slots);
    v->slots = calloc(n_slots, sizeof *v->slots);
    if (!v->slots) return err_set_nomem(e);
    v->n_slots = n_slots;
    v->n_indexed = v->n;
    for (uint32_t id = 0; id < v->n; id++) {
        if (v->len[id] == 0) continue;
        view     t = vocab_text(v, id);
        uint32_t h = vocab_hash(v, t.data, t.len), i = h & (n_slots - 1);
        for (;; i = (i + 1) & (n_slots - 1)) {
            uint64_t s = v->slots[i];
            if (s == 0) break;
            if ((uint32_t)(s >> 32) == h && view_eq(vocab_text(v, (uint32_t)s - 1), t)) break;
        }
        v->slots[i] = (uint64_t)h << 32 | (id + 1);
    }
    return 0;
}

int32_t vocab_find(const vocab *v, const char *text, size_t bytes) {
    if (!v->slots || bytes > v->max_len) return -1;
    uint32_t h = vocab_hash(v, text, bytes), mask = v->n_slots - 1;
    for (uint32_t i = h & mask;; i = (i + 1) & mask) {
        uint64_t s = v->slots[i];
        if (s == 0) return -1;
        if ((uint32_t)(s >> 32) == h) {
            uint32_t id = (uint32_t)s - 1;
            if (v->len[id] == bytes && memcmp(v->blob.data + v->off[id], text, bytes) == 0) return (int32_t)id;
        }
    }
}

/* Printable Latin-1 characters stand for themselves; the other bytes, in order, for U+0100 and up. */
#define ROW(a)                                                                                                         \
    a, a + 1, a + 2, a + 3, a + 4, a + 5, a + 6, a + 7, a + 8, a + 9, a + 10, a + 11, a + 12, a + 13, a + 14, a + 15
const uint16_t byte_to_char[256] = {
    ROW(0x100), ROW(0x110), /* 00-1F */
    0x120,      0x21,       0x22,  0x23,       0x24,       0x25,      0x26,      0x27,      0x28,      0x29,      0x2A,
    0x2B,       0x2C,       0x2D,  0x2E,       0x2F,       ROW(0x30), ROW(0x40), ROW(0x50), ROW(0x60), 0x70,      0x71,
    0x72,       0x73,       0x74,  0x75,       0x76,       0x77,      0x78,      0x79,      0x7A,      0x7B,      0x7C,
    0x7D,       0x7E,       0x121, ROW(0x122), ROW(0x132), /* 80-9F */
    0x142,      0xA1,       0xA2,  0xA3,       0xA4,       0xA5,      0xA6,      0xA7,      0xA8,      0xA9,      0xAA,
    0xAB,       0xAC,       0x143, 0xAE,       0xAF,       ROW(0xB0), ROW(0xC0), ROW(0xD0), ROW(0xE0), ROW(0xF0),
};
#undef ROW

/* -1 when the character stands for no byte. */
static int char_to_byte(unsigned cp) {
    if (cp >= 0x100 && cp < 0x120) return (int)(cp - 0x100);
    if (cp == 0x120) return 0x20;
    if (cp >= 0x121 && cp < 0x143) return (int)(cp - 0x121 + 0x7F);
    if (cp == 0x143) return 0xAD;
    if ((cp >= 0x21 && cp <= 0x7E) || (cp >= 0xA1 && cp <= 0xFF && cp != 0xAD)) return (int)cp;
    return -1;
}

bool byte_level_decode(view text, str *out) {
    size_t mark = out->len;
    for (size_t i = 0; i < text.len;) {
        unsigned      cp;
        unsigned char c = (unsigned char)text.data[i];
        size_t        n = 1;
        if (c < 0x80)
            cp = c;
        else
            n = utf8_decode(text.data + i, text.len - i, &cp);
        int b = n ? char_to_byte(cp) : -1;
        if (b < 0) {
            out->len = mark;
            return false;
        }
        str_push(out, (char)b);
        i += n;
    }
    return true;
}

void byte_level_encode(const char *text, size_t bytes, str *out) {
    for (size_t i = 0; i < bytes; i++) str_put_utf8(out, byte_to_char[(unsigned char)text[i]]);
}

int byte_token_value(view t) {
    int v = 0;
    if (t.len != 6 || memcmp(t.data, "<0x", 3) != 0 || t.data[5] != '>') return -1;
    for (int i = 3; i < 5; i++) {
        char c = t.data[i];
        int  d = c >= '0' && c <= '9'   ? c - '0'
                 : c >= 'A' && c <= 'F' ? c - 'A' + 10
                 : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                        : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

bool base64_decode(const char *text, size_t bytes, str *out) {
    unsigned bits = 0, n = 0;
    while (bytes && text[bytes - 1] == '=') bytes--;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        int  d = c >= 'A' && c <= 'Z'   ? c - 'A'
                 : c >= 'a' && c <= 'z' ? c - 'a' + 26
                 : c >= '0' && c <= '9' ? c - '0' + 52
                 : c == '+'             ? 62
                 : c == '/'             ? 63
                                        : -1;
        if (d < 0) return false;
        bits = bits << 6 | (unsigned)d;
        if (++n == 4) {
            const char three[3] = { (char)(bits >> 16), (char)(bits >> 8), (char)bits };
            str_append(out, three, 3);
            bits = n = 0;
        }
    }
    if (n == 1) return false;
    if (n >= 2) str_push(out, (char)(n == 2 ? bits >> 4 : bits >> 10));
    if (n == 3) str_push(out, (char)(bits >> 2));
    return str_ok(out);
}
