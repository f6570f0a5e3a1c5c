/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/conversation.h"

#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_SAVED_BYTES = 64 << 20 };

static void release(conversation_message *m) {
    free(m->role);
    free(m->content);
}

void conversation_clear(conversation *c) {
    for (size_t i = 0; i < c->count; i++) release(&c->items[i]);
    free(c->items);
    c->items = NULL;
    c->count = c->cap = 0;
}

int conversation_add(conversation *c, const char *role, const char *content, err *e) {
    if (c->count == c->cap) {
        size_t                cap = c->cap ? c->cap * 2 : 16;
        conversation_message *grown = realloc(c->items, cap * sizeof *grown);
        if (!grown) return err_set_nomem(e);
        c->items = grown;
        c->cap = cap;
    }
    conversation_message m = { strdup(role), strdup(content) };
    if (!m.role || !m.content) {
        release(&m);
        return err_set_nomem(e);
    }
    c->items[c->count++] = m;
    return 0;
}

void conversation_drop_last(conversation *c) {
    if (c->count) release(&c->items[--c->count]);
}

const char *conversation_system(const conversation *c) {
    return c->count && strcmp(c->items[0].role, "system") == 0 ? c->items[0].content : NULL;
}

int conversation_set_system(conversation *c, const char *text, err *e) {
    if (text && *text) {
        int rc = conversation_add(c, "system", text, e);
        if (rc < 0) return rc;
        conversation_message m = c->items[--c->count];
        if (conversation_system(c)) {
            release(&c->items[0]);
        } else {
            memmove(c->items + 1, c->items, c->count * sizeof *c->items);
            c->count++;
        }
        c->items[0] = m;
    } else if (conversation_system(c)) {
        release(&c->items[0]);
        memmove(c->items, c->items + 1, --c->count * sizeof *c->items);
    }
    return 0;
}

int conversation_save(const conversation *c, const char *path, err *e) {
    file_replace f;
    str          text;
    int          rc = file_replace_begin(&f, path, e);
    if (rc < 0) return rc;
    str_init(&text);
    for (size_t i = 0; i < c->count; i++) {
        str_puts(&text, i ? ",\n  {\"role\": " : "[\n  {\"role\": ");
        str_put_json(&text, c->items[i].role, strlen(c->items[i].role));
        str_puts(&text, ", \"content\": ");
        str_put_json(&text, c->items[i].content, strlen(c->items[i].content));
        str_push(&text, '}');
    }
    str_puts(&text, c->count ? "\n]\n" : "[]\n");
    if (!str_ok(&text) || fwrite(text.data, 1, text.len, f.out) != text.len) {
        rc = err_set_errno(e, "cannot write %s", path);
        file_replace_abort(&f);
    } else {
        rc = file_replace_commit(&f, e);
    }
    str_deinit(&text);
    return rc;
}

static int take(conversation *c, const json_value *list, err *e) {
    if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "expected a JSON array of messages");
    for (size_t i = 0; i < json_count(list); i++) {
        const char *role = json_string(json_get(json_at(list, i), "role"));
        const char *content = json_string(json_get(json_at(list, i), "content"));
        if (!role || !content) return err_set(e, ERR_FORMAT, "message %zu needs the strings role and content", i + 1);
        int rc = conversation_add(c, role, content, e);
        if (rc < 0) return rc;
    }
    return 0;
}

int conversation_load(conversation *c, const char *path, err *e) {
    conversation      fresh = { .thinking = c->thinking };
    const json_value *list = NULL;
    char             *text = NULL;
    size_t            bytes = 0;
    arena             a;
    arena_init(&a, (size_t)4 * MAX_SAVED_BYTES);
    int rc = file_read(&text, &bytes, path, MAX_SAVED_BYTES, e);
    if (rc == 0 && ((rc = json_parse(&list, text, bytes, &a, e)) < 0 || (rc = take(&fresh, list, e)) < 0))
        err_wrap(e, rc, "%s", path);
    if (rc == 0) {
        conversation_clear(c);
        *c = fresh;
    } else {
        conversation_clear(&fresh);
    }
    free(text);
    arena_deinit(&a);
    return rc;
}

static json_value string_value(const char *text) {
    return (json_value){ .kind = JSON_K_STRING, .u.string = view_of(text) };
}

/* The messages as a tree for the template; it borrows the texts. */
static int as_json(const conversation *c, json_value *out, arena *a, err *e) {
    json_value *items = arena_calloc(a, c->count + 1, sizeof *items);
    if (!items) return err_set_nomem(e);
    for (size_t i = 0; i < c->count; i++) {
        json_member *m = arena_calloc(a, 2, sizeof *m);
        if (!m) return err_set_nomem(e);
        m[0] = (json_member){ view_of("role"), string_value(c->items[i].role) };
        m[1] = (json_member){ view_of("content"), string_value(c->items[i].content) };
        items[i] = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, 2 } };
    }
    *out = (json_value){ .kind = JSON_K_ARRAY, .u.array = { items, c->count } };
    return 0;
}

static tmpl_clock clock_now(void) {
    time_t    t = time(NULL);
    struct tm tm;
    if (!localtime_r(&t, &tm)) return (tmpl_clock){ 1970, 1, 1, 0, 0, 0 };
    return (tmpl_clock){ tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec };
}

int conversation_answer(const conversation *c, session *s, const volatile sig_atomic_t *interrupt,
                        session_result *result, err *e) {
    json_value        messages;
    chat_tokens       prompt;
    arena             a;
    const json_member thinking = { view_of("enable_thinking"), { .kind = JSON_K_BOOL, .u.boolean = c->thinking } };
    const json_value  variables = { .kind = JSON_K_OBJECT, .u.object = { &thinking, 1 } };
    memset(result, 0, sizeof *result);
    str_init(&result->text);
    chat_tokens_init(&prompt);
    arena_init(&a, 0);
    int rc = as_json(c, &messages, &a, e);
    if (rc == 0) {
        chat_input in = {
            .messages = &messages, .variables = &variables, .add_generation_prompt = true, .now = clock_now()
        };
        rc = chat_prompt(s->chat, &in, &prompt, e);
    }
    if (rc == 0) rc = session_answer(s, &prompt.ids, prompt.marks, prompt.n_marks, interrupt, result, e);
    arena_deinit(&a);
    chat_tokens_deinit(&prompt);
    return rc;
}
