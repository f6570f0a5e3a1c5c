/* SPDX-License-Identifier: Apache-2.0 */
/* The reader. The byte layout is at the head of gguf.h. */
#include "formats/gguf.h"

#include "base/num.h"
#include "formats/text.h"

#include <inttypes.h>
#include <string.h>

enum {
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,        /* length, one byte of name, type, the smallest value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8, /* length, one byte of name, n_dims 0, type, offset */
    MEMORY_LIMIT = 1 << 30,               /* for keys and string indexes; a 1M-token vocabulary needs about 60 MB */
};

typedef struct cursor {
    const uint8_t *data;
    size_t         bytes, pos;
} cursor;

static int cut_off(const cursor *c, const char *field, err *e) {
    return err_set(e, ERR_FORMAT, "the file ends inside %s (at byte %zu; it has %zu)", field, c->pos, c->bytes);
}

static bool take(cursor *c, void *out, size_t n) {
    if (c->bytes - c->pos < n) return false;
    memcpy(out, c->data + c->pos, n);
    c->pos += n;
    return true;
}

static bool take_view(cursor *c, view *out) {
    uint64_t len;
    if (!take(c, &len, 8)) return false;
    if (len > c->bytes - c->pos) {
        c->pos -= 8;
        return false;
    }
    *out = (view){ (const char *)c->data + c->pos, (size_t)len };
    c->pos += (size_t)len;
    return true;
}

static int read_strings(gguf *g, cursor *c, meta_value *v, err *e) {
    view *strings;
    if (v->count > (c->bytes - c->pos) / 8)
        return err_set(e, ERR_FORMAT, "an array of %zu strings does not fit into the file", v->count);
    if (v->count > GGUF_MAX_STRINGS)
        return err_set(e, ERR_LIMIT, "an array of %zu strings; the limit is %u", v->count, GGUF_MAX_STRINGS);
    strings = arena_alloc(&g->mem, v->count * sizeof *strings);
    if (!strings) return err_set_nomem(e);
    for (size_t i = 0; i < v->count; i++) {
        if (!take_view(c, &strings[i])) {
            int rc = cut_off(c, "a string", e);
            return err_wrap(e, rc, "element %zu of %zu", i, v->count);
        }
    }
    v->strings = strings;
    return 0;
}

static int read_array(gguf *g, cursor *c, meta_value *v, err *e) {
    uint32_t type;
    uint64_t count;
    size_t   bytes;
    if (!take(c, &type, 4) || !take(c, &count, 8)) return cut_off(c, "an array's header", e);
    if (type == META_ARRAY) return err_set(e, ERR_UNSUPPORTED, "arrays of arrays are not supported");
    if (type > META_F64) return err_set(e, ERR_FORMAT, "the array's element type %u is unknown", type);
    if (count > SIZE_MAX) return err_set(e, ERR_FORMAT, "an array of %" PRIu64 " elements", count);
    v->elem_type = (meta_type)type;
    v->count = (size_t)count;
    if (type == META_STRING) return read_strings(g, c, v, e);
    if (!num_mul_size(v->count, meta_type_bytes((int)type), &bytes) || bytes > c->bytes - c->pos)
        return err_set(e, ERR_FORMAT, "an array of %zu %s values does not fit into the file", v->count,
                       meta_type_name((int)type));
    v->data = c->data + c->pos;
    c->pos += bytes;
    return 0;
}

static int read_value(gguf *g, cursor *c, meta_value *v, err *e) {
    uint32_t type;
    uint8_t  raw[8];
    if (!take(c, &type, 4)) return cut_off(c, "a value's type", e);
    if (type > META_F64) return err_set(e, ERR_FORMAT, "value type %u is unknown", type);
    *v = (meta_value){ .type = (meta_type)type };
    if (type == META_ARRAY) return read_array(g, c, v, e);
    if (type == META_STRING) return take_view(c, &v->u.s) ? 0 : cut_off(c, "a string", e);
    if (!take(c, raw, meta_type_bytes((int)type))) return cut_off(c, "a value", e);
    meta_decode(v, (meta_type)type, raw);
    return 0;
}

static int read_keys(gguf *g, cursor *c, uint64_t count, err *e) {
    int rc;
    if (count > (c->bytes - c->pos) / MIN_KEY_BYTES)
        return err_set(e, ERR_FORMAT, "the header counts %" PRIu64 " metadata keys, more than the file can hold",
                       count);
    if (count > GGUF_MAX_KEYS)
        return err_set(e, ERR_LIMIT, "the header counts %" PRIu64 " metadata keys; the limit is %u", count,
                       GGUF_MAX_KEYS);
    g->keys = arena_alloc(&g->mem, (size_t)count * sizeof *g->keys);
    if (!g->keys || !map_reserve(&g->index, (size_t)count)) return err_set_nomem(e);
    for (size_t i = 0; i < count; i++) {
        gguf_key *k = &g->keys[i];
        view      name;
        if (!take_view(c, &name)) {
            rc = cut_off(c, "its name", e);
            return err_wrap(e, rc, "metadata key %zu", i);
        }
        if ((rc = text_name_check(name, GGUF_MAX_KEY_BYTES, e)) < 0) return err_wrap(e, rc, "metadata key %zu", i);
        if (map_get(&g->index, name.data, name.len, NULL)) {
            char text[120];
            return err_set(e, ERR_FORMAT, "metadata key %s appears twice", text_safe(text, sizeof text, name));
        }
        k->name = arena_strndup(&g->mem, name.data, name.len);
        if (!k->name || !map_put(&g->index, k->name, name.len, i)) return err_set_nomem(e);
        if ((rc = read_value(g, c, &k->value, e)) < 0) return err_wrap(e, rc, "metadata key %.120s", k->name);
        g->n_keys++;
    }
    return 0;
}

static int read_alignment(gguf *g, err *e) {
    const meta_value *v = gguf_find(g, "general.alignment");
    int64_t           align = GGUF_DEFAULT_ALIGNMENT;
    if (v && !meta_int(v, &align)) return err_set(e, ERR_FORMAT, "general.alignment is not an integer");
    if (align <= 0 || align > UINT32_MAX || !num_is_pow2((uint64_t)align))
        return err_set(e, ERR_FORMAT, "general.alignment is %" PRId64 ", not a power of two", align);
    g->alignment = (uint32_t)align;
    return 0;
}

/* Everything of a tensor info behind its name; *offset is relative to the data, which begins at a place not known yet.
 */
static int read_shape(cursor *c, model_tensor *t, uint64_t *offset, err *e) {
    uint32_t n_dims, type;
    if (!take(c, &n_dims, 4)) return cut_off(c, "its dimensions", e);
    if (n_dims > GGUF_MAX_DIMS)
        return err_set(e, ERR_FORMAT, "it has %u dimensions; the format allows %d", n_dims, GGUF_MAX_DIMS);
    *t = (model_tensor){ .n_dims = (int)n_dims };
    for (int d = 0; d < MODEL_MAX_DIMS; d++) t->dims[d] = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        if (!take(c, &t->dims[d], 8)) return cut_off(c, "its dimensions", e);
        if (t->dims[d] <= 0) return err_set(e, ERR_FORMAT, "dimension %u is %" PRId64, d, t->dims[d]);
    }
    if (!take(c, &type, 4)) return cut_off(c, "its type", e);
    if (!take(c, offset, 8)) return cut_off(c, "its offset", e);
    if (type >= TENSOR_GGML_END || !tensor_type_get((int)type))
        return err_set(e, ERR_UNSUPPORTED, "tensor type %u is unknown", type);
    t->type = (tensor_type)type;
    return tensor_table_bytes(t, &t->bytes, e);
}

/* t->data holds the relative offset until place_tensors knows where the data begins. */
static int read_tensors(cursor *c, uint64_t count, tensor_table *tensors, err *e) {
    if (count > (c->bytes - c->pos) / MIN_TENSOR_BYTES)
        return err_set(e, ERR_FORMAT, "the header counts %" PRIu64 " tensors, more than the file can hold", count);
    for (uint64_t i = 0; i < count; i++) {
        model_tensor t;
        view         name;
        uint64_t     offset = 0;
        char         text[120];
        int          rc;
        if (!take_view(c, &name)) {
            rc = cut_off(c, "its name", e);
            return err_wrap(e, rc, "tensor %" PRIu64, i);
        }
        rc = read_shape(c, &t, &offset, e);
        t.data = (const uint8_t *)(uintptr_t)offset;
        if (rc == 0) rc = tensor_table_add(tensors, &t, name, e);
        if (rc < 0) return err_wrap(e, rc, "tensor %" PRIu64 " (%s)", i, text_safe(text, sizeof text, name));
    }
    return 0;
}

static int place_tensors(gguf *g, const cursor *c, tensor_table *tensors, size_t from, err *e) {
    uint64_t start;
    if (!num_align_up(c->pos, g->alignment, &start)) return err_set(e, ERR_FORMAT, "the data's position overflows");
    g->data_offset = (size_t)start;
    for (size_t i = from; i < tensors->count; i++) {
        model_tensor *t = &tensors->items[i];
        uint64_t      offset = (uint64_t)(uintptr_t)t->data, begin, end;
        if (offset % g->alignment != 0)
            return err_set(e, ERR_FORMAT, "tensor %s: offset %" PRIu64 " is not a multiple of the alignment %u",
                           t->name, offset, g->alignment);
        if (!num_add_u64(start, offset, &begin) || !num_add_u64(begin, t->bytes, &end) || end > c->bytes)
            return err_set(e, ERR_FORMAT,
                           "tensor %s: offset %" PRIu64 " with %zu bytes lies beyond the end of the file (%zu bytes)",
                           t->name, offset, t->bytes, c->bytes);
        t->data = c->data + begin;
    }
    return tensor_table_check_overlap(tensors, from, e);
}

static int read_header(gguf *g, cursor *c, uint64_t *n_tensors, uint64_t *n_keys, err *e) {
    char magic[4];
    if (!take(c, magic, 4) || memcmp(magic, "GGUF", 4) != 0)
        return err_set(e, ERR_FORMAT, "not a GGUF file: it does not begin with the letters GGUF");
    if (!take(c, &g->version, 4)) return cut_off(c, "the version", e);
    if (g->version == 1)
        return err_set(e, ERR_UNSUPPORTED, "GGUF version 1 is not supported; convert the model again (2 and 3 are)");
    if (g->version != 0 && (g->version & 0xFFFF) == 0)
        return err_set(e, ERR_UNSUPPORTED, "big-endian GGUF files are not supported");
    if (g->version != 2 && g->version != 3)
        return err_set(e, ERR_UNSUPPORTED, "GGUF version %u is unknown; 2 and 3 are supported", g->version);
    if (!take(c, n_tensors, 8) || !take(c, n_keys, 8)) return cut_off(c, "the header", e);
    return 0;
}

int gguf_read_memory(gguf *out, const uint8_t *data, size_t bytes, tensor_table *tensors, err *e) {
    cursor   c = { data, bytes, 0 };
    uint64_t n_tensors = 0, n_keys = 0;
    size_t   from = tensors ? tensors->count : 0;
    int      rc;
    *out = (gguf){ 0 };
    map_init(&out->index);
    arena_init(&out->mem, MEMORY_LIMIT);
    if ((rc = read_header(out, &c, &n_tensors, &n_keys, e)) < 0 || (rc = read_keys(out, &c, n_keys, e)) < 0 ||
        (rc = read_alignment(out, e)) < 0)
        goto done;
    if (!tensors) return 0;
    if ((rc = read_tensors(&c, n_tensors, tensors, e)) < 0) goto done;
    rc = place_tensors(out, &c, tensors, from, e);
done:
    if (rc < 0) gguf_deinit(out);
    return rc;
}

void gguf_deinit(gguf *g) {
    map_deinit(&g->index);
    arena_deinit(&g->mem);
    *g = (gguf){ 0 };
}

const meta_value *gguf_find(const gguf *g, const char *key) {
    uint64_t at;
    return map_get_c(&g->index, key, &at) ? &g->keys[at].value : NULL;
}

bool gguf_is(const uint8_t *data, size_t bytes) { return bytes >= 4 && memcmp(data, "GGUF", 4) == 0; }
