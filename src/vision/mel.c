/* SPDX-License-Identifier: Apache-2.0 */
/* In double precision: quiet frequencies stand 1e-8 below the loudest ones, and single precision would lose them. */
#include "vision/mel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 400, HALF = WINDOW / 2, BINS = HALF + 1 };

typedef struct tables {
    double hann[WINDOW];
    double cosine[BINS][BINS], sine[BINS][BINS]; /* [sample][frequency] */
    int    from[BINS], to[BINS];                 /* of each mel bin: frequencies that it sums */
    double weight[BINS][BINS];                   /* [mel bin][frequency] */
} tables;

/* Slaney's scale: linear up to 1000 Hz, which is 15, then 27 steps for every factor of 6.4. */
static double hertz(double m) { return m < 15 ? m * 200 / 3 : 1000 * exp((m - 15) * log(6.4) / 27); }

static void make_filters(tables *t, int bins) {
    double top = 15 + log(SOUND_RATE / 2000.0) * 27 / log(6.4);
    for (int m = 0; m < bins; m++) {
        double lo = hertz(top * m / (bins + 1)), mid = hertz(top * (m + 1) / (bins + 1)),
               hi = hertz(top * (m + 2) / (bins + 1));
        t->from[m] = BINS;
        for (int k = 0; k < BINS; k++) {
            double f = (double)k * SOUND_RATE / WINDOW, up = (f - lo) / (mid - lo), down = (hi - f) / (hi - mid);
            double w = up < down ? up : down;
            t->weight[m][k] = w > 0 ? w * 2 / (hi - lo) : 0;
            if (w <= 0) continue;
            if (t->from[m] == BINS) t->from[m] = k;
            t->to[m] = k + 1;
        }
    }
}

static tables *make_tables(int bins) {
    tables *t = calloc(1, sizeof *t);
    double  turn = 2 * acos(-1.0) / WINDOW;
    if (!t) return NULL;
    for (int i = 0; i < WINDOW; i++) t->hann[i] = 0.5 - 0.5 * cos(turn * i);
    for (int i = 0; i < BINS; i++) {
        for (int k = 0; k < BINS; k++) {
            t->cosine[i][k] = cos(turn * (i * k % WINDOW));
            t->sine[i][k] = sin(turn * (i * k % WINDOW));
        }
    }
    make_filters(t, bins);
    return t;
}

/* Sample i of the padded sound of n; mirrored outside of it. */
static double sample(const sound *s, int64_t i, int64_t n) {
    if (i < 0) i = -i;
    if (i >= n) i = 2 * (n - 1) - i;
    return i < s->n ? (double)s->at[i] : 0;
}

/* The power of each frequency of a frame. The halves of the frame share cosines, and sines but for the sign. */
static void power_of(const tables *t, const double frame[WINDOW], double power[BINS]) {
    double re[BINS] = { 0 }, im[BINS] = { 0 };
    for (int i = 0; i < BINS; i++) {
        bool   single = i == 0 || i == HALF;
        double even = single ? frame[i] : frame[i] + frame[WINDOW - i], odd = single ? 0 : frame[i] - frame[WINDOW - i];
        for (int k = 0; k < BINS; k++) {
            re[k] += even * t->cosine[i][k];
            im[k] += odd * t->sine[i][k];
        }
    }
    for (int k = 0; k < BINS; k++) power[k] = re[k] * re[k] + im[k] * im[k];
}

static void put_frame(float *out, const tables *t, const sound *s, int64_t at, int64_t n, int bins) {
    double frame[WINDOW], power[BINS] = { 0 };
    bool   silent = true;
    for (int i = 0; i < WINDOW; i++) {
        frame[i] = t->hann[i] * sample(s, at + i, n);
        silent = silent && frame[i] == 0;
    }
    if (!silent) power_of(t, frame, power);
    for (int m = 0; m < bins; m++) {
        double sum = 0;
        for (int k = t->from[m]; k < t->to[m]; k++) sum += power[k] * t->weight[m][k];
        out[m] = (float)log10(sum > 1e-10 ? sum : 1e-10);
    }
}

static void settle(mel *m) {
    size_t n = (size_t)m->frames * (size_t)m->bins;
    float  top = m->at[0];
    for (size_t i = 1; i < n; i++) top = m->at[i] > top ? m->at[i] : top;
    for (size_t i = 0; i < n; i++) m->at[i] = ((m->at[i] < top - 8 ? top - 8 : m->at[i]) + 4) / 4;
}

int mel_make(mel *out, const sound *s, int bins, int piece_frames, err *e) {
    int64_t piece = (int64_t)piece_frames * MEL_HOP, n = (s->n + piece - 1) / piece * piece;
    *out = (mel){ .bins = bins, .frames = (int)(n / MEL_HOP) };
    if (bins < 1 || bins > BINS || s->n < 1 || n <= HALF)
        return err_set(e, ERR_ARG, "%d mel bins of %d samples cannot be made", bins, s->n);
    tables *t = make_tables(bins);
    out->at = calloc((size_t)out->frames * (size_t)bins, sizeof *out->at);
    if (!t || !out->at) {
        free(t);
        mel_free(out);
        return err_set_nomem(e);
    }
    for (int64_t i = 0; i < out->frames; i++)
        put_frame(out->at + (size_t)i * (size_t)bins, t, s, i * MEL_HOP - HALF, n, bins);
    settle(out);
    free(t);
    return 0;
}

void mel_free(mel *m) {
    free(m->at);
    *m = (mel){ 0 };
}
