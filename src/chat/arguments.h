/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of one call as a grammar: JSON by its schema, or the values of a syntax of tags, Python or Gemma 4. */
#ifndef CHAT_ARGUMENTS_H
#define CHAT_ARGUMENTS_H

#include "base/err.h"
#include "base/json.h"
#include "chat/format.h"
#include "grammar/ir.h"

/*
 * schema may be NULL: no arguments. What cannot be enforced exactly is an error that names it; with lenient it is
 * widened instead (any value of the right kind).
 */
int chat_arguments(ir *g, const chat_format *f, const json_value *schema, bool lenient, ir_sym *out, err *e);

ir_rx chat_rx_pieces(ir *g, const char *text); /* constraint.c */

#endif
