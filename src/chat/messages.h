/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages as clients send them, made into what a template was written for.
 *
 * Clients differ (arguments as a JSON text or as an object, ids or none, content as text or as parts, thoughts under
 * four names), templates differ as well. What a template wants is read off its text and off a rendering with a call
 * made for the purpose. A message that cannot be rendered is refused with its number.
 */
#ifndef CHAT_MESSAGES_H
#define CHAT_MESSAGES_H

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "chat/chat.h"
#include "chat/format.h"
#include "chat/turns.h"

#include <stdbool.h>

/* What a template wants. */
typedef struct chat_wants {
    bool              string_arguments; /* arguments as JSON text; else as an object */
    bool              null_content;     /* a message with calls is shown only without content (DeepSeek-R1) */
    bool              single_calls;  /* one call per message: several become several messages, each with its result */
    bool              short_ids;     /* ids of calls have nine letters or digits */
    bool              calls_as_text; /* the template leaves calls out: they are written into the content */
    bool              developer;     /* knows the role */
    bool              thinking, reasoning, reasoning_content, thought; /* names of an earlier message's thoughts */
    bool              one_of_content_or_thoughts;                      /* gpt-oss: a call with both is refused */
    bool              pictures, sounds; /* shows parts of the type "image" or "audio" itself */
    chat_system_place system;
    view              source;
} chat_wants;

/* A conversation with one call, for finding out what a template wants; text: arguments are a JSON text; null: the
 * call's message has content null instead of "". */
const char *chat_probe_messages(bool text, bool null);
/* The same with two calls in one message. */
const char *chat_probe_two_calls(bool text, bool null);
#define CHAT_PROBE_SECOND "probe_second" /* stands in the second call */
/* What its renderings say: object and text with "", object and text with null. NULL: the rendering failed. */
void chat_wants_find(chat_wants *w, view source, const char *const probes[4]);

int chat_messages_fit(const chat_wants *w, const chat_format *f, const chat_media *media, const json_value *in,
                      const json_value **out, arena *a, err *e);

#endif
