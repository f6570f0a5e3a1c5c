/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request body that goes to disk while it arrives: POST /api/blobs/{digest}.
 *
 * After the head a thread of the library opens the blob; the I/O thread hands it what arrives, and stops reading from
 * the socket while too much waits to be written. When the body is complete the handler lets the thread finish: the
 * digest is checked, the blob gets its name, the client is answered.
 */
#ifndef SERVER_HTTP_UPLOAD_H
#define SERVER_HTTP_UPLOAD_H

#include "server/exchange.h"

typedef struct upload upload;

/* Of a request whose head is complete: may its body have any length? */
bool upload_has_no_limit(const http_request *r);

/* On the I/O thread. False: answered. */
bool     upload_admit(exchange *x);
void     upload_take(exchange *x, str *body); /* empties body */
bool     upload_full(const exchange *x);      /* do not read on; the sink is resumed when there is room */
uint64_t upload_received(const exchange *x);

#endif
