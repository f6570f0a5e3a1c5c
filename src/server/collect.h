/* SPDX-License-Identifier: Apache-2.0 */
/* Events of one request gathered into whole answers, for protocols that send one piece. */
#ifndef SERVER_COLLECT_H
#define SERVER_COLLECT_H

#include "runtime/runtime.h"

typedef struct collect_call {
    str  id, name, arguments;
    bool over; /* else the answer was cut off within it, and the arguments begin a JSON object */
} collect_call;

typedef enum collect_kind { COLLECT_CONTENT, COLLECT_REASONING, COLLECT_CALL } collect_kind;

/* The order in which things were said: a piece of the content or of the thoughts, or the number of a call. */
typedef struct collect_part {
    collect_kind kind;
    size_t       from, to;
} collect_part;

typedef struct collect_choice {
    str            content, reasoning;
    collect_call  *calls;
    size_t         n_calls;
    collect_part  *parts;
    size_t         n_parts;
    str            logprobs; /* JSON of the tokens, if the adapter writes it */
    bool           over;
    runtime_finish finish;
    int            stop_index;
    runtime_usage  usage;
} collect_choice;

typedef struct collect {
    collect_choice *choices;
    size_t          n;
    int             prompt_tokens;
    bool            failed; /* out of memory */
} collect;

bool collect_init(collect *c, size_t n_choices);
void collect_deinit(collect *c); /* accepts a zeroed one */
/* CONTENT, REASONING, TOOL_* and DONE; others are ignored. */
void collect_event(collect *c, const runtime_event *ev);
/* Appends the arguments as one line, for protocols that give an object; of a call that was cut off what is complete. */
void collect_put_object(const collect_call *call, str *out);
bool collect_ok(const collect *c); /* nothing was lost for lack of memory */
/* Prompt and cached tokens once, generated and reasoning tokens of all choices; times of the slowest. */
void collect_usage(const collect *c, runtime_usage *out);
/* The sum over requests that were prompts without thoughts. */
void collect_usage_of(const collect *list, size_t n, runtime_usage *out);

#endif
