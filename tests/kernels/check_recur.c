/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The recurrences against double precision, and their invariance bit for bit: a prompt in pieces of any length and
 * heads or channels in any split give the same outputs and the same state. Buffers end at unmapped memory.
 */
#include "kernels/check.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct vec {
    check_guard g;
    float      *p;
} vec;

/* A NaN stays: an error that is not a number must not pass. */
static double larger(double a, double b) { return isnan(a) || b <= a ? a : b; }

static vec vec_new(check *c, size_t n, float scale) {
    vec v = { .g = check_guard_alloc(n * sizeof(float), 0) };
    v.p = (float *)(void *)v.g.data;
    check_fill_normal(c, v.p, n, scale);
    return v;
}

static vec vec_copy(const vec *a) {
    vec v = { .g = check_guard_alloc(a->g.bytes, 0) };
    v.p = (float *)(void *)v.g.data;
    memcpy(v.p, a->p, a->g.bytes);
    return v;
}

static bool vec_same(const vec *a, const vec *b) { return memcmp(a->p, b->p, a->g.bytes) == 0; }
static void vec_free(check *c, vec *v) { CHECK(c, check_guard_free(&v->g), "canary of %zu bytes", v->g.bytes); }

static double *doubles(const vec *v) {
    const size_t n = v->g.bytes / sizeof(float);
    double      *d = malloc(n * sizeof *d + 1);
    if (!d) abort();
    for (size_t i = 0; i < n; i++) d[i] = (double)v->p[i];
    return d;
}

static double worst_of(const vec *got, const double *want) {
    double worst = 0;
    for (size_t i = 0; i < got->g.bytes / sizeof(float); i++) {
        const double e = fabs((double)got->p[i] - want[i]) / (1 + fabs(want[i]));
        if (!(e <= worst)) worst = e;
    }
    return worst;
}

static int64_t piece_len(check *c, int64_t left) {
    const int64_t n = check_int(c, 0, 2) ? check_int(c, 1, 9) : 1;
    return n < left ? n : left;
}

/* The rows run as (unpadded) [n_rows][channels]; outputs and state are compared. */
static void check_conv(check *c, const kernels *k, int width, int channels, int rows, bool silu, bool bias) {
    const size_t n = (size_t)rows * (size_t)channels, hist = (size_t)(width - 1) * (size_t)channels;
    vec x = vec_new(c, n, 1), w = vec_new(c, (size_t)channels * (size_t)width, 1), b = vec_new(c, (size_t)channels, 1);
    vec s0 = vec_new(c, hist, 1), s1 = vec_copy(&s0), s2 = vec_copy(&s0), y1 = vec_new(c, n, 0), y2 = vec_new(c, n, 0);
    const size_t st = (size_t)channels;
    recur_conv   a = { .y = y1.p,
                       .x = x.p,
                       .y_stride = st,
                       .x_stride = st,
                       .n_rows = rows,
                       .w = w.p,
                       .width = width,
                       .bias = bias ? b.p : NULL,
                       .state = s1.p,
                       .state_stride = st,
                       .act = silu ? OPS_ACT_SILU : OPS_ACT_NONE };
    k->recur.conv1d(&a, 0, channels);
    double *want = doubles(&y1), *end = doubles(&s1);
    for (int t = 0; t < rows; t++) {
        for (int ch = 0; ch < channels; ch++) {
            double v = bias ? (double)b.p[ch] : 0;
            for (int i = 0; i < width; i++) {
                const int   at = t - (width - 1) + i;
                const float in =
                    at < 0 ? s0.p[(size_t)(at + width - 1) * st + (size_t)ch] : x.p[(size_t)at * st + (size_t)ch];
                v += (double)w.p[ch * width + i] * (double)in;
            }
            want[(size_t)t * st + (size_t)ch] = silu ? v / (1 + exp(-v)) : v;
        }
    }
    for (int i = 0; i < width - 1; i++) {
        for (int ch = 0; ch < channels; ch++) {
            const int at = rows - (width - 1) + i;
            end[(size_t)i * st + (size_t)ch] =
                (double)(at < 0 ? s0.p[(size_t)(at + width - 1) * st + (size_t)ch] : x.p[(size_t)at * st + (size_t)ch]);
        }
    }
    const double e = worst_of(&y1, want), es = worst_of(&s1, end);
    CHECK(c, e < 2e-6 && es == 0, "conv width %d, %d channels, %d rows: error %g, state %g", width, channels, rows, e,
          es);
    for (int64_t t = 0; t < rows;) {
        const int64_t m = piece_len(c, rows - t);
        const int     cut = check_int(c, 0, channels);
        recur_conv    p = a;
        p.y = y2.p + (size_t)t * st, p.x = x.p + (size_t)t * st, p.n_rows = m, p.state = s2.p;
        k->recur.conv1d(&p, cut, channels);
        k->recur.conv1d(&p, 0, cut);
        t += m;
    }
    CHECK(c, vec_same(&y1, &y2) && vec_same(&s1, &s2), "conv width %d, %d channels, %d rows: pieces differ", width,
          channels, rows);
    free(want), free(end);
    vec_free(c, &x), vec_free(c, &w), vec_free(c, &b), vec_free(c, &s0), vec_free(c, &s1), vec_free(c, &s2);
    vec_free(c, &y1), vec_free(c, &y2);
}

static void norm_rows(float *x, size_t rows, size_t dim) {
    for (size_t r = 0; r < rows; r++, x += dim) {
        double s = 1e-6;
        for (size_t i = 0; i < dim; i++) s += (double)x[i] * (double)x[i];
        for (size_t i = 0; i < dim; i++) x[i] = (float)((double)x[i] / sqrt(s));
    }
}

static void delta_want(const recur_delta *a, double *s, double *y) {
    double mem[RECUR_DIM_MAX];
    for (int64_t t = 0; t < a->n_rows; t++) {
        for (int h = 0; h < a->n_vh; h++) {
            const int    kh = a->k_tiled ? h % a->n_kh : h / (a->n_vh / a->n_kh);
            const float *q = a->q + (size_t)t * a->q_stride + (size_t)(kh * a->k_dim);
            const float *k = a->k + (size_t)t * a->k_stride + (size_t)(kh * a->k_dim);
            const float *v = a->v + (size_t)t * a->v_stride + (size_t)(h * a->v_dim);
            double      *st = s + (size_t)h * (size_t)a->k_dim * (size_t)a->v_dim,
                   *yo = y + ((size_t)t * (size_t)a->n_vh + (size_t)h) * (size_t)a->v_dim;
            memset(mem, 0, sizeof mem);
            for (int i = 0; i < a->k_dim; i++) {
                const double g =
                    (double)a->g[(size_t)t * a->g_stride + (size_t)(a->g_per_channel ? h * a->k_dim + i : h)];
                for (int j = 0; j < a->v_dim; j++) {
                    st[i * a->v_dim + j] *= exp(g);
                    mem[j] += (double)k[i] * st[i * a->v_dim + j];
                }
            }
            for (int j = 0; j < a->v_dim; j++) {
                const double u = ((double)v[j] - mem[j]) * (double)a->beta[(size_t)t * a->beta_stride + (size_t)h];
                yo[j] = 0;
                for (int i = 0; i < a->k_dim; i++) {
                    st[i * a->v_dim + j] += (double)k[i] * u;
                    yo[j] += (double)a->scale * (double)q[i] * st[i * a->v_dim + j];
                }
            }
        }
    }
}

static void check_delta(check *c, const kernels *k, int kd, int vd, int kh, int per, int rows, bool channel,
                        bool tiled) {
    const size_t r = (size_t)rows, vh = (size_t)(kh * per), qs = (size_t)(kh * kd), vs = vh * (size_t)vd;
    const size_t gs = channel ? vh * (size_t)kd : vh;
    vec q = vec_new(c, r * qs, 1), kk = vec_new(c, r * qs, 1), v = vec_new(c, r * vs, 1), g = vec_new(c, r * gs, 1);
    vec beta = vec_new(c, r * vh, 1), s1 = vec_new(c, vh * (size_t)kd * (size_t)vd, 0.3f), s2 = vec_copy(&s1);
    vec y1 = vec_new(c, r * vs, 0), y2 = vec_new(c, r * vs, 0);
    norm_rows(q.p, r * (size_t)kh, (size_t)kd);
    norm_rows(kk.p, r * (size_t)kh, (size_t)kd);
    for (size_t i = 0; i < r * gs; i++) g.p[i] = -fabsf(g.p[i]) * (check_int(c, 0, 9) ? 0.5f : 20.0f);
    for (size_t i = 0; i < r * vh; i++) beta.p[i] = 1 / (1 + expf(-beta.p[i]));
    recur_delta a = { .y = y1.p,
                      .q = q.p,
                      .k = kk.p,
                      .v = v.p,
                      .g = g.p,
                      .beta = beta.p,
                      .y_stride = vs,
                      .q_stride = qs,
                      .k_stride = qs,
                      .v_stride = vs,
                      .g_stride = gs,
                      .beta_stride = vh,
                      .n_rows = rows,
                      .n_kh = kh,
                      .n_vh = (int)vh,
                      .k_dim = kd,
                      .v_dim = vd,
                      .g_per_channel = channel,
                      .k_tiled = tiled,
                      .scale = 1 / sqrtf((float)kd),
                      .state = s1.p };
    double     *ws = doubles(&s1), *wy = doubles(&y1);
    delta_want(&a, ws, wy);
    k->recur.delta(&a, 0, (int)vh);
    const double e = worst_of(&y1, wy), es = worst_of(&s1, ws);
    CHECK(c, e < 1e-5 && es < 1e-5, "delta %dx%d heads %d/%d rows %d channel %d: error %g, state %g", kd, vd, (int)vh,
          kh, rows, channel, e, es);
    for (int64_t t = 0; t < rows;) {
        const int64_t m = piece_len(c, rows - t);
        const int     cut = check_int(c, 0, (int)vh);
        const size_t  at = (size_t)t;
        recur_delta   p = a;
        p.y = y2.p + at * vs, p.q += at * qs, p.k += at * qs, p.v += at * vs, p.g += at * gs, p.beta += at * vh;
        p.n_rows = m, p.state = s2.p;
        k->recur.delta(&p, cut, (int)vh);
        k->recur.delta(&p, 0, cut);
        t += m;
    }
    CHECK(c, vec_same(&y1, &y2) && vec_same(&s1, &s2), "delta %dx%d rows %d channel %d: pieces differ", kd, vd, rows,
          channel);
    free(ws), free(wy);
    vec_free(c, &q), vec_free(c, &kk), vec_free(c, &v), vec_free(c, &g), vec_free(c, &beta);
    vec_free(c, &s1), vec_free(c, &s2), vec_free(c, &y1), vec_free(c, &y2);
}

static void ssd_want(const recur_ssd *a, double *s, double *y) {
    for (int64_t t = 0; t < a->n_rows; t++) {
        for (int h = 0; h < a->n_head; h++) {
            const double raw =
                (double)a->dt[(size_t)t * a->dt_stride + (size_t)h] + (a->dt_bias ? (double)a->dt_bias[h] : 0);
            const double dt = larger((double)a->dt_min, fmin((double)a->dt_max, log1p(exp(raw)))),
                         e = exp(dt * (double)a->a[h]);
            const int g = h / (a->n_head / a->n_group);
            for (int p = 0; p < a->head_dim; p++) {
                const double x = (double)a->x[(size_t)t * a->x_stride + (size_t)(h * a->head_dim + p)];
                double       out = a->d ? (double)a->d[h] * x : 0;
                for (int i = 0; i < a->n_state; i++) {
                    double      *st = s + ((size_t)h * (size_t)a->n_state + (size_t)i) * (size_t)a->head_dim + p;
                    const size_t at = (size_t)(g * a->n_state + i);
                    *st = *st * e + dt * x * (double)a->b[(size_t)t * a->b_stride + at];
                    out += *st * (double)a->c[(size_t)t * a->c_stride + at];
                }
                y[(size_t)t * a->y_stride + (size_t)(h * a->head_dim + p)] = out;
            }
        }
    }
}

static void check_ssd(check *c, const kernels *k, int dim, int n_state, int heads, int groups, int rows, bool plain) {
    const size_t r = (size_t)rows, xs = (size_t)(heads * dim), bs = (size_t)(groups * n_state), nh = (size_t)heads;
    vec          x = vec_new(c, r * xs, 1), b = vec_new(c, r * bs, 0.5f), cc = vec_new(c, r * bs, 0.5f),
        dt = vec_new(c, r * nh, 2);
    vec av = vec_new(c, nh, 1), bias = vec_new(c, nh, 1), d = vec_new(c, nh, 1);
    vec s1 = vec_new(c, nh * (size_t)(n_state * dim), 0.3f), s2 = vec_copy(&s1), y1 = vec_new(c, r * xs, 0),
        y2 = vec_copy(&y1);
    for (size_t i = 0; i < nh; i++) av.p[i] = -fabsf(av.p[i]) - 0.1f;
    recur_ssd a = { .y = y1.p,
                    .x = x.p,
                    .b = b.p,
                    .c = cc.p,
                    .dt = dt.p,
                    .y_stride = xs,
                    .x_stride = xs,
                    .b_stride = bs,
                    .c_stride = bs,
                    .dt_stride = nh,
                    .n_rows = rows,
                    .n_head = heads,
                    .n_group = groups,
                    .head_dim = dim,
                    .n_state = n_state,
                    .a = av.p,
                    .dt_bias = plain ? NULL : bias.p,
                    .d = plain ? NULL : d.p,
                    .dt_min = plain ? 0.0f : 0.1f,
                    .dt_max = plain ? INFINITY : 1.5f,
                    .state = s1.p };
    double   *ws = doubles(&s1), *wy = doubles(&y1);
    ssd_want(&a, ws, wy);
    k->recur.ssd(&a, 0, heads);
    const double e = worst_of(&y1, wy), es = worst_of(&s1, ws);
    CHECK(c, e < 1e-5 && es < 1e-5, "ssd dim %d state %d heads %d/%d rows %d: error %g, state %g", dim, n_state, heads,
          groups, rows, e, es);
    for (int64_t t = 0; t < rows;) {
        const int64_t m = piece_len(c, rows - t);
        const int     cut = check_int(c, 0, heads);
        const size_t  at = (size_t)t;
        recur_ssd     p = a;
        p.y = y2.p + at * xs, p.x += at * xs, p.b += at * bs, p.c += at * bs, p.dt += at * nh, p.n_rows = m,
        p.state = s2.p;
        k->recur.ssd(&p, cut, heads);
        k->recur.ssd(&p, 0, cut);
        t += m;
    }
    CHECK(c, vec_same(&y1, &y2) && vec_same(&s1, &s2), "ssd dim %d state %d rows %d: pieces differ", dim, n_state,
          rows);
    free(ws), free(wy);
    vec_free(c, &x), vec_free(c, &b), vec_free(c, &cc), vec_free(c, &dt), vec_free(c, &av), vec_free(c, &bias),
        vec_free(c, &d);
    vec_free(c, &s1), vec_free(c, &s2), vec_free(c, &y1), vec_free(c, &y2);
}

static void scan_want(const recur_scan *a, double *s, double *y) {
    for (int64_t t = 0; t < a->n_rows; t++) {
        for (int64_t h = 0; h < a->n_channel; h++) {
            const size_t row = (size_t)t, ch = (size_t)h;
            const double dt = log1p(exp((double)a->dt[row * a->dt_stride + ch] + (double)a->dt_bias[ch]));
            const double x = (double)a->x[row * a->x_stride + ch];
            double       out = (double)a->d[ch] * x;
            for (int i = 0; i < a->n_state; i++) {
                double *st = s + (size_t)i * (size_t)a->n_channel + ch;
                *st = *st * exp(dt * (double)a->a[ch * (size_t)a->n_state + (size_t)i]) +
                      dt * x * (double)a->b[row * a->b_stride + (size_t)i];
                out += *st * (double)a->c[row * a->c_stride + (size_t)i];
            }
            y[row * a->y_stride + ch] = out;
        }
    }
}

static void check_scan(check *c, const kernels *k, int n, int n_state, int rows) {
    const size_t r = (size_t)rows, cs = (size_t)n, ns = (size_t)n_state;
    vec          x = vec_new(c, r * cs, 1), b = vec_new(c, r * ns, 0.5f), cc = vec_new(c, r * ns, 0.5f),
        dt = vec_new(c, r * cs, 2), av = vec_new(c, cs * ns, 1), bias = vec_new(c, cs, 1), d = vec_new(c, cs, 1);
    vec s1 = vec_new(c, cs * ns, 0.3f), s2 = vec_copy(&s1), y1 = vec_new(c, r * cs, 0), y2 = vec_copy(&y1);
    for (size_t i = 0; i < cs * ns; i++) av.p[i] = -fabsf(av.p[i]) - 0.1f;
    recur_scan a = { .y = y1.p,
                     .x = x.p,
                     .b = b.p,
                     .c = cc.p,
                     .dt = dt.p,
                     .y_stride = cs,
                     .x_stride = cs,
                     .b_stride = ns,
                     .c_stride = ns,
                     .dt_stride = cs,
                     .n_rows = rows,
                     .n_channel = n,
                     .n_state = n_state,
                     .a = av.p,
                     .dt_bias = bias.p,
                     .d = d.p,
                     .state = s1.p };
    double    *ws = doubles(&s1), *wy = doubles(&y1);
    scan_want(&a, ws, wy);
    k->recur.scan(&a, 0, n);
    const double e = worst_of(&y1, wy), es = worst_of(&s1, ws);
    CHECK(c, e < 1e-5 && es < 1e-5, "scan of %d, state %d, rows %d: error %g, state %g", n, n_state, rows, e, es);
    for (int64_t t = 0; t < rows;) {
        const int64_t m = piece_len(c, rows - t), cut = check_int(c, 0, n);
        const size_t  at = (size_t)t;
        recur_scan    p = a;
        p.y = y2.p + at * cs, p.x += at * cs, p.b += at * ns, p.c += at * ns, p.dt += at * cs, p.n_rows = m;
        p.state = s2.p;
        k->recur.scan(&p, cut, n);
        k->recur.scan(&p, 0, cut);
        t += m;
    }
    CHECK(c, vec_same(&y1, &y2) && vec_same(&s1, &s2), "scan of %d, state %d, rows %d: pieces differ", n, n_state,
          rows);
    free(ws), free(wy);
    vec_free(c, &x), vec_free(c, &b), vec_free(c, &cc), vec_free(c, &dt), vec_free(c, &av), vec_free(c, &bias);
    vec_free(c, &d), vec_free(c, &s1), vec_free(c, &s2), vec_free(c, &y1), vec_free(c, &y2);
}

static void check_decay(check *c, const kernels *k, int heads, int per) {
    const size_t n = (size_t)(heads * per);
    vec          x = vec_new(c, n, 10), a = vec_new(c, (size_t)heads, 1), b = vec_new(c, n, 1), g = vec_new(c, n, 0);
    k->recur.decay(g.p, x.p, a.p, b.p, heads, per);
    double worst = 0;
    for (size_t i = 0; i < n; i++) {
        const double v = (double)(x.p[i] + b.p[i]),
                     want = (double)a.p[i / (size_t)per] * (larger(v, 0) + log1p(exp(-fabs(v))));
        worst = larger(worst, fabs((double)g.p[i] - want) / (1e-30 + fabs(want)));
    }
    CHECK(c, worst < 1e-6, "decay of %d x %d: error %g", heads, per, worst);
    vec_free(c, &x), vec_free(c, &a), vec_free(c, &b), vec_free(c, &g);
}

int main(int argc, char **argv) {
    check   c;
    kernels k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    kernels_init(&k, c.cpu);
    for (int ch = 1; ch < 70; ch++)
        check_conv(&c, &k, check_int(&c, 2, RECUR_CONV_MAX), ch, check_int(&c, 1, 20), ch % 2, ch % 3);
    check_conv(&c, &k, 4, 1000, 30, true, true);
    for (int d = 1; d < 70; d++) {
        check_delta(&c, &k, check_int(&c, 1, 40), d, check_int(&c, 1, 3), check_int(&c, 1, 3), check_int(&c, 1, 20),
                    d % 2, d % 3 == 0);
        check_ssd(&c, &k, d, check_int(&c, 1, 40), 4, 1 << check_int(&c, 0, 2), check_int(&c, 1, 20), d % 2);
        check_scan(&c, &k, d, check_int(&c, 1, 40), check_int(&c, 1, 20));
        check_decay(&c, &k, d, check_int(&c, 0, 1) ? 1 : check_int(&c, 2, 40));
    }
    check_delta(&c, &k, 128, 128, 1, 2, c.quick ? 5 : 60, false, false);
    check_delta(&c, &k, 128, 128, 1, 1, c.quick ? 5 : 60, true, false);
    check_delta(&c, &k, RECUR_DIM_MAX, 72, 1, 1, 3, true, false);
    check_ssd(&c, &k, 64, 128, 2, 1, c.quick ? 5 : 60, false);
    check_scan(&c, &k, 100, RECUR_STATE_MAX, 3);
    return check_end(&c);
}
