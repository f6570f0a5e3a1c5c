/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/registry.h"

#include "base/clock.h"
#include "base/str.h"
#include "registry/db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { BUSY_MS = 10000, MAX_NAME = 127 };

/* Number i takes a file from version i to i + 1. Never changed once released; new ones are added behind. */
static const char *const migrations[] = {
    "CREATE TABLE models ("
    " id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, family TEXT, format TEXT, path TEXT NOT NULL, dtype TEXT,"
    " quant TEXT, params INTEGER, n_ctx INTEGER, n_layer INTEGER, vocab_size INTEGER, sha256 TEXT, size INTEGER,"
    " source TEXT, created_at INTEGER NOT NULL, last_used INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE adapters ("
    " id INTEGER PRIMARY KEY, model_id INTEGER NOT NULL REFERENCES models(id) ON DELETE CASCADE, type TEXT NOT NULL,"
    " path TEXT NOT NULL, scale REAL NOT NULL DEFAULT 1, rank INTEGER);"
    "CREATE TABLE tags ("
    " ref_type TEXT NOT NULL, ref_id INTEGER NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL,"
    " PRIMARY KEY (ref_type, ref_id, key)) WITHOUT ROWID;"
    "CREATE TABLE cache_entries ("
    " id INTEGER PRIMARY KEY, model_id INTEGER NOT NULL REFERENCES models(id) ON DELETE CASCADE, prompt_hash TEXT NOT"
    " NULL, tokens INTEGER NOT NULL, path TEXT NOT NULL, created_at INTEGER NOT NULL, last_access INTEGER NOT NULL);"
    "CREATE TRIGGER models_gone AFTER DELETE ON models BEGIN"
    " DELETE FROM tags WHERE ref_type = 'model' AND ref_id = OLD.id; END;",
    "CREATE TABLE blobs (digest TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE model_blobs ("
    " model_id INTEGER NOT NULL REFERENCES models(id) ON DELETE CASCADE,"
    " digest TEXT NOT NULL REFERENCES blobs(digest), PRIMARY KEY (model_id, digest)) WITHOUT ROWID;"
    "CREATE INDEX model_blobs_digest ON model_blobs (digest);",
    "ALTER TABLE adapters ADD COLUMN name TEXT;"
    "ALTER TABLE adapters ADD COLUMN sha256 TEXT;"
    "ALTER TABLE adapters ADD COLUMN alpha REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE adapters ADD COLUMN format TEXT;"
    "ALTER TABLE adapters ADD COLUMN size INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE adapters ADD COLUMN always REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE adapters ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;"
    "CREATE UNIQUE INDEX adapters_name ON adapters (model_id, name);",
};
enum { VERSION = (int)(sizeof migrations / sizeof *migrations) };

int registry_db_fail(registry *r, err *e) {
    int code = sqlite3_errcode(r->db);
    return err_set(e,
                   code == SQLITE_NOMEM                              ? ERR_NOMEM
                   : code == SQLITE_NOTADB || code == SQLITE_CORRUPT ? ERR_FORMAT
                                                                     : ERR_IO,
                   "registry %s: %s", r->path, sqlite3_errmsg(r->db));
}

static int registry_db_run(registry *r, const char *sql, err *e) {
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : registry_db_fail(r, e);
}

int registry_db_begin(registry *r, err *e) { return registry_db_run(r, "BEGIN IMMEDIATE", e); }

int registry_db_end(registry *r, int rc, err *e) {
    if (rc == 0) rc = registry_db_run(r, "COMMIT", e);
    if (rc < 0) sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

/* --- opening --- */

int registry_make_folder(const char *path, err *e) {
    char *copy = strdup(path), *slash;
    int   rc = 0;
    if (!copy) return err_set_nomem(e);
    for (slash = strchr(copy + 1, '/'); slash && rc == 0; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(copy, 0700) != 0 && errno != EEXIST) rc = err_set_errno(e, "cannot make the folder %s", copy);
        *slash = '/';
    }
    free(copy);
    return rc;
}

static int version_of(registry *r, int *out, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = 0;
    if (sqlite3_prepare_v2(r->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        *out = sqlite3_column_int(s, 0);
    else
        rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

/* One transaction for all: another process that opens the file at the same time waits, then finds nothing to do. */
static int migrate(registry *r, err *e) {
    int version = 0, rc = version_of(r, &version, e);
    if (rc < 0 || version == VERSION) return rc;
    if ((rc = registry_db_begin(r, e)) < 0) return rc;
    rc = version_of(r, &version, e);
    if (rc == 0 && version > VERSION)
        rc = err_set(e, ERR_UNSUPPORTED, "registry %s: was written by a newer Hearth (version %d, this one knows %d)",
                     r->path, version, VERSION);
    for (; rc == 0 && version < VERSION; version++) rc = registry_db_run(r, migrations[version], e);
    if (rc == 0) {
        char text[48];
        sqlite3_snprintf(sizeof text, text, "PRAGMA user_version = %d", VERSION);
        rc = registry_db_run(r, text, e);
    }
    return registry_db_end(r, rc, e);
}

/* Where two processes make the file at the same time, one is told at once that it is locked: SQLite does not wait while
 * the journal's mode changes, whatever the busy timeout says. */
static int set_modes(registry *r, err *e) {
    static const char sql[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; "
                              "PRAGMA recursive_triggers = ON"; /* INSERT OR REPLACE fires models_gone, too */
    int64_t           until = clock_us() + (int64_t)BUSY_MS * 1000;
    for (;;) {
        int rc = registry_db_run(r, sql, e);
        if (rc == 0 || sqlite3_errcode(r->db) != SQLITE_BUSY || clock_us() > until) return rc;
        (void)sqlite3_sleep(5);
    }
}

int registry_open(registry **out, const char *path, err *e) {
    registry *r = calloc(1, sizeof *r);
    int       rc;
    *out = NULL;
    if (!r || !(r->path = strdup(path))) {
        registry_close(r);
        return err_set_nomem(e);
    }
    if ((rc = registry_make_folder(path, e)) < 0) goto failed;
    if (sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, NULL) !=
        SQLITE_OK) {
        rc = r->db ? registry_db_fail(r, e) : err_set_nomem(e);
        goto failed;
    }
    sqlite3_busy_timeout(r->db, BUSY_MS);
    if ((rc = set_modes(r, e)) < 0 || (rc = migrate(r, e)) < 0) goto failed;
    *out = r;
    return 0;
failed:
    registry_close(r);
    return rc;
}

void registry_close(registry *r) {
    if (!r) return;
    sqlite3_close(r->db);
    free(r->path);
    free(r);
}

/* --- models --- */

void registry_model_deinit(registry_model *m) {
    free(m->name);
    free(m->family);
    free(m->format);
    free(m->path);
    free(m->dtype);
    free(m->quant);
    free(m->sha256);
    free(m->source);
    memset(m, 0, sizeof *m);
}

bool registry_name_ok(const char *name) {
    size_t n = strlen(name);
    if (n == 0 || n > MAX_NAME) return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!plain && (i == 0 || !strchr("._-:/@", c))) return false;
    }
    return true;
}

/* The name as it is stored: without ":latest". */
static size_t plain_length(const char *name) {
    size_t n = strlen(name);
    return n > 7 && strcmp(name + n - 7, ":latest") == 0 ? n - 7 : n;
}

int registry_db_prepare(registry *r, sqlite3_stmt **s, const char *sql, err *e) {
    return sqlite3_prepare_v2(r->db, sql, -1, s, NULL) == SQLITE_OK ? 0 : registry_db_fail(r, e);
}

static void bind_text(sqlite3_stmt *s, int at, const char *text) {
    sqlite3_bind_text(s, at, text, -1, SQLITE_TRANSIENT); /* NULL binds NULL */
}

static void bind_name(sqlite3_stmt *s, int at, const char *name) {
    sqlite3_bind_text(s, at, name, (int)plain_length(name), SQLITE_TRANSIENT);
}

int registry_db_finish(registry *r, sqlite3_stmt *s, err *e) {
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

int registry_db_texts(registry *r, sqlite3_stmt *s, char ***out, size_t *n, err *e) {
    int step, rc = 0;
    *out = NULL;
    *n = 0;
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(s, 0);
        char      **more = realloc(*out, (*n + 1) * sizeof *more);
        if (more) *out = more;
        if (!more || !((*out)[*n] = strdup(text ? text : ""))) {
            rc = err_set_nomem(e);
            break;
        }
        ++*n;
    }
    if (rc == 0 && step != SQLITE_DONE) rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    if (rc == 0) return 0;
    for (size_t i = 0; i < *n; i++) free((*out)[i]);
    free(*out);
    *out = NULL;
    *n = 0;
    return rc;
}

#define COLUMNS                                                                                                        \
    "name, family, format, path, dtype, quant, sha256, source, params, n_ctx, n_layer, vocab_size, size, created_at, " \
    "last_used"

int registry_add(registry *r, registry_model *m, bool replace, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc;
    if (!m->name || !registry_name_ok(m->name))
        return err_set(e, ERR_ARG, "'%s' is not a name for a model: letters, digits and . _ - : / @ only",
                       m->name ? m->name : "");
    if (m->created_at == 0) m->created_at = (int64_t)time(NULL);
    rc = registry_db_prepare(r, &s,
                             replace ? "INSERT OR REPLACE INTO models (" COLUMNS
                                       ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
                                     : "INSERT INTO models (" COLUMNS ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                             e);
    if (rc < 0) return rc;
    const char *texts[] = { m->family, m->format, m->path, m->dtype, m->quant, m->sha256, m->source };
    int64_t     numbers[] = { m->params, m->n_ctx, m->n_layer, m->vocab_size, m->size, m->created_at, m->last_used };
    bind_name(s, 1, m->name);
    for (int i = 0; i < 7; i++) bind_text(s, 2 + i, texts[i]);
    for (int i = 0; i < 7; i++) sqlite3_bind_int64(s, 9 + i, numbers[i]);
    if (sqlite3_step(s) == SQLITE_DONE)
        m->id = sqlite3_last_insert_rowid(r->db);
    else if (sqlite3_extended_errcode(r->db) == SQLITE_CONSTRAINT_UNIQUE)
        rc = err_set(e, ERR_ARG, "there is a model '%s' already", m->name);
    else
        rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

static char *text_at(sqlite3_stmt *s, int column, bool *failed) {
    const unsigned char *text = sqlite3_column_text(s, column);
    if (!text) return NULL;
    char *copy = strdup((const char *)text);
    if (!copy) *failed = true;
    return copy;
}

static int read_model(sqlite3_stmt *s, registry_model *m, err *e) {
    bool     failed = false;
    char   **texts[] = { &m->name, &m->family, &m->format, &m->path, &m->dtype, &m->quant, &m->sha256, &m->source };
    int64_t *numbers[] = {
        &m->params, &m->n_ctx, &m->n_layer, &m->vocab_size, &m->size, &m->created_at, &m->last_used
    };
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 8; i++) *texts[i] = text_at(s, i, &failed);
    for (int i = 0; i < 7; i++) *numbers[i] = sqlite3_column_int64(s, 8 + i);
    m->id = sqlite3_column_int64(s, 15);
    if (!failed) return 0;
    registry_model_deinit(m);
    return err_set_nomem(e);
}

int registry_find(registry *r, const char *name, registry_model *out, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = registry_db_prepare(r, &s, "SELECT " COLUMNS ", id FROM models WHERE name = ?", e);
    memset(out, 0, sizeof *out);
    if (rc < 0) return rc;
    bind_name(s, 1, name);
    int step = sqlite3_step(s);
    if (step == SQLITE_ROW)
        rc = read_model(s, out, e);
    else
        rc = step == SQLITE_DONE ? err_set(e, ERR_NOTFOUND, "there is no model '%s'", name) : registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

int registry_list(registry *r, registry_model **out, size_t *n, err *e) {
    sqlite3_stmt   *s = NULL;
    registry_model *list = NULL;
    size_t          count = 0, room = 0;
    int             step, rc = registry_db_prepare(r, &s, "SELECT " COLUMNS ", id FROM models ORDER BY name", e);
    *out = NULL;
    *n = 0;
    if (rc < 0) return rc;
    while (rc == 0 && (step = sqlite3_step(s)) != SQLITE_DONE) {
        if (step != SQLITE_ROW) {
            rc = registry_db_fail(r, e);
            break;
        }
        if (count == room) {
            registry_model *more = realloc(list, (room = room ? 2 * room : 16) * sizeof *list);
            if (!more) {
                rc = err_set_nomem(e);
                break;
            }
            list = more;
        }
        rc = read_model(s, &list[count], e);
        if (rc == 0) count++;
    }
    sqlite3_finalize(s);
    if (rc == 0) {
        *out = list;
        *n = count;
        return 0;
    }
    for (size_t i = 0; i < count; i++) registry_model_deinit(&list[i]);
    free(list);
    return rc;
}

/* A statement about one name; it must touch a row. */
static int change(registry *r, const char *sql, const char *name, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = registry_db_prepare(r, &s, sql, e);
    if (rc < 0) return rc;
    bind_name(s, 1, name);
    if ((rc = registry_db_finish(r, s, e)) < 0) return rc;
    return sqlite3_changes(r->db) ? 0 : err_set(e, ERR_NOTFOUND, "there is no model '%s'", name);
}

int registry_remove(registry *r, const char *name, err *e) {
    return change(r, "DELETE FROM models WHERE name = ?", name, e);
}

int registry_touch(registry *r, const char *name, err *e) {
    return change(r, "UPDATE models SET last_used = unixepoch() WHERE name = ?", name, e);
}

/* Gives a model what hangs on another one. */
static int copy_rows(registry *r, int64_t from, int64_t to, err *e) {
    static const char *const copies[] = {
        "INSERT OR REPLACE INTO tags (ref_type, ref_id, key, value)"
        " SELECT ref_type, ?1, key, value FROM tags WHERE ref_type = 'model' AND ref_id = ?2",
        "INSERT INTO adapters (model_id, type, path, scale, rank, name, sha256, alpha, format, size, always, "
        "created_at)"
        " SELECT ?1, type, path, scale, rank, name, sha256, alpha, format, size, always, created_at FROM adapters"
        " WHERE model_id = ?2",
        "INSERT OR IGNORE INTO model_blobs (model_id, digest) SELECT ?1, digest FROM model_blobs WHERE model_id = ?2",
    };
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof copies / sizeof *copies; i++) {
        sqlite3_stmt *s = NULL;
        if ((rc = registry_db_prepare(r, &s, copies[i], e)) < 0) break;
        sqlite3_bind_int64(s, 1, to);
        sqlite3_bind_int64(s, 2, from);
        rc = registry_db_finish(r, s, e);
    }
    return rc;
}

int registry_copy(registry *r, const char *from, const char *to, bool replace, err *e) {
    registry_model m = { 0 };
    int            rc = registry_db_begin(r, e);
    if (rc < 0) return rc;
    rc = registry_find(r, from, &m, e);
    if (rc == 0 && strlen(m.name) == plain_length(to) && strncmp(m.name, to, plain_length(to)) == 0) {
        registry_model_deinit(&m);
        return registry_db_end(r, 0, e);
    }
    if (rc == 0) {
        int64_t id = m.id;
        free(m.name);
        m.name = strdup(to);
        m.created_at = m.last_used = 0;
        rc = m.name ? registry_add(r, &m, replace, e) : err_set_nomem(e);
        if (rc == 0) rc = copy_rows(r, id, m.id, e);
    }
    registry_model_deinit(&m);
    return registry_db_end(r, rc, e);
}

int registry_changes(registry *r, int64_t *out, err *e) {
    sqlite3_stmt *s = NULL;
    int           rc = registry_db_prepare(r, &s, "PRAGMA data_version", e);
    *out = 0;
    if (rc < 0) return rc;
    if (sqlite3_step(s) == SQLITE_ROW)
        *out = sqlite3_column_int64(s, 0);
    else
        rc = registry_db_fail(r, e);
    sqlite3_finalize(s);
    return rc;
}

/* --- tags --- */

int registry_tag(registry *r, const char *name, const char *key, const char *value, err *e) {
    sqlite3_stmt  *s = NULL;
    registry_model m;
    int            rc = registry_find(r, name, &m, e);
    if (rc < 0) return rc;
    rc = registry_db_prepare(
        r, &s,
        value ? "INSERT OR REPLACE INTO tags (ref_type, ref_id, key, value) VALUES ('model', ?, ?, ?)"
              : "DELETE FROM tags WHERE ref_type = 'model' AND ref_id = ? AND key = ?",
        e);
    if (rc == 0) {
        sqlite3_bind_int64(s, 1, m.id);
        bind_text(s, 2, key);
        if (value) bind_text(s, 3, value);
        rc = registry_db_finish(r, s, e);
    }
    registry_model_deinit(&m);
    return rc;
}

int registry_tag_get(registry *r, const char *name, const char *key, char **out, err *e) {
    sqlite3_stmt *s = NULL;
    bool          failed = false;
    int           rc = registry_db_prepare(
                  r, &s,
                  "SELECT value FROM tags JOIN models ON models.id = ref_id WHERE ref_type = 'model' AND name = ? AND "
                            "key = ?",
                  e);
    *out = NULL;
    if (rc < 0) return rc;
    bind_name(s, 1, name);
    bind_text(s, 2, key);
    int step = sqlite3_step(s);
    if (step == SQLITE_ROW)
        *out = text_at(s, 0, &failed);
    else
        rc = step == SQLITE_DONE ? err_set(e, ERR_NOTFOUND, "the model '%s' has no tag '%s'", name, key)
                                 : registry_db_fail(r, e);
    sqlite3_finalize(s);
    return failed ? err_set_nomem(e) : rc;
}
