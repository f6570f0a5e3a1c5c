/* SPDX-License-Identifier: Apache-2.0 */
/* Markdown in colours, whatever pieces it comes in. Widths need a terminal: tests/cli/check_terminal.py. */
#include "cli/run/wrap.h"
#include "unit/support/support.h"

#include <string.h>

static void shows(bool markdown, const char *text, const char *want) {
    for (size_t piece = 1; piece <= 64; piece *= 4) {
        wrap w;
        str  out;
        wrap_init(&w, markdown);
        str_init(&out);
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t left = strlen(text) - at;
            wrap_put(&w, (view){ text + at, left < piece ? left : piece }, &out);
        }
        wrap_finish(&w, &out);
        assert_string_equal(str_cstr(&out), want);
        str_deinit(&out);
        wrap_deinit(&w);
    }
}

static void test_plain(void **state) {
    (void)state;
    shows(false, "# a **b** `c`\n\n  d  e ", "# a **b** `c`\n\n  d  e");
    shows(false, "1 * 2 ** 3", "1 * 2 ** 3");
    shows(false, "```c\n  a  b\n```\n  c", "```c\n  a  b\n```\n  c");
}

static void test_markdown(void **state) {
    (void)state;
    shows(true, "# Title\nplain", "\033[0m\033[1mTitle\033[0m\nplain");
    shows(true, "a **b c** d", "a \033[0m\033[1mb c\033[0m d");
    shows(true, "use `x * y` now", "use \033[0m\033[36mx * y\033[0m now");
    shows(true, "2 * 3 and #5", "2 * 3 and #5");
    shows(true, "####### seven", "####### seven");
    shows(true, "```c\n# a ** `b`\n```\n# T", "\033[0m\033[36m```c\n# a ** `b`\n``\033[0m`\n\033[0m\033[1mT\033[0m");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_plain), cmocka_unit_test(test_markdown) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
