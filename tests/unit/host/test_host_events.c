/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of an event, which is all that the worker's thread looks at, and the reading of the rest. */
#include "unit/support/support.h"

#include "host/host.h"
#include "host/wire.h"

#include <string.h>

static view body_of(str *out, const runtime_event *ev) {
    wire_frame f;
    size_t     used;
    str_clear(out);
    assert_int_equal(wire_put_event(out, 7, ev, NULL), 0);
    assert_int_equal(wire_next(out->data, out->len, true, &f, &used, NULL), 1);
    return f.body;
}

/* It says what the whole event says, for every kind. */
static void test_head(void **state) {
    const err       why = { .code = ERR_IO, .msg = "no" };
    wire_event_head h;
    runtime_event   got;
    arena           mem;
    str             out;
    (void)state;
    str_init(&out);
    arena_init(&mem, 0);
    for (int kind = RUNTIME_STARTED; kind <= RUNTIME_ERROR; kind++) {
        for (int choice = -1; choice < 3; choice++) {
            bool          ends = kind == RUNTIME_DONE || kind == RUNTIME_ERROR;
            runtime_event ev = { .kind = (runtime_event_kind)kind, .choice = choice, .last = ends && choice == 2 };
            if (kind == RUNTIME_ERROR) ev.error = &why;
            view body = body_of(&out, &ev);
            assert_int_equal(wire_get_event_head(body, &h, NULL), 0);
            assert_int_equal(wire_get_event(body, &mem, &got, NULL), 0);
            assert_int_equal(h.kind, got.kind);
            assert_int_equal(h.choice, got.choice);
            assert_int_equal(h.last, got.last);
            assert_int_equal(h.choice, choice);
        }
    }
    arena_deinit(&mem);
    str_deinit(&out);
}

/* Whatever byte of a head is wrong: where the head is taken and the event is not, the other one says so. */
static void test_bad_head(void **state) {
    runtime_event   ev = { .kind = RUNTIME_CONTENT, .choice = 1, .text = { "abc", 3 } }, got;
    wire_event_head h;
    arena           mem;
    str             out;
    err             e = { 0 };
    (void)state;
    str_init(&out);
    arena_init(&mem, 0);
    view body = body_of(&out, &ev);
    for (size_t n = 0; n < 9; n++) assert_int_equal(wire_get_event_head((view){ body.data, n }, &h, &e), ERR_FORMAT);
    for (size_t at = 0; at < 9; at++) {
        char copy[64];
        memcpy(copy, body.data, body.len);
        for (int byte = 0; byte < 256; byte++) {
            copy[at] = (char)byte;
            view whole = { copy, body.len };
            bool head = wire_get_event_head(whole, &h, &e) == 0, all = wire_get_event(whole, &mem, &got, &e) == 0;
            if (all) assert_true(head);
            if (all) assert_int_equal(h.kind, got.kind);
        }
    }
    arena_deinit(&mem);
    str_deinit(&out);
}

/* A stop text that the request does not have would be looked up by its number. */
static void test_stop_index(void **state) {
    const view      stop[] = { { "a", 1 }, { "b", 1 } };
    runtime_request q;
    runtime_event   got;
    arena           mem;
    str             out;
    err             e = { 0 };
    (void)state;
    str_init(&out);
    arena_init(&mem, 0);
    runtime_request_init(&q);
    q.stop = stop;
    q.n_stop = 2;
    for (int i = -3; i < 5; i++) {
        runtime_event ev = { .kind = RUNTIME_DONE, .last = true, .finish = RUNTIME_STOP_STRING, .stop_index = i };
        int           rc = host_read_event(&q, body_of(&out, &ev), &mem, &got, &e);
        assert_int_equal(rc, i >= -1 && i < 2 ? 0 : ERR_FORMAT);
        if (rc == 0) assert_int_equal(got.stop_index, i);
    }
    arena_deinit(&mem);
    str_deinit(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_head), cmocka_unit_test(test_bad_head),
                                        cmocka_unit_test(test_stop_index) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
