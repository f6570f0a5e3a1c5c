/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP parser: what is accepted, what is refused and with which status, and that splitting changes nothing. */
#include "unit/support/support.h"

#include "server/http/parser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const http_limits limits = { .head_bytes = 4096, .body_bytes = 1000 };

/* Feeds text in pieces of at most `step` bytes. Returns 0 if incomplete, 200 if complete, else the error's status. */
static int feed(http_parser *p, const char *text, size_t len, size_t step, size_t *taken) {
    size_t at = 0;
    for (;;) {
        size_t     used, n = len - at < step ? len - at : step;
        http_event ev = http_parser_feed(p, text + at, n, &used);
        assert_true(used <= n);
        at += used;
        if (taken) *taken = at;
        if (ev == HTTP_COMPLETE) return 200;
        if (ev == HTTP_ERROR) return p->status;
        if (ev == HTTP_MORE && at == len) return 0;
    }
}

static int verdict(const char *text, size_t len, size_t step) {
    http_parser p;
    http_parser_init(&p, limits);
    int status = feed(&p, text, len, step, NULL);
    http_parser_deinit(&p);
    return status;
}

#define H "Host: a\r\n"

typedef struct sample {
    const char *text;
    int         status;
} sample;

static const sample samples[] = {
    { "GET / HTTP/1.1\r\n" H "\r\n", 200 },
    { "\r\nGET / HTTP/1.1\r\n" H "\r\n", 200 },
    { "GET / HTTP/1.0\r\n\r\n", 200 },
    { "POST /x?y=1 HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc", 200 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n", 200 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 200 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n00\r\nX: y\r\n\r\n", 200 },
    { "OPTIONS * HTTP/1.1\r\n" H "\r\n", 200 },
    { "GET http://a/x HTTP/1.1\r\n" H "\r\n", 200 },
    { "GET /a%20b%2fc HTTP/1.1\r\n" H "\r\n", 200 },
    { "GET / HTTP/1.1\r\nHost:a\r\nX:\t y \t\r\nEmpty:\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\n" H "Expect: 100-Continue\r\n\r\n", 200 },
    { "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", 200 },

    /* not complete yet */
    { "GET / HTTP/1.1\r\n" H "\r", 0 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 4\r\n\r\nabc", 0 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", 0 },

    /* smuggling */
    { "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 3, 3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: +3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: -3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 0x3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 3 \t3\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: \r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 99999999999999999999\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Content-Length: 1001\r\n\r\n", 413 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", 501 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 501 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H " Content-Length: 3\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "X: a\r\n b\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "X: a\n\r\n", 400 },
    { "POST / HTTP/1.1\n" H "\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "X: a\rb\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\r\n" H "\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "\n", 400 },
    { "GET / HTTP/1.1\r\n" H ": empty\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "no colon\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "X: \x01\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "X\x80: y\r\n\r\n", 400 },

    /* chunks */
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n 3\r\nabc\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3 \r\nabc\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n\r\nabc", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\r\nabc0\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3e9\r\n", 413 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3;\x01\r\nabc\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\nbad trailer\r\n\r\n", 400 },
    { "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n3\rabc", 400 },

    /* the request line and the target */
    { "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET  / HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET / HTTP/1.1 \r\n" H "\r\n", 400 },
    { "GET /\r\n" H "\r\n", 400 },
    { " GET / HTTP/1.1\r\n" H "\r\n", 400 },
    { "G(T / HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET / HTTP/2.0\r\n" H "\r\n", 505 },
    { "GET / HTTP/1.2\r\n" H "\r\n", 505 },
    { "GET / http/1.1\r\n" H "\r\n", 400 },
    { "GET / HTTP/1.10\r\n" H "\r\n", 400 },
    { "AVERYLONGMETHODNAME / HTTP/1.1\r\n" H "\r\n", 501 },
    { "GET x HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET * HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET http://b/x HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET http://a HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET ftp://a/x HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /%00 HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /%0d%0a HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /%zz HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /% HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /%2 HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /a#b HTTP/1.1\r\n" H "\r\n", 400 },
    { "GET /\x80 HTTP/1.1\r\n" H "\r\n", 400 },
    { "\x16\x03\x01\x02\n", 400 },

    /* Host and Expect */
    { "GET / HTTP/1.1\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H H "\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400 },
    { "GET / HTTP/1.1\r\n" H "Expect: a miracle\r\n\r\n", 417 },
};

static void test_table(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        size_t len = strlen(samples[i].text);
        for (size_t step = 1; step <= len; step = step < 9 ? step + 1 : len + (step == len)) {
            int got = verdict(samples[i].text, len, step);
            if (got != samples[i].status)
                fail_msg("sample %zu in steps of %zu: %d, not %d", i, step, got, samples[i].status);
        }
        assert_int_equal(verdict(samples[i].text, len, len), samples[i].status);
    }
    /* A NUL anywhere in the head. */
    static const char good[] = "GET /ab HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n";
    for (size_t i = 0; i + 5 < sizeof good; i++) {
        char bad[sizeof good];
        memcpy(bad, good, sizeof good);
        bad[i] = '\0';
        assert_int_not_equal(verdict(bad, sizeof good - 1, 7), 200);
    }
}

static void test_fields(void **state) {
    static const char text[] =
        "POST /v1/a%20b?q=%41 HTTP/1.1\r\nHOST: Local:80\r\nX-One:  two words \r\nConnection: x, Close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n5\r\npedia\r\n0\r\n\r\n";
    http_parser p;
    (void)state;
    http_parser_init(&p, limits);
    assert_int_equal(feed(&p, text, sizeof text - 1, 3, NULL), 200);
    http_request *r = http_parser_take(&p);
    assert_true(view_eq_c(r->method, "POST"));
    assert_true(view_eq_c(r->path, "/v1/a b"));
    assert_true(view_eq_c(r->query, "q=%41"));
    assert_true(view_eq_c(r->host, "Local:80"));
    assert_true(view_eq_c(*http_request_get(r, "x-one"), "two words"));
    assert_null(http_request_get(r, "x-two"));
    assert_false(r->keep_alive);
    assert_string_equal(str_cstr(&r->body), "Wikipedia");
    http_request_free(r);
    http_parser_deinit(&p);
}

/* Requests behind each other come out one by one and none eats bytes of the next. */
static void test_pipeline(void **state) {
    static const char text[] = "POST /1 HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\nabc"
                               "GET /2 HTTP/1.1\r\n" H "\r\n"
                               "POST /3 HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
                               "GET /4 HTTP/1.1\r\n" H "\r\n";
    (void)state;
    for (size_t step = 1; step < sizeof text; step++) {
        http_parser p;
        size_t      at = 0, taken;
        http_parser_init(&p, limits);
        for (char n = '1'; n <= '4'; n++) {
            assert_int_equal(feed(&p, text + at, sizeof text - 1 - at, step, &taken), 200);
            at += taken;
            http_request *r = http_parser_take(&p);
            assert_int_equal(r->path.data[1], n);
            http_request_free(r);
        }
        assert_int_equal(at, sizeof text - 1);
        assert_null(p.request);
        http_parser_deinit(&p);
    }
}

static void test_limits(void **state) {
    str s;
    (void)state;
    str_init(&s);
    str_puts(&s, "GET /");
    for (int i = 0; i < 5000; i++) str_push(&s, 'a');
    assert_int_equal(verdict(s.data, s.len, 100), 414);
    str_clear(&s);
    str_puts(&s, "GET / HTTP/1.1\r\n" H);
    for (int i = 0; i < 120; i++) str_puts(&s, "X: y\r\n");
    str_puts(&s, "\r\n");
    assert_int_equal(verdict(s.data, s.len, 100), 431);
    str_clear(&s);
    str_puts(&s, "GET / HTTP/1.1\r\n" H "X: ");
    for (int i = 0; i < 5000; i++) str_push(&s, 'a');
    assert_int_equal(verdict(s.data, s.len, 100), 431);
    str_clear(&s);
    /* many small chunks add up to too much */
    str_puts(&s, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 101; i++) str_puts(&s, "a\r\n0123456789\r\n");
    assert_int_equal(verdict(s.data, s.len, 100), 413);
    str_clear(&s);
    str_puts(&s, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\n0\r\n");
    for (int i = 0; i < 2000; i++) str_puts(&s, "X-Y: z\r\n");
    assert_int_equal(verdict(s.data, s.len, 100), 431);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_table), cmocka_unit_test(test_fields),
                                        cmocka_unit_test(test_pipeline), cmocka_unit_test(test_limits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
