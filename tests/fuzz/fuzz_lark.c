/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a Lark grammar; the pattern that it unfolds into, then a walk (grammar_walk.h). */
#include "grammar/lark.h"
#include "grammar_walk.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t   n = walk_split(data, size);
    grammar *g;
    str      pattern;
    err      e;
    if (n > 400) return 0;
    str_init(&pattern);
    if (grammar_lark_pattern((view){ (const char *)data, n }, &pattern, &e) == 0 && pattern.len < 4000 &&
        grammar_from_regex(&g, (view){ str_cstr(&pattern), pattern.len }, &e) == 0)
        walk_grammar(g, data + n, size - n);
    str_deinit(&pattern);
    return 0;
}
