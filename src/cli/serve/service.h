/* SPDX-License-Identifier: Apache-2.0 */
/* A service manager's side of `hearth serve`: inherited sockets, readiness, signs of life (systemd's protocol, spoken without
 * its library). */
#ifndef CLI_SERVE_SERVICE_H
#define CLI_SERVE_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

enum { SERVICE_MAX_SOCKETS = 8 };

/* Descriptors handed over by socket activation; 0 without it. */
size_t service_sockets(int out[SERVICE_MAX_SOCKETS]);

bool service_reaches_out(const int *sockets, size_t n); /* other machines can connect to one of them */

/* "READY=1", "STOPPING=1", "WATCHDOG=1": nothing happens without a manager. */
void service_notify(const char *state);
void service_notify_reloading(void); /* READY=1 follows when it is over */

/* Seconds between two signs of life, half of what the manager allows; 0: it wants none. */
double service_watchdog(void);

#endif
