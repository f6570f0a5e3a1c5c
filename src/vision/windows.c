/* SPDX-License-Identifier: Apache-2.0 */
/* Running projectors whose learned queries look at the patches of a window (models/window_qformer.c). */
#include "vision/internal.h"

#include <stdlib.h>
#include <string.h>

enum { SQUARE = 4 }; /* patches that a query stands for */

typedef struct windows {
    int    across, down;     /* of a tile's squares */
    int    side, wide, high; /* squares on a window's side; windows */
    size_t patch, learned;   /* floats of what all taken layers have of a patch; of all learned vectors at a place */
    const float *rows;       /* [square][patch of it] */
} windows;

static int queries_of(const windows *w) { return w->side * w->side; }
static int squares_of(const windows *w) { return w->across * w->down; }

/* The square at a place of a window. */
static int square_at(const windows *w, int window, int y, int x) {
    return (window / w->wide * w->side + y) * w->across + window % w->wide * w->side + x;
}

/* What all projectors learned for a place. */
static void put_learned(float *to, const nn_window_top *top, size_t n, int place) {
    for (int i = 0; i < top->n; i++, to += n) memcpy(to, top->learned[i]->data + (size_t)place * n, n * sizeof *to);
}

/* Queries, window by window: they look at each other. */
static int ask(vision *v, const windows *w, float *out, int32_t *marks, err *e) {
    const nn_window_top *top = v->middle.model->net.top;
    const int            n = squares_of(w), per = queries_of(w);
    const size_t         wide = (size_t)v->middle.width_in;
    float               *in = malloc((size_t)n * wide * sizeof *in);
    vision_order         order = { .n = n, .begin = marks, .end = marks + n };
    if (!in) return err_set_nomem(e);
    for (int i = 0; i < n; i++) {
        float *row = in + (size_t)i * wide;
        int    at = square_at(w, i / per, i % per / w->side, i % per % w->side);
        memcpy(row, w->rows + (size_t)at * SQUARE * w->patch, SQUARE * w->patch * sizeof *row);
        put_learned(row + SQUARE * w->patch, top, w->learned / (size_t)top->n, i % per);
        order.begin[i] = i / per * per;
        order.end[i] = order.begin[i] + per;
    }
    int rc = stage_run(&v->middle, &(stage_step){ .n = n, .in = in, .order = &order, .out = out }, e);
    free(in);
    return rc;
}

/* The patches of a window, line by line. */
static void put_patches(const windows *w, const nn_window_top *top, int window, float *to, size_t wide) {
    int side = 2 * w->side;
    for (int i = 0; i < side * side; i++, to += wide) {
        int y = i / side, x = i % side, at = square_at(w, window, y / 2, x / 2) * SQUARE + y % 2 * 2 + x % 2;
        memcpy(to, w->rows + (size_t)at * w->patch, w->patch * sizeof *to);
        put_learned(to + w->patch, top, w->learned / (size_t)top->n, i);
    }
}

/* Of each window its queries, and behind them its patches, which is what all of them see. */
static int see(vision *v, const windows *w, const float *asked, float *out, int32_t *marks, err *e) {
    const nn_window_top *top = v->projector.model->net.top;
    const int            per = queries_of(w), group = per * (1 + SQUARE), n = squares_of(w) * (1 + SQUARE);
    const size_t         wide = (size_t)v->projector.width_in;
    float               *in = calloc((size_t)n * wide, sizeof *in);
    vision_order         order = { .n = n, .begin = marks, .end = marks + n };
    int32_t             *list = marks + 2 * n;
    if (!in) return err_set_nomem(e);
    for (int i = 0; i < w->wide * w->high; i++) {
        int first = i * group;
        for (int k = 0; k < per; k++) {
            memcpy(in + (size_t)(first + k) * wide + w->patch, asked + (size_t)(i * per + k) * w->learned,
                   w->learned * sizeof *in);
            list[square_at(w, i, k / w->side, k % w->side)] = first + k;
        }
        put_patches(w, top, i, in + (size_t)(first + per) * wide, wide);
        for (int k = first; k < first + group; k++) {
            order.begin[k] = first + per;
            order.end[k] = first + group;
        }
    }
    stage_step step = { .n = n, .in = in, .order = &order, .out_rows = list, .n_out = squares_of(w), .out = out };
    int        rc = stage_run(&v->projector, &step, e);
    free(in);
    return rc;
}

int windows_run(vision *v, int across, int down, const float *rows, float *out, err *e) {
    windows w = { .across = across / 2,
                  .down = down / 2,
                  .side = v->rules.edge / 2,
                  .patch = (size_t)v->tower.width_out,
                  .learned = (size_t)v->middle.width_out,
                  .rows = rows };
    w.wide = w.across / w.side;
    w.high = w.down / w.side;
    float   *asked = malloc((size_t)squares_of(&w) * w.learned * sizeof *asked);
    int32_t *marks = malloc((size_t)squares_of(&w) * 3 * (1 + SQUARE) * sizeof *marks);
    int      rc = asked && marks ? 0 : err_set_nomem(e);
    if (rc == 0) rc = ask(v, &w, asked, marks, e);
    if (rc == 0) rc = see(v, &w, asked, out, marks, e);
    free(asked);
    free(marks);
    return rc;
}
