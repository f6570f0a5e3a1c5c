/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/table.h"

#include "base/num.h"
#include "formats/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void tensor_table_init(tensor_table *t) {
    *t = (tensor_table){ 0 };
    map_init(&t->index);
    arena_init(&t->names, 0);
}

void tensor_table_deinit(tensor_table *t) {
    free(t->items);
    map_deinit(&t->index);
    arena_deinit(&t->names);
    t->items = NULL;
    t->count = t->cap = 0;
}

int tensor_table_add(tensor_table *t, const model_tensor *tensor, view name, err *e) {
    char *copy;
    int   rc = text_name_check(name, TABLE_MAX_NAME, e);
    if (rc < 0) return rc;
    if (map_get(&t->index, name.data, name.len, NULL)) return err_set(e, ERR_FORMAT, "it appears twice");
    if (t->count == TABLE_MAX_TENSORS) return err_set(e, ERR_LIMIT, "more than %u tensors", TABLE_MAX_TENSORS);
    if (t->count == t->cap) {
        size_t        cap = t->cap ? t->cap * 2 : 64;
        model_tensor *items = realloc(t->items, cap * sizeof *items); /* cap is bounded by TABLE_MAX_TENSORS */
        if (!items) return err_set_nomem(e);
        t->items = items;
        t->cap = cap;
    }
    copy = arena_strndup(&t->names, name.data, name.len);
    if (!copy || !map_put(&t->index, copy, name.len, t->count)) return err_set_nomem(e);
    t->items[t->count] = *tensor;
    t->items[t->count++].name = copy;
    return 0;
}

const model_tensor *tensor_table_find(const tensor_table *t, const char *name, size_t len) {
    uint64_t at;
    return map_get(&t->index, name, len, &at) ? &t->items[at] : NULL;
}

typedef struct span {
    const model_tensor *tensor;
} span;

static int by_position(const void *a, const void *b) {
    const uint8_t *x = ((const span *)a)->tensor->data, *y = ((const span *)b)->tensor->data;
    return x < y ? -1 : x > y;
}

int tensor_table_check_overlap(const tensor_table *t, size_t from, err *e) {
    size_t n = 0;
    int    rc = 0;
    span  *sorted;
    if (t->count - from < 2) return 0;
    sorted = malloc((t->count - from) * sizeof *sorted);
    if (!sorted) return err_set_nomem(e);
    for (size_t i = from; i < t->count; i++) {
        if (t->items[i].bytes > 0) sorted[n++].tensor = &t->items[i];
    }
    qsort(sorted, n, sizeof *sorted, by_position);
    for (size_t i = 1; i < n && rc == 0; i++) {
        const model_tensor *a = sorted[i - 1].tensor, *b = sorted[i].tensor;
        if ((size_t)(b->data - a->data) < a->bytes)
            rc = err_set(e, ERR_FORMAT, "tensors %s and %s overlap", a->name, b->name);
    }
    free(sorted);
    return rc;
}

int tensor_table_bytes(const model_tensor *tensor, size_t *out, err *e) {
    const tensor_type_info *type = tensor_type_get(tensor->type);
    size_t                  bytes;
    uint64_t                elements = 1;
    for (int d = 0; d < tensor->n_dims; d++) {
        if (!num_mul_u64(elements, (uint64_t)tensor->dims[d], &elements) || elements > INT64_MAX)
            return err_set(e, ERR_FORMAT, "the product of its dimensions overflows");
    }
    if (tensor->dims[0] % type->block_elems != 0)
        return err_set(e, ERR_FORMAT, "a row of %" PRId64 " elements is not a whole number of %s blocks (%u elements)",
                       tensor->dims[0], type->name, type->block_elems);
    if (!num_mul_size((size_t)(elements / type->block_elems), type->block_bytes, &bytes))
        return err_set(e, ERR_FORMAT, "its size in bytes overflows");
    *out = bytes;
    return 0;
}
