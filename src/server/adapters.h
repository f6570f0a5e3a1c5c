/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters in requests: the model "base+name", the member lora ([{id or name, scale}]), and the scales with which
 * adapters count where a request names none (POST /lora-adapters). Clients name adapters of the registry; a path from
 * outside is never opened.
 */
#ifndef SERVER_ADAPTERS_H
#define SERVER_ADAPTERS_H

#include "server/exchange.h"

/* "base+name" of a model that is offered and has such an adapter. */
bool adapters_known(exchange *x, view model);
/* The base of "base+name"; any other name as it is. */
view adapters_base(exchange *x, view model);
/* The member lora; names become paths in adapters_apply. */
void adapters_read(exchange *x, const node *o, runtime_request *q);
/* Splits the model's name and puts the adapters into the requests; false after answering with an error. */
bool adapters_apply(exchange *x, exchange_work *w);

#endif
