/* SPDX-License-Identifier: Apache-2.0 */
/* GET, POST, DELETE /v1/pulls: pulls that belong to the server, so a page may be closed meanwhile. And
 * GET /v1/logs: the newest records. */
#include "server/handlers.h"
#include "server/http/query.h"
#include "server/internal.h"
#include "server/ops/log_ring.h"

#include <stdlib.h>
#include <string.h>

library *ops_library(exchange *x) {
    library *l = x->server->options.library;
    if (!l)
        exchange_error(x, 501, "not_offered", NULL,
                       "the models of this server are fixed: the server was started with a list of models");
    return l;
}

/* What changes this machine is not for pages of other origins, even those that may ask questions. */
bool ops_own_origin(exchange *x, const char *what) {
    const view *origin = http_request_get(x->http, "origin");
    view        own = x->http->host;
    if (!origin) return true;
    if (origin->len > own.len + 3 && memcmp(origin->data + origin->len - own.len, own.data, own.len) == 0 &&
        memcmp(origin->data + origin->len - own.len - 3, "://", 3) == 0)
        return true;
    exchange_error(x, 403, "forbidden", NULL, "only pages of this server may %s", what);
    return false;
}

static void reply_pulls(exchange *x, int status) {
    str b;
    str_init(&b);
    library_write_pulls(x->server->options.library, &b);
    exchange_reply(x, status, "application/json", &b);
}

void ops_pulls(exchange *x) { reply_pulls(x, 200); }

void ops_pull(exchange *x) {
    view     name;
    err      e = { 0 };
    library *l = ops_own_origin(x, "start and cancel pulls") ? ops_library(x) : NULL;
    if (!l) return;
    need_string(&x->in, &x->body, "model", &name);
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    char *text = strndup(name.data, name.len);
    if (!text)
        exchange_error_nomem(x);
    else if (library_keep_pull(l, text, &e) < 0)
        exchange_error_from(x, &e);
    else
        reply_pulls(x, 202);
    free(text);
}

void ops_pull_end(exchange *x) {
    char     name[512];
    library *l = ops_own_origin(x, "start and cancel pulls") ? ops_library(x) : NULL;
    if (!l) return;
    if (query_get(x->http->query, "name", name, sizeof name) && library_end_pull(l, view_of(name)))
        reply_pulls(x, 200);
    else
        exchange_error(x, 404, "not_found", NULL, "there is no pull of this name, neither running nor finished");
}

void ops_logs(exchange *x) {
    str b;
    str_init(&b);
    str_puts(&b, "{\"object\":\"list\",\"data\":[");
    if (x->server->options.logs) log_ring_write(x->server->options.logs, -1, LOG_DEBUG, &b);
    str_puts(&b, "]}");
    exchange_reply(x, 200, "application/json", &b);
}
