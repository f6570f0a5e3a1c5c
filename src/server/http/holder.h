/* SPDX-License-Identifier: Apache-2.0 */
/* Who listens on a TCP port of this machine, for the sentence that says why nobody else can. */
#ifndef SERVER_HTTP_HOLDER_H
#define SERVER_HTTP_HOLDER_H

#include <stdbool.h>
#include <stddef.h>

/* "NAME (process N)" into out. False: it is another user's, or nobody's any more. */
bool port_holder(int port, char *out, size_t cap);

#endif
