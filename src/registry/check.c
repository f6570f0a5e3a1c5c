/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/check.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "registry/db.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void note(registry_finding *f, const char *what, int64_t bytes) {
    if (f->n++ == 0) snprintf(f->example, sizeof f->example, "%s", what);
    f->bytes += bytes;
}

static const char *text_at(sqlite3_stmt *s, int column) {
    const char *t = (const char *)sqlite3_column_text(s, column);
    return t ? t : "";
}

static int check_file(registry *r, registry_health *h, err *e) {
    sqlite3_stmt *s;
    int           rc = registry_db_prepare(r, &s, "PRAGMA quick_check(1)", e);
    if (rc < 0) return rc;
    if (sqlite3_step(s) == SQLITE_ROW) {
        h->intact = strcmp(text_at(s, 0), "ok") == 0;
        if (!h->intact) snprintf(h->damage, sizeof h->damage, "%s", text_at(s, 0));
    } else {
        snprintf(h->damage, sizeof h->damage, "%s", sqlite3_errmsg(r->db));
    }
    sqlite3_finalize(s);
    return 0;
}

static int check_models(registry *r, registry_health *h, err *e) {
    registry_model *list = NULL;
    size_t          n = 0;
    int             rc = registry_list(r, &list, &n, e);
    if (rc < 0) return rc;
    h->n_models = (int)n;
    for (size_t i = 0; i < n; i++) {
        if (!file_exists(list[i].path) && !dir_exists(list[i].path)) note(&h->lost_models, list[i].name, 0);
        registry_model_deinit(&list[i]);
    }
    free(list);
    return 0;
}

/* Every digest that a model uses against the file. */
static int check_used(registry *r, registry_health *h, err *e) {
    sqlite3_stmt *s;
    int           rc = registry_db_prepare(r, &s,
                                           "SELECT digest, size FROM blobs WHERE digest IN (SELECT digest FROM model_blobs)", e);
    if (rc < 0) return rc;
    while (sqlite3_step(s) == SQLITE_ROW) {
        int64_t size = 0;
        if (!registry_blob_has(r, text_at(s, 0), &size) || size != sqlite3_column_int64(s, 1))
            note(&h->lost_blobs, text_at(s, 0), sqlite3_column_int64(s, 1));
    }
    sqlite3_finalize(s);
    return 0;
}

static bool is_used(sqlite3_stmt *s, const char *digest) {
    sqlite3_reset(s);
    sqlite3_bind_text(s, 1, digest, -1, SQLITE_TRANSIENT);
    return sqlite3_step(s) == SQLITE_ROW;
}

static int check_folder(registry *r, registry_health *h, err *e) {
    sqlite3_stmt *s;
    char         *dir;
    int           rc = registry_data_path(r, "blobs", &dir, e);
    if (rc < 0) return rc;
    DIR *d = opendir(dir);
    free(dir);
    if (!d) return 0; /* nothing was ever pulled */
    rc = registry_db_prepare(r, &s, "SELECT 1 FROM model_blobs WHERE digest = ?", e);
    for (struct dirent *x; rc == 0 && (x = readdir(d));) {
        struct stat st;
        char        digest[BLOB_DIGEST_CHARS];
        view        name = view_of(x->d_name);
        if (!view_starts(name, "sha256-") || fstatat(dirfd(d), x->d_name, &st, 0) != 0) continue;
        if (view_ends(name, ".partial")) {
            note(&h->partial, x->d_name, (int64_t)st.st_size);
        } else if (name.len == BLOB_DIGEST_CHARS - 1) {
            memcpy(digest, x->d_name, sizeof digest);
            digest[6] = ':';
            if (blob_digest_ok(digest) && !is_used(s, digest)) note(&h->unused_blobs, digest, (int64_t)st.st_size);
        }
    }
    if (rc == 0) sqlite3_finalize(s);
    closedir(d);
    return rc;
}

int registry_check(registry *r, registry_health *out, err *e) {
    *out = (registry_health){ 0 };
    int rc = check_file(r, out, e);
    if (rc < 0 || !out->intact) return rc;
    if ((rc = check_models(r, out, e)) < 0) return rc;
    if ((rc = check_used(r, out, e)) < 0) return rc;
    return check_folder(r, out, e);
}
