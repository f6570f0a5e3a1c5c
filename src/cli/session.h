/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One person and one model: everything that `hearth run` keeps open, and one answer at a time.
 *
 * Events come from the engine's thread; session_answer collects them under a mutex and prints from its own thread, so
 * that a slow terminal never holds the engine up.
 */
#ifndef CLI_SESSION_H
#define CLI_SESSION_H

#include "base/err.h"
#include "base/str.h"
#include "chat/chat.h"
#include "engine/engine.h"

#include <signal.h>
#include <stdbool.h>

typedef struct session_options {
    int n_ctx, n_threads;
    int kv_type;
} session_options;

typedef struct session {
    char           *path;
    model_file     *file;
    nn_model       *model;
    chat           *chat;
    engine         *engine;
    sampling_params sampling;
    int             max_tokens;
    const char    **stop;
    size_t         *stop_bytes;
    size_t          n_stop;
    bool            safe;     /* stdout is a terminal: no control characters from the model */
    bool            colour;   /* and it wants colours (NO_COLOR is not set) */
    bool            progress; /* stderr is a terminal */
} session;

typedef struct session_result {
    str           text;
    engine_finish finish;
    engine_usage  usage;
} session_result;

int  session_open(session *s, const char *model, const session_options *o, err *e);
void session_close(session *s); /* accepts a zeroed one */

/* Streams the answer to stdout. *interrupt (may be NULL) becoming nonzero stops it. result->text is initialised here;
 * the caller releases it also after a failure. */
int session_answer(session *s, const tok_ids *ids, const int32_t *marks, size_t n_marks,
                   const volatile sig_atomic_t *interrupt, session_result *result, err *e);

/* "prompt 23 tokens (5 cached), 512.3 tok/s; answer 12 tokens, 80.1 tok/s" */
void session_describe(const engine_usage *u, str *out);

/* Sampling values that the model recommends (generation_config.json, general.sampling.* of a GGUF) over ours. */
void session_sampling(sampling_params *p, const model_file *m);

#endif
