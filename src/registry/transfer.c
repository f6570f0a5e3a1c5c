/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane is one connection at work on one range of the file. The first lane goes alone: its answer shows whether the
 * server knows ranges. If it does, the others follow, each taking the next pieces that are missing; if not, the first
 * lane's answer is the whole file and stays the only one, and every further try begins at byte 0.
 *
 * Failures are counted in a row: one that comes after new bytes begins a new row, and those of several lanes at the
 * same moment count once. The last one's sentence is what the user reads.
 */
#include "registry/transfer.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "registry/hasher.h"
#include "registry/partial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_LANES = 16,
    POLL_MS = 50,
    REPORT_MS = 100,
    NOTE_MS = 500,
    PIECE_NOTE_MS = 20,
    RUN_PIECES = 8,
    SLOWEST = 200 /* bytes a second */
};

typedef enum fault {
    FAULT_NONE,
    FAULT_RANGE, /* the server does not know ranges, or gave another one */
    FAULT_SIZE,  /* the whole is not as long as was promised */
    FAULT_STALL,
    FAULT_OURS,    /* run->error has the sentence */
    FAULT_DROPPED, /* not needed any more; nobody's fault */
} fault;

typedef struct run run;

typedef struct lane {
    run               *x;
    CURL              *easy;
    struct curl_slist *headers;
    char              *url;
    bool               busy, accepted, whole; /* whole: asked without a range */
    int64_t            from, at, to;
    int                redirects;
    int64_t            mark_ms, mark; /* when it had come so far: what is slower than this is given up */
    fault              fault;
    http_head          head;
    char               why[CURL_ERROR_SIZE];
} lane;

struct run {
    const http_client  *c;
    const transfer_job *j;
    partial             file;
    hasher             *hash;
    lane                lanes[MAX_LANES];
    int                 n_lanes;                 /* how many may be at work */
    bool                ranges, single, resumed; /* ranges: seen to work; single: do not */
    char               *direct;                  /* where the redirects ended */
    int                 failures;
    int                 range_faults;
    int64_t             best;          /* the most the file ever had at a failure */
    int64_t             not_before_ms; /* no new request until then */
    int64_t             fetched;
    int64_t             noted_ms, reported_ms;
    char                reason[CURL_ERROR_SIZE + 64]; /* why it waits */
    int                 rc;                           /* of a write, inside a callback */
    err                 error;
};

/* --- what comes --- */

static size_t on_header(char *data, size_t size, size_t n, void *ctx) {
    lane *l = ctx;
    http_head_line(&l->head, (view){ data, size * n }, (int64_t)time(NULL));
    return size * n;
}

static int start_hasher(run *x, err *e) {
    hasher_free(x->hash);
    x->hash = NULL;
    int rc = hasher_open(&x->hash, x->file.fd, x->file.size, e);
    if (rc == 0) hasher_allow(x->hash, partial_solid(&x->file));
    return rc;
}

/* The file begins anew: no hash may read it any more, and no lane may write into it but this one (or NULL). */
static bool begin_anew(run *x, lane *keep) {
    hasher_free(x->hash);
    x->hash = NULL;
    for (int i = 0; i < MAX_LANES; i++) {
        lane *l = &x->lanes[i];
        if (l == keep || !l->busy) continue;
        l->fault = FAULT_DROPPED;
        l->at = l->to;
    }
    if ((x->rc = partial_restart(&x->file, &x->error)) < 0 || (x->rc = start_hasher(x, &x->error)) < 0) return false;
    if (keep) {
        keep->from = keep->at = 0;
        keep->to = x->file.size;
        for (size_t i = 0; i < x->file.n_pieces; i++) x->file.taken[i] = true;
    }
    return true;
}

/* What the hub says about the file on the way must be what its listing said. */
static int check_linked(const run *x, const http_head *h, err *e) {
    bool sha = strlen(h->linked_etag) == 64 && strspn(h->linked_etag, "0123456789abcdef") == 64;
    if ((sha && strcmp(h->linked_etag, x->j->digest + 7) != 0) ||
        (h->linked_size >= 0 && h->linked_size != x->j->size) ||
        (x->j->commit && h->commit[0] && strcmp(h->commit, x->j->commit) != 0))
        return err_set(e, ERR_FORMAT, "%s: the server's listing and the file it offers do not belong together",
                       x->j->name);
    return 0;
}

/* Bytes of an earlier pull and bytes of this answer are of the same file, unless the tags say otherwise. */
static bool same_file(const lane *l) {
    const run *x = l->x;
    return !x->resumed || !x->file.etag[0] || !l->head.etag[0] || strcmp(x->file.etag, l->head.etag) == 0;
}

static bool accept_part(lane *l) {
    run             *x = l->x;
    const http_head *h = &l->head;
    if (!h->has_range || h->range_first != l->from || h->range_last >= l->to ||
        (h->range_total >= 0 && h->range_total != x->file.size)) {
        l->fault = FAULT_RANGE;
        return false;
    }
    if (!same_file(l)) {
        log_info("pull", "%s: the server has another version of the file now; the download starts again", x->j->name);
        begin_anew(x, NULL);
        x->resumed = false;
        return false;
    }
    x->ranges = true;
    return true;
}

static bool accept_whole(lane *l) {
    run *x = l->x;
    if (l->head.content_length >= 0 && l->head.content_length != x->file.size) {
        l->fault = FAULT_SIZE;
        return false;
    }
    if (x->ranges) { /* it could before: another try */
        l->fault = FAULT_RANGE;
        return false;
    }
    x->single = true;
    return begin_anew(x, l);
}

/* The first byte of an answer: is it the one that was asked for? */
static bool accept_answer(lane *l) {
    run *x = l->x;
    if ((x->rc = check_linked(x, &l->head, &x->error)) < 0) return false;
    if (!(l->head.status == 206 && !l->whole ? accept_part(l) : accept_whole(l))) return false;
    x->resumed = false;
    if (!x->file.etag[0]) snprintf(x->file.etag, sizeof x->file.etag, "%s", l->head.etag);
    if (!x->direct && strcmp(l->url, x->j->url) != 0) x->direct = strdup(l->url);
    return l->accepted = true;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    lane  *l = ctx;
    run   *x = l->x;
    size_t bytes = size * n;
    if (l->fault != FAULT_NONE) return 0;
    if (l->head.status != 200 && l->head.status != 206) return bytes; /* the page of a redirect or an error */
    if (!l->accepted && !accept_answer(l)) {
        if (x->rc < 0) l->fault = FAULT_OURS;
        return 0;
    }
    size_t part = (int64_t)bytes > l->to - l->at ? (size_t)(l->to - l->at) : bytes;
    if ((x->rc = partial_write(&x->file, l->at, data, part, &x->error)) < 0) {
        l->fault = FAULT_OURS;
        return 0;
    }
    l->at += (int64_t)part;
    x->fetched += (int64_t)part;
    hasher_allow(x->hash, partial_solid(&x->file));
    return part == bytes ? bytes : 0; /* more than was asked for is not read; the digest decides what it was */
}

/* --- lanes --- */

static void lane_stop(lane *l) {
    run *x = l->x;
    if (!l->busy) return;
    curl_multi_remove_handle(x->c->multi, l->easy);
    curl_slist_free_all(l->headers);
    l->headers = NULL;
    if (l->at < l->to) partial_give_back(&x->file, l->at, l->to);
    l->busy = false;
}

static int lane_ask(lane *l, const char *url, err *e) {
    run *x = l->x;
    char range[64], *copy = strdup(url);
    int  rc;
    if (!copy) return err_set_nomem(e);
    free(l->url);
    l->url = copy;
    if (l->easy)
        curl_easy_reset(l->easy); /* keeps the connection */
    else if (!(l->easy = curl_easy_init()))
        return err_set_nomem(e);
    http_head_reset(&l->head);
    l->accepted = false;
    l->fault = FAULT_NONE;
    l->why[0] = '\0';
    l->mark_ms = clock_ms();
    l->mark = l->at;
    if ((rc = http_prepare(x->c, l->easy, url, NULL, &l->headers, e)) < 0) {
        curl_slist_free_all(l->headers);
        l->headers = NULL;
        return rc;
    }
    if (!l->whole) {
        snprintf(range, sizeof range, "%lld-%lld", (long long)l->from, (long long)l->to - 1);
        curl_easy_setopt(l->easy, CURLOPT_RANGE, range);
    }
    curl_easy_setopt(l->easy, CURLOPT_BUFFERSIZE, 512L << 10);
    curl_easy_setopt(l->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(l->easy, CURLOPT_HEADERDATA, l);
    curl_easy_setopt(l->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(l->easy, CURLOPT_WRITEDATA, l);
    curl_easy_setopt(l->easy, CURLOPT_ERRORBUFFER, l->why);
    if (curl_multi_add_handle(x->c->multi, l->easy) != CURLM_OK) return err_set_nomem(e);
    l->busy = true;
    return 0;
}

/* Gives an idle lane something to do, if there is. */
static int lane_start(lane *l, err *e) {
    run   *x = l->x;
    size_t share = (size_t)((x->file.size - x->file.have_bytes) / x->file.piece) / (size_t)(2 * x->n_lanes);
    l->whole = x->single;
    if (x->single) {
        l->from = 0;
        l->to = x->file.size;
    } else if (!partial_take(&x->file, share < 1 ? 1 : share > RUN_PIECES ? RUN_PIECES : share, &l->from, &l->to)) {
        return 0;
    }
    l->at = l->from;
    l->redirects = 0;
    int rc = lane_ask(l, x->direct ? x->direct : x->j->url, e);
    if (rc < 0) partial_give_back(&x->file, l->at, l->to);
    return rc;
}

static int start_lanes(run *x, err *e) {
    int busy = 0, rc = 0;
    for (int i = 0; i < MAX_LANES; i++) busy += x->lanes[i].busy;
    int most = x->ranges && !x->single ? x->n_lanes : 1;
    for (int i = 0; i < MAX_LANES && busy < most && rc == 0; i++) {
        if (x->lanes[i].busy) continue;
        rc = lane_start(&x->lanes[i], e);
        if (rc == 0 && !x->lanes[i].busy) break; /* nothing is left to take */
        busy++;
    }
    return rc;
}

/* --- what went wrong --- */

/*
 * Counts a failure that may pass, and sets when to try again; the sentence for when it was the last one is in e.
 * Progress is more than there ever was: a server without ranges that cuts always at the same place makes none.
 */
static int failed_once(run *x, int64_t retry_after, err *e, int rc) {
    int64_t now = clock_ms();
    if (x->file.have_bytes > x->best) x->failures = 0;
    x->best = num_max(x->best, x->file.have_bytes);
    if (retry_after > x->c->patience.max_wait_s)
        return err_wrap(e, rc, "the server asks to come back in %lld s", (long long)retry_after);
    if (now >= x->not_before_ms || x->failures == 0) {
        if (++x->failures >= x->c->patience.tries) return err_wrap(e, rc, "given up after %d tries", x->failures);
        x->not_before_ms = now + http_pause_ms(&x->c->patience, x->failures);
    }
    if (retry_after > 0) x->not_before_ms = num_max(x->not_before_ms, now + retry_after * 1000);
    snprintf(x->reason, sizeof x->reason, "%.*s", (int)sizeof x->reason - 1, e->msg);
    log_info("pull", "%s", e->msg);
    return 0;
}

/* A server that gives another range twice, and never the right one, has none. */
static int range_failed(run *x, err *e, int rc) {
    if (!x->ranges && ++x->range_faults >= 2) x->single = true;
    return failed_once(x, 0, e, rc);
}

static int status_failed(lane *l, err *e) {
    run *x = l->x;
    int  status = l->head.status, rc;
    if (!l->whole && !x->ranges && (status == 416 || status == 400 || status == 501)) {
        rc = err_set(e, ERR_IO, "%s: the server refuses the range (%d)", x->j->name, status);
        return range_failed(x, e, rc);
    }
    rc = http_explain(x->c, status, l->url, x->j->name, e);
    if (http_status_may_pass(status)) {
        x->n_lanes = x->n_lanes > 2 ? x->n_lanes / 2 : 1; /* it may be that there were too many */
        return failed_once(x, l->head.retry_after, e, rc);
    }
    if (strcmp(l->url, x->j->url) == 0) return rc;
    /* Addresses behind redirects expire: ask the first one again. */
    free(x->direct);
    x->direct = NULL;
    return failed_once(x, 0, e, rc);
}

static int follow(lane *l, err *e) {
    run  *x = l->x;
    char *next;
    int   rc;
    if (++l->redirects > HTTP_MAX_REDIRECTS)
        return err_set(e, ERR_FORMAT, "%s: more than %d redirects", x->j->name, HTTP_MAX_REDIRECTS);
    if ((rc = check_linked(x, &l->head, e)) < 0 || (rc = http_redirect(l->url, l->head.location, &next, e)) < 0)
        return rc < 0 ? err_wrap(e, rc, "%s", x->j->name) : rc;
    curl_multi_remove_handle(x->c->multi, l->easy);
    curl_slist_free_all(l->headers);
    l->headers = NULL;
    l->busy = false;
    rc = lane_ask(l, next, e);
    if (rc < 0) partial_give_back(&x->file, l->at, l->to);
    free(next);
    return rc;
}

static int lane_failed(lane *l, CURLcode code, err *e) {
    run *x = l->x;
    int  rc;
    switch (l->fault) {
    case FAULT_OURS:
        if (e) *e = x->error;
        return err_wrap(e, x->rc, "%s", x->j->name);
    case FAULT_SIZE:
        return err_set(e, ERR_FORMAT, "%s: the server sends %lld bytes, the listing says %lld", x->j->name,
                       (long long)l->head.content_length, (long long)x->file.size);
    case FAULT_RANGE:
        rc = err_set(e, ERR_IO, "%s: the server sent another part of the file than was asked for", x->j->name);
        return range_failed(x, e, rc);
    case FAULT_DROPPED: return 0;
    case FAULT_STALL:
        rc = err_set(e, ERR_IO, "%s: almost nothing arrived for %d ms", x->j->name, x->c->patience.stall_ms);
        return failed_once(x, 0, e, rc);
    case FAULT_NONE: break;
    }
    if (code != CURLE_OK) {
        char host[128];
        http_host(l->url, host);
        rc = err_set(e, ERR_IO, "%s: reading from %s: %s", x->j->name, host,
                     l->why[0] ? l->why : curl_easy_strerror(code));
        return http_may_pass(code) ? failed_once(x, 0, e, rc) : rc;
    }
    if (l->head.status == 200 || l->head.status == 206) {
        rc = err_set(e, ERR_IO, "%s: the answer ended early", x->j->name);
        return failed_once(x, 0, e, rc);
    }
    return status_failed(l, e);
}

static int lane_ended(lane *l, CURLcode code, err *e) {
    if (l->accepted && l->fault == FAULT_NONE && l->at == l->to) { /* complete, even if more wanted to come */
        lane_stop(l);
        return 0;
    }
    if (code == CURLE_OK && l->fault == FAULT_NONE && l->head.status >= 300 && l->head.status <= 399 &&
        l->head.location)
        return follow(l, e);
    int rc = lane_failed(l, code, e);
    lane_stop(l);
    return rc;
}

/* --- the download --- */

/* Hardly anything came for too long. */
static bool is_slow(lane *l, int64_t now) {
    int64_t ms = l->x->c->patience.stall_ms;
    if (now - l->mark_ms <= ms) return false;
    bool slow = l->at - l->mark < ms * SLOWEST / 1000;
    l->mark_ms = now;
    l->mark = l->at;
    return slow;
}

static int look_after_lanes(run *x, err *e) {
    const CURLMsg *m;
    int            left, running, rc = 0;
    if (curl_multi_perform(x->c->multi, &running) != CURLM_OK) return err_set_nomem(e);
    while (rc == 0 && (m = curl_multi_info_read(x->c->multi, &left))) {
        if (m->msg != CURLMSG_DONE) continue;
        CURLcode code = m->data.result;
        for (int i = 0; i < MAX_LANES; i++) {
            if (x->lanes[i].busy && x->lanes[i].easy == m->easy_handle) {
                rc = lane_ended(&x->lanes[i], code, e);
                break;
            }
        }
    }
    int64_t now = clock_ms();
    for (int i = 0; i < MAX_LANES && rc == 0; i++) {
        lane *l = &x->lanes[i];
        if (!l->busy || (l->fault == FAULT_NONE && !is_slow(l, now))) continue;
        if (l->fault == FAULT_NONE) l->fault = FAULT_STALL;
        rc = lane_failed(l, CURLE_OK, e);
        lane_stop(l);
    }
    return rc;
}

/* Tells the caller, and from time to time the note. */
static int report(run *x, err *e) {
    int64_t now = clock_ms();
    bool    paused = now < x->not_before_ms;
    if (now - x->reported_ms >= REPORT_MS) {
        x->reported_ms = now;
        if (!x->j->report(x->j->ctx, paused ? TRANSFER_PAUSED : TRANSFER_LOADING, x->file.have_bytes,
                          paused ? x->reason : NULL))
            return err_set(e, ERR_CANCELLED, "%s: stopped", x->j->name);
    }
    if (now - x->noted_ms < (x->file.news ? PIECE_NOTE_MS : NOTE_MS)) return 0;
    x->noted_ms = now;
    return partial_note(&x->file, e);
}

static int load(run *x, err *e) {
    int rc = 0;
    x->noted_ms = clock_ms();
    while (rc == 0 && x->file.have_bytes < x->file.size) {
        if (clock_ms() >= x->not_before_ms) rc = start_lanes(x, e);
        if (rc == 0) rc = look_after_lanes(x, e);
        if (rc == 0) rc = report(x, e);
        int64_t pause = x->not_before_ms - clock_ms();
        if (pause <= 0 || pause > POLL_MS) pause = POLL_MS;
        if (rc == 0 && x->file.have_bytes < x->file.size) curl_multi_poll(x->c->multi, NULL, 0, (int)pause, NULL);
    }
    for (int i = 0; i < MAX_LANES; i++) lane_stop(&x->lanes[i]);
    if (x->file.have_bytes > 0) partial_note(&x->file, rc == 0 ? e : NULL);
    return rc;
}

static int verify(run *x, err *e) {
    uint8_t sum[32];
    char    digest[BLOB_DIGEST_CHARS];
    while (!hasher_ready(x->hash)) {
        if (!x->j->report(x->j->ctx, TRANSFER_VERIFYING, hasher_done(x->hash), NULL))
            return err_set(e, ERR_CANCELLED, "%s: stopped", x->j->name);
        nanosleep(&(struct timespec){ 0, 10 * 1000000L }, NULL);
    }
    int rc = hasher_result(x->hash, sum, e);
    if (rc < 0) return err_wrap(e, rc, "%s", x->j->name);
    x->j->report(x->j->ctx, TRANSFER_VERIFYING, x->file.size, NULL);
    blob_digest_write(digest, sum);
    if (strcmp(digest, x->j->digest) == 0) return 0;
    hasher_free(x->hash);
    x->hash = NULL;
    partial_discard(&x->file);
    return err_set(e, ERR_FORMAT,
                   "%s: what arrived is not what was promised: its digest is %s, expected %s; it was thrown away",
                   x->j->name, digest, x->j->digest);
}

static void run_deinit(run *x) {
    for (int i = 0; i < MAX_LANES; i++) {
        lane *l = &x->lanes[i];
        lane_stop(l);
        curl_easy_cleanup(l->easy);
        http_head_deinit(&l->head);
        free(l->url);
    }
    hasher_free(x->hash);
    partial_close(&x->file);
    free(x->direct);
    free(x);
}

/* Behind the sentence, whose own end gives way if there is no room for both. */
static void say_kept(err *e) {
    static const char text[] = "; what has come so far is kept, and the same pull goes on from there";
    size_t            len = strlen(e->msg), most = sizeof e->msg - sizeof text;
    memcpy(e->msg + (len < most ? len : most), text, sizeof text);
}

/* The caller holds the maker's lock. */
static int download(const http_client *c, registry *r, const transfer_job *j, int64_t *fetched, err *e) {
    run *x = calloc(1, sizeof *x);
    int  rc;
    if (!x) return err_set_nomem(e);
    x->c = c;
    x->j = j;
    x->file.fd = -1;
    x->n_lanes = c->patience.ranges;
    for (int i = 0; i < MAX_LANES; i++) x->lanes[i].x = x;
    if ((rc = partial_open(&x->file, r, j->digest, j->size, c->patience.piece_bytes, e)) < 0) {
        err_wrap(e, rc, "%s", j->name);
        goto done;
    }
    x->resumed = x->file.have_bytes > 0;
    if ((rc = start_hasher(x, e)) < 0 || (rc = load(x, e)) < 0 || (rc = verify(x, e)) < 0) goto done;
    if ((rc = registry_blob_adopt(r, j->digest, x->file.path, e)) == 0) unlink(x->file.note);
done:
    if (rc < 0 && x->file.fd >= 0 && x->file.have_bytes > 0) say_kept(e);
    *fetched += x->fetched;
    run_deinit(x);
    return rc;
}

/* What a download that was killed between its last two steps left behind. */
static void remove_leftovers(registry *r, const char *digest) {
    static const char *const suffixes[] = { ".partial", ".partial.json" };
    for (int i = 0; i < 2; i++) {
        char *path;
        if (registry_blob_path(r, digest, suffixes[i], &path, NULL) == 0) unlink(path);
        free(path);
    }
}

int transfer_blob(const http_client *c, registry *r, const transfer_job *j, int64_t *fetched, blob_lock *pin, err *e) {
    err own;
    int rc;
    if (!e) e = &own; /* sentences are passed on inside */
    *pin = BLOB_LOCK_NONE;
    for (;;) {
        if ((rc = registry_blob_pin(r, j->digest, pin, e)) != ERR_NOTFOUND) {
            if (rc == 0) remove_leftovers(r, j->digest);
            return rc;
        }
        rc = registry_blob_try_lock(r, j->digest, pin, e);
        if (rc == ERR_BUSY) {
            int64_t have = partial_peek(r, j->digest);
            if (!j->report(j->ctx, TRANSFER_ELSEWHERE, have < 0 ? 0 : have, NULL))
                return err_set(e, ERR_CANCELLED, "%s: stopped", j->name);
            nanosleep(&(struct timespec){ 0, REPORT_MS * 1000000L }, NULL);
            continue;
        }
        if (rc < 0) return rc;
        if (!registry_blob_has(r, j->digest, NULL) && (rc = download(c, r, j, fetched, e)) < 0) {
            blob_unlock(pin);
            return rc;
        }
        if ((rc = registry_blob_lock_to_pin(r, j->digest, pin, e)) != ERR_NOTFOUND) return rc;
    }
}
