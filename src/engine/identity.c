/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/identity.h"

#include "base/sha256.h"
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

int identity_of(const nn_exec *x, kv_key *out, err *e) {
    const nn_tape    *tape = x->model->tape;
    const model_file *f = x->model->file;
    uint8_t           digest[SHA256_BYTES];
    sha256            s;
    str               text;
    struct stat       st;
    str_init(&text);
    nn_tape_print(tape, &text);
    if (model_file_config(f)) json_write(model_file_config(f), &text);
    if (!str_ok(&text)) {
        str_deinit(&text);
        return err_set_nomem(e);
    }
    sha256_init(&s);
    sha256_feed(&s, &x->arithmetic, sizeof x->arithmetic);
    sha256_feed(&s, x->backend->name, strlen(x->backend->name) + 1);
    sha256_feed(&s, str_cstr(&text), text.len);
    str_deinit(&text);
    for (int i = 0; i < tape->n_ops; i++) {
        const nn_rope *r = &tape->ops[i].u.rope.rope;
        if (tape->ops[i].kind == NN_OP_ROPE && r->n_rot > 0)
            sha256_feed(&s, r->inv_freq, (size_t)(r->n_rot / 2) * sizeof *r->inv_freq);
    }
    for (int i = 0; i < x->model->dims->n_layer; i++) {
        nn_kv_type types[2];
        nn_exec_kv_types(&x->options, x->model, i, &types[0], &types[1]);
        uint32_t numbers[2] = { (uint32_t)types[0], (uint32_t)types[1] };
        sha256_feed(&s, numbers, sizeof numbers);
    }
    feed_meta(&s, f);
    feed_tensors(&s, f);
    if (stat(model_file_path(f), &st) == 0 && S_ISREG(st.st_mode)) {
        int64_t file[3] = { st.st_size, st.st_mtim.tv_sec, st.st_mtim.tv_nsec };
        sha256_feed(&s, file, sizeof file);
    }
    sha256_finish(&s, digest);
    memcpy(out->b, digest, sizeof out->b);
    return 0;
}
