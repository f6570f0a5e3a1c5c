/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/identity.h"

#include "base/str.h"

#include <string.h>
#include <sys/stat.h>

enum { SAMPLE_BYTES = 256 };

static void feed_tensors(sha256 *s, const model_file *f) {
    for (size_t i = 0; i < model_file_tensor_count(f); i++) {
        const model_tensor *t = model_file_tensor_at(f, i);
        size_t              n = t->bytes < SAMPLE_BYTES ? t->bytes : SAMPLE_BYTES;
        uint64_t            numbers[3] = { (uint64_t)t->type, (uint64_t)t->n_dims, t->bytes };
        sha256_feed(s, t->name, strlen(t->name) + 1);
        sha256_feed(s, numbers, sizeof numbers);
        sha256_feed(s, t->dims, sizeof t->dims);
        if (n == 0) continue;
        sha256_feed(s, t->data, n);
        sha256_feed(s, t->data + (t->bytes - n) / 2, n);
        sha256_feed(s, t->data + t->bytes - n, n);
    }
}

/* Values that are written with the weights; a tokenizer changes which tokens come, not what they give. */
static void feed_meta(sha256 *s, const model_file *f) {
    for (size_t i = 0; i < model_file_meta_count(f); i++) {
        const char       *key = model_file_meta_key(f, i);
        const meta_value *v = model_file_meta_at(f, i);
        double            number;
        view              text;
        if (strncmp(key, "tokenizer.", 10) == 0) continue;
        sha256_feed(s, key, strlen(key) + 1);
        if (meta_real(v, &number)) sha256_feed(s, &number, sizeof number);
        if (meta_string(v, &text)) sha256_feed(s, text.data, text.len);
        for (size_t k = 0; v->type == META_ARRAY && k < v->count; k++) {
            if (meta_at_real(v, k, &number)) sha256_feed(s, &number, sizeof number);
        }
    }
}

static void feed_stamp(sha256 *s, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return;
    int64_t file[3] = { st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
    sha256_feed(s, file, sizeof file);
}

int model_file_identify(const model_file *m, sha256 *s, err *e) {
    const file_map *map;
    str             text;
    str_init(&text);
    if (model_file_config(m)) json_write(model_file_config(m), &text);
    bool ok = str_ok(&text);
    if (ok) sha256_feed(s, str_cstr(&text), text.len);
    str_deinit(&text);
    if (!ok) return err_set_nomem(e);
    feed_meta(s, m);
    feed_tensors(s, m);
    for (int i = 0; i < model_file_mapping_count(m); i++) feed_stamp(s, model_file_mapping(m, i, &map));
    return 0;
}
