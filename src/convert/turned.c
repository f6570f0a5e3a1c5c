/* SPDX-License-Identifier: Apache-2.0 */
#include "convert/turned.h"

#include "tensor/codec.h"

#include <pthread.h>
#include <string.h>

enum { TILE = 256, TILES = 8 }; /* no block is longer than a tile, and a tile is whole blocks */

/* Columns [first, first + n) of a row; first is a multiple of TILE. */
static void some_columns(const tensor_mat *m, int64_t row, int64_t first, int64_t n, float *out) {
    const tensor_type_info *info = tensor_type_get((int)m->type);
    tensor_mat              part = *m;
    part.data =
        (const uint8_t *)m->data + (size_t)row * m->row_bytes + (size_t)(first / info->block_elems) * info->block_bytes;
    part.cols = n;
    part.rows = 1;
    tensor_mat_dequant_row(&part, 0, 0, out);
}

/* --- whole matrices ------------------------------------------------------------------------------------------------ */

typedef struct tile {
    const rows_map *map;
    int64_t         stack, first;
    uint64_t        used;
    float          *data; /* [columns][rows of the map] */
} tile;

struct turned_tiles {
    pthread_mutex_t lock; /* guards everything below */
    tile            list[TILES];
    uint64_t        clock;
};

turned_tiles *turned_tiles_open(int64_t most, arena *mem) {
    turned_tiles *t = arena_calloc(mem, 1, sizeof *t);
    if (!t) return NULL;
    for (int i = 0; i < TILES; i++)
        if (!(t->list[i].data = arena_alloc(mem, (size_t)most * TILE * sizeof(float)))) return NULL;
    return pthread_mutex_init(&t->lock, NULL) == 0 ? t : NULL;
}

void turned_tiles_close(turned_tiles *t) {
    if (t) pthread_mutex_destroy(&t->lock);
}

static void fill(tile *t, const rows_turned *x, int64_t stack, int64_t first) {
    const rows_map *m = x->map;
    int64_t         n = x->cols - first < TILE ? x->cols - first : TILE;
    float           row[TILE];
    for (int64_t r = 0; r < m->total; r++) {
        const nn_mat *part = m->parts[m->part ? m->part[r] : 0];
        some_columns(&part->at[m->expert >= 0 ? m->expert : stack], m->row ? m->row[r] : r, first, n, row);
        for (int64_t c = 0; c < n; c++) t->data[c * m->total + r] = row[c];
    }
    t->map = m;
    t->stack = stack;
    t->first = first;
}

static void turned_floats(const void *ctx, int64_t row, float *out) {
    const rows_turned *x = ctx;
    turned_tiles      *all = x->tiles;
    int64_t            stack = row / x->cols, c = row % x->cols, first = c - c % TILE;
    pthread_mutex_lock(&all->lock);
    tile *t = &all->list[0];
    for (int i = 0; i < TILES; i++) {
        tile *o = &all->list[i];
        if (o->map == x->map && o->stack == stack && o->first == first) {
            t = o;
            break;
        }
        if (o->used < t->used) t = o;
    }
    if (t->map != x->map || t->stack != stack || t->first != first) fill(t, x, stack, first);
    t->used = ++all->clock;
    memcpy(out, t->data + (c - first) * x->map->total, (size_t)x->map->total * sizeof *out);
    pthread_mutex_unlock(&all->lock);
}

row_source rows_turned_source(const rows_turned *x) {
    return (row_source){ .type = rows_map_source(x->map).type, .floats = turned_floats, .ctx = x };
}

/* --- heads --------------------------------------------------------------------------------------------------------- */

static void heads_floats(const void *ctx, int64_t row, float *out) {
    const rows_heads *x = ctx;
    int64_t           h = row / x->stride, r = row % x->stride;
    float             some[TILE];
    for (int p = 0; p < x->n; p++) {
        int64_t at = r - x->parts[p].first;
        if (at < 0 || at >= x->parts[p].n) continue;
        const tensor_mat *m = &x->parts[p].mat->at[h];
        if (!x->parts[p].turned) {
            tensor_mat_dequant_row(m, 0, at, out);
            continue;
        }
        int64_t first = at - at % TILE, n = m->cols - first < TILE ? m->cols - first : TILE;
        for (int64_t i = 0; i < m->rows; i++) {
            some_columns(m, i, first, n, some);
            out[i] = some[at - first];
        }
    }
}

row_source rows_heads_source(const rows_heads *x) {
    return (row_source){ .type = TENSOR_F32, .floats = heads_floats, .ctx = x };
}

bool rows_heads_plain(const rows_heads *x) {
    for (int p = 0; p < x->n; p++) {
        tensor_type t = x->parts[p].mat->at[0].type;
        if (t != TENSOR_F32 && t != TENSOR_F16 && t != TENSOR_BF16) return false;
    }
    return true;
}

bool rows_heads_complete(const rows_heads *x) {
    int64_t n = 0;
    for (int p = 0; p < x->n; p++) n += x->parts[p].n;
    return n == x->stride;
}
