/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/conversation.h"

#include "base/file.h"
#include "base/json.h"
#include "sound/sound.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_SAVED_BYTES = 64 << 20 };

static void release(conversation_message *m) {
    free(m->role);
    free(m->content);
    free(m->json);
}

void conversation_clear(conversation *c) {
    conversation_shorten(c, 0);
    free(c->items);
    c->items = NULL;
    c->cap = 0;
}

void conversation_shorten(conversation *c, size_t count) {
    while (c->count > count) release(&c->items[--c->count]);
    if (c->hidden > c->count) c->hidden = 0;
}

/* Takes json over, also when it fails. */
static int add(conversation *c, const char *role, const char *content, str *json, err *e) {
    if (c->count == c->cap) {
        size_t                cap = c->cap ? c->cap * 2 : 16;
        conversation_message *grown = realloc(c->items, cap * sizeof *grown);
        if (!grown) {
            str_deinit(json);
            return err_set_nomem(e);
        }
        c->items = grown;
        c->cap = cap;
    }
    conversation_message m = { strdup(role), strdup(content), str_take(json) };
    if (!m.role || !m.content || !m.json) {
        release(&m);
        return err_set_nomem(e);
    }
    c->items[c->count++] = m;
    return 0;
}

static void begin(str *json, const char *role, const char *content) {
    str_init(json);
    str_puts(json, "{\"role\": ");
    str_put_json(json, role, strlen(role));
    str_puts(json, ", \"content\": ");
    str_put_json(json, content, strlen(content));
}

int conversation_add(conversation *c, const char *role, const char *content, err *e) {
    str json;
    begin(&json, role, content);
    str_push(&json, '}');
    return add(c, role, content, &json, e);
}

int conversation_add_media(conversation *c, const char *content, const view *blobs, size_t n, err *e) {
    str json;
    str_init(&json);
    str_puts(&json, "{\"role\": \"user\", \"content\": [");
    for (size_t i = 0; i < n; i++)
        str_printf(&json, "%s{\"type\": \"%s\", \"blob\": %zu}", i ? ", " : "",
                   sound_is(blobs[i].data, blobs[i].len) ? "audio" : "image", i);
    if (*content) {
        str_puts(&json, ", {\"type\": \"text\", \"text\": ");
        str_put_json(&json, content, strlen(content));
        str_puts(&json, "}");
    }
    str_puts(&json, "]}");
    return add(c, "user", content, &json, e);
}

int conversation_add_answer(conversation *c, const session_result *r, err *e) {
    size_t n_calls = r->finish == RUNTIME_TOOL_CALLS ? r->n_calls : 0; /* else the last one may be cut off */
    str    json;
    begin(&json, "assistant", str_cstr(&r->text));
    if (n_calls && r->reasoning.len) { /* thoughts belong to what is still going on */
        str_puts(&json, ", \"reasoning_content\": ");
        str_put_json(&json, str_cstr(&r->reasoning), r->reasoning.len);
    }
    for (size_t i = 0; i < n_calls; i++) {
        const session_call *call = &r->calls[i];
        str_puts(&json, i ? ", {\"id\": " : ", \"tool_calls\": [{\"id\": ");
        str_put_json(&json, str_cstr(&call->id), call->id.len);
        str_puts(&json, ", \"type\": \"function\", \"function\": {\"name\": ");
        str_put_json(&json, str_cstr(&call->name), call->name.len);
        str_puts(&json, ", \"arguments\": ");
        str_puts(&json, call->arguments.len ? str_cstr(&call->arguments) : "{}");
        str_puts(&json, "}}");
    }
    str_puts(&json, n_calls ? "]}" : "}");
    return add(c, "assistant", str_cstr(&r->text), &json, e);
}

int conversation_add_tool_result(conversation *c, const session_call *call, const char *text, err *e) {
    str json;
    begin(&json, "tool", text);
    str_puts(&json, ", \"tool_call_id\": ");
    str_put_json(&json, str_cstr(&call->id), call->id.len);
    str_puts(&json, ", \"name\": ");
    str_put_json(&json, str_cstr(&call->name), call->name.len);
    str_push(&json, '}');
    return add(c, "tool", text, &json, e);
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

static void put_all(const conversation *c, size_t hidden, str *out) {
    size_t n = 0, first = conversation_system(c) ? 1 : 0;
    for (size_t i = 0; i < c->count; i++) {
        if (i >= first && i < first + hidden) continue;
        str_puts(out, n++ ? ",\n  " : "[\n  ");
        str_puts(out, c->items[i].json);
    }
    str_puts(out, n ? "\n]\n" : "[]\n");
}

void conversation_json(const conversation *c, str *out) { put_all(c, c->hidden, out); }

bool conversation_drop_oldest(conversation *c) {
    size_t first = conversation_system(c) ? 1 : 0, at = first + c->hidden + 1;
    while (at < c->count && strcmp(c->items[at].role, "user") != 0) at++;
    if (at >= c->count) return false;
    c->hidden = at - first;
    return true;
}

int conversation_save(const conversation *c, const char *path, err *e) {
    file_replace f;
    str          text;
    int          rc = file_replace_begin(&f, path, e);
    if (rc < 0) return rc;
    str_init(&text);
    put_all(c, 0, &text);
    if (!str_ok(&text) || fwrite(text.data, 1, text.len, f.out) != text.len) {
        rc = err_set_errno(e, "cannot write %s", path);
        file_replace_abort(&f);
    } else {
        rc = file_replace_commit(&f, e);
    }
    str_deinit(&text);
    return rc;
}

/* Content may be missing beside tool calls, and may be a list of parts. */
static int take(conversation *c, const json_value *list, err *e) {
    if (!json_is(list, JSON_K_ARRAY)) return err_set(e, ERR_FORMAT, "expected a JSON array of messages");
    for (size_t i = 0; i < json_count(list); i++) {
        const json_value *m = json_at(list, i);
        const char       *role = json_cstr(json_get(m, "role"));
        const char       *content = json_cstr(json_get(m, "content"));
        str               json;
        if (!role || (!content && !json_count(json_get(m, "content")) && !json_count(json_get(m, "tool_calls"))))
            return err_set(e, ERR_FORMAT, "message %zu must have the strings role and content", i + 1);
        str_init(&json);
        json_write(m, &json);
        int rc = add(c, role, content ? content : "", &json, e);
        if (rc < 0) return rc;
    }
    return 0;
}

int conversation_load(conversation *c, const char *path, err *e) {
    conversation      fresh = { 0 };
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
