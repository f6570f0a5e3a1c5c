/* SPDX-License-Identifier: Apache-2.0 */
/* The outer machine: where content, thoughts and calls begin and end. See parse.h. */
#include "chat/parser.h"

#include "chat/parse.h"
#include "chat/partial.h"

#include <stdlib.h>
#include <string.h>

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

/* --- reporting --- */

void chat_emit_text(chat_parser *p, chat_part part, const char *text, size_t n) {
    if (n == 0) return;
    if (part == CHAT_CONTENT) {
        p->content_seen = true;
        if (p->gap.len) {
            chat_event gap = { .part = part, .index = -1, .text = { p->gap.data, p->gap.len } };
            p->sink(p->ctx, &gap);
            str_clear(&p->gap);
        }
    }
    chat_event ev = { .part = part, .index = -1, .text = { text, n } };
    p->sink(p->ctx, &ev);
}

/* How many bytes of the text are whole characters; the rest is the beginning of one. */
size_t chat_whole_chars(const char *text, size_t n) {
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)text[n - back];
        if (c < 0x80) return n;
        if (c >= 0xc0) {
            size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            return need > back ? n - back : n;
        }
    }
    return n;
}

/* --- looking for markers --- */

bool chat_find(const chat_parser *p, size_t from, const chat_mark *marks, size_t n, size_t *at, size_t *which) {
    const char *text = p->buf.data;
    size_t      len = p->buf.len;
    for (size_t i = from; i < len; i++) {
        for (size_t k = 0; k < n; k++) {
            if (text[i] != marks[k].text[0]) continue;
            size_t have = len - i < marks[k].len ? len - i : marks[k].len;
            if (memcmp(text + i, marks[k].text, have) != 0) continue;
            if (have == marks[k].len) {
                *at = i;
                *which = k;
                return true;
            }
            if (!p->eof) {
                *at = i;
                return false;
            }
        }
    }
    *at = len;
    return false;
}

chat_step chat_read_literal(chat_parser *p, const char *text) {
    size_t n = strlen(text), have = p->buf.len - p->cur;
    if (have > n) have = n;
    if (memcmp(p->buf.data + p->cur, text, have) != 0) return CHAT_STEP_FAIL;
    if (have < n) return p->eof && !p->cut ? CHAT_STEP_FAIL : CHAT_STEP_MORE;
    p->cur += n;
    return CHAT_STEP_ON;
}

void chat_skip_space(chat_parser *p) {
    while (p->cur < p->buf.len && is_space(p->buf.data[p->cur])) p->cur++;
}

chat_step chat_read_until(chat_parser *p, const char *end, str *out) {
    chat_mark m = { end, strlen(end), CHAT_MARK_CALL, 0 };
    size_t    at, which;
    bool      found = chat_find(p, p->cur, &m, 1, &at, &which);
    if (at - p->cur > CHAT_MAX_NAME) return CHAT_STEP_FAIL;
    if (!found) return p->eof && !p->cut ? CHAT_STEP_FAIL : CHAT_STEP_MORE;
    const char *a = p->buf.data + p->cur, *b = p->buf.data + at;
    while (a < b && is_space(*a)) a++;
    while (b > a && is_space(b[-1])) b--;
    str_clear(out);
    str_append(out, a, (size_t)(b - a));
    p->cur = at + m.len;
    return CHAT_STEP_ON;
}

/* --- states --- */

static void enter(chat_parser *p, chat_state s, size_t at, bool skip) {
    p->state = s;
    p->at = p->scan = p->cur = at;
    p->skip_space = skip;
}

/* Drops white space in front, once; false: there may be more of it. */
static bool skip_front(chat_parser *p) {
    if (!p->skip_space) return true;
    while (p->at < p->buf.len && is_space(p->buf.data[p->at])) p->at++;
    if (p->scan < p->at) p->scan = p->at;
    if (p->at == p->buf.len) return false;
    p->skip_space = false;
    return true;
}

static chat_step start_step(chat_parser *p) {
    const chat_format *f = &p->f;
    bool               inside = p->o.starts_in_reasoning;
    if (p->o.plain_reasoning || !f->think_open) {
        enter(p, CHAT_IN_CONTENT, p->at, false);
        return CHAT_STEP_ON;
    }
    p->cur = p->at;
    chat_skip_space(p);
    if (p->cur == p->buf.len && !p->eof) return CHAT_STEP_MORE;
    chat_step r = chat_read_literal(p, f->think_open);
    if (r == CHAT_STEP_MORE && !p->eof) return r;
    if (r == CHAT_STEP_ON)
        enter(p, CHAT_IN_REASONING, p->cur, true);
    else
        enter(p, inside ? CHAT_IN_REASONING : CHAT_IN_CONTENT, p->at, inside);
    return CHAT_STEP_ON;
}

/* Reports text up to a border; white space at its end waits for what follows. */
static void report(chat_parser *p, chat_part part, size_t limit, bool found, bool hold_space) {
    size_t end = limit;
    if (hold_space) {
        while (end > p->at && is_space(p->buf.data[end - 1])) end--;
    }
    if (!found && !p->eof) end = p->at + chat_whole_chars(p->buf.data + p->at, end - p->at);
    chat_emit_text(p, part, p->buf.data + p->at, end - p->at);
    p->at = end;
    p->scan = limit;
}

static chat_step reasoning_step(chat_parser *p) {
    chat_mark marks[1 + CHAT_MAX_MARKS] = { { p->f.think_close, strlen(p->f.think_close), CHAT_MARK_THINK, 0 } };
    size_t    n = 1, at, which;
    if (p->f.row->special ||
        p->f.think_implicit) { /* such a marker is not a thought: the model has gone on to a call */
        for (size_t i = 0; i < p->n_marks; i++) {
            if (p->marks[i].kind == CHAT_MARK_CALL) marks[n++] = p->marks[i];
        }
    }
    if (!skip_front(p)) return CHAT_STEP_MORE;
    bool found = chat_find(p, p->scan > p->at ? p->scan : p->at, marks, n, &at, &which);
    report(p, CHAT_REASONING, at, found, true);
    if (!found) {
        if (p->eof) p->at = p->buf.len; /* white space at the end of thoughts is not part of them */
        return CHAT_STEP_MORE;
    }
    enter(p, CHAT_IN_CONTENT, which == 0 ? at + marks[0].len : at, true);
    return CHAT_STEP_ON;
}

static void begin_call(chat_parser *p, size_t mark, size_t behind, int entry) {
    p->state = CHAT_IN_CALL;
    p->resume = behind;
    p->cur = p->probe = behind;
    p->scan = mark;
    p->entry = entry;
    p->first_call = p->n_calls;
    chat_call_clear(p);
}

/* An answer that is nothing but a call has no marker: { must be its first character. */
static chat_step bare_step(chat_parser *p) {
    p->cur = p->at;
    chat_skip_space(p);
    if (p->cur == p->buf.len && !p->eof) return CHAT_STEP_MORE;
    p->bare_ok = false;
    if (p->cur < p->buf.len && p->buf.data[p->cur] == '{') begin_call(p, p->cur, p->cur, CHAT_JSON_BEGIN);
    return CHAT_STEP_ON;
}

static void keep_gap(chat_parser *p, size_t from, size_t to) {
    if (p->content_seen && p->gap.len == 0) str_append(&p->gap, p->buf.data + from, to - from);
}

static chat_step content_step(chat_parser *p) {
    size_t at, which = 0;
    if (!skip_front(p)) return CHAT_STEP_MORE;
    if (p->bare_ok) return bare_step(p);
    bool found = chat_find(p, p->scan > p->at ? p->scan : p->at, p->marks, p->n_marks, &at, &which);
    bool hold = p->n_marks > 0 && (found || !p->eof);
    report(p, CHAT_CONTENT, at, found, hold);
    if (!found) return CHAT_STEP_MORE;
    const chat_mark *m = &p->marks[which];
    switch (m->kind) {
    case CHAT_MARK_CALL: begin_call(p, at, at + m->len, m->entry); break;
    case CHAT_MARK_THINK:
        keep_gap(p, p->at, at);
        enter(p, CHAT_IN_REASONING, at + m->len, true);
        break;
    case CHAT_MARK_OPEN:
        if (p->content_seen) chat_emit_text(p, CHAT_CONTENT, p->buf.data + p->at, at - p->at);
        enter(p, CHAT_IN_CONTENT, at + m->len, !p->content_seen);
        break;
    case CHAT_MARK_CLOSE: enter(p, CHAT_IN_CONTENT, at + m->len, true); break;
    }
    return CHAT_STEP_ON;
}

/* What a call is read into. */
static bool nomem(const chat_parser *p) {
    return p->buf.failed || p->gap.failed || p->name.failed || p->id.failed || p->key.failed || p->value.failed ||
           p->arguments.failed;
}

void chat_call_fail(chat_parser *p) {
    if (p->announced) {
        chat_event ev = { .part = CHAT_TOOL_FAILED, .index = p->index++ };
        p->sink(p->ctx, &ev);
    }
    chat_call_clear(p);
}

static chat_step drop_rest(chat_parser *p) {
    enter(p, CHAT_IN_CONTENT, p->buf.len, false);
    return CHAT_STEP_MORE;
}

static chat_step call_step(chat_parser *p) {
    chat_step r;
    int       before = p->n_calls;
    size_t    gap_from = p->at, gap_to = p->scan;
    if (p->entry >= CHAT_WHOLE_BEGIN)
        r = chat_whole_step(p);
    else if (p->entry >= CHAT_TAGS_BEGIN)
        r = chat_tags_step(p);
    else if (p->entry >= CHAT_NAME_SECTION)
        r = chat_name_step(p);
    else
        r = chat_json_step(p);
    if (nomem(p)) { /* before the strings are used for something else: this is not a call that is badly written */
        p->nomem = true;
        return CHAT_STEP_MORE;
    }
    if (p->n_calls > before) {
        if (gap_to > gap_from) keep_gap(p, gap_from, gap_to);
        p->at = p->scan = p->resume = p->cur;
    }
    if (r == CHAT_STEP_MORE && p->eof) {
        /* Without a marker it is a call only when it has named a tool: an answer in JSON begins in the same way. */
        if (p->cut && (chat_call_cut(p) || p->scan < p->resume || p->n_calls > p->first_call)) return drop_rest(p);
        r = CHAT_STEP_FAIL;
    }
    if (r == CHAT_STEP_FAIL) {
        chat_call_fail(p);
        chat_emit_text(p, CHAT_CONTENT, p->buf.data + p->at, p->resume - p->at);
        enter(p, CHAT_IN_CONTENT, p->resume, false);
        r = CHAT_STEP_ON;
    } else if (r == CHAT_STEP_DONE) {
        enter(p, CHAT_IN_CONTENT, p->cur, true);
        r = CHAT_STEP_ON;
    }
    return r;
}

static void run(chat_parser *p) {
    chat_step r = CHAT_STEP_ON;
    while (r == CHAT_STEP_ON && !p->buf.failed && !p->nomem) {
        switch (p->state) {
        case CHAT_AT_START: r = start_step(p); break;
        case CHAT_IN_REASONING: r = reasoning_step(p); break;
        case CHAT_IN_CONTENT: r = content_step(p); break;
        case CHAT_IN_CALL: r = call_step(p); break;
        case CHAT_IN_HARMONY: r = chat_harmony_step(p); break;
        }
    }
}

/* --- the parser's life --- */

static void add_mark(chat_parser *p, const char *text, chat_mark_kind kind, int entry) {
    if (text && p->n_marks < CHAT_MAX_MARKS) p->marks[p->n_marks++] = (chat_mark){ text, strlen(text), kind, entry };
}

static void add_call_marks(chat_parser *p) {
    const chat_syntax_row *r = p->f.row;
    switch (r->shape) {
    case CHAT_SHAPE_JSON:
        /* Qwen's models write both forms behind this marker, and both of Mistral's exist behind theirs. */
        add_mark(p, r->open, CHAT_MARK_CALL,
                 r->syntax == CHAT_SYNTAX_HERMES    ? CHAT_TAGS_BEGIN
                 : r->syntax == CHAT_SYNTAX_MISTRAL ? CHAT_NAME_PLAIN
                                                    : CHAT_JSON_BEGIN);
        break;
    case CHAT_SHAPE_BARE:
        p->bare_ok = true;
        add_mark(p, r->open, CHAT_MARK_CALL, CHAT_JSON_BEGIN);
        break;
    case CHAT_SHAPE_NAME_JSON:
        add_mark(p, r->open, CHAT_MARK_CALL, r->section ? CHAT_NAME_SECTION : CHAT_NAME_PLAIN);
        add_mark(p, r->call_open, CHAT_MARK_CALL, CHAT_NAME_CALL);
        break;
    case CHAT_SHAPE_TAGS:
        add_mark(p, r->open, CHAT_MARK_CALL, CHAT_TAGS_BEGIN);
        add_mark(p, "<function=", CHAT_MARK_CALL, CHAT_TAGS_NAME); /* Qwen's coders forget the outer tag */
        break;
    case CHAT_SHAPE_PAIRS:
    case CHAT_SHAPE_INVOKE: add_mark(p, r->open, CHAT_MARK_CALL, CHAT_TAGS_BEGIN); break;
    case CHAT_SHAPE_PYTHON:
    case CHAT_SHAPE_GEMMA: add_mark(p, r->open, CHAT_MARK_CALL, CHAT_WHOLE_BEGIN); break;
    case CHAT_SHAPE_NONE:
    case CHAT_SHAPE_HARMONY: break;
    }
}

int chat_parser_open(chat_parser **out, const chat_format *f, const chat_parser_options *o, chat_sink sink, void *ctx,
                     err *e) {
    chat_parser *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) return err_set_nomem(e);
    p->f = *f;
    if (!p->f.row) p->f.row = chat_syntax_get(f->syntax);
    p->o = *o;
    p->sink = sink;
    p->ctx = ctx;
    p->tools = json_count(o->tools) > 0;
    p->state = f->syntax == CHAT_SYNTAX_HARMONY ? CHAT_IN_HARMONY : CHAT_AT_START;
    if (p->tools) add_call_marks(p);
    if (f->think_open && f->think_anywhere && !o->plain_reasoning) add_mark(p, f->think_open, CHAT_MARK_THINK, 0);
    add_mark(p, f->content_open, CHAT_MARK_OPEN, 0);
    add_mark(p, f->content_close, CHAT_MARK_CLOSE, 0);
    if (f->syntax == CHAT_SYNTAX_GEMMA4) add_mark(p, "<|tool_response>", CHAT_MARK_CLOSE, 0);
    *out = p;
    return 0;
}

void chat_parser_free(chat_parser *p) {
    if (!p) return;
    str *const all[] = { &p->buf, &p->gap, &p->name, &p->id, &p->key, &p->value, &p->arguments };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) str_deinit(all[i]);
    free(p);
}

static int result(const chat_parser *p, err *e) { return p->nomem || nomem(p) ? err_set_nomem(e) : 0; }

/* What was reported is dropped once it is more than what is kept. */
static void compact(chat_parser *p) {
    if (p->at < 4096 || p->at < p->buf.len / 2) return;
    size_t cut = p->at;
    memmove(p->buf.data, p->buf.data + cut, p->buf.len - cut + 1);
    p->buf.len -= cut;
    size_t *const all[] = { &p->at, &p->scan, &p->cur, &p->resume, &p->probe };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) *all[i] = *all[i] > cut ? *all[i] - cut : 0;
}

int chat_parser_feed(chat_parser *p, const char *text, size_t bytes, err *e) {
    if (bytes == 0) return 0;
    compact(p);
    str_append(&p->buf, text, bytes);
    if (!p->buf.failed) run(p);
    return result(p, e);
}

/* What is held back at the end begins like a call. */
static bool holds_call(const chat_parser *p) {
    if (p->state != CHAT_IN_CONTENT || p->scan < p->at) return false;
    view held = { p->buf.data + p->scan, p->buf.len - p->scan };
    for (size_t i = 0; i < p->n_marks && held.len; i++) {
        const chat_mark *m = &p->marks[i];
        if (m->kind == CHAT_MARK_CALL && chat_begun_marker(held, m->text, CHAT_TOLD_APART) == held.len) return true;
    }
    return false;
}

int chat_parser_finish(chat_parser *p, bool cut, err *e) {
    if (cut && p->buf.len && holds_call(p)) p->buf.len = p->scan;
    if (cut && p->state == CHAT_IN_CALL) p->buf.len = chat_whole_chars(p->buf.data, p->buf.len);
    p->cut = cut;
    p->eof = true;
    if (p->buf.len) run(p);
    return result(p, e);
}

int  chat_parser_calls(const chat_parser *p) { return p->n_calls; }
bool chat_parser_in_reasoning(const chat_parser *p) {
    if (p->state == CHAT_IN_HARMONY) return p->channel == CHAT_REASONING;
    if (p->state == CHAT_AT_START) return p->f.think_open && !p->o.plain_reasoning && p->o.starts_in_reasoning;
    return p->state == CHAT_IN_REASONING;
}
