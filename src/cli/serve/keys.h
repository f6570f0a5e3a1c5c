/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of `hearth serve`: the security section of the settings and the capability token. */
#ifndef CLI_SERVE_KEYS_H
#define CLI_SERVE_KEYS_H

#include "config/schema.h"
#include "server/http/auth.h"

/* beyond_loopback: strangers can reach the port, so a key is needed even if none was given: the token. */
int serve_keys_load(auth **out, const config_values *v, bool beyond_loopback, err *e);

#endif
