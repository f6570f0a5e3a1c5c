/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth serve` says about its workers: how much memory they may take together, and their environment. */
#ifndef CLI_SERVE_WORKERS_H
#define CLI_SERVE_WORKERS_H

#include "cli/cli.h"
#include "host/host.h"

int serve_workers(const cli_args *a, host_options *o, err *e);

/* "8G", "512M", "1.5 GiB", bytes without a letter, or "none" (HOST_NO_LIMIT). */
int serve_memory(const char *text, uint64_t *out, err *e);

#endif
