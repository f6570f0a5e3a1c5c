/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of one call as a grammar: JSON by its schema, or the values of a syntax of tags, Python or Gemma 4. */
#ifndef CHAT_ARGUMENTS_H
#define CHAT_ARGUMENTS_H

#include "base/err.h"
#include "base/json.h"
#include "chat/format.h"
#include "grammar/ir.h"

enum {
    CHAT_ARGUMENTS_LENIENT = 1,   /* what cannot be enforced exactly is widened: any value of the right kind */
    CHAT_ARGUMENTS_FULL_JSON = 2, /* every text of the schema, not the part that models are steered to */
};

/* schema may be NULL: no arguments. What cannot be enforced exactly is an error that names it, unless lenient. */
int chat_arguments(ir *g, const chat_format *f, const json_value *schema, unsigned how, ir_sym *out, err *e);

ir_rx chat_rx_pieces(ir *g, const char *text); /* constraint.c */

#endif
