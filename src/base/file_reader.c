/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct source {
    char       *path;
    int         plain, direct; /* descriptors; direct -1: there is none */
    atomic_bool is_direct;     /* its reads are taken; a file system may refuse the first one only */
} source;

struct file_reader {
    file_reader_hook      hook;
    source              **files;
    int                   n_files;
    pthread_t            *threads;
    int                   n_threads;
    pthread_mutex_t       lock; /* guards the list, the jobs in it and stop */
    pthread_cond_t        work, done;
    file_reader_job      *first, *last; /* jobs with pieces that nobody has taken */
    bool                  stop;
    atomic_uint_least64_t bytes;
};

typedef struct piece {
    file_reader_job *job;
    source          *file;
    uint64_t         at;
    size_t           bytes, least;
    uint8_t         *to;
} piece;

static ssize_t plain_read(void *ctx, int fd, void *to, size_t bytes, off_t at) {
    (void)ctx;
    return pread(fd, to, bytes, at);
}

/* --- one piece ------------------------------------------------------------------------------------------------------ */

/* Reads until `least` bytes are there: 0, errno or FILE_READER_ENDED. A read that ended somewhere within a page goes on through
 * the page cache. */
static int read_piece(file_reader *r, const piece *p) {
    size_t have = 0;
    while (have < p->least) {
        bool direct = have % FILE_READER_ALIGN == 0 && atomic_load_explicit(&p->file->is_direct, memory_order_relaxed);
        ssize_t n = r->hook.read(r->hook.ctx, direct ? p->file->direct : p->file->plain, p->to + have, p->bytes - have,
                                 (off_t)(p->at + have));
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EINVAL && direct) {
            atomic_store(&p->file->is_direct, false);
            continue;
        }
        if (n < 0) return errno ? errno : EIO;
        if (n == 0) return FILE_READER_ENDED;
        atomic_fetch_add_explicit(&r->bytes, (uint64_t)n, memory_order_relaxed);
        have += (size_t)n;
    }
    return 0;
}

/* The next piece of the first job; the job leaves the list with its last one. Locked. */
static piece take_piece(file_reader *r) {
    file_reader_job          *j = r->first;
    const file_reader_extent *x = &j->extents[j->extent];
    size_t                    left = x->bytes - j->offset, n = left < FILE_READER_PIECE ? left : FILE_READER_PIECE;
    piece                     p = { j, r->files[x->file], x->at + j->offset, n, n, j->to + x->to + j->offset };
    if (j->offset + n > x->least) p.least = x->least - j->offset;
    j->offset += n;
    if (j->offset >= x->least) {
        j->extent++;
        j->offset = 0;
    }
    if (j->extent == j->n_extents && !(r->first = j->next)) r->last = NULL;
    j->under_way++;
    return p;
}

static void unlink_job(file_reader *r, file_reader_job *j) {
    file_reader_job **at = &r->first, *before = NULL;
    while (*at && *at != j) {
        before = *at;
        at = &(*at)->next;
    }
    if (*at) *at = j->next;
    if (r->last == j) r->last = before;
    j->extent = j->n_extents;
}

static void *reader_main(void *arg) {
    file_reader *r = arg;
    pthread_mutex_lock(&r->lock);
    for (;;) {
        while (!r->first && !r->stop) pthread_cond_wait(&r->work, &r->lock);
        if (r->stop) break;
        piece p = take_piece(r);
        pthread_mutex_unlock(&r->lock);
        int rc = read_piece(r, &p);
        pthread_mutex_lock(&r->lock);
        file_reader_job *j = p.job;
        if (rc != 0 && j->error == 0) {
            j->error = rc;
            j->failed_at = p.at;
            for (int i = 0; i < r->n_files; i++) {
                if (r->files[i] == p.file) j->failed_file = i;
            }
            if (j->extent < j->n_extents) unlink_job(r, j);
        }
        if (--j->under_way == 0 && j->extent == j->n_extents) {
            j->over = true;
            pthread_cond_broadcast(&r->done);
        }
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

/* --- opening -------------------------------------------------------------------------------------------------------- */

int file_reader_open(file_reader **out, int n_threads, const file_reader_hook *hook, err *e) {
    file_reader *r = calloc(1, sizeof *r);
    *out = NULL;
    if (!r) return err_set_nomem(e);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->work, NULL);
    pthread_cond_init(&r->done, NULL);
    r->hook = hook && hook->read ? *hook : (file_reader_hook){ plain_read, NULL };
    r->threads = calloc((size_t)n_threads, sizeof *r->threads);
    int rc = r->threads ? 0 : err_set_nomem(e);
    for (; rc == 0 && r->n_threads < n_threads; r->n_threads++) {
        if (pthread_create(&r->threads[r->n_threads], NULL, reader_main, r) == 0) continue;
        rc = err_set(e, ERR_NOMEM, "cannot start a thread that reads files");
        break;
    }
    if (rc < 0)
        file_reader_free(r);
    else
        *out = r;
    return rc;
}

static void close_source(source *s) {
    if (!s) return;
    if (s->plain >= 0) close(s->plain);
    if (s->direct >= 0) close(s->direct);
    free(s->path);
    free(s);
}

void file_reader_free(file_reader *r) {
    if (!r) return;
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
    for (int i = 0; i < r->n_threads; i++) pthread_join(r->threads[i], NULL);
    for (int i = 0; i < r->n_files; i++) close_source(r->files[i]);
    free(r->files);
    free(r->threads);
    pthread_cond_destroy(&r->done);
    pthread_cond_destroy(&r->work);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

/* Whether reads without the page cache may begin and end at multiples of FILE_READER_ALIGN; where the kernel does not say, the
 * first read will. */
static bool suits_direct(int fd) {
#ifdef STATX_DIOALIGN
    struct statx s;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) == 0 && (s.stx_mask & STATX_DIOALIGN))
        return s.stx_dio_offset_align && s.stx_dio_offset_align <= FILE_READER_ALIGN &&
               s.stx_dio_mem_align <= FILE_READER_ALIGN;
#endif
    (void)fd;
    return true;
}

int file_reader_add(file_reader *r, const char *path, const file_map *map, err *e) {
    struct stat st;
    source    **files = realloc(r->files, ((size_t)r->n_files + 1) * sizeof(*files));
    source     *s = calloc(1, sizeof *s);
    int         rc = 0;
    if (files) r->files = files;
    if (!files || !s || !(s->path = strdup(path))) {
        if (s) free(s->path);
        free(s);
        return err_set_nomem(e);
    }
    s->direct = -1;
    s->plain = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->plain < 0)
        rc = err_set_errno(e, "cannot open %s", path);
    else if (fstat(s->plain, &st) < 0)
        rc = err_set_errno(e, "cannot stat %s", path);
    else if (st.st_dev != map->device || st.st_ino != map->inode)
        rc = err_set(e, ERR_IO, "%s was replaced while the model was opened", path);
    if (rc < 0) {
        close_source(s);
        return rc;
    }
    if (suits_direct(s->plain)) s->direct = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_DIRECT);
    if (s->direct >= 0 && (fstat(s->direct, &st) < 0 || st.st_dev != map->device || st.st_ino != map->inode)) {
        close(s->direct);
        s->direct = -1;
    }
    atomic_store(&s->is_direct, s->direct >= 0);
    r->files[r->n_files] = s;
    return r->n_files++;
}

/* --- jobs ----------------------------------------------------------------------------------------------------------- */

void file_reader_start(file_reader *r, file_reader_job *j) {
    j->next = NULL;
    j->extent = j->under_way = j->error = 0;
    j->offset = 0;
    j->over = j->n_extents == 0;
    if (j->over) return;
    pthread_mutex_lock(&r->lock);
    if (r->last)
        r->last->next = j;
    else
        r->first = j;
    r->last = j;
    pthread_cond_broadcast(&r->work);
    pthread_mutex_unlock(&r->lock);
}

bool file_reader_is_over(file_reader *r, const file_reader_job *j) {
    pthread_mutex_lock(&r->lock);
    bool over = j->over;
    pthread_mutex_unlock(&r->lock);
    return over;
}

void file_reader_wait(file_reader *r, const file_reader_job *j) {
    pthread_mutex_lock(&r->lock);
    while (!j->over) pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

void file_reader_drop(file_reader *r, file_reader_job *j) {
    pthread_mutex_lock(&r->lock);
    if (!j->over && j->extent < j->n_extents) {
        unlink_job(r, j);
        if (j->error == 0) j->error = FILE_READER_DROPPED;
        if (j->under_way == 0) j->over = true;
    }
    while (!j->over) pthread_cond_wait(&r->done, &r->lock);
    pthread_mutex_unlock(&r->lock);
}

int file_reader_describe(const file_reader *r, const file_reader_job *j, err *e) {
    if (j->error == FILE_READER_DROPPED) return err_set(e, ERR_CANCELLED, "reading was given up");
    const char        *path = r->files[j->failed_file]->path;
    unsigned long long at = j->failed_at;
    if (j->error == FILE_READER_ENDED) return err_set(e, ERR_IO, "%s ends within what is read at byte %llu", path, at);
    errno = j->error;
    return err_set_errno(e, "cannot read %s at byte %llu", path, at);
}

const atomic_uint_least64_t *file_reader_bytes(const file_reader *r) { return &r->bytes; }
