/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/blobs.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/db.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool blob_digest_ok(const char *digest) {
    return strncmp(digest, "sha256:", 7) == 0 && strspn(digest + 7, "0123456789abcdef") == 64 && digest[71] == '\0';
}

void blob_digest_write(char out[BLOB_DIGEST_CHARS], const uint8_t sum[32]) {
    static const char hex[] = "0123456789abcdef";
    memcpy(out, "sha256:", 7);
    for (int i = 0; i < 32; i++) {
        out[7 + 2 * i] = hex[sum[i] >> 4];
        out[8 + 2 * i] = hex[sum[i] & 15];
    }
    out[71] = '\0';
}

int registry_data_path(registry *r, const char *name, char **out, err *e) {
    const char *slash = strrchr(r->path, '/');
    str         s;
    str_init(&s);
    if (slash) str_append(&s, r->path, (size_t)(slash + 1 - r->path));
    str_puts(&s, name);
    *out = str_take(&s);
    str_deinit(&s);
    return *out ? 0 : err_set_nomem(e);
}

int registry_blob_path(registry *r, const char *digest, const char *suffix, char **out, err *e) {
    char name[160];
    *out = NULL;
    if (!blob_digest_ok(digest)) return err_set(e, ERR_ARG, "'%.80s' is not a sha256 digest", digest);
    int n = snprintf(name, sizeof name, "blobs/sha256-%s%s", digest + 7, suffix);
    if (n < 0 || (size_t)n >= sizeof name) return err_set(e, ERR_ARG, "the suffix %s is too long", suffix);
    return registry_data_path(r, name, out, e);
}

bool registry_blob_has(registry *r, const char *digest, int64_t *size) {
    struct stat st;
    char       *path;
    bool        there = false;
    if (registry_blob_path(r, digest, "", &path, NULL) == 0) there = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (there && size) *size = st.st_size;
    free(path);
    return there;
}

/* --- locks --- */

/*
 * Lock files are removed by the last who holds them, so after the lock was had it may be on a file that is gone: what
 * counts is the one that has the name now.
 */
static int lock_file(const char *path, int how, blob_lock *out, err *e) {
    struct stat mine, named;
    int         rc = 0;
    for (;;) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) return err_set_errno(e, "cannot make the lock file %s", path);
        while (flock(fd, how) < 0) {
            if (errno == EINTR) continue;
            rc = errno == EWOULDBLOCK ? err_set(e, ERR_BUSY, "%s is locked by another process", path)
                                      : err_set_errno(e, "cannot lock %s", path);
            close(fd);
            return rc;
        }
        if (fstat(fd, &mine) == 0 && stat(path, &named) == 0 && mine.st_dev == named.st_dev &&
            mine.st_ino == named.st_ino) {
            *out = (blob_lock){ fd, strdup(path) };
            if (out->path) return 0;
            close(fd);
            *out = BLOB_LOCK_NONE;
            return err_set_nomem(e);
        }
        close(fd);
    }
}

static int lock_blob(registry *r, const char *digest, int how, blob_lock *out, err *e) {
    char *path;
    int   rc = registry_blob_path(r, digest, ".lock", &path, e);
    *out = BLOB_LOCK_NONE;
    if (rc == 0) rc = registry_make_folder(path, e);
    if (rc == 0) rc = lock_file(path, how, out, e);
    free(path);
    return rc;
}

void blob_unlock(blob_lock *l) {
    if (l->fd < 0) return;
    if (flock(l->fd, LOCK_EX | LOCK_NB) == 0) unlink(l->path);
    close(l->fd);
    free(l->path);
    l->fd = -1;
    l->path = NULL;
}

static int check_pinned(registry *r, const char *digest, blob_lock *l, err *e) {
    if (registry_blob_has(r, digest, NULL)) return 0;
    blob_unlock(l);
    return err_set(e, ERR_NOTFOUND, "there is no blob %s", digest);
}

int registry_blob_pin(registry *r, const char *digest, blob_lock *out, err *e) {
    int rc;
    *out = BLOB_LOCK_NONE;
    if (!blob_digest_ok(digest)) return err_set(e, ERR_ARG, "'%.80s' is not a sha256 digest", digest);
    if (!registry_blob_has(r, digest, NULL)) return err_set(e, ERR_NOTFOUND, "there is no blob %s", digest);
    rc = lock_blob(r, digest, LOCK_SH, out, e);
    return rc < 0 ? rc : check_pinned(r, digest, out, e);
}

int registry_blob_try_lock(registry *r, const char *digest, blob_lock *out, err *e) {
    return lock_blob(r, digest, LOCK_EX | LOCK_NB, out, e);
}

int registry_blob_lock_to_pin(registry *r, const char *digest, blob_lock *l, err *e) {
    while (flock(l->fd, LOCK_SH) < 0) {
        if (errno == EINTR) continue;
        int rc = err_set_errno(e, "cannot lock %s", l->path);
        blob_unlock(l);
        return rc;
    }
    /* The change is not atomic: another may have had the lock, and removed its file, in between. */
    struct stat mine, named;
    if (fstat(l->fd, &mine) < 0 || stat(l->path, &named) < 0 || mine.st_ino != named.st_ino) {
        close(l->fd);
        free(l->path);
        *l = BLOB_LOCK_NONE;
        return registry_blob_pin(r, digest, l, e);
    }
    return check_pinned(r, digest, l, e);
}

int registry_folders_lock(registry *r, blob_lock *out, err *e) {
    char *path;
    int   rc = registry_data_path(r, "models/.lock", &path, e);
    *out = BLOB_LOCK_NONE;
    if (rc == 0) rc = registry_make_folder(path, e);
    if (rc == 0) rc = lock_file(path, LOCK_EX, out, e);
    free(path);
    return rc;
}

/* --- making --- */

int blob_writer_begin(blob_writer *w, registry *r, const char *digest, err *e) {
    int rc;
    *w = (blob_writer){ .r = r, .fd = -1 };
    if (digest) {
        if (!blob_digest_ok(digest)) return err_set(e, ERR_ARG, "'%.80s' is not a sha256 digest", digest);
        memcpy(w->want, digest, BLOB_DIGEST_CHARS);
    }
    if ((rc = registry_data_path(r, "blobs/put-XXXXXX", &w->temp, e)) < 0) return rc;
    if ((rc = registry_make_folder(w->temp, e)) < 0) goto failed;
    w->sum = EVP_MD_CTX_new();
    if (!w->sum || EVP_DigestInit_ex(w->sum, EVP_sha256(), NULL) != 1) {
        rc = err_set_nomem(e);
        goto failed;
    }
    if ((w->fd = mkostemp(w->temp, O_CLOEXEC)) < 0) {
        rc = err_set_errno(e, "cannot make %s", w->temp);
        free(w->temp);
        w->temp = NULL;
        goto failed;
    }
    return 0;
failed:
    blob_writer_abort(w);
    return rc;
}

int blob_writer_put(blob_writer *w, const void *data, size_t bytes, err *e) {
    const char *p = data;
    size_t      left = bytes;
    if (EVP_DigestUpdate(w->sum, data, bytes) != 1) return err_set_nomem(e);
    while (left > 0) {
        ssize_t n = write(w->fd, p, left);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return err_set_errno(e, "cannot write %s", w->temp);
        p += n;
        left -= (size_t)n;
    }
    w->size += (int64_t)bytes;
    return 0;
}

/* Makes the blob, unless another did; ERR_NOTFOUND: it was freed again before it was pinned. */
static int store(blob_writer *w, const char *digest, blob_lock *pin, err *e) {
    blob_lock mine;
    int       rc = lock_blob(w->r, digest, LOCK_EX, &mine, e);
    if (rc < 0) return rc;
    if (!registry_blob_has(w->r, digest, NULL)) {
        if ((rc = registry_blob_adopt(w->r, digest, w->temp, e)) < 0) {
            blob_unlock(&mine);
            return rc;
        }
        free(w->temp);
        w->temp = NULL;
    }
    rc = registry_blob_lock_to_pin(w->r, digest, &mine, e);
    *pin = mine;
    return rc;
}

int blob_writer_commit(blob_writer *w, char digest[BLOB_DIGEST_CHARS], blob_lock *pin, err *e) {
    uint8_t sum[EVP_MAX_MD_SIZE];
    int     rc = 0;
    *pin = BLOB_LOCK_NONE;
    if (EVP_DigestFinal_ex(w->sum, sum, NULL) != 1) {
        rc = err_set_nomem(e);
        goto done;
    }
    blob_digest_write(digest, sum);
    if (w->want[0] && strcmp(w->want, digest) != 0) {
        rc = err_set(e, ERR_FORMAT, "the data has the digest %s, not %s", digest, w->want);
        goto done;
    }
    do { /* until it is there and pinned */
        rc = registry_blob_pin(w->r, digest, pin, e);
        if (rc == ERR_NOTFOUND && w->temp) rc = store(w, digest, pin, e);
    } while (rc == ERR_NOTFOUND && w->temp);
done:
    blob_writer_abort(w);
    return rc;
}

void blob_writer_abort(blob_writer *w) {
    if (w->fd >= 0) close(w->fd);
    if (w->temp) unlink(w->temp);
    free(w->temp);
    EVP_MD_CTX_free(w->sum);
    *w = (blob_writer){ .fd = -1 };
}

int registry_blob_adopt(registry *r, const char *digest, const char *path, err *e) {
    char *target = NULL, *folder = NULL;
    int   rc = 0, fd = -1, dir = -1;
    if ((rc = registry_blob_path(r, digest, "", &target, e)) < 0 ||
        (rc = registry_data_path(r, "blobs", &folder, e)) < 0)
        goto done;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0 || fchmod(fd, 0444) < 0 || rename(path, target) < 0) {
        rc = err_set_errno(e, "cannot store %s", target);
        goto done;
    }
    dir = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir) < 0) rc = err_set_errno(e, "cannot store %s", target);
done:
    if (dir >= 0) close(dir);
    if (fd >= 0) close(fd);
    free(target);
    free(folder);
    return rc;
}

/* --- models and blobs --- */

int registry_blob_link(registry *r, int64_t model_id, const char *digest, int64_t size, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc;
    if (!blob_digest_ok(digest)) return err_set(e, ERR_ARG, "'%.80s' is not a sha256 digest", digest);
    rc = registry_db_prepare(
        r, &s, "INSERT INTO blobs (digest, size) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET size = excluded.size",
        e);
    if (rc < 0) return rc;
    sqlite3_bind_text(s, 1, digest, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(s, 2, size);
    if ((rc = registry_db_finish(r, s, e)) < 0) return rc;
    rc = registry_db_prepare(r, &s, "INSERT OR IGNORE INTO model_blobs (model_id, digest) VALUES (?, ?)", e);
    if (rc < 0) return rc;
    sqlite3_bind_int64(s, 1, model_id);
    sqlite3_bind_text(s, 2, digest, -1, SQLITE_TRANSIENT);
    return registry_db_finish(r, s, e);
}

int registry_blob_list(registry *r, int64_t model_id, char ***out, size_t *n, err *e) {
    sqlite3_stmt *s = NULL;
    *out = NULL;
    *n = 0;
    int rc = registry_db_prepare(r, &s, "SELECT digest FROM model_blobs WHERE model_id = ? ORDER BY digest", e);
    if (rc < 0) return rc;
    sqlite3_bind_int64(s, 1, model_id);
    return registry_db_texts(r, s, out, n, e);
}
