/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freeing what no model uses.
 *
 * A blob in the table that no model uses any more goes at once, unless someone has it pinned. A file that never
 * belonged to a model (the first files of a pull that was broken off, an upload that no one used) is kept for a while,
 * so that the pull can go on. Every removal happens under the blob's own lock.
 */
#include "base/file.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "registry/db.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_SECONDS = 14 * 24 * 3600, MAX_DEPTH = 16 };

/* The digests that a statement gives; a row of them is looked at again under the lock before anything goes. */
static int unused_digests(registry *r, char ***out, size_t *n, err *e) {
    sqlite3_stmt *s = NULL;
    *out = NULL;
    *n = 0;
    int rc = registry_db_prepare(
        r, &s, "SELECT digest FROM blobs WHERE NOT EXISTS (SELECT 1 FROM model_blobs m WHERE m.digest = blobs.digest)",
        e);
    return rc < 0 ? rc : registry_db_texts(r, s, out, n, e);
}

static void remove_suffixed(registry *r, const char *digest, const char *suffix, int64_t *freed) {
    struct stat st;
    char       *path;
    if (registry_blob_path(r, digest, suffix, &path, NULL) < 0) return;
    if (lstat(path, &st) == 0 && unlink(path) == 0 && freed) *freed += st.st_size;
    free(path);
}

/* The file goes before the row is committed: a row without a file is harmless, a file without a row stays for days. */
static int free_blob(registry *r, const char *digest, int64_t *freed, err *e) {
    blob_lock     lock;
    sqlite3_stmt *s = NULL;
    int           rc = registry_blob_try_lock(r, digest, &lock, e);
    if (rc == ERR_BUSY) return 0; /* pinned: a pull is about to use it */
    if (rc < 0) return rc;
    if ((rc = registry_db_begin(r, e)) < 0) goto done;
    rc = registry_db_prepare(r, &s,
                             "DELETE FROM blobs WHERE digest = ?1 AND NOT EXISTS"
                             " (SELECT 1 FROM model_blobs WHERE digest = ?1)",
                             e);
    if (rc == 0) {
        sqlite3_bind_text(s, 1, digest, -1, SQLITE_TRANSIENT);
        rc = registry_db_finish(r, s, e);
    }
    if (rc == 0 && sqlite3_changes(r->db) == 1) remove_suffixed(r, digest, "", freed);
    rc = registry_db_end(r, rc, e);
done:
    blob_unlock(&lock);
    return rc;
}

static int known_digest(registry *r, const char *digest, bool *known, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = registry_db_prepare(r, &s, "SELECT 1 FROM blobs WHERE digest = ?", e);
    if (rc < 0) return rc;
    sqlite3_bind_text(s, 1, digest, -1, SQLITE_TRANSIENT);
    int step = sqlite3_step(s);
    *known = step == SQLITE_ROW;
    if (step != SQLITE_ROW && step != SQLITE_DONE) rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

/* A file of the blobs' folder that has lain there for long and belongs to no model. */
static int free_stray(registry *r, const char *name, int64_t *freed, err *e) {
    char      digest[BLOB_DIGEST_CHARS] = "sha256:";
    bool      known = true;
    blob_lock lock;
    int       rc;
    if (strncmp(name, "sha256-", 7) != 0 || strlen(name) < 71) return 0;
    memcpy(digest + 7, name + 7, 64);
    digest[71] = '\0';
    if (!blob_digest_ok(digest)) return 0;
    if ((rc = known_digest(r, digest, &known, e)) < 0 || known) return rc;
    if ((rc = registry_blob_try_lock(r, digest, &lock, e)) < 0) return rc == ERR_BUSY ? 0 : rc;
    if ((rc = known_digest(r, digest, &known, e)) == 0 && !known) {
        remove_suffixed(r, digest, "", freed);
        remove_suffixed(r, digest, ".partial", freed);
        remove_suffixed(r, digest, ".partial.json", NULL);
    }
    blob_unlock(&lock);
    return rc;
}

static int free_strays(registry *r, int64_t *freed, err *e) {
    char          *path;
    struct dirent *d;
    struct stat    st;
    time_t         now = time(NULL);
    int            rc = registry_data_path(r, "blobs", &path, e);
    if (rc < 0) return rc;
    DIR *dir = opendir(path);
    free(path);
    if (!dir) return errno == ENOENT ? 0 : err_set_errno(e, "cannot read the folder of the blobs");
    while (rc == 0 && (d = readdir(dir))) {
        if (d->d_name[0] == '.' || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        if (!S_ISREG(st.st_mode) || now - st.st_mtime < KEEP_SECONDS) continue;
        if (strncmp(d->d_name, "put-", 4) == 0)
            unlinkat(dirfd(dir), d->d_name, 0); /* its writer ended long ago */
        else
            rc = free_stray(r, d->d_name, freed, e);
    }
    closedir(dir);
    return rc;
}

/* --- folders --- */

static int lies_in(registry *r, const char *folder, bool *used, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = registry_db_prepare(
                  r, &s, "SELECT 1 FROM models WHERE path = ?1 OR substr(path, 1, length(?1) + 1) = ?1 || '/' LIMIT 1", e);
    if (rc < 0) return rc;
    sqlite3_bind_text(s, 1, folder, -1, SQLITE_TRANSIENT);
    int step = sqlite3_step(s);
    *used = step == SQLITE_ROW;
    if (step != SQLITE_ROW && step != SQLITE_DONE) rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

/* Takes away links and folders, nothing else: what a person put there stays. */
static void remove_links(int at, const char *name, int depth) {
    int            fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR           *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *d;
    struct stat    st;
    if (!dir) {
        if (fd >= 0) close(fd);
        return;
    }
    while ((d = readdir(dir))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0) continue;
        if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) continue;
        if (S_ISLNK(st.st_mode))
            unlinkat(fd, d->d_name, 0);
        else if (S_ISDIR(st.st_mode) && depth < MAX_DEPTH)
            remove_links(fd, d->d_name, depth + 1);
    }
    closedir(dir);
    unlinkat(at, name, AT_REMOVEDIR);
}

/* Level 0: D/models; 1: owners; 2: repositories; 3: revisions, which are used or not. */
static int sweep_folder(registry *r, const char *path, int level, err *e) {
    DIR           *dir = opendir(path);
    struct dirent *d;
    int            rc = 0;
    if (!dir) return 0; /* not there, or not ours to read */
    while (rc == 0 && (d = readdir(dir))) {
        struct stat st;
        bool        used = true;
        if (d->d_name[0] == '.' || fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
            continue;
        char *full = path_join(path, d->d_name);
        if (!full)
            rc = err_set_nomem(e);
        else if (level < 2)
            rc = sweep_folder(r, full, level + 1, e);
        else if ((rc = lies_in(r, full, &used, e)) == 0 && !used)
            remove_links(dirfd(dir), d->d_name, 0);
        free(full);
        if (level < 2) unlinkat(dirfd(dir), d->d_name, AT_REMOVEDIR); /* refused unless empty */
    }
    closedir(dir);
    return rc;
}

static int sweep_folders(registry *r, err *e) {
    char     *path;
    blob_lock lock;
    int       rc = registry_data_path(r, "models", &path, e);
    if (rc < 0) return rc;
    if (dir_exists(path) && (rc = registry_folders_lock(r, &lock, e)) == 0) {
        rc = sweep_folder(r, path, 0, e);
        blob_unlock(&lock);
    }
    free(path);
    return rc;
}

int registry_blob_sweep(registry *r, int64_t *freed, err *e) {
    char  **digests;
    size_t  n;
    int64_t bytes = 0;
    int     rc = unused_digests(r, &digests, &n, e);
    for (size_t i = 0; i < n; i++) {
        if (rc == 0) rc = free_blob(r, digests[i], &bytes, e);
        free(digests[i]);
    }
    free(digests);
    if (rc == 0) rc = free_strays(r, &bytes, e);
    if (rc == 0) rc = sweep_folders(r, e);
    if (freed) *freed = bytes;
    return rc;
}
