/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /v1/audio/transcriptions: the words that are said in a sound, of models that were taught to write them down
 * (Whisper, Voxtral, Qwen 3 ASR). /v1/audio/translations: the same in English (Whisper). The body is a form with a
 * file, as OpenAI's clients send it, or the same members as JSON with the file in base64; a form becomes such JSON here,
 * so that there is one way of reading it. The model's template for this is the worker's to know
 * (runtime_request.transcribe).
 *
 * Models that are not told the language say it first, "language English<asr_text>": that is left out.
 */
#include "server/content.h"
#include "server/handlers.h"
#include "server/http/base64.h"
#include "server/http/multipart.h"
#include "server/openai/openai.h"
#include "server/openai/times.h"
#include "server/params.h"
#include "sound/sound.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* --- forms --- */

enum { MAX_FIELD = 64 << 10 }; /* bytes of a part other than the file */

/* What is refused by name, with whatever a client writes in brackets behind it. */
static bool is_refused(view name) {
    static const char *const names[] = { "timestamp_granularities", "include", "chunking_strategy",
                                         "known_speaker_names", "known_speaker_references" };
    const char              *bracket = name.len ? memchr(name.data, '[', name.len) : NULL;
    if (bracket) name.len = (size_t)(bracket - name.data);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (view_eq_c(name, names[i])) return true;
    }
    return false;
}

static bool is_text(view name) {
    static const char *const texts[] = { "model", "language", "prompt", "response_format" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (view_eq_c(name, texts[i])) return true;
    }
    return false;
}

/* Numbers and flags that are read below. */
static bool is_value(view name) {
    const char *known;
    for (int p = 0; p < SAMPLING_PARAM_COUNT; p++) {
        for (size_t i = 0; (known = sampling_param_name((sampling_param)p, SAMPLING_BY_OPENAI, i)); i++) {
            if (view_eq_c(name, known)) return true;
        }
    }
    return view_eq_c(name, "max_tokens") || view_eq_c(name, "stream");
}

static size_t digits(view v, size_t at) {
    size_t n = 0;
    while (at + n < v.len && v.data[at + n] >= '0' && v.data[at + n] <= '9') n++;
    return n;
}

/* A number as JSON writes it. */
static bool is_number(view v) {
    size_t at = v.len && v.data[0] == '-', n = digits(v, at);
    if (!n || v.len > 40 || (n > 1 && v.data[at] == '0')) return false;
    at += n;
    if (at < v.len && v.data[at] == '.') {
        if (!(n = digits(v, at + 1))) return false;
        at += n + 1;
    }
    if (at < v.len && (v.data[at] == 'e' || v.data[at] == 'E')) {
        at++;
        at += at < v.len && (v.data[at] == '-' || v.data[at] == '+');
        if (!(n = digits(v, at))) return false;
        at += n;
    }
    return at == v.len;
}

static bool is_word(view v, const char *word) { return v.len == strlen(word) && strncasecmp(v.data, word, v.len) == 0; }

/* What nobody reads leaves its name, by which it is refused or reported. */
static void put_part(jw *w, const multipart_part *p) {
    char name[65];
    memcpy(name, p->name.data, p->name.len);
    name[p->name.len] = '\0';
    jw_key(w, name);
    if (view_eq_c(p->name, "file")) {
        str_push(w->out, '"');
        base64_put(w->out, p->data.data, p->data.len);
        str_push(w->out, '"');
        w->comma = true;
    } else if (is_text(p->name)) {
        jw_text(w, p->data);
    } else if (!is_value(p->name)) {
        jw_bool(w, true);
    } else if (is_word(p->data, "true") || is_word(p->data, "false")) {
        jw_bool(w, p->data.len == strlen("true"));
    } else if (is_number(p->data)) {
        jw_raw(w, p->data);
    } else {
        jw_text(w, p->data);
    }
}

static bool came(const view *names, int n, view name) {
    for (int i = 0; i < n; i++) {
        if (names[i].len == name.len && memcmp(names[i].data, name.data, name.len) == 0) return true;
    }
    return false;
}

/* Before anything of it is copied. A member that comes twice would be one thing here and another elsewhere; of lists
 * and of what nobody reads the name counts alone. */
static int take_part(jw *w, const multipart_part *p, view names[MULTIPART_MAX_PARTS], int *n, err *e) {
    bool file = view_eq_c(p->name, "file"), read = file || is_text(p->name) || is_value(p->name);
    int  most = file ? CONTENT_MAX_FILE : MAX_FIELD;
    if (p->data.len > (size_t)most)
        return err_set(e, ERR_LIMIT, "the form's part %.*s has %zu bytes; at most %d are read", (int)p->name.len,
                       p->name.data, p->data.len, most);
    if (came(names, *n, p->name)) {
        if (!read) return 0;
        return err_set(e, ERR_FORMAT, "the form has two parts of the name %.*s", (int)p->name.len, p->name.data);
    }
    names[(*n)++] = p->name;
    if (p->data.len || file) put_part(w, p); /* an empty field is how forms leave one out */
    return 0;
}

static int put_form(str *out, view type, view body, err *e) {
    multipart      m;
    multipart_part p;
    view           names[MULTIPART_MAX_PARTS];
    jw             w = jw_of(out);
    int            n = 0, rc = multipart_open(&m, type, body, e);
    jw_open(&w, '{');
    while (rc == 0 && (rc = multipart_next(&m, &p, e)) == 1) rc = take_part(&w, &p, names, &n, e);
    jw_close(&w, '}');
    return rc < 0 ? rc : str_ok(out) ? 0 : err_set_nomem(e);
}

static bool read_body(exchange *x) {
    const view *type = http_request_get(x->http, "content-type");
    view        body = { str_cstr(&x->http->body), x->http->body.len };
    str         json;
    err         e = { 0 };
    int         rc = 0;
    str_init(&json);
    if (type && multipart_is(*type)) {
        if ((rc = put_form(&json, *type, body, &e)) == 0) body = (view){ str_cstr(&json), json.len };
    }
    if (rc == 0) rc = json_doc_parse(&x->doc, body.data, body.len, &e);
    str_deinit(&json);
    if (rc == 0) return true;
    if (e.code == ERR_NOMEM)
        exchange_error_nomem(x);
    else
        exchange_error(x, 400, "invalid_body", NULL, "%s", e.msg);
    return false;
}

static void put_stream_error(exchange *x, const failure *f, const str *body) {
    (void)f;
    openai_put_event(x, body);
}

const api api_openai_form = { "openai", openai_put_error, put_stream_error, .heartbeat = openai_heartbeat,
                              .read_body = read_body };

/* --- answers --- */

typedef enum transcribe_form { FORM_JSON, FORM_TEXT, FORM_VERBOSE, FORM_SRT, FORM_VTT } transcribe_form;

typedef struct transcribe_state {
    collect answer;
    bool    stream, translate;
    int     form;        /* transcribe_form; from VERBOSE on with times */
    double  seconds;     /* of the sound */
    char    language[4]; /* that was named; empty: none */
    bool    begun;       /* it is known where the words begin */
    size_t  from, sent;  /* where; bytes of the content */
    str     event;
} transcribe_state;

static void state_free(void *p) {
    transcribe_state *s = p;
    collect_deinit(&s->answer);
    str_deinit(&s->event);
    free(s);
}

/* Whether it is known where the words begin in what was said so far; over: nothing follows. */
static bool words_begin(transcribe_state *s, bool over) {
    enum { MOST = 64 }; /* bytes before the words */
    static const char before[] = "language ", mark[] = "<asr_text>";
    const str        *said = &s->answer.choices[0].content;
    const char       *text = str_cstr(said);
    size_t            n = said->len < sizeof before - 1 ? said->len : sizeof before - 1;
    if (s->begun) return true;
    if (memcmp(text, before, n) == 0) {
        const char *at = memmem(text, said->len < MOST ? said->len : MOST, mark, sizeof mark - 1);
        if (!at && !over && said->len < MOST) return false;
        s->from = at ? (size_t)(at - text) + sizeof mark - 1 : 0;
    }
    return s->begun = true;
}

static void put_usage(jw *w, const collect *c) {
    runtime_usage u;
    collect_usage(c, &u);
    jw_key(w, "usage");
    jw_open(w, '{');
    jw_put_cstr(w, "type", "tokens");
    jw_put_int(w, "input_tokens", u.prompt_tokens);
    jw_put_int(w, "output_tokens", u.generated_tokens);
    jw_put_int(w, "total_tokens", u.prompt_tokens + u.generated_tokens);
    jw_close(w, '}');
}

static view words_of(transcribe_state *s) {
    const str *said = &s->answer.choices[0].content;
    (void)words_begin(s, true);
    return (view){ str_cstr(said) + s->from, said->len - s->from };
}

static void stream_piece(exchange *x, transcribe_state *s, bool over) {
    const str *said = &s->answer.choices[0].content;
    if (!words_begin(s, over)) return;
    if (s->sent < s->from) s->sent = s->from;
    if (s->sent == said->len) return;
    str_clear(&s->event);
    jw w = jw_of(&s->event);
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", "transcript.text.delta");
    jw_put_text(&w, "delta", (view){ str_cstr(said) + s->sent, said->len - s->sent });
    jw_close(&w, '}');
    s->sent = said->len;
    openai_put_event(x, &s->event);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    transcribe_state *s = x->state;
    (void)request;
    collect_event(&s->answer, ev);
    if (s->stream && ev->kind == RUNTIME_CONTENT) stream_piece(x, s, false);
}

static void stream_over(exchange *x) {
    transcribe_state *s = x->state;
    stream_piece(x, s, true);
    str_clear(&s->event);
    jw w = jw_of(&s->event);
    jw_open(&w, '{');
    jw_put_cstr(&w, "type", "transcript.text.done");
    jw_put_text(&w, "text", words_of(s));
    put_usage(&w, &s->answer);
    jw_close(&w, '}');
    openai_put_event(x, &s->event);
}

/* As OpenAI has it, but for what is not known here: tokens, and how sure the model is. */
static void put_verbose(const transcribe_state *s, const times *t, str *out) {
    str words;
    jw  w = jw_of(out);
    str_init(&words);
    times_put_text(t, &words);
    jw_open(&w, '{');
    jw_put_cstr(&w, "task", s->translate ? "translate" : "transcribe");
    if (t->language.len || s->language[0])
        jw_put_text(&w, "language", t->language.len ? t->language : view_of(s->language));
    jw_put_real(&w, "duration", s->seconds);
    jw_put_text(&w, "text", (view){ str_cstr(&words), words.len });
    jw_key(&w, "segments");
    jw_open(&w, '[');
    for (size_t i = 0; i < t->n; i++) {
        jw_open(&w, '{');
        jw_put_int(&w, "id", (int64_t)i);
        jw_put_real(&w, "start", t->pieces[i].begin);
        jw_put_real(&w, "end", t->pieces[i].end);
        jw_put_text(&w, "text", t->pieces[i].text);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    put_usage(&w, &s->answer);
    jw_close(&w, '}');
    out->failed = out->failed || !str_ok(&words);
    str_deinit(&words);
}

static void reply_timed(exchange *x) {
    static const char *const types[] = { [FORM_VERBOSE] = "application/json",
                                         [FORM_SRT] = "text/plain; charset=utf-8",
                                         [FORM_VTT] = "text/vtt; charset=utf-8" };
    transcribe_state        *s = x->state;
    const str               *said = &s->answer.choices[0].content;
    times                    t;
    str                      out;
    str_init(&out);
    times_read(&t, (view){ str_cstr(said), said->len }, s->seconds);
    if (s->form == FORM_VERBOSE)
        put_verbose(s, &t, &out);
    else
        (s->form == FORM_SRT ? times_put_srt : times_put_vtt)(&t, &out);
    if (t.failed || !collect_ok(&s->answer)) {
        str_deinit(&out);
        exchange_error_nomem(x);
    } else {
        exchange_reply(x, 200, types[s->form], &out);
    }
    times_deinit(&t);
}

static void reply_whole(exchange *x) {
    transcribe_state *s = x->state;
    view              words = words_of(s);
    str               out;
    if (s->form >= FORM_VERBOSE) {
        reply_timed(x);
        return;
    }
    if (!collect_ok(&s->answer)) {
        exchange_error_nomem(x);
        return;
    }
    str_init(&out);
    if (s->form == FORM_TEXT) {
        str_append(&out, words.data, words.len);
        str_push(&out, '\n');
        exchange_reply(x, 200, "text/plain; charset=utf-8", &out);
        return;
    }
    jw w = jw_of(&out);
    jw_open(&w, '{');
    jw_put_text(&w, "text", words);
    put_usage(&w, &s->answer);
    jw_close(&w, '}');
    exchange_reply(x, 200, "application/json", &out);
}

/* --- the request --- */

static char *copy_text(exchange *x, str *text, view *out) {
    char *copy = exchange_copy(x, text, out);
    str_deinit(text);
    return copy;
}

/* The sound as the one message, and what the template may know. False: answered, or a mistake in x->in. */
static bool read_sound(exchange *x, runtime_request *q) {
    content_reader c;
    view           file;
    str            messages;
    if (!need_string(&x->in, &x->body, "file", &file)) return true;
    node at = node_get(&x->body, "file");
    content_init(&c, x, q);
    content_sound_base64(&c, &at, file);
    str_init(&messages);
    jw w = jw_of(&messages);
    jw_open(&w, '[');
    jw_open(&w, '{');
    jw_put_cstr(&w, "role", "user");
    content_put(&c, &w);
    jw_close(&w, '}');
    jw_close(&w, ']');
    content_deinit(&c);
    return copy_text(x, &messages, &q->messages) != NULL;
}

static bool is_language(view v) {
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] < 'a' || v.data[i] > 'z') return false;
    }
    return v.len == 2 || v.len == 3;
}

static bool read_variables(exchange *x, runtime_request *q, bool translate, bool timed, char named[4]) {
    view language = { "", 0 }, prompt = { "", 0 };
    str  variables;
    if (read_string(&x->in, &x->body, "language", &language) && language.len && !is_language(language)) {
        node at = node_get(&x->body, "language");
        reader_fail(&x->in, &at, "must be a code of two or three letters, such as \"en\"");
    }
    read_string(&x->in, &x->body, "prompt", &prompt);
    str_init(&variables);
    jw w = jw_of(&variables);
    jw_open(&w, '{');
    jw_put_text(&w, "language", language);
    jw_put_text(&w, "prompt", prompt);
    if (language.len < 4) memcpy(named, language.data, language.len);
    if (timed) jw_put_bool(&w, "times", true);
    jw_put_cstr(&w, "task", translate ? "translate" : "transcribe");
    jw_close(&w, '}');
    return copy_text(x, &variables, &q->template_vars) != NULL;
}

static void refuse_members(exchange *x) {
    void       *cursor = NULL;
    const char *key;
    node        at;
    while (node_next(&x->body, &cursor, &key, &at)) {
        if (is_refused(view_of(key)) && node_is(&at) != NODE_ABSENT) reader_fail(&x->in, &at, "is not supported");
    }
}

static void ask(exchange *x, bool translate) {
    static const char *const formats[] = { "json", "text", "verbose_json", "srt", "vtt", NULL };
    runtime_request         *q = exchange_requests(x, 1);
    int                      form = 0, n = 0;
    char                     named[4] = "";
    err                      e;
    view                     model;
    bool                     stream = false;
    if (!q) return;
    bool known = params_model(x, &x->body, !params_one_model(x), &model);
    if (!known && !x->in.failed) return;
    q->task = RUNTIME_CHAT;
    q->transcribe = q->raw_answer = true;
    q->sampling_set |= RUNTIME_SET_TEMPERATURE; /* OpenAI's default: no randomness */
    q->sampling.temperature = 0;
    refuse_members(x);
    if (!x->in.failed && !read_sound(x, q)) return;
    read_choice(&x->in, &x->body, "response_format", formats, &form);
    if (!read_variables(x, q, translate, form >= FORM_VERBOSE, named)) return;
    params_numbers(&x->in, &x->body, SAMPLING_BY_OPENAI, q);
    params_max_tokens(x, &x->body, "max_tokens", q);
    read_bool(&x->in, &x->body, "stream", &stream);
    if (stream && form >= FORM_VERBOSE) {
        node at = node_get(&x->body, "response_format");
        reader_fail(&x->in, &at, "with times comes whole, without stream");
    }
    if (x->in.failed) {
        exchange_reject(x);
        return;
    }
    transcribe_state *s = calloc(1, sizeof *s);
    x->state = s;
    x->state_free = s ? state_free : NULL;
    if (!s || !collect_init(&s->answer, 1)) {
        exchange_error_nomem(x);
        return;
    }
    s->stream = stream;
    s->translate = translate;
    s->form = form;
    memcpy(s->language, named, sizeof s->language);
    if (q->n_blobs == 1 && sound_count(q->blobs[0].data, q->blobs[0].len, &n, &e) == 0)
        s->seconds = (double)n / SOUND_RATE;
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = HOST_KEEP_DEFAULT,
                                      .requests = q,
                                      .n_requests = 1,
                                      .stream_type = stream ? "text/event-stream" : NULL,
                                      .on_event = on_event,
                                      .on_over = stream_over,
                                      .on_reply = reply_whole });
}

void openai_transcribe(exchange *x) { ask(x, false); }

void openai_translate(exchange *x) { ask(x, true); }
