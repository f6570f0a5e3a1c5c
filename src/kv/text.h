/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sequence begins with, as far as it decides what is computed from it.
 *
 * Tokens alone do not: an adapter changes what every position means, and where an embedding is supplied (a row of an
 * image) the token is a placeholder that says nothing about it. A text is therefore tokens, a content key for every
 * supplied row, and a namespace. Two positions are the same when token and content key are; texts of two namespaces
 * have nothing in common. Everything here is borrowed.
 *
 * Keys are the first 16 bytes of a SHA-256 and are taken for what they stand for: nobody finds two contents with the
 * same one. The key of all zeros stands for "nothing": a plain token, or the model without adapters.
 */
#ifndef KV_TEXT_H
#define KV_TEXT_H

#include <stdbool.h>
#include <stdint.h>

enum { KV_KEY_BYTES = 16 };

typedef struct kv_key {
    uint8_t b[KV_KEY_BYTES];
} kv_key;

typedef struct kv_text {
    const int32_t *tokens;
    const kv_key  *rows; /* one per position: nothing for a plain token, else what content, preprocessing and row number
                          * of the supplied embedding hash to; NULL: all tokens are plain */
    kv_key         space; /* what the adapter set hashes to; nothing: the model alone */
} kv_text;

/* Some positions in a row, mostly those of a page. */
typedef struct kv_span {
    const int32_t *tokens;
    const kv_key  *rows; /* NULL: all are plain */
    int            n;
} kv_span;

bool kv_key_eq(const kv_key *a, const kv_key *b);
bool kv_key_is_none(const kv_key *k);

kv_span kv_text_span(const kv_text *text, int at, int n);
bool    kv_span_plain(const kv_span *s);
/* How many positions agree from the beginning on. */
int kv_common(const kv_span *a, const kv_span *b);
/* The order of two spans that agree in their first k positions and differ behind (or one of them ends). */
bool kv_span_before(const kv_span *a, const kv_span *b, int k);

#endif
