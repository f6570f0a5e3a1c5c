/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#include "base/arena.h"
#include "bundle/template.h"
#include "bundle/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct chat {
    tok            *t;
    bundle_template b;
    err             no_template; /* why b is empty */
    chat_format     format;
};

int chat_open(chat **out, const char *path, err *e) {
    int rc = ERR_NOMEM;
    *out = NULL;
    chat *c = calloc(1, sizeof *c);
    if (!c) return err_set_nomem(e);
    if ((rc = bundle_tokenizer_open_path(&c->t, path, NULL, e)) < 0) {
        chat_free(c);
        return rc;
    }
    (void)bundle_template_open(&c->b, path, &c->no_template);
    view source = c->b.chat ? tmpl_source(bundle_template_pick(&c->b, true)) : (view){ "", 0 };
    chat_format_detect(&c->format, source.data, source.len);
    *out = c;
    return 0;
}

void chat_free(chat *c) {
    if (!c) return;
    tok_free(c->t);
    bundle_template_deinit(&c->b);
    free(c);
}

const tok         *chat_tokenizer(const chat *c) { return c->t; }
const chat_format *chat_answer_format(const chat *c) { return &c->format; }
const char        *chat_template_origin(const chat *c) { return c->b.chat ? c->b.origin : NULL; }
bool chat_uses(const chat *c, const char *variable) { return c->b.chat && tmpl_uses(c->b.chat, variable); }

void chat_tokens_init(chat_tokens *t) {
    memset(t, 0, sizeof *t);
    str_init(&t->text);
}

void chat_tokens_deinit(chat_tokens *t) {
    str_deinit(&t->text);
    tok_ids_deinit(&t->ids);
    t->n_marks = 0;
}

int chat_encode(const chat *c, const char *text, size_t bytes, tok_ids *out, err *e) {
    size_t  at = out->count;
    int32_t bos = tok_adds_bos(c->t) ? tok_bos(c->t) : -1;
    if (bos >= 0 && !tok_ids_push(out, bos)) return err_set_nomem(e);
    int rc = tok_encode(c->t, text, bytes, TOK_PARSE_SPECIAL, out, e);
    if (rc < 0) return rc;
    if (bos >= 0 && out->count > at + 1 && out->data[at + 1] == bos) { /* the text has it already */
        memmove(out->data + at, out->data + at + 1, (out->count - at - 1) * sizeof *out->data);
        out->count--;
    }
    return 0;
}

/* --- rendering --- */

static json_value json_text(const char *text) {
    return (json_value){ .kind = JSON_K_STRING, .u.string = view_of(text) };
}

static int render(const chat *c, const chat_input *in, const json_value *messages, bool generation, str *out, err *e) {
    static const json_value none = { .kind = JSON_K_NULL };
    const json_value        add = { .kind = JSON_K_BOOL, .u.boolean = generation };
    const json_value        bos = json_text(c->b.bos ? c->b.bos : ""), eos = json_text(c->b.eos ? c->b.eos : "");
    const json_value       *tools = json_count(in->tools) ? in->tools : NULL;
    size_t                  n = 0, n_own = json_count(in->variables);
    tmpl_var               *v = calloc(n_own + 8, sizeof *v);
    if (!v) return err_set_nomem(e);
    /* Of two entries with one name the later wins: a caller's variables replace defaults but not the messages. */
    v[n++] = (tmpl_var){ view_of("documents"), &none };
    if (c->b.bos) v[n++] = (tmpl_var){ view_of("bos_token"), &bos };
    if (c->b.eos) v[n++] = (tmpl_var){ view_of("eos_token"), &eos };
    for (size_t i = 0; i < n_own; i++)
        v[n++] = (tmpl_var){ in->variables->u.object.members[i].key, &in->variables->u.object.members[i].value };
    v[n++] = (tmpl_var){ view_of("messages"), messages };
    v[n++] = (tmpl_var){ view_of("tools"), tools ? tools : &none };
    v[n++] = (tmpl_var){ view_of("add_generation_prompt"), &add };
    tmpl_input t = { .vars = v, .n_vars = n, .now = in->now };
    int        rc = tmpl_render(bundle_template_pick(&c->b, tools != NULL), &t, out, NULL, e);
    free(v);
    return rc < 0 ? err_wrap(e, rc, "chat template") : 0;
}

/* --- continuing the last message: a tag behind its content shows where the template's ending begins --- */

static const char CONTINUE_TAG[] = "\x1a<hearth:continue>\x1a";

static bool tagged_text(view text, json_value *out, arena *a) {
    size_t n = sizeof CONTINUE_TAG - 1;
    char  *copy = arena_alloc(a, text.len + n + 1);
    if (!copy) return false;
    memcpy(copy, text.data, text.len);
    memcpy(copy + text.len, CONTINUE_TAG, n + 1);
    *out = (json_value){ .kind = JSON_K_STRING, .u.string = { copy, text.len + n } };
    return true;
}

/* A copy of an object in which the member of this name is another one. */
static bool with_member(const json_value *from, const char *key, json_value value, json_value *out, arena *a) {
    size_t       n = json_count(from);
    json_member *m = arena_calloc(a, n, sizeof *m);
    if (!m) return false;
    for (size_t i = 0; i < n; i++) {
        m[i] = from->u.object.members[i];
        if (view_eq_c(m[i].key, key)) m[i].value = value;
    }
    *out = (json_value){ .kind = JSON_K_OBJECT, .u.object = { m, n } };
    return true;
}

static bool with_last(const json_value *from, json_value last, json_value *out, arena *a) {
    size_t      n = json_count(from);
    json_value *items = arena_calloc(a, n, sizeof *items);
    if (!items) return false;
    memcpy(items, from->u.array.items, n * sizeof *items);
    items[n - 1] = last;
    *out = (json_value){ .kind = JSON_K_ARRAY, .u.array = { items, n } };
    return true;
}

/* Content is a string, or a list of parts of which the last is text. */
static int tag_messages(const json_value *messages, json_value *out, arena *a, err *e) {
    const json_value *last = json_at(messages, json_count(messages) - 1), *content = json_get(last, "content");
    json_value        text, message;
    bool              ok;
    if (json_is(content, JSON_K_STRING)) {
        ok = tagged_text(content->u.string, &text, a);
    } else {
        const json_value *part = json_count(content) ? json_at(content, json_count(content) - 1) : NULL;
        const json_value *own = json_get(part, "text");
        json_value        new_part, string;
        if (!json_is(own, JSON_K_STRING))
            return err_set(e, ERR_ARG, "the last message has no text that could be continued");
        ok = tagged_text(own->u.string, &string, a) && with_member(part, "text", string, &new_part, a) &&
             with_last(content, new_part, &text, a);
    }
    ok = ok && with_member(last, "content", text, &message, a) && with_last(messages, message, out, a);
    return ok ? 0 : err_set_nomem(e);
}

static int render_continued(const chat *c, const chat_input *in, str *out, err *e) {
    json_value messages;
    arena      a;
    arena_init(&a, 0);
    int rc = tag_messages(in->messages, &messages, &a, e);
    if (rc == 0) rc = render(c, in, &messages, false, out, e);
    if (rc == 0) {
        size_t n = sizeof CONTINUE_TAG - 1;
        char  *cut = out->len >= n ? memmem(out->data, out->len, CONTINUE_TAG, n) : NULL;
        if (cut) {
            *cut = '\0';
            out->len = (size_t)(cut - out->data);
        } else {
            rc = err_set(e, ERR_ARG, "the chat template does not show the last message, so it cannot be continued");
        }
    }
    arena_deinit(&a);
    return rc;
}

/* --- the prompt --- */

/* The end of the last message: how far the prompt agrees with the same conversation without a generation prompt. */
static int find_mark(const chat *c, const chat_input *in, chat_tokens *out, err *e) {
    str     text;
    tok_ids ids = { 0 };
    str_init(&text);
    int rc = render(c, in, in->messages, false, &text, e);
    if (rc == 0) rc = chat_encode(c, str_cstr(&text), text.len, &ids, e);
    size_t n = 0;
    while (rc == 0 && n < ids.count && n < out->ids.count && ids.data[n] == out->ids.data[n]) n++;
    if (n > 0 && n < out->ids.count) out->marks[out->n_marks++] = (int32_t)n;
    str_deinit(&text);
    tok_ids_deinit(&ids);
    return rc;
}

int chat_prompt(const chat *c, const chat_input *in, chat_tokens *out, err *e) {
    int rc;
    if (!c->b.chat) {
        if (e) *e = c->no_template;
        return c->no_template.code;
    }
    if (!json_is(in->messages, JSON_K_ARRAY) || json_count(in->messages) == 0)
        return err_set(e, ERR_ARG, "messages must be an array with at least one message");
    if (in->continue_final && in->add_generation_prompt)
        return err_set(e, ERR_ARG, "a prompt either continues the last message or begins a new one");
    rc = in->continue_final ? render_continued(c, in, &out->text, e)
                            : render(c, in, in->messages, in->add_generation_prompt, &out->text, e);
    if (rc == 0) rc = chat_encode(c, str_cstr(&out->text), out->text.len, &out->ids, e);
    if (rc == 0 && in->add_generation_prompt) rc = find_mark(c, in, out, e);
    return rc;
}
