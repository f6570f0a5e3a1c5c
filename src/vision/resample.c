/* SPDX-License-Identifier: Apache-2.0 */
/* Running a projector whose learned queries look at the patches of a tile (models/resampler.c). */
#include "vision/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sines and cosines of the column, then of the row, each of n / 4 frequencies. */
static void put_waves(float *to, int n, int row, int col) {
    int quarter = n / 4;
    for (int i = 0; i < quarter; i++) {
        double step = pow(10000.0, -(double)i / quarter);
        to[i] = (float)sin(col * step);
        to[quarter + i] = (float)cos(col * step);
        to[2 * quarter + i] = (float)sin(row * step);
        to[3 * quarter + i] = (float)cos(row * step);
    }
}

int resample(vision *v, int across, int down, const float *rows, float *out, err *e) {
    const nn_query_top *top = v->projector.model->net.top;
    const int           queries = v->rules.queries, patches = across * down, n = queries + patches;
    const size_t        from = (size_t)v->tower.width_out, to = (size_t)v->projector.width_out, wide = from + 2 * to;
    float              *in = calloc((size_t)n * wide, sizeof *in);
    int32_t            *marks = calloc((size_t)n * 3, sizeof *marks), *begin = marks, *end = marks + n, *list = end + n;
    int                 rc = in && marks ? 0 : err_set_nomem(e);
    for (int i = 0; i < n && rc == 0; i++) {
        float *row = in + (size_t)i * wide;
        int    at = i - queries;
        begin[i] = queries;
        end[i] = n;
        list[i] = i;
        if (at < 0) {
            memcpy(row + from + to, top->queries->data + (size_t)i * to, to * sizeof *row);
        } else {
            memcpy(row, rows + (size_t)at * from, from * sizeof *row);
            put_waves(row + from, (int)to, at / across, at % across);
        }
    }
    if (rc == 0) {
        vision_order order = { .n = n, .begin = begin, .end = end };
        stage_step   step = { .n = n, .in = in, .order = &order, .out_rows = list, .n_out = queries, .out = out };
        rc = stage_run(&v->projector, &step, e);
    }
    free(in);
    free(marks);
    return rc;
}
