/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines typed on a terminal: editing and history by libedit.
 *
 * The history lies in $XDG_STATE_HOME/hearth/history (~/.local/state when unset), private to its user. Without a place
 * for it there is just no history of earlier runs.
 */
#ifndef CLI_RUN_LINE_H
#define CLI_RUN_LINE_H

#include "base/err.h"
#include "base/str.h"

typedef struct line_editor line_editor;

typedef enum line_result { LINE_OK, LINE_INTERRUPTED, LINE_END } line_result;

/* Takes over SIGINT until line_close: it interrupts line_read and sets interrupt_seen. */
int  line_open(line_editor **out, err *e);
void line_close(line_editor *l); /* saves the history; accepts NULL */

/* Replaces out with the next line, without its newline. */
line_result line_read(line_editor *l, const char *prompt, str *out);
void        line_remember(line_editor *l, const char *text);

#endif
