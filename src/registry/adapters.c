/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/adapters.h"

#include "base/file.h"
#include "base/str.h"
#include "registry/blobs.h"
#include "registry/db.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_NAME = 63, COPY_BYTES = 1 << 20 };

void registry_adapter_deinit(registry_adapter *a) {
    free(a->name);
    free(a->path);
    free(a->sha256);
    free(a->type);
    free(a->format);
    memset(a, 0, sizeof *a);
}

bool registry_adapter_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME || name[0] == '.' || name[0] == '_' || name[0] == '-') return false;
    for (const char *p = name; *p; p++) {
        bool letter = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (!letter && !strchr("._-", *p)) return false;
    }
    return true;
}

/* D/adapters; the caller frees. make: it is there afterwards. */
static int data_dir(registry *r, bool make, char **out, err *e) {
    int rc = registry_data_path(r, "adapters", out, e);
    if (rc < 0 || !make) return rc;
    if ((rc = dir_make(*out, e)) == 0) return 0;
    free(*out);
    *out = NULL;
    return rc;
}

/* --- copies --- */

static int copy_file(const char *from, const char *to, int64_t *size, err *e) {
    file_replace w;
    FILE        *in = fopen(from, "rb");
    char        *buffer = malloc(COPY_BYTES);
    size_t       n;
    if (!in || !buffer) {
        int rc = in ? err_set_nomem(e) : err_set_errno(e, "cannot open %s", from);
        if (in) fclose(in);
        free(buffer);
        return rc;
    }
    int rc = file_replace_begin(&w, to, e);
    while (rc == 0 && (n = fread(buffer, 1, COPY_BYTES, in)) > 0) {
        *size += (int64_t)n;
        if (fwrite(buffer, 1, n, w.out) == n) continue;
        rc = err_set_errno(e, "cannot write %s", to);
        file_replace_abort(&w);
    }
    if (rc == 0 && ferror(in)) {
        rc = err_set_errno(e, "cannot read %s", from);
        file_replace_abort(&w);
    }
    if (rc == 0) rc = file_replace_commit(&w, e);
    fclose(in);
    free(buffer);
    return rc;
}

static void remove_folder(const char *path) {
    DIR *d = opendir(path);
    for (struct dirent *x; d && (x = readdir(d));) {
        if (x->d_name[0] != '.') (void)unlinkat(dirfd(d), x->d_name, 0);
    }
    if (d) closedir(d);
    (void)rmdir(path);
}

/* The folder of this content, made; the caller frees. */
static int make_own(registry *r, const char *sha256, char **out, err *e) {
    char *dir = NULL;
    int   rc = data_dir(r, true, &dir, e);
    *out = NULL;
    if (rc == 0 && !(*out = path_join(dir, sha256))) rc = err_set_nomem(e);
    if (rc == 0) rc = dir_make(*out, e);
    free(dir);
    return rc;
}

int registry_adapter_keep(registry *r, const char *const *names, const char *const *paths, size_t n, const char *sha256,
                          char **out, int64_t *size, err *e) {
    char *own = NULL;
    int   rc = make_own(r, sha256, &own, e);
    *out = NULL;
    *size = 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        char *to = path_join(own, names[i]);
        rc = to ? copy_file(paths[i], to, size, e) : err_set_nomem(e);
        free(to);
    }
    if (rc == 0)
        *out = own;
    else
        free(own);
    return rc;
}

int registry_adapter_store(registry *r, const char *path, const char *sha256, char **out, int64_t *size, err *e) {
    static const char *const files[] = { "adapter_config.json", "adapter_model.safetensors", "adapters.safetensors" };
    const char              *names[3], *paths[3];
    char                    *full[3] = { NULL };
    size_t                   n = 0;
    int                      rc = 0;
    if (!dir_exists(path)) {
        char *own = NULL;
        names[0] = "adapter.gguf";
        if ((rc = registry_adapter_keep(r, names, &path, 1, sha256, &own, size, e)) < 0) return rc;
        *out = path_join(own, names[0]);
        free(own);
        return *out ? 0 : err_set_nomem(e);
    }
    for (size_t i = 0; rc == 0 && i < 3; i++) {
        if (!(full[i] = path_join(path, files[i]))) rc = err_set_nomem(e);
        if (rc < 0 || !file_exists(full[i])) continue;
        names[n] = files[i];
        paths[n++] = full[i];
    }
    if (rc == 0) rc = registry_adapter_keep(r, names, paths, n, sha256, out, size, e);
    for (size_t i = 0; i < 3; i++) free(full[i]);
    return rc;
}

/* --- rows --- */

static int model_id(registry *r, const char *model, int64_t *out, err *e) {
    registry_model m;
    int            rc = registry_find(r, model, &m, e);
    if (rc < 0) return rc;
    *out = m.id;
    registry_model_deinit(&m);
    return 0;
}

int registry_adapter_add(registry *r, const char *model, const registry_adapter *a, bool replace, err *e) {
    sqlite3_stmt *s = NULL;
    int64_t       id = 0;
    int           rc;
    if (!registry_adapter_name_ok(a->name))
        return err_set(e, ERR_ARG, "'%.80s' is not a name for an adapter: letters, digits and . _ - only", a->name);
    if ((rc = registry_db_begin(r, e)) < 0) return rc;
    rc = model_id(r, model, &id, e);
    if (rc == 0)
        rc = registry_db_prepare(r, &s,
                                 replace ? "DELETE FROM adapters WHERE model_id = ?1 AND name = ?2"
                                         : "SELECT 1 FROM adapters WHERE model_id = ?1 AND name = ?2",
                                 e);
    if (rc == 0) {
        sqlite3_bind_int64(s, 1, id);
        sqlite3_bind_text(s, 2, a->name, -1, SQLITE_TRANSIENT);
        int step = sqlite3_step(s);
        sqlite3_finalize(s);
        if (step == SQLITE_ROW) rc = err_set(e, ERR_ARG, "%s has an adapter '%s' already", model, a->name);
        if (step != SQLITE_ROW && step != SQLITE_DONE) rc = registry_db_fail(r, e);
    }
    if (rc == 0)
        rc = registry_db_prepare(r, &s,
                                 "INSERT INTO adapters (model_id, name, type, path, scale, rank, sha256, alpha, format,"
                                 " size, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, unixepoch())",
                                 e);
    if (rc == 0) {
        const char *texts[] = { a->name, a->type, a->path };
        sqlite3_bind_int64(s, 1, id);
        for (int i = 0; i < 3; i++) sqlite3_bind_text(s, 2 + i, texts[i], -1, SQLITE_TRANSIENT);
        sqlite3_bind_double(s, 5, a->scale);
        sqlite3_bind_int64(s, 6, a->rank);
        sqlite3_bind_text(s, 7, a->sha256, -1, SQLITE_TRANSIENT);
        sqlite3_bind_double(s, 8, a->alpha);
        sqlite3_bind_text(s, 9, a->format, -1, SQLITE_TRANSIENT);
        sqlite3_bind_int64(s, 10, a->size);
        rc = registry_db_finish(r, s, e);
    }
    return registry_db_end(r, rc, e);
}

static char *text_at(sqlite3_stmt *s, int column) {
    const char *t = (const char *)sqlite3_column_text(s, column);
    return strdup(t ? t : "");
}

static int read_row(sqlite3_stmt *s, registry_adapter *a, char **model, err *e) {
    *a = (registry_adapter){ .id = sqlite3_column_int64(s, 0),
                             .name = text_at(s, 1),
                             .path = text_at(s, 2),
                             .sha256 = text_at(s, 3),
                             .type = text_at(s, 4),
                             .format = text_at(s, 5),
                             .rank = sqlite3_column_int64(s, 6),
                             .size = sqlite3_column_int64(s, 7),
                             .alpha = sqlite3_column_double(s, 8),
                             .scale = sqlite3_column_double(s, 9),
                             .always = sqlite3_column_double(s, 10),
                             .created_at = sqlite3_column_int64(s, 11) };
    *model = text_at(s, 12);
    return a->name && a->path && a->sha256 && a->type && a->format && *model ? 0 : err_set_nomem(e);
}

static void free_list(registry_adapter *list, char **models, size_t n) {
    for (size_t i = 0; i < n; i++) {
        registry_adapter_deinit(&list[i]);
        free(models[i]);
    }
    free(list);
    free(models);
}

int registry_adapter_list(registry *r, const char *model, registry_adapter **out, char ***models, size_t *n, err *e) {
    static const char sql[] =
        "SELECT a.id, a.name, a.path, a.sha256, a.type, a.format, a.rank, a.size, a.alpha, a.scale, a.always,"
        " a.created_at, m.name FROM adapters a JOIN models m ON m.id = a.model_id WHERE a.name IS NOT NULL AND"
        " (?1 IS NULL OR a.model_id = ?2) ORDER BY m.name, a.id";
    registry_adapter *list = NULL;
    char            **names = NULL;
    sqlite3_stmt     *s = NULL;
    int64_t           id = 0;
    int               rc = model ? model_id(r, model, &id, e) : 0, step = SQLITE_DONE;
    *n = 0;
    if (rc == 0) rc = registry_db_prepare(r, &s, sql, e);
    if (rc < 0) return rc;
    if (model) sqlite3_bind_text(s, 1, model, -1, SQLITE_TRANSIENT);
    sqlite3_bind_int64(s, 2, id);
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        registry_adapter *more = realloc(list, (*n + 1) * sizeof *more);
        if (more) list = more;
        char **texts = realloc(names, (*n + 1) * sizeof *texts);
        if (texts) names = texts;
        if (!more || !texts) {
            rc = err_set_nomem(e);
            break;
        }
        rc = read_row(s, &list[*n], &names[*n], e);
        (*n)++;
    }
    if (rc == 0 && step != SQLITE_DONE) rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    if (rc < 0) {
        free_list(list, names, *n);
        *n = 0;
        return rc;
    }
    *out = list;
    if (models) {
        *models = names;
        return 0;
    }
    for (size_t i = 0; i < *n; i++) free(names[i]);
    free(names);
    return 0;
}

int registry_adapter_find(registry *r, const char *model, const char *name, registry_adapter *out, err *e) {
    registry_adapter *list = NULL;
    size_t            n = 0;
    bool              found = false;
    *out = (registry_adapter){ 0 };
    int rc = registry_adapter_list(r, model, &list, NULL, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (!found && strcmp(list[i].name, name) == 0) {
            *out = list[i];
            found = true;
        } else {
            registry_adapter_deinit(&list[i]);
        }
    }
    if (rc == 0) free(list);
    return rc < 0 || found ? rc : err_set(e, ERR_NOTFOUND, "%s has no adapter '%.80s'", model, name);
}

int registry_adapter_always(registry *r, const char *model, int64_t id, double scale, err *e) {
    sqlite3_stmt *s = NULL;
    int64_t       of = 0;
    int           rc = model_id(r, model, &of, e);
    if (rc == 0) rc = registry_db_prepare(r, &s, "UPDATE adapters SET always = ? WHERE id = ? AND model_id = ?", e);
    if (rc < 0) return rc;
    sqlite3_bind_double(s, 1, scale);
    sqlite3_bind_int64(s, 2, id);
    sqlite3_bind_int64(s, 3, of);
    return registry_db_finish(r, s, e);
}

int registry_adapter_sweep(registry *r, err *e) {
    char *dir = NULL;
    int   rc = data_dir(r, false, &dir, e);
    DIR  *d = rc == 0 ? opendir(dir) : NULL;
    for (struct dirent *x; d && rc == 0 && (x = readdir(d));) {
        sqlite3_stmt *s = NULL;
        if (strlen(x->d_name) != 64) continue;
        if ((rc = registry_db_prepare(r, &s, "SELECT 1 FROM adapters WHERE sha256 = ?", e)) < 0) break;
        sqlite3_bind_text(s, 1, x->d_name, -1, SQLITE_TRANSIENT);
        int   step = sqlite3_step(s);
        char *path = step == SQLITE_DONE ? path_join(dir, x->d_name) : NULL;
        sqlite3_finalize(s);
        if (path) remove_folder(path);
        free(path);
    }
    if (d) closedir(d);
    free(dir);
    return rc;
}

int registry_adapter_remove(registry *r, const char *model, const char *name, err *e) {
    registry_adapter a;
    sqlite3_stmt    *s = NULL;
    int              rc = registry_adapter_find(r, model, name, &a, e);
    if (rc < 0) return rc;
    rc = registry_db_prepare(r, &s, "DELETE FROM adapters WHERE id = ?", e);
    if (rc == 0) {
        sqlite3_bind_int64(s, 1, a.id);
        rc = registry_db_finish(r, s, e);
    }
    registry_adapter_deinit(&a);
    return rc < 0 ? rc : registry_adapter_sweep(r, e);
}
