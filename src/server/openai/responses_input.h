/* SPDX-License-Identifier: Apache-2.0 */
/* The input of POST /v1/responses: text or items become the messages of a chat. */
#ifndef SERVER_OPENAI_RESPONSES_INPUT_H
#define SERVER_OPENAI_RESPONSES_INPUT_H

#include "server/exchange.h"

/* earlier: items of the conversation that this request goes on with, a JSON array, or absent. */
void responses_read_input(exchange *x, const node *body, const node *earlier, runtime_request *q);

#endif
