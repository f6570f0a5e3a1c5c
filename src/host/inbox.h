/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a socket cut into frames. Grows with what has arrived, never with what was announced. */
#ifndef HOST_INBOX_H
#define HOST_INBOX_H

#include "host/wire.h"

typedef struct inbox {
    char  *data;
    size_t cap, at, len; /* unread: data[at .. len) */
    bool   up;           /* reads what a worker says */
} inbox;

void inbox_init(inbox *b, bool up);
void inbox_deinit(inbox *b);

/* One recv with these flags: 1, 0 at the end of the stream, ERR_BUSY where nothing is there, other negative codes. */
int inbox_read(inbox *b, int fd, int flags, err *e);

/* The next frame: 1, 0 (read first) or negative. It is valid until the next inbox_read. */
int inbox_next(inbox *b, wire_frame *out, err *e);

#endif
