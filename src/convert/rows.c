/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/rows.h"

#include "tensor/codec.h"

int rows_map_alloc(rows_map *x, arena *mem, err *e) {
    x->part = arena_calloc(mem, (size_t)x->total, sizeof *x->part);
    x->row = arena_calloc(mem, (size_t)x->total, sizeof *x->row);
    if (!x->part || !x->row) return err_set_nomem(e);
    for (int64_t i = 0; i < x->total; i++) x->part[i] = -1;
    return 0;
}

bool rows_map_complete(const rows_map *x) {
    for (int64_t i = 0; x->part && i < x->total; i++)
        if (x->part[i] < 0) return false;
    return true;
}

static const tensor_mat *find_row(const rows_map *x, int64_t row, int64_t *at) {
    int64_t stack = x->expert >= 0 ? x->expert : row / x->total, r = row % x->total;
    *at = x->row ? x->row[r] : r;
    return &x->parts[x->part ? x->part[r] : 0]->at[stack];
}

static const void *map_raw(const void *ctx, int64_t row) {
    int64_t           at;
    const tensor_mat *t = find_row(ctx, row, &at);
    return (const uint8_t *)t->data + (size_t)at * t->row_bytes;
}

static void map_floats(const void *ctx, int64_t row, float *out) {
    int64_t           at;
    const tensor_mat *t = find_row(ctx, row, &at);
    tensor_mat_dequant_row(t, 0, at, out);
}

int rows_map_type(const rows_map *x) {
    int type = (int)x->parts[0]->at[0].type;
    for (int p = 0; p < x->n; p++) {
        int n = x->parts[p]->n_stack ? x->parts[p]->n_stack : 1;
        for (int s = 0; s < n; s++) {
            const tensor_mat *t = &x->parts[p]->at[s];
            if ((int)t->type != type || t->scales || type >= TENSOR_GGML_END) return -1;
        }
    }
    return type;
}

row_source rows_map_source(const rows_map *x) {
    int type = rows_map_type(x);
    return (row_source){ .type = type < 0 ? TENSOR_F16 : (tensor_type)type,
                         .raw = type < 0 ? NULL : map_raw,
                         .floats = map_floats,
                         .ctx = x };
}

static const void *stack_raw(const void *ctx, int64_t row) {
    const rows_stack *x = ctx;
    const row_source *s = &x->at[row / x->rows];
    return s->raw(s->ctx, row % x->rows);
}

static void stack_floats(const void *ctx, int64_t row, float *out) {
    const rows_stack *x = ctx;
    const row_source *s = &x->at[row / x->rows];
    s->floats(s->ctx, row % x->rows, out);
}

row_source rows_stack_source(const rows_stack *x) {
    row_source out = { .type = x->at[0].type, .raw = stack_raw, .floats = stack_floats, .ctx = x };
    for (int i = 0; i < x->n; i++) {
        if (!x->at[i].raw || x->at[i].type != out.type) out.raw = NULL;
        if (!x->at[i].floats) out.floats = NULL;
    }
    return out;
}
