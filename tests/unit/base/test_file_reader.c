/* SPDX-License-Identifier: Apache-2.0 */
/* Files read by several threads at once: every byte in its place, whatever single reads do; ends, errors, dropped jobs. */
#include "base/file_reader.h"
#include "unit/support/support.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 3 * FILE_READER_PIECE + 12345, JOBS = 12 };

typedef struct world {
    char        *dir, path[600];
    uint8_t     *bytes;
    file_map     map;
    file_reader *r;
    int          file;
} world;

static void world_open(world *w, const file_reader_hook *hook) {
    uint64_t seed = 3;
    err      e = { 0 };
    w->dir = test_temp_dir();
    snprintf(w->path, sizeof w->path, "%s/bytes", w->dir);
    w->bytes = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++) w->bytes[i] = (uint8_t)test_random(&seed);
    FILE *f = fopen(w->path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(w->bytes, 1, BYTES, f), BYTES);
    fclose(f);
    assert_int_equal(file_map_open(&w->map, w->path, &e), 0);
    assert_int_equal(file_reader_open(&w->r, 4, hook, &e), 0);
    w->file = file_reader_add(w->r, w->path, &w->map, &e);
    assert_int_equal(w->file, 0);
}

static void world_close(world *w) {
    file_reader_free(w->r);
    file_map_close(&w->map);
    free(w->bytes);
    test_temp_dir_remove(w->dir);
}

typedef struct manner {
    atomic_int n;
    int        kind, fail_at;
} manner;

static ssize_t read_so(void *ctx, int fd, void *to, size_t bytes, off_t at) {
    manner *m = ctx;
    int     k = atomic_fetch_add(&m->n, 1) + 1;
    if (k == m->fail_at) {
        errno = EIO;
        return -1;
    }
    if (m->kind == 1 && k % 2) {
        errno = EINTR;
        return -1;
    }
    size_t some = (size_t)(k * 7919) % 50000 + 1;
    if (m->kind == 2 && bytes > some) bytes = some;
    if (m->kind == 3) nanosleep(&(struct timespec){ .tv_nsec = 100000 * (k % 5) }, NULL);
    return pread(fd, to, bytes, at);
}

/* Two extents of the file, the second one up to its end. */
static void fill_extents(file_reader_extent x[2], int i) {
    size_t at = (size_t)i * 2 * FILE_READER_ALIGN, behind = (size_t)(i + 200) * FILE_READER_ALIGN;
    x[0] = (file_reader_extent){ .at = at,
                                 .bytes = FILE_READER_PIECE + FILE_READER_ALIGN,
                                 .least = FILE_READER_PIECE + 100 };
    x[1] =
        (file_reader_extent){ .at = behind,
                              .bytes = (BYTES - behind + FILE_READER_ALIGN - 1) / FILE_READER_ALIGN * FILE_READER_ALIGN,
                              .least = BYTES - behind,
                              .to = x[0].bytes };
}

static void test_bytes(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        manner             m = { .kind = kind };
        world              w;
        file_reader_extent x[JOBS][2];
        file_reader_job    jobs[JOBS];
        world_open(&w, &(file_reader_hook){ read_so, &m });
        for (int i = 0; i < JOBS; i++) {
            fill_extents(x[i], i);
            uint8_t *to = aligned_alloc(FILE_READER_ALIGN, x[i][0].bytes + x[i][1].bytes);
            jobs[i] = (file_reader_job){ .extents = x[i], .n_extents = 2, .to = to };
            file_reader_start(w.r, &jobs[i]);
        }
        for (int i = JOBS - 1; i >= 0; i--) {
            file_reader_wait(w.r, &jobs[i]);
            assert_true(file_reader_is_over(w.r, &jobs[i]));
            assert_int_equal(jobs[i].error, 0);
            for (int k = 0; k < 2; k++)
                assert_memory_equal(jobs[i].to + x[i][k].to, w.bytes + x[i][k].at, x[i][k].least);
            free(jobs[i].to);
        }
        assert_true(atomic_load(file_reader_bytes(w.r)) > (uint64_t)JOBS * FILE_READER_PIECE);
        world_close(&w);
    }
}

static void test_errors(void **state) {
    (void)state;
    for (int at = 1; at <= 5; at++) {
        manner             m = { .fail_at = at, .kind = 3 };
        world              w;
        file_reader_extent x[2];
        err                e = { 0 };
        world_open(&w, &(file_reader_hook){ read_so, &m });
        fill_extents(x, 1);
        uint8_t        *to = aligned_alloc(FILE_READER_ALIGN, x[0].bytes + x[1].bytes);
        file_reader_job bad = { .extents = x, .n_extents = 2, .to = to };
        file_reader_start(w.r, &bad);
        file_reader_wait(w.r, &bad);
        assert_int_equal(bad.error, EIO);
        assert_int_equal(file_reader_describe(w.r, &bad, &e), ERR_IO);
        assert_non_null(strstr(e.msg, w.path));
        file_reader_job good = { .extents = x, .n_extents = 2, .to = to };
        file_reader_start(w.r, &good);
        file_reader_wait(w.r, &good);
        assert_int_equal(good.error, 0);
        assert_memory_equal(to + x[1].to, w.bytes + x[1].at, x[1].least);
        free(to);
        world_close(&w);
    }
}

static void test_cut_file(void **state) {
    world              w;
    file_reader_extent x[2];
    err                e = { 0 };
    (void)state;
    world_open(&w, NULL);
    fill_extents(x, 0);
    uint8_t *to = aligned_alloc(FILE_READER_ALIGN, x[0].bytes + x[1].bytes);
    assert_int_equal(truncate(w.path, 2 * FILE_READER_PIECE + 777), 0);
    file_reader_job j = { .extents = x, .n_extents = 2, .to = to };
    file_reader_start(w.r, &j);
    file_reader_wait(w.r, &j);
    assert_int_equal(j.error, FILE_READER_ENDED);
    assert_int_equal(file_reader_describe(w.r, &j, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "ends within"));
    free(to);
    world_close(&w);
}

/* Jobs that nobody wants any more leave the others alone. */
static void test_dropped(void **state) {
    manner             m = { .kind = 3 };
    world              w;
    file_reader_extent x[JOBS][2];
    file_reader_job    jobs[JOBS];
    (void)state;
    world_open(&w, &(file_reader_hook){ read_so, &m });
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < JOBS; i++) {
            fill_extents(x[i], i);
            uint8_t *to = aligned_alloc(FILE_READER_ALIGN, x[i][0].bytes + x[i][1].bytes);
            jobs[i] = (file_reader_job){ .extents = x[i], .n_extents = 2, .to = to };
            file_reader_start(w.r, &jobs[i]);
        }
        for (int i = round % 3; i < JOBS; i += 2) {
            file_reader_drop(w.r, &jobs[i]);
            assert_true(jobs[i].over && (jobs[i].error == 0 || jobs[i].error == FILE_READER_DROPPED));
        }
        for (int i = 0; i < JOBS; i++) {
            file_reader_wait(w.r, &jobs[i]);
            if (jobs[i].error == 0) assert_memory_equal(jobs[i].to + x[i][1].to, w.bytes + x[i][1].at, x[i][1].least);
            free(jobs[i].to);
        }
    }
    world_close(&w);
}

static void test_other_file(void **state) {
    world w;
    err   e = { 0 };
    (void)state;
    world_open(&w, NULL);
    assert_int_equal(unlink(w.path), 0);
    assert_int_equal(file_reader_add(w.r, w.path, &w.map, &e), ERR_IO);
    FILE *f = fopen(w.path, "wb");
    fclose(f);
    assert_int_equal(file_reader_add(w.r, w.path, &w.map, &e), ERR_IO);
    assert_non_null(strstr(e.msg, "was replaced"));
    world_close(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bytes), cmocka_unit_test(test_errors),
                                        cmocka_unit_test(test_cut_file), cmocka_unit_test(test_dropped),
                                        cmocka_unit_test(test_other_file) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
