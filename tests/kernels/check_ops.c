/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of kernels/ops.h against double precision: all short lengths and some long ones, every buffer ending
 * at unmapped memory (so odd lengths are misaligned), outputs with canaries, extreme values; and that a value does not
 * depend on its place in the row or on the rows beside it.
 */
#include "kernels/check.h"
#include "kernels/kernels.h"
#include "tensor/codec.h"
#include "tensor/half.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct vec {
    check_guard g;
    float      *p;
} vec;

/* A NaN stays: an error that is not a number must not pass. */
static double larger(double a, double b) { return isnan(a) || b <= a ? a : b; }

static vec vec_new(check *c, int64_t n, float scale) {
    vec v = { .g = check_guard_alloc((size_t)n * sizeof(float), 0) };
    v.p = (float *)(void *)v.g.data;
    check_fill_normal(c, v.p, (size_t)n, scale);
    return v;
}

static void vec_free(check *c, vec *v) {
    CHECK(c, check_guard_free(&v->g), "canary of a row of %zu bytes", v->g.bytes);
}

static bool bits_equal(const float *a, const float *b, int64_t n) { return memcmp(a, b, (size_t)n * sizeof *a) == 0; }

static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if ((double)got == want) return 0;
    if (isinf(got) || isinf(want)) return fabs(want) > (double)FLT_MAX * (1 - 1e-7) && isinf(got) ? 0 : 1e9;
    int e;
    frexp(want, &e);
    const double ulp = ldexp(1.0, e - 24 < -149 ? -149 : e - 24);
    return fabs((double)got - want) / ulp;
}

/* The lengths worth trying: every tail, then real sizes. */
static int64_t next_len(int64_t n) { return n < 70 ? n + 1 : n < 100 ? 1000 : n < 1001 ? 2048 : n < 2049 ? 4099 : 0; }

static double act_want(double x, ops_act act) {
    switch (act) {
    case OPS_ACT_SILU: return x / (1 + exp(-x));
    case OPS_ACT_GELU_TANH: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    case OPS_ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.7071067811865476);
    case OPS_ACT_RELU: return x > 0 ? x : 0;
    case OPS_ACT_RELU2: return x > 0 ? x * x : 0;
    case OPS_ACT_SIGMOID: return 1 / (1 + exp(-x));
    case OPS_ACT_TANH: return tanh(x);
    case OPS_ACT_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case OPS_ACT_EXP: return exp(x);
    case OPS_ACT_NONE:
    case OPS_ACT_SWIGLU_CLAMP:
    case OPS_ACT_COUNT: break;
    }
    return x;
}

/* How many ulps an activation may be off, or with `absolute` how many 1e-7 times |x|. */
static double act_limit(ops_act act, bool *absolute) {
    *absolute = act == OPS_ACT_GELU_TANH || act == OPS_ACT_GELU_ERF;
    switch (act) {
    case OPS_ACT_EXP: return 2;
    case OPS_ACT_SIGMOID:
    case OPS_ACT_TANH:
    case OPS_ACT_SOFTPLUS: return 4;
    case OPS_ACT_SILU: return 5;
    case OPS_ACT_GELU_TANH:
    case OPS_ACT_GELU_ERF: return 5;
    case OPS_ACT_NONE:
    case OPS_ACT_RELU:
    case OPS_ACT_RELU2:
    case OPS_ACT_SWIGLU_CLAMP:
    case OPS_ACT_COUNT: break;
    }
    return 1;
}

static void check_act_range(check *c, const kernels *k, ops_act act) {
    enum { N = 4096 };
    static float x[N], y[N];
    bool         absolute;
    const double limit = act_limit(act, &absolute);
    double       worst = 0;
    float        worst_x = 0;
    const int    rounds = c->quick ? 8 : 60;
    for (int r = 0; r < rounds; r++) {
        for (int i = 0; i < N; i++) {
            const double u = (double)(check_u64(c) >> 11) * 0x1p-53;
            if (r % 3 == 0) x[i] = (float)(u * 220 - 110);
            if (r % 3 == 1) x[i] = (float)(u * 20 - 10);
            if (r % 3 == 2) x[i] = (float)ldexp(u < 0.5 ? -1 - u : u + 0.5, check_int(c, -40, 6));
        }
        k->ops.act(y, x, N, act);
        for (int i = 0; i < N; i++) {
            const double want = act_want((double)x[i], act);
            double e = absolute ? fabs((double)y[i] - want) / (1e-7 * fabs((double)x[i]) + 1e-38) : ulps(y[i], want);
            /* x * sigma(x) where sigma has few bits left */
            if (act == OPS_ACT_SILU && fabs(want) < 1e-36) e = fabs((double)y[i] - want) / 1e-43;
            if (!(e <= worst)) worst = e, worst_x = x[i];
        }
    }
    CHECK(c, worst <= limit, "activation %d: error %g at %g, limit %g", (int)act, worst, (double)worst_x, limit);
}

static void check_act_special(check *c, const kernels *k) {
    float x[] = { NAN, INFINITY, -INFINITY, 0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_TRUE_MIN, 88.8f, -103.9f, 1e-30f };
    enum { N = sizeof x / sizeof *x };
    float y[N];
    k->ops.act(y, x, N, OPS_ACT_EXP);
    CHECK(c, isnan(y[0]) && isinf(y[1]) && y[2] == 0 && y[3] == 1 && y[4] == 1 && isinf(y[5]) && y[6] == 0 && y[7] == 1,
          "exp of special values");
    CHECK(c, isinf(y[8]) && y[9] == FLT_TRUE_MIN, "exp at the edges: %g %g", (double)y[8], (double)y[9]);
    k->ops.act(y, x, N, OPS_ACT_SIGMOID);
    CHECK(c, isnan(y[0]) && y[1] == 1 && y[2] == 0 && y[3] == 0.5f && y[5] == 1 && y[6] == 0,
          "sigmoid of special values");
    k->ops.act(y, x, N, OPS_ACT_TANH);
    CHECK(c, isnan(y[0]) && y[1] == 1 && y[2] == -1 && y[3] == 0 && y[5] == 1 && y[6] == -1, "tanh of special values");
    k->ops.act(y, x, N, OPS_ACT_SOFTPLUS);
    CHECK(c, isnan(y[0]) && isinf(y[1]) && y[2] == 0 && y[5] == FLT_MAX && y[6] == 0, "softplus of special values");
    k->ops.act(y, x, N, OPS_ACT_RELU);
    CHECK(c, isnan(y[0]) && isinf(y[1]) && y[2] == 0 && y[6] == 0, "relu of special values");
    k->ops.act(y, x, N, OPS_ACT_GELU_ERF);
    CHECK(c, isnan(y[0]) && isinf(y[1]) && y[5] == FLT_MAX && fabsf(y[6]) == 0, "gelu of special values");
}

static void check_acts(check *c, const kernels *k) {
    for (int a = OPS_ACT_NONE; a < OPS_ACT_SWIGLU_CLAMP; a++) check_act_range(c, k, (ops_act)a);
    check_act_special(c, k);
    for (int a = OPS_ACT_NONE; a < OPS_ACT_COUNT; a++) {
        for (int64_t n = 1; n; n = next_len(n)) {
            vec         x = vec_new(c, n, 3), u = vec_new(c, n, 3), y = vec_new(c, n, 0), one = vec_new(c, n, 0);
            const float alpha = 1.702f, lim = 2.0f;
            k->ops.glu(y.p, x.p, u.p, n, (ops_act)a, alpha, lim);
            double worst = 0;
            for (int64_t i = 0; i < n; i++) {
                double g = (double)x.p[i], up = (double)u.p[i], want = act_want(g, (ops_act)a) * up;
                if (a == OPS_ACT_SWIGLU_CLAMP) {
                    g = fmin(g, (double)lim);
                    up = larger(-(double)lim, fmin((double)lim, up));
                    want = (up + 1) * g / (1 + exp(-g * (double)alpha));
                }
                worst = larger(worst, fabs((double)y.p[i] - want) / (1 + fabs(want) + fabs(up * g)));
                k->ops.glu(one.p + i, x.p + i, u.p + i, 1, (ops_act)a, alpha, lim);
            }
            CHECK(c, worst < 1e-6, "glu %d of %d values: error %g", a, (int)n, worst);
            CHECK(c, bits_equal(y.p, one.p, n), "glu %d: a value depends on its place, n %d", a, (int)n);
            if (a < OPS_ACT_SWIGLU_CLAMP) {
                k->ops.act(y.p, x.p, n, (ops_act)a);
                for (int64_t i = 0; i < n; i++) k->ops.act(one.p + i, x.p + i, 1, (ops_act)a);
                CHECK(c, bits_equal(y.p, one.p, n), "act %d: a value depends on its place, n %d", a, (int)n);
                k->ops.act(x.p, x.p, n, (ops_act)a);
                CHECK(c, bits_equal(y.p, x.p, n), "act %d in place, n %d", a, (int)n);
            }
            vec_free(c, &x), vec_free(c, &u), vec_free(c, &y), vec_free(c, &one);
        }
    }
}

typedef struct norm_case {
    int64_t n;
    float   scale, eps;
} norm_case;

/* Rows are at odd strides; each is compared with double and with the same row alone at another address. */
static void check_norm_case(check *c, const kernels *k, norm_case t) {
    enum { ROWS = 3 };
    const int64_t n = t.n;
    const size_t  st = (size_t)n + 1;
    const int64_t total = (int64_t)st * ROWS - 1;
    vec           x = vec_new(c, total, t.scale), w = vec_new(c, n, 1), b = vec_new(c, n, 1);
    vec           y = vec_new(c, total, 0), one = vec_new(c, n, 0);
    for (int mode = 0; mode < 5; mode++) {
        memset(y.p, 0, (size_t)total * 4);
        const float  w_add = mode == 1 ? 1.0f : 0.0f;
        const float *wp = mode == 2 ? NULL : w.p;
        switch (mode) {
        case 0:
        case 1:
        case 2: k->ops.rms_norm(y.p, st, x.p, st, ROWS, n, wp, w_add, t.eps); break;
        case 3: k->ops.layer_norm(y.p, st, x.p, st, ROWS, n, w.p, b.p, t.eps); break;
        case 4: k->ops.l2_norm(y.p, st, x.p, st, ROWS, n, t.eps, 0.25f); break;
        }
        for (int r = 0; r < ROWS; r++) {
            const float *xr = x.p + (size_t)r * st, *yr = y.p + (size_t)r * st;
            double       sum = 0, sq = 0, worst = 0, mean = 0;
            double      *v = malloc((size_t)n * sizeof *v);
            if (!v) abort();
            for (int64_t i = 0; i < n; i++) {
                v[i] = (double)xr[i];
                sum += v[i];
            }
            if (mode == 3) mean = sum / (double)n;
            for (int64_t i = 0; i < n; i++) sq += (v[i] - mean) * (v[i] - mean);
            const double rs = mode == 4 ? 0.25 / sqrt(sq + (double)t.eps) : 1 / sqrt(sq / (double)n + (double)t.eps);
            for (int64_t i = 0; i < n; i++) {
                double want = (v[i] - mean) * rs;
                if (mode == 1) want *= (double)w.p[i] + 1;
                if (mode == 0 || mode == 3) want *= (double)w.p[i];
                if (mode == 3) want += (double)b.p[i];
                const double e = fabs((double)yr[i] - want) / (1 + fabs(want));
                if (!(e <= worst)) worst = e;
            }
            free(v);
            CHECK(c, worst < (mode == 3 ? 1e-5 : 4e-6), "norm %d of %d values, scale %g: error %g", mode, (int)n,
                  (double)t.scale, worst);
            if (mode == 0) {
                k->ops.rms_norm(one.p, 0, xr, 0, 1, n, w.p, 0.0f, t.eps);
                CHECK(c, bits_equal(one.p, yr, n), "norm of one row differs, n %d", (int)n);
            }
        }
        for (int r = 0; r + 1 < ROWS; r++) CHECK(c, y.p[(size_t)r * st + st - 1] == 0, "write between rows");
    }
    k->ops.rms_norm(y.p, st, x.p, st, ROWS, n, w.p, 0.0f, t.eps);
    k->ops.rms_norm(x.p, st, x.p, st, ROWS, n, w.p, 0.0f, t.eps);
    for (int r = 0; r < ROWS; r++) {
        CHECK(c, bits_equal(x.p + (size_t)r * st, y.p + (size_t)r * st, n), "norm in place, n %d", (int)n);
    }
    vec_free(c, &x), vec_free(c, &w), vec_free(c, &b), vec_free(c, &y), vec_free(c, &one);
}

static void check_norms(check *c, const kernels *k) {
    for (int64_t n = 1; n; n = next_len(n)) check_norm_case(c, k, (norm_case){ n, 1.0f, 1e-5f });
    check_norm_case(c, k, (norm_case){ 300, 1e4f, 1e-6f });
    check_norm_case(c, k, (norm_case){ 300, 1e-4f, 1e-6f });
    check_norm_case(c, k, (norm_case){ 8192, 1e8f, 1e-6f });
}

static void check_rows(check *c, const kernels *k) {
    for (int64_t n = 1; n; n = next_len(n)) {
        vec    x = vec_new(c, n, 2), z = vec_new(c, n, 2), y = vec_new(c, n, 0), w = vec_new(c, n, 2);
        double worst = 0;
        k->ops.softcap(y.p, x.p, n, 1.5f);
        for (int64_t i = 0; i < n; i++) worst = larger(worst, fabs((double)y.p[i] - 1.5 * tanh((double)x.p[i] / 1.5)));
        CHECK(c, worst < 1e-6, "softcap of %d: error %g", (int)n, worst);

        bool ok = true;
        k->ops.clip(y.p, x.p, n, 0.75f);
        for (int64_t i = 0; i < n; i++) ok = ok && y.p[i] == fminf(0.75f, fmaxf(-0.75f, x.p[i]));
        k->ops.add(y.p, x.p, z.p, n);
        for (int64_t i = 0; i < n; i++) ok = ok && y.p[i] == x.p[i] + z.p[i];
        k->ops.scale(y.p, x.p, 3.25f, n);
        for (int64_t i = 0; i < n; i++) ok = ok && y.p[i] == x.p[i] * 3.25f;
        CHECK(c, ok, "add or scale of %d", (int)n);

        worst = 0;
        memcpy(y.p, z.p, (size_t)n * 4);
        k->ops.axpy(y.p, x.p, -0.3f, n);
        for (int64_t i = 0; i < n; i++) {
            worst = larger(worst, fabs((double)y.p[i] - ((double)z.p[i] + (double)x.p[i] * (double)-0.3f)));
        }
        const float *rows[] = { x.p, z.p, w.p };
        const float  wt[] = { 0.5f, -2.0f, 0.125f };
        k->ops.weighted_sum(y.p, rows, wt, 3, n);
        for (int64_t i = 0; i < n; i++) {
            const double want = 0.5 * (double)x.p[i] - 2.0 * (double)z.p[i] + 0.125 * (double)w.p[i];
            worst = larger(worst, fabs((double)y.p[i] - want));
        }
        CHECK(c, worst < 4e-6, "axpy or weighted_sum of %d: error %g", (int)n, worst);
        vec_free(c, &x), vec_free(c, &z), vec_free(c, &y), vec_free(c, &w);
    }
}

static void check_rope(check *c, const kernels *k) {
    for (int nf = 1; nf <= 128; nf += nf < 34 ? 1 : 31) {
        enum { T = 3, H = 2 };
        const int32_t pos[2 * T] = { 0, 1048575, 777, 5, 6, 131071 }; /* two axes */
        uint8_t       axis[128];
        const size_t  hs = (size_t)(2 * nf + 3), xs = hs * H + 1;
        vec           inv = vec_new(c, nf, 1), cs = vec_new(c, T * 2 * nf, 0);
        vec           x = vec_new(c, (int64_t)xs * T - 1, 1), y = vec_new(c, (int64_t)xs * T - 1, 0);
        for (int i = 0; i < nf; i++) {
            inv.p[i] = (float)pow(10000.0, -(double)i / nf);
            axis[i] = (uint8_t)(i % 3 == 2);
        }
        for (int two = 0; two < 2; two++) {
            k->ops.rope_table(cs.p, pos, T, two ? axis : NULL, 0, 1, inv.p, nf, 1.25f);
            k->ops.rope_table(cs.p, pos, T, two ? axis : NULL, 1, T, inv.p, nf, 1.25f);
            double worst = 0;
            for (int t = 0; t < T; t++) {
                for (int i = 0; i < nf; i++) {
                    const long double a = (long double)pos[(two ? axis[i] : 0) * T + t] * (long double)inv.p[i];
                    worst = larger(worst, fabs((double)cs.p[t * 2 * nf + i] - (double)(cosl(a) * 1.25L)));
                    worst = larger(worst, fabs((double)cs.p[t * 2 * nf + nf + i] - (double)(sinl(a) * 1.25L)));
                }
            }
            CHECK(c, worst < 1.5e-7, "rope table of %d frequencies: error %g", nf, worst);
        }
        for (int style = 0; style < 2; style++) {
            memcpy(y.p, x.p, x.g.bytes);
            k->ops.rope(y.p, xs, T, hs, H, cs.p, nf, (ops_rope_style)style);
            double worst = 0;
            for (size_t i = 0; i < xs * T - 1; i++) {
                const size_t t = i / xs, in = i % xs, h = in / hs, d = in % hs;
                double       want = (double)x.p[i];
                if (h < H && d < (size_t)(2 * nf)) {
                    const size_t f = style ? d / 2 : d % (size_t)nf;
                    const bool   second = style ? d % 2 : d >= (size_t)nf;
                    const size_t other = style ? i ^ 0 : i;
                    const size_t mate = second ? other - (style ? 1 : (size_t)nf) : other + (style ? 1 : (size_t)nf);
                    const double co = (double)cs.p[t * 2 * (size_t)nf + f],
                                 si = (double)cs.p[(t * 2 + 1) * (size_t)nf + f];
                    want = second ? want * co + (double)x.p[mate] * si : want * co - (double)x.p[mate] * si;
                    worst = larger(worst, fabs((double)y.p[i] - want));
                } else {
                    CHECK(c, y.p[i] == x.p[i], "rope touched a value that it should not, %d frequencies", nf);
                }
            }
            CHECK(c, worst < 2e-6, "rope style %d, %d frequencies: error %g", style, nf, worst);
        }
        vec_free(c, &inv), vec_free(c, &cs), vec_free(c, &x), vec_free(c, &y);
    }
}

static void check_embed(check *c, const kernels *k) {
    static const tensor_type types[] = { TENSOR_F32,  TENSOR_F16,  TENSOR_BF16, TENSOR_Q8_0,
                                         TENSOR_Q4_0, TENSOR_Q6_K, TENSOR_Q4_K, TENSOR_Q5_1 };
    enum { ROWS = 7, COLS = 512, T = 5 };
    const int32_t ids[T] = { 6, 0, 3, 3, 5 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t row_bytes;
        if (!CHECK(c, tensor_row_bytes((int)types[i], COLS, &row_bytes), "row size")) continue;
        vec         x = vec_new(c, (int64_t)ROWS * COLS, 1), y = vec_new(c, (int64_t)(COLS + 1) * T - 1, 0);
        check_guard m = check_guard_alloc(row_bytes * ROWS, 0);
        float       want[COLS];
        for (int r = 0; r < ROWS; r++) {
            CHECK(c, tensor_quant_row((int)types[i], x.p + (size_t)r * COLS, m.data + (size_t)r * row_bytes, COLS),
                  "quantize");
        }
        const tensor_mat mat = { .type = types[i], .rows = ROWS, .cols = COLS, .data = m.data, .row_bytes = row_bytes };
        k->ops.embed(y.p, COLS + 1, &mat, ids, 0, 2, 0.5f);
        k->ops.embed(y.p, COLS + 1, &mat, ids, 2, T, 0.5f);
        for (int t = 0; t < T; t++) {
            double worst = 0;
            tensor_dequant_row((int)types[i], m.data + (size_t)ids[t] * row_bytes, want, COLS);
            for (int d = 0; d < COLS; d++) {
                worst = larger(worst, fabs((double)y.p[t * (COLS + 1) + d] - 0.5 * (double)want[d]));
            }
            CHECK(c, worst < 1e-6, "embedding of type %s: error %g", tensor_type_name((int)types[i]), worst);
        }
        CHECK(c, check_guard_free(&m), "canary of the embedding");
        vec_free(c, &x), vec_free(c, &y);
    }
}

static int falling(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

static int first_best(const double *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++) {
        if (x[i] > x[best]) best = i;
    }
    return best;
}

/* The best, or the sum of the two best choice values of a group. */
static double group_want(const double *score, const float *bias, int from, int n, bool two) {
    double x[512];
    for (int i = 0; i < n; i++) x[i] = score[from + i] + (bias ? (double)bias[from + i] : 0);
    qsort(x, (size_t)n, sizeof *x, falling);
    return two ? x[0] + x[1] : x[0];
}

/* Routing in double, written as the papers state it. */
static void route_want(const ops_route *r, const float *logits, const float *bias, int *idx, double *w) {
    const int n = r->n_expert;
    double    score[512], choice[512], top = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++) top = larger(top, (double)logits[i]);
    for (int i = 0; i < n; i++) sum += exp((double)logits[i] - top);
    for (int i = 0; i < n; i++) {
        score[i] = (double)logits[i];
        if (r->score == OPS_SCORE_SIGMOID) score[i] = 1 / (1 + exp(-(double)logits[i]));
        if (r->score == OPS_SCORE_SOFTMAX) score[i] = exp((double)logits[i] - top) / sum;
        choice[i] = score[i] + (bias ? (double)bias[i] : 0);
    }
    if (r->n_group > 1) {
        const int per = n / r->n_group;
        for (int g = 0; g < r->n_group; g++) {
            double v[64];
            for (int h = 0; h < r->n_group; h++) v[h] = group_want(score, bias, h * per, per, r->group_top2);
            int better = 0;
            for (int h = 0; h < g; h++) better += v[h] >= v[g];
            for (int h = g + 1; h < r->n_group; h++) better += v[h] > v[g];
            for (int e = g * per; better >= r->topk_group && e < (g + 1) * per; e++) choice[e] = -INFINITY;
        }
    }
    double total = 0;
    for (int i = 0; i < r->n_used; i++) {
        const int best = first_best(choice, n);
        idx[i] = best;
        choice[best] = -INFINITY;
        w[i] = r->score == OPS_SCORE_TOPK_SOFTMAX ? exp((double)logits[best] - top) : score[best];
        total += w[i];
    }
    for (int i = 0; i < r->n_used; i++) {
        if (r->score == OPS_SCORE_TOPK_SOFTMAX) w[i] /= total;
        if (r->renorm) w[i] /= (r->score == OPS_SCORE_TOPK_SOFTMAX ? 1 : total) + (double)r->renorm_eps;
        w[i] *= (double)r->scale;
    }
}

/* Phi MoE's mixer, as its authors' code states it: twice the largest, with its share among those near it. */
static void check_mixer(check *c, const kernels *k) {
    for (int round = 0; round < 100; round++) {
        const int n = check_int(c, 2, 70);
        ops_route r = { .n_expert = n, .n_used = 2, .score = OPS_SCORE_SPARSEMIXER, .scale = 1.0f, .jitter = 0.1f };
        vec       logits = vec_new(c, n, 2), scratch = vec_new(c, 2 * n, 0), w = vec_new(c, 2, 0);
        double    v[70], worst = 0;
        int32_t   idx[2];
        bool      ok = true;
        for (int i = 0; i < n; i++) v[i] = (double)logits.p[i];
        k->ops.route(&r, logits.p, NULL, idx, w.p, scratch.p);
        for (int j = 0; j < 2; j++) {
            const int    best = first_best(v, n);
            const double top = v[best];
            double       sum = 0;
            for (int i = 0; i < n; i++) {
                const double factor = larger(fabs((double)logits.p[i]), top);
                if (!((top - (double)logits.p[i]) / factor > 2 * 0.1)) sum += exp(v[i] - top);
            }
            ok = ok && idx[j] == best;
            worst = larger(worst, fabs((double)w.p[j] - 1 / sum));
            v[best] = -INFINITY;
        }
        CHECK(c, ok && worst < 1e-5, "mixer of %d: error %g", n, worst);
        vec_free(c, &logits), vec_free(c, &scratch), vec_free(c, &w);
    }
}

static void check_route(check *c, const kernels *k) {
    for (int round = 0; round < 300; round++) {
        static const int experts[] = { 4, 8, 32, 60, 64, 128, 256, 512 };
        const int        n = experts[check_int(c, 0, 7)];
        ops_route r = { .n_expert = n, .n_used = check_int(c, 1, n < 9 ? n / 2 : 8), .score = (ops_score)(round % 3) };
        if (n % 8 == 0 && n >= 64 && check_int(c, 0, 1)) r.n_group = 8, r.topk_group = check_int(c, 1, 8);
        r.group_top2 = check_int(c, 0, 1);
        r.renorm = check_int(c, 0, 1);
        r.renorm_eps = 1e-20f;
        r.scale = check_int(c, 0, 1) ? 2.5f : 1.0f;
        vec         logits = vec_new(c, n, 2), bias = vec_new(c, n, 0.1f), scratch = vec_new(c, 2 * n, 0);
        vec         w = vec_new(c, r.n_used, 0);
        check_guard gi = check_guard_alloc((size_t)r.n_used * 4, 0);
        int32_t    *idx = (int32_t *)(void *)gi.data;
        int         want_i[16];
        double      want_w[16], worst = 0;
        const bool  biased = check_int(c, 0, 1) && r.score != OPS_SCORE_TOPK_SOFTMAX;
        k->ops.route(&r, logits.p, biased ? bias.p : NULL, idx, w.p, scratch.p);
        route_want(&r, logits.p, biased ? bias.p : NULL, want_i, want_w);
        bool ok = true;
        for (int i = 0; i < r.n_used; i++) {
            ok = ok && idx[i] == want_i[i];
            worst = larger(worst, fabs((double)w.p[i] - want_w[i]));
        }
        CHECK(c, ok && worst < 1e-5, "routing %d of %d, score %d, groups %d/%d, bias %d: error %g", r.n_used, n,
              (int)r.score, r.topk_group, r.n_group, biased, worst);
        for (int i = 0; i < n; i++) logits.p[i] = (float)(i % 2); /* ties: the lower index wins */
        r.n_group = 0;
        k->ops.route(&r, logits.p, NULL, idx, w.p, scratch.p);
        ok = true;
        for (int i = 0; i < r.n_used; i++) ok = ok && idx[i] == (i < n / 2 ? 2 * i + 1 : 2 * (i - n / 2));
        CHECK(c, ok, "routing ties, %d of %d", r.n_used, n);
        for (int i = 0; i < n; i++) logits.p[i] = i % 2 ? (float)i : NAN; /* NaN reads as -inf */
        r.score = OPS_SCORE_SIGMOID;
        k->ops.route(&r, logits.p, NULL, idx, w.p, scratch.p);
        ok = true;
        for (int i = 0; i < r.n_used; i++) ok = ok && idx[i] % 2 == 1;
        CHECK(c, ok, "routing with NaN, %d of %d", r.n_used, n);
        CHECK(c, check_guard_free(&gi), "canary of routing");
        vec_free(c, &logits), vec_free(c, &bias), vec_free(c, &scratch), vec_free(c, &w);
    }
}

/* Rows of f16 and bf16 against the codec: every bit pattern, and every length of a row's end. */
static void check_halves(check *c, const kernels *k) {
    enum { N = 65536 };
    static uint16_t h[N];
    static float    f[N];
    const int32_t   first = 0;
    for (int i = 0; i < N; i++) h[i] = (uint16_t)i;
    for (int kind = 0; kind < 2; kind++) {
        tensor_mat m = {
            .type = kind ? TENSOR_BF16 : TENSOR_F16, .rows = 1, .cols = N, .data = h, .row_bytes = sizeof h
        };
        bool ok = true;
        k->ops.embed(f, N, &m, &first, 0, 1, 1.0f);
        for (int i = 0; i < N; i++) {
            const float want = kind ? tensor_bf16_to_f32(h[i]) : tensor_f16_to_f32(h[i]);
            ok = ok && (isnan(want) ? isnan(f[i]) : memcmp(&want, &f[i], 4) == 0);
        }
        CHECK(c, ok, "half format %d to f32", kind);
        for (int64_t n = 1; n < 70; n++) {
            vec         y = vec_new(c, n, 0);
            check_guard g = check_guard_alloc((size_t)n * 2, 0);
            memcpy(g.data, h + 0x3c00, (size_t)n * 2);
            m.cols = n, m.data = g.data, m.row_bytes = (size_t)n * 2;
            k->ops.embed(y.p, (size_t)n, &m, &first, 0, 1, 1.0f);
            CHECK(c, bits_equal(y.p, f + 0x3c00, n), "half format %d of %d values", kind, (int)n);
            CHECK(c, check_guard_free(&g), "canary of %d values of half format %d", (int)n, kind);
            vec_free(c, &y);
        }
    }
}

/* --- low-rank products --- */

/* Values of a factor, some groups of which are zero or tiny. */
static void fill_block(lowrank_block *v, int ranks, int64_t at) {
    memset(v, 0, sizeof *v);
    for (int j = 0; j < ranks; j++) {
        for (int i = 0; i < LOWRANK_TILE; i++)
            (*v)[j][i] = (at + j) % 11 == 0 ? 0 : (float)((at * 7 + j * 5 + i) % 41 - 20) / (at % 5 == 0 ? 16384 : 32);
    }
}

/* What is read back is what was written: exactly as f32, to the nearest of the others. */
static void check_block(check *c, lowrank_type t, const lowrank_block *v, int j, int i, float got) {
    float want = (*v)[j][i], most = 0;
    for (int k = 0; k < LOWRANK_TILE; k++) most = fabsf((*v)[j][k]) > most ? fabsf((*v)[j][k]) : most;
    float off = t == LOWRANK_F32 ? 0 : t == LOWRANK_F16 ? fabsf(want) / 2048 + 3e-8f : most / 253 + 3e-6f;
    CHECK(c, fabsf(got - want) <= off, "type %d: %g became %g", (int)t, (double)want, (double)got);
}

/* One output of a low-rank product in double precision. */
static double expand_want(const ops_low_rank *a, const float *old, int64_t row, int64_t i, double *size) {
    double sum = 0;
    *size = fabs((double)old[row * (int64_t)a->y_stride + i]);
    for (int j = 0; j < a->rank; j++) {
        double v = (double)lowrank_b(a->type, a->b, a->rank, i, j) * (double)a->t[row * (int64_t)a->t_stride + j];
        sum += v;
        *size += fabs(v * (double)a->scale);
    }
    return (double)old[row * (int64_t)a->y_stride + i] + sum * (double)a->scale * (a->gain ? (double)a->gain[i] : 1);
}

static check_guard make_b(check *c, lowrank_type t, int64_t n, int rank) {
    const int64_t tiles = (n + LOWRANK_TILE - 1) / LOWRANK_TILE;
    const size_t  bytes = lowrank_tile_bytes(t, rank);
    check_guard   g = check_guard_alloc((size_t)tiles * bytes, 0);
    lowrank_block v;
    memset(g.data, 0, (size_t)tiles * bytes);
    for (int64_t k = 0; k < tiles; k++) {
        for (int j = 0; j < rank; j += LOWRANK_PANEL) {
            int ranks = rank - j < LOWRANK_PANEL ? rank - j : LOWRANK_PANEL;
            fill_block(&v, ranks, k + j);
            lowrank_put_b(t, g.data + (size_t)k * bytes, j, ranks, (const lowrank_block *)&v);
            check_block(c, t, (const lowrank_block *)&v, ranks - 1, 7,
                        lowrank_b(t, g.data, rank, k * LOWRANK_TILE + 7, j + ranks - 1));
        }
    }
    return g;
}

/* Rows in any order, any number of them, columns in two parts: always the same bits, and right. */
static void check_expand(check *c, const kernels *k, lowrank_type type) {
    enum { ROWS = 7 };
    static const int32_t order[ROWS] = { 3, 0, 6, 2, 5, 1, 4 };
    for (int64_t n = 1; n; n = next_len(n)) {
        const int rank = (int)(n % 19) + 1;
        vec       y = vec_new(c, ROWS * n, 1), old = vec_new(c, ROWS * n, 0), t = vec_new(c, ROWS * rank, 1),
            gain = vec_new(c, n, 1);
        check_guard g = make_b(c, type, n, rank);
        memcpy(old.p, y.p, (size_t)(ROWS * n) * sizeof *y.p);
        ops_low_rank a = { y.p,    (size_t)n, t.p,   (size_t)rank,         order, ROWS, type,
                           g.data, rank,      0.75f, n % 2 ? gain.p : NULL };
        k->ops.expand(&a, 0, n);
        double worst = 0;
        for (int64_t i = 0; i < ROWS * n; i++) {
            double size, want = expand_want(&a, old.p, i / n, i % n, &size);
            worst = larger(worst, fabs((double)y.p[i] - want) / (size + 1e-30));
        }
        CHECK(c, worst < 4e-7 * (rank + 4), "expand %d outputs of rank %d: %.2e", (int)n, rank, worst);
        vec again = vec_new(c, ROWS * n, 0);
        memcpy(again.p, old.p, (size_t)(ROWS * n) * sizeof *y.p);
        a.y = again.p;
        a.rows = NULL;
        a.n_rows = 1;
        for (int64_t r = 0; r < ROWS; r++, a.y += n, a.t += rank) {
            int64_t cut = n / 2 / LOWRANK_TILE * LOWRANK_TILE;
            k->ops.expand(&a, 0, cut);
            k->ops.expand(&a, cut, n);
        }
        CHECK(c, bits_equal(y.p, again.p, ROWS * n), "expand %d outputs row by row and in parts", (int)n);
        CHECK(c, check_guard_free(&g), "canary of expand");
        vec_free(c, &y), vec_free(c, &old), vec_free(c, &t), vec_free(c, &gain), vec_free(c, &again);
    }
}

static check_guard make_a(check *c, lowrank_type t, int64_t n) {
    check_guard   g = check_guard_alloc(lowrank_panel_bytes(t, n), 0);
    lowrank_block v;
    memset(g.data, 0, lowrank_panel_bytes(t, n));
    for (int64_t i = 0; i < n; i += LOWRANK_COLS) {
        fill_block(&v, LOWRANK_PANEL, i / LOWRANK_COLS);
        lowrank_put_a(t, g.data, i, n - i < LOWRANK_COLS ? (int)(n - i) : LOWRANK_COLS, (const lowrank_block *)&v);
        check_block(c, t, (const lowrank_block *)&v, 9, 0, lowrank_a(t, g.data, n, 9, i));
    }
    return g;
}

/* Rows in any order and any number of them: always the same bits, and right. */
static void check_shrink(check *c, const kernels *k, lowrank_type type) {
    enum { ROWS = 9, PANEL = LOWRANK_PANEL };
    static const int32_t order[ROWS] = { 3, 8, 0, 6, 2, 7, 5, 1, 4 };
    for (int64_t n = 1; n; n = next_len(n)) {
        vec         x = vec_new(c, ROWS * n, 1), t = vec_new(c, ROWS * PANEL, 0), again = vec_new(c, ROWS * PANEL, 0);
        check_guard g = make_a(c, type, n);
        double      worst = 0;
        ops_shrink  all = { t.p, PANEL, order, x.p, (size_t)n, order, ROWS, type, g.data, n };
        k->ops.shrink(&all);
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t j = 0; j < PANEL; j++) {
                double want = 0, size = 1e-30;
                for (int64_t i = 0; i < n; i++) {
                    double v = (double)lowrank_a(type, g.data, n, j, i) * (double)x.p[r * n + i];
                    want += v;
                    size += fabs(v);
                }
                worst = larger(worst, fabs((double)t.p[r * PANEL + j] - want) / size);
            }
            ops_shrink one = { again.p + r * PANEL, PANEL, NULL, x.p + r * n, (size_t)n, NULL, 1, type, g.data, n };
            k->ops.shrink(&one);
        }
        CHECK(c, worst < 1e-7 * (double)(n + 4), "shrink of %d columns: %.2e", (int)n, worst);
        CHECK(c, bits_equal(t.p, again.p, ROWS * PANEL), "shrink of %d columns row by row", (int)n);
        CHECK(c, check_guard_free(&g), "canary of shrink");
        vec_free(c, &x), vec_free(c, &t), vec_free(c, &again);
    }
}

int main(int argc, char **argv) {
    check   c;
    kernels k;
    if (!check_begin(&c, argc, argv)) return check_end(&c);
    kernels_init(&k, c.cpu);
    check_acts(&c, &k);
    check_norms(&c, &k);
    check_rows(&c, &k);
    check_rope(&c, &k);
    check_embed(&c, &k);
    check_route(&c, &k);
    check_mixer(&c, &k);
    check_halves(&c, &k);
    for (lowrank_type t = LOWRANK_F16; t <= LOWRANK_Q8; t++) {
        check_shrink(&c, &k, t);
        check_expand(&c, &k, t);
    }
    return check_end(&c);
}
