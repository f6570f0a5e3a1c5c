/* SPDX-License-Identifier: Apache-2.0 */
/* Events gathered into one answer: what was said, in which order, and calls that have no end. */
#include "unit/support/support.h"

#include "server/collect.h"

#include <string.h>

static void give(collect *c, runtime_event_kind kind, int index, const char *text) {
    runtime_event ev = {
        .kind = kind, .index = index, .text = view_of(text), .name = view_of(text), .id = view_of("x")
    };
    collect_event(c, &ev);
}

static void expect_part(const collect_choice *c, size_t i, collect_kind kind, size_t from, size_t to) {
    assert_true(i < c->n_parts);
    assert_int_equal(c->parts[i].kind, kind);
    assert_int_equal(c->parts[i].from, from);
    assert_int_equal(c->parts[i].to, to);
}

static void test_order(void **state) {
    collect c;
    (void)state;
    assert_true(collect_init(&c, 1));
    give(&c, RUNTIME_REASONING, -1, "hm");
    give(&c, RUNTIME_REASONING, -1, "!");
    give(&c, RUNTIME_CONTENT, -1, "");
    give(&c, RUNTIME_CONTENT, -1, "Let ");
    give(&c, RUNTIME_CONTENT, -1, "me see.");
    give(&c, RUNTIME_TOOL_BEGIN, 0, "f");
    give(&c, RUNTIME_TOOL_END, 0, "");
    give(&c, RUNTIME_TOOL_BEGIN, 1, "g");
    give(&c, RUNTIME_TOOL_END, 1, "");
    give(&c, RUNTIME_CONTENT, -1, " Done.");
    const collect_choice *a = &c.choices[0];
    assert_string_equal(str_cstr(&a->content), "Let me see. Done.");
    assert_string_equal(str_cstr(&a->reasoning), "hm!");
    assert_int_equal(a->n_parts, 5);
    expect_part(a, 0, COLLECT_REASONING, 0, 3);
    expect_part(a, 1, COLLECT_CONTENT, 0, 11);
    expect_part(a, 2, COLLECT_CALL, 0, 0);
    expect_part(a, 3, COLLECT_CALL, 1, 0);
    expect_part(a, 4, COLLECT_CONTENT, 11, 17);
    assert_true(collect_ok(&c));
    collect_deinit(&c);
}

/* An object in one line, also where the model wrote several, and where it was cut off. */
static void test_objects(void **state) {
    static const char *const list[][3] = {
        { "{\n  \"a b\": [1,\n 2],\t\"c\": \"x \\\" \\n y\"\n}", "", "{\"a b\":[1,2],\"c\":\"x \\\" \\n y\"}" },
        { "{}", "", "{}" },
        { "", "", "{}" },
        { "{\"a\": 1, \"b\": \"Par", "cut", "{\"a\":1}" },
        { "", "cut", "{}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        collect c;
        str     out;
        str_init(&out);
        assert_true(collect_init(&c, 1));
        give(&c, RUNTIME_TOOL_BEGIN, 0, "f");
        give(&c, RUNTIME_TOOL_ARGUMENTS, 0, list[i][0]);
        if (!list[i][1][0]) give(&c, RUNTIME_TOOL_END, 0, "");
        assert_int_equal(c.choices[0].calls[0].over, !list[i][1][0]);
        collect_put_object(&c.choices[0].calls[0], &out);
        assert_string_equal(str_cstr(&out), list[i][2]);
        str_deinit(&out);
        collect_deinit(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_order), cmocka_unit_test(test_objects) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
