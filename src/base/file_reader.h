/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many pieces of files read into memory at once, past the page cache where the file allows it.
 *
 * A disk is fast only while several reads wait for it. A few threads take pieces of at most 1 MiB from jobs, first come,
 * first served; a job is a list of extents of files that lie in one block of memory when it is done. Extents begin and
 * end at multiples of FILE_READER_ALIGN in the file and in memory, so that they can be read without the page cache
 * (O_DIRECT): what is read once for a step should not push out what every step reads. A file system that cannot do
 * that is read plainly. Interrupted and short reads go on where they ended; a file that ends early is an error.
 *
 * Nothing here allocates once the files are opened. One thread starts jobs and waits for them.
 */
#ifndef BASE_FILE_READER_H
#define BASE_FILE_READER_H

#include "base/err.h"
#include "base/file.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FILE_READER_ALIGN = 4096, FILE_READER_PIECE = 1 << 20, FILE_READER_THREADS = 8 };

typedef struct file_reader file_reader;

/* What reads: as pread does. For tests; NULL: pread itself. */
typedef struct file_reader_hook {
    ssize_t (*read)(void *ctx, int fd, void *to, size_t bytes, off_t at);
    void *ctx;
} file_reader_hook;

typedef struct file_reader_extent {
    int      file;  /* as file_reader_add said */
    uint64_t at;    /* in the file */
    size_t   bytes; /* room for it in memory */
    size_t   least; /* of these must be there; the file may end behind them */
    size_t   to;    /* in the job's memory */
} file_reader_extent;

typedef struct file_reader_job {
    const file_reader_extent *extents; /* live until the job is over, as does the memory */
    int                       n_extents;
    uint8_t                  *to;

    /* The reader's. */
    struct file_reader_job *next;
    int                     extent; /* the next piece: which extent, and where in it */
    size_t                  offset;
    int                     under_way; /* pieces that threads have taken */
    bool                    over;
    int      failed_file, error; /* error: errno, FILE_READER_ENDED, FILE_READER_DROPPED; 0: all is there */
    uint64_t failed_at;
} file_reader_job;

enum { FILE_READER_ENDED = -1, FILE_READER_DROPPED = -2 };

int  file_reader_open(file_reader **out, int n_threads, const file_reader_hook *hook, err *e); /* hook is copied */
void file_reader_free(file_reader *r); /* accepts NULL; jobs must be over */

/* Opens the file that a mapping was made of; a number >= 0, or an error where another one has its name by now. */
int file_reader_add(file_reader *r, const char *path, const file_map *map, err *e);

void file_reader_start(file_reader *r, file_reader_job *j);
bool file_reader_is_over(file_reader *r, const file_reader_job *j);
void file_reader_wait(file_reader *r, const file_reader_job *j);
/* Takes no further piece of it and waits for those that were taken. A job that is over stays as it is. */
void file_reader_drop(file_reader *r, file_reader_job *j);
/* The sentence about a job that failed. */
int file_reader_describe(const file_reader *r, const file_reader_job *j, err *e);

const atomic_uint_least64_t *file_reader_bytes(const file_reader *r); /* read so far; any thread may look */

#endif
