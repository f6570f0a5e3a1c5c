/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expert routing, and the top-k selection it needs. For every instruction set (see vec/scalar.h).
 *
 * A candidate (v, i) comes before (w, j) when v > w, or v == w and i < j; NaN reads as -inf. Top-k keeps the k best in
 * a heap with the worst at the root and passes over every vector without a value above the root, so its cost is one
 * read of the row plus about k log(n / k) insertions.
 */
#ifndef KERNELS_CPU_IMPL_OPS_SELECT_H
#define KERNELS_CPU_IMPL_OPS_SELECT_H

#include <math.h>

static inline float no_nan(float x) { return x == x ? x : -INFINITY; }

static inline bool worse(float v, int32_t i, float w, int32_t j) { return v < w || (v == w && i > j); }

/* Lets the entry at `at` sink in a heap whose root is the worst. */
static inline void heap_sink(float *val, int32_t *idx, int64_t n, int64_t at) {
    const float   v = val[at];
    const int32_t k = idx[at];
    for (;;) {
        int64_t c = 2 * at + 1;
        if (c >= n) break;
        if (c + 1 < n && worse(val[c + 1], idx[c + 1], val[c], idx[c])) c++;
        if (!worse(val[c], idx[c], v, k)) break;
        val[at] = val[c];
        idx[at] = idx[c];
        at = c;
    }
    val[at] = v;
    idx[at] = k;
}

/* The k largest of n >= k values, the best first. */
static void VFN(topk)(float *val, int32_t *idx, const float *x, int64_t n, int64_t k) {
    for (int64_t i = 0; i < k; i++) {
        val[i] = no_nan(x[i]);
        idx[i] = (int32_t)i;
    }
    for (int64_t i = k / 2 - 1; i >= 0; i--) heap_sink(val, idx, k, i);
    const vf low = vf_set1(-INFINITY);
    for (int64_t i = k; i < n; i += VW) {
        const vf v = vf_sel(vm_range(0, n - i), vf_loadn(x + i, n - i), low);
        /* Later indexes lose ties, so only a larger value enters. */
        if (!vm_any(vf_lt(vf_set1(val[0]), v))) continue;
        for (int64_t j = i; j < n && j < i + VW; j++) {
            if (!(x[j] > val[0])) continue;
            val[0] = x[j];
            idx[0] = (int32_t)j;
            heap_sink(val, idx, k, 0);
        }
    }
    for (int64_t m = k - 1; m > 0; m--) { /* the worst goes to the end */
        const float   v = val[0];
        const int32_t j = idx[0];
        val[0] = val[m];
        idx[0] = idx[m];
        heap_sink(val, idx, m, 0);
        val[m] = v;
        idx[m] = j;
    }
}

/* Sets the choice values of all groups but the best topk_group to -inf. */
static inline void route_groups(const ops_route *r, float *choice) {
    const int per = r->n_expert / r->n_group;
    uint64_t  keep[16] = { 0 }; /* up to 1024 groups */
    for (int pick = 0; pick < r->topk_group; pick++) {
        int   best = -1;
        float best_v = 0;
        for (int g = 0; g < r->n_group && g < 1024; g++) {
            if (keep[g / 64] >> (g % 64) & 1) continue;
            float a = -INFINITY, b = -INFINITY;
            for (int e = g * per; e < (g + 1) * per; e++) {
                const float v = choice[e];
                if (v > a) {
                    b = a;
                    a = v;
                } else if (v > b) {
                    b = v;
                }
            }
            const float v = r->group_top2 && per > 1 ? a + b : a;
            if (best < 0 || v > best_v) best = g, best_v = v;
        }
        if (best >= 0) keep[best / 64] |= (uint64_t)1 << (best % 64);
    }
    for (int g = 0; g < r->n_group && g < 1024; g++) {
        if (keep[g / 64] >> (g % 64) & 1) continue;
        for (int e = g * per; e < (g + 1) * per; e++) choice[e] = -INFINITY;
    }
}

static void VFN(route_mixer)(const ops_route *r, const float *logits, int32_t *idx, float *weight, float *score,
                             float *near) {
    for (int k = 0; k < 2; k++) {
        int best = -1;
        for (int e = 0; e < r->n_expert; e++) {
            if ((k == 0 || e != idx[0]) && (best < 0 || no_nan(logits[e]) > no_nan(logits[best]))) best = e;
        }
        const float m = logits[best];
        for (int e = 0; e < r->n_expert; e++) {
            const float v = logits[e], size = fabsf(v);
            const bool  in = (k == 0 || e != idx[0]) && m - v <= 2 * r->jitter * (size > m ? size : m);
            near[e] = in ? v : -INFINITY;
        }
        VFN(softmax)(score, near, r->n_expert);
        idx[k] = best;
        weight[k] = score[best] * r->scale;
    }
}

static void VFN(route)(const ops_route *r, const float *logits, const float *bias, int32_t *idx, float *weight,
                       float *scratch) {
    const int n = r->n_expert, k = r->n_used;
    float    *score = scratch, *choice = scratch + n;
    if (r->score == OPS_SCORE_SPARSEMIXER) {
        VFN(route_mixer)(r, logits, idx, weight, score, choice);
        return;
    }
    switch (r->score) {
    case OPS_SCORE_SOFTMAX: VFN(softmax)(score, logits, n); break;
    case OPS_SCORE_SIGMOID: VFN(act)(score, logits, n, OPS_ACT_SIGMOID); break;
    case OPS_SCORE_TOPK_SOFTMAX:
    case OPS_SCORE_SPARSEMIXER: VFN(scale)(score, logits, 1.0f, n); break;
    }
    for (int e = 0; e < n; e++) choice[e] = no_nan(bias ? score[e] + bias[e] : score[e]);
    if (r->n_group > 1) route_groups(r, choice);
    VFN(topk)(weight, idx, choice, n, k);
    for (int i = 0; i < k; i++) weight[i] = score[idx[i]];
    if (r->score == OPS_SCORE_TOPK_SOFTMAX) VFN(softmax)(weight, weight, k);
    float sum = 0;
    for (int i = 0; i < k; i++) sum += weight[i];
    const float f = r->renorm ? r->scale / (sum + r->renorm_eps) : r->scale;
    for (int i = 0; i < k; i++) weight[i] *= f;
}

#endif
