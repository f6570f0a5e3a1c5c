/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/stream.h"

#include "base/file.h"
#include "base/num.h"
#include "base/sha256.h"
#include "base/str.h"
#include "base/xxh64.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, HASHED_AT_ONCE = 4, SENT_AT_ONCE = 32 << 20 };

typedef struct piece {
    uint32_t tensor;
    int64_t  first, n; /* rows */
    uint64_t hash;
    bool     noted; /* a journal names it */

    atomic_bool made; /* it lies in the file */
} piece;

typedef struct run {
    const stream_job *j;
    piece            *pieces;
    size_t            n_pieces;
    char             *partial, *journal;
    int               out, log;
    uint64_t          identity;
    size_t            buffer_bytes, scratch; /* of a worker */
    uint8_t          *buffers;               /* each of buffer_bytes */
    float            *scratches;
    atomic_size_t     next;
    atomic_ullong     done, resumed;
    atomic_ullong     read;   /* or written, where that is more */
    atomic_ullong     rested; /* read, when a worker rested last */
    atomic_bool       stop;
    atomic_int        failed; /* who fails first writes the error */
    err               error;
    int               rc;
    pthread_mutex_t   asking;  /* one thread at a time tells how far it is, and hears whether to go on */
    pthread_mutex_t   hashing; /* guards sum, hashed, next_hashed and sent */
    sha256            sum;     /* of the file's first `hashed` bytes */
    uint64_t          hashed;
    size_t            next_hashed; /* piece */
    uint64_t          sent;        /* bytes that the system was asked to write to the disk */
} run;

static void fail(run *r, int rc, const err *e) {
    if (atomic_fetch_add(&r->failed, 1) == 0) {
        r->error = *e;
        r->rc = rc;
    }
    atomic_store(&r->stop, true);
}

/* --- places ------------------------------------------------------------------------------------------------------ */

static char *with_suffix(const char *path, const char *suffix) {
    str s;
    str_init(&s);
    str_puts(&s, path);
    str_puts(&s, suffix);
    return str_take(&s);
}

static char *folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return strdup(".");
    return slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
}

static bool room_of(const char *path, uint64_t *room) {
    struct statvfs v;
    char          *folder = folder_of(path);
    bool           said = folder && statvfs(folder, &v) == 0 && num_mul_u64(v.f_bavail, v.f_frsize, room);
    free(folder);
    return said;
}

uint64_t stream_room(const char *path) {
    uint64_t room;
    return room_of(path, &room) ? room : 0;
}

void stream_forget(const void *data, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)data + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)data + bytes) & ~(page - 1);
    if (to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}

static int no_room(const char *path, uint64_t need, uint64_t have, err *e) {
    return err_set(e, ERR_IO, "%s needs %" PRIu64 " bytes; %" PRIu64 " are free, %" PRIu64 " are missing", path, need,
                   have, need > have ? need - have : 0);
}

int stream_check_room(const char *path, uint64_t need, err *e) {
    uint64_t have;
    return room_of(path, &have) && have < need ? no_room(path, need, have, e) : 0;
}

/* Takes all the room at once, so that a full disk is known before hours of work and not after them. */
static int take_room(run *r, err *e) {
    uint64_t before = stream_room(r->j->path);
    if (fallocate(r->out, 0, 0, (off_t)r->j->bytes) == 0) return 0;
    if (errno == ENOSPC || errno == EFBIG) return no_room(r->j->path, r->j->bytes, before, e);
    if (errno != EOPNOTSUPP && errno != ENOSYS) return err_set_errno(e, "cannot write %s", r->partial);
    if (before && before < r->j->bytes) return no_room(r->j->path, r->j->bytes, before, e);
    return ftruncate(r->out, (off_t)r->j->bytes) == 0 ? 0 : err_set_errno(e, "cannot write %s", r->partial);
}

/* --- journal ----------------------------------------------------------------------------------------------------- */

typedef struct journal_head {
    char     magic[8];
    uint64_t identity, pieces;
} journal_head;

typedef struct journal_record {
    uint64_t piece, hash, check;
} journal_record;

static journal_head head_of(const run *r) {
    journal_head h = { .identity = r->identity, .pieces = r->n_pieces };
    memcpy(h.magic, "HRTHJRN1", sizeof h.magic);
    return h;
}

static void note(run *r, size_t at) {
    journal_record x = { .piece = at, .hash = r->pieces[at].hash };
    x.check = xxh64(&x, 16);
    /* A record that is lost is a piece that is made again. */
    if (write(r->log, &x, sizeof x) != (ssize_t)sizeof x) errno = 0;
}

/* Marks the pieces that a journal of the same job names. False: there is none. */
static bool read_journal(run *r) {
    char          *text = NULL;
    size_t         bytes = 0;
    journal_head   want = head_of(r);
    journal_record x;
    struct stat    st;
    bool           same = false;
    if (fstat(r->out, &st) < 0 || (uint64_t)st.st_size != r->j->bytes || !file_exists(r->journal)) return false;
    if (file_read(&text, &bytes, r->journal, sizeof want + r->n_pieces * sizeof x * 4, NULL) < 0) return false;
    same = bytes >= sizeof want && memcmp(text, &want, sizeof want) == 0;
    for (size_t at = sizeof want; same && at + sizeof x <= bytes; at += sizeof x) {
        memcpy(&x, text + at, sizeof x);
        if (x.check != xxh64(&x, 16) || x.piece >= r->n_pieces) continue;
        r->pieces[x.piece].hash = x.hash;
        r->pieces[x.piece].noted = true;
    }
    free(text);
    return same;
}

/* --- pieces ------------------------------------------------------------------------------------------------------ */

static size_t read_of_row(const stream_tensor *t) {
    return t->read_bytes > t->row_bytes ? t->read_bytes : t->row_bytes;
}

/* About a megabyte, written or read: a small model in two bits is pieces for sixteen threads, too. */
static int64_t rows_of_piece(const stream_tensor *t) {
    int64_t rows = t->row_bytes ? (int64_t)(PIECE_BYTES / t->row_bytes) : t->rows;
    size_t  read = read_of_row(t);
    if (read) rows = num_min(rows, (int64_t)((size_t)PIECE_BYTES / read));
    return rows < 1 ? 1 : rows;
}

static int cut(run *r, err *e) {
    size_t n = 0, at = 0;
    r->buffer_bytes = 4096; /* a file without rows is read back, too */
    for (size_t i = 0; i < r->j->n_tensors; i++) {
        const stream_tensor *t = &r->j->tensors[i];
        int64_t              rows = num_min(rows_of_piece(t), t->rows);
        if (t->rows <= 0) continue;
        n += (size_t)((t->rows + rows - 1) / rows);
        r->buffer_bytes = (size_t)num_max((int64_t)r->buffer_bytes, (int64_t)((size_t)rows * t->row_bytes));
        if (t->scratch > r->scratch) r->scratch = t->scratch;
    }
    if (!(r->pieces = calloc(n ? n : 1, sizeof *r->pieces))) return err_set_nomem(e);
    for (size_t i = 0; i < r->j->n_tensors; i++) {
        const stream_tensor *t = &r->j->tensors[i];
        int64_t              rows = num_min(rows_of_piece(t), t->rows);
        for (int64_t first = 0; first < t->rows; first += rows)
            r->pieces[at++] = (piece){ .tensor = (uint32_t)i, .first = first, .n = num_min(rows, t->rows - first) };
    }
    r->n_pieces = n;
    r->buffer_bytes = (r->buffer_bytes + 63) & ~(size_t)63;
    r->scratch = (r->scratch + 15) & ~(size_t)15;
    return 0;
}

static int write_at(const run *r, const void *data, size_t bytes, uint64_t offset, err *e) {
    const char *from = data;
    while (bytes > 0) {
        ssize_t n = pwrite(r->out, from, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == ENOSPC) return no_room(r->j->path, r->j->bytes, stream_room(r->j->path), e);
        if (n <= 0) return err_set_errno(e, "cannot write %s", r->partial);
        from += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static bool read_back(const run *r, void *to, size_t bytes, uint64_t offset) {
    char *at = to;
    while (bytes > 0) {
        ssize_t n = pread(r->out, at, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

static int make_piece(run *r, size_t at, uint8_t *buffer, float *scratch, err *e) {
    piece               *x = &r->pieces[at];
    const stream_tensor *t = &r->j->tensors[x->tensor];
    size_t               bytes = (size_t)x->n * t->row_bytes;
    uint64_t             offset = t->offset + (uint64_t)x->first * t->row_bytes;
    if (x->noted && read_back(r, buffer, bytes, offset) && xxh64(buffer, bytes) == x->hash) {
        atomic_fetch_add(&r->resumed, bytes);
    } else {
        int rc = t->fill(t->ctx, x->first, x->n, buffer, scratch, e);
        if (rc == 0) rc = write_at(r, buffer, bytes, offset, e);
        if (rc < 0) return rc;
        x->hash = xxh64(buffer, bytes);
        note(r, at);
    }
    atomic_fetch_add(&r->done, bytes);
    atomic_fetch_add(&r->read, (uint64_t)x->n * read_of_row(t));
    atomic_store(&x->made, true);
    return 0;
}

/* --- the digest of what was written ---------------------------------------------------------------------------------- */

/* Written bytes are still in the system's cache when they are read here, right after their piece. */
static bool hash_to(run *r, uint64_t end, uint8_t *buffer) {
    while (r->hashed < end) {
        size_t n = (size_t)num_min((int64_t)(end - r->hashed), (int64_t)r->buffer_bytes);
        if (!read_back(r, buffer, n, r->hashed)) return false;
        sha256_feed(&r->sum, buffer, n);
        r->hashed += n;
    }
    return true;
}

/* The piece that a worker has in its buffer, if it comes next. */
static void hash_own(run *r, size_t at, const uint8_t *buffer) {
    const piece         *x = &r->pieces[at];
    const stream_tensor *t = &r->j->tensors[x->tensor];
    size_t               bytes = (size_t)x->n * t->row_bytes;
    if (r->next_hashed != at || r->hashed != t->offset + (uint64_t)x->first * t->row_bytes) return;
    sha256_feed(&r->sum, buffer, bytes);
    r->hashed += bytes;
    r->next_hashed++;
}

/* A worker's own piece and a few that follow what was hashed, unless another worker is at it. Where reading fails it is tried
 * again at the end, by hash_rest. What was hashed begins its way to the disk: there is less to wait for at the end. */
static void hash_along(run *r, size_t at, uint8_t *buffer) {
    bool fine = true;
    if (pthread_mutex_trylock(&r->hashing) != 0) return;
    if (atomic_load(&r->pieces[at].made)) hash_own(r, at, buffer);
    for (int i = 0; i < HASHED_AT_ONCE && fine && r->next_hashed < r->n_pieces; i++) {
        const piece         *x = &r->pieces[r->next_hashed];
        const stream_tensor *t = &r->j->tensors[x->tensor];
        if (!atomic_load(&x->made)) break;
        fine = hash_to(r, t->offset + (uint64_t)(x->first + x->n) * t->row_bytes, buffer);
        r->next_hashed += fine;
    }
    if (r->hashed >= r->sent + SENT_AT_ONCE) {
        if (sync_file_range(r->out, (off_t)r->sent, (off_t)(r->hashed - r->sent), SYNC_FILE_RANGE_WRITE) < 0) errno = 0;
        r->sent = r->hashed;
    }
    pthread_mutex_unlock(&r->hashing);
}

static void put_hex(sha256 *s, char out[STREAM_SHA256]) {
    uint8_t sum[SHA256_BYTES];
    sha256_finish(s, sum);
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", sum[i]);
}

static int hash_rest(run *r, char out[STREAM_SHA256], err *e) {
    if (!hash_to(r, r->j->bytes, r->buffers)) return err_set_errno(e, "cannot read %s", r->partial);
    put_hex(&r->sum, out);
    return 0;
}

/* Whoever comes first: one worker may be held up while the others go on. */
static void rest(run *r) {
    unsigned long long read = atomic_load(&r->read), last = atomic_load(&r->rested);
    if (!r->j->rest || read < last + STREAM_REST || !atomic_compare_exchange_strong(&r->rested, &last, read)) return;
    r->j->rest(r->j->rest_ctx);
}

/* Whoever comes first here, too; false: stop. */
static bool go_on(run *r) {
    if (!r->j->progress || pthread_mutex_trylock(&r->asking) != 0) return true;
    bool on = r->j->progress(r->j->progress_ctx, atomic_load(&r->done), r->j->bytes);
    pthread_mutex_unlock(&r->asking);
    return on;
}

static void work(void *ctx, int worker, int n_workers) {
    run     *r = ctx;
    uint8_t *buffer = r->buffers + (size_t)worker * r->buffer_bytes;
    float   *scratch = r->scratches + (size_t)worker * r->scratch;
    size_t   at;
    (void)n_workers;
    while (!atomic_load(&r->stop) && (at = atomic_fetch_add(&r->next, 1)) < r->n_pieces) {
        err e = { 0 };
        int rc = make_piece(r, at, buffer, scratch, &e);
        if (rc == 0 && !go_on(r))
            rc = err_set(&e, ERR_CANCELLED, "%s was not finished: it was asked to stop", r->j->path);
        if (rc < 0) fail(r, rc, &e);
        hash_along(r, at, buffer);
        rest(r);
    }
}

int stream_sha256(const char *path, char out[STREAM_SHA256], err *e) {
    int     fd = open(path, O_RDONLY | O_CLOEXEC), rc = 0;
    void   *buffer = malloc(PIECE_BYTES);
    ssize_t n = 1;
    sha256  s;
    sha256_init(&s);
    if (fd < 0 || !buffer) rc = fd < 0 ? err_set_errno(e, "cannot read %s", path) : err_set_nomem(e);
    while (rc == 0 && n != 0) {
        n = read(fd, buffer, PIECE_BYTES);
        if (n < 0 && errno != EINTR) rc = err_set_errno(e, "cannot read %s", path);
        if (n > 0) sha256_feed(&s, buffer, (size_t)n);
    }
    put_hex(&s, out);
    free(buffer);
    if (fd >= 0) close(fd);
    return rc;
}

/* --- the file ---------------------------------------------------------------------------------------------------- */

static int open_files(run *r, err *e) {
    struct stat st;
    if (stat(r->j->path, &st) == 0 && !S_ISREG(st.st_mode))
        return err_set(e, ERR_ARG, "%s is not a regular file", r->j->path);
    if ((r->out = open(r->partial, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        return err_set_errno(e, "cannot write %s", r->partial);
    if (flock(r->out, LOCK_EX | LOCK_NB) < 0) return err_set(e, ERR_BUSY, "another process is writing %s", r->partial);
    bool resume = read_journal(r);
    r->log = open(r->journal, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (resume ? 0 : O_TRUNC), 0666);
    if (r->log < 0) return err_set_errno(e, "cannot write %s", r->journal);
    if (resume) return 0;
    journal_head h = head_of(r);
    if (write(r->log, &h, sizeof h) != (ssize_t)sizeof h) return err_set_errno(e, "cannot write %s", r->journal);
    if (ftruncate(r->out, 0) < 0) return err_set_errno(e, "cannot write %s", r->partial);
    return take_room(r, e);
}

static int make_all(run *r, pool *p, err *e) {
    size_t n = (size_t)pool_threads(p), bytes, floats;
    if (!num_mul_size(r->buffer_bytes, n, &bytes) ||
        !num_mul_size((r->scratch ? r->scratch : 1) * sizeof(float), n, &floats))
        return err_set(e, ERR_LIMIT, "%s: a row is too long", r->j->path);
    r->buffers = malloc(bytes);
    r->scratches = malloc(floats);
    if (!r->buffers || !r->scratches) return err_set_nomem(e);
    int rc = write_at(r, r->j->head, r->j->head_bytes, 0, e);
    if (rc < 0) return rc;
    pool_run(p, work, r);
    if (atomic_load(&r->failed)) {
        if (e) *e = r->error;
        return r->rc;
    }
    return 0;
}

static int finish(run *r, err *e) {
    char *folder;
    int   fd;
    if (fsync(r->out) < 0) return err_set_errno(e, "cannot write %s", r->partial);
    if (rename(r->partial, r->j->path) < 0) return err_set_errno(e, "cannot rename %s", r->partial);
    unlink(r->journal);
    if ((folder = folder_of(r->j->path)) && (fd = open(folder, O_RDONLY | O_CLOEXEC)) >= 0) {
        fsync(fd);
        close(fd);
    }
    free(folder);
    return 0;
}

static uint64_t checksum_of(const run *r) {
    uint64_t sum = xxh64(r->j->head, r->j->head_bytes);
    for (size_t i = 0; i < r->n_pieces; i++) {
        uint64_t pair[2] = { sum, r->pieces[i].hash };
        sum = xxh64(pair, sizeof pair);
    }
    return sum;
}

int stream_write(const stream_job *j, pool *p, stream_result *out, err *e) {
    run r = { .j = j, .out = -1, .log = -1, .asking = PTHREAD_MUTEX_INITIALIZER, .hashing = PTHREAD_MUTEX_INITIALIZER };
    int rc;
    memset(out, 0, sizeof *out);
    r.partial = with_suffix(j->path, ".partial");
    r.journal = with_suffix(j->path, ".journal");
    uint64_t pair[3] = { xxh64(j->head, j->head_bytes), j->identity, j->bytes };
    r.identity = xxh64(pair, sizeof pair);
    sha256_init(&r.sum);
    rc = r.partial && r.journal ? cut(&r, e) : err_set_nomem(e);
    if (rc == 0) rc = open_files(&r, e);
    if (rc == 0) rc = make_all(&r, p, e);
    if (rc == 0) rc = hash_rest(&r, out->sha256, e);
    if (rc == 0) rc = finish(&r, e);
    if (rc == 0) {
        out->checksum = checksum_of(&r);
        out->resumed = atomic_load(&r.resumed);
    }
    if (rc < 0 && rc != ERR_BUSY && !j->keep && r.out >= 0) {
        unlink(r.partial);
        unlink(r.journal);
    }
    if (r.out >= 0) close(r.out);
    if (r.log >= 0) close(r.log);
    free(r.partial);
    free(r.journal);
    free(r.pieces);
    free(r.buffers);
    free(r.scratches);
    pthread_mutex_destroy(&r.asking);
    pthread_mutex_destroy(&r.hashing);
    return rc;
}
