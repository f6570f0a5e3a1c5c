/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/convert/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    double  most, log_sum;
    int32_t top;
} row;

static row look(const float *v, int64_t n) {
    row r = { .most = -INFINITY };
    for (int64_t i = 0; i < n; i++) {
        if ((double)v[i] > r.most) {
            r.most = v[i];
            r.top = (int32_t)i;
        }
    }
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += exp((double)v[i] - r.most);
    r.log_sum = log(fmax(sum, 1)) + r.most; /* the largest alone adds 1 */
    return r;
}

double compare_log_sum(const float *v, int64_t n) { return look(v, n).log_sum; }
double compare_surprise(const float *v, int64_t n, int32_t token) { return look(v, n).log_sum - (double)v[token]; }

compare_token compare_rows(const float *a, const float *b, int64_t n, int32_t next) {
    row    x = look(a, n), y = look(b, n);
    double kl = 0;
    for (int64_t i = 0; i < n; i++) {
        double log_p = (double)a[i] - x.log_sum, log_q = (double)b[i] - y.log_sum;
        if (log_p > -700) kl += exp(log_p) * (log_p - log_q);
    }
    return (compare_token){ .kl = (float)(kl > 0 ? kl : 0),
                            .nll_a = (float)(x.log_sum - (double)a[next]),
                            .nll_b = (float)(y.log_sum - (double)b[next]),
                            .same = x.top == y.top,
                            .id = next,
                            .top_a = x.top,
                            .top_b = y.top };
}

static int by_kl(const void *a, const void *b) {
    const compare_token *x = a, *y = b;
    if (x->kl != y->kl) return x->kl > y->kl ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Mean and its standard error. */
typedef struct mean {
    double sum, squares;
} mean;

static void add(mean *m, double v) {
    m->sum += v;
    m->squares += v * v;
}

static double error_of(const mean *m, size_t n) {
    double average = m->sum / (double)n, spread = m->squares / (double)n - average * average;
    return n > 1 && spread > 0 ? sqrt(spread / (double)(n - 1)) : 0;
}

/* The value that a part of the tokens (the largest first) is above. */
static double above(const compare_token *t, size_t n, double part) {
    size_t at = (size_t)(part * (double)n);
    return (double)t[at < n ? at : n - 1].kl;
}

void compare_figures_of(compare_token *t, size_t n, compare_figures *f) {
    mean kl = { 0 }, same = { 0 }, a = { 0 }, b = { 0 }, d = { 0 };
    memset(f, 0, sizeof *f);
    f->n = n;
    if (n == 0) return;
    qsort(t, n, sizeof *t, by_kl);
    for (size_t i = 0; i < n; i++) {
        add(&kl, t[i].kl);
        add(&same, t[i].same);
        add(&a, t[i].nll_a);
        add(&b, t[i].nll_b);
        add(&d, (double)t[i].nll_b - (double)t[i].nll_a);
    }
    double count = (double)n;
    f->kl_mean = kl.sum / count;
    f->kl_error = error_of(&kl, n);
    f->kl_median = above(t, n, 0.5);
    f->kl_90 = above(t, n, 0.1);
    f->kl_99 = above(t, n, 0.01);
    f->kl_max = (double)t[0].kl;
    f->same = same.sum / count;
    f->same_error = error_of(&same, n);
    f->ppl_a = exp(a.sum / count);
    f->ppl_a_error = error_of(&a, n) * f->ppl_a;
    f->ppl_b = exp(b.sum / count);
    f->ppl_b_error = error_of(&b, n) * f->ppl_b;
    f->ratio = exp(d.sum / count);
    f->ratio_error = error_of(&d, n) * f->ratio;
}

/* --- picture ----------------------------------------------------------------------------------------------------- */

enum { BINS = 48, WIDTH = 720, HEIGHT = 320, LEFT = 50, BOTTOM = 60, TOP = 50 };
static const double LOW = -8, HIGH = 2; /* log10 of the divergence */

static void put_xml(str *out, const char *text) {
    for (; *text; text++) {
        switch (*text) {
        case '<': str_puts(out, "&lt;"); break;
        case '>': str_puts(out, "&gt;"); break;
        case '&': str_puts(out, "&amp;"); break;
        default: str_push(out, (unsigned char)*text < 32 ? '?' : *text);
        }
    }
}

static double place(double log10_kl) { return LEFT + (log10_kl - LOW) / (HIGH - LOW) * (WIDTH - LEFT - 20); }

static void put_bars(const compare_token *t, size_t n, str *out) {
    size_t count[BINS] = { 0 }, most = 1;
    for (size_t i = 0; i < n; i++) {
        double v = t[i].kl > 0 ? log10((double)t[i].kl) : LOW;
        int    bin = (int)((v - LOW) / (HIGH - LOW) * BINS);
        count[bin < 0 ? 0 : bin >= BINS ? BINS - 1 : bin]++;
    }
    for (int k = 0; k < BINS; k++) most = count[k] > most ? count[k] : most;
    for (int k = 0; k < BINS; k++) {
        double x = place(LOW + (HIGH - LOW) * k / BINS), w = (double)(WIDTH - LEFT - 20) / BINS - 1;
        double h = (double)count[k] / (double)most * (HEIGHT - TOP - BOTTOM);
        str_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#4a7fb5\"/>\n", x,
                   HEIGHT - BOTTOM - h, w, h);
    }
}

static void put_mark(double kl, const char *name, int row_y, str *out) {
    double x = place(kl > 0 ? log10(kl) : LOW);
    str_printf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\" stroke=\"#b5482a\"/>", x, x, TOP - 10,
               HEIGHT - BOTTOM);
    str_printf(out, "<text x=\"%.1f\" y=\"%d\" font-size=\"11\" fill=\"#b5482a\">%s %.3g</text>\n", x + 3, row_y, name,
               kl);
}

void compare_svg(const compare_token *t, size_t n, const compare_figures *f, const char *a, const char *b, str *out) {
    str_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n<text x=\"%d\" y=\"20\" font-size=\"13\">",
               WIDTH, HEIGHT, LEFT);
    put_xml(out, b);
    str_puts(out, " beside ");
    put_xml(out, a);
    str_printf(out, ": %zu tokens, %.2f%% with the same favourite</text>\n", n, 100 * f->same);
    put_bars(t, n, out);
    put_mark(f->kl_mean, "mean", TOP + 4, out);
    put_mark(f->kl_99, "99%", TOP + 18, out);
    for (int k = (int)LOW; k <= (int)HIGH; k += 2)
        str_printf(out, "<text x=\"%.1f\" y=\"%d\" font-size=\"11\" text-anchor=\"middle\">1e%d</text>\n", place(k),
                   HEIGHT - BOTTOM + 16, k);
    str_printf(out,
               "<text x=\"%d\" y=\"%d\" font-size=\"12\">KL divergence of a token's prediction, nats</text>\n</svg>\n",
               LEFT, HEIGHT - 18);
}
