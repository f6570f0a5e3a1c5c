/* SPDX-License-Identifier: Apache-2.0 */
#include "server/vectors.h"

#include "base/clock.h"
#include "server/internal.h"

#include <stdlib.h>
#include <string.h>

static void state_free(void *p) {
    vectors *v = p;
    for (size_t i = 0; v->at && i < v->n; i++) free(v->at[i]);
    free(v->at);
    free(v->sizes);
    free(v);
}

static void on_event(exchange *x, size_t request, const runtime_event *ev) {
    vectors *v = x->state;
    if (ev->kind == RUNTIME_STARTED) v->prompt_tokens += ev->prompt_tokens;
    if (ev->kind != RUNTIME_EMBEDDING) return;
    size_t bytes = (size_t)ev->n_vector * sizeof(float);
    free(v->at[request]);
    v->at[request] = malloc(bytes + 1);
    v->sizes[request] = v->at[request] ? ev->n_vector : 0;
    if (v->at[request])
        memcpy(v->at[request], ev->vector, bytes);
    else
        v->failed = true;
}

void vectors_put(jw *w, const vectors *v, size_t i) {
    jw_open(w, '[');
    for (int k = 0; k < v->sizes[i]; k++) jw_real(w, v->at[i][k]);
    jw_close(w, ']');
}

static void on_over(exchange *x) {
    vectors *v = x->state;
    str      b;
    if (v->failed) {
        exchange_error_nomem(x);
        return;
    }
    str_init(&b);
    v->put(v, &b);
    exchange_reply(x, 200, v->type, &b);
}

void vectors_read_prompt(exchange *x, vectors_prompt *out) {
    view side = { "", 0 };
    *out = (vectors_prompt){ { "", 0 }, false };
    read_string(&x->in, &x->body, "prompt_name", &out->name);
    read_string(&x->in, &x->body, "input_type", &side);
    if (out->name.len || !side.len) return;
    out->name = side;
    out->side = true;
}

void vectors_run(exchange *x, view model, int64_t keep_alive_ms, runtime_request *q, size_t n, int dimensions,
                 const vectors_prompt *prompt, int form, const char *type, void (*put)(const vectors *v, str *out)) {
    vectors *v = calloc(1, sizeof *v);
    if (v) {
        x->state = v;
        x->state_free = state_free;
        v->at = calloc(n, sizeof *v->at);
        v->sizes = calloc(n, sizeof *v->sizes);
    }
    if (!v || !v->at || !v->sizes) {
        exchange_error_nomem(x);
        return;
    }
    v->n = n;
    v->model = model;
    v->form = form;
    v->type = type;
    v->put = put;
    v->begin_us = clock_us();
    for (size_t i = 0; i < n; i++) {
        q[i].task = RUNTIME_EMBED;
        q[i].dimensions = dimensions;
        q[i].prompt_name = prompt->name;
        q[i].prompt_is_side = prompt->side;
    }
    exchange_run(x, &(exchange_work){ .model = model,
                                      .keep_alive_ms = keep_alive_ms,
                                      .requests = q,
                                      .n_requests = n,
                                      .on_event = on_event,
                                      .on_over = on_over });
}
