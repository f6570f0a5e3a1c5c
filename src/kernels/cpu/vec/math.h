/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementary functions over the vector vocabulary (include one of the other files of vec/ first).
 *
 * Every set runs the same formulas lane by lane, so a value never depends on the lane it sits in. Against double:
 * exp 2 ulp; sigmoid, tanh, softplus 4 ulp; erf 2e-7 absolute. NaN stays NaN, infinities give the limits.
 * Polynomials are Chebyshev interpolants on the reduced range.
 */
#ifndef KERNELS_CPU_VEC_MATH_H
#define KERNELS_CPU_VEC_MATH_H

/* exp(x) = 2^n (1 + r + r^2 g(r)), r = x - n ln 2 in two pieces, |r| <= ln2 / 2. */
static inline vf vf_exp(vf x) {
    x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-105.0f), x)); /* second operand wins on NaN */
    const vf n = vf_round(vf_mul(x, vf_set1(1.44269504f)));
    vf       r = vf_fnma(n, vf_set1(0.693359375f), x);
    r = vf_fnma(n, vf_set1(-2.12194440e-4f), r);
    vf g = vf_set1(1.392621314e-03f);
    g = vf_fma(g, r, vf_set1(8.363203146e-03f));
    g = vf_fma(g, r, vf_set1(4.166655615e-02f));
    g = vf_fma(g, r, vf_set1(1.666657627e-01f));
    g = vf_fma(g, r, vf_set1(0.5f));
    g = vf_fma(vf_mul(r, r), g, r);
    return vf_scale2(vf_add(g, vf_set1(1.0f)), n);
}

static inline vf vf_sigmoid(vf x) {
    /* exp of a negative number only, so that nothing overflows: sigma(-x) = e / (1 + e), sigma(x) = 1 / (1 + e). */
    const vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    return vf_div(vf_sel(vf_lt(x, vf_zero()), e, vf_set1(1.0f)), vf_add(e, vf_set1(1.0f)));
}

static inline vf vf_tanh(vf x) {
    const vf a = vf_abs(x), z = vf_mul(a, a);
    vf       p = vf_set1(-5.657289177e-03f);
    p = vf_fma(p, z, vf_set1(2.058832720e-02f));
    p = vf_fma(p, z, vf_set1(-5.372015014e-02f));
    p = vf_fma(p, z, vf_set1(1.333111525e-01f));
    p = vf_fma(p, z, vf_set1(-3.333325982e-01f));
    p = vf_fma(vf_mul(p, z), a, a);
    const vf e = vf_exp(vf_mul(a, vf_set1(-2.0f)));
    const vf big = vf_div(vf_sub(vf_set1(1.0f), e), vf_add(vf_set1(1.0f), e));
    return vf_copysign(vf_sel(vf_lt(a, vf_set1(0.625f)), p, big), x);
}

/* |x| < 1: x P(x^2). Otherwise 1 - exp(-x^2) t Q(t) with t = 1 / (1 + x/2). */
static inline vf vf_erf(vf x) {
    const vf a = vf_abs(x), z = vf_mul(a, a);
    vf       p = vf_set1(-9.667044651e-06f);
    p = vf_fma(p, z, vf_set1(1.126595889e-04f));
    p = vf_fma(p, z, vf_set1(-8.484080317e-04f));
    p = vf_fma(p, z, vf_set1(5.221031606e-03f));
    p = vf_fma(p, z, vf_set1(-2.686543018e-02f));
    p = vf_fma(p, z, vf_set1(1.128378212e-01f));
    p = vf_fma(p, z, vf_set1(-3.761263788e-01f));
    p = vf_fma(p, z, vf_set1(1.128379226e+00f));
    p = vf_mul(p, a);
    const vf t = vf_div(vf_set1(1.0f), vf_fma(a, vf_set1(0.5f), vf_set1(1.0f)));
    vf       q = vf_set1(8.371795714e-02f);
    q = vf_fma(q, t, vf_set1(-3.519591987e-01f));
    q = vf_fma(q, t, vf_set1(3.944009542e-01f));
    q = vf_fma(q, t, vf_set1(2.752292529e-02f));
    q = vf_fma(q, t, vf_set1(2.875166833e-01f));
    q = vf_fma(q, t, vf_set1(2.760916948e-01f));
    q = vf_fma(q, t, vf_set1(2.824665606e-01f));
    const vf e = vf_exp(vf_sub(vf_zero(), z));
    const vf big = vf_fnma(vf_mul(q, t), e, vf_set1(1.0f));
    return vf_copysign(vf_sel(vf_lt(a, vf_set1(1.0f)), p, big), x);
}

/* log(1 + e^x) = max(x, 0) + log1p(u), u = e^-|x|; log1p(u) = 2 atanh(u / (2 + u)). */
static inline vf vf_softplus(vf x) {
    const vf u = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    const vf s = vf_div(u, vf_add(u, vf_set1(2.0f))), z = vf_mul(s, s);
    vf       p = vf_set1(2.439390868e-01f);
    p = vf_fma(p, z, vf_set1(2.139856070e-01f));
    p = vf_fma(p, z, vf_set1(2.862020731e-01f));
    p = vf_fma(p, z, vf_set1(3.999871016e-01f));
    p = vf_fma(p, z, vf_set1(6.666668057e-01f));
    p = vf_fma(p, z, vf_set1(2.0f));
    return vf_fma(p, s, vf_max(vf_zero(), x));
}

#endif
