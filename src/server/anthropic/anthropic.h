/* SPDX-License-Identifier: Apache-2.0 */
/* What Anthropic's endpoints share. */
#ifndef SERVER_ANTHROPIC_ANTHROPIC_H
#define SERVER_ANTHROPIC_ANTHROPIC_H

#include "server/exchange.h"

/* Everything of the body but model and stream. counting: the fields of count_tokens only. Mistakes stay in x->in. */
void anthropic_read(exchange *x, runtime_request *q, bool counting);

#endif
