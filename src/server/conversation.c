/* SPDX-License-Identifier: Apache-2.0 */
#include "server/conversation.h"

/* As the body has it: it is parsed again only by the worker. */
static void put_node(jw *w, const char *key, const node *n) {
    jw_key(w, key);
    node_write(n, w->out);
    w->comma = true;
}

static void open_call(jw *w, view id, view name) {
    jw_open(w, '{');
    jw_put_text(w, "id", id);
    jw_put_cstr(w, "type", "function");
    jw_key(w, "function");
    jw_open(w, '{');
    jw_put_text(w, "name", name);
}

static void close_call(jw *w) {
    jw_close(w, '}');
    jw_close(w, '}');
}

void conversation_put_call(jw *w, view id, view name, view arguments) {
    open_call(w, id, name);
    jw_put_text(w, "arguments", arguments);
    close_call(w);
}

void conversation_put_call_object(jw *w, view id, view name, const node *arguments) {
    open_call(w, id, name);
    put_node(w, "arguments", arguments);
    close_call(w);
}

void conversation_put_tool(jw *w, view name, view description, const node *schema) {
    jw_open(w, '{');
    jw_put_cstr(w, "type", "function");
    jw_key(w, "function");
    jw_open(w, '{');
    jw_put_text(w, "name", name);
    if (description.len) jw_put_text(w, "description", description);
    if (node_is(schema) == NODE_OBJECT) {
        put_node(w, "parameters", schema);
    } else {
        jw_key(w, "parameters");
        jw_raw(w, view_of("{\"type\":\"object\",\"properties\":{}}"));
    }
    jw_close(w, '}');
    jw_close(w, '}');
}

static bool conversation_name_ok(view name) {
    if (name.len == 0 || name.len > 128) return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return false;
    }
    return true;
}

void conversation_check_name(reader *r, const node *object, const char *key) {
    node at = node_get(object, key);
    if (!conversation_name_ok(node_text(&at)))
        reader_fail(r, &at, "must be 1 to 128 letters, digits, underscores or dashes");
}
