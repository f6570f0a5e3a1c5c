/* SPDX-License-Identifier: Apache-2.0 */
/* Learned positions of patches. They are learned for a square of places and interpolated for other pictures. */
#include "vision/internal.h"

#include <math.h>

/* Places `at` of `n` on a line of `side` learned positions whose ends are the line's ends: the one before and its share. */
static int between(int at, int n, int side, float *share) {
    float x = n > 1 ? (float)at * ((float)(side - 1) / (float)(n - 1)) : 0;
    int   low = (int)x;
    *share = x - (float)low;
    return low;
}

static void put_linear(float *to, const float *all, int side, size_t width, int row, int col, int down, int across) {
    float        dy, dx;
    int          y = between(row, down, side, &dy), x = between(col, across, side, &dx);
    int          y1 = y + 1 < side ? y + 1 : y, x1 = x + 1 < side ? x + 1 : x;
    const float *a = all + (size_t)(y * side + x) * width, *b = all + (size_t)(y * side + x1) * width;
    const float *c = all + (size_t)(y1 * side + x) * width, *d = all + (size_t)(y1 * side + x1) * width;
    for (size_t k = 0; k < width; k++)
        to[k] = a[k] * ((1 - dy) * (1 - dx)) + b[k] * ((1 - dy) * dx) + c[k] * (dy * (1 - dx)) + d[k] * (dy * dx);
}

/* The four learned positions around the centre of place `at` of `n`, those behind the ends being the ends, and their weights:
 * the cubic that torch has (a = -0.75). */
enum { TAPS = 4 };
static void around(int at, int n, int side, int near[TAPS], float weight[TAPS]) {
    const float a = -0.75f;
    float       x = ((float)at + 0.5f) / (float)n * (float)side - 0.5f, low = floorf(x), t = x - low;
    for (int i = 0; i < TAPS; i++) {
        int   place = (int)low + i - 1;
        float d = fabsf(t - (float)(i - 1));
        near[i] = place < 0 ? 0 : place < side ? place : side - 1;
        weight[i] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

static void put_cubic(float *to, const float *all, int side, size_t width, int row, int col, int down, int across) {
    int   ys[TAPS], xs[TAPS];
    float wy[TAPS], wx[TAPS];
    around(row, down, side, ys, wy);
    around(col, across, side, xs, wx);
    for (size_t k = 0; k < width; k++) to[k] = 0;
    for (int i = 0; i < TAPS * TAPS; i++) {
        const float *from = all + (size_t)(ys[i / TAPS] * side + xs[i % TAPS]) * width;
        const float  w = wy[i / TAPS] * wx[i % TAPS];
        for (size_t k = 0; k < width; k++) to[k] += from[k] * w;
    }
}

void place_put(float *to, const nn_tower_top *top, size_t width, int row, int col, int down, int across) {
    const float *all = top->positions->data;
    if (top->crossed) {
        size_t per = (size_t)top->positions->n / width / 2, step = top->paired ? 2 : 1;
        size_t x = (size_t)col * step, y = (size_t)row * step + (top->paired ? 1 : per);
        for (size_t k = 0; k < width; k++) to[k] = all[x * width + k] + all[y * width + k];
    } else if (top->cubic) {
        put_cubic(to, all, top->side, width, row, col, down, across);
    } else {
        put_linear(to, all, top->side, width, row, col, down, across);
    }
}
