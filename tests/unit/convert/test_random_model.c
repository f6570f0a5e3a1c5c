/* SPDX-License-Identifier: Apache-2.0 */
/* hearth debug random-model: every family can be written, opened and run; both backends agree op by op. */
#include "formats/model_file.h"
#include "models/list.h"
#include "unit/support/support.h"

#include <math.h>
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
    static const char *const parts[] = { "bert", "mpnet", "embed", "t5encoder", "electra" };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strstr(name, parts[i])) return true;
    }
    return strcmp(name, "new") == 0 || strcmp(name, "ernie") == 0;
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
        if (run("debug random-model --arch %s --layers 4 --dim 256 --heads 4 --kv-heads 2 --vocab 600 --context 512 "
                "--type Q8_0 %s",
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

static double row_size(const float *row, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += (double)row[i] * row[i];
    return sqrt(sum / n);
}

/* Two channels of each key head, next to each other, are 10 to 30 times as large as the others; no two rows are alike. */
static void test_outliers(void **state) {
    enum { COLS = 256, DIM = 64, HEADS = 2 };
    char       *dir = test_temp_dir(), path[600];
    model_file *file;
    err         e = { 0 };
    (void)state;
    snprintf(path, sizeof path, "%s/r.gguf", dir);
    assert_int_equal(run("debug random-model --layers 1 --dim 256 --heads 4 --kv-heads 2 --vocab 300 --outliers 30 "
                         "--type %s %s",
                         "F32", path),
                     0);
    assert_int_equal(model_file_open(&file, path, &e), 0);
    const model_tensor *k = model_file_tensor(file, "blk.0.attn_k.weight");
    assert_non_null(k);
    const float *rows = (const float *)(const void *)k->data;
    for (int h = 0; h < HEADS; h++) {
        double size[DIM];
        int    large = 0;
        for (int c = 0; c < DIM; c++) size[c] = row_size(rows + (h * DIM + c) * COLS, COLS);
        for (int c = 0; c < DIM; c += 2) {
            if (size[c] < 0.5) continue; /* the others: 1 / 16 */
            large++;
            assert_in_range((int)(size[c] * 16), 8, 32);
            assert_true(size[c + 1] > 0.8 * size[c] && size[c + 1] < 1.25 * size[c]);
        }
        assert_int_equal(large, 1);
    }
    for (int a = 0; a < HEADS * DIM; a++) {
        for (int b = 0; b < a; b++) assert_memory_not_equal(rows + a * COLS, rows + b * COLS, COLS * sizeof *rows);
    }
    model_file_free(file);
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
                                        cmocka_unit_test(test_the_vocabulary_is_one), cmocka_unit_test(test_outliers),
                                        cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
