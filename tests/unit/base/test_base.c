/* SPDX-License-Identifier: Apache-2.0 */
/* Errors, arena, strings, map, checked arithmetic, files, log, clock. */
#include "unit/support/support.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/log.h"
#include "base/map.h"
#include "base/num.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_err_context(void **state) {
    err e = { 0 };
    (void)state;
    assert_int_equal(err_set(&e, ERR_FORMAT, "offset %d lies beyond the end", 9000), ERR_FORMAT);
    assert_int_equal(err_wrap(&e, ERR_FORMAT, "tensor %s", "blk.0"), ERR_FORMAT);
    assert_int_equal(err_wrap(&e, ERR_FORMAT, "%s", "model.gguf"), ERR_FORMAT);
    assert_string_equal(e.msg, "model.gguf: tensor blk.0: offset 9000 lies beyond the end");
    assert_int_equal(err_set(NULL, ERR_IO, "nobody listens"), ERR_IO);
    errno = ENOENT;
    assert_int_equal(err_set_errno(&e, "cannot open %s", "x"), ERR_IO);
    assert_string_equal(e.msg, "cannot open x: No such file or directory");
}

static void test_err_is_cut_not_overrun(void **state) {
    err  e = { 0 };
    char big[4000];
    (void)state;
    memset(big, 'a', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    err_set(&e, ERR_FORMAT, "%s", big);
    err_wrap(&e, ERR_FORMAT, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void test_arena(void **state) {
    arena a;
    (void)state;
    arena_init(&a, 0);
    char *small = arena_strdup(&a, "hearth");
    for (int i = 1; i < 3000; i++) {
        uint8_t *p = arena_alloc(&a, (size_t)i);
        assert_int_equal((uintptr_t)p % 16, 0);
        memset(p, 0xAB, (size_t)i);
    }
    assert_string_equal(small, "hearth");
    assert_null(arena_calloc(&a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_reset(&a);
    assert_int_equal(a.used_bytes, 0);
    arena_deinit(&a);
    arena_init(&a, 100);
    assert_non_null(arena_alloc(&a, 64));
    assert_null(arena_alloc(&a, 64)); /* the limit counts everything */
    assert_non_null(arena_alloc(&a, 16));
    arena_deinit(&a);
}

static void test_str(void **state) {
    str s;
    (void)state;
    str_init(&s);
    assert_string_equal(str_cstr(&s), "");
    for (int i = 0; i < 1000; i++) str_printf(&s, "%d,", i);
    assert_int_equal(s.len, 3890);
    str_clear(&s);
    str_put_utf8(&s, 0x20AC);
    str_put_utf8(&s, 0xD800); /* a surrogate is not a character */
    assert_string_equal(str_cstr(&s), "\xE2\x82\xAC\xEF\xBF\xBD");
    str_clear(&s);
    str_put_json(&s, "a\"\\\n\x01\xC3\xA9\xFF", 8);
    assert_string_equal(str_cstr(&s), "\"a\\\"\\\\\\n\\u0001\xC3\xA9\xEF\xBF\xBD\"");
    str_clear(&s);
    str_put_json(&s, "\x0f\x10\x1b\x1f\x7f", 5);
    assert_string_equal(str_cstr(&s), "\"\\u000f\\u0010\\u001b\\u001f\x7f\"");
    str_deinit(&s);
    s.limit = 4;
    str_puts(&s, "1234");
    assert_true(str_ok(&s));
    str_push(&s, '5');
    assert_false(str_ok(&s));
    assert_null(str_take(&s));
}

static void test_utf8_decode(void **state) {
    unsigned cp;
    (void)state;
    assert_int_equal(utf8_decode("\xF0\x9F\x98\x80", 4, &cp), 4);
    assert_int_equal(cp, 0x1F600);
    static const char *const bad[] = { "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                                       "\x80",     "\xFF",         "\xE2\x82" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
}

static void test_map(void **state) {
    map      m;
    uint64_t v;
    char    *keys = malloc(20000 * 8);
    (void)state;
    map_init(&m);
    assert_false(map_get_c(&m, "a", &v));
    for (unsigned i = 0; i < 20000; i++) {
        snprintf(keys + i * 8, 8, "k%u", i);
        assert_true(map_put(&m, keys + i * 8, strlen(keys + i * 8), i));
    }
    assert_true(map_put(&m, "k7", 2, 777)); /* replaces */
    assert_int_equal(m.count, 20000);
    for (unsigned i = 0; i < 20000; i++) {
        assert_true(map_get_c(&m, keys + i * 8, &v));
        assert_int_equal(v, i == 7 ? 777 : i);
    }
    assert_false(map_get_c(&m, "k20000", NULL));
    size_t          cursor = 0, n = 0;
    const map_slot *slot;
    while (map_next(&m, &cursor, &slot)) n++;
    assert_int_equal(n, 20000);
    map_deinit(&m);
    free(keys);
}

static void test_checked_arithmetic(void **state) {
    size_t   s = 1;
    uint64_t u = 1;
    (void)state;
    assert_false(num_add_size(SIZE_MAX, 1, &s));
    assert_false(num_mul_size(SIZE_MAX / 2, 3, &s));
    assert_int_equal(s, 1);
    assert_true(num_align_up(33, 32, &u));
    assert_int_equal(u, 64);
    assert_false(num_align_up(UINT64_MAX, 32, &u));
}

static void test_file_map(void **state) {
    char    *dir = test_temp_dir(), *path = path_join(dir, "f");
    file_map m;
    err      e;
    (void)state;
    FILE *f = fopen(path, "w");
    fputs("hearth", f);
    fclose(f);
    assert_int_equal(file_map_open(&m, path, &e), 0);
    assert_int_equal(m.bytes, 6);
    assert_memory_equal(m.data, "hearth", 6);
    file_map_close(&m);
    assert_int_equal(file_map_open(&m, dir, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "not a regular file"));
    assert_int_equal(file_map_open(&m, "/no/such/file", &e), ERR_IO);
    f = fopen(path, "w");
    fclose(f);
    assert_int_equal(file_map_open(&m, path, &e), 0); /* empty */
    assert_null(m.data);
    file_map_close(&m);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_map_open(&m, path, &e), ERR_IO); /* returns at once */
    free(path);
    test_temp_dir_remove(dir);
}

enum { SETTLE_BYTES = (21 << 20) + 12345 }; /* more than one piece, and an end that is not a whole page */

static uint32_t settle_word(size_t i) { return (uint32_t)(i * 2654435761u ^ i >> 7); }

typedef struct settle_reader {
    file_map    m;
    atomic_bool done;
    size_t      wrong, passes;
} settle_reader;

static void *settle_read(void *arg) {
    settle_reader *r = arg;
    do {
        for (size_t i = r->passes % 1024; i < r->m.bytes / 4; i += 1021) {
            uint32_t v;
            memcpy(&v, r->m.data + 4 * i, 4);
            r->wrong += v != settle_word(i);
        }
        r->passes++;
    } while (!atomic_load(&r->done));
    return NULL;
}

/* The bytes stay what they were for somebody who reads them all the time, and the file is no longer needed for them. */
static void test_file_settle(void **state) {
    char         *dir = test_temp_dir(), *path = path_join(dir, "f");
    uint32_t     *words = malloc(SETTLE_BYTES / 4 * 4 + 4);
    settle_reader r = { 0 };
    atomic_bool   stop = true;
    pthread_t     t;
    err           e;
    (void)state;
    for (size_t i = 0; i <= SETTLE_BYTES / 4; i++) words[i] = settle_word(i);
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(words, 1, SETTLE_BYTES, f), SETTLE_BYTES);
    fclose(f);
    assert_int_equal(file_map_open(&r.m, path, &e), 0);
    assert_int_equal(file_map_settle(&r.m, &stop), 0);
    assert_int_equal(pthread_create(&t, NULL, settle_read, &r), 0);
    size_t moved = file_map_settle(&r.m, NULL);
    atomic_store(&r.done, true);
    pthread_join(t, NULL);
    assert_int_equal(r.wrong, 0);
    assert_true(moved <= 20 << 20 && moved % (2 << 20) == 0); /* none where the system has no huge pages */
    assert_memory_equal(r.m.data, words, SETTLE_BYTES);
    if (moved > 0) { /* what the file says now does not matter any more */
        f = fopen(path, "r+");
        fputs("other", f);
        fclose(f);
        assert_memory_equal(r.m.data, words, moved);
    }
    file_map_close(&r.m);
    free(words);
    free(path);
    test_temp_dir_remove(dir);
}

static void test_file_replace(void **state) {
    char        *dir = test_temp_dir(), *path = path_join(dir, "f"), *text;
    file_replace r;
    size_t       n;
    err          e;
    struct stat  st;
    (void)state;
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    fputs("old", r.out);
    assert_int_equal(file_replace_commit(&r, &e), 0);
    chmod(path, 0640);
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    fputs("new", r.out);
    assert_int_equal(file_read(&text, &n, path, 100, &e), 0);
    assert_string_equal(text, "old"); /* until the commit */
    free(text);
    assert_int_equal(file_replace_commit(&r, &e), 0);
    assert_int_equal(file_read(&text, &n, path, 100, &e), 0);
    assert_string_equal(text, "new");
    free(text);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    fputs("never", r.out);
    file_replace_abort(&r);
    assert_int_equal(file_read(&text, &n, path, 2, &e), ERR_LIMIT);
    assert_int_equal(file_replace_begin(&r, "/no/such/dir/f", &e), ERR_IO);
    unlink(path);
    assert_int_equal(rmdir(dir), 0); /* no temporary was left behind */
    free(dir);
    free(path);
}

/* A pipe (or a device) is written to, not replaced by a file. */
static void test_file_replace_pipe(void **state) {
    char        *dir = test_temp_dir(), *path = path_join(dir, "pipe"), got[4] = "";
    file_replace r;
    err          e;
    struct stat  st;
    (void)state;
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    fputs("abc", r.out);
    assert_int_equal(file_replace_commit(&r, &e), 0);
    assert_int_equal(read(fd, got, 3), 3);
    assert_string_equal(got, "abc");
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(fd);
    assert_int_equal(file_replace_begin(&r, dir, &e), ERR_IO); /* a directory is refused */
    free(path);
    test_temp_dir_remove(dir);
}

static void test_dir_make(void **state) {
    char       *dir = test_temp_dir(), *path = path_join(dir, "a/b//c/"), *file = path_join(dir, "a/f"), *below;
    err         e = { 0 };
    struct stat st;
    (void)state;
    assert_int_equal(dir_make(path, &e), 0);
    assert_true(stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 0777) == 0700);
    assert_int_equal(dir_make(path, &e), 0); /* it is there */
    assert_int_equal(dir_make("/", &e), 0);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fclose(f);
    below = path_join(file, "d");
    assert_int_equal(dir_make(below, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "a/f"));
    assert_int_equal(dir_make(file, &e), ERR_IO);
    free(below);
    free(file);
    free(path);
    test_temp_dir_remove(dir);
}

/* A write that the system refuses (file size limit) leaves the old file and no temporary. */
static void test_file_replace_full(void **state) {
    char         *dir = test_temp_dir(), *path = path_join(dir, "f"), *text;
    file_replace  r;
    size_t        n;
    err           e;
    struct rlimit old, small;
    (void)state;
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    fputs("old", r.out);
    assert_int_equal(file_replace_commit(&r, &e), 0);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    assert_int_equal(file_replace_begin(&r, path, &e), 0);
    for (int i = 0; i < 100000; i++) fputc('x', r.out);
    assert_int_equal(file_replace_commit(&r, &e), ERR_IO);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(file_read(&text, &n, path, 100, &e), 0);
    assert_string_equal(text, "old");
    free(text);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
    free(dir);
    free(path);
}

static void collect(void *ctx, const log_record *r) {
    str *out = ctx;
    log_format_json(r, out);
}

static void test_log(void **state) {
    str        out;
    log_record r = { LOG_WARN, "gguf", "a \"quoted\" word", 1767366245123456, NULL };
    (void)state;
    str_init(&out);
    log_info("test", "no sink yet");
    log_set_sink(collect, &out, LOG_INFO);
    log_debug("test", "below the level");
    log_warn("test", "two\nlines %d", 2);
    log_set_sink(NULL, NULL, LOG_OFF);
    log_error("test", "no sink any more");
    assert_non_null(strstr(str_cstr(&out), "\"level\":\"warn\",\"module\":\"test\",\"message\":\"two lines 2\"}\n"));
    assert_null(strchr(strchr(str_cstr(&out), '\n') + 1, '\n'));
    str_clear(&out);
    log_format_text(&r, &out);
    assert_string_equal(str_cstr(&out), "2026-01-02T15:04:05.123Z warn gguf: a \"quoted\" word\n");
    str_clear(&out);
    r.fields = "\"status\":200";
    log_format_json(&r, &out);
    assert_non_null(strstr(str_cstr(&out), "\"message\":\"a \\\"quoted\\\" word\",\"status\":200}\n"));
    str_deinit(&out);
}

/* The units are of one clock, and a wait by it lasts as long as was said. */
static void test_clock(void **state) {
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t  never;
    (void)state;
    int64_t ns = clock_ns(), us = clock_us(), ms = clock_ms();
    double  s = clock_s();
    assert_true(us >= ns / 1000 && ms >= us / 1000 && s * 1e3 >= (double)ms);
    assert_true(clock_ns() >= (int64_t)(s * 1e9) - 1000);
    struct timespec at = clock_moment(1999);
    assert_true(at.tv_sec == 1 && at.tv_nsec == 999000000);
    clock_cond_init(&never);
    pthread_mutex_lock(&lock);
    int64_t begin = clock_ns();
    at = clock_after(20);
    while (pthread_cond_timedwait(&never, &lock, &at) != ETIMEDOUT) {
    }
    assert_true(clock_ns() - begin >= 20000000);
    pthread_mutex_unlock(&lock);
    pthread_cond_destroy(&never);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_context),
        cmocka_unit_test(test_err_is_cut_not_overrun),
        cmocka_unit_test(test_arena),
        cmocka_unit_test(test_str),
        cmocka_unit_test(test_utf8_decode),
        cmocka_unit_test(test_map),
        cmocka_unit_test(test_checked_arithmetic),
        cmocka_unit_test(test_file_map),
        cmocka_unit_test(test_file_settle),
        cmocka_unit_test(test_file_replace),
        cmocka_unit_test(test_file_replace_pipe),
        cmocka_unit_test(test_file_replace_full),
        cmocka_unit_test(test_dir_make),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
