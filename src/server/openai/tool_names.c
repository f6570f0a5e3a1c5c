/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/tool_names.h"

#include "chat/partial.h"
#include "grammar/lark.h"
#include "server/conversation.h"
#include "server/http/json_out.h"
#include "server/openai/input.h"

/* The body's own texts go with the tools that are replaced. */
static bool copy(exchange *x, view *v) {
    v->data = arena_strndup(&x->arena, v->data, v->len);
    return v->data != NULL;
}

bool tool_names_add(exchange *x, tool_names *t, tool_name n) {
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

const tool_name *tool_names_find(const tool_names *t, view flat) {
    for (size_t i = 0; i < t->n; i++) {
        if (view_eq(t->list[i].flat, flat)) return &t->list[i];
    }
    return NULL;
}

/* --- custom tools --- */

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

void custom_parameters(exchange *x, const node *tool, str *out) {
    static const char *const types[] = { "text", "grammar", NULL };
    int                      type = 0;
    node                     format, inner;
    str                      pattern;
    jw                       w = jw_of(out);
    str_init(&pattern);
    if (read_object(&x->in, tool, "format", &format) && read_choice(&x->in, &format, "type", types, &type) &&
        type == 1) {
        bool nested = read_object(&x->in, &format, "grammar", &inner);
        read_grammar(x, nested ? &inner : &format, &pattern);
    }
    jw_raw(&w, view_of("{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\""));
    if (pattern.len) jw_put_text(&w, "pattern", (view){ str_cstr(&pattern), pattern.len });
    str_puts(out, "}},\"required\":[\"input\"],\"additionalProperties\":false}");
    str_deinit(&pattern);
}

void custom_arguments(view text, str *out) {
    jw w = jw_of(out);
    jw_open(&w, '{');
    jw_put_text(&w, "input", text);
    jw_close(&w, '}');
}

void custom_text(view arguments, str *out) {
    json_doc doc;
    str      whole;
    str_init(&whole);
    chat_json_close(arguments, true, &whole);
    if (json_doc_parse(&doc, str_cstr(&whole), whole.len, NULL) == 0) {
        node root = node_root(&doc), input = node_get(&root, "input");
        view text = node_text(&input);
        str_append(out, text.data, text.len);
        json_doc_deinit(&doc);
    }
    out->failed |= whole.failed;
    str_deinit(&whole);
}

/* {"type": "custom", "custom": {name, description, format}} as a function. */
static void flatten(exchange *x, const node *tool, tool_names *names) {
    node inner;
    view name, description = { "", 0 };
    str  parameters, function;
    if (!read_object(&x->in, tool, "custom", &inner)) {
        need_kind(&x->in, &inner, NODE_OBJECT);
        return;
    }
    if (!need_string(&x->in, &inner, "name", &name)) return;
    conversation_check_name(&x->in, &inner, "name");
    read_string(&x->in, &inner, "description", &description);
    str_init(&parameters);
    str_init(&function);
    custom_parameters(x, &inner, &parameters);
    jw w = jw_of(&function);
    jw_open(&w, '{');
    jw_put_text(&w, "name", name);
    if (description.len) jw_put_text(&w, "description", description);
    jw_key(&w, "parameters");
    jw_raw(&w, (view){ str_cstr(&parameters), parameters.len });
    jw_close(&w, '}');
    if (!x->in.failed && tool_names_add(x, names, (tool_name){ name, { "", 0 }, name, true })) {
        bool ok = str_ok(&parameters) && str_ok(&function) &&
                  node_set_json(tool, "function", (view){ function.data, function.len });
        if (ok)
            node_set_text(tool, "type", "function");
        else
            reader_fail(&x->in, NULL, "out of memory");
    }
    str_deinit(&parameters);
    str_deinit(&function);
}

void custom_flatten(exchange *x, tool_names *out) {
    node tools = node_get(&x->body, "tools");
    *out = (tool_names){ 0 };
    for (size_t i = 0; node_is(&tools) == NODE_ARRAY && i < node_count(&tools) && !x->in.failed; i++) {
        node tool = node_at(&tools, i), type = node_get(&tool, "type");
        if (view_eq_c(node_text(&type), "custom")) flatten(x, &tool, out);
    }
}
