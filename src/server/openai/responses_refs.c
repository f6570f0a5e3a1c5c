/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_refs.h"

#include "server/internal.h"
#include "server/openai/kept.h"

#include <string.h>

static bool is_reference(const node *item) {
    node type = node_get(item, "type");
    return view_eq_c(node_text(&type), "item_reference");
}

enum { DIGITS = 16 };

/* The conversation of one response, read; references mostly come in rows from the same one. */
typedef struct source {
    char     id[8 + DIGITS]; /* of the response; empty: none */
    json_doc doc;
} source;

static void source_close(source *s) {
    if (s->id[0]) json_doc_deinit(&s->doc);
    s->id[0] = '\0';
}

/* Ids of items hold the id of their response: "fc_" + its digits + a number. False: it is not here. */
static bool source_open(exchange *x, source *s, view item) {
    kept_response r;
    str           list;
    const char   *mark = memchr(item.data, '_', item.len);
    char          id[sizeof s->id] = "resp_";
    if (!mark || (size_t)(item.data + item.len - mark) < 1 + DIGITS) return false;
    memcpy(id + 5, mark + 1, DIGITS);
    if (strcmp(id, s->id) == 0) return true;
    source_close(s);
    if (!kept_get(x->server->kept, (view){ id, 5 + DIGITS }, x->core->key_id, &r)) return false;
    str_init(&list);
    str_printf(&list, "{\"items\":[%s]}", str_cstr(&r.talk));
    if (str_ok(&list) && json_doc_parse(&s->doc, list.data, list.len, NULL) == 0) memcpy(s->id, id, sizeof id);
    str_deinit(&list);
    kept_response_deinit(&r);
    return s->id[0] != '\0';
}

/* Appends the item of that id. False: there is none. */
static bool put_item(exchange *x, source *s, view id, str *out) {
    if (!source_open(x, s, id)) return false;
    node root = node_root(&s->doc), items = node_get(&root, "items");
    for (size_t i = 0; i < node_count(&items); i++) {
        node item = node_at(&items, i), own = node_get(&item, "id");
        if (!view_eq(node_text(&own), id) || is_reference(&item)) continue;
        node_write(&item, out);
        return true;
    }
    return false;
}

bool responses_resolve(exchange *x) {
    node   input = node_get(&x->body, "input");
    bool   any = false, ok = true;
    source from = { .id = "" };
    str    text;
    for (size_t i = 0; node_is(&input) == NODE_ARRAY && i < node_count(&input); i++) {
        node item = node_at(&input, i);
        any = any || is_reference(&item);
    }
    if (!any) return true;
    str_init(&text);
    str_push(&text, '[');
    for (size_t i = 0; i < node_count(&input) && ok; i++) {
        node item = node_at(&input, i), id = node_get(&item, "id");
        view name = node_text(&id);
        if (i) str_push(&text, ',');
        if (!is_reference(&item))
            node_write(&item, &text);
        else if (!(ok = put_item(x, &from, name, &text)))
            exchange_error(x, 404, "item_not_found", "input",
                           "Item with id '%.*s' not found. Responses stay in memory for a limited time (server.yaml, "
                           "responses), and with \"store\": false not at all.",
                           (int)(name.len > 60 ? 60 : name.len), name.data);
    }
    str_push(&text, ']');
    source_close(&from);
    if (ok && (!str_ok(&text) || !node_set_json(&x->body, "input", (view){ text.data, text.len }))) {
        exchange_error_nomem(x);
        ok = false;
    }
    str_deinit(&text);
    return ok;
}
