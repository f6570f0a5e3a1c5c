/* SPDX-License-Identifier: Apache-2.0 */
/* A model as a GGUF file. Tensors that lie in the source as GGUF wants them are not copied. */
#include "convert/export.h"

#include "base/num.h"
#include "tensor/mat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int set_list(gguf_writer *w, const char *key, const nn_config_note *n, err *e) {
    size_t count = (size_t)n->n_list;
    if (n->type == 'I') {
        int32_t *v = calloc(count ? count : 1, sizeof *v);
        if (!v) return err_set_nomem(e);
        for (size_t i = 0; i < count; i++) v[i] = n->list[i];
        int rc = gguf_writer_set_array(w, key, META_I32, v, count, e);
        free(v);
        return rc;
    }
    uint8_t *v = calloc(count ? count : 1, sizeof *v);
    if (!v) return err_set_nomem(e);
    for (size_t i = 0; i < count; i++) v[i] = n->list[i] != 0;
    int rc = gguf_writer_set_array(w, key, META_BOOL, v, count, e);
    free(v);
    return rc;
}

int export_keys(gguf_writer *w, const nn_model *m, err *e) {
    const char *arch = m->arch->names[0];
    int         rc = gguf_writer_set_string(w, "general.architecture", arch, e);
    for (const nn_config_note *n = m->config.notes; n && rc == 0; n = n->next) {
        char key[256];
        snprintf(key, sizeof key, "%s.%s", arch, n->key);
        switch (n->type) {
        case 'i': rc = gguf_writer_set_int(w, key, n->value < 0 ? META_I32 : META_U32, (int64_t)n->value, e); break;
        case 'f': rc = gguf_writer_set_real(w, key, META_F32, n->value, e); break;
        case 'b': rc = gguf_writer_set_bool(w, key, n->value != 0, e); break;
        case 's': rc = gguf_writer_set_string(w, key, n->text, e); break;
        case 't': {
            int64_t dims[1] = { n->n_list };
            rc =
                n->n_list > 0 ? gguf_writer_add(w, n->key, TENSOR_F32, 1, dims, n->reals, (size_t)n->n_list * 4, e) : 0;
            break;
        }
        default: rc = set_list(w, key, n, e); break;
        }
    }
    return rc;
}

/* Everything that carries one tensor's name: the parts of a fused tensor come as several notes. */
typedef struct whole {
    const nn_wanted *parts[16];
    int              n;
} whole;

static whole collect(const nn_model *m, const nn_wanted *first) {
    whole all = { .n = 0 };
    for (const nn_wanted *w = m->wanted; w; w = w->next) {
        if (strcmp(w->name, first->name) == 0 && all.n < (int)(sizeof all.parts / sizeof *all.parts))
            all.parts[all.n++] = w;
    }
    return all;
}

/* Where GGUF keeps row r of rotated heads: (j, i) of a head goes to 2i + j. */
static int64_t permuted(const nn_model *m, const nn_wanted *w, int64_t r) {
    int64_t dim = m->dims->head_dim, half = dim / 2;
    if (!w->rotary || !m->arch->permuted_qk || nn_config_gguf(&m->config) || half < 1 || dim % 2) return r;
    int64_t h = r / dim, k = r % dim;
    return h * dim + 2 * (k % half) + k / half;
}

static int add_vec(gguf_writer *w, const nn_model *m, const whole *all, arena *mem, err *e) {
    const nn_wanted *one = all->parts[0];
    int64_t          stack = one->n_stack ? one->n_stack : 1, dims[2] = { one->total, stack };
    if (one->fold > 0 && !one->n_stack) {
        dims[0] = one->fold;
        dims[1] = one->total / one->fold;
    }
    float *data = arena_calloc(mem, (size_t)(one->total * stack), sizeof *data);
    if (!data) return err_set_nomem(e);
    for (int p = 0; p < all->n; p++) {
        const nn_wanted *x = all->parts[p];
        for (int64_t s = 0; s < stack; s++) {
            for (int64_t i = 0; i < x->cols; i++)
                data[s * x->total + x->first + permuted(m, x, i) * x->step] = x->vec->data[s * x->cols + i];
        }
    }
    return gguf_writer_add(w, one->name, TENSOR_F32, one->n_stack || one->fold ? 2 : 1, dims, data,
                           (size_t)(one->total * stack) * 4, e);
}

/* The bytes as they lie, when they lie as one block. */
static const void *as_is(const nn_model *m, const whole *all, size_t row_bytes) {
    const nn_wanted *one = all->parts[0];
    int64_t          stack = one->n_stack ? one->n_stack : 1;
    if (all->n != 1 || one->rows != one->total || (one->rotary && m->arch->permuted_qk)) return NULL;
    for (int64_t s = 0; s < stack; s++) {
        const tensor_mat *t = &one->mat->at[s];
        if (t->row_bytes != row_bytes ||
            t->data != (const uint8_t *)one->mat->at[0].data + (size_t)(s * one->rows) * row_bytes)
            return NULL;
    }
    return one->mat->at[0].data;
}

static int add_mat(gguf_writer *w, const nn_model *m, const whole *all, arena *mem, err *e) {
    const nn_wanted *one = all->parts[0];
    int64_t          stack = one->n_stack ? one->n_stack : 1, dims[3] = { one->cols, one->total, stack };
    tensor_type      type = one->mat->at[0].type;
    size_t           row_bytes, bytes;
    if (type < TENSOR_GGML_END && one->mat->at[0].scales)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: a scale beside a weight cannot be written", one->name);
    if (type >= TENSOR_GGML_END || one->mat->at[0].scales)
        return err_set(e, ERR_UNSUPPORTED, "tensor %s: GGUF has no type %s", one->name, tensor_type_name((int)type));
    if (!tensor_row_bytes((int)type, one->cols, &row_bytes) ||
        !num_mul_size(row_bytes, (size_t)(one->total * stack), &bytes))
        return err_set(e, ERR_FORMAT, "tensor %s: rows of %lld", one->name, (long long)one->cols);
    const void *data = as_is(m, all, row_bytes);
    if (!data) {
        uint8_t *copy = arena_alloc(mem, bytes);
        if (!copy) return err_set_nomem(e);
        for (int p = 0; p < all->n; p++) {
            const nn_wanted *x = all->parts[p];
            for (int64_t s = 0; s < stack; s++) {
                const tensor_mat *t = &x->mat->at[s];
                if (t->type != type) return err_set(e, ERR_UNSUPPORTED, "tensor %s: its parts differ in type", x->name);
                for (int64_t r = 0; r < x->rows; r++)
                    memcpy(copy + (size_t)(s * x->total + x->first + permuted(m, x, r) * x->step) * row_bytes,
                           (const uint8_t *)t->data + (size_t)r * t->row_bytes, row_bytes);
            }
        }
        data = copy;
    }
    return gguf_writer_add(w, one->name, type, one->n_stack ? 3 : 2, dims, data, bytes, e);
}

static bool seen_before(const nn_model *m, const nn_wanted *w) {
    for (const nn_wanted *o = m->wanted; o != w; o = o->next) {
        if (strcmp(o->name, w->name) == 0) return true;
    }
    return false;
}

int export_gguf(const nn_model *m, const char *path, err *e) {
    gguf_writer *w = NULL;
    arena        mem;
    int          rc;
    if (m->arch->reordered && !nn_config_gguf(&m->config))
        return err_set(e, ERR_UNSUPPORTED, "%s: GGUF files of this family have their rows in another order",
                       m->arch->names[0]);
    if (m->config.unsaid) return err_set(e, ERR_UNSUPPORTED, "%s: GGUF has no key for this value", m->config.unsaid);
    arena_init(&mem, 0);
    if ((rc = gguf_writer_open(&w, 0, e)) < 0) goto done;
    if ((rc = export_keys(w, m, e)) < 0) goto done;
    for (const nn_wanted *n = m->wanted; n && rc == 0; n = n->next) {
        if (seen_before(m, n) || (!n->vec && !n->mat)) continue;
        whole all = collect(m, n);
        rc = n->vec ? add_vec(w, m, &all, &mem, e) : add_mat(w, m, &all, &mem, e);
    }
    if (rc == 0) rc = gguf_writer_write(w, path, e);
done:
    gguf_writer_free(w);
    arena_deinit(&mem);
    return rc;
}
