/* SPDX-License-Identifier: Apache-2.0 */
/* The reader. The byte layout is at the head of safetensors.h. */
#include "formats/safetensors.h"

#include "base/num.h"
#include "formats/text.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_METADATA = 65536 };

typedef struct header_reader {
    safetensors     *file;
    const uint8_t   *data; /* where offsets count from */
    size_t           bytes;
    tensor_table    *tensors;
    safetensors_skip skip;
    void            *ctx;
    json_reader      json;
    size_t           metadata_cap;
} header_reader;

/* The dtype names of the format; each is also the name of our type. */
static const struct {
    const char *name;
    tensor_type type;
} dtypes[] = {
    { "F32", TENSOR_F32 },         { "F16", TENSOR_F16 },         { "BF16", TENSOR_BF16 },
    { "F64", TENSOR_F64 },         { "I64", TENSOR_I64 },         { "I32", TENSOR_I32 },
    { "I16", TENSOR_I16 },         { "I8", TENSOR_I8 },           { "U8", TENSOR_U8 },
    { "U16", TENSOR_U16 },         { "U32", TENSOR_U32 },         { "U64", TENSOR_U64 },
    { "BOOL", TENSOR_BOOL },       { "F8_E4M3", TENSOR_F8_E4M3 }, { "F8_E5M2", TENSOR_F8_E5M2 },
    { "F8_E8M0", TENSOR_F8_E8M0 },
};

const char *safetensors_dtype_name(tensor_type type) {
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (dtypes[i].type == type) return dtypes[i].name;
    }
    return NULL;
}

static int json_fail(header_reader *h, err *e) {
    if (e) *e = h->json.error;
    return err_wrap(e, h->json.error.code, "header");
}

static int read_dtype(header_reader *h, tensor_type *out, err *e) {
    char       text[64];
    json_event ev = json_next(&h->json);
    if (ev == JSON_ERROR) return json_fail(h, e);
    if (ev != JSON_STRING) return err_set(e, ERR_FORMAT, "dtype is not a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (view_eq_c(h->json.text, dtypes[i].name)) {
            *out = dtypes[i].type;
            return 0;
        }
    }
    return err_set(e, ERR_UNSUPPORTED, "dtype %s is not supported", text_safe(text, sizeof text, h->json.text));
}

/* Reads [n, n, ...] of non-negative integers; more than max is an error. */
static int read_integers(header_reader *h, const char *field, int64_t *out, int max, int *count, err *e) {
    json_event ev = json_next(&h->json);
    if (ev == JSON_ERROR) return json_fail(h, e);
    if (ev != JSON_ARRAY_BEGIN) return err_set(e, ERR_FORMAT, "%s is not an array", field);
    for (*count = 0;; ++*count) {
        ev = json_next(&h->json);
        if (ev == JSON_ERROR) return json_fail(h, e);
        if (ev == JSON_ARRAY_END) return 0;
        if (ev != JSON_INT || h->json.integer < 0)
            return err_set(e, ERR_FORMAT, "%s holds something other than a non-negative integer", field);
        if (*count == max) return err_set(e, ERR_LIMIT, "%s has more than %d entries", field, max);
        out[*count] = h->json.integer;
    }
}

/* The object of one tensor, whose opening brace was read. */
static int read_tensor(header_reader *h, view name, err *e) {
    model_tensor t = { 0 };
    int64_t      shape[MODEL_MAX_DIMS], offsets[2] = { 0, 0 };
    int          n_shape = -1, n_offsets = -1, rc = 0;
    bool         has_type = false;
    for (;;) {
        json_event ev = json_next(&h->json);
        if (ev == JSON_ERROR) return json_fail(h, e);
        if (ev == JSON_OBJECT_END) break;
        if (view_eq_c(h->json.text, "dtype")) {
            rc = read_dtype(h, &t.type, e);
            has_type = true;
        } else if (view_eq_c(h->json.text, "shape")) {
            rc = read_integers(h, "shape", shape, MODEL_MAX_DIMS, &n_shape, e);
        } else if (view_eq_c(h->json.text, "data_offsets")) {
            rc = read_integers(h, "data_offsets", offsets, 2, &n_offsets, e);
        } else if (!json_skip(&h->json, json_next(&h->json))) {
            return json_fail(h, e);
        }
        if (rc < 0) return rc;
    }
    if (!has_type) return err_set(e, ERR_FORMAT, "dtype is missing");
    if (n_shape < 0) return err_set(e, ERR_FORMAT, "shape is missing");
    if (n_offsets != 2) return err_set(e, ERR_FORMAT, "data_offsets is missing or not a pair");
    t.n_dims = n_shape;
    for (int d = 0; d < MODEL_MAX_DIMS; d++) t.dims[d] = d < n_shape ? shape[n_shape - 1 - d] : 1;
    if ((rc = tensor_table_bytes(&t, &t.bytes, e)) < 0) return rc;
    if (offsets[0] > offsets[1] || (uint64_t)offsets[1] > h->bytes)
        return err_set(e, ERR_FORMAT, "data_offsets [%" PRId64 ", %" PRId64 "] lie outside the data (%zu bytes)",
                       offsets[0], offsets[1], h->bytes);
    if ((uint64_t)(offsets[1] - offsets[0]) != t.bytes)
        return err_set(e, ERR_FORMAT, "data_offsets span %" PRId64 " bytes; dtype and shape need %zu",
                       offsets[1] - offsets[0], t.bytes);
    t.data = h->data + offsets[0];
    return h->skip && h->skip(h->ctx, name) ? 0 : tensor_table_add(h->tensors, &t, name, e);
}

static int add_metadata(header_reader *h, const char *key, view value, err *e) {
    safetensors *s = h->file;
    if (s->n_metadata == MAX_METADATA)
        return err_set(e, ERR_LIMIT, "__metadata__ has more than %d entries", MAX_METADATA);
    if (s->n_metadata == h->metadata_cap) {
        size_t             cap = h->metadata_cap ? h->metadata_cap * 2 : 8;
        safetensors_entry *bigger = arena_alloc(&s->mem, cap * sizeof *bigger);
        if (!bigger) return err_set_nomem(e);
        if (s->n_metadata) memcpy(bigger, s->metadata, s->n_metadata * sizeof *bigger);
        s->metadata = bigger;
        h->metadata_cap = cap;
    }
    char *copy = arena_strndup(&s->mem, value.data, value.len);
    if (!copy) return err_set_nomem(e);
    s->metadata[s->n_metadata++] = (safetensors_entry){ key, copy };
    return 0;
}

static int read_metadata(header_reader *h, err *e) {
    json_event ev = json_next(&h->json);
    if (ev == JSON_ERROR) return json_fail(h, e);
    if (ev != JSON_OBJECT_BEGIN) return err_set(e, ERR_FORMAT, "__metadata__ is not an object");
    for (;;) {
        char  text[120];
        char *key;
        int   rc;
        ev = json_next(&h->json);
        if (ev == JSON_ERROR) return json_fail(h, e);
        if (ev == JSON_OBJECT_END) return 0;
        key = arena_strndup(&h->file->mem, h->json.text.data, h->json.text.len);
        if (!key) return err_set_nomem(e);
        ev = json_next(&h->json);
        if (ev == JSON_ERROR) return json_fail(h, e);
        if (ev != JSON_STRING)
            return err_set(e, ERR_FORMAT, "__metadata__: %s is not a string",
                           text_safe(text, sizeof text, view_of(key)));
        if ((rc = add_metadata(h, key, h->json.text, e)) < 0) return rc;
    }
}

static int read_header(header_reader *h, err *e) {
    str  name; /* the reader's text is valid only until its next call */
    int  rc = 0;
    bool seen_metadata = false;
    if (json_next(&h->json) != JSON_OBJECT_BEGIN)
        return h->json.failed ? json_fail(h, e) : err_set(e, ERR_FORMAT, "the header is not a JSON object");
    str_init(&name);
    while (rc == 0) {
        char       text[120];
        json_event ev = json_next(&h->json);
        if (ev == JSON_ERROR) {
            rc = json_fail(h, e);
        } else if (ev == JSON_OBJECT_END) {
            break;
        } else if (view_eq_c(h->json.text, "__metadata__")) {
            rc = seen_metadata ? err_set(e, ERR_FORMAT, "__metadata__ appears twice") : read_metadata(h, e);
            seen_metadata = true;
        } else {
            str_clear(&name);
            str_append(&name, h->json.text.data, h->json.text.len);
            view v = { str_cstr(&name), name.len };
            ev = json_next(&h->json);
            if (!str_ok(&name))
                rc = err_set_nomem(e);
            else if (ev == JSON_ERROR)
                rc = json_fail(h, e);
            else if (ev != JSON_OBJECT_BEGIN)
                rc = err_set(e, ERR_FORMAT, "its entry is not an object");
            else
                rc = read_tensor(h, v, e);
            if (rc < 0) err_wrap(e, rc, "tensor %s", text_safe(text, sizeof text, v));
        }
    }
    if (rc == 0 && json_next(&h->json) != JSON_END) rc = json_fail(h, e);
    str_deinit(&name);
    return rc;
}

int safetensors_read_memory(safetensors *out, const uint8_t *data, size_t bytes, tensor_table *tensors,
                            safetensors_skip skip, void *ctx, err *e) {
    header_reader h = { .file = out, .tensors = tensors, .skip = skip, .ctx = ctx };
    uint64_t      len;
    size_t        from = tensors->count;
    int           rc;
    *out = (safetensors){ 0 };
    if (bytes < 8) return err_set(e, ERR_FORMAT, "not a safetensors file: it has only %zu bytes", bytes);
    memcpy(&len, data, 8);
    if (len > SAFETENSORS_MAX_HEADER)
        return err_set(e, ERR_LIMIT, "the header's length is %" PRIu64 " bytes; the limit is %d", len,
                       SAFETENSORS_MAX_HEADER);
    if (len > bytes - 8)
        return err_set(e, ERR_FORMAT, "the file ends inside the header (%" PRIu64 " bytes of header, %zu of file)", len,
                       bytes);
    arena_init(&out->mem, SAFETENSORS_MAX_HEADER);
    out->data_offset = 8 + (size_t)len;
    h.data = data + out->data_offset;
    h.bytes = bytes - out->data_offset;
    json_reader_init(&h.json, (const char *)data + 8, (size_t)len);
    rc = read_header(&h, e);
    if (rc == 0) rc = tensor_table_check_overlap(tensors, from, e);
    json_reader_deinit(&h.json);
    if (rc < 0) safetensors_deinit(out);
    return rc;
}

void safetensors_deinit(safetensors *s) {
    arena_deinit(&s->mem);
    *s = (safetensors){ 0 };
}

const char *safetensors_find(const safetensors *s, const char *key) {
    for (size_t i = 0; i < s->n_metadata; i++) {
        if (strcmp(s->metadata[i].key, key) == 0) return s->metadata[i].value;
    }
    return NULL;
}

bool safetensors_is(const uint8_t *data, size_t bytes) {
    uint64_t len;
    if (bytes < 9) return false;
    memcpy(&len, data, 8);
    return len >= 2 && len <= SAFETENSORS_MAX_HEADER && data[8] == '{';
}
