/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another rate: `up` new samples for `down` old ones, in lowest terms. New sample i stands at old place i * down / up, whose
 * fraction has `up` possible values; each has a row of weights over the old samples around it (a sinc, at the lower of the two
 * rates' frequency, under a Kaiser window). What lies outside of the sound is silence.
 */
#include "sound/sound.h"

#include <math.h>
#include <stdlib.h>

/* Zero crossings of the sinc on each side, where it cuts (of the lower Nyquist frequency), and the window's shape. */
enum { CROSSINGS = 48 };
#define CUT 0.945
#define BETA 9.0

static int common(int a, int b) { return b ? common(b, a % b) : a; }

/* The modified Bessel function of order zero. */
static double bessel(double x) {
    double sum = 1, term = 1;
    for (int k = 1; k < 64 && term > sum * 1e-17; k++) {
        term *= x / (2 * k) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

typedef struct weights {
    int    up, down, half; /* half: old samples on each side */
    double width;          /* of a crossing, in old samples */
    float *rows;           /* [up][2 * half] */
    bool  *made;           /* [up]: rates that share little have thousands, and a short sound needs few of them */
} weights;

/* The row's old samples stand at 1 - half ... half from the one before the place. Each row sums to one: a constant stays. */
static void fill_row(const weights *w, int phase) {
    float *row = w->rows + (size_t)phase * 2 * (size_t)w->half;
    double sum = 0, pi = acos(-1.0), top = bessel(BETA);
    for (int k = 0; k < 2 * w->half; k++) {
        double x = (k + 1 - w->half - (double)phase / w->up) / w->width, edge = x / CROSSINGS;
        double sinc = fabs(x) < 1e-12 ? 1 : sin(pi * x) / (pi * x);
        double v = fabs(edge) < 1 ? sinc * bessel(BETA * sqrt(1 - edge * edge)) / top : 0;
        row[k] = (float)v;
        sum += v;
    }
    for (int k = 0; k < 2 * w->half; k++) row[k] = (float)((double)row[k] / sum);
    w->made[phase] = true;
}

static int weights_make(weights *w, int rate, err *e) {
    int shared = common(SOUND_RATE, rate);
    w->up = SOUND_RATE / shared;
    w->down = rate / shared;
    w->width = (rate > SOUND_RATE ? (double)rate / SOUND_RATE : 1) / CUT;
    w->half = (int)ceil(CROSSINGS * w->width) + 1;
    w->rows = calloc((size_t)w->up * 2 * (size_t)w->half, sizeof *w->rows);
    w->made = calloc((size_t)w->up, sizeof *w->made);
    return w->rows && w->made ? 0 : err_set_nomem(e);
}

static const float *row_of(const weights *w, int phase) {
    if (!w->made[phase]) fill_row(w, phase);
    return w->rows + (size_t)phase * 2 * (size_t)w->half;
}

static float weigh(const float *row, const float *from, int n) {
    enum { LANES = 8 }; /* a fixed order, which the compiler can do side by side */
    float lane[LANES] = { 0 }, sum = 0;
    int   i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int k = 0; k < LANES; k++) lane[k] += row[i + k] * from[i + k];
    }
    for (; i < n; i++) sum += row[i] * from[i];
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

int64_t sound_length(int64_t n, int rate) { return (n * SOUND_RATE + rate - 1) / rate; }

int sound_resample(sound *out, const float *from, int n, int rate, err *e) {
    weights w = { 0 };
    *out = (sound){ 0 };
    if (n <= 0 || rate < SOUND_MIN_RATE || rate > SOUND_MAX_RATE || sound_length(n, rate) > INT32_MAX)
        return err_set(e, ERR_ARG, "%d samples of %d Hz cannot be a sound", n, rate);
    int rc = sound_init(out, (int)sound_length(n, rate), e);
    if (rc == 0) rc = weights_make(&w, rate, e);
    for (int64_t i = 0; rc == 0 && i < out->n; i++) {
        int64_t      at = i * w.down / w.up, first = at + 1 - w.half, last = at + w.half;
        const float *row = row_of(&w, (int)(i * w.down % w.up));
        int64_t      lo = first < 0 ? 0 : first, hi = last < n ? last + 1 : n;
        out->at[i] = lo < hi ? weigh(row + (lo - first), from + lo, (int)(hi - lo)) : 0;
    }
    if (rc < 0) sound_deinit(out);
    free(w.rows);
    free(w.made);
    return rc;
}
