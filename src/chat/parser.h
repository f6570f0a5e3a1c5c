/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a model's text to content, thoughts and tool calls, while it is being written.
 *
 * Text may arrive cut anywhere, also inside a character or a marker: the joined events are the same for every cut.
 * What could be the beginning of a marker is held back until it is decided, so no part of a marker is ever content.
 *
 * Rules:
 * - White space around a block of thoughts and around calls is not content. Content that goes on behind a call keeps
 *   the white space that stood in front of the call.
 * - A call counts when it is complete, well formed and names a tool that was offered; its arguments are then one JSON
 *   object, also where the syntax writes something else (the tool's schema says which values are strings).
 * - Anything else that began like a call is given back as content, byte for byte: nothing the model said is lost.
 * - Where the answer was cut off (finish with `cut`) within a call, what there is of it is a call once its name is
 *   known: it ends in CHAT_TOOL_CUT, and its arguments are the beginning of a JSON object, perhaps nothing. Cut off in
 *   front of that, also within the marker, it is dropped: what the model would have made of it is a call, not a text.
 * - With stream_arguments a call is announced as soon as its name is known and its arguments follow in pieces; a call
 *   that breaks then ends in CHAT_TOOL_FAILED (forget it) and its text arrives as content. Without it calls are
 *   reported when they are complete or cut off, and CHAT_TOOL_FAILED never comes. Syntaxes that cannot be streamed
 *   (Mistral with an id at the end, LFM2, Gemma 4) do so in both modes. What is told in the end is the same.
 *
 * End-of-turn tokens must not be part of the text; marker tokens must.
 */
#ifndef CHAT_PARSER_H
#define CHAT_PARSER_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "chat/format.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum chat_part {
    CHAT_CONTENT,        /* text */
    CHAT_REASONING,      /* text */
    CHAT_TOOL_BEGIN,     /* index, name, id (empty: the syntax has none, the caller makes one) */
    CHAT_TOOL_ARGUMENTS, /* index, text: a further piece of the JSON object */
    CHAT_TOOL_END,       /* index */
    CHAT_TOOL_CUT,       /* index; instead of the end, and the last event of the answer */
    CHAT_TOOL_FAILED,    /* index; only with stream_arguments */
} chat_part;

typedef struct chat_event {
    chat_part part;
    int       index; /* of the call, from 0; -1 for text */
    view      text, name, id;
} chat_event;

typedef void (*chat_sink)(void *ctx, const chat_event *ev); /* the event's texts are valid during the call only */

typedef struct chat_parser_options {
    const json_value *tools; /* as the request offered them, OpenAI's form; NULL or empty: no call is recognised.
                                 Borrowed for the parser's life. */
    bool              starts_in_reasoning; /* the prompt ends inside a block of thoughts */
    bool              plain_reasoning;     /* thoughts and their markers are content, as they stand */
    bool              stream_arguments;
} chat_parser_options;

typedef struct chat_parser chat_parser;

int  chat_parser_open(chat_parser **out, const chat_format *f, const chat_parser_options *o, chat_sink sink, void *ctx,
                      err *e);
int  chat_parser_feed(chat_parser *p, const char *text, size_t bytes, err *e); /* fails only when memory is out */
int  chat_parser_finish(chat_parser *p, bool cut, err *e); /* once, at the end of the answer; cut: by a limit */
int  chat_parser_calls(const chat_parser *p);              /* complete calls so far */
bool chat_parser_in_reasoning(const chat_parser *p);       /* where the next text would belong */
void chat_parser_free(chat_parser *p);                     /* accepts NULL */

#endif
