/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/partial.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "registry/db.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { NOTE_LIMIT = 4 << 20, NOTE_MEMORY = 64 << 20, MAX_PIECES = 1 << 22, RESERVE = 32 << 20 };

static int64_t piece_bytes(const partial *p, size_t i) {
    int64_t begin = (int64_t)i * p->piece;
    return p->size - begin < p->piece ? p->size - begin : p->piece;
}

static bool is_full(const partial *p, size_t i) { return p->have[i] == piece_bytes(p, i); }

static void advance(partial *p) {
    while (p->frontier < p->n_pieces && is_full(p, p->frontier)) p->frontier++;
}

int64_t partial_solid(const partial *p) {
    int64_t begin = (int64_t)p->frontier * p->piece;
    return p->frontier == p->n_pieces ? p->size : begin + p->have[p->frontier];
}

/* --- room --- */

int partial_room(const char *path, int64_t bytes, err *e) {
    struct statvfs v;
    if (statvfs(path, &v) < 0) return err_set_errno(e, "cannot look at the disk of %s", path);
    uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    /* A little is left for everyone else. */
    if (bytes >= 0 && room >= (uint64_t)bytes && room - (uint64_t)bytes >= RESERVE) return 0;
    return err_set(e, ERR_IO,
                   "the disk is too full: %lld bytes (%.1f GB) are needed in %s, %llu bytes (%.1f GB) are free",
                   (long long)bytes, (double)bytes / 1e9, path, (unsigned long long)room, (double)room / 1e9);
}

/* --- the note --- */

static int hex_digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

/* The pieces of a note; false: it makes no sense, and p is as after allocation. */
static bool read_pieces(partial *p, const json_value *v) {
    const json_value *full = json_get(v, "full"), *begun = json_get(v, "begun");
    if (!json_is(full, JSON_K_STRING) || full->u.string.len != (p->n_pieces + 7) / 8 * 2) return false;
    for (size_t i = 0; i < p->n_pieces; i++) {
        int high = hex_digit(full->u.string.data[i / 8 * 2]), low = hex_digit(full->u.string.data[i / 8 * 2 + 1]);
        if (high < 0 || low < 0) return false;
        if ((high << 4 | low) >> (i % 8) & 1) p->have[i] = piece_bytes(p, i);
    }
    for (size_t k = 0; k < json_count(begun); k++) {
        int64_t i, n;
        if (!json_int(json_at(json_at(begun, k), 0), &i) || !json_int(json_at(json_at(begun, k), 1), &n)) return false;
        if (i < 0 || (uint64_t)i >= p->n_pieces || n < 0 || n > piece_bytes(p, (size_t)i)) return false;
        p->have[i] = n;
    }
    return true;
}

static int allocate(partial *p, int64_t piece, err *e) {
    /* A power of two that keeps the number of pieces in bounds. */
    while (p->size / piece >= MAX_PIECES) piece *= 2;
    p->piece = piece;
    p->n_pieces = (size_t)((p->size + piece - 1) / piece);
    free(p->have);
    free(p->taken);
    p->have = calloc(p->n_pieces + 1, sizeof *p->have);
    p->taken = calloc(p->n_pieces + 1, sizeof *p->taken);
    return p->have && p->taken ? 0 : err_set_nomem(e);
}

/* True with everything filled in if there is a note for this digest and size. */
static bool read_note(partial *p) {
    char             *text = NULL;
    size_t            len;
    arena             a;
    const json_value *v;
    int64_t           version, size, piece;
    bool              ok = false;
    arena_init(&a, NOTE_MEMORY);
    if (file_read(&text, &len, p->note, NOTE_LIMIT, NULL) == 0 && json_parse(&v, text, len, &a, NULL) == 0) {
        const char *digest = json_cstr(json_get(v, "digest")), *etag = json_cstr(json_get(v, "etag"));
        ok = json_int(json_get(v, "version"), &version) && version == 1 && digest && strcmp(digest, p->digest) == 0 &&
             json_int(json_get(v, "size"), &size) && size == p->size && json_int(json_get(v, "piece"), &piece) &&
             piece > 0 && p->size / piece < MAX_PIECES && etag && strlen(etag) < sizeof p->etag;
        ok = ok && allocate(p, piece, NULL) == 0 && read_pieces(p, v);
        if (ok) snprintf(p->etag, sizeof p->etag, "%s", etag);
    }
    arena_deinit(&a);
    free(text);
    return ok;
}

static void write_note(const partial *p, str *s) {
    str_printf(s, "{\"version\":1,\"digest\":\"%s\",\"size\":%lld,\"piece\":%lld,\"etag\":", p->digest,
               (long long)p->size, (long long)p->piece);
    str_put_json(s, p->etag, strlen(p->etag));
    str_puts(s, ",\"full\":\"");
    for (size_t i = 0; i < p->n_pieces; i += 8) {
        unsigned bits = 0;
        for (size_t k = i; k < i + 8 && k < p->n_pieces; k++) bits |= (unsigned)is_full(p, k) << (k - i);
        str_printf(s, "%02x", bits);
    }
    str_puts(s, "\",\"begun\":[");
    const char *comma = "";
    for (size_t i = 0; i < p->n_pieces; i++) {
        if (p->have[i] == 0 || is_full(p, i)) continue;
        str_printf(s, "%s[%zu,%lld]", comma, i, (long long)p->have[i]);
        comma = ",";
    }
    str_puts(s, "]}\n");
}

/* Without fsync: the note is written every moment, and what it says is checked by the digest in the end. */
int partial_note(partial *p, err *e) {
    str   s, temp;
    int   rc = 0;
    FILE *f = NULL;
    if (p->noted_bytes == p->have_bytes) return 0;
    str_init(&s);
    str_init(&temp);
    write_note(p, &s);
    str_printf(&temp, "%s.new", p->note);
    if (!str_ok(&s) || !str_ok(&temp)) {
        rc = err_set_nomem(e);
    } else if (!(f = fopen(str_cstr(&temp), "wbe")) || fwrite(s.data, 1, s.len, f) != s.len) {
        rc = err_set_errno(e, "cannot write %s", str_cstr(&temp));
    }
    if (f && fclose(f) != 0 && rc == 0) rc = err_set_errno(e, "cannot write %s", str_cstr(&temp));
    if (rc == 0 && rename(str_cstr(&temp), p->note) < 0) rc = err_set_errno(e, "cannot write %s", p->note);
    if (rc == 0) p->noted_bytes = p->have_bytes;
    p->news = false;
    str_deinit(&s);
    str_deinit(&temp);
    return rc;
}

int64_t partial_peek(registry *r, const char *digest) {
    char             *note = NULL, *text = NULL;
    size_t            len;
    arena             a;
    const json_value *v;
    int64_t           size, have = -1;
    partial           p = { .fd = -1 };
    arena_init(&a, NOTE_MEMORY);
    if (registry_blob_path(r, digest, ".partial.json", &note, NULL) == 0 &&
        file_read(&text, &len, note, NOTE_LIMIT, NULL) == 0 && json_parse(&v, text, len, &a, NULL) == 0 &&
        json_int(json_get(v, "size"), &size) && size >= 0) {
        p.note = strdup(note);
        p.size = size;
        memcpy(p.digest, digest, sizeof p.digest);
        if (p.note && read_note(&p)) {
            have = 0;
            for (size_t i = 0; i < p.n_pieces; i++) have += p.have[i];
        }
    }
    partial_close(&p);
    arena_deinit(&a);
    free(note);
    free(text);
    return have;
}

/* --- the file --- */

int partial_restart(partial *p, err *e) {
    memset(p->have, 0, (p->n_pieces + 1) * sizeof *p->have);
    memset(p->taken, 0, (p->n_pieces + 1) * sizeof *p->taken);
    p->have_bytes = 0;
    p->noted_bytes = -1;
    p->frontier = 0;
    p->etag[0] = '\0';
    return partial_note(p, e); /* before other bytes come into the file */
}

/* How much of a file its file system has given it already. */
static int64_t allocated(const struct stat *st, int64_t size) {
    int64_t bytes = (int64_t)st->st_blocks * 512;
    return bytes < size ? bytes : size;
}

int partial_open(partial *p, registry *r, const char *digest, int64_t size, int64_t piece, err *e) {
    struct stat st;
    int         rc;
    *p = (partial){ .fd = -1, .size = size };
    if (size < 0) return err_set(e, ERR_FORMAT, "a file of %lld bytes", (long long)size);
    if ((rc = registry_blob_path(r, digest, ".partial", &p->path, e)) < 0 ||
        (rc = registry_blob_path(r, digest, ".partial.json", &p->note, e)) < 0 ||
        (rc = registry_make_folder(p->path, e)) < 0)
        goto failed;
    memcpy(p->digest, digest, sizeof p->digest);
    p->fd = open(p->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (p->fd < 0 || fstat(p->fd, &st) < 0) {
        rc = err_set_errno(e, "cannot open %s", p->path);
        goto failed;
    }
    bool kept = st.st_size == size && read_note(p);
    if (!kept) {
        unlink(p->note);
        if ((rc = allocate(p, piece, e)) < 0) goto failed;
    }
    if ((rc = partial_room(p->path, size - allocated(&st, size), e)) < 0) goto failed;
    if (!kept && (ftruncate(p->fd, 0) < 0 || ftruncate(p->fd, size) < 0)) {
        rc = err_set_errno(e, "cannot make room for %lld bytes in %s", (long long)size, p->path);
        goto failed;
    }
    /* Where the file system can, the space is ours from here on; where it cannot, the check above must do. */
    if (size > 0 && fallocate(p->fd, 0, 0, size) < 0 && errno == ENOSPC) {
        rc = err_set_errno(e, "cannot make room for %lld bytes in %s", (long long)size, p->path);
        goto failed;
    }
    for (size_t i = 0; i < p->n_pieces; i++) p->have_bytes += p->have[i];
    p->noted_bytes = -1;
    advance(p);
    return 0;
failed:
    partial_close(p);
    return rc;
}

void partial_close(partial *p) {
    if (p->fd >= 0) close(p->fd);
    free(p->path);
    free(p->note);
    free(p->have);
    free(p->taken);
    *p = (partial){ .fd = -1 };
}

void partial_discard(partial *p) {
    if (p->note) unlink(p->note);
    if (p->path) unlink(p->path);
    partial_close(p);
}

bool partial_take(partial *p, size_t max, int64_t *from, int64_t *to) {
    size_t i = p->frontier;
    while (i < p->n_pieces && (p->taken[i] || is_full(p, i))) i++;
    if (i == p->n_pieces) return false;
    size_t end = i + 1;
    while (end < p->n_pieces && end - i < max && !p->taken[end] && p->have[end] == 0) end++;
    for (size_t k = i; k < end; k++) p->taken[k] = true;
    *from = (int64_t)i * p->piece + p->have[i];
    *to = (int64_t)(end - 1) * p->piece + piece_bytes(p, end - 1);
    return true;
}

void partial_give_back(partial *p, int64_t at, int64_t to) {
    for (int64_t i = at / p->piece; i * p->piece < to; i++) p->taken[i] = false;
}

int partial_write(partial *p, int64_t at, const void *data, size_t bytes, err *e) {
    const char *from = data;
    while (bytes > 0) {
        size_t  i = (size_t)(at / p->piece);
        int64_t room = (int64_t)i * p->piece + piece_bytes(p, i) - at;
        size_t  part = (int64_t)bytes < room ? bytes : (size_t)room;
        ssize_t n = pwrite(p->fd, from, part, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == ENOSPC) return err_set(e, ERR_IO, "the disk is full: cannot write %s", p->path);
        if (n < 0) return err_set_errno(e, "cannot write %s", p->path);
        p->have[i] += n;
        p->have_bytes += n;
        if (is_full(p, i)) {
            p->taken[i] = false;
            p->news = true;
            /* Begins to write the piece to the disk now, so that the last fsync has little left to do. */
            (void)sync_file_range(p->fd, (off_t)i * p->piece, p->piece, SYNC_FILE_RANGE_WRITE);
            advance(p);
        }
        from += n;
        bytes -= (size_t)n;
        at += n;
    }
    return 0;
}
