/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files whose workers crashed: three times within ten minutes, and the file is not loaded again before it changes
 * (device, inode, time, size; of a directory also its entries) or is forgiven.
 */
#ifndef HOST_PARENT_QUARANTINE_H
#define HOST_PARENT_QUARANTINE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { QUARANTINE_CRASHES = 3, QUARANTINE_MS = 10 * 60 * 1000, QUARANTINE_FILES = 64 };

typedef struct quarantine_file {
    uint64_t identity;                    /* 0: free */
    int64_t  crashes[QUARANTINE_CRASHES]; /* times, latest last; 0: none */
    bool     shut;
} quarantine_file;

/* The oldest entry gives way when all are taken. */
typedef struct quarantine {
    quarantine_file files[QUARANTINE_FILES];
} quarantine;

uint64_t quarantine_identity(const char *path);                             /* 0: there is no such file */
bool     quarantine_note(quarantine *q, uint64_t identity, int64_t now_ms); /* a crash; true: it is shut now */
bool quarantine_holds_path(const quarantine *q, const char *path); /* asks the file system only if anything is shut */
void quarantine_forgive(quarantine *q, uint64_t identity);

#endif
