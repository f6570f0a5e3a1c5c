/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/chat.h"

#include "base/arena.h"
#include "bundle/template.h"
#include "bundle/tokenizer.h"
#include "chat/generic.h"
#include "chat/messages.h"
#include "chat/vars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chat {
    tok            *t;
    bundle_template b;
    err             no_template; /* why b is empty */
    chat_format     format;
    chat_wants      wants;
    bool            borrowed; /* t is another one's */
    bool            shows_system;
    bool            empty_tools; /* without tools the template expects an empty list, not none */
};

static bool render_probe(const chat *c, const char *messages, const char *tools, str *out);

/* Tools for a rendering that asks how a template writes calls. */
static const char PROBE_TOOLS[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"probe_call\",\"description\":\"d\",\"parameters\":{\"type\":"
    "\"object\",\"properties\":{\"probe_key\":{\"type\":\"string\",\"description\":\"d\"}},\"required\":[\"probe_key\"]"
    "}}}]";

static bool probe_turns(void *ctx, const char *messages, const char *want) {
    const chat *c = ctx;
    str         text;
    str_init(&text);
    bool found = render_probe(c, messages, c->empty_tools ? "[]" : NULL, &text) && strstr(str_cstr(&text), want);
    str_deinit(&text);
    return found;
}

static bool has_token(const void *ctx, const char *token) { return tok_find(ctx, token, strlen(token)) >= 0; }

/* The template's text says most; how calls are to be given shows only when it renders one. */
static void find_traits(chat *c) {
    view        source = c->b.chat ? tmpl_source(bundle_template_pick(&c->b, true)) : (view){ "", 0 };
    str         texts[4];
    const char *probes[4] = { NULL, NULL, NULL, NULL };
    chat_format_detect(&c->format, source.data, source.len);
    if (strncmp(c->b.origin, "built-in", 8) == 0) chat_format_think_by_tokens(&c->format, has_token, c->t);
    for (int i = 0; i < 4; i++) str_init(&texts[i]);
    if (c->b.chat) {
        static const char plain[] = "[{\"role\":\"user\",\"content\":\"u\"}]";
        static const char spoken[] = "[{\"role\":\"system\",\"content\":\"probe_system\"},"
                                     "{\"role\":\"user\",\"content\":\"u\"}]";
        c->empty_tools = !render_probe(c, plain, NULL, &texts[0]) && render_probe(c, plain, "[]", &texts[0]);
        str_clear(&texts[0]);
        c->shows_system = render_probe(c, spoken, NULL, &texts[0]) && strstr(str_cstr(&texts[0]), "probe_system");
        str_clear(&texts[0]);
        for (int i = 0; i < 4; i++) {
            if (render_probe(c, chat_probe_messages(i & 1, i >> 1), PROBE_TOOLS, &texts[i]))
                probes[i] = str_cstr(&texts[i]);
        }
    }
    chat_wants_find(&c->wants, source, probes);
    if (c->b.chat) c->wants.system = chat_turns_find(probe_turns, c);
    if (c->b.chat && c->format.row->shape == CHAT_SHAPE_NONE) {
        chat_format_make_generic(&c->format);
        if (!probes[0] && !probes[1] && !probes[2] && !probes[3]) c->wants.calls_as_text = true;
    }
    if (c->b.chat && !c->wants.calls_as_text) {
        const char *two = chat_probe_two_calls(c->wants.string_arguments, c->wants.null_content);
        str_clear(&texts[0]);
        c->wants.single_calls = (probes[0] || probes[2]) && !(render_probe(c, two, PROBE_TOOLS, &texts[0]) &&
                                                              strstr(str_cstr(&texts[0]), CHAT_PROBE_SECOND));
    }
    for (int i = 0; i < 4; i++) str_deinit(&texts[i]);
}

static int use_template(chat *c, view text, err *e) {
    tmpl *t;
    int   rc = tmpl_open(&t, text.data, text.len, e);
    if (rc < 0) return err_wrap(e, rc, "chat template");
    tmpl_free(c->b.chat);
    tmpl_free(c->b.tool_use);
    c->b.chat = t;
    c->b.tool_use = NULL;
    snprintf(c->b.origin, sizeof c->b.origin, "given");
    return 0;
}

int chat_open(chat **out, const char *path, const char *template_text, err *e) {
    int rc = ERR_NOMEM;
    *out = NULL;
    chat *c = calloc(1, sizeof *c);
    if (!c) return err_set_nomem(e);
    if ((rc = bundle_tokenizer_open_path(&c->t, path, NULL, e)) < 0) goto fail;
    (void)bundle_template_open(&c->b, path, &c->no_template);
    if (template_text && (rc = use_template(c, view_of(template_text), e)) < 0) goto fail;
    find_traits(c);
    *out = c;
    return 0;
fail:
    chat_free(c);
    return rc;
}

int chat_with_template(chat **out, const chat *base, view template_text, err *e) {
    chat *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set_nomem(e);
    c->t = base->t;
    c->borrowed = true;
    c->b.bos = base->b.bos ? strdup(base->b.bos) : NULL;
    c->b.eos = base->b.eos ? strdup(base->b.eos) : NULL;
    int rc = use_template(c, template_text, e);
    if (rc < 0) {
        chat_free(c);
        return rc;
    }
    find_traits(c);
    c->format = base->format;
    *out = c;
    return 0;
}

void chat_free(chat *c) {
    if (!c) return;
    if (!c->borrowed) tok_free(c->t);
    bundle_template_deinit(&c->b);
    free(c);
}

const tok         *chat_tokenizer(const chat *c) { return c->t; }
const chat_format *chat_answer_format(const chat *c) { return &c->format; }
const char        *chat_template_origin(const chat *c) { return c->b.chat ? c->b.origin : NULL; }
const char        *chat_template_text(const chat *c) { return c->b.chat ? tmpl_source(c->b.chat).data : NULL; }
bool               chat_can_think(const chat *c) { return c->b.chat && chat_format_thinks(&c->format); }

static bool uses(const chat *c, bool tools, const char *variable) {
    return tmpl_uses(bundle_template_pick(&c->b, tools), variable);
}

bool chat_uses(const chat *c, const char *variable) {
    return c->b.chat && (uses(c, false, variable) || uses(c, true, variable));
}

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

/* Variables that switch thoughts, in the order of their weight. */
static const char *const switches[] = { "enable_thinking", "thinking", "reasoning", "thinking_budget",
                                        "thinking_mode" };
enum { N_SWITCHES = sizeof switches / sizeof *switches };

/* What this template calls no effort at all; NULL: it has no name for it. */
static const char *no_effort(const chat *c) {
    static const char *const names[] = { "no_think", "none", "minimal" };
    if (!chat_uses(c, "reasoning_effort")) return NULL;
    for (size_t i = 0; i < 3; i++) {
        char quoted[2][16];
        view s = c->wants.source;
        snprintf(quoted[0], 16, "'%s'", names[i]);
        snprintf(quoted[1], 16, "\"%s\"", names[i]);
        if (memmem(s.data, s.len, quoted[0], strlen(quoted[0])) || memmem(s.data, s.len, quoted[1], strlen(quoted[1])))
            return names[i];
    }
    return NULL;
}

/* The template can switch the thoughts on and off. */
static bool chat_can_switch(const chat *c) {
    for (size_t i = 0; i < N_SWITCHES; i++) {
        if (chat_uses(c, switches[i])) return true;
    }
    return no_effort(c) != NULL;
}

/* Values of the switches; they live as long as the rendering. */
typedef struct thinking_vars {
    json_value on, budget, mode, effort;
} thinking_vars;

static void add_thinking(const chat *c, const chat_input *in, thinking_vars *k, chat_vars *v) {
    bool        on = in->thinking == CHAT_THINK_ON;
    const char *none = no_effort(c);
    k->on = (json_value){ .kind = JSON_K_BOOL, .u.boolean = on };
    k->budget = (json_value){ .kind = JSON_K_INT, .u.integer = on ? in->thinking_budget : 0 };
    k->mode = json_text(on ? "enabled" : "disabled");
    k->effort = (json_value){ .kind = JSON_K_STRING, .u.string = in->effort };
    if (in->thinking != CHAT_THINK_DEFAULT) {
        for (size_t i = 0; i < 3; i++) chat_vars_add(v, view_of(switches[i]), &k->on);
        chat_vars_add(v, view_of("thinking_mode"), &k->mode);
    }
    if (in->thinking == CHAT_THINK_OFF) {
        k->effort = json_text(none ? none : "low");
        chat_vars_add(v, view_of("thinking_budget"), &k->budget);
        chat_vars_add(v, view_of("reasoning_effort"), &k->effort);
    } else {
        k->budget.u.integer = in->thinking_budget;
        if (in->thinking_budget > 0) chat_vars_add(v, view_of("thinking_budget"), &k->budget);
        if (in->effort.len) chat_vars_add(v, view_of("reasoning_effort"), &k->effort);
    }
}

static int render(const chat *c, const chat_input *in, const json_value *messages, bool generation, str *out, err *e) {
    static const json_value empty = { .kind = JSON_K_ARRAY };
    const json_value        add = { .kind = JSON_K_BOOL, .u.boolean = generation };
    const json_value       *tools = json_count(in->tools) && !c->format.generic ? in->tools : NULL;
    thinking_vars           k;
    chat_vars               v;
    chat_vars_init(&v, &c->b);
    if (c->empty_tools) chat_vars_add(&v, view_of("tools"), &empty);
    add_thinking(c, in, &k, &v);
    chat_vars_add_members(&v, in->variables, NULL);
    /* A caller's variables replace defaults but not the messages. */
    chat_vars_add(&v, view_of("messages"), messages);
    chat_vars_add(&v, view_of("add_generation_prompt"), &add);
    if (tools) chat_vars_add(&v, view_of("tools"), tools);
    int rc = chat_vars_render(&v, &c->b, tools != NULL, &in->now, NULL, out, NULL, e);
    chat_vars_deinit(&v);
    return rc < 0 ? err_wrap(e, rc, "chat template") : 0;
}

static bool render_probe(const chat *c, const char *messages, const char *tools, str *out) {
    const tmpl_limits small = { .steps = 2000000, .output_bytes = 1 << 20, .memory_bytes = 16 << 20 };
    const tmpl_clock  now = { 2026, 1, 1, 0, 0, 0 };
    const json_value  add = { .kind = JSON_K_BOOL };
    const json_value *parsed, *offered = NULL;
    arena             a;
    chat_vars         v;
    arena_init(&a, 0);
    bool ok = json_parse(&parsed, messages, strlen(messages), &a, NULL) == 0 &&
              (!tools || json_parse(&offered, tools, strlen(tools), &a, NULL) == 0);
    if (ok) {
        chat_vars_init(&v, &c->b);
        chat_vars_add(&v, view_of("messages"), parsed);
        if (tools) chat_vars_add(&v, view_of("tools"), offered);
        chat_vars_add(&v, view_of("add_generation_prompt"), &add);
        ok = chat_vars_render(&v, &c->b, json_count(offered) > 0, &now, &small, out, NULL, NULL) == 0;
        chat_vars_deinit(&v);
    }
    arena_deinit(&a);
    return ok;
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

static int tag_messages(const json_value *messages, json_value *out, arena *a, err *e) {
    const json_value *last = json_at(messages, json_count(messages) - 1), *content = json_get(last, "content");
    if (!json_is(content, JSON_K_STRING))
        return err_set(e, ERR_UNSUPPORTED, "a message with pictures or sounds cannot be continued");
    json_value text, message;
    bool       ok = tagged_text(content->u.string, &text, a) && with_member(last, "content", text, &message, a) &&
              with_last(messages, message, out, a);
    return ok ? 0 : err_set_nomem(e);
}

static int render_continued(const chat *c, const chat_input *in, const json_value *messages, str *out, err *e) {
    json_value tagged;
    arena      a;
    arena_init(&a, 0);
    int rc = tag_messages(messages, &tagged, &a, e);
    if (rc == 0) rc = render(c, in, &tagged, false, out, e);
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

/* --- thoughts at the prompt's end --- */

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static bool ends_with(const str *text, const char *what, size_t *at) {
    size_t n = text->len, w = what ? strlen(what) : 0;
    while (n > 0 && is_space(text->data[n - 1])) n--;
    if (w == 0 || n < w || memcmp(text->data + n - w, what, w) != 0) return false;
    *at = n - w;
    return true;
}

static void cut(str *text, size_t at) {
    text->len = at;
    if (text->data) text->data[at] = '\0';
}

/* Which block the prompt ends in, and the empty block where thoughts are off but the template did not say so. */
static void settle_thoughts(const chat *c, const chat_input *in, chat_tokens *out) {
    const chat_format *f = &c->format;
    size_t             at = 0;
    bool               off = in->thinking == CHAT_THINK_OFF;
    if (f->syntax == CHAT_SYNTAX_HARMONY) {
        if (off && json_count(in->tools) == 0) str_puts(&out->text, "<|channel|>final<|message|>");
        /* With tools the channels are left to the model; its guide keeps it out of the one for thoughts. */
        out->reasoning_off = off || ends_with(&out->text, "<|channel|>final<|message|>", &at);
        out->in_reasoning = ends_with(&out->text, "<|channel|>analysis<|message|>", &at);
        return;
    }
    out->in_reasoning = f->think_implicit || ends_with(&out->text, f->think_open, &at);
    out->reasoning_off = !chat_format_thinks(f) || ends_with(&out->text, f->think_close, &(size_t){ 0 });
    if (off && f->think_implicit) { /* the answer proper begins behind the marker that ends the thoughts */
        str_puts(&out->text, f->think_close);
        str_push(&out->text, '\n');
        out->in_reasoning = false;
    } else if (off && f->think_empty && (out->in_reasoning || (!out->reasoning_off && !chat_can_switch(c)))) {
        if (out->in_reasoning) cut(&out->text, at);
        str_puts(&out->text, f->think_empty);
        out->in_reasoning = false;
    }
    out->reasoning_off = out->reasoning_off || off;
}

/* A continued message is inside its thoughts when its own text opened them last. */
static void settle_continued(const chat *c, chat_tokens *out) {
    const chat_format *f = &c->format;
    const char        *open = NULL, *close = NULL, *at;
    if (!f->think_open || f->think_implicit) return;
    for (at = str_cstr(&out->text); (at = strstr(at, f->think_open)) != NULL; at++) open = at;
    for (at = str_cstr(&out->text); (at = strstr(at, f->think_close)) != NULL; at++) close = at;
    out->in_reasoning = open && (!close || close < open);
    out->reasoning_off = !out->in_reasoning;
}

/* --- marks --- */

static void add_mark(chat_tokens *out, size_t at) {
    size_t n = out->n_marks;
    if (at == 0 || at >= out->ids.count || (n > 0 && (size_t)out->marks[n - 1] >= at)) return;
    if (n == CHAT_MARKS - 1) { /* the first message is what conversations share; of the others the latest count */
        memmove(out->marks + 1, out->marks + 2, (n - 2) * sizeof *out->marks);
        n--;
    }
    out->marks[n] = (int32_t)at;
    out->n_marks = n + 1;
}

/*
 * Where each message's content begins, as a token number: a later request with another message in this place shares
 * everything before. Contents are looked up in the text in their order; one that the template changed is passed over.
 */
static void mark_messages(const chat *c, const json_value *messages, chat_tokens *out) {
    const char *text = str_cstr(&out->text);
    size_t      at = 0, end = 0, id = 0; /* end: of the tokens before id, in the text */
    str         piece;
    str_init(&piece);
    if (out->ids.count && tok_adds_bos(c->t) && out->ids.data[0] == tok_bos(c->t)) {
        view bos = tok_text(c->t, out->ids.data[0]);
        id = 1;
        if (out->text.len >= bos.len && memcmp(text, bos.data, bos.len) == 0) end = bos.len;
    }
    for (size_t i = 0; i < json_count(messages); i++) {
        const json_value *content = json_get(json_at(messages, i), "content");
        if (!json_is(content, JSON_K_STRING) || content->u.string.len == 0) continue;
        const char *found = memmem(text + at, out->text.len - at, content->u.string.data, content->u.string.len);
        if (!found) continue;
        size_t begin = (size_t)(found - text);
        while (id < out->ids.count) {
            str_clear(&piece);
            if (!tok_bytes(c->t, out->ids.data[id], &piece) || piece.len == 0) {
                view own = tok_text(c->t, out->ids.data[id]);
                str_append(&piece, own.data, own.len);
            }
            if (end + piece.len > begin) break;
            end += piece.len;
            id++;
        }
        if (i > 0) add_mark(out, id);
        at = begin + content->u.string.len;
    }
    str_deinit(&piece);
}

/* The end of the last message: how far the prompt agrees with the same conversation without a generation prompt. */
static int mark_end(const chat *c, const chat_input *in, const json_value *messages, chat_tokens *out, err *e) {
    str     text;
    tok_ids ids = { 0 };
    str_init(&text);
    int rc = render(c, in, messages, false, &text, e);
    if (rc == 0 && in->rewrite) rc = in->rewrite(in->rewrite_ctx, &text, e);
    if (rc == 0) rc = chat_encode(c, str_cstr(&text), text.len, &ids, e);
    size_t n = 0;
    while (rc == 0 && n < ids.count && n < out->ids.count && ids.data[n] == out->ids.data[n]) n++;
    if (n > 0 && n < out->ids.count && (out->n_marks == 0 || (size_t)out->marks[out->n_marks - 1] < n))
        out->marks[out->n_marks++] = (int32_t)n;
    str_deinit(&text);
    tok_ids_deinit(&ids);
    return rc;
}

/* --- the prompt --- */

static int make_prompt(const chat *c, const chat_input *in, const json_value *messages, chat_tokens *out, err *e) {
    const json_value *last = json_get(json_at(in->messages, json_count(in->messages) - 1), "content");
    if (in->continue_final && !json_is(last, JSON_K_STRING) && !json_is(last, JSON_K_ARRAY))
        return err_set(e, ERR_ARG, "the last message has no text that could be continued");
    int rc = in->continue_final ? render_continued(c, in, messages, &out->text, e)
                                : render(c, in, messages, in->add_generation_prompt, &out->text, e);
    if (rc < 0) return rc;
    if (in->add_generation_prompt) settle_thoughts(c, in, out);
    if (in->continue_final) settle_continued(c, out);
    if (!str_ok(&out->text)) return err_set_nomem(e);
    if (in->rewrite && (rc = in->rewrite(in->rewrite_ctx, &out->text, e)) < 0) return rc;
    if ((rc = chat_encode(c, str_cstr(&out->text), out->text.len, &out->ids, e)) < 0) return rc;
    mark_messages(c, messages, out);
    return in->add_generation_prompt ? mark_end(c, in, messages, out, e) : 0;
}

int chat_prompt(const chat *c, const chat_input *in, chat_tokens *out, err *e) {
    const json_value *messages;
    arena             a;
    int               rc;
    if (!c->b.chat) {
        if (e) *e = c->no_template;
        return c->no_template.code;
    }
    if (!json_is(in->messages, JSON_K_ARRAY) || json_count(in->messages) == 0)
        return err_set(e, ERR_ARG, "messages must be an array with at least one message");
    if (in->continue_final && in->add_generation_prompt)
        return err_set(e, ERR_ARG, "a prompt either continues the last message or begins a new one");
    arena_init(&a, 0);
    chat_wants wants = c->wants;
    if (c->format.generic && chat_generic_rewrites(in->messages, in->tools))
        wants.pictures = wants.sounds = false; /* texts alone */
    rc = chat_messages_fit(&wants, &c->format, &in->media, in->messages, &messages, &a, e);
    if (rc == 0 && c->format.generic)
        rc = chat_generic_fit(messages, in->tools, &(chat_generic){ c->shows_system, !c->wants.calls_as_text },
                              &messages, &a, e);
    if (rc == 0) rc = make_prompt(c, in, messages, out, e);
    arena_deinit(&a);
    return rc;
}
