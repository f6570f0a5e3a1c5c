/* SPDX-License-Identifier: Apache-2.0 */
/* A service manager's side of `hearth serve`: inherited sockets, readiness (systemd's protocol, spoken without its
 * library). */
#ifndef CLI_SERVE_SERVICE_H
#define CLI_SERVE_SERVICE_H

#include <stddef.h>

enum { SERVICE_MAX_SOCKETS = 8 };

/* Descriptors handed over by socket activation; 0 without it. */
size_t service_sockets(int out[SERVICE_MAX_SOCKETS]);

/* "READY=1", "STOPPING=1", "RELOADING=1": nothing happens without a manager. */
void service_notify(const char *state);

#endif
