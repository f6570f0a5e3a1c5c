/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a pattern, searched for inside JSON strings and alone, then a walk (grammar_walk.h). */
#include "grammar_walk.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t   n = walk_split(data, size);
    grammar *g;
    ir      *i;
    ir_rx    a;
    err      e;
    if (n > 100) return 0;
    if (grammar_from_regex(&g, (view){ (const char *)data, n }, &e) == 0) walk_grammar(g, data + n, size - n);
    if (ir_open(&i, &e) < 0) return 0;
    if (ir_rx_parse(i, (const char *)data, n, IR_RX_SEARCH, &a, &e) == 0 &&
        grammar_compile(&g, i, ir_terminal(i, ir_rx_json_string(i, a)), &e) == 0)
        walk_grammar(g, data + n, size - n);
    ir_free(i);
    return 0;
}
