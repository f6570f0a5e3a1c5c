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
 * SCHEMA_STEERED: for a model to write under. A part of the language in which a model that may write anything does not
 * wander off, and that every program reads:
 *  - An object whose schema lists properties and says nothing of additionalProperties has the listed ones only (and
 *    those that patternProperties, required or a condition speak of), unless minProperties asks for more.
 *  - One that is open and has required members does not begin with a name that its schema never mentions. Objects with
 *    conditions (not, if, dependencies), where such names matter, are left as they are.
 *  - Integers, and whole numbers of enum and const, have no fraction; other numbers of these no further zeros.
 *  - Names and strings are escaped where JSON demands it and nowhere else.
 */
enum { SCHEMA_STEERED = 1 };
int schema_compile_with(ir *g, view json, unsigned flags, ir_sym *start, err *e);

/* A schema that was parsed already; nothing of it is kept. */
int schema_compile_tree(ir *g, const json_value *schema, unsigned flags, ir_sym *start, err *e);

/* The strings among its instances as plain text, without quotes and escapes; other instances are left out. */
int schema_compile_text(ir *g, const json_value *schema, ir_rx *out, err *e);

#endif
