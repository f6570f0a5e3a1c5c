/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/responses_tools.h"

#include "grammar/lark.h"
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

/* The body's own texts go with the tools that are replaced. */
static bool copy(exchange *x, view *v) {
    v->data = arena_strndup(&x->arena, v->data, v->len);
    return v->data != NULL;
}

static bool remember(exchange *x, tool_names *t, tool_name n) {
    if (t->n == OPENAI_MAX_TOOLS) {
        reader_fail(&x->in, NULL, "tools: more than %d functions", OPENAI_MAX_TOOLS);
        return false;
    }
    if (!t->list) t->list = arena_calloc(&x->arena, OPENAI_MAX_TOOLS, sizeof *t->list);
    if (!t->list || !copy(x, &n.flat) || !copy(x, &n.space) || !copy(x, &n.name)) {
        reader_fail(&x->in, NULL, "out of memory");
        return false;
    }
    t->list[t->n++] = n;
    return true;
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
        if (!remember(x, t, (tool_name){ flat, space, name, false })) return;
        put_function(w, flat, text, &parameters, NULL);
    }
}

/* The grammar of a custom tool as a pattern over its whole text. */
static void read_grammar(exchange *x, const node *format, str *out) {
    static const char *const syntaxes[] = { "lark", "regex", NULL };
    view                     source = { "", 0 };
    int                      syntax = 0;
    err                      e = { 0 };
    if (!read_choice(&x->in, format, "syntax", syntaxes, &syntax) && !x->in.failed)
        reader_fail(&x->in, format, "syntax is required: lark or regex");
    need_string(&x->in, format, "definition", &source);
    if (x->in.failed) return;
    str_puts(out, "^(?:");
    int rc =
        syntax == 0 ? grammar_lark_pattern(source, out, &e) : grammar_plain_pattern(source, view_of(""), true, out, &e);
    str_puts(out, ")$");
    node at = node_get(format, "definition");
    if (rc < 0) reader_fail(&x->in, &at, "%s", e.msg);
}

/* The model sees a function with one string, which the grammar holds if there is one. */
static void put_custom_parameters(exchange *x, const node *tool, str *out) {
    static const char *const types[] = { "text", "grammar", NULL };
    int                      type = 0;
    node                     format;
    str                      pattern;
    jw                       w = jw_of(out);
    str_init(&pattern);
    if (read_object(&x->in, tool, "format", &format) && read_choice(&x->in, &format, "type", types, &type) && type == 1)
        read_grammar(x, &format, &pattern);
    jw_raw(&w, view_of("{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\""));
    if (pattern.len) jw_put_text(&w, "pattern", (view){ str_cstr(&pattern), pattern.len });
    str_puts(out, "}},\"required\":[\"input\"],\"additionalProperties\":false}");
    str_deinit(&pattern);
}

static void put_custom(exchange *x, jw *w, const node *tool, tool_names *t) {
    view name, text = { "", 0 };
    str  parameters;
    if (!need_string(&x->in, tool, "name", &name)) return;
    read_string(&x->in, tool, "description", &text);
    str_init(&parameters);
    put_custom_parameters(x, tool, &parameters);
    if (!x->in.failed && remember(x, t, (tool_name){ name, { "", 0 }, name, true }))
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

const tool_name *responses_tool(const tool_names *t, view flat) {
    for (size_t i = 0; i < t->n; i++) {
        if (view_eq(t->list[i].flat, flat)) return &t->list[i];
    }
    return NULL;
}

void responses_custom_text(view arguments, str *out) {
    json_doc doc;
    if (json_doc_parse(&doc, arguments.data, arguments.len, NULL) < 0) return; /* cut in the middle */
    node root = node_root(&doc), input = node_get(&root, "input");
    view text = node_text(&input);
    str_append(out, text.data, text.len);
    json_doc_deinit(&doc);
}
