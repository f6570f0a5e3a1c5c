/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One person and one model: everything that `hearth run` keeps open, and one answer at a time.
 *
 * Events come from the runtime's threads; session_answer collects them under a mutex and prints from its own thread, so
 * that a slow terminal never holds the engine up. Thoughts are printed dimmed where there are colours, else between
 * <think> lines, whatever markers the model itself writes.
 */
#ifndef CLI_RUN_SESSION_H
#define CLI_RUN_SESSION_H

#include "base/err.h"
#include "base/str.h"
#include "cli/models/models.h"
#include "runtime/runtime.h"

#include <signal.h>
#include <stdbool.h>

typedef struct session {
    cli_model           model;
    runtime            *runtime;
    runtime_info        info;
    sampling_params     sampling;
    int                 max_tokens;
    runtime_thinking    thinking;
    int                 think_budget; /* -1: none */
    char               *tools;        /* JSON; NULL: none */
    bool                tools_off;
    view               *pictures; /* and sounds, that the messages name; owned */
    size_t              n_pictures;
    runtime_tool_choice tool_choice;
    const char         *tool_name;
    runtime_constraint  constraint;
    char               *constraint_text; /* what constraint.text points at, if it is the session's own */
    bool                safe;            /* stdout is a terminal: no control characters from the model */
    bool                colour;          /* and it wants colours (NO_COLOR is not set) */
    bool                markdown;        /* and answers are shown with them */
    bool                silent;          /* nothing is shown: the caller has the result */
    bool                progress;        /* stderr is a terminal */
} session;

typedef struct session_call {
    str id, name, arguments;
} session_call;

typedef struct session_result {
    str            text, reasoning;
    session_call  *calls;
    size_t         n_calls;
    runtime_finish finish;
    runtime_usage  usage;
} session_result;

/* Takes the model over, also when it fails; o: everything but the path. */
int  session_open(session *s, cli_model *model, const runtime_options *o, err *e);
void session_close(session *s); /* accepts a zeroed one */

/* Streams the answer to stdout: to a conversation (a JSON array of messages), or the text that follows a text.
 * *interrupt (may be NULL) becoming nonzero stops it. result is initialised here; the caller releases it also after a
 * failure. */
int  session_answer(session *s, view messages, const volatile sig_atomic_t *interrupt, session_result *result, err *e);
int  session_continue(session *s, view text, session_result *result, err *e);
void session_result_deinit(session_result *r); /* accepts a zeroed one */

/* Whether it ended because the context is full rather than by max_tokens. */
bool session_context_full(const session *s, const session_result *r);

/* Text of a model, without control characters where the terminal would obey them. */
void session_print(const session *s, const char *text, size_t bytes);

/* "prompt 23 tokens (5 cached), 512.3 tok/s; answer 12 tokens, 80.1 tok/s" */
void session_describe(const runtime_usage *u, str *out);

#endif
