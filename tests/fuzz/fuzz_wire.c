/* SPDX-License-Identifier: Apache-2.0 */
/* Frames as a worker and as a server would read them. What was read can be written again, and gives the same bytes. */
#include "host/wire.h"

#include <stdlib.h>
#include <string.h>

static void check(str *again, view body) {
    if (again->len != body.len + WIRE_HEAD_BYTES || memcmp(again->data + WIRE_HEAD_BYTES, body.data, body.len) != 0)
        abort();
}

static void read_down(const wire_frame *f, arena *mem, str *out) {
    runtime_request q = { 0 };
    wire_open       o;
    wire_text_call  t;
    wire_ids_call   i;
    int             level;
    switch (f->type) {
    case WIRE_OPEN:
        if (wire_get_open(f->body, mem, &o, NULL) == 0) {
            if (wire_put_open(out, &o, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_SUBMIT:
    case WIRE_RENDER:
    case WIRE_COUNT:
        if (wire_get_request(f->body, mem, &q, NULL) == 0) {
            if (wire_put_request(out, f->type, f->id, &q, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_TOKENIZE:
        if (wire_get_text_call(f->body, &t, NULL) == 0) {
            if (wire_put_text_call(out, f->id, &t, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_DETOKENIZE:
        if (wire_get_ids_call(f->body, mem, &i, NULL) == 0) {
            if (wire_put_ids_call(out, f->id, &i, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_PING:
        if (wire_get_ping(f->body, &level, NULL) == 0) {
            if (wire_put_ping(out, f->id, level, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    default: break;
    }
}

static void read_up(const wire_frame *f, arena *mem, str *out) {
    runtime_event ev;
    wire_result   r;
    runtime_info  i;
    wire_pong     p;
    need          n;
    err           why;
    float         fraction;
    switch (f->type) {
    case WIRE_EVENT:
        if (wire_get_event(f->body, mem, &ev, NULL) == 0) {
            if (wire_put_event(out, f->id, &ev, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_RESULT:
        if (wire_get_result(f->body, mem, &r, NULL) == 0) {
            if (wire_put_result(out, f->id, &r, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_READY:
        if (wire_get_ready(f->body, mem, &i, NULL) == 0) {
            if (wire_put_ready(out, &i, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_PONG:
        if (wire_get_pong(f->body, &p, NULL) == 0) {
            if (wire_put_pong(out, f->id, &p, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_NEED:
        if (wire_get_need(f->body, &n, NULL) == 0) {
            if (wire_put_need(out, &n, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_FAILED:
        if (wire_get_failed(f->body, &why, NULL) == 0) {
            if (wire_put_failed(out, &why, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    case WIRE_LOADING:
        if (wire_get_loading(f->body, &fraction, NULL) == 0) {
            if (wire_put_loading(out, fraction, NULL) < 0) abort();
            check(out, f->body);
        }
        break;
    default: break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int up = 0; up < 2; up++) {
        const char *at = (const char *)data;
        size_t      left = size, used;
        wire_frame  f;
        arena       mem;
        str         out;
        arena_init(&mem, 0);
        str_init(&out);
        while (wire_next(at, left, up != 0, &f, &used, NULL) == 1) {
            str_clear(&out);
            (up ? read_up : read_down)(&f, &mem, &out);
            at += used;
            left -= used;
        }
        str_deinit(&out);
        arena_deinit(&mem);
    }
    return 0;
}
