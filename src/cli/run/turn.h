/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One question with everything that follows until the model is done: its answer, or calls of tools whose results are
 * asked for and given back, and then its answer.
 */
#ifndef CLI_RUN_TURN_H
#define CLI_RUN_TURN_H

#include "cli/run/conversation.h"

typedef struct turn_options {
    const volatile sig_atomic_t *interrupt; /* may be NULL */
    /* The result of a call, into out. False: there is none; the turn ends with the calls open. */
    bool (*read_result)(void *ctx, const session_call *call, str *out);
    void *ctx;
} turn_options;

/* The question is in c already; answers, calls and results are added. When it fails c is as it was before. result is
 * that of the last answer and initialised here. */
int turn_run(conversation *c, session *s, const turn_options *o, session_result *result, err *e);

#endif
