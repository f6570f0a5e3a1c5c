/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run/turn.h"

#include <stdio.h>

enum { MAX_ROUNDS = 64 }; /* a model may call tools for ever */

static void end_line(const session *s, const str *text) {
    if (!s->silent && text->len && text->data[text->len - 1] != '\n') putchar('\n');
}

static void print_call(const session *s, const session_call *call) {
    fputs(s->colour ? "\033[1mcall\033[0m " : "call ", stdout);
    session_print(s, str_cstr(&call->name), call->name.len);
    putchar(' ');
    session_print(s, str_cstr(&call->arguments), call->arguments.len);
    putchar('\n');
    fflush(stdout);
}

/* 1: all results are there, 0: there are none. The results come behind the answer. */
static int get_results(conversation *c, const turn_options *o, const session_result *r, err *e) {
    str text;
    int rc = 1;
    str_init(&text);
    for (size_t i = 0; i < r->n_calls && rc == 1; i++) {
        str_clear(&text);
        if (!o->read_result || !o->read_result(o->ctx, &r->calls[i], &text)) {
            rc = 0;
        } else {
            int failed = conversation_add_tool_result(c, &r->calls[i], str_cstr(&text), e);
            if (failed < 0) rc = failed;
        }
    }
    str_deinit(&text);
    return rc;
}

int turn_run(conversation *c, session *s, const turn_options *o, session_result *r, err *e) {
    size_t before = c->count;
    int    rc = 1;
    *r = (session_result){ 0 };
    for (int i = 0; rc == 1 && i < MAX_ROUNDS; i++) {
        size_t answered = c->count;
        str    messages;
        str_init(&messages);
        conversation_json(c, &messages);
        session_result_deinit(r);
        rc = str_ok(&messages) ? session_answer(s, (view){ messages.data, messages.len }, o->interrupt, r, e)
                               : err_set_nomem(e);
        str_deinit(&messages);
        end_line(s, &r->text);
        if (rc == 0) rc = conversation_add_answer(c, r, e);
        if (rc < 0 || r->finish != RUNTIME_TOOL_CALLS) break;
        if (s->silent) { /* the caller shows the calls */
            conversation_shorten(c, answered);
            rc = 0;
            break;
        }
        for (size_t k = 0; k < r->n_calls; k++) print_call(s, &r->calls[k]);
        rc = get_results(c, o, r, e);
        if (rc == 0) conversation_shorten(c, answered); /* calls without results would puzzle the model */
    }
    fflush(stdout);
    if (rc < 0) conversation_shorten(c, before);
    return rc < 0 ? rc : 0;
}
