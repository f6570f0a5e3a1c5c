/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose arguments are JSON, and calls that are read as a whole. See parse.h. */
#include "chat/parse.h"
#include "chat/partial.h"

#include <string.h>

/* --- a call's life --- */

void chat_call_clear(chat_parser *p) {
    p->announced = p->scanning = p->has_name = p->has_arguments = p->quoted = false;
    p->sent = 0;
    p->member = 0;
    p->schema = NULL;
    str_clear(&p->name);
    str_clear(&p->id);
    str_clear(&p->arguments);
}

static void announce(chat_parser *p) {
    chat_event ev = { .part = CHAT_TOOL_BEGIN,
                      .index = p->index,
                      .name = { str_cstr(&p->name), p->name.len },
                      .id = { str_cstr(&p->id), p->id.len } };
    p->sink(p->ctx, &ev);
    p->announced = true;
}

bool chat_call_begin(chat_parser *p, bool stream) {
    const json_value *f = chat_tool_find(p->o.tools, (view){ str_cstr(&p->name), p->name.len });
    if (!f) return false;
    p->schema = chat_tool_schema(f);
    p->has_name = true;
    if (stream && p->o.stream_arguments && !p->announced) announce(p);
    return true;
}

static void send_arguments(chat_parser *p, size_t end) {
    if (end <= p->sent) return;
    chat_event ev = { .part = CHAT_TOOL_ARGUMENTS,
                      .index = p->index,
                      .text = { p->arguments.data + p->sent, end - p->sent } };
    p->sink(p->ctx, &ev);
    p->sent = end;
}

void chat_call_flush(chat_parser *p) {
    if (!p->announced || p->arguments.len <= p->sent) return;
    send_arguments(p, p->sent + chat_whole_chars(p->arguments.data + p->sent, p->arguments.len - p->sent));
}

void chat_call_end(chat_parser *p) {
    if (!p->announced) announce(p);
    send_arguments(p, p->arguments.len);
    chat_event ev = { .part = CHAT_TOOL_END, .index = p->index };
    p->sink(p->ctx, &ev);
    p->index++;
    p->n_calls++;
    chat_call_clear(p);
}

/* Arguments that are not an object, or not yet: one that is quoted, or what its unfinished string says so far. */
static void cut_arguments(chat_parser *p) {
    char first = p->arguments.len ? p->arguments.data[0] : '{';
    if (first == '{') return;
    str_clear(&p->value);
    if (first == '"') chat_json_string_begun((view){ p->arguments.data, p->arguments.len }, &p->value);
    str_clear(&p->arguments);
    chat_json_begun((view){ p->value.data, p->value.len }, &p->arguments);
    if (p->arguments.len && p->arguments.data[0] != '{') str_clear(&p->arguments);
}

bool chat_call_cut(chat_parser *p) {
    if (!p->has_name) return false;
    if (p->entry >= CHAT_TAGS_BEGIN && p->entry < CHAT_WHOLE_BEGIN)
        chat_tags_cut(p);
    else
        cut_arguments(p);
    if (p->value.failed || p->arguments.failed) { /* clearing would forget it */
        p->nomem = true;
        return true;
    }
    if (!p->announced) announce(p);
    chat_call_flush(p);
    chat_event ev = { .part = CHAT_TOOL_CUT, .index = p->index++ };
    p->sink(p->ctx, &ev);
    chat_call_clear(p);
    return true;
}

/* --- JSON --- */

/* Reads one JSON value; with arguments, what is there is sent on while it is read. */
chat_step chat_scan_value(chat_parser *p, str *out, bool arguments) {
    if (!p->scanning) {
        chat_json_scan_init(&p->js);
        str_clear(out);
        p->scanning = true;
    }
    chat_scan r = CHAT_SCAN_MORE;
    while (p->cur < p->buf.len && r == CHAT_SCAN_MORE) r = chat_json_scan_byte(&p->js, p->buf.data[p->cur++], out);
    if (r == CHAT_SCAN_BAD) return CHAT_STEP_FAIL;
    if (r == CHAT_SCAN_BEFORE) p->cur--;
    if (arguments) chat_call_flush(p);
    if (r == CHAT_SCAN_MORE && !(p->eof && chat_json_scan_complete(&p->js))) return CHAT_STEP_MORE;
    p->scanning = false;
    return CHAT_STEP_ON;
}

static bool decode_string(const str *quoted, str *out) {
    const json_value *v;
    arena             a;
    arena_init(&a, 0);
    int  rc = json_parse(&v, str_cstr(quoted), quoted->len, &a, NULL);
    bool ok = rc == 0 && json_is(v, JSON_K_STRING);
    str_clear(out);
    out->failed = rc == ERR_NOMEM;
    if (ok) str_append(out, v->u.string.data, v->u.string.len);
    arena_deinit(&a);
    return ok;
}

/* Arguments that are an object, an object written as a string, or nothing. */
static bool settle_arguments(chat_parser *p) {
    if (!p->has_arguments) {
        str_puts(&p->arguments, "{}");
        return true;
    }
    if (p->js.kind == '{') return true;
    if (p->js.kind == 'n') {
        str_clear(&p->arguments);
        str_puts(&p->arguments, "{}");
        return true;
    }
    if (p->js.kind != '"' || !decode_string(&p->arguments, &p->value)) return false;
    chat_json_scan s;
    chat_scan      r = CHAT_SCAN_MORE;
    chat_json_scan_init(&s);
    str_clear(&p->arguments);
    for (size_t i = 0; i < p->value.len && r == CHAT_SCAN_MORE; i++)
        r = chat_json_scan_byte(&s, p->value.data[i], &p->arguments);
    return r == CHAT_SCAN_DONE && s.kind == '{';
}

enum { M_OTHER, M_NAME, M_ARGUMENTS, M_ID };

static int member_of(const chat_parser *p) {
    const chat_syntax_row *r = p->f.row;
    const char            *k = str_cstr(&p->key);
    if (r->syntax == CHAT_SYNTAX_APERTUS) return M_ARGUMENTS;
    if (r->key_id && strcmp(k, r->key_id) == 0) return M_ID;
    if ((r->key_name && strcmp(k, r->key_name) == 0) || strcmp(k, "name") == 0) return M_NAME;
    if (strcmp(k, "arguments") == 0 || strcmp(k, "parameters") == 0) return M_ARGUMENTS;
    return M_OTHER;
}

enum { J_BEGIN = CHAT_JSON_BEGIN, J_ITEM, J_KEY, J_KEY_TEXT, J_COLON, J_VALUE, J_COMMA, J_SEP, J_CLOSE };

static char look(chat_parser *p) { return p->cur < p->buf.len ? p->buf.data[p->cur] : '\0'; }

static chat_step key_done(chat_parser *p) {
    if (!decode_string(&p->value, &p->key)) return CHAT_STEP_FAIL;
    p->member = member_of(p);
    if (p->f.row->syntax == CHAT_SYNTAX_APERTUS) {
        if (p->has_name) return CHAT_STEP_FAIL;
        str_clear(&p->name);
        str_append(&p->name, p->key.data, p->key.len);
        if (!chat_call_begin(p, true)) return CHAT_STEP_FAIL;
    }
    if (p->member == M_OTHER && p->f.row->shape == CHAT_SHAPE_BARE && strcmp(str_cstr(&p->key), "type") != 0 &&
        strcmp(str_cstr(&p->key), "id") != 0)
        return CHAT_STEP_FAIL; /* an answer in JSON, not a call: it need not be held back any longer */
    if (p->member == M_ARGUMENTS && p->has_arguments) return CHAT_STEP_FAIL;
    p->entry = J_COLON;
    return CHAT_STEP_ON;
}

static chat_step value_step(chat_parser *p) {
    chat_step r;
    if (p->member == M_ARGUMENTS) {
        if (!p->scanning && p->has_name && !p->announced && p->f.row->syntax != CHAT_SYNTAX_MISTRAL) {
            chat_skip_space(p);
            if (p->cur == p->buf.len) return CHAT_STEP_MORE;
            if (look(p) == '{' && !chat_call_begin(p, true)) return CHAT_STEP_FAIL;
        }
        r = chat_scan_value(p, &p->arguments, true);
        if (r != CHAT_STEP_ON) return r;
        p->has_arguments = true;
        /* The kind is needed at the object's end; later members use the scanner again. */
        if (!settle_arguments(p)) return CHAT_STEP_FAIL;
    } else {
        r = chat_scan_value(p, &p->value, false);
        if (r != CHAT_STEP_ON) return r;
        if (p->member == M_NAME) {
            if (p->has_name || !decode_string(&p->value, &p->name) || !chat_call_begin(p, false)) return CHAT_STEP_FAIL;
        } else if (p->member == M_ID) {
            if (!decode_string(&p->value, &p->id)) { /* a number is as good */
                str_clear(&p->id);
                str_append(&p->id, p->value.data, p->value.len);
            }
        }
    }
    p->entry = J_COMMA;
    return CHAT_STEP_ON;
}

static chat_step object_end(chat_parser *p) {
    if (!p->has_name || (!p->has_arguments && p->f.row->shape == CHAT_SHAPE_BARE)) return CHAT_STEP_FAIL;
    if (!p->has_arguments && !settle_arguments(p)) return CHAT_STEP_FAIL;
    chat_call_end(p);
    p->entry = J_SEP;
    return CHAT_STEP_ON;
}

/* Between two objects: a list needs commas; without one, objects may simply follow each other. */
static chat_step separator_step(chat_parser *p) {
    chat_skip_space(p);
    char c = look(p);
    if (p->cur == p->buf.len && !p->eof) return CHAT_STEP_MORE;
    bool next = p->list ? c == ',' : c == '{' || (c == ';' && p->f.row->shape == CHAT_SHAPE_BARE);
    if (next) {
        if (c != '{') p->cur++;
        p->entry = J_ITEM;
    } else {
        if (p->list && c == ']') p->cur++;
        p->entry = J_CLOSE;
    }
    return CHAT_STEP_ON;
}

/* The closing marker, if it is there: calls that are complete count without it. */
chat_step chat_read_close(chat_parser *p, const char *close) {
    size_t start = p->cur;
    if (!close) return CHAT_STEP_ON;
    chat_skip_space(p);
    if (p->cur == p->buf.len) return p->eof ? CHAT_STEP_ON : CHAT_STEP_MORE;
    chat_step r = chat_read_literal(p, close);
    if (r == CHAT_STEP_MORE && !p->eof) return r;
    if (r != CHAT_STEP_ON) {
        size_t have = p->buf.len - p->cur;
        if (p->eof && have < strlen(close) && memcmp(p->buf.data + p->cur, close, have) == 0)
            p->cur = p->buf.len;
        else
            p->cur = start;
    }
    return CHAT_STEP_ON;
}

static chat_step close_step(chat_parser *p) {
    return chat_read_close(p, p->f.row->close) == CHAT_STEP_MORE ? CHAT_STEP_MORE : CHAT_STEP_DONE;
}

chat_step chat_json_step(chat_parser *p) {
    char c;
    switch (p->entry) {
    case J_BEGIN:
    case J_ITEM:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        c = look(p);
        if (p->entry == J_BEGIN) p->list = c == '[' && p->f.row->shape != CHAT_SHAPE_BARE;
        if (p->entry == J_BEGIN && p->list) {
            p->cur++;
            p->entry = J_ITEM;
            return CHAT_STEP_ON;
        }
        if (c != '{') return CHAT_STEP_FAIL;
        p->cur++;
        chat_call_clear(p);
        p->entry = J_KEY;
        return CHAT_STEP_ON;
    case J_KEY:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        if (look(p) != '"') return CHAT_STEP_FAIL;
        p->entry = J_KEY_TEXT;
        return CHAT_STEP_ON;
    case J_KEY_TEXT: {
        chat_step r = chat_scan_value(p, &p->value, false);
        return r == CHAT_STEP_ON ? key_done(p) : r;
    }
    case J_COLON:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        if (p->buf.data[p->cur++] != ':') return CHAT_STEP_FAIL;
        p->entry = J_VALUE;
        return CHAT_STEP_ON;
    case J_VALUE: return value_step(p);
    case J_COMMA:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        c = p->buf.data[p->cur++];
        if (c == '}') return object_end(p);
        p->entry = J_KEY;
        return c == ',' ? CHAT_STEP_ON : CHAT_STEP_FAIL;
    case J_SEP: return separator_step(p);
    default: return close_step(p);
    }
}

/* --- a name, a separator, JSON --- */

enum {
    N_SECTION = CHAT_NAME_SECTION,
    N_CALL = CHAT_NAME_CALL,
    N_PLAIN = CHAT_NAME_PLAIN,
    N_ID,
    N_FENCED_NAME,
    N_FENCE,
    N_ARGUMENTS,
    N_TAIL,
};

/* Kimi's name is "functions.f:0", which is the call's id as well. */
static void kimi_name(chat_parser *p) {
    view v = { str_cstr(&p->name), p->name.len };
    if (v.len == 0) return;
    str_clear(&p->id);
    str_append(&p->id, v.data, v.len);
    if (view_starts(v, "functions.")) v.data += 10, v.len -= 10;
    size_t n = v.len;
    while (n > 0 && v.data[n - 1] >= '0' && v.data[n - 1] <= '9') n--;
    if (n > 0 && n < v.len && v.data[n - 1] == ':') v.len = n - 1;
    memmove(p->name.data, v.data, v.len);
    p->name.len = v.len;
    p->name.data[v.len] = '\0';
}

static chat_step name_done(chat_parser *p, bool stream) {
    if (!chat_call_begin(p, stream)) return CHAT_STEP_FAIL;
    p->entry = N_ARGUMENTS;
    return CHAT_STEP_ON;
}

/* Behind [TOOL_CALLS]: a name up to [ARGS], [CALL_ID] or the arguments; or the older list of objects. */
static chat_step plain_name_step(chat_parser *p) {
    static const chat_mark ends[] = { { "[ARGS]", 6, CHAT_MARK_CALL, 0 },
                                      { "[CALL_ID]", 9, CHAT_MARK_CALL, 0 },
                                      { "{", 1, CHAT_MARK_CALL, 0 } };
    size_t                 at, which = 0;
    chat_skip_space(p);
    if (p->cur == p->buf.len) return CHAT_STEP_MORE;
    if (look(p) == '[' || look(p) == '{') {
        p->entry = CHAT_JSON_BEGIN;
        return CHAT_STEP_ON;
    }
    bool found = chat_find(p, p->cur, ends, 3, &at, &which);
    if (at - p->cur > CHAT_MAX_NAME) return CHAT_STEP_FAIL;
    if (!found) return CHAT_STEP_MORE;
    size_t n = at - p->cur;
    while (n > 0 && (p->buf.data[p->cur + n - 1] == ' ' || p->buf.data[p->cur + n - 1] == '\n')) n--;
    str_clear(&p->name);
    str_append(&p->name, p->buf.data + p->cur, n);
    p->cur = at + (which == 2 ? 0 : ends[which].len);
    if (which != 1) return name_done(p, true);
    p->entry = N_ID;
    return CHAT_STEP_ON;
}

static chat_step section_step(chat_parser *p) {
    chat_skip_space(p);
    if (p->cur == p->buf.len) return p->eof && p->n_calls > p->first_call ? CHAT_STEP_DONE : CHAT_STEP_MORE;
    chat_step r = chat_read_literal(p, p->f.row->call_open);
    if (r == CHAT_STEP_ON) {
        chat_call_clear(p);
        p->resume = p->cur;
        p->entry = N_CALL;
        return r;
    }
    if (r == CHAT_STEP_MORE) return r;
    if (p->n_calls == p->first_call) return CHAT_STEP_FAIL; /* a section must hold a call */
    return close_step(p);
}

chat_step chat_name_step(chat_parser *p) {
    const chat_syntax_row *row = p->f.row;
    chat_step              r;
    switch (p->entry) {
    case N_SECTION: return section_step(p);
    case N_CALL:
        if ((r = chat_read_until(p, row->separator, &p->name)) != CHAT_STEP_ON) return r;
        if (row->syntax == CHAT_SYNTAX_KIMI) kimi_name(p);
        if (row->syntax == CHAT_SYNTAX_DEEPSEEK && strcmp(str_cstr(&p->name), "function") == 0 &&
            !chat_tool_find(p->o.tools, view_of("function"))) {
            p->entry = N_FENCED_NAME;
            return CHAT_STEP_ON;
        }
        return name_done(p, true);
    case N_FENCED_NAME:
        if ((r = chat_read_until(p, "\n", &p->name)) != CHAT_STEP_ON) return r;
        p->entry = N_FENCE;
        return CHAT_STEP_ON;
    case N_FENCE:
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        if ((r = chat_read_literal(p, "```json")) != CHAT_STEP_ON) return r;
        p->quoted = true;
        return name_done(p, true);
    case N_PLAIN: return plain_name_step(p);
    case N_ID:
        if ((r = chat_read_until(p, "[ARGS]", &p->id)) != CHAT_STEP_ON) return r;
        return name_done(p, true);
    case N_ARGUMENTS:
        if ((r = chat_scan_value(p, &p->arguments, true)) != CHAT_STEP_ON) return r;
        if (p->js.kind != '{') return CHAT_STEP_FAIL;
        p->list = p->quoted; /* a fence has to be closed */
        chat_call_end(p);
        if (!row->call_close) return CHAT_STEP_DONE;
        p->entry = N_TAIL;
        return CHAT_STEP_ON;
    default: /* N_TAIL: the fence, then the call's end */
        if (p->list) {
            if (chat_read_close(p, "```") == CHAT_STEP_MORE) return CHAT_STEP_MORE;
            p->list = false;
        }
        if (chat_read_close(p, row->call_close) == CHAT_STEP_MORE) return CHAT_STEP_MORE;
        p->entry = N_SECTION;
        return CHAT_STEP_ON;
    }
}

/* --- calls that are read when they are complete: LFM2, Gemma 4 --- */

static bool check_name(void *ctx, view name, view arguments) {
    (void)arguments;
    return chat_tool_find(((chat_parser *)ctx)->o.tools, name) != NULL;
}

static void take_call(chat_parser *p, view name, view arguments) {
    chat_call_clear(p);
    str_append(&p->name, name.data, name.len);
    str_append(&p->arguments, arguments.data, arguments.len);
}

static bool report_call(void *ctx, view name, view arguments) {
    take_call(ctx, name, arguments);
    chat_call_end(ctx);
    return true;
}

static bool report_begun(void *ctx, view name, view arguments) {
    chat_parser *p = ctx;
    take_call(p, name, arguments);
    p->has_name = true;
    return true;
}

/* The answer was cut off: calls that are complete are reported, the last one is left to chat_call_cut. */
static chat_step whole_cut(chat_parser *p, view text) {
    bool python = p->f.row->shape == CHAT_SHAPE_PYTHON;
    text.len -= chat_begun_marker(text, p->f.row->close, 1);
    if (!(python ? chat_python_begun : chat_gemma_begun)(text, check_name, check_name, p)) return CHAT_STEP_FAIL;
    (void)(python ? chat_python_begun : chat_gemma_begun)(text, report_call, report_begun, p);
    p->cur = p->buf.len;
    return CHAT_STEP_MORE;
}

chat_step chat_whole_step(chat_parser *p) {
    const char *close = p->f.row->close;
    chat_mark   m = { close, strlen(close), CHAT_MARK_CALL, 0 };
    size_t      at, which;
    bool        python = p->f.row->shape == CHAT_SHAPE_PYTHON;
    bool        ok = false, found = true, cut = true;
    view        text = { "", 0 };
    while (!ok && cut && found) { /* an end marker inside a string does not end the call */
        found = chat_find(p, p->probe, &m, 1, &at, &which);
        p->probe = at + (found ? 1 : 0);
        if (!found && !p->eof) return CHAT_STEP_MORE;
        text = (view){ p->buf.data + p->cur, at - p->cur };
        ok = (python ? chat_python_calls : chat_gemma_call)(text, check_name, p, &cut);
    }
    if (!ok && !found && p->cut) return whole_cut(p, text);
    if (!ok) return CHAT_STEP_FAIL;
    p->cur = at + (found ? m.len : 0);
    (void)(python ? chat_python_calls : chat_gemma_call)(text, report_call, p, &cut);
    return CHAT_STEP_DONE;
}
