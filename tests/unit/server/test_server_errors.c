/* SPDX-License-Identifier: Apache-2.0 */
/* Which answer an error gets: every code has its row, and the words of the sentence decide nothing. */
#include "unit/support/support.h"

#include "base/err.h"
#include "server/error_table.h"

#include <string.h>

static void test_every_code(void **state) {
    int code = -1;
    (void)state;
    for (; strcmp(err_code_name(code), "error") != 0; code--) {
        const error_kind   *kind = error_kind_of(code);
        const error_status *status = error_status_of(kind->status);
        assert_int_equal(kind->code, code);
        assert_int_equal(status->status, kind->status);
        assert_true(status->openai[0] && status->responses[0] && status->anthropic[0]);
    }
    assert_true(code < ERR_UNLOADED);
    assert_int_equal(error_kind_of(code)->status, 500);
    assert_string_equal(error_status_of(999)->text, "Unknown");
}

typedef struct known {
    int         code, status;
    const char *name, *openai, *anthropic;
} known;

/* What clients decide by. */
static void test_kinds(void **state) {
    static const known rows[] = {
        { ERR_CONTEXT, 400, "context_length_exceeded", "invalid_request_error", "invalid_request_error" },
        { ERR_LIMIT, 400, "", "invalid_request_error", "invalid_request_error" },
        { ERR_BUSY, 503, "overloaded", "service_unavailable_error", "overloaded_error" },
        { ERR_UNLOADED, 500, "model_not_loaded", "server_error", "api_error" },
        { ERR_NOTFOUND, 404, "model_not_found", "invalid_request_error", "not_found_error" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const error_kind   *kind = error_kind_of(rows[i].code);
        const error_status *status = error_status_of(kind->status);
        assert_int_equal(kind->status, rows[i].status);
        assert_string_equal(kind->name, rows[i].name);
        assert_string_equal(status->openai, rows[i].openai);
        assert_string_equal(status->anthropic, rows[i].anthropic);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_kinds),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
