/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of models: what it keeps, and that nothing reported as done is ever lost. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/registry.h"
#include "unit/support/model.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static registry *opened(const char *path) {
    registry *r;
    err       e = { 0 };
    if (registry_open(&r, path, &e) < 0) fail_msg("%s", e.msg);
    return r;
}

static int add(registry *r, const char *name, bool replace, err *e) {
    registry_model m = {
        .name = (char *)name, .path = "/models/x.gguf", .family = "llama", .params = 7, .n_ctx = 8192
    };
    return registry_add(r, &m, replace, e);
}

static void test_names(void **state) {
    char          *dir = test_temp_dir(), *path = path_join(dir, "a/b/registry.db");
    registry      *r = opened(path);
    registry_model m, *list;
    size_t         n;
    char          *value;
    err            e = { 0 };
    (void)state;
    assert_int_equal(add(r, "llama3.2:1b", false, &e), 0);
    assert_int_equal(add(r, "other", false, &e), 0);
    assert_int_equal(add(r, "other:latest", false, &e), ERR_ARG); /* the same name */
    assert_non_null(strstr(e.msg, "already"));
    assert_int_equal(add(r, "other", true, &e), 0);
    assert_int_equal(add(r, "-x", false, &e), ERR_ARG);
    assert_int_equal(add(r, "a b", false, &e), ERR_ARG);
    assert_int_equal(add(r, "", false, &e), ERR_ARG);
    assert_int_equal(registry_find(r, "other:latest", &m, &e), 0);
    assert_string_equal(m.family, "llama");
    assert_null(m.sha256);
    assert_int_equal(m.n_ctx, 8192);
    assert_int_equal(m.last_used, 0);
    assert_true(m.created_at > 1700000000);
    registry_model_deinit(&m);
    assert_int_equal(registry_touch(r, "other", &e), 0);
    assert_int_equal(registry_find(r, "other", &m, &e), 0);
    assert_true(m.last_used > 1700000000);
    registry_model_deinit(&m);
    assert_int_equal(registry_tag(r, "other", "preset", "calm", &e), 0);
    assert_int_equal(registry_tag_get(r, "other", "preset", &value, &e), 0);
    assert_string_equal(value, "calm");
    free(value);
    assert_int_equal(registry_copy(r, "other", "third", false, &e), 0);
    assert_int_equal(registry_copy(r, "other", "other:latest", false, &e), 0); /* itself */
    assert_int_equal(registry_tag_get(r, "third", "preset", &value, &e), 0);
    assert_string_equal(value, "calm");
    free(value);
    assert_int_equal(registry_copy(r, "llama3.2:1b", "third", true, &e), 0);
    assert_int_equal(registry_tag_get(r, "third", "preset", &value, &e), ERR_NOTFOUND);
    assert_int_equal(registry_copy(r, "nobody", "fourth", false, &e), ERR_NOTFOUND);
    assert_int_equal(registry_copy(r, "other", "third", false, &e), ERR_ARG);
    assert_int_equal(registry_list(r, &list, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_string_equal(list[0].name, "llama3.2:1b");
    assert_string_equal(list[2].name, "third");
    for (size_t i = 0; i < n; i++) registry_model_deinit(&list[i]);
    free(list);
    assert_int_equal(registry_remove(r, "other", &e), 0);
    assert_int_equal(registry_remove(r, "other", &e), ERR_NOTFOUND);
    assert_int_equal(registry_tag_get(r, "other", "preset", &value, &e), ERR_NOTFOUND);
    registry_close(r);
    free(path);
    test_temp_dir_remove(dir);
}

/* Two handles on one file, as two processes have them. */
static void test_two(void **state) {
    char          *dir = test_temp_dir(), *path = path_join(dir, "registry.db");
    registry      *a = opened(path), *b = opened(path);
    registry_model m;
    err            e = { 0 };
    (void)state;
    assert_int_equal(add(a, "one", false, &e), 0);
    assert_int_equal(registry_find(b, "one", &m, &e), 0);
    registry_model_deinit(&m);
    assert_int_equal(add(b, "one", false, &e), ERR_ARG);
    assert_int_equal(registry_remove(b, "one", &e), 0);
    assert_int_equal(registry_find(a, "one", &m, &e), ERR_NOTFOUND);
    registry_close(a);
    registry_close(b);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_bad_files(void **state) {
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db");
    registry *r;
    sqlite3  *db;
    err       e = { 0 };
    (void)state;
    test_write_file(path, "this is no database, and it is long enough to be looked at as one.................", 80);
    assert_int_equal(registry_open(&r, path, &e), ERR_FORMAT);
    assert_null(r);
    assert_int_equal(unlink(path), 0);
    registry_close(opened(path));
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 1000", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(registry_open(&r, path, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "newer"));
    assert_int_equal(registry_open(&r, "/proc/nowhere/registry.db", &e), ERR_IO);
    free(path);
    test_temp_dir_remove(dir);
}

/* A writer that says a number when its row is in; it never ends by itself. */
static void write_for_ever(const char *path, int round, int out) {
    registry *r;
    char      name[48];
    if (registry_open(&r, path, NULL) < 0) _exit(1);
    for (uint32_t i = 0;; i++) {
        snprintf(name, sizeof name, "r%d-%u", round, i);
        if (add(r, name, false, NULL) < 0) _exit(2);
        if (write(out, &i, sizeof i) != sizeof i) _exit(0);
    }
}

/* Kills writers at random moments: every row that was reported is there, and the file is sound. */
static void test_killed(void **state) {
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db");
    int       rounds = getenv("HEARTH_LONG") ? 500 : 25;
    long long rows = 0;
    sqlite3  *db;
    (void)state;
    srand(7);
    registry_close(opened(path));
    for (int round = 0; round < rounds; round++) {
        int      pipes[2];
        uint32_t said, last = 0, count = 0;
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(pipes[0]);
            write_for_ever(path, round, pipes[1]);
        }
        close(pipes[1]);
        nanosleep(&(struct timespec){ 0, (rand() % 12000) * 1000L }, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], &said, sizeof said) == sizeof said) {
            last = said;
            count++;
        }
        close(pipes[0]);
        registry *r = opened(path);
        for (uint32_t i = 0; count && i <= last; i++) {
            registry_model m;
            char           name[48];
            err            e = { 0 };
            snprintf(name, sizeof name, "r%d-%u", round, i);
            if (registry_find(r, name, &m, &e) < 0) fail_msg("lost %s: %s", name, e.msg);
            registry_model_deinit(&m);
            rows++;
        }
        registry_close(r);
    }
    printf("%d writers killed, %lld reported rows found\n", rounds, rows);
    assert_true(rows > 0);
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_string_equal((const char *)sqlite3_column_text(s, 0), "ok");
    sqlite3_finalize(s);
    sqlite3_close(db);
    free(path);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_two),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
