/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/generic.h"

#include "base/str.h"

#include <string.h>

static const char OPENING[] = "You can call tools. Each line between the tags describes one as JSON:\n<tools>\n";
static const char CLOSING[] =
    "</tools>\n\nTo call a tool, write a block like this and nothing behind it:\n<tool_call>\n{\"name\": \"the tool's "
    "name\", \"arguments\": {\"a name\": \"a value\"}}\n</tool_call>\nSeveral calls are several blocks. Results come "
    "back between <tool_response> and </tool_response>. If no tool is needed, answer in plain words.";

typedef struct builder {
    arena *a;
    bool   nomem;
} builder;

static json_value string_value(view v) { return (json_value){ .kind = JSON_K_STRING, .u.string = v }; }

/* Takes the text over. */
static view keep(builder *b, str *text) {
    char *copy = str_ok(text) ? arena_strndup(b->a, str_cstr(text), text->len) : NULL;
    view  out = { copy ? copy : "", copy ? text->len : 0 };
    if (!copy) b->nomem = true;
    str_deinit(text);
    return out;
}

static view describe(builder *b, const json_value *tools) {
    str text;
    str_init(&text);
    str_puts(&text, OPENING);
    for (size_t i = 0; i < json_count(tools); i++) {
        const json_value *one = json_at(tools, i), *fn = json_get(one, "function");
        json_write(fn ? fn : one, &text);
        str_push(&text, '\n');
    }
    str_puts(&text, CLOSING);
    return keep(b, &text);
}

static view text_of(const json_value *message, const char *key) {
    const json_value *v = json_get(message, key);
    return json_is(v, JSON_K_STRING) ? v->u.string : (view){ "", 0 };
}

static bool is_role(const json_value *message, const char *role) { return view_eq_c(text_of(message, "role"), role); }

static bool is_result(const json_value *message) {
    return is_role(message, "tool") || is_role(message, "function") || is_role(message, "ipython");
}

/* A message with this role and content; of the old one (NULL: there is none) what else it says, without its calls. */
static json_value message_of(builder *b, const json_value *old, const char *role, view content) {
    size_t       n = 0;
    json_member *m = arena_calloc(b->a, json_count(old) + 2, sizeof *m);
    if (!m) {
        b->nomem = true;
        return (json_value){ .kind = JSON_K_OBJECT };
    }
    m[n++] = (json_member){ view_of("role"), string_value(view_of(role)) };
    m[n++] = (json_member){ view_of("content"), string_value(content) };
    for (size_t i = 0; i < json_count(old); i++) {
        static const char *const own[] = { "role", "content", "tool_calls", "tool_call_id", "tool_name", "name" };
        const json_member       *k = &old->u.object.members[i];
        bool                     left_out = false;
        for (size_t j = 0; j < sizeof own / sizeof *own; j++) left_out = left_out || view_eq_c(k->key, own[j]);
        if (!left_out) m[n++] = *k;
    }
    return (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, n } };
}

static view joined(builder *b, view first, const char *between, view then) {
    str text;
    str_init(&text);
    str_append(&text, first.data, first.len);
    if (first.len && then.len) str_puts(&text, between);
    str_append(&text, then.data, then.len);
    return keep(b, &text);
}

static view result_text(builder *b, const json_value *message) {
    view own = text_of(message, "content");
    str  text;
    str_init(&text);
    str_puts(&text, "<tool_response>\n");
    str_append(&text, own.data, own.len);
    str_puts(&text, "\n</tool_response>");
    return keep(b, &text);
}

/* Results are the user's words. Those in a row, and what the user says right behind them, are one message: many
 * templates want users and assistants in turn. */
static size_t plain_messages(builder *b, const json_value *in, bool as_they_are, json_value *list) {
    size_t n = json_count(in);
    bool   behind_result = false;
    if (as_they_are) {
        if (n) memcpy(list, in->u.array.items, n * sizeof *list);
        return n;
    }
    n = 0;
    for (size_t i = 0; i < json_count(in) && !b->nomem; i++) {
        const json_value *m = json_at(in, i);
        bool              result = is_result(m);
        view              text = result ? result_text(b, m) : text_of(m, "content");
        if (behind_result && (result || is_role(m, "user"))) {
            view before = text_of(&list[n - 1], "content");
            list[n - 1] = message_of(b, NULL, "user", joined(b, before, "\n", text));
        } else if (result) {
            list[n++] = message_of(b, NULL, "user", text);
        } else if (json_get(m, "tool_calls")) {
            list[n++] = message_of(b, m, "assistant", text);
        } else {
            list[n++] = *m;
        }
        behind_result = result;
    }
    return n;
}

/* The description behind the system message, or before the user's first words. list has room for one more. */
static size_t put_description(builder *b, view text, bool system, json_value *list, size_t n) {
    size_t at = 0;
    if (system && n && is_role(&list[0], "system")) {
        list[0] = message_of(b, &list[0], "system", joined(b, text_of(&list[0], "content"), "\n\n", text));
        return n;
    }
    if (system) {
        memmove(list + 1, list, n * sizeof *list);
        list[0] = message_of(b, NULL, "system", text);
        return n + 1;
    }
    while (at < n && !is_role(&list[at], "user")) at++;
    if (at < n) {
        list[at] = message_of(b, &list[at], "user", joined(b, text, "\n\n", text_of(&list[at], "content")));
        return n;
    }
    memmove(list + 1, list, n * sizeof *list);
    list[0] = message_of(b, NULL, "user", text);
    return n + 1;
}

bool chat_generic_rewrites(const json_value *messages, const json_value *tools) {
    bool any = json_count(tools) > 0;
    for (size_t i = 0; i < json_count(messages) && !any; i++) {
        const json_value *m = json_at(messages, i);
        any = is_result(m) || json_count(json_get(m, "tool_calls")) > 0;
    }
    return any;
}

int chat_generic_fit(const json_value *in, const json_value *tools, const chat_generic *shows, const json_value **out,
                     arena *a, err *e) {
    builder     b = { .a = a };
    json_value *all = arena_calloc(a, 1, sizeof *all), *list = arena_calloc(a, json_count(in) + 1, sizeof *list);
    if (!all || !list) return err_set_nomem(e);
    size_t n = plain_messages(&b, in, shows->calls, list);
    if (json_count(tools) && !b.nomem) n = put_description(&b, describe(&b, tools), shows->system, list, n);
    if (b.nomem) return err_set_nomem(e);
    *all = (json_value){ .kind = JSON_K_ARRAY, .u.array = { list, n } };
    *out = all;
    return 0;
}
