/* SPDX-License-Identifier: Apache-2.0 */
/* A schema's grammar, ready for matchers. */
#include "grammar/grammar.h"
#include "grammar/schema.h"

static int from_schema(grammar **out, view schema_json, unsigned flags, err *e) {
    ir    *g = NULL;
    ir_sym start;
    int    rc = ir_open(&g, e);
    *out = NULL;
    if (rc < 0) return rc;
    rc = schema_compile_with(g, schema_json, flags, &start, e);
    if (rc == 0) {
        rc = grammar_compile(out, g, start, e);
        if (rc < 0) err_wrap(e, rc, "schema");
    }
    ir_free(g);
    return rc;
}

int grammar_from_schema(grammar **out, view schema_json, err *e) { return from_schema(out, schema_json, 0, e); }

int grammar_from_schema_steered(grammar **out, view schema_json, err *e) {
    return from_schema(out, schema_json, SCHEMA_DECLARED_FIRST, e);
}
