/* SPDX-License-Identifier: Apache-2.0 */
/* Forms with files: what clients send is read as RFC 7578 means it; what two programs could read differently is
 * refused with a reason. */
#include "unit/support/support.h"

#include "server/http/multipart.h"

#include <stdio.h>
#include <string.h>

#define TYPE "multipart/form-data; boundary=B7x"
#define BODY                                                                                                           \
    "--B7x\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nvoxtral\r\n"                                       \
    "--B7x\r\ncontent-disposition:form-data;name=empty\r\n\r\n\r\n"                                                    \
    "--B7x\r\nContent-Type: audio/wav\r\nContent-Disposition: form-data; filename=\"a;\\\"b\\\".wav\"; "               \
    "name=\"file\"\r\n\r\n\r\n--B7\r\n\r\nRIFF--B7x\r\n--B7x--\r\n"

static void expect_part(multipart *m, const char *name, const char *data, bool file) {
    multipart_part p;
    err            e = { 0 };
    int            rc = multipart_next(m, &p, &e);
    if (rc != 1) print_message("%s\n", e.msg);
    assert_int_equal(rc, 1);
    assert_true(view_eq_c(p.name, name));
    assert_true(view_eq_c(p.data, data));
    assert_int_equal(p.file, file);
}

static void read_as_meant(const char *type, const char *body) {
    multipart      m;
    multipart_part p;
    err            e = { 0 };
    int            rc = multipart_open(&m, view_of(type), view_of(body), &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    expect_part(&m, "model", "voxtral", false);
    expect_part(&m, "empty", "", false);
    expect_part(&m, "file", "\r\n--B7\r\n\r\nRIFF--B7x", true);
    assert_int_equal(multipart_next(&m, &p, &e), 0);
    assert_int_equal(multipart_next(&m, &p, &e), 0);
}

static void test_read(void **state) {
    (void)state;
    read_as_meant(TYPE, BODY);
    read_as_meant("Multipart/FORM-data ;charset=utf-8;  BOUNDARY=\"B7x\"", BODY);
    assert_true(multipart_is(view_of(TYPE)) && multipart_is(view_of("MULTIPART/form-data")));
    assert_false(multipart_is(view_of("application/json")) || multipart_is(view_of("multipart/form-datax")));
    assert_false(multipart_is(view_of("multipart/mixed; boundary=B7x")) || multipart_is(view_of("")));
}

/* 0 where all of it is read. */
static int read_all(view type, view body, err *e) {
    multipart      m;
    multipart_part p;
    int            rc = multipart_open(&m, type, body, e);
    if (rc < 0) return rc;
    while ((rc = multipart_next(&m, &p, e)) == 1) {
    }
    return rc;
}

/* Cut off anywhere it is refused, but for the last line end, which not everybody sends. */
static void test_cut(void **state) {
    view body = view_of(BODY);
    (void)state;
    for (size_t n = 0; n <= body.len; n++) {
        err  e = { 0 };
        bool whole = n == body.len || n == body.len - 2;
        char copy[512];
        memcpy(copy, body.data, n);
        assert_int_equal(read_all(view_of(TYPE), (view){ copy, n }, &e) == 0, whole);
        assert_true(whole || e.msg[0]);
    }
}

#define HEAD "--B7x\r\nContent-Disposition: form-data; name=\"a\"\r\n"
#define END "\r\n\r\nx\r\n--B7x--\r\n"

static void test_refused(void **state) {
    static const struct {
        const char *type, *body, *why;
    } bad[] = {
        { "multipart/form-data", BODY, "boundary" },
        { "multipart/form-data; boundary=", BODY, "Content-Type" },
        { "multipart/form-data; boundary=\"B7x", BODY, "Content-Type" },
        { TYPE "; boundary=B7x", BODY, "two boundaries" },
        { "multipart/form-data; boundary=\"B7x \"", BODY, "boundary" },
        { "multipart/form-data; boundary=\"B\\x\"", BODY, "boundary" },
        { TYPE, "x" BODY, "begin" },
        { TYPE, "\r\n" BODY, "begin" },
        { TYPE, BODY "x", "follows" },
        { TYPE, BODY "\r\n", "follows" },
        { TYPE, "--B7xy\r\n", "like its boundary" },
        { TYPE, HEAD "\r\nx\r\n--B7xy\r\n--B7x--\r\n", "like its boundary" },
        { TYPE, HEAD "\r\nx\n--B7x--\r\n", "no end" },
        { TYPE, "--B7x\r\n\r\nx\r\n--B7x--\r\n", "no end" },
        { TYPE, "--B7x\r\nContent-Type: a/b" END, "no Content-Disposition" },
        { TYPE, "--B7x\r\nContent-Disposition: attachment; name=\"a\"" END, "form-data" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data" END, "no name" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name=\"\"" END, "no name" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name=\"a b\"" END, "plain characters" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name=\"a\\\"b\"" END, "plain characters" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name=\"a\"; name=\"b\"" END, "two names" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name" END, "parameter" },
        { TYPE, "--B7x\r\nContent-Disposition: form-data; name=\"a" END, "parameter" },
        { TYPE, HEAD "Content-Disposition: form-data; name=\"b\"" END, "two Content-Dispositions" },
        { TYPE, HEAD "Content-Transfer-Encoding: base64" END, "encoded" },
        { TYPE, HEAD " x: y" END, "goes on" },
        { TYPE, HEAD "no colon" END, "colon" },
        { TYPE, HEAD "a b: c" END, "a name" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err e = { 0 };
        int rc = read_all(view_of(bad[i].type), view_of(bad[i].body), &e);
        if (rc == 0 || !strstr(e.msg, bad[i].why)) print_message("%zu: %s\n", i, e.msg);
        assert_int_equal(rc, ERR_FORMAT);
        assert_non_null(strstr(e.msg, bad[i].why));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_read), cmocka_unit_test(test_cut),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
