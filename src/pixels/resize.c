/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "pixels/pixels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22, HALF = 1 << (WEIGHT_BITS - 1) };

/* What one pass needs: for every place of the result where its sources begin, how many there are, and their weights. */
typedef struct taps {
    int      stride;
    int32_t *first, *count; /* [n] */
    int32_t *weight;        /* [n][stride] */
} taps;

static double sinc(double x) {
    if (x == 0) return 1;
    x *= M_PI;
    return sin(x) / x;
}

static double filter_at(pixels_filter filter, double x) {
    const double a = -0.5;
    double       d = fabs(x);
    switch (filter) {
    case PIXELS_BILINEAR: return d < 1 ? 1 - d : 0;
    case PIXELS_BICUBIC:
        if (d < 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
        return d < 2 ? (((d - 5) * d + 8) * d - 4) * a : 0;
    case PIXELS_LANCZOS: return -3 <= x && x < 3 ? sinc(x) * sinc(x / 3) : 0;
    }
    return 0;
}

static void taps_deinit(taps *t) {
    free(t->first);
    free(t->count);
    free(t->weight);
}

static int32_t fixed(double w) { return (int32_t)(w * (1 << WEIGHT_BITS) + (w < 0 ? -0.5 : 0.5)); }

static int taps_init(taps *t, int from, int to, pixels_filter filter, err *e) {
    static const double reach[] = { [PIXELS_BILINEAR] = 1, [PIXELS_BICUBIC] = 2, [PIXELS_LANCZOS] = 3 };
    double              scale = (double)from / to, wide = scale < 1 ? 1 : scale, support = reach[filter] * wide;
    size_t              all;
    *t = (taps){ .stride = (int)ceil(support) * 2 + 1 };
    if (!num_mul_size((size_t)to, (size_t)t->stride, &all)) return err_set_nomem(e);
    t->first = calloc((size_t)to, sizeof *t->first);
    t->count = calloc((size_t)to, sizeof *t->count);
    t->weight = calloc(all, sizeof *t->weight);
    double *exact = calloc((size_t)t->stride, sizeof *exact);
    bool    ok = t->first && t->count && t->weight && exact;
    for (int i = 0; ok && i < to; i++) {
        double centre = (i + 0.5) * scale, sum = 0;
        int    lo = (int)(centre - support + 0.5), hi = (int)(centre + support + 0.5);
        if (lo < 0) lo = 0;
        if (hi > from) hi = from;
        t->first[i] = lo;
        t->count[i] = hi - lo;
        for (int k = 0; k < hi - lo; k++) sum += exact[k] = filter_at(filter, (k + lo - centre + 0.5) * (1 / wide));
        for (int k = 0; k < hi - lo; k++)
            t->weight[(size_t)i * (size_t)t->stride + (size_t)k] = fixed(sum != 0 ? exact[k] / sum : exact[k]);
    }
    free(exact);
    return ok ? 0 : err_set_nomem(e);
}

/* The weights of a place sum up to one and, with the negative ones of these filters, to less than two without their signs:
 * 32 bits hold every sum. */
static uint8_t round_off(int32_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One pass, rows of the result shared out among the workers of a pool. */
typedef struct pass_job {
    pixels       *out;
    const pixels *from;
    bool          along_x;
    taps          t;
} pass_job;

/* A row of the result from one row. */
static void mix_along(uint8_t *to, const uint8_t *from, const taps *t, int width) {
    for (int x = 0; x < width; x++, to += PIXELS_CHANNELS) {
        const uint8_t *at = from + (size_t)t->first[x] * PIXELS_CHANNELS;
        const int32_t *w = t->weight + (size_t)x * (size_t)t->stride;
        int32_t        red = HALF, green = HALF, blue = HALF;
        for (int k = 0; k < t->count[x]; k++, at += PIXELS_CHANNELS) {
            red += at[0] * w[k];
            green += at[1] * w[k];
            blue += at[2] * w[k];
        }
        to[0] = round_off(red);
        to[1] = round_off(green);
        to[2] = round_off(blue);
    }
}

/* A row of the result from n rows that lie `bytes` apart: some columns at a time, so that compilers see loops over them. */
static void mix_across(uint8_t *to, const uint8_t *from, size_t bytes, const int32_t *w, int n) {
    enum { COLUMNS = 512 };
    int32_t sum[COLUMNS];
    for (size_t x = 0; x < bytes; x += COLUMNS) {
        size_t columns = bytes - x < COLUMNS ? bytes - x : COLUMNS;
        for (size_t i = 0; i < columns; i++) sum[i] = HALF;
        for (int k = 0; k < n; k++) {
            const uint8_t *at = from + (size_t)k * bytes + x;
            for (size_t i = 0; i < columns; i++) sum[i] += at[i] * w[k];
        }
        for (size_t i = 0; i < columns; i++) to[x + i] = round_off(sum[i]);
    }
}

static void pass_rows(void *ctx, int worker, int n_workers) {
    const pass_job *j = ctx;
    const taps     *t = &j->t;
    size_t          bytes = (size_t)j->from->width * PIXELS_CHANNELS;
    int             first = (int)((int64_t)j->out->height * worker / n_workers),
        end = (int)((int64_t)j->out->height * (worker + 1) / n_workers);
    for (int y = first; y < end; y++) {
        uint8_t *to = j->out->rgb + (size_t)y * (size_t)j->out->width * PIXELS_CHANNELS;
        if (j->along_x)
            mix_along(to, j->from->rgb + (size_t)y * bytes, t, j->out->width);
        else
            mix_across(to, j->from->rgb + (size_t)t->first[y] * bytes, bytes, t->weight + (size_t)y * (size_t)t->stride,
                       t->count[y]);
    }
}

static int pass(pixels *out, const pixels *from, int width, int height, pixels_filter filter, pool *workers, err *e) {
    pass_job j = { .out = out, .from = from, .along_x = width != from->width };
    int      rc = taps_init(&j.t, j.along_x ? from->width : from->height, j.along_x ? width : height, filter, e);
    if (rc == 0) rc = pixels_init(out, width, height, e);
    if (rc == 0 && workers) pool_run(workers, pass_rows, &j);
    if (rc == 0 && !workers) pass_rows(&j, 0, 1);
    taps_deinit(&j.t);
    return rc;
}

int pixels_resize(pixels *out, const pixels *from, int width, int height, pixels_filter filter, pool *workers, err *e) {
    pixels between = { 0 };
    int    rc = 0;
    *out = (pixels){ 0 };
    if (width <= 0 || height <= 0) return err_set(e, ERR_ARG, "a picture cannot have %d x %d pixels", width, height);
    if (width == from->width && height == from->height) return pixels_crop(out, from, 0, 0, width, height, e);
    if (width == from->width || height == from->height) return pass(out, from, width, height, filter, workers, e);
    rc = pass(&between, from, width, from->height, filter, workers, e);
    if (rc == 0) rc = pass(out, &between, width, height, filter, workers, e);
    pixels_deinit(&between);
    if (rc < 0) pixels_deinit(out);
    return rc;
}
