/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: read-only mappings, whole-file reads with a limit, atomic replacement.
 *
 * A mapping of a file that another process truncates afterwards raises SIGBUS on access; model files are treated as
 * immutable while they are open, and this is the one assumption made about them.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct file_map {
    const uint8_t *data; /* NULL for an empty file */
    size_t         bytes;
    uint64_t       device, inode; /* which file it is, whatever has its name later */
} file_map;

/* Maps a regular file read-only. Directories, devices and pipes are refused. */
int  file_map_open(file_map *out, const char *path, err *e);
void file_map_close(file_map *m); /* accepts a zeroed map */

/*
 * Moves the bytes of a mapping into pages of 2 MB, at the same addresses and while others read them: each piece is
 * copied beside and then takes the place of the file's pages, in one step. The page cache of most file systems has
 * small pages, and reading gigabytes through them costs about a tenth in address translation. The copies are memory of
 * this process: whoever calls this has made sure that there is room. Stops between two pieces once *stop is true (NULL:
 * never), and when the system has no such page left. Returns the bytes moved.
 */
size_t file_map_settle(const file_map *m, const atomic_bool *stop);

/* Reads a whole file (also a pipe) of at most limit bytes; *out is NUL-terminated and owned by the caller. */
int file_read(char **out, size_t *out_bytes, const char *path, size_t limit, err *e);
int file_read_stream(char **out, size_t *out_bytes, FILE *in, const char *name, size_t limit, err *e);

bool file_exists(const char *path); /* a regular file */
bool dir_exists(const char *path);

/* Makes a directory and those above it, for the owner only; one that is there is left as it is. */
int dir_make(const char *path, err *e);

/* dir + "/" + name into a malloc'ed string; NULL when out of memory. */
char *path_join(const char *dir, const char *name);

/*
 * Atomic replacement: write to a temporary file beside the target, then commit (flush, fsync, rename, fsync of the
 * directory). Whoever opens the target sees the old content or the new, never a part. Abort removes the temporary. A
 * target that is a device or a pipe is written to directly.
 */
typedef struct file_replace {
    FILE *out; /* write here */
    char *path, *temp;
} file_replace;

int  file_replace_begin(file_replace *r, const char *path, err *e);
int  file_replace_commit(file_replace *r, err *e); /* on failure the old file is untouched and r is released */
void file_replace_abort(file_replace *r);

#endif
