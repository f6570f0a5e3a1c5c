/* SPDX-License-Identifier: Apache-2.0 */
/* hearth debug random-model: every family can be written, opened and run; both backends agree op by op. */
#include "models/list.h"
#include "unit/support/support.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static int run(const char *fmt, const char *a, const char *b) {
    char        command[2000], rest[1500];
    const char *program = getenv("HEARTH_PROGRAM");
    if (!program) program = "build/hearth";
    snprintf(rest, sizeof rest, fmt, a, b);
    snprintf(command, sizeof command, "%s %s >/dev/null 2>&1", program, rest);
    int rc = system(command);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* Families that make vectors: nothing follows a text. */
static bool is_encoder(const char *name) {
    static const char *const parts[] = { "bert", "mpnet", "embed", "t5encoder" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i])) return true;
    }
    return strcmp(name, "new") == 0;
}

/* Two processes per family are slow under a sanitizer: there one in five families goes through. */
#ifdef __SANITIZE_ADDRESS__
enum { ONE_IN = 5 };
#else
enum { ONE_IN = 1 };
#endif

static void test_every_family(void **state) {
    char *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/r.gguf", dir);
    for (const nn_arch *const *a = models_list; *a; a++) {
        if ((a - models_list) % ONE_IN != 0) continue;
        if (run("debug random-model --arch %s --layers 4 --dim 256 --heads 4 --kv-heads 2 --vocab 600 --type Q8_0 %s",
                (*a)->names[0], path) != 0)
            fail_msg("%s was not written", (*a)->names[0]);
        const char *more = is_encoder((*a)->names[0]) ? "" : " --greedy 2";
        if (run("logits %s --ids 1,2,3,4,5 --threads 1 --compare-scalar%s", path, more) != 0)
            fail_msg("%s: the backends differ", (*a)->names[0]);
    }
    test_temp_dir_remove(dir);
}

static void test_the_vocabulary_is_one(void **state) {
    char *dir = test_temp_dir(), path[600];
    (void)state;
    snprintf(path, sizeof path, "%s/r.gguf", dir);
    assert_int_equal(run("debug random-model --layers 1 --dim 64 --heads 2 --vocab 70000 --type %s %s", "F16", path),
                     0);
    assert_int_equal(run("tokenize %s --text 'any text at all'%s", path, ""), 0);
    test_temp_dir_remove(dir);
}

static void test_refusals(void **state) {
    (void)state;
    assert_int_equal(run("debug random-model --arch %s %s", "perceptron", "/dev/null/x"), 2);
    assert_int_equal(run("debug random-model --type %s %s", "Q9_Z", "/dev/null/x"), 2);
    assert_int_equal(run("debug random-model --set %s %s", "nonsense", "/dev/null/x"), 2);
    assert_int_equal(run("debug random-model --vocab %s %s", "7", "/dev/null/x"), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_family),
                                        cmocka_unit_test(test_the_vocabulary_is_one), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
