/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of `hearth serve`: --api-key-file, HEARTH_API_KEYS and the capability token. */
#ifndef CLI_SERVE_KEYS_H
#define CLI_SERVE_KEYS_H

#include "cli/cli.h"
#include "server/auth.h"

/* beyond_loopback: strangers can reach the port, so a key is needed even if none was given: the token. */
int serve_keys_load(auth **out, const cli_args *a, bool beyond_loopback, err *e);

#endif
