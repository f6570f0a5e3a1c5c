/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The learned position of a patch, where a tower's positions are for another number of rows and columns than the picture has.
 *
 *     corners   between the four that are nearest, the outer ones on the picture's outer patches
 *     smooth    the same from half-patch centres; where there are more positions than patches, the mean of those that fall upon
 *               a patch, weighted by a triangle
 *     linear    between the four that are nearest, from half-patch centres
 *     cubic     between sixteen, from half-patch centres, with the kernel of -0.75; the outer ones go on beyond the edge
 *     nearest   the one in whose share of the picture the patch begins
 */
#include "vision/internal.h"

#include <math.h>
#include <string.h>

/* Positions on a line that make that of a patch, and how much each counts. */
typedef struct mixed {
    int   n, at[NN_MOST_PLACES];
    float share[NN_MOST_PLACES];
} mixed;

static void mix_smooth(mixed *m, int at, int n, int side) {
    float scale = (float)side / (float)n, wide = fmaxf(scale, 1), centre = scale * ((float)at + 0.5f), all = 0;
    int   low = (int)fmaxf(centre - wide + 0.5f, 0), high = (int)(centre + wide + 0.5f);
    m->n = (high < side ? high : side) - low;
    if (m->n > NN_MOST_PLACES) m->n = NN_MOST_PLACES;
    for (int i = 0; i < m->n; i++) {
        float off = fabsf(((float)(low + i) - centre + 0.5f) / wide);
        m->at[i] = low + i;
        all += m->share[i] = off < 1 ? 1 - off : 0;
    }
    for (int i = 0; i < m->n; i++) m->share[i] /= all;
}

static void mix_linear(mixed *m, int at, int n, int side) {
    float x = fmaxf(((float)at + 0.5f) * ((float)side / (float)n) - 0.5f, 0);
    int   low = (int)x < side ? (int)x : side - 1;
    *m = (mixed){ .n = 2, .at = { low, low + (low + 1 < side) }, .share = { 1 - (x - (float)low), x - (float)low } };
}

static void mix_cubic(mixed *m, int at, int n, int side) {
    const float a = -0.75f;
    float       x = ((float)at + 0.5f) * (float)side / (float)n - 0.5f, low = floorf(x);
    m->n = 4;
    for (int i = 0; i < 4; i++) {
        float d = fabsf(x - low - (float)(i - 1));
        int   p = (int)low + i - 1;
        m->at[i] = p < 0 ? 0 : p < side ? p : side - 1;
        m->share[i] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

static void mix(mixed *m, nn_between how, int at, int n, int side) {
    if (how == NN_BETWEEN_SMOOTH)
        mix_smooth(m, at, n, side);
    else if (how == NN_BETWEEN_LINEAR)
        mix_linear(m, at, n, side);
    else if (how == NN_BETWEEN_CUBIC)
        mix_cubic(m, at, n, side);
    else
        *m = (mixed){ .n = 1, .at[0] = (int)((int64_t)at * side / n), .share[0] = 1 };
}

static void put_mixed(float *to, const nn_tower_top *top, size_t width, const mixed *y, const mixed *x) {
    memset(to, 0, width * sizeof *to);
    for (int i = 0; i < y->n; i++) {
        for (int j = 0; j < x->n; j++) {
            size_t       place = (size_t)top->unused + (size_t)y->at[i] * (size_t)top->side + (size_t)x->at[j];
            const float *from = top->positions->data + place * width;
            float        share = y->share[i] * x->share[j];
            for (size_t k = 0; k < width; k++) to[k] += share * from[k];
        }
    }
}

/* Places `at` of `n` on a line of `side` learned positions whose ends are the line's ends: the one before and its share. */
static int between(int at, int n, int side, float *share) {
    float x = n > 1 ? (float)at * ((float)(side - 1) / (float)(n - 1)) : 0;
    int   low = (int)x;
    *share = x - (float)low;
    return low;
}

int places_check(const nn_tower_top *top, size_t width, int across, int down, err *e) {
    size_t n = top->positions ? (size_t)top->positions->n / width : 0, per = n / 2;
    size_t patches = (size_t)across * (size_t)down, wanted = patches + (top->class_row != NULL);
    if (!top->positions || top->side) return 0;
    if (top->crossed && ((size_t)across > per || (size_t)down > per))
        return err_set(e, ERR_LIMIT, "a picture of %d x %d patches; the tower has positions for %zu x %zu", across,
                       down, per, per);
    if (!top->crossed && wanted > n)
        return err_set(e, ERR_LIMIT, "a tile of %zu patches; the tower has positions for %zu", patches, n);
    return 0;
}

void place_put(float *to, const nn_tower_top *top, size_t width, int row, int col, int down, int across) {
    const float *all = top->positions->data;
    if (top->between != NN_BETWEEN_CORNERS) {
        mixed y, x;
        mix(&y, top->between, row, down, top->side);
        mix(&x, top->between, col, across, top->side);
        put_mixed(to, top, width, &y, &x);
        return;
    }
    if (top->crossed) {
        size_t per = (size_t)top->positions->n / width / 2, step = top->paired ? 2 : 1;
        size_t x = (size_t)col * step, y = (size_t)row * step + (top->paired ? 1 : per);
        for (size_t k = 0; k < width; k++) to[k] = all[x * width + k] + all[y * width + k];
        return;
    }
    float        dy, dx;
    int          side = top->side, y = between(row, down, side, &dy), x = between(col, across, side, &dx);
    int          y1 = y + 1 < side ? y + 1 : y, x1 = x + 1 < side ? x + 1 : x;
    const float *a = all + (size_t)(y * side + x) * width, *b = all + (size_t)(y * side + x1) * width;
    const float *c = all + (size_t)(y1 * side + x) * width, *d = all + (size_t)(y1 * side + x1) * width;
    for (size_t k = 0; k < width; k++)
        to[k] = a[k] * ((1 - dy) * (1 - dx)) + b[k] * ((1 - dy) * dx) + c[k] * (dy * (1 - dx)) + d[k] * (dy * dx);
}
