/* SPDX-License-Identifier: Apache-2.0 */
/* What the fuzzers of vocabularies do with one that opened: it must encode and decode without harm. */
#ifndef TESTS_FUZZ_TRIP_H
#define TESTS_FUZZ_TRIP_H

#include "tokenizer/tokenizer.h"

static const char trip_text[] = "Hello, ab abc solo<|x|> 12345 \xC3\xA9\xE4\xB8\xAD\xF0\x9F\x91\x8D\n\n  x'S "
                                "don't\t[MASK][INST]\xEF\xBB\xBF \xE2\x96\x81";

static inline void trip(const tok *t) {
    err e = { 0 };
    for (unsigned flags = 0; flags < 4; flags++) {
        tok_ids ids = { 0 };
        str     back;
        str_init(&back);
        if (tok_encode(t, trip_text, sizeof trip_text - 1, flags, &ids, &e) == 0)
            (void)tok_decode(t, ids.data, ids.count, flags & 1, &back, &e);
        tok_ids_deinit(&ids);
        str_deinit(&back);
    }
}

#endif
