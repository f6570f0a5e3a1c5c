/* SPDX-License-Identifier: Apache-2.0 */
/* Files written in pieces: the same bytes for any number of threads, continued after a kill, nothing left behind. */
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/stream.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROWS = 3000, ROW_BYTES = 4099, HEAD = 100 };

static char head[HEAD];

/* Row r is made of bytes that depend on r; slow enough that a kill lands inside. */
static int fill(const void *ctx, int64_t first, int64_t n, void *out, float *scratch, err *e) {
    uint8_t *to = out;
    (void)scratch;
    (void)e;
    for (int64_t r = first; r < first + n; r++)
        for (int i = 0; i < ROW_BYTES; i++) *to++ = (uint8_t)(r * 31 + i + (intptr_t)ctx);
    return 0;
}

static int broken(const void *ctx, int64_t first, int64_t n, void *out, float *scratch, err *e) {
    (void)ctx, (void)n, (void)out, (void)scratch;
    return first > 500 ? err_set(e, ERR_FORMAT, "row %lld is bad", (long long)first) : 0;
}

static stream_job job(const char *path, stream_tensor t[2], stream_fill f) {
    uint64_t at = HEAD + 28;
    for (int k = 0; k < 2; k++) {
        t[k] = (stream_tensor){
            .offset = at, .rows = ROWS, .row_bytes = ROW_BYTES, .scratch = 7, .fill = f, .ctx = (void *)(intptr_t)k
        };
        at += (uint64_t)ROWS * ROW_BYTES + 5;
    }
    return (stream_job){
        .path = path, .head = head, .head_bytes = HEAD, .tensors = t, .n_tensors = 2, .bytes = at, .identity = 7
    };
}

static int write_with(const stream_job *j, int threads, stream_result *r, err *e) {
    pool *p;
    assert_int_equal(pool_open(&p, threads, false, NULL), 0);
    int rc = stream_write(j, p, r, e);
    pool_free(p);
    return rc;
}

static void test_threads(void **state) {
    char         *dir = test_temp_dir(), *a = path_join(dir, "a"), *b = path_join(dir, "b");
    char         *x, *y;
    size_t        n, m;
    stream_tensor t[2];
    stream_result r, s;
    (void)state;
    stream_job j = job(a, t, fill);
    assert_int_equal(write_with(&j, 1, &r, NULL), 0);
    j.path = b;
    assert_int_equal(write_with(&j, 3, &s, NULL), 0);
    assert_true(r.checksum == s.checksum && r.resumed == 0);
    assert_int_equal(file_read(&x, &n, a, 1 << 28, NULL), 0);
    assert_int_equal(file_read(&y, &m, b, 1 << 28, NULL), 0);
    assert_int_equal(n, j.bytes);
    assert_int_equal(m, n);
    assert_memory_equal(x, y, n);
    assert_int_equal((uint8_t)x[t[1].offset + 2 * ROW_BYTES + 9], (2 * 31 + 9 + 1) & 255);
    assert_int_equal(x[t[1].offset - 1], 0); /* padding */
    free(x), free(y), free(a), free(b);
    test_temp_dir_remove(dir);
}

static bool exists(const char *path, const char *suffix) {
    char name[4096];
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return file_exists(name);
}

static bool after_a_while(void *ctx, uint64_t done, uint64_t total) {
    (void)ctx;
    return done < total / 3;
}

static void test_stopped(void **state) {
    char         *dir = test_temp_dir(), *a = path_join(dir, "a");
    stream_tensor t[2];
    stream_result r;
    err           e = { 0 };
    (void)state;
    stream_job j = job(a, t, fill);
    j.progress = after_a_while;
    assert_int_equal(write_with(&j, 2, &r, &e), ERR_CANCELLED);
    assert_false(exists(a, "") || exists(a, ".partial") || exists(a, ".journal"));
    j.keep = true;
    assert_int_equal(write_with(&j, 2, &r, &e), ERR_CANCELLED);
    assert_true(!exists(a, "") && exists(a, ".partial") && exists(a, ".journal"));
    j.progress = NULL;
    assert_int_equal(write_with(&j, 2, &r, &e), 0);
    assert_true(r.resumed >= j.bytes / 4 && r.resumed < j.bytes);
    assert_true(exists(a, "") && !exists(a, ".partial") && !exists(a, ".journal"));

    j = job(a, t, broken);
    assert_int_equal(write_with(&j, 2, &r, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "is bad"));
    assert_true(exists(a, "") && !exists(a, ".partial")); /* the file that was there is untouched */
    j.bytes = (uint64_t)1 << 60;
    assert_int_equal(write_with(&j, 2, &r, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "are missing"));
    free(a);
    test_temp_dir_remove(dir);
}

/* Killed at several moments, then continued, also where the journal or a piece was damaged. */
static void test_killed(void **state) {
    char         *dir = test_temp_dir(), *a = path_join(dir, "a"), *b = path_join(dir, "b");
    stream_tensor t[2];
    stream_result whole, r;
    uint64_t      resumed = 0;
    (void)state;
    stream_job j = job(a, t, fill);
    assert_int_equal(write_with(&j, 1, &whole, NULL), 0);
    j.path = b;
    for (int k = 0; k < 6; k++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(write_with(&j, 1, &r, NULL) == 0 ? 0 : 1);
        usleep((useconds_t)(1500 * k));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (k == 4 && exists(b, ".partial")) { /* a byte that is wrong is found */
            char  name[4096];
            FILE *f;
            snprintf(name, sizeof name, "%s.partial", b);
            if ((f = fopen(name, "r+b"))) {
                fseek(f, (long)t[0].offset + 100, SEEK_SET);
                fputc(0x55, f);
                fclose(f);
            }
        }
        assert_int_equal(write_with(&j, 2, &r, NULL), 0);
        assert_true(r.checksum == whole.checksum);
        resumed += r.resumed;
        unlink(b);
    }
    printf("%llu bytes of six runs did not have to be made again\n", (unsigned long long)resumed);
    free(a), free(b);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
