/* SPDX-License-Identifier: Apache-2.0 */
/* Ids of several devices: what they mean, how they are written, what is refused by name; and how layers are shared. */
#include "unit/support/support.h"

#include "backend/backend.h"
#include "backend/parts.h"

#include <stdio.h>
#include <string.h>

/* "cpu:-1 cuda:0:20", and " experts" behind it. */
static const char *parts_text(const char *id, char out[512]) {
    backend_parts p;
    err           e = { 0 };
    if (backend_parts_read(&p, id, &e) < 0) {
        snprintf(out, 512, "%s", e.msg);
        return out;
    }
    out[0] = 0;
    for (int i = 0; i < p.n; i++) {
        size_t at = strlen(out);
        snprintf(out + at, 512 - at, "%s%s %d", i ? ", " : "", p.part[i].device, p.part[i].n);
    }
    if (p.experts) strcat(out, " experts");
    return out;
}

static void test_read(void **state) {
    static const struct {
        const char *id, *means;
    } all[] = {
        { "cuda:0", "cuda:0 -1" },
        { "", "auto -1" },
        { "cuda:0/20", "cpu -1, cuda:0 20" },
        { "auto/20", "cpu -1, auto 20" },
        { "cuda:0/experts:8", "cpu -1, cuda:0 8 experts" },
        { "cuda:0/experts:0", "cpu -1, cuda:0 0 experts" },
        { "cuda:0+cuda:1", "cuda:0 -1, cuda:1 -1" },
        { "cuda:0+cuda:1/12", "cuda:0 -1, cuda:1 12" },
        { "cuda:0/16+cuda:1/12", "cpu -1, cuda:0 16, cuda:1 12" },
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_string_equal(parts_text(all[i].id, text), all[i].means);
    assert_string_equal(parts_text(NULL, text), "auto -1");
}

static void test_refused(void **state) {
    static const struct {
        const char *id, *why;
    } all[] = {
        { "cuda:0/", "expected a number of layers" },
        { "cuda:0/0", "expected a number of layers" },
        { "cuda:0/-3", "expected a number of layers" },
        { "cuda:0/3x", "expected a number of layers" },
        { "cuda:0/10001", "expected a number of layers" },
        { "cuda:0/experts:", "expected a number of layers" },
        { "cuda:0/experts:3x+cuda:1/2", "expected a number of layers" },
        { "/3", "a name is missing" },
        { "cuda:0+", "a name is missing" },
        { "+cuda:0", "a name is missing" },
        { "a-name-of-more-than-thirty-one-letters", "too long" },
        { "cuda:0/3+cuda:1", "either all devices behind the first" },
        { "cuda:0+cuda:1/3+cuda:2", "either all devices behind the first" },
        { "cuda:0/experts:3+cuda:1/3", "between the CPU and one device" },
        { "cuda:0+cuda:1/experts:3", "between the CPU and one device" },
        { "auto+cuda:1", "cannot be one of several" },
        { "a+b+c+d+e+f+g+h+i+j", "more than" },
    };
    char text[512];
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (!strstr(parts_text(all[i].id, text), all[i].why))
            fail_msg("%s: '%s' instead of '%s'", all[i].id, text, all[i].why);
    }
}

/* What is written says the same; a CPU in front that is implied is left out. */
static void test_write(void **state) {
    static const char *const all[][2] = {
        { "cuda:0", "cuda:0" },
        { "cuda:0/20", "cuda:0/20" },
        { "cpu+cuda:0/20", "cuda:0/20" },
        { "cpu+cuda:0", "cpu+cuda:0" },
        { "cuda:0/experts:8", "cuda:0/experts:8" },
        { "cuda:0+cuda:1/3", "cuda:0+cuda:1/3" },
        { "cuda:0/16+cuda:1/12", "cuda:0/16+cuda:1/12" },
    };
    backend_parts p;
    char          id[64];
    err           e = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(backend_parts_read(&p, all[i][0], &e), 0);
        assert_int_equal(backend_parts_write(&p, id, &e), 0);
        assert_string_equal(id, all[i][1]);
    }
    assert_int_equal(backend_parts_read(&p, "cuda:10/16+cuda:11/16+cuda:12/16+cuda:13/16+cuda:14/16+cuda:15/16", &e),
                     0);
    assert_int_equal(backend_parts_write(&p, id, &e), ERR_LIMIT);
}

static void test_whole(void **state) {
    backend_parts p;
    (void)state;
    assert_int_equal(backend_parts_read(&p, "cuda:0/20", NULL), 0);
    assert_null(backend_parts_whole(&p, 20, 0));
    assert_string_equal(backend_parts_whole(&p, 19, 0), "cuda:0");
    assert_int_equal(backend_parts_read(&p, "cuda:0/experts:2", NULL), 0);
    assert_null(backend_parts_whole(&p, 20, 2));
    assert_string_equal(backend_parts_whole(&p, 20, 0), "cuda:0");
    assert_int_equal(backend_parts_read(&p, "cuda:0+cuda:1", NULL), 0);
    assert_null(backend_parts_whole(&p, 4, 0));
    assert_string_equal(backend_parts_whole(&p, 3, 0), "cuda:1");
}

/* All of it is given out, as the shares say. */
static void test_share(void **state) {
    const uint64_t memory[3] = { 24, 8, 16 }, unknown[3] = { 0 };
    int            share[3];
    (void)state;
    backend_parts_share(48, memory, 3, share);
    assert_true(share[0] == 24 && share[1] == 8 && share[2] == 16);
    for (int n = 0; n < 100; n++) {
        backend_parts_share(n, memory, 3, share);
        assert_int_equal(share[0] + share[1] + share[2], n);
        assert_true(share[0] >= 0 && share[1] >= 0 && share[2] >= 0);
    }
    backend_parts_share(9, unknown, 3, share);
    assert_true(share[0] == 3 && share[1] == 3 && share[2] == 3);
}

/* Every device of an id must be there. */
static void test_find(void **state) {
    const nn_backend *backend;
    nn_device         d;
    err               e = { 0 };
    (void)state;
    assert_int_equal(backend_find("cpu+cpu/1", &backend, &d, &e), 0);
    assert_true(backend == &backend_divided && d.divided && d.kind == NN_DEVICE_MIXED);
    assert_string_equal(d.id, "cpu/1");
    assert_int_equal(backend_find("cpu+nothing:3/1", &backend, &d, &e), ERR_NOTFOUND);
    assert_non_null(strstr(e.msg, "there is no device 'nothing:3'"));
    assert_int_equal(backend_find("cpu/x", &backend, &d, &e), ERR_ARG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),  cmocka_unit_test(test_refused), cmocka_unit_test(test_write),
        cmocka_unit_test(test_whole), cmocka_unit_test(test_share),   cmocka_unit_test(test_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
