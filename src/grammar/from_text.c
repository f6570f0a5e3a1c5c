/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars from short texts: a pattern, a list of choices. */
#include "grammar/compile.h"

#include <stdlib.h>

int grammar_from_regex(grammar **out, view pattern, err *e) {
    ir   *g;
    ir_rx a;
    int   rc = ir_open(&g, e);
    *out = NULL;
    if (rc < 0) return rc;
    if ((rc = ir_rx_parse(g, pattern.data, pattern.len, 0, &a, e)) < 0) {
        ir_free(g);
        return rc;
    }
    return grammar_compile_own(out, g, ir_terminal(g, a), e);
}

int grammar_from_choices(grammar **out, const view *texts, size_t n, err *e) {
    ir    *g;
    ir_rx *list = malloc((n + 1) * sizeof *list);
    ir_sym start;
    int    rc = list ? ir_open(&g, e) : err_set_nomem(e);
    *out = NULL;
    if (rc < 0) {
        free(list);
        return rc;
    }
    for (size_t i = 0; i < n; i++) list[i] = ir_rx_bytes(g, texts[i].data, texts[i].len);
    start = ir_terminal(g, ir_rx_alt_n(g, list, n));
    free(list);
    if (n == 0) {
        ir_free(g);
        return err_set(e, ERR_ARG, "a list of choices is empty");
    }
    return grammar_compile_own(out, g, start, e);
}
