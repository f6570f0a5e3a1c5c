/* SPDX-License-Identifier: Apache-2.0 */
#include "host/inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { START_BYTES = 64 << 10, KEEP_BYTES = 1 << 20 };

void inbox_init(inbox *b, bool up) { *b = (inbox){ .up = up }; }

void inbox_deinit(inbox *b) {
    free(b->data);
    *b = (inbox){ .up = b->up };
}

/* At least a quarter of the buffer free, what is unread at its beginning. */
static bool make_room(inbox *b) {
    if (b->at == b->len && b->cap > KEEP_BYTES) inbox_deinit(b);
    if (b->at && (b->at == b->len || b->cap - b->len < b->cap / 4)) {
        memmove(b->data, b->data + b->at, b->len - b->at);
        b->len -= b->at;
        b->at = 0;
    }
    if (b->data && b->cap - b->len >= b->cap / 4) return true;
    size_t cap = b->cap ? b->cap * 2 : START_BYTES;
    char  *data = realloc(b->data, cap);
    if (!data) return false;
    b->data = data;
    b->cap = cap;
    return true;
}

int inbox_read(inbox *b, int fd, int flags, err *e) {
    if (!make_room(b)) return err_set_nomem(e);
    for (;;) {
        ssize_t n = recv(fd, b->data + b->len, b->cap - b->len, flags);
        if (n > 0) {
            b->len += (size_t)n;
            return 1;
        }
        if (n == 0 || errno == ECONNRESET) return 0;
        if (errno == EAGAIN || errno == EWOULDBLOCK) return ERR_BUSY;
        if (errno != EINTR) return err_set_errno(e, "cannot read from the socket");
    }
}

int inbox_next(inbox *b, wire_frame *out, err *e) {
    size_t used;
    if (b->at == b->len) return 0;
    int rc = wire_next(b->data + b->at, b->len - b->at, b->up, out, &used, e);
    if (rc == 1) b->at += used;
    return rc;
}
