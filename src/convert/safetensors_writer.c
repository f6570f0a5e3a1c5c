/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors writer: the header is padded with spaces so that the data begins at a multiple of 8. */
#include "convert/safetensors_writer.h"

#include "base/file.h"
#include "base/num.h"
#include "convert/writer_tensor.h"
#include "formats/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct safetensors_writer {
    str          metadata; /* the members of __metadata__, as JSON text */
    map          keys;
    arena        names;
    tensor_table tensors;
};

int safetensors_writer_open(safetensors_writer **out, err *e) {
    safetensors_writer *w = calloc(1, sizeof *w);
    *out = w;
    if (!w) return err_set_nomem(e);
    str_init(&w->metadata);
    map_init(&w->keys);
    arena_init(&w->names, 0);
    tensor_table_init(&w->tensors);
    return 0;
}

void safetensors_writer_free(safetensors_writer *w) {
    if (!w) return;
    str_deinit(&w->metadata);
    map_deinit(&w->keys);
    arena_deinit(&w->names);
    tensor_table_deinit(&w->tensors);
    free(w);
}

int safetensors_writer_set(safetensors_writer *w, const char *key, const char *value, err *e) {
    char *copy;
    if (map_get_c(&w->keys, key, NULL)) return err_set(e, ERR_ARG, "__metadata__ has the key %s already", key);
    copy = arena_strdup(&w->names, key);
    if (!copy || !map_put(&w->keys, copy, strlen(copy), 0)) return err_set_nomem(e);
    if (w->metadata.len) str_push(&w->metadata, ',');
    str_put_json(&w->metadata, key, strlen(key));
    str_push(&w->metadata, ':');
    str_put_json(&w->metadata, value, strlen(value));
    return str_ok(&w->metadata) ? 0 : err_set_nomem(e);
}

static bool has_type(tensor_type type) { return safetensors_dtype_name(type) != NULL; }

int safetensors_writer_add(safetensors_writer *w, const char *name, tensor_type type, int n_dims, const int64_t *dims,
                           const void *data, size_t bytes, err *e) {
    static const writer_limits limits = { "safetensors", MODEL_MAX_DIMS, 0, has_type };
    if (strcmp(name, "__metadata__") == 0) return err_set(e, ERR_ARG, "tensor %s: the name is reserved", name);
    return writer_tensor_add(&w->tensors, &(writer_tensor){ name, type, n_dims, dims, data, bytes }, &limits, e);
}

static int put_header(const safetensors_writer *w, str *s, err *e) {
    uint64_t offset = 0, end;
    size_t   begin = s->len;
    str_push(s, '{');
    if (w->metadata.len) {
        str_puts(s, "\"__metadata__\":{");
        str_append(s, w->metadata.data, w->metadata.len);
        str_push(s, '}');
    }
    for (size_t i = 0; i < w->tensors.count; i++) {
        const model_tensor *t = &w->tensors.items[i];
        if (!num_add_u64(offset, t->bytes, &end)) return err_set(e, ERR_LIMIT, "the tensors' size overflows");
        if (s->len > begin + 1) str_push(s, ',');
        str_put_json(s, t->name, strlen(t->name));
        str_printf(s, ":{\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(t->type));
        for (int d = t->n_dims - 1; d >= 0; d--) str_printf(s, "%" PRId64 "%s", t->dims[d], d ? "," : "");
        str_printf(s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset, end);
        offset = end;
    }
    str_push(s, '}');
    while (s->len % 8 && str_ok(s)) str_push(s, ' ');
    if (s->len > SAFETENSORS_MAX_HEADER)
        return err_set(e, ERR_LIMIT, "the header has %zu bytes; the limit is %d", s->len, SAFETENSORS_MAX_HEADER);
    return str_ok(s) ? 0 : err_set_nomem(e);
}

int safetensors_writer_head(safetensors_writer *w, str *head, uint64_t *offsets, uint64_t *bytes, err *e) {
    uint8_t  length[8] = { 0 };
    uint64_t at;
    str_append(head, length, sizeof length);
    int rc = put_header(w, head, e);
    if (rc < 0) return rc;
    for (int i = 0; i < 8; i++) head->data[i] = (char)((head->len - 8) >> 8 * i & 255);
    at = head->len;
    for (size_t i = 0; i < w->tensors.count; at += w->tensors.items[i++].bytes) offsets[i] = at;
    *bytes = at;
    return 0;
}

int safetensors_writer_write(safetensors_writer *w, const char *path, err *e) {
    file_replace r;
    str          head;
    uint64_t     len;
    bool         ok;
    int          rc;
    str_init(&head);
    if ((rc = put_header(w, &head, e)) < 0 || (rc = file_replace_begin(&r, path, e)) < 0) {
        str_deinit(&head);
        return rc;
    }
    len = head.len;
    ok = fwrite(&len, 1, 8, r.out) == 8 && fwrite(head.data, 1, head.len, r.out) == head.len;
    for (size_t i = 0; i < w->tensors.count && ok; i++) {
        const model_tensor *t = &w->tensors.items[i];
        ok = t->bytes == 0 || fwrite(t->data, 1, t->bytes, r.out) == t->bytes;
    }
    str_deinit(&head);
    if (ok) return file_replace_commit(&r, e);
    rc = err_set_errno(e, "cannot write %s", path);
    file_replace_abort(&r);
    return rc;
}
