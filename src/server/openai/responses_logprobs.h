/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log-probabilities for the text of an answer's message.
 *
 * A token is told before the text that it made, and tokens of thoughts, markers and calls are told as well. They wait
 * here until text comes: the first text of a message is made by the last of them, the others belong to what was before.
 */
#ifndef SERVER_OPENAI_RESPONSES_LOGPROBS_H
#define SERVER_OPENAI_RESPONSES_LOGPROBS_H

#include "runtime/runtime.h"

typedef struct waiting_token {
    size_t at, bytes; /* its JSON in the text below, and what it stands for */
} waiting_token;

typedef struct waiting {
    str            json; /* objects, one behind the other, each with a comma in front */
    waiting_token *list;
    size_t         n, capacity;
    bool           failed; /* out of memory */
} waiting;

void waiting_deinit(waiting *w); /* accepts a zeroed one */
void waiting_add(waiting *w, const runtime_event *token);
void waiting_drop(waiting *w); /* they made no text of a message */
/* Moves them to the end of out, a list of such objects; first: the text of that many bytes begins a message. */
void waiting_take(waiting *w, bool first, size_t bytes, str *out);

#endif
