/* SPDX-License-Identifier: Apache-2.0 */
/* Files stored by their digests: what is verified, what is shared, and what is freed when. */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "unit/support/model.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of "abc" and of nothing: FIPS 180-4's own examples. */
#define ABC "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
#define NOTHING "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

typedef struct place {
    char     *dir;
    registry *r;
} place;

static place open_place(void) {
    place p = { test_temp_dir(), NULL };
    char *path = path_join(p.dir, "registry.db");
    err   e = { 0 };
    if (registry_open(&p.r, path, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return p;
}

static void close_place(place *p) {
    registry_close(p->r);
    test_temp_dir_remove(p->dir);
}

static int put(registry *r, const char *want, const char *text, char digest[BLOB_DIGEST_CHARS], err *e) {
    blob_writer w;
    blob_lock   pin;
    if (blob_writer_begin(&w, r, want, e) < 0) fail_msg("%s", e->msg);
    for (const char *p = text; *p; p++) assert_int_equal(blob_writer_put(&w, p, 1, e), 0);
    int rc = blob_writer_commit(&w, digest, &pin, e);
    blob_unlock(&pin);
    return rc;
}

static int64_t add(registry *r, const char *name, const char *path) {
    registry_model m = { .name = (char *)name, .path = (char *)path };
    err            e = { 0 };
    if (registry_add(r, &m, true, &e) < 0) fail_msg("%s", e.msg);
    return m.id;
}

static int count_files(const char *dir) {
    char command[600];
    int  n = 0;
    snprintf(command, sizeof command, "find '%s' -type f ! -name 'registry.db*' | wc -l", dir);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &n), 1);
    pclose(f);
    return n;
}

static void test_digests(void **state) {
    (void)state;
    assert_true(blob_digest_ok(ABC));
    assert_false(blob_digest_ok("sha256:"));
    assert_false(blob_digest_ok("sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    assert_false(blob_digest_ok(ABC "0"));
    assert_false(blob_digest_ok("sha256:BA7816BF8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
    assert_false(blob_digest_ok("sha256:../816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"));
}

static void test_writer(void **state) {
    place       p = open_place();
    char        digest[BLOB_DIGEST_CHARS], *path;
    struct stat st;
    int64_t     size;
    err         e = { 0 };
    (void)state;
    assert_int_equal(put(p.r, NULL, "abc", digest, &e), 0);
    assert_string_equal(digest, ABC);
    assert_int_equal(put(p.r, ABC, "abc", digest, &e), 0); /* it is there already */
    assert_int_equal(put(p.r, NOTHING, "", digest, &e), 0);
    assert_int_equal(put(p.r, NOTHING, "x", digest, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, NOTHING));
    assert_true(registry_blob_has(p.r, ABC, &size) && size == 3);
    assert_int_equal(registry_blob_path(p.r, ABC, "", &path, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0444);
    free(path);
    assert_int_equal(registry_blob_path(p.r, "sha256:../../x", "", &path, &e), ERR_ARG);
    assert_int_equal(count_files(p.dir), 2); /* no temporary and no lock file stays */
    close_place(&p);
}

static void test_sharing(void **state) {
    place     p = open_place();
    char      digest[BLOB_DIGEST_CHARS], **list;
    size_t    n;
    int64_t   freed, one, two;
    blob_lock pin;
    err       e = { 0 };
    (void)state;
    assert_int_equal(put(p.r, NULL, "abc", digest, &e), 0);
    assert_int_equal(put(p.r, NULL, "", digest, &e), 0);
    one = add(p.r, "one", "/x");
    two = add(p.r, "two", "/x");
    assert_int_equal(registry_blob_link(p.r, one, ABC, 3, &e), 0);
    assert_int_equal(registry_blob_link(p.r, one, NOTHING, 0, &e), 0);
    assert_int_equal(registry_blob_link(p.r, two, ABC, 3, &e), 0);
    assert_int_equal(registry_blob_link(p.r, two, NOTHING, 0, &e), 0);
    assert_int_equal(registry_blob_list(p.r, two, &list, &n, &e), 0);
    assert_int_equal(n, 2);
    assert_string_equal(list[0], ABC);
    for (size_t i = 0; i < n; i++) free(list[i]);
    free(list);
    assert_int_equal(registry_remove(p.r, "one", &e), 0);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_int_equal(freed, 0);
    assert_true(registry_blob_has(p.r, ABC, NULL));
    assert_int_equal(registry_remove(p.r, "two", &e), 0);
    assert_int_equal(registry_blob_pin(p.r, ABC, &pin, &e), 0);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_true(registry_blob_has(p.r, ABC, NULL)); /* pinned */
    assert_false(registry_blob_has(p.r, NOTHING, NULL));
    blob_unlock(&pin);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_int_equal(freed, 3);
    assert_false(registry_blob_has(p.r, ABC, NULL));
    assert_int_equal(registry_blob_pin(p.r, ABC, &pin, &e), ERR_NOTFOUND);
    assert_int_equal(count_files(p.dir), 0);
    close_place(&p);
}

/* A name that is given to another model loses the blobs of the one before. */
static void test_replaced(void **state) {
    place   p = open_place();
    char    digest[BLOB_DIGEST_CHARS];
    int64_t freed;
    err     e = { 0 };
    (void)state;
    assert_int_equal(put(p.r, NULL, "abc", digest, &e), 0);
    assert_int_equal(registry_blob_link(p.r, add(p.r, "one", "/x"), ABC, 3, &e), 0);
    assert_int_equal(registry_tag(p.r, "one", "settings", "{}", &e), 0);
    add(p.r, "one", "/y");
    char *value;
    assert_int_equal(registry_tag_get(p.r, "one", "settings", &value, &e), ERR_NOTFOUND);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_int_equal(freed, 3);
    close_place(&p);
}

/* What never belonged to a model is kept for days, then goes, with the rest of a broken download. */
static void test_strays(void **state) {
    place           p = open_place();
    char            digest[BLOB_DIGEST_CHARS], *path, *partial;
    int64_t         freed;
    struct timespec old[2] = { { 1000000000, 0 }, { 1000000000, 0 } };
    err             e = { 0 };
    (void)state;
    assert_int_equal(put(p.r, NULL, "abc", digest, &e), 0);
    assert_int_equal(registry_blob_path(p.r, ABC, "", &path, &e), 0);
    assert_int_equal(registry_blob_path(p.r, NOTHING, ".partial", &partial, &e), 0);
    test_write_file(partial, "xy", 2);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_int_equal(freed, 0);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(utimensat(AT_FDCWD, partial, old, 0), 0);
    assert_int_equal(registry_blob_sweep(p.r, &freed, &e), 0);
    assert_int_equal(freed, 5);
    assert_int_equal(count_files(p.dir), 0);
    free(path);
    free(partial);
    close_place(&p);
}

static void test_folders(void **state) {
    place p = open_place();
    char  command[900], *used, *free_one, *precious;
    err   e = { 0 };
    (void)state;
    used = path_join(p.dir, "models/a/b/1");
    free_one = path_join(p.dir, "models/a/b/2");
    precious = path_join(p.dir, "models/c/d/3/notes.txt");
    snprintf(command, sizeof command,
             "cd '%s' && mkdir -p models/a/b/1 models/a/b/2/sub models/c/d/3 models/e/f && ln -s x models/a/b/1/y && "
             "ln -s x models/a/b/2/sub/y && ln -s x models/c/d/3/y && echo > models/c/d/3/notes.txt",
             p.dir);
    assert_int_equal(system(command), 0);
    add(p.r, "one", used);
    assert_int_equal(registry_blob_sweep(p.r, NULL, &e), 0);
    assert_true(dir_exists(used));
    assert_false(dir_exists(free_one));
    assert_true(file_exists(precious)); /* not ours */
    free(used);
    used = path_join(p.dir, "models/e");
    assert_false(dir_exists(used));
    free(used);
    free(free_one);
    free(precious);
    close_place(&p);
}

/* A maker that is killed leaves no lock behind. */
static void test_locks(void **state) {
    place     p = open_place();
    blob_lock lock, pin;
    int       pipes[2];
    char      c;
    err       e = { 0 };
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        if (registry_blob_try_lock(p.r, ABC, &lock, NULL) < 0 || write(pipes[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(pipes[0], &c, 1), 1);
    assert_int_equal(registry_blob_try_lock(p.r, ABC, &lock, &e), ERR_BUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(registry_blob_try_lock(p.r, ABC, &lock, &e), 0);
    assert_int_equal(registry_blob_try_lock(p.r, ABC, &pin, &e), ERR_BUSY);
    assert_int_equal(registry_blob_lock_to_pin(p.r, ABC, &lock, &e), ERR_NOTFOUND); /* nothing was made */
    assert_int_equal(count_files(p.dir), 0);
    close(pipes[0]);
    close(pipes[1]);
    close_place(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digests),  cmocka_unit_test(test_writer), cmocka_unit_test(test_sharing),
        cmocka_unit_test(test_replaced), cmocka_unit_test(test_strays), cmocka_unit_test(test_folders),
        cmocka_unit_test(test_locks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
