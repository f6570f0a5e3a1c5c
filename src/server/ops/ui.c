/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The web UI: files inside the program. A name has a digest of its contents in it, so a file is kept by browsers for ever;
 * the page that names them is asked for each time, with its ETag. A page may run our scripts and ask this server, nothing
 * else: whatever a model writes, no other origin is ever reached.
 */
#include "server/handlers.h"
#include "server/internal.h"
#include "server/ops/ui_assets.h"

#include <stdio.h>
#include <string.h>

static const char policy[] = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
                             "img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; manifest-src 'self'; "
                             "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                             "require-trusted-types-for 'script'; trusted-types hearth";

static const char without[] =
    "<!doctype html><html lang=en><meta charset=utf-8><title>Hearth</title><h1>Hearth is running</h1>"
    "<p>This program was built without its web pages, because npm was not installed. To get the pages:"
    "<pre>apt install npm\nmake build</pre><p>The API works without them: see docs/clients.md.";

static const ui_asset *find(view name) {
    for (const ui_asset *a = ui_assets; a->name; a++) {
        if (view_eq_c(name, a->name)) return a;
    }
    return NULL;
}

static bool header_has(const exchange *x, const char *name, const char *word) {
    const view *v = http_request_get(x->http, name);
    size_t      n = strlen(word);
    for (size_t i = 0; v && i + n <= v->len; i++) {
        if (memcmp(v->data + i, word, n) == 0) return true;
    }
    return false;
}

static void put_headers(exchange *x, bool page) {
    exchange_header(x, "X-Content-Type-Options", "nosniff");
    exchange_header(x, "Referrer-Policy", "no-referrer");
    if (!page) return;
    exchange_header(x, "Content-Security-Policy", "%s", policy);
    exchange_header(x, "Cross-Origin-Opener-Policy", "same-origin");
}

static void send_asset(exchange *x, const ui_asset *a, const char *caching) {
    str  body;
    char tag[24], type[48];
    snprintf(tag, sizeof tag, "\"%.16s\"", a->digest);
    str_init(&body);
    snprintf(type, sizeof type, "%s%s", a->type, strncmp(a->type, "text/", 5) == 0 ? "; charset=utf-8" : "");
    put_headers(x, strcmp(a->type, "text/html") == 0);
    exchange_header(x, "ETag", "%s", tag);
    exchange_header(x, "Cache-Control", "%s", caching);
    if (header_has(x, "if-none-match", tag)) {
        exchange_reply(x, 304, type, &body);
        return;
    }
    if (a->gzip && !header_has(x, "accept-encoding", "gzip")) {
        exchange_error(x, 406, "not_acceptable", NULL, "this file is stored compressed; send Accept-Encoding: gzip");
        return;
    }
    if (a->gzip) exchange_header(x, "Content-Encoding", "gzip");
    str_append(&body, (const char *)a->begin, (size_t)(a->end - a->begin));
    exchange_reply(x, 200, type, &body);
}

static void send_page(exchange *x) {
    const ui_asset *page = find(view_of("index.html"));
    str             body;
    if (page) {
        send_asset(x, page, "no-cache");
        return;
    }
    str_init(&body);
    str_puts(&body, without);
    put_headers(x, true);
    exchange_reply(x, 200, "text/html; charset=utf-8", &body);
}

/* Ollama's clients look for its sentence, browsers for a page. */
void ops_root(exchange *x) {
    exchange_header(x, "Vary", "Accept");
    if (!x->server->options.no_ui && header_has(x, "accept", "text/html"))
        send_page(x);
    else
        ollama_root(x);
}

static void refuse(exchange *x) {
    exchange_error(x, 404, "not_found", NULL, "the web UI is switched off (--no-ui, transport.ui)");
}

void ops_ui(exchange *x) {
    if (x->server->options.no_ui)
        refuse(x);
    else
        send_page(x);
}

void ops_asset(exchange *x) {
    const ui_asset *a = x->server->options.no_ui ? NULL : find(x->tail);
    if (x->server->options.no_ui)
        refuse(x);
    else if (!a)
        exchange_error(x, 404, "not_found", NULL,
                       "there is no such file; the page may belong to another version of the server");
    else
        send_asset(x, a, "public, max-age=31536000, immutable");
}
