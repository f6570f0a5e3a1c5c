/* SPDX-License-Identifier: Apache-2.0 */
#include "server/openai/tool_choice.h"

/* The name, which the chat endpoint has one level below: {"type": "function", "function": {"name": ...}}. */
static view name_of(const node *tool) {
    node function = node_get(tool, "function"), custom = node_get(tool, "custom"), own = node_get(tool, "name");
    node inner = node_is(&function) == NODE_OBJECT ? function : custom, named = node_get(&inner, "name");
    return node_text(node_is(&inner) == NODE_OBJECT ? &named : &own);
}

static bool has_tool(const node *tools, view name) {
    for (size_t i = 0; i < node_count(tools); i++) {
        node tool = node_at(tools, i);
        if (view_eq(name_of(&tool), name)) return true;
    }
    return false;
}

static bool is_word(view text, runtime_tool_choice *out) {
    static const struct {
        const char         *name;
        runtime_tool_choice value;
    } words[] = { { "none", RUNTIME_TOOLS_NONE },
                  { "auto", RUNTIME_TOOLS_AUTO },
                  { "required", RUNTIME_TOOLS_REQUIRED },
                  { "any", RUNTIME_TOOLS_REQUIRED } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!view_eq_c(text, words[i].name)) continue;
        *out = words[i].value;
        return true;
    }
    return false;
}

static void choose_named(exchange *x, const node *choice, const node *tools, view name, runtime_request *q) {
    if (!has_tool(tools, name)) {
        reader_fail(&x->in, choice, "there is no tool '%.64s'", name.data);
        return;
    }
    q->tool_choice = RUNTIME_TOOLS_NAMED;
    q->tool_name = name;
}

/* {"mode": "auto" or "required", "tools": [...]}, each by its name. */
static void choose_among(exchange *x, const node *o, const node *tools, tool_choice *out, runtime_request *q) {
    static const char *const         modes[] = { "auto", "required", NULL };
    static const runtime_tool_choice values[] = { RUNTIME_TOOLS_AUTO, RUNTIME_TOOLS_REQUIRED };
    int                              mode = 0;
    view                             text;
    if (!need_string(&x->in, o, "mode", &text) || !read_choice(&x->in, o, "mode", modes, &mode)) return;
    if (!need_array(&x->in, o, "tools", 1024, &out->allowed)) return;
    if (node_count(&out->allowed) == 0) reader_fail(&x->in, &out->allowed, "is empty; at least one tool is required");
    for (size_t i = 0; i < node_count(&out->allowed); i++) {
        node one = node_at(&out->allowed, i);
        if (!has_tool(tools, name_of(&one))) reader_fail(&x->in, &one, "does not name one of the tools");
    }
    out->limited = true;
    q->tool_choice = values[mode];
}

static void choose_by_object(exchange *x, const node *choice, const node *tools, bool legacy, tool_choice *out,
                             runtime_request *q) {
    view type = { "", 0 }, name;
    node inner;
    if (legacy) {
        if (need_string(&x->in, choice, "name", &name)) choose_named(x, choice, tools, name, q);
        return;
    }
    if (!need_string(&x->in, choice, "type", &type)) return;
    if (view_eq_c(type, "function") || view_eq_c(type, "custom")) {
        bool nested = read_object(&x->in, choice, type.data, &inner);
        if (need_string(&x->in, nested ? &inner : choice, "name", &name)) choose_named(x, choice, tools, name, q);
    } else if (view_eq_c(type, "allowed_tools")) {
        bool nested = read_object(&x->in, choice, "allowed_tools", &inner);
        choose_among(x, nested ? &inner : choice, tools, out, q);
    } else if (!is_word(type, &q->tool_choice)) {
        reader_fail(&x->in, choice,
                    "expected none, auto, required, any, {\"type\": \"function\" or \"custom\", ...} or {\"type\": "
                    "\"allowed_tools\", ...}");
    }
}

void openai_read_choice(exchange *x, const node *body, const node *tools, bool flat, bool legacy, tool_choice *out,
                        runtime_request *q) {
    node choice = read_any(&x->in, body, legacy ? "function_call" : "tool_choice");
    if (!legacy && !flat) {
        node old = read_any(&x->in, body, "function_call");
        if (node_is(&old) != NODE_ABSENT) reader_fail(&x->in, &old, "is only allowed when there are functions");
    }
    if (node_is(&choice) == NODE_ABSENT) return;
    if (node_is(&choice) == NODE_STRING) {
        if (!is_word(node_text(&choice), &q->tool_choice))
            reader_fail(&x->in, &choice, "expected one of none, auto, required, any; got '%.40s'",
                        node_text(&choice).data);
    } else if (need_kind(&x->in, &choice, NODE_OBJECT)) {
        choose_by_object(x, &choice, tools, legacy, out, q);
    }
    if (!x->in.failed && node_count(tools) == 0 && q->tool_choice >= RUNTIME_TOOLS_REQUIRED)
        reader_fail(&x->in, &choice, "is only allowed when there are tools");
}

bool openai_choice_allows(const tool_choice *c, const node *tool) {
    return !c->limited || has_tool(&c->allowed, name_of(tool));
}
