/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of this user, as `hearth serve` offers it. */
#ifndef CLI_SERVE_LIBRARY_H
#define CLI_SERVE_LIBRARY_H

#include "registry/chats.h"
#include "server/library.h"

typedef struct serve_library {
    library *library; /* NULL: there is no place for a registry */
    char    *token, *path;
} serve_library;

/* `add` offers one model to the host; see library_options. */
int  serve_library_open(serve_library *s, host *h, int (*add)(void *ctx, const char *name, const char *path, err *e),
                        void *ctx, err *e);
void serve_library_close(serve_library *s); /* accepts a zeroed one */
/* The chats that pages keep, beside the registry; limit 0: *out is NULL. */
int serve_chats_open(chats **out, uint64_t limit_bytes, err *e);

#endif
