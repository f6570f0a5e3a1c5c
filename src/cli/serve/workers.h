/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth serve` says about its workers: how much memory they may take together, and their environment. */
#ifndef CLI_SERVE_WORKERS_H
#define CLI_SERVE_WORKERS_H

#include "config/schema.h"
#include "host/host.h"

void serve_workers(const config_values *v, host_options *o);

#endif
