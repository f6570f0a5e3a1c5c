/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of a conversation as the runtime takes them, whatever protocol they came in. */
#ifndef SERVER_CONVERSATION_H
#define SERVER_CONVERSATION_H

#include "server/http/json_in.h"
#include "server/http/json_out.h"

/* {"id", "type": "function", "function": {"name", "arguments"}}; arguments is JSON text. */
void conversation_put_call(jw *w, view id, view name, view arguments);
/* The same where the protocol has arguments as an object: it stays one. */
void conversation_put_call_object(jw *w, view id, view name, const node *arguments);

/* {"type": "function", "function": {"name", "description", "parameters"}}; without a description or a schema: one of an
 * object without properties. */
void conversation_put_tool(jw *w, view name, view description, const node *schema);

/* Checks a member that holds the name of a function: 1 to 128 letters, digits, underscores and dashes. */
void conversation_check_name(reader *r, const node *object, const char *key);

#endif
