/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parser's inside, shared by parser.c (content, thoughts, where calls begin) and the files that read calls.
 *
 * Text lies in buf; everything before `at` has been reported. While a call is read, `cur` runs ahead of `at`: when the
 * call fails, the text from `at` to `resume` is given back as content and reading goes on at `resume` as if nothing had
 * been recognised there. Every step looks only at text that is there and answers CHAT_STEP_MORE when its decision could
 * still change with more text; that is why cuts do not matter.
 */
#ifndef CHAT_PARSE_H
#define CHAT_PARSE_H

#include "chat/parser.h"
#include "chat/values.h"

typedef enum chat_step {
    CHAT_STEP_ON,   /* something was read; call again */
    CHAT_STEP_MORE, /* more text is needed; at the end of an answer that was cut off: would be */
    CHAT_STEP_FAIL, /* this is not a call */
    CHAT_STEP_DONE, /* the calls behind this marker are over */
} chat_step;

typedef enum chat_state { CHAT_AT_START, CHAT_IN_REASONING, CHAT_IN_CONTENT, CHAT_IN_CALL, CHAT_IN_HARMONY } chat_state;

typedef enum chat_mark_kind { CHAT_MARK_CALL, CHAT_MARK_THINK, CHAT_MARK_OPEN, CHAT_MARK_CLOSE } chat_mark_kind;

typedef struct chat_mark {
    const char    *text;
    size_t         len;
    chat_mark_kind kind;
    int            entry; /* CHAT_MARK_CALL: where its reader begins */
} chat_mark;

enum {
    CHAT_MAX_MARKS = 8,
    CHAT_MAX_NAME = 512,
    CHAT_TOLD_APART = 3, /* bytes of a marker's beginning: fewer begin too many other things */
};

struct chat_parser {
    chat_format         f;
    chat_parser_options o;
    chat_sink           sink;
    void               *ctx;

    str        buf;
    size_t     at, scan; /* scan: no marker begins in buf[at..scan) */
    chat_state state;
    bool       eof, cut; /* all text is there; the answer was to go on */
    bool       skip_space, content_seen, bare_ok, tools;
    bool       nomem; /* sticky: an allocation failed within a call */
    str        gap;   /* white space in front of calls: content again if content goes on */
    chat_mark  marks[CHAT_MAX_MARKS];
    size_t     n_marks;

    /* the call that is being read */
    size_t            cur, resume, probe;
    int               entry;                      /* the reader's own state */
    int               index, n_calls, first_call; /* first_call: n_calls when the opening marker was read */
    bool              announced, scanning, has_name, has_arguments, list, quoted;
    str               name, id, key, value, arguments;
    size_t            sent;
    chat_json_scan    js;
    int               member;
    unsigned          kinds;
    const json_value *schema;

    /* Harmony */
    int  channel;
    bool wrote[2]; /* a message of content, of thoughts was written before */
    bool join;     /* a line break belongs in front of the next text */
};

/* Where a reader begins; the numbers of one shape do not meet those of another. */
enum {
    CHAT_JSON_BEGIN = 100,
    CHAT_NAME_SECTION = 200, /* behind a section's marker */
    CHAT_NAME_CALL = 201,    /* behind a call's own marker */
    CHAT_NAME_PLAIN = 202,   /* behind [TOOL_CALLS] */
    CHAT_TAGS_BEGIN = 300,
    CHAT_TAGS_NAME = 301, /* behind <function= */
    CHAT_WHOLE_BEGIN = 400,
};

/* parser.c */
void chat_emit_text(chat_parser *p, chat_part part, const char *text, size_t n);
/* The first marker at or behind from. False: none yet, and *at is where one may have begun (the end: nowhere). */
bool      chat_find(const chat_parser *p, size_t from, const chat_mark *marks, size_t n, size_t *at, size_t *which);
chat_step chat_read_literal(chat_parser *p, const char *text);
void      chat_skip_space(chat_parser *p);                            /* moves cur */
chat_step chat_read_until(chat_parser *p, const char *end, str *out); /* a short text, and the end behind it */
size_t    chat_whole_chars(const char *text, size_t n);

/* call.c */
void      chat_call_clear(chat_parser *p);
void      chat_call_fail(chat_parser *p);               /* parser.c: says so if the call was announced */
bool      chat_call_begin(chat_parser *p, bool stream); /* p->name is there; false: no such tool */
void      chat_call_flush(chat_parser *p);              /* sends what arguments there are */
void      chat_call_end(chat_parser *p);
bool      chat_call_cut(chat_parser *p); /* the answer ends within the call; false: its name is not known */
chat_step chat_read_close(chat_parser *p, const char *close); /* the marker, if it is there; ON, or MORE */
chat_step chat_scan_value(chat_parser *p, str *out, bool arguments);
chat_step chat_json_step(chat_parser *p);
chat_step chat_name_step(chat_parser *p);
chat_step chat_whole_step(chat_parser *p);

/* call_tags.c */
chat_step chat_tags_step(chat_parser *p);
void      chat_tags_cut(chat_parser *p); /* what there is of a value that has no end */

/* harmony.c */
chat_step chat_harmony_step(chat_parser *p);

#endif
