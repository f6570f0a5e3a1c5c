/* SPDX-License-Identifier: Apache-2.0 */
#include "kv/disk.h"

#include "base/file.h"
#include "base/log.h"
#include "base/num.h"
#include "base/str.h"
#include "base/xxh64.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* "<16 hex>-<32 hex>.hkv" */
enum { ROOT_DIGITS = 16, KEY_DIGITS = 32, NAME_CHARS = ROOT_DIGITS + 1 + KEY_DIGITS + 4, BLOCK = 4096 };
enum { MAX_FOUND = 1 << 18, TEMP_LIVES_S = 3600, QUEUE_BYTES = 64 << 20 };

typedef struct foreign {
    char     name[NAME_CHARS + 1];
    uint64_t bytes;
    int64_t  time;
} foreign;

/* A write, or (payload and header NULL) a deletion. */
typedef struct job {
    struct job *next;
    kv_entry    x;
    bool        erase, begun;
    void       *payload;
    uint64_t    ticket;
    kv_key      rows[]; /* of x, if it has any */
} job;

struct kv_disk {
    char       *dir;
    kv_identity id;
    kv_key      root; /* of the model without adapters: what all names begin with */
    uint64_t    max_bytes;
    size_t      queue_bytes;

    kv_disk_found *found;
    size_t         n_found, cap_found;
    foreign       *others; /* sorted by time once the directory was read; first_other is the oldest */
    size_t         n_others, cap_others, first_other;
    uint64_t       other_bytes;

    pthread_t       thread;
    bool            started;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t  work; /* a job came, or stop */
    pthread_cond_t  room; /* a job is done */
    job            *first, **tail;
    size_t          queued;
    bool            stop, complained;
    uint64_t       *failed;
    size_t          n_failed, cap_failed;
};

/* --- names and files ---------------------------------------------------------------------------------------------- */

static void hex(const uint8_t *from, int digits, char *to) {
    for (int i = 0; i < digits; i++) to[i] = "0123456789abcdef"[from[i / 2] >> (i % 2 ? 0 : 4) & 15];
}

static void name_of(const kv_disk *d, const kv_key *key, char name[NAME_CHARS + 1]) {
    hex(d->root.b, ROOT_DIGITS, name);
    name[ROOT_DIGITS] = '-';
    hex(key->b, KEY_DIGITS, name + ROOT_DIGITS + 1);
    memcpy(name + ROOT_DIGITS + 1 + KEY_DIGITS, ".hkv", 5);
}

static bool name_is_ours(const char *name) {
    size_t n = strlen(name);
    if (n < NAME_CHARS || memcmp(name + NAME_CHARS - 4, ".hkv", 4) != 0) return false;
    for (int i = 0; i < NAME_CHARS - 4; i++) {
        if (i == ROOT_DIGITS ? name[i] != '-' : !strchr("0123456789abcdef", name[i])) return false;
    }
    return true;
}

static uint64_t on_disk(uint64_t bytes) { return (bytes + BLOCK - 1) / BLOCK * BLOCK; }

uint64_t kv_disk_file_bytes(const kv_disk *d, const kv_entry *x) {
    return on_disk(kv_entry_header_bytes(x) + kv_entry_payload_bytes(&d->id, x->kind, x->groups));
}

static bool write_all(int fd, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* Renamed when it is complete, so that other processes see all of it or nothing. It is not synced: that costs a flush
 * of the drive per page, and an entry that a power cut tears is recognized by its checksums. */
static int entry_write(const kv_disk *d, kv_entry *x, const void *payload, err *e) {
    uint8_t header[KV_ENTRY_HEADER_MAX];
    char    name[NAME_CHARS + 1];
    str     temp;
    int     rc = 0;
    name_of(d, &x->key, name);
    char *path = path_join(d->dir, name);
    str_init(&temp);
    str_printf(&temp, "%s.XXXXXX", path ? path : "");
    if (!path || !str_ok(&temp)) {
        free(path);
        str_deinit(&temp);
        return err_set_nomem(e);
    }
    x->payload_sum = xxh64(payload, (size_t)x->payload_bytes);
    kv_entry_encode(&d->id, x, header);
    int fd = mkostemp(temp.data, O_CLOEXEC);
    if (fd < 0) {
        rc = err_set_errno(e, "cannot create %s", temp.data);
    } else {
        if (!write_all(fd, header, kv_entry_header_bytes(x)) || !write_all(fd, payload, (size_t)x->payload_bytes))
            rc = err_set_errno(e, "cannot write %s", temp.data);
        if (close(fd) < 0 && rc == 0) rc = err_set_errno(e, "cannot write %s", temp.data);
        if (rc == 0 && rename(temp.data, path) < 0) rc = err_set_errno(e, "cannot rename %s", temp.data);
        if (rc < 0) (void)unlink(temp.data);
    }
    free(path);
    str_deinit(&temp);
    return rc;
}

static void entry_erase(const kv_disk *d, const char *name) {
    char *path = path_join(d->dir, name);
    if (path) (void)unlink(path);
    free(path);
}

/* --- the writer --------------------------------------------------------------------------------------------------- */

static void note_failure(kv_disk *d, const job *j, const err *e) {
    if (!d->complained) log_warn("kv", "the disk cache misses entries: %s", e->msg);
    d->complained = true;
    if (d->n_failed == d->cap_failed) {
        size_t    cap = d->cap_failed ? 2 * d->cap_failed : 16;
        uint64_t *grown = realloc(d->failed, cap * sizeof *grown);
        if (!grown) return; /* the owner learns it when it looks for the entry */
        d->failed = grown;
        d->cap_failed = cap;
    }
    d->failed[d->n_failed++] = j->ticket;
}

static void *writer_main(void *arg) {
    kv_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->first && !d->stop) pthread_cond_wait(&d->work, &d->lock);
        job *j = d->first;
        if (!j) break;
        j->begun = true;
        pthread_mutex_unlock(&d->lock);
        err e;
        int rc = 0;
        if (j->erase) {
            char name[NAME_CHARS + 1];
            name_of(d, &j->x.key, name);
            entry_erase(d, name);
        } else {
            kv_entry x = j->x; /* readers look at the job's own */
            rc = entry_write(d, &x, j->payload, &e);
        }
        pthread_mutex_lock(&d->lock);
        if (rc < 0) note_failure(d, j, &e);
        if (rc == 0 && !j->erase) d->complained = false;
        d->first = j->next;
        if (!d->first) d->tail = &d->first;
        if (!j->erase) d->queued -= (size_t)j->x.payload_bytes;
        free(j->payload);
        free(j);
        pthread_cond_broadcast(&d->room);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void push_locked(kv_disk *d, job *j) {
    *d->tail = j;
    d->tail = &j->next;
    pthread_cond_signal(&d->work);
}

bool kv_disk_has_room(kv_disk *d, size_t bytes, bool wait) {
    pthread_mutex_lock(&d->lock);
    /* An entry larger than the queue goes alone. */
    while (wait && d->queued > 0 && d->queued + bytes > d->queue_bytes) pthread_cond_wait(&d->room, &d->lock);
    bool ok = d->queued == 0 || d->queued + bytes <= d->queue_bytes;
    pthread_mutex_unlock(&d->lock);
    return ok;
}

bool kv_disk_put(kv_disk *d, const kv_entry *x, void *payload, uint64_t ticket) {
    size_t rows = x->rows ? (size_t)x->n_tokens * sizeof *x->rows : 0;
    job   *j = calloc(1, sizeof *j + rows);
    if (!j) return false;
    j->x = *x;
    j->payload = payload;
    j->ticket = ticket;
    if (rows) j->x.rows = memcpy(j->rows, x->rows, rows);
    pthread_mutex_lock(&d->lock);
    d->queued += (size_t)x->payload_bytes;
    push_locked(d, j);
    pthread_mutex_unlock(&d->lock);
    return true;
}

/* A queued write of this key that is not under way is taken back. */
static bool cancel_locked(kv_disk *d, const kv_key *key) {
    for (job **at = &d->first; *at; at = &(*at)->next) {
        job *j = *at;
        if (j->erase || j->begun || !kv_key_eq(&j->x.key, key)) continue;
        *at = j->next;
        if (d->tail == &j->next) d->tail = at;
        d->queued -= (size_t)j->x.payload_bytes;
        free(j->payload);
        free(j);
        return true;
    }
    return false;
}

void kv_disk_drop(kv_disk *d, const kv_key *key) {
    job *j = calloc(1, sizeof *j);
    pthread_mutex_lock(&d->lock);
    (void)cancel_locked(d, key); /* an older file of the same key may still be there */
    if (j) {
        j->x.key = *key;
        j->erase = true;
        push_locked(d, j);
    }
    pthread_mutex_unlock(&d->lock);
}

bool kv_disk_failed(kv_disk *d, uint64_t *ticket) {
    pthread_mutex_lock(&d->lock);
    bool any = d->n_failed > 0;
    if (any) *ticket = d->failed[--d->n_failed];
    pthread_mutex_unlock(&d->lock);
    return any;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static bool get_queued(kv_disk *d, const kv_entry *x, void *payload) {
    bool got = false;
    pthread_mutex_lock(&d->lock);
    for (const job *j = d->first; j && !got; j = j->next) {
        if (j->erase || !kv_key_eq(&j->x.key, &x->key) || j->x.groups != x->groups) continue;
        memcpy(payload, j->payload, (size_t)x->payload_bytes);
        got = true;
    }
    pthread_mutex_unlock(&d->lock);
    return got;
}

/* The header of an open file, checked against its name; out points into `header`. */
static int read_header(const kv_disk *d, int fd, const char *name, uint8_t header[KV_ENTRY_HEADER_MAX], kv_entry *out,
                       struct stat *st, err *e) {
    char want[NAME_CHARS + 1];
    if (fstat(fd, st) < 0) return err_set_errno(e, "cannot stat");
    if (!S_ISREG(st->st_mode)) return err_set(e, ERR_FORMAT, "not a regular file");
    ssize_t n = pread(fd, header, KV_ENTRY_HEADER_MAX, 0);
    if (n < 0) return err_set_errno(e, "cannot read");
    int rc = kv_entry_decode(&d->id, header, (size_t)n, (uint64_t)st->st_size, out, e);
    if (rc < 0) return rc;
    name_of(d, &out->key, want);
    return strcmp(want, name) == 0 ? 0 : err_set(e, ERR_FORMAT, "holds an entry of another name");
}

static int get_file(kv_disk *d, const kv_entry *x, int fd, const char *name, void *payload, err *e) {
    uint8_t     header[KV_ENTRY_HEADER_MAX];
    kv_entry    got;
    struct stat st;
    int         rc = read_header(d, fd, name, header, &got, &st, e);
    if (rc < 0) return rc;
    kv_span is = { got.tokens, got.rows, got.n_tokens }, was = { x->tokens, x->rows, x->n_tokens };
    if (got.kind != x->kind || got.n_tokens != x->n_tokens || got.position != x->position || got.groups != x->groups ||
        !kv_key_eq(&got.parent, &x->parent) || !kv_key_eq(&got.space, &x->space) || kv_common(&is, &was) < x->n_tokens)
        return err_set(e, ERR_FORMAT, "is not the entry that was written");
    if (lseek(fd, (off_t)kv_entry_header_bytes(&got), SEEK_SET) < 0 ||
        !read_all(fd, payload, (size_t)got.payload_bytes))
        return err_set(e, ERR_FORMAT, "cannot be read to its end");
    return kv_entry_check(&got, payload, (size_t)got.payload_bytes, e);
}

int kv_disk_get(kv_disk *d, const kv_entry *x, void *payload) {
    char name[NAME_CHARS + 1];
    err  e;
    if (get_queued(d, x, payload)) return 0;
    name_of(d, &x->key, name);
    char *path = path_join(d->dir, name);
    int   fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    free(path);
    if (fd < 0) return ERR_NOTFOUND;
    int rc = get_file(d, x, fd, name, payload, &e);
    if (rc == 0)
        (void)futimens(fd, NULL); /* the next process knows that it was used */
    else
        log_warn("kv", "cache entry %s is skipped: %s", name, e.msg);
    close(fd);
    if (rc < 0) kv_disk_drop(d, &x->key);
    return rc < 0 ? ERR_NOTFOUND : 0;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void *grow(void *list, size_t n, size_t *cap, size_t item) {
    if (n < *cap) return list;
    size_t more = *cap ? 2 * *cap : 64;
    void  *grown = realloc(list, more * item);
    if (grown) *cap = more;
    return grown;
}

static void foreign_add(kv_disk *d, const char *name, uint64_t bytes, int64_t time) {
    foreign *grown = grow(d->others, d->n_others, &d->cap_others, sizeof *grown);
    if (!grown) return;
    d->others = grown;
    foreign *f = &d->others[d->n_others++];
    *f = (foreign){ .bytes = bytes, .time = time };
    memcpy(f->name, name, NAME_CHARS);
    d->other_bytes += bytes;
}

void kv_disk_foreign_add(kv_disk *d, const kv_disk_found *x) {
    char name[NAME_CHARS + 1];
    name_of(d, &x->head.key, name);
    foreign_add(d, name, x->bytes, x->time);
}

/* The header outlives the buffer it was read into. False: out of memory. */
static bool keep_rows(kv_disk_found *f) {
    size_t bytes = (size_t)f->head.n_tokens * sizeof *f->rows;
    f->rows = f->head.rows ? malloc(bytes) : NULL;
    if (f->rows) memcpy(f->rows, f->head.rows, bytes);
    bool ok = f->rows || !f->head.rows;
    f->head.rows = f->rows;
    return ok;
}

static int64_t time_of(const struct stat *st) { return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec; }

static void look_at(kv_disk *d, int dir, const char *name) {
    struct stat st;
    char        root[ROOT_DIGITS];
    uint8_t     header[KV_ENTRY_HEADER_MAX];
    err         e;
    if (!name_is_ours(name)) return;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode)) return;
    if (name[NAME_CHARS] != 0) { /* a temporary file; its writer died if it is old */
        if (st.st_mtime < time(NULL) - TEMP_LIVES_S) (void)unlinkat(dir, name, 0);
        return;
    }
    hex(d->root.b, ROOT_DIGITS, root);
    if (memcmp(name, root, ROOT_DIGITS) != 0 || d->n_found >= MAX_FOUND) {
        foreign_add(d, name, on_disk((uint64_t)st.st_size), time_of(&st));
        return;
    }
    kv_disk_found *grown = grow(d->found, d->n_found, &d->cap_found, sizeof *grown);
    int            fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (grown) d->found = grown;
    if (!grown || fd < 0) {
        if (fd >= 0) close(fd);
        return;
    }
    kv_disk_found *f = &d->found[d->n_found];
    int            rc = read_header(d, fd, name, header, &f->head, &st, &e);
    close(fd);
    f->bytes = on_disk((uint64_t)st.st_size);
    f->time = time_of(&st);
    if (rc == 0) {
        d->n_found += keep_rows(f);
        return;
    }
    log_warn("kv", "cache entry %s is skipped: %s", name, e.msg);
    if (rc == ERR_UNSUPPORTED)
        foreign_add(d, name, f->bytes, f->time); /* somebody else may be able to use it */
    else
        (void)unlinkat(dir, name, 0);
}

static int by_time(const void *a, const void *b) {
    int64_t x = ((const foreign *)a)->time, y = ((const foreign *)b)->time;
    return x < y ? -1 : x > y;
}

static int read_directory(kv_disk *d, err *e) {
    if (mkdir(d->dir, 0700) < 0 && errno != EEXIST)
        return err_set_errno(e, "cannot make the cache directory %s", d->dir);
    DIR *dir = opendir(d->dir);
    if (!dir) return err_set_errno(e, "cannot open the cache directory %s", d->dir);
    for (const struct dirent *x; (x = readdir(dir));) look_at(d, dirfd(dir), x->d_name);
    closedir(dir);
    return 0;
}

int kv_disk_open(kv_disk **out, const kv_identity *id, const kv_disk_options *o, err *e) {
    sigset_t all, old;
    int      rc;
    *out = NULL;
    kv_disk *d = calloc(1, sizeof *d);
    if (!d) return err_set_nomem(e);
    d->id = *id;
    d->root = kv_key_root(id, &(const kv_key){ { 0 } });
    d->max_bytes = o->max_bytes;
    d->queue_bytes = o->queue_bytes ? o->queue_bytes : QUEUE_BYTES;
    d->tail = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->work, NULL);
    pthread_cond_init(&d->room, NULL);
    d->dir = strdup(o->dir);
    rc = d->dir ? read_directory(d, e) : err_set_nomem(e);
    if (rc < 0) goto fail;
    /* Signals belong to the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    d->started = pthread_create(&d->thread, NULL, writer_main, d) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!d->started) {
        rc = err_set(e, ERR_NOMEM, "cannot start the disk cache's thread");
        goto fail;
    }
    *out = d;
    return 0;
fail:
    kv_disk_free(d);
    return rc;
}

static void found_free(kv_disk *d) {
    for (size_t i = 0; i < d->n_found; i++) free(d->found[i].rows);
    free(d->found);
    d->found = NULL;
    d->n_found = d->cap_found = 0;
}

void kv_disk_free(kv_disk *d) {
    if (!d) return;
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->stop = true;
        pthread_cond_signal(&d->work);
        pthread_mutex_unlock(&d->lock);
        pthread_join(d->thread, NULL);
    }
    pthread_cond_destroy(&d->room);
    pthread_cond_destroy(&d->work);
    pthread_mutex_destroy(&d->lock);
    found_free(d);
    free(d->dir);
    free(d->others);
    free(d->failed);
    free(d);
}

uint64_t kv_disk_max_bytes(const kv_disk *d) { return d->max_bytes; }

const kv_disk_found *kv_disk_found_at(const kv_disk *d, size_t index) {
    return index < d->n_found ? &d->found[index] : NULL;
}

void kv_disk_found_release(kv_disk *d) {
    found_free(d);
    if (d->n_others) qsort(d->others, d->n_others, sizeof *d->others, by_time);
}

uint64_t kv_disk_foreign_bytes(const kv_disk *d) { return d->other_bytes; }

bool kv_disk_foreign_oldest(const kv_disk *d, int64_t *time) {
    if (d->first_other >= d->n_others) return false;
    *time = d->others[d->first_other].time;
    return true;
}

void kv_disk_foreign_drop(kv_disk *d) {
    const foreign *f = &d->others[d->first_other++];
    d->other_bytes -= f->bytes;
    entry_erase(d, f->name);
}
