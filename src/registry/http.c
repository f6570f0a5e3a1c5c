/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/http.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONNECT_MS = 20000, POLL_MS = 50, LONGEST_PAUSE_MS = 60000, DOCUMENT_STALLS = 4 };

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;
static bool           curl_ready; /* written once, under curl_once */

static void curl_start(void) { curl_ready = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK; }

int http_open(CURLM **out, err *e) {
    pthread_once(&curl_once, curl_start);
    *out = curl_ready ? curl_multi_init() : NULL;
    return *out ? 0 : err_set_nomem(e);
}

void http_patience(pull_patience *p) {
    if (p->ranges <= 0) p->ranges = 4;
    if (p->ranges > 16) p->ranges = 16;
    if (p->piece_bytes <= 0) p->piece_bytes = (int64_t)16 << 20;
    if (p->tries <= 0) p->tries = 6;
    if (p->backoff_ms <= 0) p->backoff_ms = 500;
    if (p->stall_ms <= 0) p->stall_ms = 30000;
    if (p->max_wait_s <= 0) p->max_wait_s = 300;
}

/* --- addresses --- */

typedef struct origin {
    char *scheme, *host, *port;
} origin;

static void origin_deinit(origin *o) {
    curl_free(o->scheme);
    curl_free(o->host);
    curl_free(o->port);
}

static bool origin_of(origin *o, const char *url) {
    CURLU *u = curl_url();
    memset(o, 0, sizeof *o);
    bool ok = u && curl_url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_SCHEME, &o->scheme, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_HOST, &o->host, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_PORT, &o->port, CURLU_DEFAULT_PORT) == CURLUE_OK;
    curl_url_cleanup(u);
    return ok;
}

bool http_same_origin(const char *a, const char *b) {
    origin x, y;
    bool   xok = origin_of(&x, a), yok = origin_of(&y, b);
    bool   same =
        xok && yok && curl_strequal(x.scheme, y.scheme) && curl_strequal(x.host, y.host) && strcmp(x.port, y.port) == 0;
    origin_deinit(&x);
    origin_deinit(&y);
    return same;
}

void http_host(const char *url, char out[128]) {
    origin o;
    snprintf(out, 128, "%s", origin_of(&o, url) ? o.host : "the server");
    origin_deinit(&o);
}

int http_redirect(const char *from, const char *location, char **out, err *e) {
    CURLU *u = curl_url();
    char  *url = NULL;
    int    rc = 0;
    bool   ok = u && curl_url_set(u, CURLUPART_URL, from, 0) == CURLUE_OK &&
              curl_url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_URL, &url, 0) == CURLUE_OK;
    curl_url_cleanup(u);
    *out = NULL;
    bool secure = ok && strncmp(url, "https://", 8) == 0, plain = ok && strncmp(url, "http://", 7) == 0;
    if (!secure && !plain)
        rc = err_set(e, ERR_FORMAT, "a redirect leads to '%.160s', which is not a web address", location);
    else if (plain && strncmp(from, "https://", 8) == 0)
        rc = err_set(e, ERR_FORMAT, "a redirect leads from https to http (%.160s); it is not followed", location);
    else if (!(*out = strdup(url)))
        rc = err_set_nomem(e);
    curl_free(url);
    return rc;
}

void http_put_escaped(str *out, const char *text) {
    static const char hex[] = "0123456789ABCDEF";
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-._~/", c)) {
            str_push(out, (char)c);
        } else {
            str_push(out, '%');
            str_push(out, hex[c >> 4]);
            str_push(out, hex[c & 15]);
        }
    }
}

/* --- one request --- */

static bool add_header(struct curl_slist **list, const char *text) {
    struct curl_slist *more = curl_slist_append(*list, text);
    if (more) *list = more;
    return more != NULL;
}

int http_prepare(const http_client *c, CURL *easy, const char *url, const char *accept, struct curl_slist **headers,
                 err *e) {
    str  line;
    bool ok = true;
    *headers = NULL;
    str_init(&line);
    if (c->token && http_same_origin(url, c->origin)) {
        if (strpbrk(c->token, "\r\n")) return err_set(e, ERR_ARG, "the access token has more than one line");
        str_printf(&line, "Authorization: Bearer %s", c->token);
        ok = str_ok(&line) && add_header(headers, str_cstr(&line));
    }
    if (ok && accept) {
        str_clear(&line);
        str_printf(&line, "Accept: %s", accept);
        ok = str_ok(&line) && add_header(headers, str_cstr(&line));
    }
    str_deinit(&line);
    if (!ok) return err_set_nomem(e);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    /* One connection per range: over HTTP/2 they would share one. */
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "hearth");
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, *headers);
    if (c->ca_file) curl_easy_setopt(easy, CURLOPT_CAINFO, c->ca_file);
    if (curl_easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK) return err_set_nomem(e);
    return 0;
}

typedef struct document {
    http_head head;
    str      *body;
    bool      too_long;
    int64_t   last_ms;
} document;

static size_t on_header(char *data, size_t size, size_t n, void *ctx) {
    document *d = ctx;
    http_head_line(&d->head, (view){ data, size * n }, (int64_t)time(NULL));
    d->last_ms = clock_ms();
    return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx) {
    document *d = ctx;
    d->last_ms = clock_ms();
    if (d->head.status != 200) return size * n; /* an error's page says nothing that the status does not */
    str_append(d->body, data, size * n);
    d->too_long = d->body->failed;
    return d->too_long ? 0 : size * n;
}

/* Runs a prepared handle until it ends, stalls or is not wanted any more. */
static int run_one(const http_client *c, CURL *easy, document *d, CURLcode *code, err *e) {
    int64_t begun = clock_ms();
    int     running = 1, rc = 0;
    *code = CURLE_OPERATION_TIMEDOUT;
    d->last_ms = begun;
    if (curl_multi_add_handle(c->multi, easy) != CURLM_OK) return err_set_nomem(e);
    while (running) {
        if (curl_multi_perform(c->multi, &running) != CURLM_OK) {
            rc = err_set_nomem(e);
            break;
        }
        if (!running) break;
        if (!c->go_on(c->ctx, NULL)) {
            rc = err_set(e, ERR_CANCELLED, "stopped");
            break;
        }
        int64_t now = clock_ms();
        if (now - d->last_ms > c->patience.stall_ms || now - begun > DOCUMENT_STALLS * (int64_t)c->patience.stall_ms)
            break;
        curl_multi_poll(c->multi, NULL, 0, POLL_MS, NULL);
    }
    int            left;
    const CURLMsg *m;
    while ((m = curl_multi_info_read(c->multi, &left))) {
        if (m->msg == CURLMSG_DONE) *code = m->data.result;
    }
    curl_multi_remove_handle(c->multi, easy);
    return rc;
}

/* One try: the request and its redirects. */
static int get_once(const http_client *c, const char *url, const char *accept, document *d, CURLcode *code, char *why,
                    err *e) {
    char *at = strdup(url), *next;
    int   rc = at ? 0 : err_set_nomem(e);
    for (int hop = 0; rc == 0; hop++) {
        CURL              *easy = curl_easy_init();
        struct curl_slist *headers = NULL;
        str_clear(d->body);
        d->body->failed = d->too_long = false;
        http_head_reset(&d->head);
        why[0] = '\0';
        rc = easy ? http_prepare(c, easy, at, accept, &headers, e) : err_set_nomem(e);
        if (rc == 0) {
            curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
            curl_easy_setopt(easy, CURLOPT_HEADERDATA, d);
            curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
            curl_easy_setopt(easy, CURLOPT_WRITEDATA, d);
            curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, why);
            rc = run_one(c, easy, d, code, e);
        }
        curl_easy_cleanup(easy);
        curl_slist_free_all(headers);
        if (rc < 0 || *code != CURLE_OK || d->head.status < 300 || d->head.status > 399 || !d->head.location) break;
        if (hop == HTTP_MAX_REDIRECTS) {
            rc = err_set(e, ERR_FORMAT, "%.200s: more than %d redirects", url, HTTP_MAX_REDIRECTS);
            break;
        }
        if ((rc = http_redirect(at, d->head.location, &next, e)) < 0) break;
        free(at);
        at = next;
    }
    free(at);
    return rc;
}

/* --- trying again --- */

bool http_may_pass(CURLcode code) {
    switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
    }
}

bool http_status_may_pass(int status) { return status == 408 || status == 425 || status == 429 || status >= 500; }

int64_t http_pause_ms(const pull_patience *p, int failures) {
    int64_t ms = p->backoff_ms;
    for (int i = 1; i < failures && ms < LONGEST_PAUSE_MS; i++) ms *= 2;
    if (ms > LONGEST_PAUSE_MS) ms = LONGEST_PAUSE_MS;
    /* Not all clients of a server that was away come back at the same moment. */
    return ms + ms * (clock_us() % 256) / 1024;
}

/* Waits, if the client goes on: ERR_CANCELLED otherwise. */
static int http_wait(const http_client *c, int64_t ms, const char *why, err *e) {
    int64_t end = clock_ms() + ms;
    for (;;) {
        int64_t left = end - clock_ms();
        char    text[CURL_ERROR_SIZE + 128]; /* http_get adds 64 to an explanation of curl */
        if (left <= 0) return 0;
        snprintf(text, sizeof text, "waiting %lld s: %s", (long long)(left + 999) / 1000, why);
        if (!c->go_on(c->ctx, text)) return err_set(e, ERR_CANCELLED, "stopped");
        int64_t part = left < POLL_MS ? left : POLL_MS;
        nanosleep(&(struct timespec){ part / 1000, (part % 1000) * 1000000L }, NULL);
    }
}

static int give_up(const http_client *c, const char *url, const document *d, CURLcode code, const char *why, err *e) {
    char host[128];
    http_host(url, host);
    if (d->too_long) return err_set(e, ERR_LIMIT, "%.200s: the document is larger than %zu bytes", url, d->body->limit);
    if (code == CURLE_OK) return http_explain(c, d->head.status, url, "the request", e);
    return err_set(e, ERR_IO, "cannot read from %s: %s", host, why[0] ? why : curl_easy_strerror(code));
}

int http_get(const http_client *c, const char *url, const char *accept, size_t limit, str *body, http_head *head,
             err *e) {
    document d = { .body = body };
    char     why[CURL_ERROR_SIZE] = "", reason[CURL_ERROR_SIZE + 64];
    int      rc = 0;
    memset(head, 0, sizeof *head);
    body->limit = limit;
    for (int failures = 0; rc == 0;) {
        CURLcode code = CURLE_OK;
        if ((rc = get_once(c, url, accept, &d, &code, why, e)) < 0) break;
        bool pass = !d.too_long && (code == CURLE_OK ? http_status_may_pass(d.head.status) : http_may_pass(code));
        if (code == CURLE_OK && !pass) break;
        /* A host that is not there is not there in ten seconds either. */
        bool unreachable = code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT;
        int  tries = unreachable && c->patience.tries > 3 ? 3 : c->patience.tries;
        bool too_late = d.head.retry_after > c->patience.max_wait_s;
        if (!pass || ++failures >= tries || too_late) {
            rc = give_up(c, url, &d, code, why, e);
            if (too_late && pass)
                rc = err_wrap(e, rc, "the server asks to come back in %lld s", (long long)d.head.retry_after);
            else if (pass)
                rc = err_wrap(e, rc, "given up after %d tries", failures);
            break;
        }
        int64_t ms = http_pause_ms(&c->patience, failures);
        if (code == CURLE_OK && d.head.retry_after * 1000 > ms) ms = d.head.retry_after * 1000;
        if (code == CURLE_OK)
            snprintf(reason, sizeof reason, "the server answered %d", d.head.status);
        else
            snprintf(reason, sizeof reason, "%s", why[0] ? why : curl_easy_strerror(code));
        rc = http_wait(c, ms, reason, e);
    }
    *head = d.head;
    return rc;
}

int http_explain(const http_client *c, int status, const char *url, const char *what, err *e) {
    char host[128];
    http_host(url, host);
    switch (status) {
    case 401:
    case 403:
        if (c->token)
            return err_set(
                e, ERR_ARG,
                "%s: %s refuses it (%d) although a token was sent: the token may be wrong or expired, or the "
                "licence of the model was not accepted on its page",
                what, host, status);
        if (!c->hint) return err_set(e, ERR_ARG, "%s: %s refuses it (%d)", what, host, status);
        return err_set(
            e, ERR_ARG,
            "%s: %s refuses it (%d): it does not exist, or it needs a token (%s) of an account that accepted "
            "its licence",
            what, host, status, c->hint);
    case 404: return err_set(e, ERR_NOTFOUND, "%s does not exist at %s (404)", what, host);
    case 429:
        return err_set(e, ERR_BUSY, "%s: %s says that there were too many requests (429); try again later", what, host);
    default:
        if (status >= 500)
            return err_set(e, ERR_IO, "%s: %s has a problem of its own (%d); try again later", what, host, status);
        return err_set(e, ERR_IO, "%s: unexpected answer %d from %s", what, status, host);
    }
}
