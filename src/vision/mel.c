/* SPDX-License-Identifier: Apache-2.0 */
/* In double precision: quiet frequencies stand 1e-8 below the loudest ones, and single precision would lose them. */
#include "vision/mel.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    WHISPER_WINDOW = 400,
    GEMMA4_WINDOW = 320,
    GEMMA4_LENGTH = 512,
    GEMMA3N_WINDOW = 512,
    GEMMA3N_LENGTH = 1024,
    GEMMA3N_WHOLE = 128, /* samples; a sound is padded to a multiple */
    MAX_LENGTH = 1024,
    MAX_HALF = MAX_LENGTH / 2,
    MAX_FREQS = MAX_HALF + 1,
    MAX_RADIX = 5
};

typedef struct tables {
    int    window, length, freqs; /* samples of a frame; of the transform, the rest are zero; frequencies */
    double hann[MAX_LENGTH];
    double cosine[MAX_LENGTH], sine[MAX_LENGTH]; /* of so many parts of a turn */
    int    from[MAX_FREQS], to[MAX_FREQS];       /* of each mel bin: frequencies that it sums */
    double weight[MAX_FREQS][MAX_FREQS];         /* [mel bin][frequency] */
} tables;

typedef struct waves {
    double re[MAX_HALF], im[MAX_HALF];
} waves;

/* Slaney's scale: linear up to 1000 Hz, which is 15, then 27 steps for every factor of 6.4. */
static double slaney_hertz(double m) { return m < 15 ? m * 200 / 3 : 1000 * exp((m - 15) * log(6.4) / 27); }
static double slaney_top(void) { return 15 + log(SOUND_RATE / 2000.0) * 27 / log(6.4); }
static double htk_hertz(double m) { return 700 * (pow(10, m / 2595) - 1); }
static double htk_of(double hertz) { return 2595 * log10(1 + hertz / 700); }

/* from, top: the scale's values of the lowest and highest frequency; area: every triangle has one of one, else a
 * height of one. */
static void make_filters(tables *t, int bins, double (*hertz)(double), double from, double top, bool area) {
    double step = (top - from) / (bins + 1);
    for (int m = 0; m < bins; m++) {
        double lo = hertz(from + step * m), mid = hertz(from + step * (m + 1)), hi = hertz(from + step * (m + 2));
        t->from[m] = t->freqs;
        for (int k = 0; k < t->freqs; k++) {
            double f = (double)k * SOUND_RATE / t->length, up = (f - lo) / (mid - lo), down = (hi - f) / (hi - mid);
            double w = up < down ? up : down;
            t->weight[m][k] = w > 0 ? w * (area ? 2 / (hi - lo) : 1) : 0;
            if (w <= 0) continue;
            if (t->from[m] == t->freqs) t->from[m] = k;
            t->to[m] = k + 1;
        }
    }
}

static tables *make_tables(int window, int length) {
    tables *t = calloc(1, sizeof *t);
    double  turn = 2 * acos(-1.0);
    if (!t) return NULL;
    t->window = window;
    t->length = length;
    t->freqs = length / 2 + 1;
    for (int i = 0; i < window; i++) t->hann[i] = 0.5 - 0.5 * cos(turn * i / window);
    for (int i = 0; i < length; i++) {
        t->cosine[i] = cos(turn * i / length);
        t->sine[i] = sin(turn * i / length);
    }
    return t;
}

/* A step of Stockham's transform: `lines` transforms of `len` numbers, a line's numbers so many apart, become
 * lines * radix of len / radix. */
static void transform_step(const tables *t, const waves *restrict from, waves *restrict to, int len, int radix,
                           int lines) {
    int part = len / radix, whole = t->length, step = whole / len;
    for (int p = 0; p < part; p++) {
        for (int j = 0; j < radix; j++) {
            double re[MAX_RADIX], im[MAX_RADIX];
            size_t out = (size_t)(lines * (radix * p + j));
            for (int k = 0; k < radix; k++) { /* what number k of a line is turned by */
                int at = j * p * step + j * k % radix * part * step;
                if (at >= whole) at -= whole;
                re[k] = t->cosine[at];
                im[k] = -t->sine[at];
            }
            for (int q = 0; q < lines; q++) to->re[out + (size_t)q] = to->im[out + (size_t)q] = 0;
            for (int k = 0; k < radix; k++) {
                const double *a = from->re + lines * (p + part * k), *b = from->im + lines * (p + part * k);
                for (int q = 0; q < lines; q++) {
                    to->re[out + (size_t)q] += a[q] * re[k] - b[q] * im[k];
                    to->im[out + (size_t)q] += a[q] * im[k] + b[q] * re[k];
                }
            }
        }
    }
}

/* The power of each frequency of a frame. Its even and odd samples are one transform of half the length, as real and
 * imaginary parts. */
static void power_of(const tables *t, const double frame[MAX_LENGTH], double power[MAX_FREQS]) {
    waves room[2], *x = &room[0], *next = &room[1];
    int   half = t->length / 2; /* 2, 4 and 5 times each other */
    for (int i = 0; i < half; i++) {
        x->re[i] = frame[2 * i];
        x->im[i] = frame[2 * i + 1];
    }
    for (int len = half, lines = 1; len > 1;) {
        int    radix = len % 5 == 0 ? 5 : len % 4 == 0 ? 4 : 2;
        waves *old = x;
        assert(len % radix == 0);
        transform_step(t, x, next, len, radix, lines);
        x = next;
        next = old;
        len /= radix;
        lines *= radix;
    }
    for (int k = 0; k < t->freqs; k++) { /* apart again: the odd ones turn */
        int    a = k % half, b = (half - k) % half;
        double even_re = (x->re[a] + x->re[b]) / 2, // cppcheck-suppress uninitvar ; filled by the steps above
            even_im = (x->im[a] - x->im[b]) / 2;
        double odd_re = (x->im[a] + x->im[b]) / 2, odd_im = (x->re[b] - x->re[a]) / 2;
        double c = t->cosine[k], s = t->sine[k];
        double re = even_re + odd_re * c + odd_im * s, im = even_im + odd_im * c - odd_re * s;
        power[k] = re * re + im * im;
    }
}

/* The sum of a mel bin. */
static double bin_of(const tables *t, const double power[MAX_FREQS], int m) {
    double sum = 0;
    for (int k = t->from[m]; k < t->to[m]; k++) sum += power[k] * t->weight[m][k];
    return sum;
}

static int take(mel *out, tables *t, int frames, int bins, err *e) {
    *out = (mel){ .bins = bins, .frames = frames, .at = calloc((size_t)frames * (size_t)bins, sizeof *out->at) };
    if (t && out->at) return 0;
    free(t);
    mel_free(out);
    return err_set_nomem(e);
}

static int refuse(mel *out, int bins, int samples, err *e) {
    *out = (mel){ 0 };
    return err_set(e, ERR_ARG, "%d mel bins of %d samples cannot be made", bins, samples);
}

/* --- Whisper --- */

/* Sample i of the padded sound of n; mirrored outside of it. */
static double mirrored(const sound *s, int64_t i, int64_t n) {
    if (i < 0) i = -i;
    if (i >= n) i = 2 * (n - 1) - i;
    return i < s->n ? (double)s->at[i] : 0;
}

static void put_whisper(float *out, const tables *t, const sound *s, int64_t at, int64_t n, int bins) {
    double frame[MAX_LENGTH], power[MAX_FREQS] = { 0 };
    bool   silent = true;
    for (int i = 0; i < t->window; i++) {
        frame[i] = t->hann[i] * mirrored(s, at + i, n);
        silent = silent && frame[i] == 0;
    }
    if (!silent) power_of(t, frame, power);
    for (int m = 0; m < bins; m++) {
        double sum = bin_of(t, power, m);
        out[m] = (float)log10(sum > 1e-10 ? sum : 1e-10);
    }
}

static void settle(mel *m) {
    size_t n = (size_t)m->frames * (size_t)m->bins;
    float  top = m->at[0];
    for (size_t i = 1; i < n; i++) top = m->at[i] > top ? m->at[i] : top;
    for (size_t i = 0; i < n; i++) m->at[i] = ((m->at[i] < top - 8 ? top - 8 : m->at[i]) + 4) / 4;
}

/* Of the sound with silence behind it, n samples together. */
static int make_whisper(mel *out, const sound *s, int bins, int64_t n, err *e) {
    if (bins < 1 || bins > WHISPER_WINDOW / 2 + 1 || s->n < 1 || n <= WHISPER_WINDOW / 2)
        return refuse(out, bins, s->n, e);
    tables *t = make_tables(WHISPER_WINDOW, WHISPER_WINDOW);
    if (take(out, t, (int)(n / MEL_HOP), bins, e) < 0) return ERR_NOMEM;
    make_filters(t, bins, slaney_hertz, 0, slaney_top(), true);
    for (int64_t i = 0; i < out->frames; i++)
        put_whisper(out->at + (size_t)i * (size_t)bins, t, s, i * MEL_HOP - WHISPER_WINDOW / 2, n, bins);
    settle(out);
    free(t);
    return 0;
}

int mel_make_whisper(mel *out, const sound *s, int bins, int piece_frames, err *e) {
    int64_t piece = (int64_t)piece_frames * MEL_HOP;
    return make_whisper(out, s, bins, (s->n + piece - 1) / piece * piece, e);
}

int mel_make_whisper_bare(mel *out, const sound *s, int bins, int least, err *e) {
    return make_whisper(out, s, bins, s->n < least ? least : s->n, e);
}

/* --- Gemma 4 --- */

int mel_frames_gemma4(int n) { return n > MEL_HOP ? (n - 1) / MEL_HOP : 1; }

int mel_make_gemma4(mel *out, const float *samples, int n, int bins, err *e) {
    double frame[MAX_LENGTH] = { 0 }, power[MAX_FREQS];
    if (bins < 1 || bins > MEL_MOST_BINS || n < 1) return refuse(out, bins, n, e);
    tables *t = make_tables(GEMMA4_WINDOW, GEMMA4_LENGTH);
    if (take(out, t, mel_frames_gemma4(n), bins, e) < 0) return ERR_NOMEM;
    make_filters(t, bins, htk_hertz, 0, htk_of(SOUND_RATE / 2.0), false);
    for (int f = 0; f < out->frames; f++) {
        for (int i = 0; i < GEMMA4_WINDOW; i++) {
            int64_t at = (int64_t)f * MEL_HOP + i - GEMMA4_WINDOW / 2;
            frame[i] = at >= 0 && at < n ? t->hann[i] * (double)samples[at] : 0;
        }
        power_of(t, frame, power);
        for (int k = 0; k < t->freqs; k++) power[k] = sqrt(power[k]);
        for (int m = 0; m < bins; m++)
            out->at[(size_t)f * (size_t)bins + (size_t)m] = (float)log(bin_of(t, power, m) + 0.001);
    }
    free(t);
    return 0;
}

/* --- Gemma 3n --- */

int mel_frames_gemma3n(int n) {
    int64_t padded = ((int64_t)n + GEMMA3N_WHOLE - 1) / GEMMA3N_WHOLE * GEMMA3N_WHOLE;
    return padded > GEMMA3N_WINDOW ? (int)((padded - GEMMA3N_WINDOW - 1) / MEL_HOP) + 1 : 1;
}

int mel_make_gemma3n(mel *out, const float *samples, int n, int bins, err *e) {
    const double sharper = 0.97;
    double       frame[MAX_LENGTH] = { 0 }, power[MAX_FREQS];
    if (bins < 1 || bins > MEL_MOST_BINS || n < 1) return refuse(out, bins, n, e);
    tables *t = make_tables(GEMMA3N_WINDOW, GEMMA3N_LENGTH);
    if (take(out, t, mel_frames_gemma3n(n), bins, e) < 0) return ERR_NOMEM;
    make_filters(t, bins, htk_hertz, htk_of(125), htk_of(7600), false);
    for (int f = 0; f < out->frames; f++) {
        double before = 0;
        for (int i = 0; i < GEMMA3N_WINDOW; i++) {
            int64_t at = (int64_t)f * MEL_HOP + i;
            double  now = at < n ? (double)samples[at] : 0;
            frame[i] = t->hann[i] * (i ? now - sharper * before : now * (1 - sharper));
            before = now;
        }
        power_of(t, frame, power);
        for (int k = 0; k < t->freqs; k++) power[k] = sqrt(power[k]);
        for (int m = 0; m < bins; m++) {
            double sum = bin_of(t, power, m);
            out->at[(size_t)f * (size_t)bins + (size_t)m] = (float)log(sum > 1e-5 ? sum : 1e-5);
        }
    }
    free(t);
    return 0;
}

void mel_free(mel *m) {
    free(m->at);
    *m = (mel){ 0 };
}
