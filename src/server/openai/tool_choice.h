/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the offered tools an answer may or must call, in the forms of tool_choice and function_call. */
#ifndef SERVER_OPENAI_TOOL_CHOICE_H
#define SERVER_OPENAI_TOOL_CHOICE_H

#include "server/exchange.h"

typedef struct tool_choice {
    bool limited; /* allowed_tools: the others are not offered */
    node allowed;
} tool_choice;

/* flat: tools without the inner "function", as /v1/responses has them. legacy: tools are the bare functions and the
 * choice is function_call. */
void openai_read_choice(exchange *x, const node *body, const node *tools, bool flat, bool legacy, tool_choice *out,
                        runtime_request *q);
bool openai_choice_allows(const tool_choice *c, const node *tool);

#endif
