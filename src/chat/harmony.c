/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpt-oss: an answer is a row of messages, each with a channel and perhaps a recipient.
 *
 *     <|channel|>analysis<|message|>thoughts<|end|><|start|>assistant<|channel|>final<|message|>answer
 *     <|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>
 *
 * The recipient may stand in front of the channel as well. The text begins behind "<|start|>assistant" of the prompt; a
 * prompt that already opened a message continues with its text.
 */
#include "chat/parse.h"

#include <string.h>

enum { H_FIRST, H_HEADER, H_TEXT, H_CALL, H_CALL_END };

static const chat_mark ends[] = {
    { "<|end|>", 7, CHAT_MARK_CLOSE, 0 },      { "<|call|>", 8, CHAT_MARK_CLOSE, 0 },
    { "<|return|>", 10, CHAT_MARK_CLOSE, 0 },  { "<|start|>", 9, CHAT_MARK_CLOSE, 0 },
    { "<|channel|>", 11, CHAT_MARK_CLOSE, 0 },
};
enum { N_ENDS = sizeof ends / sizeof *ends };

static void text_begin(chat_parser *p, chat_part channel) {
    p->channel = (int)channel;
    p->entry = H_TEXT;
    p->scan = p->at;
    p->join = p->wrote[channel];
}

/* Two messages of one kind are one text for the reader. */
static void put(chat_parser *p, size_t n) {
    chat_part part = (chat_part)p->channel;
    if (n == 0) return;
    if (p->join) chat_emit_text(p, part, "\n", 1);
    p->join = false;
    p->wrote[part] = true;
    chat_emit_text(p, part, p->buf.data + p->at, n);
    p->at += n;
}

static view header_word(view header, const char *mark) {
    const char *at = memmem(header.data, header.len, mark, strlen(mark));
    if (!at) return (view){ NULL, 0 };
    at += strlen(mark);
    size_t n = 0, left = (size_t)(header.data + header.len - at);
    while (n < left && at[n] != ' ' && at[n] != '<' && at[n] != '\n') n++;
    return (view){ at, n };
}

/* The answer was cut off within a header or behind what there is of a call. */
static chat_step drop_rest(chat_parser *p) {
    p->at = p->buf.len;
    return CHAT_STEP_MORE;
}

/* A header ends at <|message|>. */
static chat_step header_step(chat_parser *p) {
    static const chat_mark message[] = { { "<|message|>", 11, CHAT_MARK_OPEN, 0 },
                                         { "<|end|>", 7, CHAT_MARK_OPEN, 0 } };
    size_t                 at, which;
    bool                   found = chat_find(p, p->at, message, 2, &at, &which);
    if (!found && !p->eof && at - p->at <= CHAT_MAX_NAME) return CHAT_STEP_MORE;
    if (!found && p->cut && at - p->at <= CHAT_MAX_NAME) return drop_rest(p);
    if (!found || which == 1 || at - p->at > CHAT_MAX_NAME) { /* no header at all: it is text */
        text_begin(p, CHAT_CONTENT);
        if (p->buf.len - p->at >= 11 && memcmp(p->buf.data + p->at, "<|channel|>", 11) == 0) {
            put(p, 11); /* else it would be taken for the end of this text */
            p->scan = p->at;
        }
        return CHAT_STEP_ON;
    }
    view header = { p->buf.data + p->at, at - p->at };
    view channel = header_word(header, "<|channel|>"), to = header_word(header, "to=");
    if (to.len > 10 && memcmp(to.data, "functions.", 10) == 0 && p->tools) {
        chat_call_clear(p);
        str_append(&p->name, to.data + 10, to.len - 10);
        if (chat_call_begin(p, true)) {
            p->cur = p->resume = at + 11;
            p->entry = H_CALL;
            p->channel = CHAT_CONTENT;
            return CHAT_STEP_ON;
        }
    }
    if (to.len == 0) { /* with a recipient that nobody offered the header is part of the text */
        p->at = at + 11;
        text_begin(p, view_eq_c(channel, "analysis") && !p->o.plain_reasoning ? CHAT_REASONING : CHAT_CONTENT);
    } else {
        text_begin(p, CHAT_CONTENT);
        put(p, header.len + 11);
        p->scan = p->at;
    }
    return CHAT_STEP_ON;
}

/* Behind a message's end: "<|start|>assistant" and the next header. */
static chat_step next_header(chat_parser *p, size_t at, size_t which) {
    p->at = at + (which == 4 ? 0 : ends[which].len);
    p->cur = p->at;
    if (which != 3 && which != 4) {
        chat_step r;
        chat_skip_space(p);
        if (p->cur == p->buf.len) return p->eof ? CHAT_STEP_DONE : CHAT_STEP_MORE;
        r = chat_read_literal(p, "<|start|>");
        if (r == CHAT_STEP_MORE) return r;
        if (r == CHAT_STEP_ON) p->at = p->cur;
    }
    p->entry = H_HEADER;
    return CHAT_STEP_ON;
}

static chat_step text_step(chat_parser *p) {
    size_t at, which;
    bool   found = chat_find(p, p->scan > p->at ? p->scan : p->at, ends, N_ENDS, &at, &which);
    size_t n = at - p->at;
    if (!found && !p->eof) n = chat_whole_chars(p->buf.data + p->at, n);
    put(p, n);
    p->scan = at;
    if (!found) return CHAT_STEP_MORE;
    /* Decided only when what follows the end is there, so that nothing is read twice. */
    size_t    keep = p->at;
    chat_step r = next_header(p, at, which);
    if (r == CHAT_STEP_MORE) {
        p->at = p->scan = keep;
        return r;
    }
    if (r == CHAT_STEP_DONE) p->at = p->buf.len;
    return r == CHAT_STEP_DONE ? CHAT_STEP_MORE : r;
}

static chat_step call_step(chat_parser *p) {
    chat_step r = chat_scan_value(p, &p->arguments, true);
    if (r == CHAT_STEP_MORE && p->eof && p->cut && chat_call_cut(p)) return drop_rest(p);
    if (r == CHAT_STEP_MORE && p->eof) r = CHAT_STEP_FAIL;
    if (r == CHAT_STEP_MORE) return r;
    if (r == CHAT_STEP_ON && p->js.kind == '{') {
        chat_call_end(p);
        p->at = p->cur;
        p->entry = H_CALL_END;
        return CHAT_STEP_ON;
    }
    chat_call_fail(p);
    text_begin(p, CHAT_CONTENT);
    put(p, p->resume - p->at);
    p->scan = p->at;
    return CHAT_STEP_ON;
}

chat_step chat_harmony_step(chat_parser *p) {
    chat_step r;
    if (p->at == p->buf.len) return CHAT_STEP_MORE;
    switch (p->entry) {
    case H_FIRST:
        /* <|channel|>, <|start|>assistant or " to="; anything else continues a message that the prompt began. */
        if (p->buf.data[p->at] == '<' || p->buf.data[p->at] == ' ') {
            static const char *const begins[] = { "<|channel|>", "<|start|>", " to=" };
            bool                     more = false;
            for (size_t i = 0; i < 3; i++) {
                p->cur = p->at;
                r = chat_read_literal(p, begins[i]);
                if (r == CHAT_STEP_MORE) more = true;
                if (r != CHAT_STEP_ON) continue;
                if (i == 1) p->at = p->cur;
                p->entry = H_HEADER;
                return r;
            }
            if (more && !p->eof) return CHAT_STEP_MORE;
        }
        text_begin(p, p->o.starts_in_reasoning && !p->o.plain_reasoning ? CHAT_REASONING : CHAT_CONTENT);
        return CHAT_STEP_ON;
    case H_HEADER: return header_step(p);
    case H_TEXT: return text_step(p);
    case H_CALL: return call_step(p);
    default: /* H_CALL_END: white space and the end marker */
        p->cur = p->at;
        chat_skip_space(p);
        if (p->cur == p->buf.len) return CHAT_STEP_MORE;
        p->at = p->cur;
        text_begin(p, CHAT_CONTENT);
        return CHAT_STEP_ON;
    }
}
