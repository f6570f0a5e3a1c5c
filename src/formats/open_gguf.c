/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens a GGUF model: one file, or a set of files named x-00001-of-0000N.gguf.
 *
 * Part 1 carries all metadata; every part carries split.no (from 0) and split.count, and part 1 (usually all) says in
 * split.tensors.count how many tensors the whole set has. Any part may be named; the others are looked for beside it.
 */
#include "formats/model_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int64_t split_key(const gguf *g, const char *key, int64_t dflt) {
    int64_t v = dflt;
    (void)meta_int(gguf_find(g, key), &v);
    return v;
}

static int check_part(const gguf *g, const char *path, int part, int count, err *e) {
    int64_t no = split_key(g, "split.no", -1), n = split_key(g, "split.count", -1);
    if (no == part - 1 && n == count) return 0;
    return err_set(e, ERR_FORMAT,
                   "%s: its name says part %d of %d, its split.no and split.count say part %" PRId64 " of %" PRId64,
                   path, part, count, no + 1, n);
}

/* Maps and reads one file; its tensors are appended to the model's. Part 0: a file that may be anything. */
static int read_part(model_file *m, const char *path, int part, int count, gguf *out, err *e) {
    file_map file;
    int      rc = model_map(m, path, &file, e);
    if (rc < 0) return rc;
    if (part > 0) { /* the metadata first, so that a part in the wrong place is called that, not a duplicate */
        if ((rc = gguf_read_memory(out, file.data, file.bytes, NULL, e)) < 0) return err_wrap(e, rc, "%s", path);
        rc = check_part(out, path, part, count, e);
        gguf_deinit(out);
        if (rc < 0) return rc;
    }
    rc = gguf_read_memory(out, file.data, file.bytes, &m->tensors, e);
    return rc < 0 ? err_wrap(e, rc, "%s", path) : 0;
}

static char *part_path(const char *path, size_t stem, int part, int count) {
    str s;
    str_init(&s);
    str_append(&s, path, stem);
    str_printf(&s, "-%05d-of-%05d.gguf", part, count);
    return str_take(&s);
}

static int read_set(model_file *m, const char *path, size_t stem, int first, int count, err *e) {
    int64_t expected;
    int     rc = 0;
    for (int part = first; part <= count && rc == 0; part++) {
        gguf  other;
        char *name = part_path(path, stem, part, count);
        if (!name) return err_set_nomem(e);
        if (!file_exists(name)) {
            rc = err_set(e, ERR_NOTFOUND, "%s: part %d of %d is missing: %s", path, part, count, name);
        } else if ((rc = read_part(m, name, part, count, &other, e)) == 0) {
            if (part == 1)
                m->meta = other;
            else
                gguf_deinit(&other);
        }
        free(name);
    }
    if (rc < 0) return rc;
    expected = split_key(&m->meta, "split.tensors.count", -1);
    if (expected >= 0 && (uint64_t)expected != m->tensors.count)
        return err_set(e, ERR_FORMAT, "%s: split.tensors.count is %" PRId64 ", the %d parts hold %zu tensors", path,
                       expected, count, m->tensors.count);
    return 0;
}

int model_open_gguf(model_file *m, const char *path, err *e) {
    size_t  stem;
    int     part, count, rc;
    int64_t n;
    m->format = MODEL_GGUF;
    if ((rc = read_part(m, path, 0, 0, &m->meta, e)) < 0) return rc;
    n = split_key(&m->meta, "split.count", 1);
    if (n <= 1) return 0;
    if (!model_split_name(path, ".gguf", &stem, &part, &count))
        return err_set(e, ERR_FORMAT,
                       "%s: it is one of %" PRId64
                       " parts, but it is not named x-00001-of-0000N.gguf, so the others cannot be found",
                       path, n);
    if ((rc = check_part(&m->meta, path, part, count, e)) < 0) return rc;
    if (part == 1) return read_set(m, path, stem, 2, count, e);
    /* The tensors of part 1 come first: begin again from there. */
    gguf_deinit(&m->meta);
    tensor_table_deinit(&m->tensors);
    tensor_table_init(&m->tensors);
    file_map_close(&m->maps[--m->n_maps].map);
    free(m->maps[m->n_maps].path);
    m->bytes = 0;
    return read_set(m, path, stem, 1, count, e);
}
