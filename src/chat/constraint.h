/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an answer may be: thoughts first, then text, a constrained text or tool calls in the model's own syntax.
 *
 * chat_tool_grammar writes the calls of a request as a grammar: the offered names, and for each the arguments by its
 * JSON schema. A guide puts the phases of one answer together:
 *
 *     thoughts (free, perhaps with a budget of tokens)  ->  answer
 *
 * and the answer is one of: free text; free text in which a call, once its opening marker is there, must become a valid
 * call of an offered tool (AUTO); calls and nothing else (REQUIRED, NAMED); a text of a grammar; or, with a grammar and
 * AUTO, either of the two. The budget counts the tokens of the thoughts; when it is spent the block is closed with the
 * model's own marker, token by token, and the answer begins.
 *
 * The functions of a guide have the shape of the engine's guide interface: the caller wraps them.
 */
#ifndef CHAT_CONSTRAINT_H
#define CHAT_CONSTRAINT_H

#include "base/err.h"
#include "base/json.h"
#include "chat/format.h"
#include "grammar/grammar.h"
#include "grammar/ir.h"
#include "tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum chat_tool_choice {
    CHAT_TOOLS_AUTO,
    CHAT_TOOLS_NONE,
    CHAT_TOOLS_REQUIRED,
    CHAT_TOOLS_NAMED,
} chat_tool_choice;

typedef struct chat_tools {
    const json_value *list; /* OpenAI's form: [{"type":"function","function":{name, parameters, ..}}] */
    chat_tool_choice  choice;
    view              name;      /* NAMED */
    bool              parallel;  /* more than one call per answer; NAMED calls exactly one */
    bool              full_json; /* arguments may be every text of their schema; see SCHEMA_STEERED */
} chat_tools;

/*
 * One or more calls, from the opening marker to the end of the answer. ERR_UNSUPPORTED: the model's syntax is not known
 * or a schema uses something that cannot be enforced (it is named); ERR_NOTFOUND: no tool of that name; ERR_ARG: the
 * tools are not of the expected form.
 */
int chat_tool_grammar(const chat_format *f, const chat_tools *tools, ir *g, ir_sym *start, err *e);

/* A vocabulary in which the format's marker tokens count as their text, for the grammars of calls. */
int chat_vocab_open(grammar_vocab **out, const chat_format *f, const tok *t, err *e);

typedef struct chat_guide chat_guide;

typedef struct chat_guide_options {
    const chat_format   *format;
    const tok           *t;
    const grammar_vocab *text_vocab;   /* grammar_vocab_open: for `content` */
    const grammar_vocab *marker_vocab; /* chat_vocab_open: for calls and markers; may be NULL without tools */
    chat_tools           tools;
    grammar             *content; /* what the text of the answer must be; NULL: anything. Kept by reference */
    bool                 starts_in_reasoning; /* as chat_tokens says of the prompt */
    bool                 reasoning_off;       /* the prompt closed the thoughts, or they are switched off */
    int                  budget;              /* tokens of thoughts; negative: no limit */
} chat_guide_options;

/* *out is NULL and the result 0 where the answer is free: nothing is to be guided. Everything but content is borrowed
 * and must outlive the guide; options and tools are not needed after the call. */
int chat_guide_open(chat_guide **out, const chat_guide_options *o, err *e);

/* 1: mask filled; 0: everything is allowed, mask untouched; negative: failed. */
int chat_guide_mask(chat_guide *c, uint32_t *mask, err *e);
/* Negative: not allowed here, or no memory; nothing changed. */
int chat_guide_accept(chat_guide *c, int32_t token, err *e);
/* Takes back the last accepted tokens, at most all of them; exact, allocates nothing. */
void   chat_guide_rollback(chat_guide *c, int n_tokens);
bool   chat_guide_must_stop(const chat_guide *c);
bool   chat_guide_in_reasoning(const chat_guide *c);
int    chat_guide_clone(chat_guide **out, const chat_guide *c, err *e);
void   chat_guide_free(chat_guide *c);
size_t chat_guide_bytes(const chat_guide *c); /* of its grammars, which copies share; NULL: 0 */

#endif
