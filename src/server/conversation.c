/* SPDX-License-Identifier: Apache-2.0 */
#include "server/conversation.h"

void conversation_put_call(jw *w, view id, view name, view arguments) {
    jw_open(w, '{');
    jw_put_text(w, "id", id);
    jw_put_cstr(w, "type", "function");
    jw_key(w, "function");
    jw_open(w, '{');
    jw_put_text(w, "name", name);
    jw_put_text(w, "arguments", arguments);
    jw_close(w, '}');
    jw_close(w, '}');
}

void conversation_put_tool(jw *w, view name, view description, const node *schema) {
    str raw;
    str_init(&raw);
    if (node_is(schema) == NODE_OBJECT)
        node_write(schema, &raw);
    else
        str_puts(&raw, "{\"type\":\"object\",\"properties\":{}}");
    jw_open(w, '{');
    jw_put_cstr(w, "type", "function");
    jw_key(w, "function");
    jw_open(w, '{');
    jw_put_text(w, "name", name);
    if (description.len) jw_put_text(w, "description", description);
    jw_key(w, "parameters");
    jw_raw(w, (view){ str_cstr(&raw), raw.len });
    jw_close(w, '}');
    jw_close(w, '}');
    str_deinit(&raw);
}

bool conversation_name_ok(view name) {
    if (name.len == 0 || name.len > 64) return false;
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
        reader_fail(r, &at, "must be 1 to 64 letters, digits, underscores or dashes");
}
