/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which patch of a tile stands where in the tower's batch.
 *
 * Most towers take patches row by row. Where some layers see windows only, the patches of a window stand together: windows row
 * by row, in each the squares of patches that become a row of the language model, row by row, and in each square its patches.
 * Windows at the right and at the bottom may be cut.
 */
#include "vision/internal.h"

#include <stdlib.h>

static void put_squares(const vision_rules *r, vision_order *o, int across, int x0, int x1, int y0, int y1) {
    int m = r->inner ? r->inner : r->merge, begin = o->n;
    for (int y = y0; y < y1; y++) {
        for (int x = x0; x < x1; x++) {
            for (int k = 0; k < m * m; k++) o->patch[o->n++] = (y * m + k / m) * across + x * m + k % m;
        }
    }
    for (int i = begin; i < o->n; i++) {
        o->begin[i] = begin;
        o->end[i] = o->n;
    }
}

int order_make(vision_order *o, const vision_rules *r, int across, int down, err *e) {
    size_t n = (size_t)across * (size_t)down;
    int    m = r->inner ? r->inner : r->merge, wide = across / m, high = down / m, w = r->window;
    *o = (vision_order){ .patch = calloc(n, sizeof *o->patch) };
    if (w) {
        o->begin = calloc(n, sizeof *o->begin);
        o->end = calloc(n, sizeof *o->end);
    }
    if (!o->patch || (w && (!o->begin || !o->end))) {
        order_free(o);
        return err_set_nomem(e);
    }
    for (int y = 0; w && y < high; y += w) {
        for (int x = 0; x < wide; x += w)
            put_squares(r, o, across, x, x + w < wide ? x + w : wide, y, y + w < high ? y + w : high);
    }
    for (; !w && o->n < (int)n; o->n++) o->patch[o->n] = o->n;
    return 0;
}

void order_free(vision_order *o) {
    free(o->patch);
    free(o->begin);
    free(o->end);
    *o = (vision_order){ 0 };
}
