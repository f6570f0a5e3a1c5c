/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that are mixtures of a table's: what comes before the projector scores all of the table's rows but the last ones, and the
 * projector sums them by the shares that the softmax of these scores gives them. */
#include "vision/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void softmax(float *x, int n) {
    float  most = x[0];
    double sum = 0;
    for (int i = 1; i < n; i++) most = fmaxf(most, x[i]);
    for (int i = 0; i < n; i++) sum += (double)(x[i] = expf(x[i] - most));
    for (int i = 0; i < n; i++) x[i] = (float)((double)x[i] / sum);
}

int mix_rows(vision *v, int n, const float *in, float *out, err *e) {
    size_t scored = (size_t)v->middle.width_out, wide = (size_t)v->projector.width_in;
    float *all = malloc((size_t)n * wide * sizeof *all);
    if (!all) return err_set_nomem(e);
    stage_step score = { .n = n, .in = in, .out = all }, mix = { .n = n, .in = all, .out = out };
    int        rc = stage_run(&v->middle, &score, e);
    for (int i = n; rc == 0 && i-- > 0;) { /* from the last one on: a row of shares is longer than one of scores */
        float *row = all + (size_t)i * wide;
        memmove(row, all + (size_t)i * scored, scored * sizeof *row);
        memset(row + scored, 0, (wide - scored) * sizeof *row);
        softmax(row, (int)scored);
    }
    if (rc == 0) rc = stage_run(&v->projector, &mix, e);
    free(all);
    return rc;
}
