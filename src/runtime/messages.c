/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as clients write them, made fit for templates.
 *
 * Templates were written for one way of saying a thing where clients have two: content is a text or a list of parts,
 * the arguments of a call are a JSON text or an object. Parts that are all text become one text. Arguments become what
 * this model's template shows properly, which a trial rendering finds out once (messages_probe).
 */
#include "runtime/internal.h"

#include <string.h>

/* A copy of an object in which the member of this name is another one. */
static bool with_member(const json_value *from, const char *key, json_value value, json_value *out, arena *a) {
    size_t       n = json_count(from);
    json_member *m = arena_calloc(a, n + 1, sizeof *m);
    if (!m) return false;
    for (size_t i = 0; i < n; i++) {
        m[i] = from->u.object.members[i];
        if (view_eq_c(m[i].key, key)) m[i].value = value;
    }
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, n } };
    return true;
}

static json_value *copy_items(const json_value *list, arena *a) {
    size_t      n = json_count(list);
    json_value *items = arena_calloc(a, n + 1, sizeof *items);
    if (items && n) memcpy(items, list->u.array.items, n * sizeof *items);
    return items;
}

static bool put_text(const str *text, json_value *out, arena *a) {
    char *copy = arena_strndup(a, str_cstr(text), text->len);
    *out = (json_value){ .kind = JSON_K_STRING, .u.string = { copy, text->len } };
    return copy && str_ok(text);
}

/* --- content --- */

static bool all_text(const json_value *parts) {
    if (!json_is(parts, JSON_K_ARRAY) || json_count(parts) == 0) return false;
    for (size_t i = 0; i < json_count(parts); i++) {
        const json_value *p = json_at(parts, i);
        const char       *type = json_string(json_get(p, "type"));
        if (!type || strcmp(type, "text") != 0 || !json_string(json_get(p, "text"))) return false;
    }
    return true;
}

static bool join_parts(const json_value *parts, json_value *out, arena *a) {
    str text;
    str_init(&text);
    for (size_t i = 0; i < json_count(parts); i++) {
        view t = json_get(json_at(parts, i), "text")->u.string;
        str_append(&text, t.data, t.len);
    }
    bool ok = put_text(&text, out, a);
    str_deinit(&text);
    return ok;
}

/* --- tool calls --- */

/* Arguments in the wanted form; those that are neither are left to the template. */
static bool convert_arguments(const json_value *from, bool as_text, json_value *out, arena *a) {
    const json_value *parsed;
    *out = *from;
    if (as_text && json_is(from, JSON_K_OBJECT)) {
        str text;
        str_init(&text);
        json_write(from, &text);
        bool ok = put_text(&text, out, a);
        str_deinit(&text);
        return ok;
    }
    if (!as_text && json_is(from, JSON_K_STRING) &&
        json_parse(&parsed, from->u.string.data, from->u.string.len, a, NULL) == 0 && json_is(parsed, JSON_K_OBJECT))
        *out = *parsed;
    return true;
}

static bool convert_calls(const json_value *calls, bool as_text, json_value *out, arena *a) {
    json_value *items = copy_items(calls, a);
    if (!items) return false;
    for (size_t i = 0; i < json_count(calls); i++) {
        const json_value *call = json_at(calls, i), *function = json_get(call, "function");
        const json_value *arguments = json_get(function, "arguments");
        json_value        converted, new_function;
        if (!arguments) continue;
        if (!convert_arguments(arguments, as_text, &converted, a) ||
            !with_member(function, "arguments", converted, &new_function, a) ||
            !with_member(call, "function", new_function, &items[i], a))
            return false;
    }
    *out = (json_value){ .kind = JSON_K_ARRAY, .u.array = { items, json_count(calls) } };
    return true;
}

int messages_fit(const runtime *r, const json_value *messages, json_value *out, arena *a, err *e) {
    size_t      n = json_count(messages);
    json_value *items = copy_items(messages, a);
    bool        ok = items != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        const json_value *content = json_get(&items[i], "content"), *calls = json_get(&items[i], "tool_calls");
        json_value        value, message = items[i];
        if (all_text(content))
            ok = join_parts(content, &value, a) && with_member(&message, "content", value, &items[i], a);
        message = items[i];
        if (ok && json_is(calls, JSON_K_ARRAY))
            ok = convert_calls(calls, r->arguments_as_text, &value, a) &&
                 with_member(&message, "tool_calls", value, &items[i], a);
    }
    *out = (json_value){ .kind = JSON_K_ARRAY, .u.array = { items, n } };
    return ok ? 0 : err_set_nomem(e);
}

/* --- the trial --- */

static bool shows(const chat *c, bool as_text) {
    static const char objects[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
        "\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"needle\":1}}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":\"b\"}]";
    static const char texts[] =
        "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
        "\"abcdefghi\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"needle\\\":1}\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"abcdefghi\",\"name\":\"f\",\"content\":\"b\"}]";
    const json_value *messages = NULL;
    chat_tokens       t;
    arena             a;
    bool              yes = false;
    const char       *text = as_text ? texts : objects;
    arena_init(&a, 0);
    chat_tokens_init(&t);
    if (json_parse(&messages, text, strlen(text), &a, NULL) == 0) {
        chat_input in = { .messages = messages, .add_generation_prompt = true, .now = { 2026, 1, 1, 0, 0, 0 } };
        /* A quoted text inside a text would show \"needle\". An object that was just printed shows 'needle'. */
        yes = chat_prompt(c, &in, &t, NULL) == 0 && strstr(str_cstr(&t.text), "needle") &&
              !strstr(str_cstr(&t.text), "\\\"needle") && !strstr(str_cstr(&t.text), "'needle'");
    }
    chat_tokens_deinit(&t);
    arena_deinit(&a);
    return yes;
}

bool messages_probe(const chat *c) { return !shows(c, false) && shows(c, true); }
