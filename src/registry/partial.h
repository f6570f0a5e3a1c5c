/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that is not complete yet, and the note beside it of what it already has.
 *
 * The file (<blob>.partial) has its full size from the start. It is thought of in pieces of equal size (the last may be
 * shorter); every piece is filled from its beginning, so one number per piece says what is there. The note
 * (<blob>.partial.json) is replaced as a whole by a rename; one that cannot be read, or that belongs to another digest
 * or size, is as good as none: the download begins anew. It may say less than the file has, never more, as long as the
 * machine does not lose power; after that the digest finds out.
 *
 *   {"version":1,"digest":"sha256:...","size":N,"piece":N,"etag":"...","full":"<hex, bit i of byte i/8: piece i>",
 *    "begun":[[piece,bytes],...]}
 */
#ifndef REGISTRY_PARTIAL_H
#define REGISTRY_PARTIAL_H

#include "registry/blobs.h"

typedef struct partial {
    int      fd;
    char    *path, *note;
    char     digest[BLOB_DIGEST_CHARS];
    char     etag[160]; /* of the server that the pieces came from; "" if it said none */
    int64_t  size, piece;
    size_t   n_pieces, frontier; /* frontier: every piece before it is full */
    int64_t *have;               /* bytes of each piece */
    bool    *taken;              /* someone is at it */
    int64_t  have_bytes, noted_bytes;
    bool     news; /* a piece became full since the last note */
} partial;

/* The caller holds the maker's lock. Checks that the disk has room for what is missing. */
int  partial_open(partial *p, registry *r, const char *digest, int64_t size, int64_t piece, err *e);
void partial_close(partial *p); /* accepts a zeroed one; keeps what is on disk */
int  partial_note(partial *p, err *e);
int  partial_restart(partial *p, err *e); /* nothing is there any more */
void partial_discard(partial *p);         /* removes both files, and closes */

/* Takes up to max pieces in a row that no one is at; false: there is none. [*from, *to) is what they lack. */
bool partial_take(partial *p, size_t max, int64_t *from, int64_t *to);
void partial_give_back(partial *p, int64_t at, int64_t to); /* what was not filled of a taken range */
/* At the end of what the piece has; all of it inside a taken range. */
int     partial_write(partial *p, int64_t at, const void *data, size_t bytes, err *e);
int64_t partial_solid(const partial *p); /* bytes from the beginning without a gap */

/* How much a download of another process has, from its note; -1: cannot be said. */
int64_t partial_peek(registry *r, const char *digest);

/* ERR_IO with a sentence unless the file system of path has room for so many more bytes. */
int partial_room(const char *path, int64_t bytes, err *e);

#endif
