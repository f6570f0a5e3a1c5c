/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of models: what it keeps, and that nothing reported as done is ever lost. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "registry/create.h"
#include "registry/registry.h"
#include "unit/support/model.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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
    test_write_file(path, "this is not a database, and it is long enough to be looked at as one.................", 80);
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

/* --- writers that are killed --- */

static void name_of(char out[48], int round, uint32_t i, const char *suffix) {
    snprintf(out, 48, "r%d-%u%s", round, i, suffix);
}

/* One step: a model with settings, an adapter and a blob, another name for it, and an older other name goes. */
static int step(registry *r, int round, uint32_t i, err *e) {
    char           name[48], copy[48], old[48];
    modelfile      m;
    create_request q = { .name = name, .base = "base", .modelfile = &m };
    name_of(name, round, i, "");
    name_of(copy, round, i, "-c");
    modelfile_init(&m);
    int rc = modelfile_add_param(&m, "top_k", "7", e);
    if (rc == 0) rc = modelfile_add_adapter(&m, "/adapters/x.gguf", e);
    if (rc == 0) rc = registry_create(r, &q, NULL, e);
    if (rc == 0) rc = registry_copy(r, name, copy, false, e);
    if (rc == 0 && i >= 2) {
        name_of(old, round, i - 2, "-c");
        rc = registry_remove(r, old, e);
    }
    modelfile_deinit(&m);
    return rc;
}

/* Says a number when its step is done; never ends by itself. */
static void write_for_ever(const char *path, int round, int out) {
    registry *r;
    if (registry_open(&r, path, NULL) < 0) _exit(1);
    for (uint32_t i = 0;; i++) {
        if (step(r, round, i, NULL) < 0) _exit(2);
        if (write(out, &i, sizeof i) != sizeof i) _exit(0);
    }
}

static void is_whole(registry *r, const char *name) {
    registry_model m;
    char          *settings, **digests;
    size_t         n;
    err            e = { 0 };
    if (registry_find(r, name, &m, &e) < 0) fail_msg("lost %s: %s", name, e.msg);
    assert_int_equal(registry_settings(r, name, &settings, &e), 0);
    assert_string_equal(settings, "{\"sampling\":{\"top_k\":7},\"adapters\":[{\"path\":\"/adapters/x.gguf\"}]}");
    free(settings);
    assert_int_equal(registry_blob_list(r, m.id, &digests, &n, &e), 0);
    assert_int_equal(n, 1);
    free(digests[0]);
    free(digests);
    registry_model_deinit(&m);
}

/* A model with a blob, for others to be made from. */
static void add_base(registry *r) {
    blob_writer    w;
    blob_lock      pin;
    char           digest[BLOB_DIGEST_CHARS];
    err            e = { 0 };
    registry_model m = { .name = "base", .path = "/models/x.gguf", .family = "llama" };
    assert_int_equal(registry_add(r, &m, false, &e), 0);
    assert_int_equal(blob_writer_begin(&w, r, NULL, &e), 0);
    assert_int_equal(blob_writer_put(&w, "blob", 4, &e), 0);
    assert_int_equal(blob_writer_commit(&w, digest, &pin, &e), 0);
    assert_int_equal(registry_blob_link(r, m.id, digest, 4, &e), 0);
    blob_unlock(&pin);
}

static void prints(sqlite3 *db, const char *sql, const char *want) {
    sqlite3_stmt *s;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    int step_rc = sqlite3_step(s);
    if (want)
        assert_int_equal(step_rc, SQLITE_ROW);
    else
        assert_int_equal(step_rc, SQLITE_DONE);
    if (want) assert_string_equal((const char *)sqlite3_column_text(s, 0), want);
    sqlite3_finalize(s);
}

/* Sound, and nothing hangs on a model that is not there. */
static void is_sound(const char *path) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    prints(db, "PRAGMA integrity_check", "ok");
    prints(db, "PRAGMA foreign_key_check", NULL);
    prints(db, "SELECT count(*) FROM tags WHERE ref_id NOT IN (SELECT id FROM models)", "0");
    prints(db, "SELECT count(*) FROM adapters WHERE model_id NOT IN (SELECT id FROM models)", "0");
    prints(db, "SELECT count(*) FROM model_blobs WHERE model_id NOT IN (SELECT id FROM models)", "0");
    sqlite3_close(db);
}

/* Kills writers at random moments: what was reported is there as a whole, and the file is sound. */
static void test_killed(void **state) {
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db");
    int       rounds = getenv("HEARTH_LONG") ? 500 : 25;
    long long steps = 0;
    (void)state;
    srand(7);
    registry *first = opened(path);
    add_base(first);
    registry_close(first);
    for (int round = 0; round < rounds; round++) {
        int      pipes[2];
        uint32_t said, last = 0, count = 0;
        char     name[48];
        err      e = { 0 };
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(pipes[0]);
            write_for_ever(path, round, pipes[1]);
        }
        close(pipes[1]);
        nanosleep(&(struct timespec){ 0, (rand() % (rounds > 25 ? 80000 : 24000)) * 1000L }, NULL);
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
            name_of(name, round, i, "");
            is_whole(r, name);
            name_of(name, round, i, "-c");
            if (i == last) is_whole(r, name);
            if (i + 2 <= last) assert_int_equal(registry_find(r, name, &m, &e), ERR_NOTFOUND);
            steps++;
        }
        registry_close(r);
    }
    printf("%d writers killed, %lld reported steps found\n", rounds, steps);
    assert_true(steps > 0);
    is_sound(path);
    free(path);
    test_temp_dir_remove(dir);
}

/* --- a full disk, and many at once --- */

typedef struct report {
    uint32_t done;
    err      why;
} report;

/* No file may grow beyond a limit: the write fails as on a full disk. */
static void write_until_full(const char *path, int out) {
    struct rlimit limit = { 96 << 10, 96 << 10 };
    registry     *r;
    report        p = { 0 };
    signal(SIGXFSZ, SIG_IGN);
    if (registry_open(&r, path, NULL) < 0 || setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    while (p.done < 100000 && step(r, 0, p.done, &p.why) == 0) p.done++;
    if (write(out, &p, sizeof p) != (ssize_t)sizeof p) _exit(2);
    registry_close(r);
    _exit(0);
}

static void test_full_disk(void **state) {
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db"), name[48];
    int       pipes[2], status;
    report    p;
    err       e = { 0 };
    registry *r = opened(path);
    (void)state;
    add_base(r);
    registry_close(r);
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) write_until_full(path, pipes[1]);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], &p, sizeof p), sizeof p);
    close(pipes[0]);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(p.done > 0 && p.done < 100000);
    assert_int_equal(p.why.code, ERR_IO);
    assert_non_null(strstr(p.why.msg, "registry.db"));
    r = opened(path);
    for (uint32_t i = 0; i < p.done; i++) {
        name_of(name, 0, i, "");
        is_whole(r, name);
    }
    assert_int_equal(step(r, 1, 0, &e), 0); /* and it goes on when there is room again */
    registry_close(r);
    is_sound(path);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_processes(void **state) {
    enum { PROCESSES = 4, STEPS = 20 };
    char     *dir = test_temp_dir(), *path = path_join(dir, "registry.db"), name[48];
    pid_t     child[PROCESSES];
    int       status;
    registry *r = opened(path);
    (void)state;
    add_base(r);
    registry_close(r);
    for (int k = 0; k < PROCESSES; k++) {
        assert_true((child[k] = fork()) >= 0);
        if (child[k] != 0) continue;
        if (registry_open(&r, path, NULL) < 0) _exit(1);
        for (uint32_t i = 0; i < STEPS; i++) {
            if (step(r, k, i, NULL) < 0) _exit(2);
        }
        _exit(0);
    }
    for (int k = 0; k < PROCESSES; k++) {
        waitpid(child[k], &status, 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    r = opened(path);
    for (int k = 0; k < PROCESSES; k++) {
        for (uint32_t i = 0; i < STEPS; i++) {
            name_of(name, k, i, "");
            is_whole(r, name);
        }
    }
    registry_close(r);
    is_sound(path);
    free(path);
    test_temp_dir_remove(dir);
}

/* Processes that make the file at the same moment all get it. */
static void test_made_at_once(void **state) {
    enum { CHILDREN = 6, ROUNDS = 15 };
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        char *dir = test_temp_dir(), path[500], byte;
        pid_t child[CHILDREN];
        int   go[2], status;
        snprintf(path, sizeof path, "%s/registry.db", dir);
        assert_int_equal(pipe(go), 0);
        fflush(stdout);
        for (int i = 0; i < CHILDREN; i++) {
            if ((child[i] = fork()) != 0) continue;
            registry *r = NULL;
            err       e = { 0 };
            close(go[1]);
            ssize_t ended = read(go[0], &byte, 1); /* all begin when the pipe is closed */
            int     rc = ended == 0 ? registry_open(&r, path, &e) : -1;
            if (rc < 0) fprintf(stderr, "child: %s\n", e.msg);
            registry_close(r);
            _exit(rc < 0);
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < CHILDREN; i++) {
            assert_int_equal(waitpid(child[i], &status, 0), child[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_at_once), cmocka_unit_test(test_names),  cmocka_unit_test(test_two),
        cmocka_unit_test(test_bad_files),    cmocka_unit_test(test_killed), cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
