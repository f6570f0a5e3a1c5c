/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Anthropic's requests, checked and turned into the conversation that the runtime takes.
 *
 * Their messages are lists of blocks; ours are OpenAI's: a user's tool_result blocks become messages of the role tool,
 * an assistant's tool_use blocks become tool_calls, its thinking becomes reasoning_content. A last message of the
 * assistant is the beginning of the answer.
 */
#include "server/anthropic/anthropic.h"

#include "server/constraints.h"
#include "server/content.h"
#include "server/conversation.h"
#include "server/http/json_out.h"
#include "server/openai/input.h"
#include "server/params.h"

#include <string.h>

/* --- blocks --- */

static bool block_type(exchange *x, const node *block, view *type) {
    return need_kind(&x->in, block, NODE_OBJECT) && need_string(&x->in, block, "type", type);
}

static void refuse_block(exchange *x, const node *block, view type) {
    node at = node_get(block, "type");
    reader_fail(&x->in, &at, "blocks of type '%.40s' are not supported here", type.data);
}

static void join_text(exchange *x, const node *from, str *out);

/* Text that comes with a name: {"source": {"type": "text", "data"} or {"type": "content", "content"}, "title",
 * "context"}. */
static void join_document(exchange *x, const node *block, str *out) {
    node source, inner;
    view type, text;
    if (!read_object(&x->in, block, "source", &source)) {
        need_kind(&x->in, &source, NODE_OBJECT);
        return;
    }
    if (!need_string(&x->in, &source, "type", &type)) return;
    if (read_string(&x->in, block, "title", &text) && text.len) str_printf(out, "%s\n", text.data);
    if (read_string(&x->in, block, "context", &text) && text.len) str_printf(out, "%s\n", text.data);
    inner = node_get(&source, "content");
    if (view_eq_c(type, "text")) {
        if (need_string(&x->in, &source, "data", &text)) str_append(out, text.data, text.len);
    } else if (view_eq_c(type, "content")) {
        join_text(x, &inner, out);
    } else {
        node at = node_get(&source, "type");
        reader_fail(&x->in, &at, "documents of type '%.40s' cannot be read here; send their text", type.data);
    }
}

/* {"source", "title", "content": [text, ...]} */
static void join_found(exchange *x, const node *block, str *out) {
    node from = node_get(block, "content");
    view text;
    if (read_string(&x->in, block, "title", &text) && text.len) str_printf(out, "%s\n", text.data);
    if (read_string(&x->in, block, "source", &text) && text.len) str_printf(out, "%s\n", text.data);
    join_text(x, &from, out);
}

/* A block that is text in the end; false: it is none. */
static bool join_block(exchange *x, const node *block, view type, str *out) {
    view text;
    if (view_eq_c(type, "text")) {
        if (need_string(&x->in, block, "text", &text)) str_append(out, text.data, text.len);
    } else if (view_eq_c(type, "document")) {
        join_document(x, block, out);
    } else if (view_eq_c(type, "tool_reference")) { /* a search among tools found this one */
        if (need_string(&x->in, block, "tool_name", &text)) str_append(out, text.data, text.len);
    } else if (view_eq_c(type, "search_result")) {
        join_found(x, block, out);
    } else {
        return false;
    }
    return true;
}

/* A string, or text blocks; appended. */
static void join_text(exchange *x, const node *from, str *out) {
    if (node_is(from) == NODE_STRING) {
        view text = node_text(from);
        str_append(out, text.data, text.len);
        return;
    }
    if (node_is(from) != NODE_ARRAY) {
        reader_fail(&x->in, from, "expected a string or an array of blocks");
        return;
    }
    for (size_t i = 0; i < node_count(from) && !x->in.failed; i++) {
        node block = node_at(from, i);
        view type;
        if (!block_type(x, &block, &type)) return;
        if (!join_block(x, &block, type, out)) refuse_block(x, &block, type);
    }
}

/* {"type": "base64", "media_type", "data"} or {"type": "url", "url"}; the media type is what the bytes say. */
static void read_image(content_reader *c, const node *block) {
    reader *r = &c->x->in;
    node    source;
    view    type;
    if (!read_object(r, block, "source", &source)) {
        need_kind(r, &source, NODE_OBJECT);
        return;
    }
    if (!need_string(r, &source, "type", &type)) return;
    node at = node_get(&source, "type"), data = node_get(&source, "data"), url = node_get(&source, "url");
    if (view_eq_c(type, "base64")) {
        if (need_kind(r, &data, NODE_STRING)) content_picture_base64(c, &data, node_text(&data));
    } else if (view_eq_c(type, "url")) {
        if (need_kind(r, &url, NODE_STRING)) content_picture_url(c, &url, node_text(&url));
    } else {
        reader_fail(r, &at, "expected base64 or url; got '%.40s'", type.data);
    }
}

/* A block that is part of a content: text in the end, or a picture. False: it is neither. */
static bool read_block(content_reader *c, const node *block, view type) {
    str  text;
    bool known = true;
    if (view_eq_c(type, "image")) {
        read_image(c, block);
        return true;
    }
    str_init(&text);
    known = join_block(c->x, block, type, &text);
    if (known) content_text(c, (view){ str_cstr(&text), text.len });
    str_deinit(&text);
    return known;
}

/* A string, or blocks. */
static void read_blocks(content_reader *c, const node *from) {
    if (node_is(from) == NODE_STRING) {
        content_text(c, node_text(from));
        return;
    }
    if (node_is(from) != NODE_ARRAY) {
        reader_fail(&c->x->in, from, "expected a string or an array of blocks");
        return;
    }
    for (size_t i = 0; i < node_count(from) && !c->x->in.failed; i++) {
        node block = node_at(from, i);
        view type;
        if (!block_type(c->x, &block, &type)) return;
        if (!read_block(c, &block, type)) refuse_block(c->x, &block, type);
    }
}

static void put_message(jw *w, const char *role, const str *text) {
    jw_open(w, '{');
    jw_put_cstr(w, "role", role);
    jw_put_text(w, "content", (view){ str_cstr(text), text->len });
}

static void put_result(exchange *x, jw *w, const node *block, runtime_request *q) {
    node           from = node_get(block, "content");
    view           id = { "", 0 };
    bool           failed = false;
    content_reader c;
    content_init(&c, x, q);
    need_string(&x->in, block, "tool_use_id", &id);
    read_bool(&x->in, block, "is_error", &failed);
    if (failed) content_text(&c, view_of("Error: "));
    if (node_is(&from) != NODE_ABSENT) read_blocks(&c, &from);
    jw_open(w, '{');
    jw_put_cstr(w, "role", "tool");
    content_put(&c, w);
    jw_put_text(w, "tool_call_id", id);
    jw_close(w, '}');
    content_deinit(&c);
}

/* Results come first, whatever the order of the blocks: they answer the calls of the message before. */
static void put_user(exchange *x, jw *w, const node *from, runtime_request *q) {
    bool           has_content = node_is(from) == NODE_STRING;
    size_t         n = node_is(from) == NODE_ARRAY ? node_count(from) : 0, results = 0;
    content_reader c;
    view           type;
    content_init(&c, x, q);
    if (n == 0) read_blocks(&c, from);
    for (size_t i = 0; i < n && !x->in.failed; i++) {
        node block = node_at(from, i);
        if (!block_type(x, &block, &type)) break;
        if (!view_eq_c(type, "tool_result")) continue;
        put_result(x, w, &block, q);
        results++;
    }
    for (size_t i = 0; i < n && !x->in.failed; i++) {
        node block = node_at(from, i);
        if (!block_type(x, &block, &type)) break;
        if (view_eq_c(type, "tool_result")) continue;
        if (!read_block(&c, &block, type)) refuse_block(x, &block, type);
        has_content = true;
    }
    if (!has_content && results == 0) reader_fail(&x->in, from, "is empty");
    if (has_content) {
        jw_open(w, '{');
        jw_put_cstr(w, "role", "user");
        content_put(&c, w);
        jw_close(w, '}');
    }
    content_deinit(&c);
}

static void put_call(exchange *x, jw *w, const node *block) {
    view id = { "", 0 }, name = { "", 0 };
    node input;
    need_string(&x->in, block, "id", &id);
    need_string(&x->in, block, "name", &name);
    if (!read_object(&x->in, block, "input", &input)) need_kind(&x->in, &input, NODE_OBJECT);
    conversation_put_call_object(w, id, name, &input);
}

static void put_assistant(exchange *x, jw *w, const node *from) {
    str    text, thoughts, calls;
    size_t n = node_is(from) == NODE_ARRAY ? node_count(from) : 0;
    str_init(&text);
    str_init(&thoughts);
    str_init(&calls);
    jw list = jw_of(&calls);
    if (node_is(from) != NODE_ARRAY) join_text(x, from, &text);
    for (size_t i = 0; i < n && !x->in.failed; i++) {
        node block = node_at(from, i);
        view type, piece;
        if (!block_type(x, &block, &type)) break;
        if (view_eq_c(type, "text")) {
            if (need_string(&x->in, &block, "text", &piece)) str_append(&text, piece.data, piece.len);
        } else if (view_eq_c(type, "thinking")) {
            if (need_string(&x->in, &block, "thinking", &piece)) str_append(&thoughts, piece.data, piece.len);
        } else if (view_eq_c(type, "tool_use")) {
            put_call(x, &list, &block);
        } else if (!view_eq_c(type, "redacted_thinking")) { /* nobody but its author can read that one */
            refuse_block(x, &block, type);
        }
    }
    put_message(w, "assistant", &text);
    if (thoughts.len) jw_put_text(w, "reasoning_content", (view){ str_cstr(&thoughts), thoughts.len });
    if (calls.len) {
        jw_key(w, "tool_calls");
        jw_open(w, '[');
        jw_raw(w, (view){ str_cstr(&calls), calls.len });
        jw_close(w, ']');
    }
    jw_close(w, '}');
    str_deinit(&calls);
    str_deinit(&thoughts);
    str_deinit(&text);
}

static void put_system(exchange *x, jw *w, const node *system) {
    str text;
    if (node_is(system) == NODE_ABSENT) return;
    str_init(&text);
    join_text(x, system, &text);
    if (text.len) {
        put_message(w, "system", &text);
        jw_close(w, '}');
    }
    str_deinit(&text);
}

static void read_messages(exchange *x, runtime_request *q) {
    static const char *const roles[] = { "user", "assistant", "system", NULL };
    node                     list, system = read_any(&x->in, &x->body, "system");
    str                      text;
    int                      role = 0;
    if (!need_array(&x->in, &x->body, "messages", OPENAI_MAX_MESSAGES, &list)) return;
    if (node_count(&list) == 0) reader_fail(&x->in, &list, "at least one message is required");
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    put_system(x, &w, &system);
    for (size_t i = 0; i < node_count(&list) && !x->in.failed; i++) {
        node m = node_at(&list, i), from = node_get(&m, "content");
        view name;
        if (!need_kind(&x->in, &m, NODE_OBJECT) || !need_string(&x->in, &m, "role", &name)) break;
        if (!read_choice(&x->in, &m, "role", roles, &role)) break;
        if (node_is(&from) == NODE_ABSENT) {
            reader_fail(&x->in, &from, "is required");
        } else if (role == 2) { /* the chat finds its place: chat/turns.h */
            put_system(x, &w, &from);
        } else if (role == 0) {
            put_user(x, &w, &from, q);
        } else {
            put_assistant(x, &w, &from);
        }
    }
    jw_close(&w, ']');
    q->continue_final = role == 1;
    if (!x->in.failed) exchange_copy(x, &text, &q->messages);
    str_deinit(&text);
}

/* --- tools --- */

/* Tools of other types run at the hosted service, or have schemas that only its models know. */
static bool is_own_tool(const node *tool) {
    node type = node_get(tool, "type");
    return node_is(&type) == NODE_ABSENT || view_eq_c(node_text(&type), "custom");
}

static void put_tool(exchange *x, jw *w, const node *tool) {
    view name = { "", 0 }, text = { "", 0 };
    node schema;
    if (!need_kind(&x->in, tool, NODE_OBJECT)) return;
    if (!is_own_tool(tool)) {
        if (need_string(&x->in, tool, "type", &text)) exchange_ignore(x, text);
        return;
    }
    if (need_string(&x->in, tool, "name", &name)) conversation_check_name(&x->in, tool, "name");
    read_string(&x->in, tool, "description", &text);
    if (!read_object(&x->in, tool, "input_schema", &schema)) need_kind(&x->in, &schema, NODE_OBJECT);
    conversation_put_tool(w, name, text, &schema);
}

/* name NULL: any. */
static bool has_tool(const node *tools, const view *name) {
    for (size_t i = 0; i < node_count(tools); i++) {
        node tool = node_at(tools, i), n = node_get(&tool, "name");
        if (is_own_tool(&tool) && (!name || view_eq(node_text(&n), *name))) return true;
    }
    return false;
}

static void read_tool_choice(exchange *x, const node *tools, runtime_request *q) {
    static const char *const         names[] = { "auto", "any", "tool", "none", NULL };
    static const runtime_tool_choice values[] = { RUNTIME_TOOLS_AUTO, RUNTIME_TOOLS_REQUIRED, RUNTIME_TOOLS_NAMED,
                                                  RUNTIME_TOOLS_NONE };
    node                             choice;
    view                             text;
    int                              i = 0;
    bool                             flag;
    if (!read_object(&x->in, &x->body, "tool_choice", &choice)) return;
    if (!need_string(&x->in, &choice, "type", &text) || !read_choice(&x->in, &choice, "type", names, &i)) return;
    q->tool_choice = values[i];
    if (read_bool(&x->in, &choice, "disable_parallel_tool_use", &flag)) q->parallel_tools = !flag;
    if (i == 1 && !has_tool(tools, NULL))
        reader_fail(&x->in, &choice, "'any' requires at least one tool that can be called here");
    if (i != 2 || !need_string(&x->in, &choice, "name", &q->tool_name)) return;
    if (!has_tool(tools, &q->tool_name)) reader_fail(&x->in, &choice, "there is no tool '%.64s'", q->tool_name.data);
}

static void read_tools(exchange *x, runtime_request *q) {
    node tools;
    str  text;
    bool given = read_array(&x->in, &x->body, "tools", OPENAI_MAX_TOOLS, &tools);
    read_tool_choice(x, &tools, q);
    if (!given) return;
    str_init(&text);
    jw w = jw_of(&text);
    jw_open(&w, '[');
    for (size_t i = 0; i < node_count(&tools) && !x->in.failed; i++) {
        node tool = node_at(&tools, i);
        put_tool(x, &w, &tool);
    }
    jw_close(&w, ']');
    if (!x->in.failed && has_tool(&tools, NULL)) exchange_copy(x, &text, &q->tools);
    str_deinit(&text);
}

/* --- the rest --- */

static void read_thinking(exchange *x, runtime_request *q) {
    static const char *const names[] = { "disabled", "enabled", "adaptive", NULL };
    node                     thinking;
    view                     text;
    int                      kind = 0;
    int64_t                  budget;
    q->thinking = RUNTIME_THINK_OFF; /* as the hosted service: thoughts only for those who ask */
    if (!read_object(&x->in, &x->body, "thinking", &thinking)) return;
    if (!need_string(&x->in, &thinking, "type", &text) || !read_choice(&x->in, &thinking, "type", names, &kind)) return;
    if (kind > 0) q->thinking = RUNTIME_THINK_WISH; /* clients ask whatever the model is */
    if (kind != 1) return;
    node at = node_get(&thinking, "budget_tokens");
    if (node_is(&at) == NODE_ABSENT) reader_fail(&x->in, &at, "is required");
    if (!read_int(&x->in, &thinking, "budget_tokens", 1, PARAMS_MAX_TOKENS, &budget)) return;
    if (q->max_tokens > 0 && budget >= q->max_tokens) reader_fail(&x->in, &at, "must be less than max_tokens");
    q->thinking_budget = (int)budget;
}

/* {"type": "json_schema", "schema": {...}}, at the top or inside output_config. */
static void read_format(exchange *x, runtime_request *q) {
    static const char *const efforts[] = { "low", "medium", "high", "xhigh", "max", NULL };
    node                     config, format, schema;
    view                     type, text;
    int                      effort = 0;
    params_json_form(x, &x->body, q);
    bool given = read_object(&x->in, &x->body, "output_config", &config);
    bool inside = given && read_object(&x->in, &config, "format", &format);
    if (given && read_choice(&x->in, &config, "effort", efforts, &effort))
        q->effort = view_of(efforts[effort < 2 ? effort : 2]);
    if (!inside && !read_object(&x->in, &x->body, "output_format", &format)) return;
    if (!need_string(&x->in, &format, "type", &type)) return;
    if (!view_eq_c(type, "json_schema")) {
        node at = node_get(&format, "type");
        reader_fail(&x->in, &at, "expected json_schema");
        return;
    }
    if (!read_object(&x->in, &format, "schema", &schema)) need_kind(&x->in, &schema, NODE_OBJECT);
    if (!x->in.failed && params_json(x, &schema, &text)) q->constraint = (runtime_constraint){ RUNTIME_SCHEMA, text };
}

/* Its wish for thoughts is granted by models that have them; of the others it is named. */
static void name_thinking(exchange *x, const runtime_request *q) {
    host_model m;
    node       model = node_get(&x->body, "model");
    if (q->thinking != RUNTIME_THINK_WISH || host_find(x->host, node_text(&model), &m, NULL) < 0) return;
    if (m.described && !m.can_think) exchange_ignore(x, view_of("thinking"));
}

void anthropic_read(exchange *x, runtime_request *q, bool counting) {
    /* Accounts, storage and billing of the hosted service, and how it trims a conversation: here all of it is read. */
    static const char *const hosted[] = {
        "metadata",    "service_tier", "betas", "inference_geo", "context_management", "cache_control",
        "diagnostics", "speed",        NULL
    };
    static const char *const absent[] = { "mcp_servers", "container", NULL };
    int64_t                  n;
    if (!counting) {
        node at = node_get(&x->body, "max_tokens");
        if (node_is(&at) == NODE_ABSENT) reader_fail(&x->in, &at, "is required");
        if (read_int(&x->in, &x->body, "max_tokens", 1, PARAMS_MAX_TOKENS, &n)) q->max_tokens = (int)n;
        params_numbers(&x->in, &x->body, SAMPLING_BY_ANTHROPIC, q);
        at = node_get(&x->body, "stop_sequences");
        if (node_is(&at) != NODE_ABSENT) need_kind(&x->in, &at, NODE_ARRAY); /* a string is not in their protocol */
        params_stop(x, &x->body, "stop_sequences", q);
    }
    read_messages(x, q);
    read_tools(x, q);
    read_thinking(x, q);
    read_format(x, q);
    name_thinking(x, q);
    exchange_ignore_members(x, hosted);
    if (http_request_get(x->http, "anthropic-beta")) exchange_ignore(x, view_of("anthropic-beta"));
    for (size_t i = 0; absent[i]; i++) {
        node a = read_any(&x->in, &x->body, absent[i]);
        if (node_is(&a) != NODE_ABSENT && (node_is(&a) != NODE_ARRAY || node_count(&a)))
            reader_fail(&x->in, &a, "is not supported");
    }
}
