/* SPDX-License-Identifier: Apache-2.0 */
/* The bar of a command that writes a large file; Ctrl-C, SIGTERM and SIGHUP ask it to stop. */
#ifndef CLI_CONVERT_PROGRESS_H
#define CLI_CONVERT_PROGRESS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
    bool        quiet, drawn;
    const char *unit; /* NULL: bytes */
    int64_t     began_ms, drawn_ms;
    uint64_t    first; /* done at the beginning */
} progress;

/* From here on these signals only make progress_at false. quiet: no bar. */
int  progress_begin(progress *p, bool quiet, const char *unit, err *e);
bool progress_at(void *ctx, uint64_t done, uint64_t total); /* ctx: the progress */
void progress_of(progress *p, const char *unit);            /* another unit is counted now, from the beginning */
void progress_end(progress *p);

/* The most memory that the process had so far, in bytes; pages of files that are mapped count while they are there. */
uint64_t progress_peak_memory(void);

#endif
