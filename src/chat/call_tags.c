/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls written as tags, one per argument: Qwen3-Coder and Seed (<function=f><parameter=a>), GLM (<arg_key>,
 * <arg_value>), MiniMax (<invoke name="f"><parameter name="a">). The tags' texts differ, the machine is one. Values are
 * plain text; the tool's schema says which of them are strings. A string is sent on while it is written.
 */
#include "chat/parse.h"
#include "chat/partial.h"

#include <string.h>

typedef struct tag_style {
    const char *call_open, *name_end, *call_close;
    const char *key_open, *key_end;
    const char *value_open, *value_close; /* value_open NULL: the value begins behind the key */
    bool        line_breaks;              /* one line break in front of a value and one behind it are not part of it */
} tag_style;

/* Where GLM has no tag for a thing its name ends at a line break or at the next tag. */
static const tag_style function_tags = { "<function=", ">",  "</function>",  "<parameter=",
                                         ">",          NULL, "</parameter>", true };
static const tag_style seed_tags = {
    "<function=", ">", "</function>", "<parameter=", ">", NULL, "</parameter>", false
};
static const tag_style glm_tags = { NULL, NULL, NULL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", false };
static const tag_style invoke_tags = { "<invoke name=\"", "\">", "</invoke>", "<parameter name=\"", "\">", NULL,
                                       "</parameter>",    false };

static const tag_style *style_of(const chat_parser *p) {
    switch (p->f.row->shape) {
    case CHAT_SHAPE_PAIRS: return &glm_tags;
    case CHAT_SHAPE_INVOKE: return &invoke_tags;
    default: return p->f.syntax == CHAT_SYNTAX_SEED ? &seed_tags : &function_tags;
    }
}

enum {
    T_BEGIN = CHAT_TAGS_BEGIN,
    T_NAME = CHAT_TAGS_NAME,
    T_BODY,
    T_KEY,
    T_VALUE_OPEN,
    T_VALUE_BEGIN,
    T_VALUE,
    T_NEXT
};

static chat_step begin_step(chat_parser *p, const tag_style *s) {
    chat_skip_space(p);
    if (p->cur == p->buf.len) return CHAT_STEP_MORE;
    if (!s->call_open) {
        p->entry = T_NAME;
        return CHAT_STEP_ON;
    }
    if (s == &function_tags && p->buf.data[p->cur] == '{') {
        p->entry = CHAT_JSON_BEGIN;
        return CHAT_STEP_ON;
    }
    chat_step r = chat_read_literal(p, s->call_open);
    if (r == CHAT_STEP_ON) {
        p->entry = T_NAME;
        p->resume = p->cur;
    }
    return r;
}

/* GLM: "f\n<arg_key>", "f<arg_key>" or "f</tool_call>". */
static chat_step glm_name(chat_parser *p) {
    size_t end = p->cur;
    while (end < p->buf.len && p->buf.data[end] != '<' && p->buf.data[end] != '\n') end++;
    if (end - p->cur > CHAT_MAX_NAME) return CHAT_STEP_FAIL;
    if (end == p->buf.len && (!p->eof || p->cut)) return CHAT_STEP_MORE;
    size_t n = end - p->cur;
    while (n > 0 && (p->buf.data[p->cur + n - 1] == ' ' || p->buf.data[p->cur + n - 1] == '\r')) n--;
    str_clear(&p->name);
    str_append(&p->name, p->buf.data + p->cur, n);
    p->cur = end;
    return CHAT_STEP_ON;
}

static chat_step name_step(chat_parser *p, const tag_style *s) {
    chat_step r = s->name_end ? chat_read_until(p, s->name_end, &p->name) : glm_name(p);
    if (r != CHAT_STEP_ON) return r;
    if (!chat_call_begin(p, true)) return CHAT_STEP_FAIL;
    str_push(&p->arguments, '{');
    p->entry = T_BODY;
    return CHAT_STEP_ON;
}

static chat_step call_done(chat_parser *p, const tag_style *s) {
    str_push(&p->arguments, '}');
    chat_call_end(p);
    p->entry = T_NEXT;
    (void)s;
    return CHAT_STEP_ON;
}

/* Behind the name or a value: another argument, or the end of the call. */
static chat_step body_step(chat_parser *p, const tag_style *s) {
    size_t start = p->cur;
    chat_skip_space(p);
    if (p->cur == p->buf.len) return CHAT_STEP_MORE;
    chat_step r = chat_read_literal(p, s->key_open), r2 = CHAT_STEP_FAIL, r3 = CHAT_STEP_FAIL;
    if (r == CHAT_STEP_ON) {
        p->entry = T_KEY;
        return r;
    }
    if (s->call_close) {
        r2 = chat_read_literal(p, s->call_close);
        if (r2 == CHAT_STEP_ON) return call_done(p, s);
    }
    size_t here = p->cur;
    r3 = chat_read_literal(p, p->f.row->close);
    if (r3 == CHAT_STEP_ON) { /* also where the inner end was forgotten; read again as the outer end */
        p->cur = here;
        return call_done(p, s);
    }
    p->cur = start;
    return r == CHAT_STEP_MORE || r2 == CHAT_STEP_MORE || r3 == CHAT_STEP_MORE ? CHAT_STEP_MORE : CHAT_STEP_FAIL;
}

static chat_step key_step(chat_parser *p, const tag_style *s) {
    chat_step r = chat_read_until(p, s->key_end, &p->key);
    if (r != CHAT_STEP_ON) return r;
    view key = { str_cstr(&p->key), p->key.len };
    if (p->arguments.len > 1) str_puts(&p->arguments, ", ");
    str_put_json(&p->arguments, key.data, key.len);
    str_puts(&p->arguments, ": ");
    p->kinds = chat_param_kinds(p->schema, key);
    p->entry = s->value_open ? T_VALUE_OPEN : T_VALUE_BEGIN;
    return CHAT_STEP_ON;
}

static chat_step value_begin_step(chat_parser *p, const tag_style *s) {
    if (p->cur == p->buf.len) return CHAT_STEP_MORE;
    if (s->line_breaks && p->buf.data[p->cur] == '\n') p->cur++;
    if (p->kinds == CHAT_KIND_STRING) str_push(&p->arguments, '"');
    p->probe = p->cur;
    p->entry = T_VALUE;
    return CHAT_STEP_ON;
}

/* JSON that is not complete: what looks like the end of the value stands inside one of its strings. */
static bool is_unfinished(view text) {
    chat_json_scan s;
    chat_scan      r = CHAT_SCAN_MORE;
    str            copy;
    str_init(&copy);
    chat_json_scan_init(&s);
    for (size_t i = 0; i < text.len && r == CHAT_SCAN_MORE; i++) r = chat_json_scan_byte(&s, text.data[i], &copy);
    str_deinit(&copy);
    return r == CHAT_SCAN_MORE && (s.kind == '{' || s.kind == '[' || s.kind == '"');
}

static chat_step value_step(chat_parser *p, const tag_style *s) {
    chat_mark end = { s->value_close, strlen(s->value_close), CHAT_MARK_CALL, 0 };
    size_t    at, which;
    bool      found = chat_find(p, p->probe > p->cur ? p->probe : p->cur, &end, 1, &at, &which);
    size_t    to = at;
    p->probe = at;
    if (!found && p->cut)
        to -= chat_begun_marker((view){ p->buf.data + p->cur, to - p->cur }, s->value_close, CHAT_TOLD_APART);
    if (s->line_breaks && to > p->cur && p->buf.data[to - 1] == '\n') to--;
    if (p->kinds == CHAT_KIND_STRING) {
        if (!found) to = p->cur + chat_whole_chars(p->buf.data + p->cur, to - p->cur);
        chat_string_to_json((view){ p->buf.data + p->cur, to - p->cur }, &p->arguments);
        p->cur = to;
        chat_call_flush(p);
        if (!found) return CHAT_STEP_MORE;
        str_push(&p->arguments, '"');
    } else {
        if (!found) return CHAT_STEP_MORE;
        if (is_unfinished((view){ p->buf.data + p->cur, to - p->cur })) {
            p->probe = at + 1;
            return CHAT_STEP_ON;
        }
        chat_text_to_json((view){ p->buf.data + p->cur, to - p->cur }, p->kinds, &p->arguments);
        chat_call_flush(p);
    }
    p->cur = at + end.len;
    p->entry = T_BODY;
    return CHAT_STEP_ON;
}

void chat_tags_cut(chat_parser *p) {
    if (p->entry != T_VALUE || p->kinds == CHAT_KIND_STRING) return; /* strings are sent on as they come */
    view text = { p->buf.data + p->cur, p->buf.len - p->cur };
    text.len -= chat_begun_marker(text, style_of(p)->value_close, 1);
    chat_json_begun(text, &p->arguments);
}

/* Behind a call: MiniMax puts several into one section; else the closing marker. */
static chat_step next_step(chat_parser *p, const tag_style *s) {
    size_t start = p->cur;
    if (p->f.row->section) {
        chat_skip_space(p);
        if (p->cur == p->buf.len) return p->eof ? CHAT_STEP_DONE : CHAT_STEP_MORE;
        chat_step r = chat_read_literal(p, s->call_open);
        if (r == CHAT_STEP_MORE) return r;
        if (r == CHAT_STEP_ON) {
            p->entry = T_NAME;
            return r;
        }
        p->cur = start;
    }
    return chat_read_close(p, p->f.row->close) == CHAT_STEP_MORE ? CHAT_STEP_MORE : CHAT_STEP_DONE;
}

chat_step chat_tags_step(chat_parser *p) {
    const tag_style *s = style_of(p);
    chat_step        r;
    switch (p->entry) {
    case T_BEGIN: return begin_step(p, s);
    case T_NAME: return name_step(p, s);
    case T_BODY: return body_step(p, s);
    case T_KEY: return key_step(p, s);
    case T_VALUE_OPEN:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        if ((r = chat_read_literal(p, s->value_open)) == CHAT_STEP_ON) p->entry = T_VALUE_BEGIN;
        return r;
    case T_VALUE_BEGIN: return value_begin_step(p, s);
    case T_VALUE: return value_step(p, s);
    default: return next_step(p, s);
    }
}
