/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/upload.h"

#include "base/log.h"
#include "registry/blobs.h"
#include "server/handlers.h"
#include "server/http/feed.h"
#include "server/internal.h"
#include "server/ollama/ollama.h"

#include <stdlib.h>
#include <string.h>

enum { WAITING_HIGH = 8 << 20, WAITING_LOW = 1 << 20, RESERVE_BYTES = 64 << 20 };

struct upload {
    post      post; /* there is room again, or it has failed */
    exchange *x;    /* the I/O thread's; NULL: the exchange is gone */
    server   *server;
    library  *library;
    uint64_t  received; /* the I/O thread's */
    char      digest[BLOB_DIGEST_CHARS];

    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t  moved;
    str             waiting;
    bool            complete, aborted, held, posted, failed;
    err             error;
    feed           *feed; /* set with complete */
    int             refs; /* the exchange, the thread, the post */
};

static void release(upload *u) {
    pthread_mutex_lock(&u->lock);
    bool last = --u->refs == 0;
    pthread_mutex_unlock(&u->lock);
    if (!last) return;
    pthread_mutex_destroy(&u->lock);
    pthread_cond_destroy(&u->moved);
    str_deinit(&u->waiting);
    free(u);
}

/* --- the I/O thread --- */

static void take_posted(post *p) {
    upload   *u = (upload *)((char *)p - offsetof(upload, post));
    exchange *x = u->x;
    pthread_mutex_lock(&u->lock);
    u->posted = u->held = false;
    bool failed = u->failed && !u->complete;
    pthread_mutex_unlock(&u->lock);
    if (x && x->core->sink && !x->core->in_handler && !x->core->feed) {
        if (failed) {
            x->core->close = true;
            exchange_error_from(x, &u->error);
            exchange_flush(x);
        } else {
            x->core->sink->kind->resume(x->core->sink);
        }
    }
    release(u);
}

/* The exchange ends: what is not complete is not wanted any more. */
static void leave(void *state) {
    upload *u = state;
    u->x = NULL;
    pthread_mutex_lock(&u->lock);
    if (!u->complete) u->aborted = true;
    pthread_cond_signal(&u->moved);
    pthread_mutex_unlock(&u->lock);
    release(u);
}

bool upload_has_no_limit(const http_request *r) {
    return view_eq_c(r->method, "POST") && view_starts(r->path, "/api/blobs/");
}

void upload_take(exchange *x, str *body) {
    upload *u = x->state;
    if (body->len == 0) return;
    u->received += body->len;
    pthread_mutex_lock(&u->lock);
    if (!u->failed) str_append(&u->waiting, body->data, body->len);
    u->held = u->waiting.len > WAITING_HIGH;
    pthread_cond_signal(&u->moved);
    pthread_mutex_unlock(&u->lock);
    str_clear(body);
}

bool upload_full(const exchange *x) {
    upload *u = x->state;
    pthread_mutex_lock(&u->lock);
    bool full = u->held;
    pthread_mutex_unlock(&u->lock);
    return full;
}

uint64_t upload_received(const exchange *x) {
    const upload *u = x->state;
    return u->received;
}

/* --- the thread --- */

static void tell(upload *u) {
    pthread_mutex_lock(&u->lock);
    bool send = !u->posted && !u->complete && !u->aborted;
    if (send) {
        u->posted = true;
        u->refs++;
    }
    pthread_mutex_unlock(&u->lock);
    if (send) server_post(u->server, &u->post);
}

/* What has arrived; false: that was all. */
static bool next_piece(upload *u, str *piece) {
    pthread_mutex_lock(&u->lock);
    while (u->waiting.len == 0 && !u->complete && !u->aborted) pthread_cond_wait(&u->moved, &u->lock);
    *piece = u->waiting;
    str_init(&u->waiting);
    bool more = piece->len > 0 && !u->aborted, held = u->held;
    if (!str_ok(piece)) more = false;
    pthread_mutex_unlock(&u->lock);
    if (held) tell(u);
    return more;
}

static int write_blob(upload *u, registry *r, err *e) {
    blob_writer w;
    blob_lock   pin = BLOB_LOCK_NONE;
    char        digest[BLOB_DIGEST_CHARS];
    str         piece;
    int         rc = blob_writer_begin(&w, r, u->digest, e);
    if (rc < 0) return rc;
    while (rc == 0 && next_piece(u, &piece)) {
        rc = blob_writer_put(&w, piece.data, piece.len, e);
        str_deinit(&piece);
    }
    if (rc == 0) {
        if (!str_ok(&piece)) rc = err_set_nomem(e);
        str_deinit(&piece);
    }
    pthread_mutex_lock(&u->lock);
    if (rc == 0 && u->aborted) rc = err_set(e, ERR_CANCELLED, "the client closed the connection");
    pthread_mutex_unlock(&u->lock);
    if (rc == 0) rc = blob_writer_commit(&w, digest, &pin, e);
    blob_writer_abort(&w);
    blob_unlock(&pin);
    return rc;
}

static void work(void *ctx) {
    upload   *u = ctx;
    registry *r = NULL;
    err       e = { 0 };
    int       rc = library_registry(u->library, &r, &e);
    if (rc == 0) rc = write_blob(u, r, &e);
    registry_close(r);
    pthread_mutex_lock(&u->lock);
    u->failed = rc < 0;
    u->error = e;
    pthread_mutex_unlock(&u->lock);
    if (rc < 0) {
        log_info("library", "upload of %s: %s", u->digest, e.msg);
        tell(u);
    }
    /* The answer is the handler's to promise: it may not have come yet. */
    pthread_mutex_lock(&u->lock);
    while (!u->feed && !u->aborted) pthread_cond_wait(&u->moved, &u->lock);
    feed *f = u->feed;
    pthread_mutex_unlock(&u->lock);
    if (f) feed_end(f, rc < 0 ? &e : NULL);
    release(u);
}

/* --- from the head to the handler --- */

bool upload_admit(exchange *x) {
    library *l = ollama_library(x);
    upload  *u;
    err      e = { 0 };
    char     digest[BLOB_DIGEST_CHARS] = "";
    if (!l) return false;
    if (x->tail.len < sizeof digest) memcpy(digest, x->tail.data, x->tail.len);
    if (strncmp(digest, "sha256-", 7) == 0) digest[6] = ':'; /* as some clients write it */
    if (!blob_digest_ok(digest)) {
        exchange_error(x, 400, "invalid_value", "digest", "expected sha256: and 64 hexadecimal digits in the path");
        return false;
    }
    uint64_t room = library_free_bytes(l);
    if (room && x->http->content_length && x->http->content_length + RESERVE_BYTES > room) {
        exchange_error(x, 507, "disk_full", NULL, "the blob has %llu bytes, but only %llu bytes of the disk are free",
                       (unsigned long long)x->http->content_length, (unsigned long long)room);
        return false;
    }
    if (!(u = calloc(1, sizeof *u))) {
        exchange_error_nomem(x);
        return false;
    }
    memcpy(u->digest, digest, sizeof digest);
    u->x = x;
    u->server = x->server;
    u->library = l;
    u->post.take = take_posted;
    u->refs = 2;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->moved, NULL);
    str_init(&u->waiting);
    x->state = u;
    x->state_free = leave;
    if (library_start(l, work, u, &e) == 0) return true;
    u->refs = 1;
    exchange_error_from(x, &e);
    return false;
}

void ollama_blob_put(exchange *x) {
    upload *u = x->state;
    feed   *f = exchange_feed(x, NULL);
    if (!f) return;
    feed_status(f, 201);
    pthread_mutex_lock(&u->lock);
    u->complete = true;
    u->feed = f;
    pthread_cond_signal(&u->moved);
    pthread_mutex_unlock(&u->lock);
}

void ollama_blob_head(exchange *x) {
    library  *l = ollama_library(x);
    registry *r = NULL;
    err       e = { 0 };
    str       b;
    if (!l) return;
    char *digest = ollama_copy(x, x->tail);
    if (!digest) return;
    if (strncmp(digest, "sha256-", 7) == 0) digest[6] = ':';
    str_init(&b);
    if (!blob_digest_ok(digest))
        exchange_error(x, 400, "invalid_value", "digest", "expected sha256: and 64 hexadecimal digits in the path");
    else if (library_registry(l, &r, &e) < 0)
        exchange_error_from(x, &e);
    else if (!registry_blob_has(r, digest, NULL))
        exchange_error(x, 404, "not_found", "digest", "there is no such blob");
    else
        exchange_reply(x, 200, "text/plain", &b);
    registry_close(r);
    str_deinit(&b);
}
