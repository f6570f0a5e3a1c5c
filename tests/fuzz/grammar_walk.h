/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks a grammar along bytes that a fuzzer chose. Findings beside crashes: a mask that disagrees with accepting, a
 * place from which nothing can follow although the text may not end, a state that rollback does not restore.
 */
#ifndef TESTS_FUZZ_GRAMMAR_WALK_H
#define TESTS_FUZZ_GRAMMAR_WALK_H

#include "grammar/grammar.h"

#include <stdlib.h>
#include <string.h>

enum { WALK_TOKENS = 256 + 24 + 1, WALK_WORDS = (WALK_TOKENS + 31) / 32 };

static grammar_vocab *walk_vocab(void) {
    static grammar_vocab    *v;
    static const char *const words[24] = { "ab", "abc", "{\"",  "\":", "\", ",     "true",     "null",  "0.",
                                           "10", "  ",  "\n\n", "\"}", "\xC3\xA9", "\xE2\x82", "\\u00", "aaaa",
                                           "]}", "[[",  "-1",   "a\"", "x y",      "\\\"",     ": ",    "é" };
    static char              bytes[256];
    view                     texts[WALK_TOKENS];
    int32_t                  end = WALK_TOKENS - 1;
    if (v) return v;
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (view){ &bytes[i], 1 };
    }
    for (int i = 0; i < 24; i++) texts[256 + i] = view_of(words[i]);
    texts[end] = view_of("");
    if (grammar_vocab_open_texts(&v, texts, WALK_TOKENS, &end, 1, NULL) < 0) abort();
    return v;
}

/* Takes over g. */
static void walk_grammar(grammar *g, const uint8_t *data, size_t size) {
    grammar_matcher *m;
    uint32_t         mask[WALK_WORDS], again[WALK_WORDS];
    err              e;
    if (size > 20) size = 20;
    if (grammar_matcher_open(&m, g, walk_vocab(), &e) < 0) {
        grammar_unref(g);
        return;
    }
    for (size_t i = 0; i <= size; i++) {
        uint32_t any = 0;
        int32_t  token = i < size ? (data[i] < 232 ? data[i] : 256 + data[i] - 232) : 0;
        if (grammar_matcher_mask(m, mask, &e) < 0) break; /* a limit */
        for (int w = 0; w < WALK_WORDS; w++) any |= mask[w];
        if (!any) abort();
        if (((mask[(WALK_TOKENS - 1) >> 5] >> ((WALK_TOKENS - 1) & 31)) & 1) != grammar_matcher_may_end(m)) abort();
        if (i == size) break;
        bool bit = (mask[token >> 5] >> (token & 31)) & 1;
        int  rc = grammar_matcher_accept(m, token, &e);
        if (rc < 0 && rc != ERR_ARG) break;
        if ((rc == 0) != bit) abort();
        if (rc < 0) { /* go on with what is allowed */
            int32_t t = 0;
            while (t < WALK_TOKENS - 1 && !((mask[t >> 5] >> (t & 31)) & 1)) t++;
            if (t == WALK_TOKENS - 1) break;
            if (grammar_matcher_accept(m, t, &e) < 0) break;
            token = t;
        }
        if (i % 4 == 0) {
            grammar_matcher_rollback(m, 1);
            if (grammar_matcher_mask(m, again, &e) < 0) break;
            if (memcmp(mask, again, sizeof mask) != 0) abort();
            if (grammar_matcher_accept(m, token, &e) < 0) break;
        }
    }
    grammar_matcher_free(m);
    grammar_unref(g);
}

/* The input is a source, a zero byte and the bytes of the walk. */
static size_t walk_split(const uint8_t *data, size_t size) {
    const uint8_t *zero = memchr(data, 0, size);
    return zero ? (size_t)(zero - data) : size;
}

#endif
