/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a client calls its tools, where the model sees them under other names or in another form.
 *
 * A function in a namespace is shown under one name, both joined. A custom tool takes a text, free or held by its grammar;
 * the model sees a function with one string, `input`, and its call goes back as the text alone.
 */
#ifndef SERVER_OPENAI_TOOL_NAMES_H
#define SERVER_OPENAI_TOOL_NAMES_H

#include "server/exchange.h"

typedef struct tool_name {
    view flat, space, name; /* space: empty for a tool without one */
    bool custom;
} tool_name;

typedef struct tool_names {
    tool_name *list;
    size_t     n;
} tool_names;

/* Copies its texts into the arena. False: refused. */
bool tool_names_add(exchange *x, tool_names *t, tool_name n);
/* NULL: a function like others. */
const tool_name *tool_names_find(const tool_names *t, view flat);

/* The schema of a custom tool's function; `tool` has its format, the grammar's members in it or below "grammar". */
void custom_parameters(exchange *x, const node *tool, str *out);
void custom_arguments(view text, str *out); /* a call's text as the model wrote it */
void custom_text(view arguments, str *out); /* and back; as far as it goes when it was cut off */
/* Replaces the custom tools of a chat's body by functions. */
void custom_flatten(exchange *x, tool_names *out);

#endif
