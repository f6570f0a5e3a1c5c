/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/input.h"

#include "server/content.h"
#include "server/conversation.h"
#include "server/http/json_out.h"
#include "server/openai/tool_choice.h"
#include "server/openai/tool_names.h"
#include "server/params.h"

#include <string.h>

/* --- messages --- */

/* {"url": ..., "detail": ...}, or the url alone. */
static void read_image_url(content_reader *c, const node *part) {
    exchange *x = c->x;
    node      image = node_get(part, "image_url"), url = image;
    c->low = false;
    if (node_is(&image) == NODE_OBJECT) {
        url = node_get(&image, "url");
        content_detail(c, &image);
    }
    if (need_kind(&x->in, &url, NODE_STRING)) content_picture_url(c, &url, node_text(&url));
}

/* A string, or parts. */
static void put_content(exchange *x, jw *w, const node *from, runtime_request *q) {
    content_reader c;
    if (node_is(from) == NODE_STRING) {
        jw_put_text(w, "content", node_text(from));
        return;
    }
    if (node_is(from) != NODE_ARRAY) {
        reader_fail(&x->in, from, "expected a string or an array of parts");
        return;
    }
    content_init(&c, x, q);
    for (size_t i = 0; i < node_count(from) && !x->in.failed; i++) {
        node part = node_at(from, i);
        view type, text;
        if (!need_kind(&x->in, &part, NODE_OBJECT) || !need_string(&x->in, &part, "type", &type)) break;
        node at = node_get(&part, "type");
        if (view_eq_c(type, "text")) {
            if (need_string(&x->in, &part, "text", &text)) content_text(&c, text);
        } else if (view_eq_c(type, "refusal")) {
            if (need_string(&x->in, &part, "refusal", &text)) content_text(&c, text);
        } else if (view_eq_c(type, "image_url")) {
            read_image_url(&c, &part);
        } else if (view_eq_c(type, "input_audio")) {
            node heard = node_get(&part, "input_audio");
            content_sound(&c, &heard);
        } else if (view_eq_c(type, "file")) {
            reader_fail(&x->in, &at, "%s parts are not supported", type.data);
        } else {
            reader_fail(&x->in, &at, "expected one of text, image_url, input_audio, file, refusal; got '%.40s'",
                        type.data);
        }
    }
    content_put(&c, w);
    content_deinit(&c);
}

static void put_calls(exchange *x, jw *w, const node *calls) {
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    for (size_t i = 0; i < node_count(calls) && !x->in.failed; i++) {
        static const char *const types[] = { "function", "custom", NULL }, *const texts[] = { "arguments", "input" };
        node call = node_at(calls, i), inner;
        view id = { "", 0 }, name = { "", 0 }, arguments = { "", 0 };
        int  type = 0;
        str  made;
        if (!need_kind(&x->in, &call, NODE_OBJECT)) break;
        need_string(&x->in, &call, "id", &id);
        read_choice(&x->in, &call, "type", types, &type);
        if (!read_object(&x->in, &call, types[type], &inner)) {
            need_kind(&x->in, &inner, NODE_OBJECT);
            break;
        }
        need_string(&x->in, &inner, "name", &name);
        need_string(&x->in, &inner, texts[type], &arguments);
        str_init(&made);
        if (type == 1) custom_arguments(arguments, &made);
        conversation_put_call(w, id, name, type == 1 ? (view){ str_cstr(&made), made.len } : arguments);
        str_deinit(&made);
    }
    jw_close(w, ']');
}

/* Clients write null where they have no text; a message without the member is a mistake. */
static bool has_null(const node *m) {
    void       *cursor = NULL;
    const char *key;
    node        member;
    while (node_next(m, &cursor, &key, &member)) {
        if (strcmp(key, "content") == 0) return true;
    }
    return false;
}

/* The form before tool_calls: one call without an id. */
static void put_old_call(exchange *x, jw *w, const node *call) {
    view name = { "", 0 }, arguments = { "", 0 };
    need_string(&x->in, call, "name", &name);
    need_string(&x->in, call, "arguments", &arguments);
    jw_key(w, "tool_calls");
    jw_open(w, '[');
    conversation_put_call(w, (view){ "", 0 }, name, arguments);
    jw_close(w, ']');
}

static void put_message(exchange *x, jw *w, const node *m, runtime_request *q) {
    static const char *const roles[] = { "system", "developer", "user", "assistant", "tool", "function", NULL };
    int                      role = 0;
    view                     text;
    node                     from, calls, old;
    if (!need_kind(&x->in, m, NODE_OBJECT)) return;
    if (!need_string(&x->in, m, "role", &text) || !read_choice(&x->in, m, "role", roles, &role)) return;
    from = node_get(m, "content");
    bool has_calls = read_array(&x->in, m, "tool_calls", 256, &calls) && node_count(&calls) > 0;
    bool has_old = role == 3 && !has_calls && read_object(&x->in, m, "function_call", &old);
    if (has_calls && role != 3) reader_fail(&x->in, &calls, "only an assistant's message has tool calls");
    jw_open(w, '{');
    jw_put_cstr(w, "role", role == 1 ? "system" : role == 5 ? "tool" : roles[role]);
    if (node_is(&from) != NODE_ABSENT)
        put_content(x, w, &from, q);
    else if (role == 3 || has_null(m))
        jw_put_cstr(w, "content", "");
    else
        reader_fail(&x->in, &from, "a string or an array of parts is required");
    if (read_string(&x->in, m, "name", &text)) jw_put_text(w, "name", text);
    if (read_string(&x->in, m, "reasoning_content", &text) || read_string(&x->in, m, "reasoning", &text))
        jw_put_text(w, "reasoning_content", text);
    if (has_calls) put_calls(x, w, &calls);
    if (has_old) put_old_call(x, w, &old);
    if (role == 4 && need_string(&x->in, m, "tool_call_id", &text)) jw_put_text(w, "tool_call_id", text);
    jw_close(w, '}');
}

void openai_read_messages(exchange *x, const node *body, runtime_request *q) {
    node list;
    str  text;
    if (!need_array(&x->in, body, "messages", OPENAI_MAX_MESSAGES, &list)) return;
    if (node_count(&list) == 0) reader_fail(&x->in, &list, "is empty; at least one message is required");
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    for (size_t i = 0; i < node_count(&list) && !x->in.failed; i++) {
        node m = node_at(&list, i);
        put_message(x, &w, &m, q);
    }
    jw_close(&w, ']');
    if (!x->in.failed) exchange_copy(x, &text, &q->messages);
    str_deinit(&text);
}

/* --- tools --- */

static void put_tool(exchange *x, jw *w, const node *tool, bool flat) {
    view type, name = { "", 0 }, text = { "", 0 };
    node inner, parameters, function;
    if (!need_kind(&x->in, tool, NODE_OBJECT) || !need_string(&x->in, tool, "type", &type)) return;
    if (!view_eq_c(type, "function")) {
        node at = node_get(tool, "type");
        reader_fail(&x->in, &at, "tools of type '%.40s' are not supported; expected function", type.data);
        return;
    }
    if (!flat && !read_object(&x->in, tool, "function", &inner)) {
        need_kind(&x->in, &inner, NODE_OBJECT);
        return;
    }
    function = flat ? *tool : inner;
    if (need_string(&x->in, &function, "name", &name)) conversation_check_name(&x->in, &function, "name");
    read_string(&x->in, &function, "description", &text);
    read_object(&x->in, &function, "parameters", &parameters);
    conversation_put_tool(w, name, text, &parameters);
}

/* "functions", the form before "tools": the bare functions. */
static bool read_functions(exchange *x, const node *body, node *out) {
    node tools = read_any(&x->in, body, "tools");
    if (!read_array(&x->in, body, "functions", OPENAI_MAX_TOOLS, out)) return false;
    if (node_is(&tools) != NODE_ABSENT) reader_fail(&x->in, out, "cannot be used together with tools");
    return true;
}

static void put_function(exchange *x, jw *w, const node *function) {
    view name = { "", 0 }, text = { "", 0 };
    node parameters;
    if (!need_kind(&x->in, function, NODE_OBJECT)) return;
    if (need_string(&x->in, function, "name", &name)) conversation_check_name(&x->in, function, "name");
    read_string(&x->in, function, "description", &text);
    read_object(&x->in, function, "parameters", &parameters);
    conversation_put_tool(w, name, text, &parameters);
}

bool openai_read_tools(exchange *x, const node *body, runtime_request *q, bool flat) {
    node         tools = { 0 };
    tool_choice *choice = arena_calloc(&x->arena, 1, sizeof *choice);
    str          text;
    bool         flag, legacy = !flat && read_functions(x, body, &tools), given = legacy;
    if (!choice) {
        reader_fail(&x->in, NULL, "out of memory");
        return false;
    }
    if (read_bool(&x->in, body, "parallel_tool_calls", &flag)) q->parallel_tools = flag;
    if (!legacy) given = read_array(&x->in, body, "tools", OPENAI_MAX_TOOLS, &tools);
    openai_read_choice(x, body, &tools, flat, legacy, choice, q);
    if (legacy) q->parallel_tools = false; /* its answers have room for one call */
    if (!given || node_count(&tools) == 0) return legacy;
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    for (size_t i = 0; i < node_count(&tools) && !x->in.failed; i++) {
        node tool = node_at(&tools, i);
        if (!openai_choice_allows(choice, &tool)) continue;
        if (legacy)
            put_function(x, &w, &tool);
        else
            put_tool(x, &w, &tool, flat);
    }
    jw_close(&w, ']');
    if (!x->in.failed) exchange_copy(x, &text, &q->tools);
    str_deinit(&text);
    return legacy;
}

/* --- the template --- */

void openai_read_effort(exchange *x, const node *object, const char *key, runtime_request *q) {
    static const char *const efforts[] = { "none", "minimal", "low", "medium", "high", "xhigh", "max", NULL };
    static const char *const levels[] = { "", "low", "low", "medium", "high", "high", "high" };
    int                      effort = 0;
    if (!read_choice(&x->in, object, key, efforts, &effort)) return;
    if (effort == 0) {
        q->thinking = RUNTIME_THINK_OFF;
        return;
    }
    q->effort = view_of(levels[effort]);
    if (effort > 1 && q->thinking == RUNTIME_THINK_DEFAULT) q->thinking = RUNTIME_THINK_WISH;
}

void openai_read_template(exchange *x, const node *body, runtime_request *q) {
    bool flag;
    node vars;
    if (read_bool(&x->in, body, "enable_thinking", &flag)) q->thinking = flag ? RUNTIME_THINK_ON : RUNTIME_THINK_OFF;
    openai_read_effort(x, body, "reasoning_effort", q);
    if (read_object(&x->in, body, "chat_template_kwargs", &vars)) params_json(x, &vars, &q->template_vars);
    if (read_bool(&x->in, body, "continue_final_message", &flag)) q->continue_final = flag;
    if (read_bool(&x->in, body, "add_generation_prompt", &flag) && flag && q->continue_final)
        reader_fail(&x->in, NULL, "add_generation_prompt and continue_final_message cannot be used together");
}
