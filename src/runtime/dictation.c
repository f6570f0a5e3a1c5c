/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that write down what is said in a sound, and do nothing else (Whisper).
 *
 * They have no template: a prompt is the rows of the sound, a text that came before where there is one, and tokens that
 * name the language and what to do. Where nobody names the language the model does: a guide lets the first token be a
 * language and nothing else, and says the tokens behind it itself. Where there is a text that came before, that one token is
 * all that is asked for at first, without it, and then the same part of the sound again. The same guide keeps the model from
 * tokens that its files forbid, everywhere or at the beginning of a text.
 *
 * With times a text is made of pieces, each with a moment before and behind it: the guide knows the order of these, and
 * sampling_params.together_from weighs all moments together against each word.
 *
 * A sound that is longer than what the model hears at once (30 s) is heard in parts, one behind the other, each a prompt
 * of its own: when the engine is done with one (dictation_goes_on) the request goes back to the thread that listens. A
 * part ends at the quietest place of its last sixth. The language that the first one found holds for all.
 */
#include "runtime/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- opening --- */

static int32_t word(const runtime *r, const char *text) {
    return tok_find(chat_tokenizer(r->chat), text, strlen(text));
}

/* "<|en|>", "<|yue|>" */
static bool names_language(view text) {
    if (text.len < 6 || text.len > 7 || memcmp(text.data, "<|", 2) != 0 ||
        memcmp(text.data + text.len - 2, "|>", 2) != 0)
        return false;
    for (size_t i = 2; i < text.len - 2; i++) {
        if (text.data[i] < 'a' || text.data[i] > 'z') return false;
    }
    return true;
}

static void set_bit(uint32_t *mask, int64_t id, bool to) {
    uint32_t bit = (uint32_t)1 << (id % 32);
    mask[id / 32] = to ? mask[id / 32] | bit : mask[id / 32] & ~bit;
}

/* What a list of the model's files forbids; nonsense in it is passed over. */
static void forbid(const runtime *r, uint32_t *mask, const char *field) {
    const json_value *list = json_get(model_file_generation_config(r->file), field);
    int64_t           id;
    for (size_t i = 0; i < json_count(list); i++) {
        if (json_int(json_at(list, i), &id) && id >= 0 && id < engine_vocab(r->engine)) set_bit(mask, id, false);
    }
}

static int make_masks(runtime *r, err *e) {
    dictation *d = &r->dictation;
    int64_t    n = engine_vocab(r->engine), known = tok_count(chat_tokenizer(r->chat));
    d->words = ((size_t)n + 31) / 32;
    uint32_t **all[] = { &d->rest, &d->first, &d->spoken };
    for (size_t i = 0; i < 3; i++) {
        if (!(*all[i] = arena_calloc(&r->mem, d->words, sizeof **all[i]))) return err_set_nomem(e);
    }
    for (int64_t id = 0; id < n && id < known; id++) {
        set_bit(d->rest, id, true);
        set_bit(d->spoken, id, names_language(tok_text(chat_tokenizer(r->chat), (int32_t)id)));
        d->n_spoken += d->spoken[id / 32] >> (id % 32) & 1;
    }
    forbid(r, d->rest, "suppress_tokens");
    memcpy(d->first, d->rest, d->words * sizeof *d->first);
    forbid(r, d->first, "begin_suppress_tokens");
    return 0;
}

/* The words behind <|notimestamps|>: "<|0.00|>", "<|0.02|>" and so on. */
static void find_moments(runtime *r) {
    dictation *d = &r->dictation;
    int64_t    n = engine_vocab(r->engine), known = tok_count(chat_tokenizer(r->chat));
    char       text[32];
    if (d->untimed < 0) return;
    for (int32_t id = d->untimed + 1; id < n && id < known; id++) {
        snprintf(text, sizeof text, "<|%.2f|>", 0.02 * (id - d->untimed - 1));
        if (!view_eq_c(tok_text(chat_tokenizer(r->chat), id), text)) break;
        d->n_timed++;
    }
    if (d->n_timed < 2) return;
    int64_t most = -1;
    d->timed = d->untimed + 1;
    (void)json_int(json_get(model_file_generation_config(r->file), "max_initial_timestamp_index"), &most);
    d->most_first = most >= 0 && most < d->n_timed ? d->timed + (int32_t)most : -1;
}

/* Vocabularies of models for English alone have words for languages, too. */
static bool knows_languages(const runtime *r) {
    enum { LEAST = 51865 }; /* tokens, where no file says it */
    const json_value *g = model_file_generation_config(r->file), *said = json_get(g, "is_multilingual");
    if (json_is(said, JSON_K_BOOL)) return json_bool(said, false);
    return json_is(json_get(g, "lang_to_id"), JSON_K_OBJECT) || r->model->dims->n_vocab >= LEAST;
}

int dictation_open(runtime *r, err *e) {
    dictation *d = &r->dictation;
    if (strcmp(r->model->arch->names[0], "whisper") != 0) return 0;
    if (!r->ears)
        return err_set(e, ERR_UNSUPPORTED, "%s: without its encoder the model is of no use", model_file_path(r->file));
    d->known = true;
    d->begin = word(r, "<|startoftranscript|>");
    d->before = word(r, "<|startofprev|>");
    d->transcribe = word(r, "<|transcribe|>");
    d->translate = word(r, "<|translate|>");
    d->untimed = word(r, "<|notimestamps|>");
    d->languages = knows_languages(r);
    int rc = make_masks(r, e);
    if (rc < 0) return rc;
    find_moments(r);
    if (d->begin < 0 || d->untimed < 0 || (d->languages && (d->transcribe < 0 || d->n_spoken == 0)))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s: the vocabulary lacks words such as <|startoftranscript|>, <|transcribe|> and <|en|>",
                       model_file_path(r->file));
    return 0;
}

/* --- the prompt --- */

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static bool is_blank(const json_value *text) {
    view v = json_is(text, JSON_K_STRING) ? text->u.string : (view){ "", 0 };
    for (size_t i = 0; i < v.len; i++) {
        if (!is_space(v.data[i])) return false;
    }
    return true;
}

/* One message with a sound and no words, which is how a chat asks for those of the sound. */
static bool is_sound_alone(const json_value *messages) {
    const json_value *content = json_get(json_at(messages, 0), "content");
    size_t            sounds = 0;
    for (size_t i = 0; i < json_count(content); i++) {
        const json_value *part = json_at(content, i);
        const char       *type = json_cstr(json_get(part, "type"));
        if (type && strcmp(type, "audio") == 0)
            sounds++;
        else if (!type || strcmp(type, "text") != 0 || !is_blank(json_get(part, "text")))
            return false;
    }
    return json_count(messages) == 1 && json_is(content, JSON_K_ARRAY) && sounds == 1;
}

static bool wants_times(const trees *t) { return json_bool(json_get(t->variables, "times"), false); }

static int check(const runtime *r, const runtime_request *q, const trees *t, err *e) {
    bool asked = q->task == RUNTIME_CHAT && (q->transcribe || (is_sound_alone(t->messages) && !t->tools));
    if (!asked)
        return err_set(e, ERR_UNSUPPORTED,
                       "this model (%s) writes down what is said in a sound and does nothing else: send one to "
                       "/v1/audio/transcriptions, or alone in a message",
                       r->info.family);
    if (q->n_blobs != 1) return err_set(e, ERR_ARG, "a transcription is of one sound");
    if (q->n_choices > 1) return err_set(e, ERR_ARG, "n: a transcription is one text");
    if (q->constraint.kind != RUNTIME_FREE || q->n_tokens || q->continue_final || q->template_text.len ||
        (!q->transcribe && wants_times(t)))
        return err_set(e, ERR_UNSUPPORTED, "this model (%s) cannot be told what its answer looks like", r->info.family);
    return 0;
}

static view variable(const trees *t, const char *name) {
    const json_value *v = json_get(t->variables, name);
    return json_is(v, JSON_K_STRING) ? v->u.string : (view){ "", 0 };
}

static int find_language(const runtime *r, view name, int32_t *out, err *e) {
    const dictation *d = &r->dictation;
    char             text[16];
    *out = -1;
    if (!name.len) return 0;
    if (!d->languages)
        return view_eq_c(name, "en")
                   ? 0
                   : err_set(e, ERR_ARG, "language: this model (%s) knows English alone", r->info.family);
    if (name.len <= 3) {
        snprintf(text, sizeof text, "<|%.*s|>", (int)name.len, name.data);
        *out = word(r, text);
    }
    if (*out >= 0 && *out < engine_vocab(r->engine) && (d->spoken[*out / 32] >> (*out % 32) & 1)) return 0;
    return err_set(e, ERR_ARG, "language: this model (%s) was not taught \"%.*s\"", r->info.family,
                   (int)(name.len < 20 ? name.len : 20), name.data);
}

static view trimmed(view text) {
    while (text.len && is_space(text.data[0])) text.data++, text.len--;
    while (text.len && is_space(text.data[text.len - 1])) text.len--;
    return text;
}

/* The end of a text that came before, as far as half of the model's places hold it. */
static int put_before(const runtime *r, view text, int most, prompt *out, err *e) {
    tok_ids ids = { 0 };
    str     spaced;
    text = trimmed(text);
    if (!text.len) return 0;
    if (r->dictation.before < 0)
        return err_set(e, ERR_UNSUPPORTED, "prompt: the vocabulary of this model (%s) has no <|startofprev|>",
                       r->info.family);
    str_init(&spaced);
    str_push(&spaced, ' ');
    str_append(&spaced, text.data, text.len);
    int  rc = str_ok(&spaced) ? tok_encode(chat_tokenizer(r->chat), str_cstr(&spaced), spaced.len, 0, &ids, e)
                              : err_set_nomem(e);
    bool ok = rc < 0 || tok_ids_push(&out->ids, r->dictation.before);
    for (size_t i = ids.count > (size_t)most ? ids.count - (size_t)most : 0; rc == 0 && ok && i < ids.count; i++)
        ok = tok_ids_push(&out->ids, ids.data[i]);
    tok_ids_deinit(&ids);
    str_deinit(&spaced);
    return ok ? rc : err_set_nomem(e);
}

bool dictation_times(const runtime *r, const trees *t) { return r->dictation.known && wants_times(t); }

bool dictation_finds(const request *x, const trees *t) {
    return x->owner->dictation.languages && x->heard.language < 0 && !variable(t, "language").len &&
           trimmed(variable(t, "prompt")).len;
}

static int32_t task_of(const dictation *d, const trees *t) {
    return view_eq_c(variable(t, "task"), "translate") ? d->translate : d->transcribe;
}

int dictation_prompt(const runtime *r, const runtime_request *q, const trees *t, int32_t found, prompt *out, err *e) {
    const dictation *d = &r->dictation;
    int32_t          language = -1;
    int              rc = check(r, q, t, e), n = (int)ears_rows(r->ears, 1);
    bool             translates = view_eq_c(variable(t, "task"), "translate"), ok = true;
    if (rc == 0) rc = find_language(r, variable(t, "language"), &language, e);
    if (rc < 0) return rc;
    if (translates && (!d->languages || d->translate < 0))
        return err_set(e, ERR_UNSUPPORTED, "this model (%s) was not taught to translate", r->info.family);
    if (wants_times(t) && !d->timed)
        return err_set(e, ERR_ARG, "response_format: the vocabulary of this model (%s) has no moments", r->info.family);
    for (int i = 0; i < n; i++) ok = ok && tok_ids_push(&out->ids, r->sound_token);
    int most = (r->model->dims->limit - n) / 2 - 1;
    if (language < 0) language = found;
    if (ok && (language >= 0 || !d->languages)) rc = put_before(r, variable(t, "prompt"), most > 0 ? most : 0, out, e);
    if (rc < 0) return rc;
    ok = ok && tok_ids_push(&out->ids, d->begin);
    if (d->languages && language >= 0)
        ok = ok && tok_ids_push(&out->ids, language) && tok_ids_push(&out->ids, task_of(d, t));
    if ((!d->languages || language >= 0) && !wants_times(t)) ok = ok && tok_ids_push(&out->ids, d->untimed);
    return ok ? 0 : err_set_nomem(e);
}

/* --- the guide --- */

typedef struct teller {
    engine_guide   g;
    const runtime *r;
    bool           times;
    int            n_fixed; /* tokens before the text: a language, fixed[1] and fixed[2]; 0: they are in the prompt */
    int32_t        fixed[3];
    int            n, cap; /* tokens that were accepted */
    int32_t        said[];
} teller;

static void clear(uint32_t *mask, int64_t from, int64_t to) {
    for (int64_t id = from; id < to; id++) {
        if (id % 32 == 0 && id + 32 <= to) {
            mask[id / 32] = 0;
            id += 31;
        } else {
            set_bit(mask, id, false);
        }
    }
}

static bool is_moment(const dictation *d, int32_t token) { return token >= d->timed; }

/* Nothing but moments and ends. */
static void clear_words(const runtime *r, uint32_t *mask) {
    const dictation *d = &r->dictation;
    size_t           n_ends;
    const int32_t   *ends = tok_end_ids(chat_tokenizer(r->chat), &n_ends);
    clear(mask, 0, d->timed);
    for (size_t i = 0; i < n_ends; i++) {
        if (ends[i] >= 0 && ends[i] < d->timed) set_bit(mask, ends[i], d->rest[ends[i] / 32] >> (ends[i] % 32) & 1);
    }
}

/* Moments come in pairs, behind a piece and before the next one, and first of all; none lies before another. */
static void order_moments(const teller *w, uint32_t *mask) {
    const dictation *d = &w->r->dictation;
    const int32_t   *said = w->said + w->n_fixed;
    int              n = w->n - w->n_fixed, last = n - 1;
    int64_t          end = d->timed + d->n_timed;
    bool             now = n >= 1 && is_moment(d, said[n - 1]), before = n < 2 || is_moment(d, said[n - 2]);
    set_bit(mask, d->untimed, false);
    clear(mask, end, engine_vocab(w->r->engine));
    if (n == 0) {
        clear(mask, 0, d->timed);
        if (d->most_first >= 0) clear(mask, (int64_t)d->most_first + 1, end);
        return;
    }
    if (now && before) clear(mask, d->timed, end);
    if (now && !before) clear_words(w->r, mask);
    while (last >= 0 && !is_moment(d, said[last])) last--;
    if (last >= 0) clear(mask, d->timed, said[last] + (now && !before ? 0 : 1));
}

static int teller_mask(engine_guide *self, uint32_t *mask, err *e) {
    const teller    *w = (const teller *)self;
    const dictation *d = &w->r->dictation;
    (void)e;
    if (w->n > 0 && w->n < w->n_fixed) {
        memset(mask, 0, d->words * sizeof *mask);
        set_bit(mask, w->fixed[w->n], true);
        return 1;
    }
    memcpy(mask, w->n < w->n_fixed ? d->spoken : w->n == w->n_fixed ? d->first : d->rest, d->words * sizeof *mask);
    if (w->times && w->n >= w->n_fixed) order_moments(w, mask);
    return 1;
}

static int teller_accept(engine_guide *self, int32_t token, err *e) {
    teller *w = (teller *)self;
    if (w->n == w->cap) return err_set(e, ERR_LIMIT, "a text of more than %d tokens", w->cap);
    w->said[w->n++] = token;
    return 0;
}

static void teller_rollback(engine_guide *self, int n) { ((teller *)self)->n -= n; }

static bool teller_must_stop(engine_guide *self) {
    (void)self;
    return false;
}

static engine_guide *teller_clone(engine_guide *self, err *e) {
    const teller *w = (const teller *)self;
    size_t        bytes = sizeof *w + (size_t)w->cap * sizeof *w->said;
    teller       *copy = malloc(bytes);
    if (copy)
        memcpy(copy, w, bytes);
    else
        err_set_nomem(e);
    return (engine_guide *)copy;
}

static void teller_free(engine_guide *self) { free(self); }

int dictation_guide(const request *x, const trees *t, const prompt *p, engine_guide **out, err *e) {
    const runtime   *r = x->owner;
    const dictation *d = &r->dictation;
    int              cap = engine_context(r->engine) + 1;
    bool             finds = d->languages && p->ids.data[p->ids.count - 1] == d->begin;
    teller          *w = calloc(1, sizeof *w + (size_t)cap * sizeof *w->said);
    if (!w) return err_set_nomem(e);
    w->g = (engine_guide){ .mask = teller_mask,
                           .accept = teller_accept,
                           .rollback = teller_rollback,
                           .must_stop = teller_must_stop,
                           .clone = teller_clone,
                           .free = teller_free };
    w->r = r;
    w->cap = cap;
    w->times = wants_times(t);
    w->n_fixed = !finds ? 0 : w->times ? 2 : 3;
    w->fixed[1] = task_of(d, t);
    w->fixed[2] = d->untimed;
    *out = &w->g;
    return 0;
}

/* --- parts of a sound --- */

/* Where a part ends that may have `most` samples: the whole rest, or the quietest place of its last sixth. */
static int part_of(const sound *s, int from, int most) {
    int    rest = s->n - from, step = most / 300 > 0 ? most / 300 : 1, best = most; /* 100 ms of 30 s */
    double least = -1;
    if (rest <= most) return rest;
    for (int end = most; end - step >= most - most / 6 && end > step; end -= step) {
        double sum = 0;
        for (int i = end - step; i < end; i++) sum += (double)s->at[from + i] * (double)s->at[from + i];
        if (least < 0 || sum < least) least = sum, best = end - step / 2;
    }
    return best;
}

int dictation_listen(request *x, const sound *s, const ears_stop *stop, const vision_rows **rows, err *e) {
    int   n = part_of(s, x->heard.from, ears_longest(x->owner->ears));
    sound part = { .n = n, .at = s->at + x->heard.from };
    x->heard.at = x->heard.from;
    x->heard.from += n;
    x->heard.over = x->heard.from == s->n;
    return ears_encode(x->owner->ears, &part, stop, rows, e);
}

void dictation_token(request *x, int32_t token) {
    const dictation *d = &x->owner->dictation;
    if (d->known && x->heard.language < 0 && token >= 0 && (size_t)token / 32 < d->words &&
        (d->spoken[token / 32] >> (token % 32) & 1))
        x->heard.language = token;
}

view dictation_token_text(const request *x, const engine_event *g) {
    const dictation *d = &x->owner->dictation;
    view             text = g->text, word;
    if (!d->known || x->heard.times || !d->timed || g->token < d->timed) return text;
    word = tok_text(chat_tokenizer(x->owner->chat), g->token);
    bool ends = word.len && text.len >= word.len && memcmp(text.data + text.len - word.len, word.data, word.len) == 0;
    return ends ? (view){ text.data, text.len - word.len } : text;
}

view dictation_text(request *x, view text) {
    if (!x->owner->dictation.known || x->heard.begun) return text;
    while (text.len && text.data[0] == ' ') text.data++, text.len--;
    x->heard.begun = text.len > 0;
    return text;
}

static void add(runtime_usage *sum, const runtime_usage *u) {
    sum->prompt_tokens += u->prompt_tokens;
    sum->cached_tokens += u->cached_tokens;
    sum->generated_tokens += u->generated_tokens;
    sum->drafted_tokens += u->drafted_tokens;
    sum->accepted_tokens += u->accepted_tokens;
    sum->queued_s += u->queued_s;
    sum->prompt_s += u->prompt_s;
    sum->generate_s += u->generate_s;
}

bool dictation_goes_on(request *x, runtime_finish finish, runtime_usage *u) {
    runtime_usage sum = x->heard.usage;
    int           most = x->q.max_tokens;
    if (!x->owner->dictation.known) return false;
    sum.prepare_s = u->prepare_s;
    add(&sum, u);
    *u = x->heard.usage = sum;
    if (x->heard.finding) { /* the same part again */
        x->heard.from = x->heard.at;
        x->heard.over = x->heard.language < 0;
    }
    return !x->heard.over && (finish == RUNTIME_STOP || finish == RUNTIME_LENGTH) &&
           (most <= 0 || sum.generated_tokens < most);
}
