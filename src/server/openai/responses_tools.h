/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tools of the responses endpoint, made into plain functions.
 *
 * Functions of a namespace and custom tools get the names and forms of tool_names.h. Tools that a hosted service would
 * run are left out and named to the client.
 */
#ifndef SERVER_OPENAI_RESPONSES_TOOLS_H
#define SERVER_OPENAI_RESPONSES_TOOLS_H

#include "server/openai/tool_names.h"

/* Replaces the body's tools; what it replaced them by is in `out`, in the arena. */
void responses_flatten_tools(exchange *x, tool_names *out);
/* The flat name of a call that came back; into the arena. */
view responses_flat_name(exchange *x, view space, view name);

#endif
