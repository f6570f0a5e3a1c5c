/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to the engine: template, tokens, sampling values, checks. Everything here may take milliseconds. */
#include "base/clock.h"
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void prompt_init(prompt *p) {
    memset(p, 0, sizeof *p);
    str_init(&p->text);
}

void prompt_deinit(prompt *p) {
    str_deinit(&p->text);
    tok_ids_deinit(&p->ids);
}

/* --- the prompt --- */

static tmpl_clock clock_now(void) {
    time_t    t = time(NULL);
    struct tm tm;
    if (!localtime_r(&t, &tm)) return (tmpl_clock){ 1970, 1, 1, 0, 0, 0 };
    return (tmpl_clock){ tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec };
}

/* An absent text gives NULL. */
static int parse_field(const json_value **out, view text, const char *field, json_kind kind, arena *a, err *e) {
    *out = NULL;
    if (text.len == 0) return 0;
    int rc = json_parse(out, text.data, text.len, a, e);
    if (rc < 0) return request_mistake(e, rc, field);
    if (!json_is(*out, kind))
        return err_set(e, ERR_ARG, "%s must be %s", field, kind == JSON_K_ARRAY ? "an array" : "an object");
    return 0;
}

/* Tokens of an earlier conversation stand in front; the begin token only once. */
static int put_before(const runtime *r, const runtime_request *q, prompt *p, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    tok_ids    all = { 0 };
    str        text;
    size_t     skip = p->ids.count && p->ids.data[0] == tok_bos(t) && tok_bos(t) >= 0;
    bool       ok = true;
    if (!q->n_tokens) return 0;
    for (size_t i = 0; i < q->n_tokens; i++) {
        if (q->tokens[i] < 0 || q->tokens[i] >= r->info.n_vocab) {
            tok_ids_deinit(&all);
            return err_set(e, ERR_ARG, "context: token %zu is %d; the vocabulary has %lld", i, q->tokens[i],
                           (long long)r->info.n_vocab);
        }
        ok = ok && tok_ids_push(&all, q->tokens[i]);
    }
    for (size_t i = skip; i < p->ids.count; i++) ok = ok && tok_ids_push(&all, p->ids.data[i]);
    tok_ids_deinit(&p->ids);
    p->ids = all;
    for (size_t i = 0; i < p->n_marks; i++) p->marks[i] += (int32_t)(q->n_tokens - skip);
    str_init(&text);
    int rc = ok ? tok_decode(t, all.data, all.count, false, &text, e) : err_set_nomem(e);
    str_deinit(&p->text);
    p->text = text;
    return rc;
}

int trees_parse(const runtime_request *q, arena *long_lived, arena *short_lived, trees *out, err *e) {
    *out = (trees){ 0 };
    if (q->task != RUNTIME_CHAT) return 0;
    int rc = parse_field(&out->messages, q->messages, "messages", JSON_K_ARRAY, short_lived, e);
    if (rc == 0) rc = parse_field(&out->tools, q->tools, "tools", JSON_K_ARRAY, long_lived, e);
    if (rc == 0)
        rc = parse_field(&out->variables, q->template_vars, "template variables", JSON_K_OBJECT, short_lived, e);
    return rc;
}

/* The template of this request: what the model was taught to transcribe with, the request's own, or NULL: the model's. */
static int own_template(const runtime *r, const runtime_request *q, const trees *t, chat **out, err *e) {
    view text = q->template_text;
    if (q->transcribe) {
        const char *taught = r->ears ? ears_transcribes(r->ears) : NULL;
        if (!taught)
            return err_set(e, ERR_UNSUPPORTED,
                           "this model (%s) was taught no form of transcription: ask for it in a chat, with the sound",
                           r->info.family);
        if (q->n_blobs != 1) return err_set(e, ERR_ARG, "a transcription is of one sound");
        if (json_bool(json_get(t->variables, "times"), false))
            return err_set(e, ERR_ARG, "response_format: this model (%s) was taught no times", r->info.family);
        const char *task = json_cstr(json_get(t->variables, "task"));
        if (task && strcmp(task, "translate") == 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "this model (%s) was not taught to translate: ask for it in a chat, with the sound",
                           r->info.family);
        text = view_of(taught);
    }
    int rc = text.len ? chat_with_template(out, r->chat, text, e) : 0;
    return rc < 0 ? request_mistake(e, rc, "template") : 0;
}

static int prompt_chat(const runtime *r, const wishes *w, const runtime_request *q, const trees *have, prompt *out,
                       err *e) {
    static const chat_thinking thinking[] = { CHAT_THINK_DEFAULT, CHAT_THINK_ON, CHAT_THINK_OFF, CHAT_THINK_ON };
    const json_value          *messages = have->messages;
    chat_tokens                t;
    chat                      *other = NULL;
    pictures_text              words = { r, q };
    arena                      a;
    arena_init(&a, 0);
    chat_tokens_init(&t);
    int rc = settings_messages(w, &messages, &a, e);
    if (rc == 0 && q->thinking == RUNTIME_THINK_ON && !r->info.can_think)
        rc = err_set(e, ERR_UNSUPPORTED, "thinking: this model does not mark its thoughts");
    if (rc == 0) rc = own_template(r, q, have, &other, e);
    if (rc == 0) {
        chat_input in = { .messages = messages,
                          .tools = q->tool_choice == RUNTIME_TOOLS_NONE ? NULL : have->tools,
                          .variables = have->variables,
                          .add_generation_prompt = !q->continue_final,
                          .continue_final = q->continue_final,
                          .thinking = q->thinking == RUNTIME_THINK_WISH && !r->info.can_think ? CHAT_THINK_DEFAULT
                                                                                              : thinking[q->thinking],
                          .effort = q->effort,
                          .thinking_budget = q->thinking_budget > 0 ? q->thinking_budget : 0,
                          .now = clock_now(),
                          .media = pictures_words(r, q),
                          .rewrite = q->n_blobs ? pictures_rewrite : NULL,
                          .rewrite_ctx = &words };
        rc = chat_prompt(other ? other : r->chat, &in, &t, e);
    }
    if (rc == 0) {
        out->text = t.text;
        out->ids = t.ids;
        out->n_marks = t.n_marks;
        memcpy(out->marks, t.marks, t.n_marks * sizeof *t.marks);
        out->in_reasoning = t.in_reasoning;
        out->reasoning_off = t.reasoning_off;
        rc = put_before(r, q, out, e);
    } else {
        chat_tokens_deinit(&t);
    }
    chat_free(other);
    arena_deinit(&a);
    return rc;
}

static int prompt_text(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    if (q->n_tokens) {
        for (size_t i = 0; i < q->n_tokens; i++) {
            if (q->tokens[i] < 0 || q->tokens[i] >= r->info.n_vocab)
                return err_set(e, ERR_ARG, "prompt: token %zu is %d; the vocabulary has %lld", i, q->tokens[i],
                               (long long)r->info.n_vocab);
            if (!tok_ids_push(&out->ids, q->tokens[i])) return err_set_nomem(e);
        }
        return tok_decode(t, q->tokens, q->n_tokens, false, &out->text, e);
    }
    str_append(&out->text, q->text.data, q->text.len);
    if (!str_ok(&out->text)) return err_set_nomem(e);
    return chat_encode(r->chat, q->text.data, q->text.len, &out->ids, e);
}

static int prompt_infill(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    int        rc = infill_encode(t, q->text, q->suffix, &out->ids, e);
    return rc < 0 ? rc : tok_decode(t, out->ids.data, out->ids.count, false, &out->text, e);
}

/* Text is plain: what looks like a special token is none. The begin and end tokens are those the model is made for. */
static int prompt_embed(const runtime *r, const runtime_request *q, prompt *out, err *e) {
    const tok              *t = chat_tokenizer(r->chat);
    const embedding_prompt *before = NULL;
    int                     rc;
    if (q->n_tokens) return prompt_text(r, q, out, e);
    if ((rc = embedding_prompt_for(r, q, &before, e)) < 0) return rc;
    if (before && r->embed.skip_prompt) {
        rc = tok_encode(t, before->text, strlen(before->text), TOK_ADD_SPECIAL, &out->ids, e);
        size_t n = out->ids.count;
        out->pool_from = n && tok_is_special(t, out->ids.data[n - 1]) ? n - 1 : n;
        out->ids.count = 0;
        if (rc < 0) return rc;
    }
    if (before) str_puts(&out->text, before->text);
    str_append(&out->text, q->text.data, q->text.len);
    if (!str_ok(&out->text)) return err_set_nomem(e);
    return tok_encode(t, str_cstr(&out->text), out->text.len, TOK_ADD_SPECIAL, &out->ids, e);
}

int prompt_make(const runtime *r, const wishes *w, const runtime_request *q, const trees *t, prompt *out, err *e) {
    int rc = pictures_refuse(r, q, e);
    if (rc < 0) return rc;
    if (r->dictation.known) return dictation_prompt(r, q, t, -1, out, e);
    switch (q->task) {
    case RUNTIME_CHAT: return prompt_chat(r, w, q, t, out, e);
    case RUNTIME_COMPLETE: return prompt_text(r, q, out, e);
    case RUNTIME_INFILL: return prompt_infill(r, q, out, e);
    case RUNTIME_EMBED: return prompt_embed(r, q, out, e);
    case RUNTIME_RERANK: return rerank_prompt(r, q, out, e);
    case RUNTIME_CLASSIFY:
        return q->n_tokens && r->classes.n_layers ? prompt_text(r, q, out, e) : classify_prompt(r, q, out, e);
    }
    return err_set(e, ERR_ARG, "task: %d is unknown", (int)q->task);
}

/* --- checks --- */

static int check(const runtime *r, const runtime_request *q, err *e) {
    if (q->max_tokens < 0) return err_set(e, ERR_ARG, "max_tokens: %d is negative", q->max_tokens);
    if (q->min_tokens < 0) return err_set(e, ERR_ARG, "min_tokens: %d is negative", q->min_tokens);
    for (size_t i = 0; i < q->n_stop; i++)
        if (q->stop[i].len == 0) return err_set(e, ERR_ARG, "stop: text %zu is empty", i);
    if (q->dimensions < 0 || q->dimensions > r->embed.size)
        return err_set(e, ERR_ARG, "dimensions: %d is not between 1 and the model's %d", q->dimensions, r->embed.size);
    if (q->task == RUNTIME_EMBED && q->n_choices > 1) return err_set(e, ERR_ARG, "n: a text has one embedding");
    if (q->task == RUNTIME_RERANK && q->n_choices > 1) return err_set(e, ERR_ARG, "n: a document has one score");
    if (q->task == RUNTIME_CLASSIFY && q->n_choices > 1) return err_set(e, ERR_ARG, "n: a text has one answer");
    if (q->tool_choice >= RUNTIME_TOOLS_REQUIRED && (q->task != RUNTIME_CHAT || !q->tools.len))
        return err_set(e, ERR_ARG, "tool_choice: there are no tools to call");
    return 0;
}

/* Tokens in whose bytes one of the texts appears. */
static int find_breakers(const tok *t, const runtime_request *q, tok_ids *out, err *e) {
    str bytes;
    int rc = 0;
    str_init(&bytes);
    for (int32_t id = 0; id < tok_count(t) && q->n_dry_breakers && rc == 0; id++) {
        str_clear(&bytes);
        if (!tok_bytes(t, id, &bytes)) continue;
        for (size_t i = 0; i < q->n_dry_breakers; i++) {
            view b = q->dry_breakers[i];
            if (!b.len || bytes.len < b.len || !memmem(bytes.data, bytes.len, b.data, b.len)) continue;
            if (!tok_ids_push(out, id)) rc = err_set_nomem(e);
            break;
        }
    }
    str_deinit(&bytes);
    return rc;
}

/* --- into the engine --- */

static void echo(request *x, const prompt *p) {
    for (int i = 0; i < x->q.n_choices; i++) {
        runtime_event ev = { .kind = RUNTIME_CONTENT, .choice = i, .text = { str_cstr(&p->text), p->text.len } };
        request_emit(x, &ev);
    }
}

/* The request's own limit, where it is lower than the model's. */
static int limit_context(const runtime *r, const runtime_request *q, prompt *p, int *max_tokens, err *e) {
    int    all = engine_context(r->engine), limit = q->n_ctx > 0 && q->n_ctx < all ? q->n_ctx : all;
    size_t answer = q->task >= RUNTIME_EMBED || q->no_answer ? 0 : 1; /* the last tasks say nothing */
    if (q->task == RUNTIME_EMBED && r->embed.longest && r->embed.longest < limit) limit = r->embed.longest;
    *max_tokens = q->max_tokens;
    if ((q->task == RUNTIME_EMBED || q->task == RUNTIME_CLASSIFY) && q->truncate && p->ids.count > (size_t)limit) {
        int32_t last = p->ids.data[p->ids.count - 1];
        p->ids.count = (size_t)limit;
        if (tok_is_special(chat_tokenizer(r->chat), last)) p->ids.data[limit - 1] = last; /* the model looks for it */
    }
    if (limit == all) return 0; /* the engine has the rest of it */
    if (p->ids.count + answer > (size_t)limit)
        return err_set(e, ERR_CONTEXT, "the prompt has %zu tokens, the context holds %d%s (a longer one: num_ctx)",
                       p->ids.count, limit, answer ? " and needs room for an answer" : "");
    int room = limit - (int)p->ids.count;
    if (*max_tokens <= 0 || *max_tokens > room) *max_tokens = room;
    return 0;
}

/* With times: where the part of the sound begins that comes now. */
static void tell_part(request *x) {
    char          text[40];
    int           n = snprintf(text, sizeof text, "<|+%.3f|>", (double)x->heard.at / SOUND_RATE);
    runtime_event ev = { .kind = RUNTIME_CONTENT, .text = { text, (size_t)n } };
    request_emit(x, &ev);
}

/* Events wait on order until STARTED is out. */
static int submit(request *x, const engine_request *g, const prompt *p, err *e) {
    runtime *r = x->owner;
    uint64_t id = 0;
    request_ref(x); /* the engine's events */
    pthread_mutex_lock(&x->order);
    atomic_store(&x->phase, RUNTIME_WAITING);
    int rc = engine_submit(r->engine, g, &id, e);
    if (rc == 0) {
        runtime_event ev = { .kind = RUNTIME_STARTED, .prompt_tokens = (int)g->n_tokens };
        pthread_mutex_lock(&r->lock);
        x->engine_id = id;
        if (x->cancelled) engine_cancel(r->engine, id);
        if (x->paused) engine_pause(r->engine, id);
        pthread_mutex_unlock(&r->lock);
        if (!x->heard.again) request_emit(x, &ev);
        if (g->sampling.together_from > 0) tell_part(x);
        if (x->q.echo) echo(x, p);
    }
    pthread_mutex_unlock(&x->order);
    if (rc < 0) request_unref(x);
    return rc;
}

static int hand_over(request *x, prompt *p, const sampling_params *s, int max_tokens, const tok_ids *hint,
                     engine_guide *guide, err *e) {
    const runtime_request *q = &x->q;
    engine_rows           *rows = NULL;
    size_t                 n_rows = 0;
    int                    rc = q->n_blobs ? pictures_place(x, p, &rows, &n_rows, e) : 0;
    if (rc < 0) return rc;
    engine_request g = { .rows = rows,
                         .n_rows = n_rows,
                         .prompt_whole = n_rows > 0 && x->owner->eyes && vision_prompt_whole(x->owner->eyes),
                         .tokens = p->ids.data,
                         .n_tokens = p->ids.count,
                         .sampling = *s,
                         .max_tokens = max_tokens,
                         .min_tokens = q->min_tokens,
                         .ignore_eos = q->ignore_eos,
                         .stop = x->stop,
                         .stop_bytes = x->stop_bytes,
                         .n_stop = x->choices[0].stop ? 0 : q->n_stop,
                         .n_choices = q->n_choices,
                         .priority = q->priority,
                         .want_logprob = q->want_logprob || q->n_top > 0,
                         .n_top = q->n_top,
                         .score_prompt = q->echo && (q->want_logprob || q->n_top > 0),
                         .no_answer = q->no_answer,
                         .shown = x->owner->markers.data,
                         .n_shown = q->task == RUNTIME_CHAT && !q->raw_answer ? x->owner->markers.count : 0,
                         .keep_special = q->raw_answer && (!x->owner->dictation.known || s->together_from > 0),
                         .no_cache = q->no_cache,
                         .no_drafts = q->no_drafts,
                         .draft_max = q->draft_max,
                         .draft_min = q->draft_min,
                         .draft_p_min = q->draft_p_min,
                         .hint = hint->data,
                         .n_hint = hint->count,
                         .marks = p->marks,
                         .n_marks = p->n_marks,
                         .client = q->client,
                         .guide = guide,
                         .on_event = answer_event,
                         .ctx = x };
    if (x->set) {
        const nn_adapter_set *set = adapters_set_of(x->set);
        int                   from = nn_adapter_start(set->uses[0].adapter, p->ids.data, (int)p->ids.count);
        if (from < (int)p->ids.count || set->uses[0].adapter->n_invocation == 0) { /* not called: the model alone */
            g.adapters = set;
            g.adapters_from = from;
        }
    }
    if (q->task == RUNTIME_EMBED) {
        g.pooling = defaults_pooling(x->owner, q->pooling);
        g.normalize = x->owner->embed.n_dense == 0;
        g.pool_from = (int)p->pool_from;
    }
    if (q->task == RUNTIME_RERANK) g.pooling = rerank_pooling(x->owner);
    if (q->task == RUNTIME_CLASSIFY) g.pooling = x->owner->classes.pooling;
    g.second = (int)p->second;
    if (q->dimensions || x->owner->embed.n_dense || q->task > RUNTIME_EMBED) {
        x->vector = arena_calloc(&x->mem, 2 * (size_t)x->owner->embed.widest, sizeof *x->vector);
        if (!x->vector) {
            free(rows);
            return err_set_nomem(e);
        }
    }
    atomic_store(&x->prompt_tokens, (int)p->ids.count);
    x->prepared_at = clock_s();
    rc = submit(x, &g, p, e); /* which copies */
    free(rows);
    return rc;
}

static int prepare(request *x, err *e) {
    const runtime_request *q = &x->q;
    sampling_params        s;
    tok_ids                breakers = { 0 }, hint = { 0 };
    engine_guide          *guide = NULL;
    prompt                 p;
    trees                  t;
    arena                  a;
    int                    max_tokens = 0;
    bool                   calls = false, dictates = x->owner->dictation.known;
    prompt_init(&p);
    arena_init(&a, 0);
    int rc = check(x->owner, q, e);
    if (rc == 0) rc = defaults_merge(&x->wishes, q, &s, e);
    if (rc == 0 && !dictates) rc = defaults_mute(x->owner, &s, &x->mem, e); /* a guide does, where it may */
    if (rc == 0) rc = find_breakers(chat_tokenizer(x->owner->chat), q, &breakers, e);
    if (rc == 0 && breakers.count) {
        s.dry_breakers = breakers.data;
        s.n_dry_breakers = breakers.count;
    }
    if (rc == 0) rc = trees_parse(q, &x->mem, &a, &t, e); /* answers are read with the tools in hand */
    if (rc == 0 && (x->heard.times = dictation_times(x->owner, &t))) s.together_from = x->owner->dictation.timed;
    if (rc == 0)
        rc = dictates ? dictation_prompt(x->owner, q, &t, x->heard.language, &p, e)
                      : prompt_make(x->owner, &x->wishes, q, &t, &p, e);
    if (rc == 0) rc = limit_context(x->owner, q, &p, &max_tokens, e);
    if (rc == 0 && q->max_tokens > 0 && max_tokens > q->max_tokens - x->heard.usage.generated_tokens)
        max_tokens = q->max_tokens - x->heard.usage.generated_tokens; /* parts before had the others */
    if (rc == 0 && (x->heard.finding = dictates && dictation_finds(x, &t))) max_tokens = 1;
    if (rc == 0 && !x->set) rc = adapters_take(x->owner->adapters, q->lora, q->n_lora, &x->set, e);
    if (rc == 0)
        rc = dictates ? dictation_guide(x, &t, &p, &guide, e) : guides_get(x->owner, q, &t, &p, &guide, &calls, e);
    x->only_calls = calls && q->tool_choice >= RUNTIME_TOOLS_REQUIRED;
    if (rc == 0 && !x->heard.again) rc = answer_open(x, &t, &p, calls && q->stream_calls, e);
    if (rc == 0) rc = draft_hint(x->owner, q, &hint, e);
    if (rc == 0 && request_is_cancelled(x)) rc = ERR_CANCELLED;
    for (size_t i = 0; rc == 0 && q->want_context && i < p.ids.count; i++) {
        if (!tok_ids_push(&x->context, p.ids.data[i])) rc = err_set_nomem(e);
    }
    if (rc == 0) rc = hand_over(x, &p, &s, max_tokens, &hint, guide, e);
    if (rc < 0 && guide) guide->free(guide); /* on success it is the engine's */
    tok_ids_deinit(&breakers);
    tok_ids_deinit(&hint);
    prompt_deinit(&p);
    arena_deinit(&a);
    return rc;
}

void *prepare_main(void *arg) {
    runtime *r = arg;
    void    *item;
    while (queue_pop(r->incoming, &item)) {
        request *x = item;
        err      e = { 0 };
        pthread_mutex_lock(&r->lock);
        bool over = r->closing || x->cancelled;
        pthread_mutex_unlock(&r->lock);
        int rc = over ? ERR_CANCELLED : prepare(x, &e);
        if (rc == ERR_CANCELLED)
            request_end_cancelled(x);
        else if (rc < 0)
            request_fail(x, &e);
        request_unref(x);
    }
    return NULL;
}
