/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations: messages and tools become the exact prompt tokens that the model was trained on.
 *
 * A chat holds the tokenizer and the template of one model; it is immutable once open and may be used by several
 * threads. The template's text is tokenized with special tokens recognised. A begin token that the tokenizer adds is
 * put in front unless the template wrote it already. A model without a usable template opens too: chat_encode works,
 * chat_prompt says why it does not.
 */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "chat/format.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct chat chat;

typedef struct chat_input {
    const json_value *messages;  /* an array of objects with role and content */
    const json_value *tools;     /* an array, or NULL */
    const json_value *variables; /* an object with further template variables (enable_thinking, ...), or NULL */
    bool              add_generation_prompt;
    bool              continue_final; /* the last message is not over: the prompt ends with its content */
    tmpl_clock        now;            /* what strftime_now() shows */
} chat_input;

typedef struct chat_tokens {
    str     text; /* the rendered prompt */
    tok_ids ids;
    int32_t marks[1]; /* rising positions where later requests are likely to branch: the end of the last message */
    size_t  n_marks;
} chat_tokens;

int  chat_open(chat **out, const char *path, err *e); /* a GGUF or a model directory */
void chat_free(chat *c);                              /* accepts NULL */

/* How this model answers, found from its template (the one for tools, if it has two). */
const chat_format *chat_answer_format(const chat *c);

const tok  *chat_tokenizer(const chat *c);
const char *chat_template_origin(const chat *c);            /* NULL: the model has no template */
bool        chat_uses(const chat *c, const char *variable); /* the template reads a variable of this name */

void chat_tokens_init(chat_tokens *t);
void chat_tokens_deinit(chat_tokens *t);

/* Fills out (initialised and empty). On failure it holds nothing of use but must still be released. */
int chat_prompt(const chat *c, const chat_input *in, chat_tokens *out, err *e);

/* Appends the ids of a text without a template, behind the begin token if the model wants one. */
int chat_encode(const chat *c, const char *text, size_t bytes, tok_ids *out, err *e);

#endif
