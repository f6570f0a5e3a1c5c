/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_refs.h"

#include "server/internal.h"
#include "server/openai/kept.h"

#include <string.h>

static bool is_reference(const node *item) {
    node type = node_get(item, "type");
    return view_eq_c(node_text(&type), "item_reference");
}

/* Ids of items hold the id of their response: "fc_" + its 16 digits + a number. */
static bool find_response(exchange *x, view id, kept_response *out) {
    enum { DIGITS = 16 };
    const char *mark = memchr(id.data, '_', id.len);
    char        name[8 + DIGITS] = "resp_";
    if (!mark || (size_t)(id.data + id.len - mark) < 1 + DIGITS) return false;
    memcpy(name + 5, mark + 1, DIGITS);
    return kept_get(x->server->kept, (view){ name, 5 + DIGITS }, x->core->key_id, out);
}

/* Appends the item of that id. False: there is none. */
static bool put_item(exchange *x, view id, str *out) {
    kept_response r;
    json_doc      doc;
    str           list;
    bool          found = false;
    if (!find_response(x, id, &r)) return false;
    str_init(&list);
    str_printf(&list, "{\"items\":[%s]}", str_cstr(&r.talk));
    if (str_ok(&list) && json_doc_parse(&doc, list.data, list.len, NULL) == 0) {
        node root = node_root(&doc), items = node_get(&root, "items");
        for (size_t i = 0; i < node_count(&items) && !found; i++) {
            node item = node_at(&items, i), own = node_get(&item, "id");
            found = view_eq(node_text(&own), id) && !is_reference(&item);
            if (found) node_write(&item, out);
        }
        json_doc_deinit(&doc);
    }
    str_deinit(&list);
    kept_response_deinit(&r);
    return found;
}

bool responses_resolve(exchange *x) {
    node input = node_get(&x->body, "input");
    bool any = false, ok = true;
    str  text;
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
        else if (!(ok = put_item(x, name, &text)))
            exchange_error(x, 404, "item_not_found", "input",
                           "Item with id '%.*s' not found. Responses stay in memory for a limited time (server.yaml, "
                           "responses), and with \"store\": false not at all.",
                           (int)(name.len > 60 ? 60 : name.len), name.data);
    }
    str_push(&text, ']');
    if (ok && (!str_ok(&text) || !node_set_json(&x->body, "input", (view){ text.data, text.len }))) {
        exchange_error_nomem(x);
        ok = false;
    }
    str_deinit(&text);
    return ok;
}
