/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/huge.h"
#include "base/num.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * At an address that is a multiple of 2 MB: where the page cache holds a file in pages of that size (it does for what
 * is read through a mapping that asks for it), they can be mapped as such, and reading gigabytes in order costs a
 * five-hundredth of the address translations. NULL and errno on failure.
 */
static void *map_aligned(int fd, size_t bytes) {
    const size_t huge = (size_t)2 << 20;
    if (bytes < huge || bytes > SIZE_MAX - huge) {
        void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    uint8_t *room = mmap(NULL, bytes + huge, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return NULL;
    size_t   skip = (huge - (uintptr_t)room % huge) % huge, page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = mmap(room + skip, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    if (p == MAP_FAILED) {
        int why = errno;
        munmap(room, bytes + huge);
        errno = why;
        return NULL;
    }
    uint8_t *end = p + (bytes + page - 1) / page * page, *room_end = room + (bytes + huge + page - 1) / page * page;
    if (skip) munmap(room, skip);
    if (end < room_end) munmap(end, (size_t)(room_end - end));
    madvise(p, bytes, MADV_HUGEPAGE); /* a wish: kernels without it say no */
    return p;
}

int file_map_open(file_map *out, const char *path, err *e) {
    struct stat st;
    int         rc = 0;
    *out = (file_map){ 0 };
    /* O_NONBLOCK: opening a pipe must fail below, not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return err_set_errno(e, "cannot open %s", path);
    if (fstat(fd, &st) < 0) {
        rc = err_set_errno(e, "cannot stat %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, ERR_IO, "%s is not a regular file", path);
    } else if (st.st_size > 0) {
        void *p = map_aligned(fd, (size_t)st.st_size);
        if (!p)
            rc = err_set_errno(e, "cannot map %s", path);
        else
            *out = (file_map){ p, (size_t)st.st_size, st.st_dev, st.st_ino };
    }
    close(fd);
    return rc;
}

enum { HUGE_PAGE = 2 << 20, SETTLE_PIECE = 16 << 20 };
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* Kernels before 6.1 do not know the question whether these are huge pages now, and answer EINVAL. */
static bool piece_is_huge(uint8_t *p, size_t bytes) { return madvise(p, bytes, MADV_COLLAPSE) == 0 || errno == EINVAL; }

size_t file_map_settle(const file_map *m, const atomic_bool *stop) {
    size_t moved = 0, whole = m->bytes / HUGE_PAGE * HUGE_PAGE;
    if (!m->data || (uintptr_t)m->data % HUGE_PAGE != 0) return 0;
    while (moved < whole && !(stop && atomic_load_explicit(stop, memory_order_relaxed))) {
        size_t   n = whole - moved < SETTLE_PIECE ? whole - moved : SETTLE_PIECE;
        uint8_t *at = (uint8_t *)(uintptr_t)m->data + moved, *copy = huge_map(n, true);
        if (!copy) break;
        memcpy(copy, at, n);
        if (!piece_is_huge(copy, n) || mprotect(copy, n, PROT_READ) < 0 ||
            mremap(copy, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED) {
            munmap(copy, n);
            break;
        }
        moved += n;
    }
    return moved;
}

void file_map_close(file_map *m) {
    if (m->data) munmap((void *)(uintptr_t)m->data, m->bytes);
    *m = (file_map){ 0 };
}

int file_read_stream(char **out, size_t *out_bytes, FILE *in, const char *name, size_t limit, err *e) {
    str  s;
    char buffer[65536];
    *out = NULL;
    *out_bytes = 0;
    str_init(&s);
    for (;;) {
        size_t n = fread(buffer, 1, sizeof buffer, in);
        if (n == 0) break;
        if (s.len + n > limit) {
            str_deinit(&s);
            return err_set(e, ERR_LIMIT, "%s is larger than %zu bytes", name, limit);
        }
        str_append(&s, buffer, n);
    }
    if (ferror(in)) {
        str_deinit(&s);
        return err_set_errno(e, "cannot read %s", name);
    }
    *out_bytes = s.len;
    *out = str_take(&s);
    return *out ? 0 : err_set_nomem(e);
}

int file_read(char **out, size_t *out_bytes, const char *path, size_t limit, err *e) {
    *out = NULL;
    *out_bytes = 0;
    if (dir_exists(path)) return err_set(e, ERR_IO, "%s is a directory", path);
    FILE *in = fopen(path, "rbe");
    if (!in) return err_set_errno(e, "cannot open %s", path);
    int rc = file_read_stream(out, out_bytes, in, path, limit, e);
    fclose(in);
    return rc;
}

bool file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool dir_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int dir_make(const char *path, err *e) {
    char *copy = strdup(path);
    int   rc = 0;
    if (!copy) return err_set_nomem(e);
    for (char *p = copy + (copy[0] == '/'); rc == 0; p++) {
        char end = *p;
        if (end && end != '/') continue;
        *p = '\0';
        if (copy[0] && mkdir(copy, 0700) != 0 && !dir_exists(copy))
            rc = err_set_errno(e, "cannot make the folder %s", copy);
        *p = end;
        if (!end) break;
    }
    free(copy);
    return rc;
}

char *path_join(const char *dir, const char *name) {
    str    s;
    size_t n = strlen(dir);
    str_init(&s);
    str_append(&s, dir, n);
    if (n > 0 && dir[n - 1] != '/') str_push(&s, '/');
    str_puts(&s, name);
    return str_take(&s);
}

static void release(file_replace *r) {
    free(r->path);
    free(r->temp);
    *r = (file_replace){ 0 };
}

int file_replace_begin(file_replace *r, const char *path, err *e) {
    str         temp;
    struct stat st;
    int         fd;
    *r = (file_replace){ 0 };
    str_init(&temp);
    str_printf(&temp, "%s.XXXXXX", path);
    r->temp = str_take(&temp);
    r->path = strdup(path);
    if (!r->temp || !r->path) {
        release(r);
        return err_set_nomem(e);
    }
    /* A device or a pipe is written to as it is: renaming a file over /dev/null would replace the device. */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        free(r->temp);
        r->temp = NULL;
        r->out = S_ISDIR(st.st_mode) ? NULL : fopen(path, "wbe");
        if (r->out) return 0;
        if (S_ISDIR(st.st_mode)) errno = EISDIR;
        int rc = err_set_errno(e, "cannot write %s", path);
        release(r);
        return rc;
    }
    fd = mkostemp(r->temp, O_CLOEXEC);
    if (fd < 0) {
        int rc = err_set_errno(e, "cannot create a file beside %s", path);
        release(r);
        return rc;
    }
    /* mkostemp makes the file 0600: give it what the old file had, or what the umask allows. */
    if (stat(path, &st) == 0) {
        (void)fchmod(fd, st.st_mode & 07777);
    } else {
        mode_t mask = umask(0);
        umask(mask);
        (void)fchmod(fd, 0666 & ~mask);
    }
    r->out = fdopen(fd, "wb");
    if (!r->out) {
        int rc = err_set_errno(e, "cannot write %s", r->temp);
        close(fd);
        file_replace_abort(r);
        return rc;
    }
    return 0;
}

static int sync_directory_of(const char *path, err *e) {
    char *copy = strdup(path);
    if (!copy) return err_set_nomem(e);
    int rc = 0;
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some file systems cannot sync a directory (EINVAL): the rename is done, so that is not a failure. */
    if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL)) rc = err_set_errno(e, "cannot sync the directory of %s", path);
    if (fd >= 0) close(fd);
    free(copy);
    return rc;
}

int file_replace_commit(file_replace *r, err *e) {
    int rc = 0;
    if (fflush(r->out) != 0 || ferror(r->out) || (r->temp && fsync(fileno(r->out)) < 0))
        rc = err_set_errno(e, "cannot write %s", r->path);
    if (fclose(r->out) != 0 && rc == 0) rc = err_set_errno(e, "cannot write %s", r->path);
    r->out = NULL;
    if (!r->temp) {
        release(r);
        return rc;
    }
    if (rc == 0 && rename(r->temp, r->path) < 0) rc = err_set_errno(e, "cannot replace %s", r->path);
    if (rc == 0)
        rc = sync_directory_of(r->path, e);
    else
        (void)unlink(r->temp);
    release(r);
    return rc;
}

void file_replace_abort(file_replace *r) {
    if (r->out) fclose(r->out);
    if (r->temp) (void)unlink(r->temp);
    release(r);
}
