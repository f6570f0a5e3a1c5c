/* SPDX-License-Identifier: Apache-2.0 */
/* For the front ends of this room. */
#ifndef GRAMMAR_COMPILE_H
#define GRAMMAR_COMPILE_H

#include "grammar/grammar.h"

/*
 * As grammar_compile, without a copy: the expressions move into the grammar and g is freed, also on failure. An error
 * kept in g is reported.
 */
int grammar_compile_own(grammar **out, ir *g, ir_sym start, err *e);

#endif
