/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of cache entries (kv/entry.h), and the thread that writes them.
 *
 * Writing and deleting happen on a thread of its own, behind a queue that is bounded by bytes: what does not fit is not
 * written, and nobody waits. An entry is written to a temporary file and renamed, so that nobody ever reads a part of
 * one; files are private to the user (0600). Reading is done by the caller's thread and sees queued entries too. A
 * damaged entry is logged, deleted and forgotten; a missing one is only forgotten, because another process may share
 * the directory and delete what it thinks is old. A full disk is logged once and costs the entries.
 *
 * Which entry is worth keeping is the owner's decision (kv/tree.h). Entries of other models (or other page types, or
 * versions) are seen when the directory is opened and count towards the budget; the directory knows the order of their
 * last use from the files' times. Used by one thread.
 */
#ifndef KV_DISK_H
#define KV_DISK_H

#include "kv/entry.h"

typedef struct kv_disk kv_disk;

typedef struct kv_disk_options {
    const char *dir;         /* made if it does not exist */
    uint64_t    max_bytes;   /* of all entries together, in whole blocks of 4096 */
    size_t      queue_bytes; /* that may wait to be written; 0: 64 MiB */
} kv_disk_options;

typedef struct kv_disk_found {
    kv_entry head;
    kv_key  *rows;  /* what head.rows points to */
    uint64_t bytes; /* on disk */
    int64_t  time;  /* of the last use, nanoseconds since 1970 */
} kv_disk_found;

/* Reads the headers of all entries that belong to id. */
int  kv_disk_open(kv_disk **out, const kv_identity *id, const kv_disk_options *o, err *e);
void kv_disk_free(kv_disk *d); /* writes what is queued; accepts NULL */

uint64_t kv_disk_max_bytes(const kv_disk *d);
uint64_t kv_disk_file_bytes(const kv_disk *d, const kv_entry *x); /* what it takes, in whole blocks */

/* What was found when the directory was opened, until it is given back. */
const kv_disk_found *kv_disk_found_at(const kv_disk *d, size_t index); /* NULL: no more */
void                 kv_disk_found_release(kv_disk *d);

/* Entries that nobody here can use. */
void     kv_disk_foreign_add(kv_disk *d, const kv_disk_found *x);
uint64_t kv_disk_foreign_bytes(const kv_disk *d);
bool     kv_disk_foreign_oldest(const kv_disk *d, int64_t *time); /* false: there are none */
void     kv_disk_foreign_drop(kv_disk *d);                        /* deletes the oldest */

/* Whether a payload may be queued; wait: until it may. False also when it can never. */
bool kv_disk_has_room(kv_disk *d, size_t bytes, bool wait);
/* Queues an entry; the payload (malloc'ed, x->payload_bytes) is taken over. payload_sum need not be set. `ticket` comes
 * back from kv_disk_failed when it could not be written. False: out of memory, the payload is the caller's. */
bool kv_disk_put(kv_disk *d, const kv_entry *x, void *payload, uint64_t ticket);
/* Reads an entry's payload. x says what it must be. ERR_NOTFOUND: it is gone or was damaged. */
int  kv_disk_get(kv_disk *d, const kv_entry *x, void *payload);
void kv_disk_drop(kv_disk *d, const kv_key *key);
bool kv_disk_failed(kv_disk *d, uint64_t *ticket); /* the next entry that could not be written; false: none */

#endif
