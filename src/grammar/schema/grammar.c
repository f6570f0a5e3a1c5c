/* SPDX-License-Identifier: Apache-2.0 */
/* A schema's grammar, ready for matchers. */
#include "grammar/compile.h"
#include "grammar/schema/schema.h"

static int from_schema(grammar **out, view schema_json, unsigned flags, err *e) {
    ir    *g = NULL;
    ir_sym start;
    int    rc = ir_open(&g, e);
    *out = NULL;
    if (rc < 0) return rc;
    if ((rc = schema_compile_with(g, schema_json, flags, &start, e)) < 0) {
        ir_free(g);
        return rc;
    }
    /* SentencePiece models begin an answer with a space of their own; without it they would say something else. */
    if (flags & SCHEMA_STEERED)
        start = ir_seq(g, (ir_sym[]){ ir_terminal(g, ir_rx_opt(g, ir_rx_text(g, " "))), start }, 2);
    if ((rc = grammar_compile_own(out, g, start, e)) < 0) err_wrap(e, rc, "schema");
    return rc;
}

int grammar_from_schema(grammar **out, view schema_json, err *e) { return from_schema(out, schema_json, 0, e); }

int grammar_from_schema_steered(grammar **out, view schema_json, err *e) {
    return from_schema(out, schema_json, SCHEMA_STEERED, e);
}
