/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_input.h"

#include "server/content.h"
#include "server/conversation.h"
#include "server/http/json_out.h"
#include "server/openai/responses_tools.h"

#include <string.h>

enum { MAX_ITEMS = 16384 };

/* What is being written: calls that follow each other belong to one assistant's message. */
typedef struct writer {
    exchange        *x;
    runtime_request *q;
    jw               w;
    bool             in_calls;
} writer;

static void end_calls(writer *o) {
    if (!o->in_calls) return;
    jw_close(&o->w, ']');
    jw_close(&o->w, '}');
    o->in_calls = false;
}

static void put_message(writer *o, const char *role, view text) {
    end_calls(o);
    jw_open(&o->w, '{');
    jw_put_cstr(&o->w, "role", role);
    jw_put_text(&o->w, "content", text);
    jw_close(&o->w, '}');
}

/* The url alone; files of a hosted service are not here. */
static void read_image(content_reader *c, const node *part) {
    reader *r = &c->x->in;
    node    url = node_get(part, "image_url"), file = node_get(part, "file_id");
    if (node_is(&file) != NODE_ABSENT) {
        reader_fail(r, &file, "files cannot be named here; send the picture as image_url: data:image/...;base64,...");
        return;
    }
    content_detail(c, part);
    if (need_kind(r, &url, NODE_STRING)) content_picture_url(c, &url, node_text(&url));
}

/* A string, or parts. */
static void read_parts(content_reader *c, const node *from) {
    exchange *x = c->x;
    view      type, text;
    if (node_is(from) == NODE_STRING) {
        content_text(c, node_text(from));
        return;
    }
    if (node_is(from) == NODE_ABSENT) return;
    if (!need_kind(&x->in, from, NODE_ARRAY)) return;
    for (size_t i = 0; i < node_count(from) && !x->in.failed; i++) {
        node part = node_at(from, i), at;
        if (!need_kind(&x->in, &part, NODE_OBJECT) || !need_string(&x->in, &part, "type", &type)) return;
        at = node_get(&part, "type");
        bool refusal = view_eq_c(type, "refusal");
        if (refusal || view_eq_c(type, "input_text") || view_eq_c(type, "output_text") || view_eq_c(type, "text")) {
            if (need_string(&x->in, &part, refusal ? "refusal" : "text", &text)) content_text(c, text);
        } else if (view_eq_c(type, "input_image")) {
            read_image(c, &part);
        } else if (view_eq_c(type, "input_audio")) {
            node heard = node_get(&part, "input_audio");
            content_sound(c, &heard);
        } else {
            reader_fail(&x->in, &at, "expected input_text, input_image, input_audio or output_text; got '%.40s'",
                        type.data);
        }
    }
}

static void read_message(writer *o, const node *item) {
    static const char *const roles[] = { "system", "developer", "user", "assistant", NULL };
    int                      role = 2;
    view                     ignored;
    content_reader           c;
    node                     from = node_get(item, "content");
    if (!need_string(&o->x->in, item, "role", &ignored) || !read_choice(&o->x->in, item, "role", roles, &role)) return;
    content_init(&c, o->x, o->q);
    read_parts(&c, &from);
    end_calls(o);
    jw_open(&o->w, '{');
    jw_put_cstr(&o->w, "role", role == 1 ? "system" : roles[role]);
    content_put(&c, &o->w);
    jw_close(&o->w, '}');
    content_deinit(&c);
}

/* custom: the text of a custom tool, which the model wrote as the one argument of a function. */
static void read_call(writer *o, const node *item, bool custom) {
    view id = { "", 0 }, name = { "", 0 }, space = { "", 0 }, arguments = { "", 0 };
    need_string(&o->x->in, item, "call_id", &id);
    need_string(&o->x->in, item, "name", &name);
    read_string(&o->x->in, item, "namespace", &space);
    need_string(&o->x->in, item, custom ? "input" : "arguments", &arguments);
    if (!o->in_calls) {
        jw_open(&o->w, '{');
        jw_put_cstr(&o->w, "role", "assistant");
        jw_put_cstr(&o->w, "content", "");
        jw_key(&o->w, "tool_calls");
        jw_open(&o->w, '[');
        o->in_calls = true;
    }
    str made;
    str_init(&made);
    if (custom) {
        custom_arguments(arguments, &made);
        arguments = (view){ str_cstr(&made), made.len };
    }
    conversation_put_call(&o->w, id, responses_flat_name(o->x, space, name), arguments);
    str_deinit(&made);
}

static void read_result(writer *o, const node *item) {
    view           id = { "", 0 };
    content_reader c;
    node           output = node_get(item, "output");
    need_string(&o->x->in, item, "call_id", &id);
    content_init(&c, o->x, o->q);
    read_parts(&c, &output);
    end_calls(o);
    jw_open(&o->w, '{');
    jw_put_cstr(&o->w, "role", "tool");
    jw_put_text(&o->w, "tool_call_id", id);
    content_put(&c, &o->w);
    jw_close(&o->w, '}');
    content_deinit(&c);
}

/* What tools of a hosted service did, and notes of it: nothing that a model here has seen. */
static bool is_hosted(view type) {
    static const char *const names[] = { "web_search_call",       "file_search_call", "image_generation_call",
                                         "code_interpreter_call", "computer_call",    "computer_call_output",
                                         "mcp_list_tools",        "mcp_call",         "mcp_approval_request",
                                         "mcp_approval_response", "tool_search_call", "tool_search_output",
                                         "additional_tools",      "compaction",       NULL };
    for (size_t i = 0; names[i]; i++) {
        if (view_eq_c(type, names[i])) return true;
    }
    return false;
}

static void read_item(writer *o, const node *item) {
    view type = { "message", 7 };
    if (!need_kind(&o->x->in, item, NODE_OBJECT)) return;
    read_string(&o->x->in, item, "type", &type);
    if (view_eq_c(type, "message"))
        read_message(o, item);
    else if (view_eq_c(type, "function_call"))
        read_call(o, item, false);
    else if (view_eq_c(type, "custom_tool_call"))
        read_call(o, item, true);
    else if (view_eq_c(type, "function_call_output") || view_eq_c(type, "custom_tool_call_output"))
        read_result(o, item);
    else if (is_hosted(type))
        exchange_ignore(o->x, type);
    else if (!view_eq_c(type, "reasoning")) { /* a template drops old thoughts */
        node at = node_get(item, "type");
        reader_fail(&o->x->in, &at, "expected message, function_call, function_call_output or reasoning; got '%.40s'",
                    type.data);
    }
}

static void read_items(writer *o, const node *items) {
    if (node_count(items) > MAX_ITEMS) reader_fail(&o->x->in, items, "has more than %d items", MAX_ITEMS);
    for (size_t i = 0; i < node_count(items) && !o->x->in.failed; i++) {
        node item = node_at(items, i);
        read_item(o, &item);
    }
}

void responses_read_input(exchange *x, const node *body, const node *earlier, runtime_request *q) {
    view   text;
    str    out;
    node   input = read_any(&x->in, body, "input");
    writer o = { .x = x, .q = q };
    str_init(&out);
    o.w = jw_of(&out);
    jw_open(&o.w, '[');
    if (read_string(&x->in, body, "instructions", &text) && text.len) put_message(&o, "system", text);
    read_items(&o, earlier);
    if (node_is(&input) == NODE_STRING) {
        put_message(&o, "user", node_text(&input));
    } else if (need_kind(&x->in, &input, NODE_ARRAY)) {
        if (node_count(&input) == 0) reader_fail(&x->in, &input, "is empty");
        read_items(&o, &input);
    }
    end_calls(&o);
    jw_close(&o.w, ']');
    if (!x->in.failed) exchange_copy(x, &out, &q->messages);
    str_deinit(&out);
}
