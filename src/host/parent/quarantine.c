/* SPDX-License-Identifier: Apache-2.0 */
#include "host/parent/quarantine.h"

#include "base/file.h"
#include "base/map.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint64_t of_stat(const struct stat *s) {
    int64_t parts[] = { (int64_t)s->st_dev, (int64_t)s->st_ino, (int64_t)s->st_mtim.tv_sec, (int64_t)s->st_mtim.tv_nsec,
                        (int64_t)s->st_size };
    return hash_bytes(parts, sizeof parts, 0);
}

uint64_t quarantine_identity(const char *path) {
    struct stat s;
    if (stat(path, &s) != 0) return 0;
    uint64_t id = of_stat(&s);
    DIR     *d = S_ISDIR(s.st_mode) ? opendir(path) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        char *name = path_join(path, f->d_name);
        if (name && f->d_name[0] != '.' && stat(name, &s) == 0)
            id += of_stat(&s) ^ hash_bytes(f->d_name, strlen(f->d_name), 1); /* a sum: the order does not matter */
        free(name);
    }
    if (d) closedir(d);
    return id ? id : 1;
}

static quarantine_file *find(quarantine *q, uint64_t identity) {
    for (int i = 0; i < QUARANTINE_FILES; i++) {
        if (q->files[i].identity == identity) return &q->files[i];
    }
    return NULL;
}

bool quarantine_note(quarantine *q, uint64_t identity, int64_t now_ms) {
    const int        n = QUARANTINE_CRASHES;
    quarantine_file *f = find(q, identity);
    if (!identity) return false;
    if (!f) {
        f = &q->files[0];
        for (int i = 0; i < QUARANTINE_FILES; i++) {
            if (q->files[i].crashes[n - 1] < f->crashes[n - 1]) f = &q->files[i];
        }
        *f = (quarantine_file){ .identity = identity };
    }
    memmove(f->crashes, f->crashes + 1, sizeof f->crashes - sizeof f->crashes[0]);
    f->crashes[n - 1] = now_ms > 0 ? now_ms : 1;
    if (f->crashes[0] && now_ms - f->crashes[0] <= QUARANTINE_MS) f->shut = true;
    return f->shut;
}

static bool quarantine_is_shut(const quarantine *q, uint64_t identity) {
    for (int i = 0; identity && i < QUARANTINE_FILES; i++) {
        if (q->files[i].identity == identity) return q->files[i].shut;
    }
    return false;
}

bool quarantine_holds_path(const quarantine *q, const char *path) {
    bool any = false;
    for (int i = 0; i < QUARANTINE_FILES; i++) any |= q->files[i].shut;
    return any && quarantine_is_shut(q, quarantine_identity(path));
}

void quarantine_forgive(quarantine *q, uint64_t identity) {
    quarantine_file *f = identity ? find(q, identity) : NULL;
    if (f) *f = (quarantine_file){ 0 };
}
