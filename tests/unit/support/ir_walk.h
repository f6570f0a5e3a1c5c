/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain recognizer for an ir, written for clearness: every configuration is an expression and the list of what must
 * follow it, and all of them are followed byte by byte. It shares nothing with the automaton of src/grammar but the
 * expressions' derivatives, so the two can be compared.
 */
#ifndef SUPPORT_IR_WALK_H
#define SUPPORT_IR_WALK_H

#include "grammar/ir.h"

#include <stdbool.h>
#include <stddef.h>

/* Whether the text is in the language of start. *stop gets the offset at which nothing could follow, or n. */
bool ir_walk(ir *g, ir_sym start, const char *text, size_t n, size_t *stop);

#endif
