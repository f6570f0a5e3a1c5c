/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON Schema -> ir.
 *
 * The language of a compiled schema is a set of JSON texts that are all valid instances of it; what cannot be decided
 * exactly is refused by name, never dropped. Drafts 4 to 2020-12 are read (the root's "$schema" decides; without one
 * 2020-12 is meant). Known formats are asserted, unknown ones are annotations.
 *
 * What is narrower than the specification, on purpose:
 *  - White space: none, one space, or a line break with up to 32 spaces or 8 tabs, after "{", "[" and "," and before
 * "}" and "]"; none or one space after ":". A model cannot write white space for ever.
 *  - Numbers: at most 24 digits before and after the point and exponents of two digits, so that every number is finite
 *    in double precision and on the right side of its bounds.
 *  - Properties may come in any order. Objects with more than eight required properties (four, where a schema has
 *    many such objects) take those in the order of "properties" or of "required", with one of them out of place at a
 *    time; optional ones come anywhere.
 */
#ifndef GRAMMAR_SCHEMA_SCHEMA_H
#define GRAMMAR_SCHEMA_SCHEMA_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "grammar/ir.h"

#define SCHEMA_MAX_BYTES (4u << 20)
#define SCHEMA_MAX_TRACKED 4

/* Adds the schema's rules to g; *start is the symbol of its instances. Messages read "schema at #/a/b: ...". */
int schema_compile(ir *g, view json, ir_sym *start, err *e);

/*
 * For a model to write under. SCHEMA_DECLARED_FIRST: an object with required members does not begin with a name that
 * its schema never mentions; a small model that may write any name wanders off inside the first one instead of saying
 * what was asked for. Objects with conditions (not, if, dependencies), where such names matter, are left as they are.
 */
enum { SCHEMA_DECLARED_FIRST = 1 };
int schema_compile_with(ir *g, view json, unsigned flags, ir_sym *start, err *e);

/* A schema that was parsed already; nothing of it is kept. */
int schema_compile_tree(ir *g, const json_value *schema, unsigned flags, ir_sym *start, err *e);

/* The strings among its instances as plain text, without quotes and escapes; other instances are left out. */
int schema_compile_text(ir *g, const json_value *schema, ir_rx *out, err *e);

#endif
