/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/chats.h"

#include "registry/db.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BUSY_MS = 10000, OVERHEAD = 256 }; /* bytes that a row counts for beside its texts */

struct chats {
    sqlite3        *db;
    char           *path;
    uint64_t        limit;
    pthread_mutex_t lock; /* of the file: a change counts what is there, then writes */
};

static int fail(chats *c, err *e) {
    return err_set(e, sqlite3_errcode(c->db) == SQLITE_NOMEM ? ERR_NOMEM : ERR_IO, "%s: %s", c->path,
                   sqlite3_errmsg(c->db));
}

static int prepare(chats *c, sqlite3_stmt **s, const char *sql, const char *owner, const char *id, err *e) {
    if (sqlite3_prepare_v2(c->db, sql, -1, s, NULL) != SQLITE_OK) return fail(c, e);
    sqlite3_bind_text(*s, 1, owner, -1, SQLITE_STATIC);
    if (id) sqlite3_bind_text(*s, 2, id, -1, SQLITE_STATIC);
    return 0;
}

/* Made here, so that nobody else can read it from its first byte on; SQLite gives its companions the same mode. */
static int make_file(const char *path, err *e) {
    int rc = registry_make_folder(path, e);
    if (rc < 0) return rc;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return err_set_errno(e, "cannot open %s", path);
    close(fd);
    return 0;
}

int chats_open(chats **out, const char *path, uint64_t limit_bytes, err *e) {
    static const char sql[] =
        "PRAGMA journal_mode = WAL; PRAGMA secure_delete = ON; CREATE TABLE IF NOT EXISTS chats (owner TEXT NOT NULL, "
        "id"
        " TEXT NOT NULL, version INTEGER NOT NULL, title TEXT NOT NULL, updated INTEGER NOT NULL, body BLOB NOT NULL,"
        " PRIMARY KEY (owner, id))";
    chats *c = calloc(1, sizeof *c);
    int    rc = 0;
    *out = NULL;
    if (!c || !(c->path = strdup(path))) {
        free(c);
        return err_set_nomem(e);
    }
    pthread_mutex_init(&c->lock, NULL);
    c->limit = limit_bytes;
    rc = make_file(path, e);
    if (rc == 0 && sqlite3_open_v2(path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX, NULL) != SQLITE_OK)
        rc = c->db ? fail(c, e) : err_set_nomem(e);
    if (rc == 0) {
        sqlite3_busy_timeout(c->db, BUSY_MS);
        if (sqlite3_exec(c->db, sql, NULL, NULL, NULL) != SQLITE_OK) rc = fail(c, e);
    }
    if (rc == 0)
        *out = c;
    else
        chats_close(c);
    return rc;
}

void chats_close(chats *c) {
    if (!c) return;
    sqlite3_close(c->db);
    pthread_mutex_destroy(&c->lock);
    free(c->path);
    free(c);
}

static view text_at(sqlite3_stmt *s, int column) {
    const char *p = sqlite3_column_blob(s, column);
    return (view){ p ? p : "", p ? (size_t)sqlite3_column_bytes(s, column) : 0 };
}

int chats_list(chats *c, const char *owner, str *out, err *e) {
    sqlite3_stmt *s;
    int           rc, step;
    bool          first = true;
    if ((rc = prepare(c, &s, "SELECT id, title, updated, version FROM chats WHERE owner = ?1 ORDER BY updated DESC, id",
                      owner, NULL, e)) < 0)
        return rc;
    str_push(out, '[');
    while ((step = sqlite3_step(s)) == SQLITE_ROW) {
        view id = text_at(s, 0), title = text_at(s, 1);
        str_puts(out, first ? "{\"id\":" : ",{\"id\":");
        str_put_json(out, id.data, id.len);
        str_puts(out, ",\"title\":");
        str_put_json(out, title.data, title.len);
        str_printf(out, ",\"updated\":%lld,\"etag\":\"\\\"%lld\\\"\"}", (long long)sqlite3_column_int64(s, 2),
                   (long long)sqlite3_column_int64(s, 3));
        first = false;
    }
    str_push(out, ']');
    if (step != SQLITE_DONE) rc = fail(c, e);
    sqlite3_finalize(s);
    return rc;
}

int chats_get(chats *c, const char *owner, const char *id, str *body, int64_t *version, err *e) {
    sqlite3_stmt *s;
    int           rc = prepare(c, &s, "SELECT body, version FROM chats WHERE owner = ?1 AND id = ?2", owner, id, e);
    if (rc < 0) return rc;
    int step = sqlite3_step(s);
    if (step == SQLITE_ROW) {
        view v = text_at(s, 0);
        str_append(body, v.data, v.len);
        *version = sqlite3_column_int64(s, 1);
    } else {
        rc = step == SQLITE_DONE ? err_set(e, ERR_NOTFOUND, "there is no chat of this id") : fail(c, e);
    }
    sqlite3_finalize(s);
    return rc;
}

/* What all but this chat take, and which version this one has; 0: it is not there. */
static int look(chats *c, const char *owner, const char *id, uint64_t *others, int64_t *version, err *e) {
    static const char sql[] = "SELECT coalesce(sum(length(body) + length(title) + 256) FILTER (WHERE owner <> ?1 OR id"
                              " <> ?2), 0), coalesce(max(version) FILTER (WHERE owner = ?1 AND id = ?2), 0) FROM chats";
    sqlite3_stmt     *s;
    int               rc = prepare(c, &s, sql, owner, id, e);
    if (rc < 0) return rc;
    if (sqlite3_step(s) == SQLITE_ROW) {
        *others = (uint64_t)sqlite3_column_int64(s, 0);
        *version = sqlite3_column_int64(s, 1);
    } else {
        rc = fail(c, e);
    }
    sqlite3_finalize(s);
    return rc;
}

/* Later than all that were before, also than those of a chat of this id that was removed. */
static int64_t next_version(int64_t before) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    int64_t now = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
    return now > before ? now : before + 1;
}

static int write_row(chats *c, const char *owner, const chats_entry *n, int64_t version, err *e) {
    sqlite3_stmt *s;
    int           rc = prepare(c, &s,
                               "INSERT OR REPLACE INTO chats (owner, id, version, title, updated, body) VALUES (?1, ?2, ?3,"
                                         " ?4, ?5, ?6)",
                               owner, n->id, e);
    if (rc < 0) return rc;
    sqlite3_bind_int64(s, 3, version);
    sqlite3_bind_text(s, 4, n->title, -1, SQLITE_STATIC);
    sqlite3_bind_int64(s, 5, n->updated);
    sqlite3_bind_blob64(s, 6, n->body.data, n->body.len, SQLITE_STATIC);
    if (sqlite3_step(s) != SQLITE_DONE) rc = fail(c, e);
    sqlite3_finalize(s);
    return rc;
}

int chats_put(chats *c, const char *owner, const chats_entry *entry, int64_t *version, err *e) {
    uint64_t others = 0;
    int64_t  before = 0;
    pthread_mutex_lock(&c->lock);
    int rc = look(c, owner, entry->id, &others, &before, e);
    if (rc == 0 && entry->seen != CHATS_ANY && entry->seen != before)
        rc = err_set(e, ERR_BUSY, before ? "the chat was changed by somebody else" : "the chat is not here any more");
    if (rc == 0 && others + entry->body.len + strlen(entry->title) + OVERHEAD > c->limit)
        rc = err_set(e, ERR_LIMIT, "there is no room for this chat: all may take %llu bytes (chats.bytes)",
                     (unsigned long long)c->limit);
    *version = next_version(before);
    if (rc == 0) rc = write_row(c, owner, entry, *version, e);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int chats_remove(chats *c, const char *owner, const char *id, err *e) {
    sqlite3_stmt *s;
    int           rc = prepare(c, &s, "DELETE FROM chats WHERE owner = ?1 AND id = ?2 RETURNING 1", owner, id, e);
    if (rc < 0) return rc;
    int step = sqlite3_step(s);
    if (step == SQLITE_DONE) rc = err_set(e, ERR_NOTFOUND, "there is no chat of this id");
    if (step == SQLITE_ROW && sqlite3_step(s) != SQLITE_DONE) rc = fail(c, e);
    if (step != SQLITE_ROW && step != SQLITE_DONE) rc = fail(c, e);
    sqlite3_finalize(s);
    return rc;
}
