/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lark grammars as patterns.
 *
 * A grammar whose rules do not refer to themselves describes a regular language, and unfolds into one pattern of the
 * dialect of ir_rx_parse: every text of the grammar matches it as a whole, and nothing else does. A text may be cut into
 * terminals in every way, as Lark's own parser allows; what %ignore names may stand between them. Recursion, templates,
 * imports of anything but `common`, and what else has no exact translation are refused by name.
 */
#ifndef GRAMMAR_LARK_H
#define GRAMMAR_LARK_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* Appends the pattern, without anchors. */
int grammar_lark_pattern(view source, str *out, err *e);

/* A pattern as Rust, Python and Lark write them, in our dialect: "." is all but a line feed, classes of letters are
 * ASCII (a narrower language, never a wider one). flags: letters behind Lark's closing slash. anchors:
 * whether ^ and $ may stand in it. */
int grammar_plain_pattern(view pattern, view flags, bool anchors, str *out, err *e);

#endif
