/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items of a request's input that only name one of an earlier response ({"type": "item_reference", "id": ...}).
 *
 * Libraries send them for what they believe to be stored. Each is replaced by the item itself before the input is read,
 * so that what is kept of this request does not depend on the earlier response any longer.
 */
#ifndef SERVER_OPENAI_RESPONSES_REFS_H
#define SERVER_OPENAI_RESPONSES_REFS_H

#include "server/exchange.h"

/* False: one is not here (answered), or memory is out (answered). */
bool responses_resolve(exchange *x);

#endif
