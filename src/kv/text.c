/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/text.h"

#include <stddef.h>
#include <string.h>

static const kv_key none;

bool kv_key_eq(const kv_key *a, const kv_key *b) { return memcmp(a->b, b->b, sizeof a->b) == 0; }
bool kv_key_is_none(const kv_key *k) { return kv_key_eq(k, &none); }

kv_span kv_text_span(const kv_text *text, int at, int n) {
    return (kv_span){ text->tokens + at, text->rows ? text->rows + at : NULL, n };
}

bool kv_span_plain(const kv_span *s) {
    for (int i = 0; s->rows && i < s->n; i++) {
        if (!kv_key_is_none(&s->rows[i])) return false;
    }
    return true;
}

static const kv_key *row(const kv_span *s, int i) { return s->rows ? &s->rows[i] : &none; }

int kv_common(const kv_span *a, const kv_span *b) {
    const int32_t *p = a->tokens, *q = b->tokens;
    int            n = a->n < b->n ? a->n : b->n, same = 0, i = 0;
    while (same < n && p[same] == q[same]) same++;
    if (!a->rows && !b->rows) return same;
    while (i < same && kv_key_eq(row(a, i), row(b, i))) i++;
    return i;
}

bool kv_span_before(const kv_span *a, const kv_span *b, int k) {
    if (k == a->n || k == b->n) return a->n < b->n;
    if (a->tokens[k] != b->tokens[k]) return a->tokens[k] < b->tokens[k];
    return memcmp(row(a, k), row(b, k), sizeof none) < 0;
}
