/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/dir.h"

#include "base/file.h"
#include "base/num.h"
#include "base/sha256.h"
#include "base/xxh64.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t SHARD_BYTES = 5000000000u;

typedef struct work {
    const dir_job *j;
    char          *partial, *job;
    int            lock;
    size_t        *shard; /* of each tensor */
    size_t         n_shards;
    uint64_t       total, done; /* bytes of tensors: all of them; in files that are complete */
    uint64_t       beside;      /* of them, of those that are not weights */
    uint64_t       identity;
    str            digests;
    plan_result   *out;
} work;

static const char index_name[] = "model.safetensors.index.json";

/* --- a directory that is left -------------------------------------------------------------------------------------- */

/* Removes the plain files of a directory of ours; others were not put there by us and stay. */
static void empty(const char *dir) {
    struct dirent *d;
    DIR           *all = opendir(dir);
    while (all && (d = readdir(all))) {
        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0 || strcmp(d->d_name, ".job") == 0) continue;
        char *path = path_join(dir, d->d_name);
        if (path) unlink(path);
        free(path);
    }
    if (all) closedir(all);
}

static int open_partial(work *w, err *e) {
    char        have[32] = { 0 }, want[32];
    struct stat st;
    snprintf(want, sizeof want, "%016" PRIx64 "\n", w->identity);
    if (stat(w->j->write.path, &st) == 0 && (!S_ISDIR(st.st_mode) || rmdir(w->j->write.path) < 0))
        return err_set(e, ERR_ARG, "%s is there already, and not an empty directory", w->j->write.path);
    if (mkdir(w->partial, 0777) < 0 && errno != EEXIST) return err_set_errno(e, "cannot make %s", w->partial);
    if ((w->lock = open(w->job, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) < 0)
        return err_set_errno(e, "cannot write %s", w->job);
    if (flock(w->lock, LOCK_EX | LOCK_NB) < 0) return err_set(e, ERR_BUSY, "another process is writing %s", w->partial);
    ssize_t n = pread(w->lock, have, sizeof have - 1, 0);
    if (n > 0 && strcmp(have, want) == 0) return 0;
    empty(w->partial);
    if (ftruncate(w->lock, 0) < 0 || pwrite(w->lock, want, strlen(want), 0) < 0)
        return err_set_errno(e, "cannot write %s", w->job);
    return 0;
}

static const char *shard_name(const work *w, size_t i, char out[64]) {
    if (w->n_shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", i + 1, w->n_shards);
    return out;
}

static int check_room(const work *w, err *e) {
    uint64_t room = stream_room(w->partial), have = 0;
    char     name[64];
    for (size_t i = 0; i <= w->n_shards; i++) { /* what a job before this one has written */
        struct stat st;
        const char *file = i < w->n_shards ? shard_name(w, i, name) : w->j->n_beside ? w->j->beside_name : "";
        char       *path = *file ? path_join(w->partial, file) : NULL;
        if (path && stat(path, &st) == 0) have += (uint64_t)st.st_size;
        free(path);
    }
    uint64_t need = w->total > have ? w->total - have : 0;
    if (room == 0 || room >= need) return 0;
    return err_set(e, ERR_IO, "%s needs %" PRIu64 " bytes; %" PRIu64 " are free, %" PRIu64 " are missing",
                   w->j->write.path, need, room, need - room);
}

/* --- weight files -------------------------------------------------------------------------------------------------- */

static int cut(work *w, err *e) {
    uint64_t limit = w->j->shard_bytes ? w->j->shard_bytes : SHARD_BYTES, in_shard = 0;
    w->n_shards = 1;
    for (size_t i = 0; i < w->j->n_tensors; i++) {
        size_t row_bytes, bytes;
        if (!plan_bytes(&w->j->tensors[i], &row_bytes, &bytes))
            return err_set(e, ERR_FORMAT, "%s: its type and shape do not fit", w->j->tensors[i].name);
        if (in_shard && in_shard + bytes > limit) {
            w->n_shards++;
            in_shard = 0;
        }
        w->shard[i] = w->n_shards - 1;
        in_shard += bytes;
        w->total += bytes;
    }
    for (size_t i = 0; i < w->j->n_beside; i++) {
        size_t row_bytes, bytes;
        if (!plan_bytes(&w->j->beside[i], &row_bytes, &bytes))
            return err_set(e, ERR_FORMAT, "%s: its type and shape do not fit", w->j->beside[i].name);
        w->beside += bytes;
    }
    w->total += w->beside;
    return 0;
}

static bool advance(void *ctx, uint64_t done, uint64_t total) {
    work *w = ctx;
    (void)total;
    uint64_t at = w->done + done;
    return w->j->write.progress(w->j->write.progress_ctx, at < w->total ? at : w->total, w->total);
}

/* A file that is complete is kept: it got its name when it was. */
static int write_weights(work *w, size_t i, const char *name, const plan_tensor *first, size_t n, plan_result *r,
                         pool *p, err *e) {
    char        *path = path_join(w->partial, name);
    plan_options o = { .path = path,
                       .identity = w->identity ^ (i + 1),
                       .keep = true,
                       .dry = w->j->write.dry,
                       .from = w->j->write.from,
                       .n_from = w->j->write.n_from };
    if (!path) return err_set_nomem(e);
    bool there = !o.dry && file_exists(path);
    o.dry = o.dry || there;
    if (w->j->write.progress) {
        o.progress = advance;
        o.progress_ctx = w;
    }
    int rc = plan_write_safetensors(first, n, w->j->format, &o, p, r, e);
    if (rc == 0 && there) {
        rc = stream_sha256(path, r->sha256, e);
        r->resumed = r->bytes;
    }
    free(path);
    if (rc < 0) return rc;
    w->out->bytes += r->bytes;
    w->out->resumed += r->resumed;
    w->done += r->weight_bytes;
    return 0;
}

static int write_shard(work *w, size_t i, const plan_tensor *first, size_t n, pool *p, err *e) {
    char        name[64];
    plan_result r = { 0 };
    int         rc = write_weights(w, i, shard_name(w, i, name), first, n, &r, p, e);
    if (rc < 0) return rc;
    uint64_t pair[2] = { w->out->checksum, xxh64(r.sha256, strlen(r.sha256)) };
    w->out->checksum = xxh64(pair, sizeof pair);
    w->out->elements += r.elements;
    w->out->weight_bytes += r.weight_bytes;
    str_printf(&w->digests, "%s  %s\n", r.sha256, name);
    return 0;
}

static int write_shards(work *w, pool *p, err *e) {
    size_t      first = 0;
    plan_result r = { 0 };
    int         rc = 0;
    for (size_t i = 0; i < w->n_shards && rc == 0; i++) {
        size_t n = 0;
        while (first + n < w->j->n_tensors && w->shard[first + n] == i) n++;
        rc = write_shard(w, i, w->j->tensors + first, n, p, e);
        first += n;
    }
    if (rc == 0 && w->j->n_beside)
        rc = write_weights(w, w->n_shards, w->j->beside_name, w->j->beside, w->j->n_beside, &r, p, e);
    return rc;
}

/* --- small files --------------------------------------------------------------------------------------------------- */

static int write_small(const work *w, const char *name, const void *data, size_t bytes, err *e) {
    char        *path = path_join(w->partial, name);
    file_replace r;
    int          rc = path ? file_replace_begin(&r, path, e) : err_set_nomem(e);
    if (rc == 0 && bytes && fwrite(data, 1, bytes, r.out) != bytes) {
        rc = err_set_errno(e, "cannot write %s", path);
        file_replace_abort(&r);
    } else if (rc == 0) {
        rc = file_replace_commit(&r, e);
    }
    free(path);
    return rc;
}

static int write_index(const work *w, err *e) {
    str  s;
    char name[64];
    if (w->n_shards == 1) return 0;
    str_init(&s);
    str_printf(&s, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n  \"weight_map\": {",
               w->total - w->beside);
    for (size_t i = 0; i < w->j->n_tensors; i++) {
        str_puts(&s, i ? ",\n    " : "\n    ");
        str_put_json(&s, w->j->tensors[i].name, strlen(w->j->tensors[i].name));
        str_printf(&s, ": \"%s\"", shard_name(w, w->shard[i], name));
    }
    str_puts(&s, "\n  }\n}\n");
    int rc = str_ok(&s) ? write_small(w, index_name, s.data, s.len, e) : err_set_nomem(e);
    str_deinit(&s);
    return rc;
}

static bool is_part(const work *w, const char *name) {
    char own[64];
    if (w->n_shards > 1 && strcmp(name, index_name) == 0) return true;
    if (w->j->n_beside && strcmp(name, w->j->beside_name) == 0) return true;
    for (size_t i = 0; i < w->n_shards; i++) {
        if (strcmp(name, shard_name(w, i, own)) == 0) return true;
    }
    for (size_t i = 0; i < w->j->n_files; i++) {
        if (strcmp(name, w->j->files[i].name) == 0) return true;
    }
    return false;
}

/* A process that was killed leaves files behind that only it needed: a journal, half of a small file. */
static void sweep(const work *w) {
    struct dirent *d;
    DIR           *all = opendir(w->partial);
    while (all && (d = readdir(all))) {
        char *path = is_part(w, d->d_name) ? NULL : path_join(w->partial, d->d_name);
        if (path && strcmp(path, w->job) != 0) unlink(path); /* not of a directory */
        free(path);
    }
    if (all) closedir(all);
}

static int finish(work *w, err *e) {
    uint8_t sum[SHA256_BYTES];
    sha256  s;
    if (!str_ok(&w->digests)) return err_set_nomem(e);
    sha256_init(&s);
    sha256_feed(&s, w->digests.data, w->digests.len);
    sha256_finish(&s, sum);
    for (int i = 0; i < SHA256_BYTES; i++) snprintf(w->out->sha256 + 2 * i, 3, "%02x", sum[i]);
    sweep(w);
    unlink(w->job);
    if (rename(w->partial, w->j->write.path) < 0) return err_set_errno(e, "cannot rename %s", w->partial);
    return 0;
}

static int write_all(work *w, pool *p, err *e) {
    int rc = open_partial(w, e);
    if (rc == 0) rc = check_room(w, e);
    if (rc == 0) rc = write_shards(w, p, e);
    if (rc == 0) rc = write_index(w, e);
    for (size_t i = 0; i < w->j->n_files && rc == 0; i++)
        rc = write_small(w, w->j->files[i].name, w->j->files[i].data, w->j->files[i].bytes, e);
    if (rc == 0 && w->j->check) rc = w->j->check(w->j->check_ctx, w->partial, e);
    if (rc == 0) rc = finish(w, e);
    if (rc < 0 && rc != ERR_BUSY && !w->j->write.keep && w->lock >= 0) {
        empty(w->partial);
        unlink(w->job);
        rmdir(w->partial);
    }
    return rc;
}

/* PATH without the slashes at its end, and a suffix. */
static char *with_suffix(const char *path, const char *suffix) {
    size_t n = strlen(path);
    str    s;
    while (n > 1 && path[n - 1] == '/') n--;
    str_init(&s);
    str_append(&s, path, n);
    str_puts(&s, suffix);
    return str_take(&s);
}

static uint64_t identity_of(const dir_job *j) {
    uint64_t sum = j->write.identity ^ j->shard_bytes;
    for (size_t i = 0; i < j->n_tensors; i++) {
        const plan_tensor *t = &j->tensors[i];
        uint64_t           x[4] = { sum, xxh64(t->name, strlen(t->name)), (uint64_t)t->type, (uint64_t)t->dims[0] };
        sum = xxh64(x, sizeof x);
    }
    return sum;
}

int dir_write(const dir_job *j, pool *p, plan_result *out, err *e) {
    work w = { .j = j, .lock = -1, .out = out, .identity = identity_of(j) };
    memset(out, 0, sizeof *out);
    str_init(&w.digests);
    w.partial = with_suffix(j->write.path, ".partial");
    w.job = w.partial ? path_join(w.partial, ".job") : NULL;
    w.shard = calloc(j->n_tensors ? j->n_tensors : 1, sizeof *w.shard);
    int rc = w.partial && w.job && w.shard ? cut(&w, e) : err_set_nomem(e);
    if (rc == 0) rc = j->write.dry ? write_shards(&w, p, e) : write_all(&w, p, e);
    if (w.lock >= 0) close(w.lock);
    str_deinit(&w.digests);
    free(w.partial);
    free(w.job);
    free(w.shard);
    return rc;
}
