/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a GBNF grammar, then a walk (grammar_walk.h). */
#include "grammar_walk.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t   n = walk_split(data, size);
    grammar *g;
    err      e;
    if (n > 400) return 0;
    if (grammar_from_gbnf(&g, (view){ (const char *)data, n }, &e) == 0) walk_grammar(g, data + n, size - n);
    return 0;
}
