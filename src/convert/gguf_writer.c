/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GGUF writer. Values are kept as the bytes they will be in the file; the header is therefore a concatenation, and
 * the only sizes computed are the tensors' offsets.
 */
#include "convert/gguf_writer.h"

#include "base/file.h"
#include "base/num.h"
#include "convert/stream.h"
#include "convert/writer_tensor.h"
#include "formats/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct written_key {
    const char *name;
    str         bytes; /* type and value */
} written_key;

struct gguf_writer {
    written_key *keys;
    size_t       n_keys, keys_cap;
    map          key_index;
    tensor_table tensors;
    uint32_t     alignment;
    arena        names;
};

int gguf_writer_open(gguf_writer **out, uint32_t alignment, err *e) {
    gguf_writer *w;
    int          rc = 0;
    *out = NULL;
    if (alignment != 0 && !num_is_pow2(alignment))
        return err_set(e, ERR_ARG, "alignment %u is not a power of two", alignment);
    w = calloc(1, sizeof *w);
    if (!w) return err_set_nomem(e);
    map_init(&w->key_index);
    tensor_table_init(&w->tensors);
    arena_init(&w->names, 0);
    w->alignment = alignment ? alignment : GGUF_DEFAULT_ALIGNMENT;
    if (alignment && alignment != GGUF_DEFAULT_ALIGNMENT)
        rc = gguf_writer_set_int(w, "general.alignment", META_U32, alignment, e);
    if (rc < 0) {
        gguf_writer_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void gguf_writer_free(gguf_writer *w) {
    if (!w) return;
    for (size_t i = 0; i < w->n_keys; i++) str_deinit(&w->keys[i].bytes);
    free(w->keys);
    map_deinit(&w->key_index);
    tensor_table_deinit(&w->tensors);
    arena_deinit(&w->names);
    free(w);
}

static void put(str *s, uint64_t value, size_t bytes) { str_append(s, &value, bytes); }

static void put_text(str *s, view text) {
    put(s, text.len, 8);
    str_append(s, text.data, text.len);
}

/* The empty buffer of a key, new or emptied. */
static int key_buffer(gguf_writer *w, const char *key, str **out, err *e) {
    uint64_t at;
    int      rc;
    char    *name;
    if (map_get_c(&w->key_index, key, &at)) {
        *out = &w->keys[at].bytes;
        str_clear(*out);
        return 0;
    }
    if ((rc = text_name_check(view_of(key), GGUF_MAX_KEY_BYTES, e)) < 0) return err_wrap(e, rc, "metadata key");
    if (w->n_keys == w->keys_cap) {
        size_t       cap = w->keys_cap ? w->keys_cap * 2 : 32;
        written_key *keys = realloc(w->keys, cap * sizeof *keys);
        if (!keys) return err_set_nomem(e);
        w->keys = keys;
        w->keys_cap = cap;
    }
    name = arena_strdup(&w->names, key);
    if (!name || !map_put(&w->key_index, name, strlen(name), w->n_keys)) return err_set_nomem(e);
    w->keys[w->n_keys].name = name;
    *out = &w->keys[w->n_keys++].bytes;
    str_init(*out);
    return 0;
}

static int finish(const str *s, err *e) { return str_ok(s) ? 0 : err_set_nomem(e); }

int gguf_writer_set_array(gguf_writer *w, const char *key, meta_type elem, const void *values, size_t count, err *e) {
    size_t width = meta_type_bytes((int)elem);
    str   *s = NULL;
    int    rc;
    if (width == 0 || count > SIZE_MAX / width)
        return err_set(e, ERR_ARG, "metadata key %s: no array of %s", key, meta_type_name((int)elem));
    if ((rc = key_buffer(w, key, &s, e)) < 0) return rc;
    put(s, META_ARRAY, 4);
    put(s, elem, 4);
    put(s, count, 8);
    if (count) str_append(s, values, count * width);
    return finish(s, e);
}

int gguf_writer_set_strings(gguf_writer *w, const char *key, const view *values, size_t count, err *e) {
    str *s = NULL;
    int  rc = key_buffer(w, key, &s, e);
    if (rc < 0) return rc;
    put(s, META_ARRAY, 4);
    put(s, META_STRING, 4);
    put(s, count, 8);
    for (size_t i = 0; i < count; i++) put_text(s, values[i]);
    return finish(s, e);
}

int gguf_writer_set(gguf_writer *w, const char *key, const meta_value *v, err *e) {
    str    *s = NULL;
    float   f;
    int64_t align;
    int     rc;
    if (v->type == META_ARRAY)
        return v->elem_type == META_STRING ? gguf_writer_set_strings(w, key, v->strings, v->count, e)
                                           : gguf_writer_set_array(w, key, v->elem_type, v->data, v->count, e);
    if ((int)v->type < 0 || v->type > META_F64)
        return err_set(e, ERR_ARG, "metadata key %s: value type %d is unknown", key, (int)v->type);
    if (strcmp(key, "general.alignment") == 0) { /* copied from another file: what it says must be what is done */
        if (!meta_int(v, &align) || align <= 0 || align > UINT32_MAX || !num_is_pow2((uint64_t)align))
            return err_set(e, ERR_ARG, "general.alignment is not a power of two");
        w->alignment = (uint32_t)align;
    }
    if ((rc = key_buffer(w, key, &s, e)) < 0) return rc;
    put(s, v->type, 4);
    if (v->type == META_STRING) {
        put_text(s, v->u.s);
    } else if (v->type == META_F32) {
        f = (float)v->u.f;
        str_append(s, &f, 4);
    } else {
        put(s, v->u.u, meta_type_bytes((int)v->type)); /* two's complement: the low bytes of i are those of u */
    }
    return finish(s, e);
}

int gguf_writer_set_int(gguf_writer *w, const char *key, meta_type type, int64_t value, err *e) {
    size_t     bytes = meta_type_bytes((int)type);
    meta_value v = { .type = type }, back;
    int64_t    i;
    uint8_t    raw[8];
    v.u.i = value;
    memcpy(raw, &value, 8);
    if (bytes == 0 || type == META_F32 || type == META_F64 || type == META_BOOL)
        return err_set(e, ERR_ARG, "metadata key %s: %s is not an integer type", key, meta_type_name((int)type));
    meta_decode(&back, type, raw);
    if (!meta_int(&back, &i) || i != value)
        return err_set(e, ERR_ARG, "metadata key %s: %" PRId64 " does not fit into %s", key, value,
                       meta_type_name((int)type));
    return gguf_writer_set(w, key, &v, e);
}

int gguf_writer_set_real(gguf_writer *w, const char *key, meta_type type, double value, err *e) {
    meta_value v = { .type = type };
    v.u.f = value;
    if (type != META_F32 && type != META_F64)
        return err_set(e, ERR_ARG, "metadata key %s: %s is not a float type", key, meta_type_name((int)type));
    return gguf_writer_set(w, key, &v, e);
}

int gguf_writer_set_bool(gguf_writer *w, const char *key, bool value, err *e) {
    meta_value v = { .type = META_BOOL };
    v.u.u = value;
    return gguf_writer_set(w, key, &v, e);
}

int gguf_writer_set_string(gguf_writer *w, const char *key, const char *value, err *e) {
    meta_value v = { .type = META_STRING };
    v.u.s = view_of(value);
    return gguf_writer_set(w, key, &v, e);
}

static bool has_type(tensor_type type) { return type < TENSOR_GGML_END && tensor_type_get((int)type); }

int gguf_writer_add(gguf_writer *w, const char *name, tensor_type type, int n_dims, const int64_t *dims,
                    const void *data, size_t bytes, err *e) {
    static const writer_limits limits = { "GGUF", GGUF_MAX_DIMS, 1, has_type };
    return writer_tensor_add(&w->tensors, &(writer_tensor){ name, type, n_dims, dims, data, bytes }, &limits, e);
}

static int put_header(const gguf_writer *w, str *s, err *e) {
    uint64_t offset = 0;
    str_puts(s, "GGUF");
    put(s, 3, 4);
    put(s, w->tensors.count, 8);
    put(s, w->n_keys, 8);
    for (size_t i = 0; i < w->n_keys; i++) {
        put_text(s, view_of(w->keys[i].name));
        str_append(s, w->keys[i].bytes.data, w->keys[i].bytes.len);
    }
    for (size_t i = 0; i < w->tensors.count; i++) {
        const model_tensor *t = &w->tensors.items[i];
        put_text(s, view_of(t->name));
        put(s, (uint64_t)t->n_dims, 4);
        for (int d = 0; d < t->n_dims; d++) put(s, (uint64_t)t->dims[d], 8);
        put(s, t->type, 4);
        put(s, offset, 8);
        if (!num_add_u64(offset, t->bytes, &offset) || !num_align_up(offset, w->alignment, &offset))
            return err_set(e, ERR_LIMIT, "the tensors' size overflows");
    }
    return finish(s, e);
}

/* True when count bytes of nothing, up to the next multiple of the alignment, were written. */
static bool write_padding(FILE *out, uint64_t size, uint32_t alignment) {
    static const char zeros[64] = { 0 };
    uint64_t          left = -size & (alignment - 1);
    while (left > 0) {
        size_t n = left < sizeof zeros ? (size_t)left : sizeof zeros;
        if (fwrite(zeros, 1, n, out) != n) return false;
        left -= n;
    }
    return true;
}

int gguf_writer_write(gguf_writer *w, const char *path, err *e) {
    file_replace r;
    str          head;
    uint64_t     bytes;
    int          rc;
    bool         ok;
    str_init(&head);
    rc = put_header(w, &head, e);
    bytes = head.len;
    for (size_t i = 0; i < w->tensors.count; i++) bytes += w->tensors.items[i].bytes;
    if (rc < 0 || (rc = stream_check_room(path, bytes, e)) < 0 || (rc = file_replace_begin(&r, path, e)) < 0) {
        str_deinit(&head);
        return rc;
    }
    ok = fwrite(head.data, 1, head.len, r.out) == head.len && write_padding(r.out, head.len, w->alignment);
    for (size_t i = 0; i < w->tensors.count && ok; i++) {
        const model_tensor *t = &w->tensors.items[i];
        ok = fwrite(t->data, 1, t->bytes, r.out) == t->bytes && write_padding(r.out, t->bytes, w->alignment);
    }
    str_deinit(&head);
    if (ok) return file_replace_commit(&r, e);
    rc = err_set_errno(e, "cannot write %s", path);
    file_replace_abort(&r);
    return rc;
}

int gguf_writer_head(gguf_writer *w, str *head, uint64_t *offsets, uint64_t *bytes, err *e) {
    int      rc = put_header(w, head, e);
    uint64_t at;
    if (rc < 0) return rc;
    while (head->len % w->alignment && str_ok(head)) str_push(head, '\0');
    if (!str_ok(head)) return err_set_nomem(e);
    at = head->len;
    for (size_t i = 0; i < w->tensors.count; i++) {
        offsets[i] = at;
        if (!num_add_u64(at, w->tensors.items[i].bytes, &at) || !num_align_up(at, w->alignment, &at))
            return err_set(e, ERR_LIMIT, "the tensors' size overflows");
    }
    *bytes = at;
    return 0;
}
