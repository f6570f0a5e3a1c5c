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

typedef enum chat_thinking { CHAT_THINK_DEFAULT, CHAT_THINK_ON, CHAT_THINK_OFF } chat_thinking;

/* What stands for a picture and for a sound in a text; "": none came; NULL: the model takes none, and a message with one is
 * refused. Parts are {"type": "image", "blob": N} and {"type": "audio", "blob": N}, N counted from 0 in the order of all. */
typedef struct chat_media {
    const char *picture, *sound;
} chat_media;

typedef struct chat_input {
    const json_value *messages;  /* an array of objects with role and content */
    const json_value *tools;     /* an array, or NULL */
    const json_value *variables; /* an object with further template variables (enable_thinking, ...), or NULL */
    bool              add_generation_prompt;
    bool              continue_final;  /* the last message is not over: the prompt ends with its content */
    chat_thinking     thinking;        /* by the template's own switch; off also where it has none, see below */
    view              effort;          /* low, medium, high, for templates that know it; or empty */
    int64_t           thinking_budget; /* tokens, for templates that announce it to the model; 0: none */
    tmpl_clock        now;             /* what strftime_now() shows */
    chat_media        media;
    /* Changes the rendered text before it is tokenized; NULL: it stays. */
    int (*rewrite)(void *ctx, str *text, err *e);
    void *rewrite_ctx;
} chat_input;

enum { CHAT_MARKS = 8 };

typedef struct chat_tokens {
    str     text; /* the rendered prompt */
    tok_ids ids;
    int32_t marks[CHAT_MARKS]; /* rising positions where later requests are likely to branch: where messages begin and
                                  where the last one ends; in long conversations the first and the latest ones */
    size_t  n_marks;
    bool    in_reasoning;  /* the prompt ends inside a block of thoughts */
    bool    reasoning_off; /* no thoughts will follow: the prompt closed the block, or they were switched off */
} chat_tokens;

/*
 * A GGUF or a model directory; template_text replaces the model's own template (NULL: its own).
 */
int  chat_open(chat **out, const char *path, const char *template_text, err *e);
void chat_free(chat *c); /* accepts NULL */

/* The same model with another template; base must outlive it. Answers are read as base's are. */
int chat_with_template(chat **out, const chat *base, view template_text, err *e);

/* How this model answers, found from its template (the one for tools, if it has two). */
const chat_format *chat_answer_format(const chat *c);

const tok  *chat_tokenizer(const chat *c);
const char *chat_template_origin(const chat *c);            /* NULL: the model has no template */
const char *chat_template_text(const chat *c);              /* NULL: likewise */
bool        chat_uses(const chat *c, const char *variable); /* the template reads a variable of this name */

void chat_tokens_init(chat_tokens *t);
void chat_tokens_deinit(chat_tokens *t);

/*
 * Thoughts are switched off by the variables that the template reads (enable_thinking, thinking, reasoning,
 * thinking_budget, reasoning_effort). Where it reads none, or opens a block all the same, an empty block is put at the
 * prompt's end, as the model's own family writes one; gpt-oss begins its answer in the final channel, unless tools are
 * offered, which it could not call from there.
 */
bool chat_can_think(const chat *c); /* the model marks its thoughts */

/* Fills out (initialised and empty). On failure it holds nothing of use but must still be released. */
int chat_prompt(const chat *c, const chat_input *in, chat_tokens *out, err *e);

/* Appends the ids of a text without a template, behind the begin token if the model wants one. */
int chat_encode(const chat *c, const char *text, size_t bytes, tok_ids *out, err *e);

#endif
