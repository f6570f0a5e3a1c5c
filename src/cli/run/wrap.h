/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An answer on a terminal: lines break between words, wide characters count as two columns, and the width is asked
 * again for every piece, so that a window may be resized meanwhile. A word is held back until it is over. Blocks
 * between ``` stay as they are. With `markdown` headings, **strong** words and `code` become colours, and their marks go.
 */
#ifndef CLI_RUN_WRAP_H
#define CLI_RUN_WRAP_H

#include "base/str.h"

#include <stdbool.h>

typedef struct wrap {
    bool   markdown;
    int    width;              /* columns; 0: lines are left alone */
    int    column;             /* where the next character comes */
    int    n_spaces;           /* held back between words */
    str    word;               /* held back, with its colours */
    int    word_width;         /* columns of it */
    size_t n_line;             /* characters of the line so far */
    int    lead;               /* ticks that the line begins with */
    int    ticks, stars, hash; /* marks at hand: what they mean shows with the next character */
    bool   fence, strong, code, heading, skip;
} wrap;

void wrap_init(wrap *w, bool markdown);
void wrap_deinit(wrap *w);
/* Appends to out what may be shown now. text is whole UTF-8 without control characters but \n and \t. */
void wrap_put(wrap *w, view text, str *out);
void wrap_finish(wrap *w, str *out); /* the rest, and plain letters again */
int  wrap_columns(void);             /* of the terminal on stdout; 0: unknown */

#endif
