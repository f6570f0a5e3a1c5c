/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chats that pages keep on the server: texts by an owner and an id, in an SQLite file that only the server's user may read.
 *
 * A chat has a version, which rises with every change and is never used again for this id. Who changes a chat may say
 * which version it has seen: of two that saw the same, the second is refused and can put both together. What all chats
 * may take together is bounded. Every function may be called from any thread.
 */
#ifndef REGISTRY_CHATS_H
#define REGISTRY_CHATS_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct chats chats;

int  chats_open(chats **out, const char *path, uint64_t limit_bytes, err *e);
void chats_close(chats *c); /* accepts NULL */

/* Appends [{"id", "title", "updated", "etag"}, ...], the newest first. */
int chats_list(chats *c, const char *owner, str *out, err *e);
int chats_get(chats *c, const char *owner, const char *id, str *body, int64_t *version, err *e); /* ERR_NOTFOUND */

enum {
    CHATS_ANY = -1,
    CHATS_NEW = 0
}; /* instead of a version that was seen: whatever there is; nothing may be there */

typedef struct chats_entry {
    const char *id, *title;
    int64_t     updated; /* milliseconds, as the page says */
    view        body;
    int64_t     seen;
} chats_entry;

/* ERR_BUSY: another version is there. ERR_LIMIT: there is no room. */
int chats_put(chats *c, const char *owner, const chats_entry *entry, int64_t *version, err *e);
int chats_remove(chats *c, const char *owner, const char *id, err *e); /* ERR_NOTFOUND */

#endif
