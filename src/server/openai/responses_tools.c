/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_tools.h"

#include "server/conversation.h"
#include "server/openai/input.h"

#include <stdio.h>
#include <string.h>

view responses_flat_name(exchange *x, view space, view name) {
    str  text;
    view out = name;
    if (!space.len) return name;
    bool joined = space.len > 2 && memcmp(space.data + space.len - 2, "__", 2) == 0;
    str_init(&text);
    str_printf(&text, "%s%s%s", space.data, joined ? "" : "__", name.data);
    exchange_copy(x, &text, &out);
    str_deinit(&text);
    return out;
}

static void put_function(jw *w, view name, view description, const node *parameters, const char *own) {
    jw_open(w, '{');
    jw_put_cstr(w, "type", "function");
    jw_put_text(w, "name", name);
    if (description.len) jw_put_text(w, "description", description);
    if (own || node_is(parameters) == NODE_OBJECT) {
        jw_key(w, "parameters");
        if (own)
            jw_raw(w, view_of(own));
        else
            node_write(parameters, w->out);
        w->comma = true;
    }
    jw_close(w, '}');
}

static void put_namespace(exchange *x, jw *w, const node *tool, tool_names *t) {
    view space = { "", 0 }, type, name, text;
    node list;
    if (!need_string(&x->in, tool, "name", &space)) return;
    conversation_check_name(&x->in, tool, "name");
    if (!need_array(&x->in, tool, "tools", OPENAI_MAX_TOOLS, &list)) return;
    for (size_t i = 0; i < node_count(&list) && !x->in.failed; i++) {
        node inner = node_at(&list, i), parameters = node_get(&inner, "parameters");
        if (!need_kind(&x->in, &inner, NODE_OBJECT) || !need_string(&x->in, &inner, "type", &type)) return;
        if (!view_eq_c(type, "function")) {
            exchange_ignore(x, type);
            continue;
        }
        if (!need_string(&x->in, &inner, "name", &name)) return;
        conversation_check_name(&x->in, &inner, "name");
        text = (view){ "", 0 };
        read_string(&x->in, &inner, "description", &text);
        view flat = responses_flat_name(x, space, name);
        if (!tool_names_add(x, t, (tool_name){ flat, space, name, false })) return;
        put_function(w, flat, text, &parameters, NULL);
    }
}

static void put_custom(exchange *x, jw *w, const node *tool, tool_names *t) {
    view name, text = { "", 0 };
    str  parameters;
    if (!need_string(&x->in, tool, "name", &name)) return;
    read_string(&x->in, tool, "description", &text);
    str_init(&parameters);
    custom_parameters(x, tool, &parameters);
    if (!x->in.failed && tool_names_add(x, t, (tool_name){ name, { "", 0 }, name, true }))
        put_function(w, name, text, NULL, str_cstr(&parameters));
    str_deinit(&parameters);
}

static void put_tool(exchange *x, jw *w, const node *tool, tool_names *t) {
    view type;
    if (!need_kind(&x->in, tool, NODE_OBJECT) || !need_string(&x->in, tool, "type", &type)) return;
    if (view_eq_c(type, "namespace")) {
        put_namespace(x, w, tool, t);
    } else if (view_eq_c(type, "custom")) {
        put_custom(x, w, tool, t);
    } else if (view_eq_c(type, "function")) {
        if (w->comma) str_push(w->out, ',');
        node_write(tool, w->out);
        w->comma = true;
    } else {
        exchange_ignore(x, type);
    }
}

void responses_flatten_tools(exchange *x, tool_names *out) {
    node tools;
    str  text;
    *out = (tool_names){ 0 };
    if (!read_array(&x->in, &x->body, "tools", OPENAI_MAX_TOOLS, &tools)) return;
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    for (size_t i = 0; i < node_count(&tools) && !x->in.failed; i++) {
        node tool = node_at(&tools, i);
        put_tool(x, &w, &tool, out);
    }
    jw_close(&w, ']');
    if (!x->in.failed && (!str_ok(&text) || !node_set_json(&x->body, "tools", (view){ text.data, text.len })))
        reader_fail(&x->in, NULL, "out of memory");
    str_deinit(&text);
}
