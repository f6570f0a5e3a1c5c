/* SPDX-License-Identifier: Apache-2.0 */
/* Where the records of `hearth serve` go: stderr or a file, as text or JSON, from the level on. */
#ifndef CLI_SERVE_LOG_H
#define CLI_SERVE_LOG_H

#include "base/err.h"
#include "config/schema.h"
#include "server/ops/log_ring.h"

/* At the start and again on SIGHUP: then the file is opened again and the level read again. The ring, which keeps the
 * newest records, is the same each time and outlives the last record. */
int serve_log_set(const config_values *v, log_ring *ring, err *e);

#endif
