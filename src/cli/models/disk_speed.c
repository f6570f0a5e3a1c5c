/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/models/disk_speed.h"

#include "base/clock.h"
#include "base/file_reader.h"
#include "base/huge.h"

#include <sys/mman.h>

enum { PLACES = 16, EXTENT = 4 << 20 };

/* One place in memory after another is filled with the next part of the file. */
static int read_through(file_reader *r, int file, size_t bytes, uint8_t *room, double *out, err *e) {
    file_reader_extent extents[PLACES];
    file_reader_job    jobs[PLACES] = { 0 };
    size_t             asked = 0, done = 0;
    double             begin = clock_s();
    int                rc = 0;
    for (int i = 0; done < bytes; i = (i + 1) % PLACES) {
        if (jobs[i].extents) {
            file_reader_wait(r, &jobs[i]);
            if (jobs[i].error) rc = file_reader_describe(r, &jobs[i], e);
            done += extents[i].least;
            jobs[i].extents = NULL;
        }
        bool more = rc == 0 && asked < bytes && clock_s() - begin < 2;
        if (more) {
            size_t n = bytes - asked < EXTENT ? bytes - asked : EXTENT;
            extents[i] = (file_reader_extent){ .file = file, .at = asked, .bytes = EXTENT, .least = n };
            jobs[i] = (file_reader_job){ .extents = &extents[i], .n_extents = 1, .to = room + (size_t)i * EXTENT };
            file_reader_start(r, &jobs[i]);
            asked += n;
        } else if (done == asked) {
            break;
        }
    }
    *out = (double)done / (clock_s() - begin);
    return rc;
}

int disk_speed_measure(const model_file *f, double *out, err *e) {
    const file_map *map, *largest = NULL;
    const char     *path = NULL;
    file_reader    *r = NULL;
    *out = 0;
    for (int i = 0; i < model_file_mapping_count(f); i++) {
        const char *name = model_file_mapping(f, i, &map);
        if (largest && largest->bytes >= map->bytes) continue;
        largest = map;
        path = name;
    }
    if (!path) return 0;
    uint8_t *room = huge_map((size_t)PLACES * EXTENT, false); /* as slots are */
    int      rc = room ? file_reader_open(&r, FILE_READER_THREADS, NULL, e) : err_set_nomem(e);
    int      file = rc == 0 ? file_reader_add(r, path, largest, e) : rc;
    if (file >= 0) rc = read_through(r, file, largest->bytes, room, out, e);
    file_reader_free(r);
    if (room) munmap(room, (size_t)PLACES * EXTENT);
    return file < 0 ? file : rc;
}
