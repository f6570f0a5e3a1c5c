/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools of the responses endpoint, made into plain functions.
 *
 * A namespace has functions of its own; the model sees each under one name, namespace and function joined, and a call
 * goes back with both apart. A custom tool takes a text, free or held by its grammar; the model sees a function with one
 * string. Tools that a hosted service would run are left out and named to the client.
 */
#ifndef SERVER_OPENAI_RESPONSES_TOOLS_H
#define SERVER_OPENAI_RESPONSES_TOOLS_H

#include "server/exchange.h"

typedef struct tool_name {
    view flat, space, name; /* space: empty for a tool without one */
    bool custom;
} tool_name;

typedef struct tool_names {
    tool_name *list;
    size_t     n;
} tool_names;

/* Replaces the body's tools; what it replaced them by is in `out`, in the arena. */
void responses_flatten_tools(exchange *x, tool_names *out);
/* NULL: a function like others. */
const tool_name *responses_tool(const tool_names *t, view flat);
/* The flat name of a call that came back; into the arena. */
view responses_flat_name(exchange *x, view space, view name);
/* The text in the arguments of a custom tool's call. */
void responses_custom_text(view arguments, str *out);

#endif
