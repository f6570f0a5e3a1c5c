/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Go's templates, as far as plain Modelfiles use them:
 *
 *   {{ if .System }} A {{ .System }} B {{ end }} {{ if .Prompt }} C {{ .Prompt }} D {{ end }} E {{ .Response }} F
 *
 * where A to F are texts and each if may be missing. Text in front of a bare .Prompt is C, text behind the last `end`
 * (or .Prompt) is E. They become a loop over the messages; a missing .System means that the system prompt is not shown,
 * as there. Minus signs trim white space, as in Go. Templates with .Messages: modelfile_go_messages.c.
 */
#include "registry/modelfile_params.h"

#include <string.h>

typedef enum token { TEXT, IF_SYSTEM, IF_PROMPT, SYSTEM, PROMPT, RESPONSE, END, OVER, BAD } token;

typedef struct lexer {
    const char *at;
    bool        trim; /* the action before asked for it */
} lexer;

static token action(view v) {
    static const struct {
        const char *text;
        token       token;
    } known[] = {
        { "if .System", IF_SYSTEM }, { "if .Prompt", IF_PROMPT }, { ".System", SYSTEM },
        { ".Prompt", PROMPT },       { ".Response", RESPONSE },   { "end", END },
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (view_eq_c(v, known[i].text)) return known[i].token;
    }
    return BAD;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static token next(lexer *l, view *text) {
    const char *open = strstr(l->at, "{{"), *from = l->at;
    const char *stop = open ? open : from + strlen(from);
    if (l->trim) {
        while (from < stop && is_space(*from)) from++;
    }
    if (open && open[2] == '-') {
        while (stop > from && is_space(stop[-1])) stop--;
    }
    if (stop > from) {
        *text = (view){ from, (size_t)(stop - from) };
        l->at = open ? open : stop;
        l->trim = false;
        return TEXT;
    }
    if (!open) return OVER;
    const char *begin = open + 2 + (open[2] == '-'), *close = strstr(begin, "}}");
    if (!close) return BAD;
    l->at = close + 2;
    l->trim = close > begin && close[-1] == '-';
    if (l->trim) close--;
    while (begin < close && is_space(*begin)) begin++;
    while (close > begin && is_space(close[-1])) close--;
    return action((view){ begin, (size_t)(close - begin) });
}

typedef struct shape {
    view before_system, after_system, before_prompt, after_prompt, before_answer, after_answer;
    bool system, prompt, answer;
} shape;

/* Texts may come in two pieces around an action that is not there: only one is taken. */
static bool block(lexer *l, token inner, view *before, view *after) {
    token t;
    view  v;
    *before = *after = (view){ "", 0 };
    if ((t = next(l, &v)) == TEXT) {
        *before = v;
        t = next(l, &v);
    }
    if (t != inner) return false;
    if ((t = next(l, &v)) == TEXT) {
        *after = v;
        t = next(l, &v);
    }
    return t == END;
}

static bool read_shape(const char *text, shape *s) {
    lexer l = { text, false };
    view  v, held = { "", 0 };
    memset(s, 0, sizeof *s);
    s->after_prompt = s->before_answer = s->after_answer = s->before_prompt = held;
    for (;;) {
        token t = next(&l, &v);
        switch (t) {
        case TEXT:
            if (s->answer)
                s->after_answer = v;
            else if (held.len)
                return false;
            else
                held = v;
            break;
        case IF_SYSTEM:
            if (s->system || s->prompt || s->answer || held.len) return false;
            s->system = true;
            if (!block(&l, SYSTEM, &s->before_system, &s->after_system)) return false;
            break;
        case IF_PROMPT:
            if (s->prompt || s->answer || held.len) return false;
            s->prompt = true;
            if (!block(&l, PROMPT, &s->before_prompt, &s->after_prompt)) return false;
            break;
        case PROMPT:
            if (s->prompt || s->answer) return false;
            s->prompt = true;
            s->before_prompt = held;
            held = (view){ "", 0 };
            break;
        case RESPONSE:
            if (s->answer) return false;
            s->answer = true;
            s->before_answer = held;
            held = (view){ "", 0 };
            break;
        case OVER:
            if (!s->answer) s->before_answer = held;
            return s->prompt;
        default: return false;
        }
    }
}

/* A text as a Jinja string: such texts may hold anything but our own markers must not be read as code. */
void modelfile_go_text(str *out, view v) {
    str_puts(out, "{{ '");
    for (size_t i = 0; i < v.len; i++) {
        if (v.data[i] == '\'' || v.data[i] == '\\')
            str_printf(out, "\\%c", v.data[i]);
        else if (v.data[i] == '\n')
            str_puts(out, "\\n");
        else
            str_push(out, v.data[i]);
    }
    str_puts(out, "' }}");
}

static void put_turn(str *out, view before, view after) {
    if (before.len) modelfile_go_text(out, before);
    str_puts(out, "{{ message['content'] }}");
    if (after.len) modelfile_go_text(out, after);
}

bool modelfile_go_template(const char *text, str *out) {
    shape  s;
    size_t before = out->len;
    if (modelfile_go_messages(text, out)) return true;
    out->len = before;
    if (out->data) out->data[before] = '\0';
    if (!read_shape(text, &s)) return false;
    str_puts(out, "{% for message in messages %}");
    if (s.system) {
        str_puts(out, "{% if message['role'] == 'system' %}");
        put_turn(out, s.before_system, s.after_system);
        str_puts(out, "{% endif %}");
    }
    str_puts(out, "{% if message['role'] == 'user' %}");
    put_turn(out, s.before_prompt, s.after_prompt);
    str_puts(out, "{% endif %}{% if message['role'] == 'assistant' %}");
    put_turn(out, s.before_answer, s.after_answer);
    str_puts(out, "{% endif %}{% endfor %}{% if add_generation_prompt %}");
    if (s.before_answer.len) modelfile_go_text(out, s.before_answer);
    str_puts(out, "{% endif %}");
    return true;
}
