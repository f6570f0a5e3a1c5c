/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools for templates that know none.
 *
 * The tools are described in the system message, calls are written as Hermes writes them (<tool_call> with a JSON
 * object) and held by the same grammar, results come back as the user's words in <tool_response>. What the template
 * sees are plain messages: it needs to know neither tools nor the role of their results.
 */
#ifndef CHAT_GENERIC_H
#define CHAT_GENERIC_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>

/* What the template shows by itself. */
typedef struct chat_generic {
    bool system; /* system messages; without it the description goes before the first words of the user */
    bool calls;  /* calls and results of earlier turns, which then stay as they are */
} chat_generic;

/* Whether the texts of messages are changed: there are tools, calls or results. */
bool chat_generic_rewrites(const json_value *messages, const json_value *tools);

/* in: messages as chat_messages_fit leaves them, calls in their content unless the template shows them. tools may be
 * NULL or empty. */
int chat_generic_fit(const json_value *in, const json_value *tools, const chat_generic *shows, const json_value **out,
                     arena *a, err *e);

#endif
