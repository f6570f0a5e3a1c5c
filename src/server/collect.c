/* SPDX-License-Identifier: Apache-2.0 */
#include "server/collect.h"

#include "chat/partial.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CALLS = 256 };

bool collect_init(collect *c, size_t n_choices) {
    memset(c, 0, sizeof *c);
    c->choices = calloc(n_choices, sizeof *c->choices);
    c->n = c->choices ? n_choices : 0;
    return c->choices != NULL;
}

void collect_deinit(collect *c) {
    for (size_t i = 0; i < c->n; i++) {
        collect_choice *ch = &c->choices[i];
        str_deinit(&ch->content);
        str_deinit(&ch->reasoning);
        str_deinit(&ch->logprobs);
        for (size_t k = 0; k < ch->n_calls; k++) {
            str_deinit(&ch->calls[k].id);
            str_deinit(&ch->calls[k].name);
            str_deinit(&ch->calls[k].arguments);
        }
        free(ch->calls);
        free(ch->parts);
    }
    free(c->choices);
    memset(c, 0, sizeof *c);
}

/* Call number `index`, which may be the next new one. */
static collect_call *call_at(collect *c, collect_choice *ch, int index) {
    if (index < 0 || index >= MAX_CALLS) return NULL;
    while (ch->n_calls <= (size_t)index) {
        collect_call *bigger = realloc(ch->calls, (ch->n_calls + 1) * sizeof *bigger);
        if (!bigger) {
            c->failed = true;
            return NULL;
        }
        ch->calls = bigger;
        memset(&ch->calls[ch->n_calls++], 0, sizeof *bigger);
    }
    return &ch->calls[index];
}

/* What was said goes on, or something else begins. */
static void add_part(collect *c, collect_choice *ch, collect_kind kind, size_t from, size_t to) {
    collect_part *last = ch->n_parts ? &ch->parts[ch->n_parts - 1] : NULL;
    if (last && last->kind == kind && kind != COLLECT_CALL) {
        last->to = to;
        return;
    }
    collect_part *bigger = realloc(ch->parts, (ch->n_parts + 1) * sizeof *bigger);
    if (!bigger) {
        c->failed = true;
        return;
    }
    ch->parts = bigger;
    ch->parts[ch->n_parts++] = (collect_part){ kind, from, to };
}

static void add_text(collect *c, collect_choice *ch, collect_kind kind, view text) {
    str   *s = kind == COLLECT_CONTENT ? &ch->content : &ch->reasoning;
    size_t from = s->len;
    str_append(s, text.data, text.len);
    if (s->len > from) add_part(c, ch, kind, from, s->len);
}

void collect_event(collect *c, const runtime_event *ev) {
    if (ev->kind == RUNTIME_STARTED) c->prompt_tokens = ev->prompt_tokens;
    if (ev->choice < 0 || (size_t)ev->choice >= c->n) return;
    collect_choice *ch = &c->choices[ev->choice];
    collect_call   *call;
    switch (ev->kind) {
    case RUNTIME_CONTENT: add_text(c, ch, COLLECT_CONTENT, ev->text); break;
    case RUNTIME_REASONING: add_text(c, ch, COLLECT_REASONING, ev->text); break;
    case RUNTIME_TOOL_BEGIN:
        if ((call = call_at(c, ch, ev->index))) {
            str_append(&call->id, ev->id.data, ev->id.len);
            str_append(&call->name, ev->name.data, ev->name.len);
            add_part(c, ch, COLLECT_CALL, (size_t)ev->index, 0);
        }
        break;
    case RUNTIME_TOOL_ARGUMENTS:
        if ((call = call_at(c, ch, ev->index))) str_append(&call->arguments, ev->text.data, ev->text.len);
        break;
    case RUNTIME_TOOL_END:
        if ((call = call_at(c, ch, ev->index))) call->over = true;
        break;
    case RUNTIME_DONE:
        ch->over = true;
        ch->finish = ev->finish;
        ch->stop_index = ev->stop_index;
        ch->usage = ev->usage;
        break;
    default: break;
    }
}

/* Models put white space between values as they like, and line breaks end a line of NDJSON. */
static void put_compact(view json, str *out) {
    bool quoted = false;
    for (size_t i = 0; i < json.len; i++) {
        char c = json.data[i];
        if (quoted && c == '\\') {
            str_push(out, c);
            c = ++i < json.len ? json.data[i] : c;
        } else if (c == '"') {
            quoted = !quoted;
        }
        if (quoted || !(c == ' ' || c == '\n' || c == '\r' || c == '\t')) str_push(out, c);
    }
}

void collect_put_object(const collect_call *call, str *out) {
    str closed;
    str_init(&closed);
    chat_json_close((view){ str_cstr(&call->arguments), call->arguments.len }, false, &closed);
    put_compact((view){ str_cstr(&closed), closed.len }, out);
    out->failed |= closed.failed;
    str_deinit(&closed);
}

bool collect_ok(const collect *c) {
    bool ok = !c->failed;
    for (size_t i = 0; i < c->n; i++) {
        const collect_choice *ch = &c->choices[i];
        ok = ok && str_ok(&ch->content) && str_ok(&ch->reasoning) && str_ok(&ch->logprobs);
        for (size_t k = 0; k < ch->n_calls; k++)
            ok = ok && str_ok(&ch->calls[k].arguments) && str_ok(&ch->calls[k].name);
    }
    return ok;
}

static double larger(double a, double b) { return a > b ? a : b; }

void collect_usage(const collect *c, runtime_usage *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < c->n; i++) {
        const runtime_usage *u = &c->choices[i].usage;
        if (i == 0) out->cached_tokens = u->cached_tokens;
        if (u->prompt_tokens > out->prompt_tokens) out->prompt_tokens = u->prompt_tokens;
        out->generated_tokens += u->generated_tokens;
        out->reasoning_tokens += u->reasoning_tokens;
        out->drafted_tokens += u->drafted_tokens;
        out->accepted_tokens += u->accepted_tokens;
        out->predicted = out->predicted || u->predicted;
        out->prepare_s = larger(out->prepare_s, u->prepare_s);
        out->queued_s = larger(out->queued_s, u->queued_s);
        out->prompt_s = larger(out->prompt_s, u->prompt_s);
        out->generate_s = larger(out->generate_s, u->generate_s);
    }
    if (out->prompt_tokens == 0) out->prompt_tokens = c->prompt_tokens;
}

void collect_usage_of(const collect *list, size_t n, runtime_usage *out) {
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        runtime_usage u;
        collect_usage(&list[i], &u);
        out->prompt_tokens += u.prompt_tokens;
        out->cached_tokens += u.cached_tokens;
        out->generated_tokens += u.generated_tokens;
        out->drafted_tokens += u.drafted_tokens;
        out->accepted_tokens += u.accepted_tokens;
        out->prompt_s += u.prompt_s;
        out->generate_s += u.generate_s;
    }
}
