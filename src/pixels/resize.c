/* SPDX-License-Identifier: Apache-2.0 */
#include "base/num.h"
#include "pixels/pixels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BITS = 22 };

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

static uint8_t round_off(int64_t sum) {
    sum >>= WEIGHT_BITS;
    return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* One pass: sources of a place lie `step` bytes apart. */
static void mix(uint8_t *to, const uint8_t *from, size_t step, const int32_t *w, int n) {
    int64_t sum[PIXELS_CHANNELS] = { 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1) };
    for (int k = 0; k < n; k++) {
        for (int c = 0; c < PIXELS_CHANNELS; c++) sum[c] += (int64_t)from[(size_t)k * step + (size_t)c] * w[k];
    }
    for (int c = 0; c < PIXELS_CHANNELS; c++) to[c] = round_off(sum[c]);
}

static int pass(pixels *out, const pixels *from, int width, int height, pixels_filter filter, err *e) {
    bool along_x = width != from->width;
    taps t;
    int  rc = taps_init(&t, along_x ? from->width : from->height, along_x ? width : height, filter, e);
    if (rc == 0) rc = pixels_init(out, width, height, e);
    size_t row = (size_t)from->width * PIXELS_CHANNELS;
    for (int y = 0; rc == 0 && y < height; y++) {
        uint8_t *to = out->rgb + (size_t)y * (size_t)width * PIXELS_CHANNELS;
        for (int x = 0; x < width; x++, to += PIXELS_CHANNELS) {
            int            i = along_x ? x : y;
            const uint8_t *at = along_x ? from->rgb + (size_t)y * row + (size_t)t.first[i] * PIXELS_CHANNELS
                                        : from->rgb + (size_t)t.first[i] * row + (size_t)x * PIXELS_CHANNELS;
            mix(to, at, along_x ? PIXELS_CHANNELS : row, t.weight + (size_t)i * (size_t)t.stride, t.count[i]);
        }
    }
    taps_deinit(&t);
    return rc;
}

int pixels_resize(pixels *out, const pixels *from, int width, int height, pixels_filter filter, err *e) {
    pixels between = { 0 };
    int    rc = 0;
    *out = (pixels){ 0 };
    if (width <= 0 || height <= 0) return err_set(e, ERR_ARG, "a picture cannot have %d x %d pixels", width, height);
    if (width == from->width && height == from->height) return pixels_crop(out, from, 0, 0, width, height, e);
    if (width == from->width || height == from->height) return pass(out, from, width, height, filter, e);
    rc = pass(&between, from, width, from->height, filter, e);
    if (rc == 0) rc = pass(out, &between, width, height, filter, e);
    pixels_deinit(&between);
    if (rc < 0) pixels_deinit(out);
    return rc;
}
