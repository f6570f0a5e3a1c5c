/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations and tools as OpenAI's chat endpoint takes them, checked and made uniform for the runtime. */
#ifndef SERVER_OPENAI_INPUT_H
#define SERVER_OPENAI_INPUT_H

#include "server/exchange.h"

enum { OPENAI_MAX_MESSAGES = 16384, OPENAI_MAX_TOOLS = 1024 };

void openai_read_messages(exchange *x, const node *body, runtime_request *q);
/* tools, tool_choice, parallel_tool_calls; functions and function_call. flat: the responses endpoint's form, without the
 * inner "function". True: the request has the form of functions, and its answer must have it too. */
bool openai_read_tools(exchange *x, const node *body, runtime_request *q, bool flat);
/* How much to think: "none" switches thoughts off, "low" and more switch them on where the model has them. */
void openai_read_effort(exchange *x, const node *object, const char *key, runtime_request *q);
/* enable_thinking, reasoning_effort, chat_template_kwargs, continue_final_message */
void openai_read_template(exchange *x, const node *body, runtime_request *q);

#endif
