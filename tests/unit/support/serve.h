/* SPDX-License-Identifier: Apache-2.0 */
/* A `hearth serve` of the test's own: a free port and a socket in a directory that is thrown away. */
#ifndef UNIT_SUPPORT_SERVE_H
#define UNIT_SUPPORT_SERVE_H

#include <sys/types.h>

typedef struct serve_process {
    pid_t pid;
    int   port;
    char  socket[108];
} serve_process;

/* Points the XDG directories and HOME at dir, so that neither the test nor its server touches the user's. */
void serve_isolate(const char *dir);

/* Returns when the server is ready. XDG_RUNTIME_DIR is dir, so its socket is the default one. Skips the test where
 * HEARTH_PROGRAM is not set. */
void serve_start(serve_process *s, const char *dir, const char *options);
void serve_stop(serve_process *s); /* SIGTERM, and waits */

#endif
