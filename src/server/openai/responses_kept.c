/* SPDX-License-Identifier: Apache-2.0 */
/* GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items; /v1/conversations, which are not kept. */
#include "server/handlers.h"
#include "server/internal.h"
#include "server/openai/kept.h"
#include "server/openai/openai.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_ITEMS = 20, MAX_ITEMS = 100 };

static void not_here(exchange *x) {
    exchange_error(x, 404, "response_not_found", "response_id",
                   "Response with id '%.*s' not found. Responses stay in memory for a limited time (server.yaml, "
                   "responses), and with \"store\": false not at all.",
                   (int)(x->tail.len > 60 ? 60 : x->tail.len), x->tail.data);
}

void openai_response_get(exchange *x) {
    kept_response r;
    if (!kept_get(x->server->kept, x->tail, x->core->key_id, &r)) {
        not_here(x);
        return;
    }
    exchange_reply(x, 200, "application/json", &r.response);
    kept_response_deinit(&r);
}

void openai_response_delete(exchange *x) {
    str b;
    if (!kept_remove(x->server->kept, x->tail, x->core->key_id)) {
        not_here(x);
        return;
    }
    str_init(&b);
    jw w = jw_of(&b);
    jw_open(&w, '{');
    jw_put_text(&w, "id", x->tail);
    jw_put_cstr(&w, "object", "response");
    jw_put_bool(&w, "deleted", true);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &b);
}

/* "name=value" of the query; ids and numbers need no decoding. */
static view query_value(const exchange *x, const char *name) {
    view   q = x->http->query;
    size_t len = strlen(name);
    for (size_t at = 0; at < q.len;) {
        size_t end = at;
        while (end < q.len && q.data[end] != '&') end++;
        if (end - at > len && memcmp(q.data + at, name, len) == 0 && q.data[at + len] == '=')
            return (view){ q.data + at + len + 1, end - at - len - 1 };
        at = end + 1;
    }
    return (view){ "", 0 };
}

static view item_id(const node *items, size_t i) {
    node item = node_at(items, i), id = node_get(&item, "id");
    return node_text(&id);
}

/* A page of the items, newest first unless asked otherwise. */
static void put_items(exchange *x, const node *items, str *out) {
    view   order = query_value(x, "order"), after = query_value(x, "after"), asked = query_value(x, "limit");
    bool   up = view_eq_c(order, "asc");
    size_t n = node_count(items), from = 0, limit = DEFAULT_ITEMS;
    if (asked.len && asked.len < 4) limit = (size_t)strtoul(asked.data, NULL, 10);
    if (limit < 1 || limit > MAX_ITEMS) limit = DEFAULT_ITEMS;
    for (size_t i = 0; after.len && i < n; i++) {
        if (view_eq(item_id(items, up ? i : n - 1 - i), after)) from = i + 1;
    }
    size_t to = n - from < limit ? n : from + limit;
    jw     w = jw_list(out);
    for (size_t i = from; i < to; i++) {
        node item = node_at(items, up ? i : n - 1 - i);
        if (i > from) str_push(out, ',');
        node_write(&item, out);
    }
    jw_close(&w, ']');
    if (to > from) {
        jw_put_text(&w, "first_id", item_id(items, up ? from : n - 1 - from));
        jw_put_text(&w, "last_id", item_id(items, up ? to - 1 : n - to));
    }
    jw_put_bool(&w, "has_more", to < n);
    jw_close(&w, '}');
}

void openai_response_items(exchange *x) {
    kept_response r;
    json_doc      doc;
    str           list, b;
    if (!kept_get(x->server->kept, x->tail, x->core->key_id, &r)) {
        not_here(x);
        return;
    }
    str_init(&list);
    str_init(&b);
    str_printf(&list, "{\"items\":[%s]}", str_cstr(&r.input));
    if (str_ok(&list) && json_doc_parse(&doc, list.data, list.len, NULL) == 0) {
        node root = node_root(&doc), items = node_get(&root, "items");
        put_items(x, &items, &b);
        json_doc_deinit(&doc);
        exchange_reply(x, 200, "application/json", &b);
    } else {
        exchange_error_nomem(x);
    }
    str_deinit(&b);
    str_deinit(&list);
    kept_response_deinit(&r);
}

void openai_conversations(exchange *x) {
    exchange_error(x, 501, "not_implemented", NULL,
                   "conversations are not stored here; use previous_response_id to continue a response");
}
