/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /v1/chats; GET, PUT and DELETE /v1/chats/{id}: chats that pages keep on the server, where chats.bytes allows it.
 *
 * A chat is a JSON object that the page understands; the server reads its title and time only. Each key has chats of its
 * own. ETag, If-Match and If-None-Match keep two pages from writing over each other.
 */
#include "registry/chats.h"

#include "server/handlers.h"
#include "server/http/json_out.h"
#include "server/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ID = 64, MAX_TITLE = 256 };

/* What a handler needs of the request; false: answered. */
typedef struct asked {
    chats *store;
    char   owner[20], id[MAX_ID + 1];
} asked;

static bool ask(exchange *x, asked *a, bool one) {
    a->store = x->server->options.chats;
    if (!a->store) {
        exchange_error(x, 501, "not_offered", NULL, "this server keeps no chats; chats.bytes in server.yaml allows it");
        return false;
    }
    snprintf(a->owner, sizeof a->owner, "%016llx", (unsigned long long)x->core->key_id);
    if (!one) return true;
    bool ok = x->tail.len >= 1 && x->tail.len <= MAX_ID;
    for (size_t i = 0; ok && i < x->tail.len; i++)
        ok = memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", x->tail.data[i], 64) != NULL;
    snprintf(a->id, sizeof a->id, "%.*s", ok ? (int)x->tail.len : 0, x->tail.data);
    if (!ok) exchange_error(x, 400, "invalid_value", "id", "id: expected 1 to %d letters, digits, - and _", MAX_ID);
    return ok;
}

static void reply_error(exchange *x, const err *e) {
    if (e->code == ERR_BUSY)
        exchange_error(x, 412, "version_mismatch", NULL, "%s", e->msg);
    else if (e->code == ERR_LIMIT)
        exchange_error(x, 507, "no_room", NULL, "%s", e->msg);
    else if (e->code == ERR_NOTFOUND)
        exchange_error(x, 404, "not_found", NULL, "%s", e->msg);
    else
        exchange_error_from(x, e);
}

void ops_chats(exchange *x) {
    asked a;
    err   e = { 0 };
    str   b;
    if (!ask(x, &a, false)) return;
    str_init(&b);
    str_puts(&b, "{\"object\":\"list\",\"data\":");
    if (chats_list(a.store, a.owner, &b, &e) < 0) {
        str_deinit(&b);
        reply_error(x, &e);
        return;
    }
    str_puts(&b, "}");
    exchange_reply(x, 200, "application/json", &b);
}

void ops_chat_get(exchange *x) {
    asked   a;
    int64_t version = 0;
    err     e = { 0 };
    str     b;
    if (!ask(x, &a, true)) return;
    str_init(&b);
    if (chats_get(a.store, a.owner, a.id, &b, &version, &e) < 0) {
        str_deinit(&b);
        reply_error(x, &e);
        return;
    }
    exchange_header(x, "ETag", "\"%lld\"", (long long)version);
    exchange_header(x, "Cache-Control", "no-store");
    exchange_reply(x, 200, "application/json", &b);
}

/* If-Match: "N", If-None-Match: *, or neither. */
static bool read_seen(exchange *x, int64_t *seen) {
    const view *match = http_request_get(x->http, "if-match"), *none = http_request_get(x->http, "if-none-match");
    char        text[32], *end = text;
    *seen = CHATS_ANY;
    if (none && view_eq_c(*none, "*")) *seen = CHATS_NEW;
    if (!match) return true;
    snprintf(text, sizeof text, "%.*s", (int)(match->len < sizeof text ? match->len : 0), match->data);
    if (text[0] == '"') *seen = strtoll(text + 1, &end, 10);
    if (end > text + 1 && strcmp(end, "\"") == 0 && *seen > 0) return true;
    exchange_error(x, 412, "version_mismatch", NULL, "If-Match does not name a version of this chat");
    return false;
}

static bool read_entry(exchange *x, const asked *a, chats_entry *out) {
    json_doc doc;
    err      e = { 0 };
    view     body = { str_cstr(&x->http->body), x->http->body.len };
    if (json_doc_parse(&doc, body.data, body.len, &e) < 0) {
        exchange_error(x, 400, "invalid_json", NULL, "%s", e.msg);
        return false;
    }
    node root = node_root(&doc), title = node_get(&root, "title"), updated = node_get(&root, "updated");
    bool ok = node_is(&root) == NODE_OBJECT;
    view text = node_text(&title);
    *out =
        (chats_entry){ .id = a->id, .body = body, .updated = node_is(&updated) == NODE_INT ? node_int(&updated) : 0 };
    size_t n = text.len < MAX_TITLE ? text.len : MAX_TITLE;
    while (n && n < text.len && ((unsigned char)text.data[n] & 0xc0) == 0x80) n--; /* not within a character */
    out->title = arena_strndup(&x->arena, text.data, n);
    json_doc_deinit(&doc);
    if (!ok)
        exchange_error(x, 400, "invalid_value", NULL, "a chat is a JSON object");
    else if (!out->title)
        exchange_error_nomem(x);
    return ok && out->title;
}

void ops_chat_put(exchange *x) {
    asked       a;
    chats_entry entry;
    int64_t     version = 0, seen;
    err         e = { 0 };
    str         b;
    if (!ops_own_origin(x, "keep chats here") || !ask(x, &a, true)) return;
    if (!read_seen(x, &seen) || !read_entry(x, &a, &entry)) return;
    entry.seen = seen;
    if (chats_put(a.store, a.owner, &entry, &version, &e) < 0) {
        reply_error(x, &e);
        return;
    }
    str_init(&b);
    str_printf(&b, "{\"id\":\"%s\",\"etag\":\"\\\"%lld\\\"\"}", a.id, (long long)version);
    exchange_header(x, "ETag", "\"%lld\"", (long long)version);
    exchange_reply(x, 200, "application/json", &b);
}

void ops_chat_delete(exchange *x) {
    asked a;
    err   e = { 0 };
    str   b;
    if (!ops_own_origin(x, "remove chats") || !ask(x, &a, true)) return;
    if (chats_remove(a.store, a.owner, a.id, &e) < 0) {
        reply_error(x, &e);
        return;
    }
    str_init(&b);
    str_printf(&b, "{\"id\":\"%s\",\"deleted\":true}", a.id);
    exchange_reply(x, 200, "application/json", &b);
}
