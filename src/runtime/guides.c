/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guides: what an answer may be, compiled once and kept.
 *
 * Programs send the same tools and the same schema with every request. A compiled guide that has not seen a token yet
 * is kept under everything that made it (constraint, tools, choice, how the thoughts stand); a request gets a copy,
 * which shares the compiled grammar. The least recently used ones go when all together take more memory than the limit
 * (a grammar grows with the texts it has seen, so it is measured each time). Only the preparation thread comes here.
 */
#include "base/log.h"
#include "runtime/internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_KEPT = 256 };

struct kept_guide {
    char       *key;
    size_t      key_bytes;
    chat_guide *guide; /* NULL: nothing is to be guided */
    bool        calls; /* it knows the tools */
    uint64_t    used;  /* when, for throwing away */
};

/* --- for the engine --- */

typedef struct wrapped {
    engine_guide g;
    chat_guide  *c;
    uint32_t    *own;           /* a mask of the vocabulary's words where the engine has fewer; else NULL */
    size_t       words, wanted; /* of the engine, of the vocabulary */
} wrapped;

static engine_guide *wrap(chat_guide *c, size_t words, size_t wanted, err *e);

static int wrapped_mask(engine_guide *self, uint32_t *mask, err *e) {
    wrapped *w = (wrapped *)self;
    int      rc = chat_guide_mask(w->c, w->own ? w->own : mask, e);
    if (rc != 1) return rc;
    if (w->own) memcpy(mask, w->own, w->words * sizeof *mask);
    /* Rows of the head beyond the vocabulary stand for nothing. */
    if (w->wanted < w->words) memset(mask + w->wanted, 0, (w->words - w->wanted) * sizeof *mask);
    return 1;
}

static int wrapped_accept(engine_guide *self, int32_t token, err *e) {
    return chat_guide_accept(((wrapped *)self)->c, token, e);
}

static void wrapped_rollback(engine_guide *self, int n) { chat_guide_rollback(((wrapped *)self)->c, n); }

static bool wrapped_must_stop(engine_guide *self) { return chat_guide_must_stop(((wrapped *)self)->c); }

static engine_guide *wrapped_clone(engine_guide *self, err *e) {
    const wrapped *w = (const wrapped *)self;
    chat_guide    *c;
    return chat_guide_clone(&c, w->c, e) < 0 ? NULL : wrap(c, w->words, w->wanted, e);
}

static void wrapped_free(engine_guide *self) {
    wrapped *w = (wrapped *)self;
    if (!w) return;
    chat_guide_free(w->c);
    free(w->own);
    free(w);
}

/* Takes c over, also when it fails. */
static engine_guide *wrap(chat_guide *c, size_t words, size_t wanted, err *e) {
    wrapped *w = calloc(1, sizeof *w);
    if (!w) {
        chat_guide_free(c);
        err_set_nomem(e);
        return NULL;
    }
    *w = (wrapped){ .g = { .mask = wrapped_mask,
                           .accept = wrapped_accept,
                           .rollback = wrapped_rollback,
                           .must_stop = wrapped_must_stop,
                           .clone = wrapped_clone,
                           .free = wrapped_free },
                    .c = c,
                    .words = words,
                    .wanted = wanted };
    if (wanted > words && !(w->own = calloc(wanted, sizeof *w->own))) {
        wrapped_free(&w->g);
        err_set_nomem(e);
        return NULL;
    }
    return &w->g;
}

/* --- compiling --- */

static int choices_grammar(grammar **out, view text, err *e) {
    const json_value *list;
    arena             a;
    arena_init(&a, 0);
    int   rc = json_parse(&list, text.data, text.len, &a, e);
    view *texts = rc == 0 ? arena_calloc(&a, json_count(list) + 1, sizeof *texts) : NULL;
    if (rc == 0 && !texts) rc = err_set_nomem(e);
    if (rc == 0 && (!json_is(list, JSON_K_ARRAY) || json_count(list) == 0))
        rc = err_set(e, ERR_ARG, "expected an array of strings");
    for (size_t i = 0; rc == 0 && i < json_count(list); i++) {
        if (json_is(json_at(list, i), JSON_K_STRING))
            texts[i] = json_at(list, i)->u.string;
        else
            rc = err_set(e, ERR_ARG, "choice %zu is not a string", i);
    }
    if (rc == 0) rc = grammar_from_choices(out, texts, json_count(list), e);
    arena_deinit(&a);
    return rc;
}

static int schema_grammar(grammar **out, view schema, bool full, err *e) {
    return full ? grammar_from_schema(out, schema, e) : grammar_from_schema_steered(out, schema, e);
}

static int constraint_grammar(grammar **out, const runtime_constraint *c, bool full, err *e) {
    static const char *const names[] = { "", "response_format", "json_schema", "regex", "grammar", "choices" };
    int                      rc = 0;
    *out = NULL;
    switch (c->kind) {
    case RUNTIME_FREE: return 0;
    case RUNTIME_JSON: rc = schema_grammar(out, view_of("{\"type\": \"object\"}"), full, e); break;
    case RUNTIME_SCHEMA: rc = schema_grammar(out, c->text, full, e); break;
    case RUNTIME_REGEX: rc = grammar_from_regex(out, c->text, e); break;
    case RUNTIME_GBNF: rc = grammar_from_gbnf(out, c->text, e); break;
    case RUNTIME_CHOICES: rc = choices_grammar(out, c->text, e); break;
    }
    /* The text is the caller's: what is wrong with it is a mistake of the request. */
    return rc < 0 ? request_mistake(e, rc, names[c->kind]) : 0;
}

static int open_vocabs(runtime *r, bool markers, err *e) {
    const tok *t = chat_tokenizer(r->chat);
    int        rc = 0;
    if (!r->text_vocab) rc = grammar_vocab_open(&r->text_vocab, t, e);
    if (rc == 0 && markers && !r->marker_vocab)
        rc = chat_vocab_open(&r->marker_vocab, chat_answer_format(r->chat), t, e);
    return rc;
}

static int compile(runtime *r, const runtime_request *q, const trees *t, const prompt *p, chat_guide **out, bool *calls,
                   err *e) {
    static const chat_tool_choice choices[] = { CHAT_TOOLS_AUTO, CHAT_TOOLS_NONE, CHAT_TOOLS_REQUIRED,
                                                CHAT_TOOLS_NAMED };
    chat_guide_options            o = { .format = chat_answer_format(r->chat),
                                        .t = chat_tokenizer(r->chat),
                                        .tools = { .choice = choices[q->tool_choice],
                                                   .name = q->tool_name,
                                                   .parallel = q->parallel_tools,
                                                   .full_json = q->full_json },
                                        .starts_in_reasoning = p->in_reasoning,
                                        .reasoning_off = q->task != RUNTIME_CHAT || p->reasoning_off,
                                        .budget = q->task == RUNTIME_CHAT ? q->thinking_budget : -1 };
    if (q->tool_choice != RUNTIME_TOOLS_NONE) o.tools.list = t->tools;
    int rc = constraint_grammar(&o.content, &q->constraint, q->full_json, e);
    if (rc == 0) rc = open_vocabs(r, q->task == RUNTIME_CHAT, e);
    o.text_vocab = r->text_vocab;
    o.marker_vocab = r->marker_vocab;
    if (rc == 0) rc = chat_guide_open(out, &o, e);
    if (rc == ERR_UNSUPPORTED && o.tools.list && q->tool_choice == RUNTIME_TOOLS_AUTO) {
        /* Nobody asked for calls that are enforced: they are left to the model, and everything else holds. */
        log_warn("runtime", "calls are not guided: %s", e->msg);
        o.tools.list = NULL;
        rc = o.content ? rc : chat_guide_open(out, &o, e);
    }
    if (rc == ERR_NOTFOUND) rc = request_mistake(e, rc, "tool_choice");
    /* Where calls have no opening marker, a guide of free text cannot know that one has begun. */
    *calls = rc == 0 && *out && o.tools.list &&
             (o.format->row->shape != CHAT_SHAPE_BARE || q->tool_choice >= RUNTIME_TOOLS_REQUIRED);
    grammar_unref(o.content);
    return rc;
}

/* --- keeping --- */

static void put_text(str *key, view text) {
    str_printf(key, "%zu:", text.len);
    str_append(key, text.data, text.len);
}

static void make_key(str *key, const runtime_request *q, const prompt *p) {
    str_printf(key, "%d %d %d %d %d %d %d %d ", (int)q->task, (int)q->constraint.kind, (int)q->tool_choice,
               q->parallel_tools, p->in_reasoning, p->reasoning_off, q->thinking_budget, q->full_json);
    put_text(key, q->constraint.text);
    put_text(key, q->tools);
    put_text(key, q->tool_name);
}

static void forget(runtime *r, size_t at) {
    kept_guide *k = &r->kept[at];
    chat_guide_free(k->guide);
    free(k->key);
    r->kept[at] = r->kept[--r->n_kept];
}

void guides_close(runtime *r) {
    while (r->n_kept) forget(r, r->n_kept - 1);
    free(r->kept);
    grammar_vocab_free(r->text_vocab);
    grammar_vocab_free(r->marker_vocab);
}

static size_t kept_bytes(const kept_guide *k) { return sizeof *k + k->key_bytes + chat_guide_bytes(k->guide); }

/* The newest stays, however large: it is in use. */
static void make_room(runtime *r) {
    size_t all = 0;
    for (size_t i = 0; i < r->n_kept; i++) all += kept_bytes(&r->kept[i]);
    while (r->n_kept > 1 && (r->n_kept == MAX_KEPT || all > r->kept_limit)) {
        size_t oldest = 0;
        for (size_t i = 1; i < r->n_kept; i++)
            if (r->kept[i].used < r->kept[oldest].used) oldest = i;
        all -= kept_bytes(&r->kept[oldest]);
        forget(r, oldest);
    }
}

/* Takes key and guide over when it returns true. */
static bool keep(runtime *r, str *key, chat_guide *guide, bool calls) {
    size_t bytes = key->len;
    if (!r->kept && !(r->kept = calloc(MAX_KEPT, sizeof *r->kept))) return false;
    char *text = str_take(key);
    if (!text) return false;
    r->kept[r->n_kept++] = (kept_guide){ text, bytes, guide, calls, ++r->kept_clock };
    make_room(r);
    return true;
}

static kept_guide *find(runtime *r, const str *key) {
    for (size_t i = 0; i < r->n_kept; i++) {
        kept_guide *k = &r->kept[i];
        if (k->key_bytes == key->len && memcmp(k->key, str_cstr(key), key->len) == 0) return k;
    }
    return NULL;
}

static void count(runtime *r, bool hit) {
    pthread_mutex_lock(&r->lock);
    if (hit)
        r->stats.grammar_hits++;
    else
        r->stats.grammar_misses++;
    r->stats.grammars = (int)r->n_kept;
    pthread_mutex_unlock(&r->lock);
}

/* Whether anything could be guided at all; the answers of plain requests never come here. */
static bool wanted(const runtime_request *q) {
    bool talks = q->task == RUNTIME_CHAT;
    return q->constraint.kind != RUNTIME_FREE || (talks && q->tools.len && q->tool_choice != RUNTIME_TOOLS_NONE) ||
           (talks && q->thinking_budget >= 0) || (talks && q->thinking == RUNTIME_THINK_OFF);
}

int guides_get(runtime *r, const runtime_request *q, const trees *t, const prompt *p, engine_guide **out, bool *calls,
               err *e) {
    chat_guide *proto = NULL, *own = NULL;
    bool        kept = true;
    str         key;
    int         rc = 0;
    *out = NULL;
    *calls = false;
    if (!wanted(q)) return 0;
    str_init(&key);
    make_key(&key, q, p);
    kept_guide *k = find(r, &key);
    if (k) {
        k->used = ++r->kept_clock;
        proto = k->guide;
        *calls = k->calls;
    } else {
        rc = compile(r, q, t, p, &proto, calls, e);
        kept = rc == 0 && keep(r, &key, proto, *calls);
    }
    if (rc == 0) count(r, k != NULL);
    if (rc == 0 && proto) rc = chat_guide_clone(&own, proto, e);
    if (rc == 0 && own) {
        *out = wrap(own, ((size_t)engine_vocab(r->engine) + 31) / 32, grammar_vocab_mask_words(r->text_vocab), e);
        if (!*out) rc = ERR_NOMEM;
    }
    if (!kept) chat_guide_free(proto);
    str_deinit(&key);
    return rc;
}
