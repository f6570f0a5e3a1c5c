/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of a layer that is neither a matrix product nor attention: norms, rotary positions, gates, expert routing,
 * embedding rows.
 *
 * All vectors are f32. `rows` rows of n values begin at stride floats from one another; a row's result depends on that
 * row only. Unless said otherwise y may be x (in place) but may not overlap it partly. Sums run over four accumulators
 * of VW lanes that are added in a fixed order, so a result depends on n and the instruction set only.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels/slot.h"
#include "tensor/lowrank.h"
#include "tensor/mat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = x / sqrt(mean(x^2) + eps) * (w + w_add); w NULL: no weight. Gemma: w_add = 1. Per-head norm: a row is a head. */
typedef void ops_rms_norm_fn(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                             const float *w, float w_add, float eps);

/* y = (x - mean) / sqrt(var + eps) * w + b; w and b may be NULL. */
typedef void ops_layer_norm_fn(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                               const float *w, const float *b, float eps);

/* y = scale * x / sqrt(sum(x^2) + eps). */
typedef void ops_l2_norm_fn(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                            float eps, float scale);

typedef enum ops_act {
    OPS_ACT_NONE,
    OPS_ACT_SILU,
    OPS_ACT_GELU_TANH,
    OPS_ACT_GELU_ERF,
    OPS_ACT_RELU,
    OPS_ACT_RELU2,
    OPS_ACT_SIGMOID,
    OPS_ACT_TANH,
    OPS_ACT_SOFTPLUS,
    OPS_ACT_EXP,
    OPS_ACT_SWIGLU_CLAMP, /* glu only: min(gate, limit) sigmoid(alpha gate) (clamp(up, +-limit) + 1) */
    OPS_ACT_COUNT,
} ops_act;

/* y = act(x). */
typedef void ops_act_fn(float *y, const float *x, int64_t n, ops_act act);

/* y = act(gate) * up. alpha and limit are read by OPS_ACT_SWIGLU_CLAMP (gpt-oss: 1.702, 7); y may be gate or up. */
typedef void ops_glu_fn(float *y, const float *gate, const float *up, int64_t n, ops_act act, float alpha, float limit);

/* y = x cut to -limit..limit. */
typedef void ops_clip_fn(float *y, const float *x, int64_t n, float limit);

/* y = cap * tanh(x / cap). */
typedef void ops_softcap_fn(float *y, const float *x, int64_t n, float cap);

typedef void ops_add_fn(float *y, const float *a, const float *b, int64_t n);
typedef void ops_scale_fn(float *y, const float *x, float s, int64_t n); /* y = s x */
typedef void ops_axpy_fn(float *y, const float *x, float s, int64_t n);  /* y += s x */

/* y = sum over r of w[r] * rows[r], in the order of r. y is none of the rows. */
typedef void ops_weighted_sum_fn(float *y, const float *const *rows, const float *w, int64_t n_rows, int64_t n);

/*
 * Rotary positions. The table of row t is cos[n_freq] then sin[n_freq] of pos * inv_freq, in double, times mscale, at
 * cs + t * 2 * n_freq. Several axes: pos is [n_axes][pos_stride] and axis_of[i] names frequency i's axis (NULL: axis
 * 0).
 */
typedef void ops_rope_table_fn(float *cs, const int32_t *pos, size_t pos_stride, const uint8_t *axis_of, int64_t row0,
                               int64_t row1, const float *inv_freq, int64_t n_freq, float mscale);

typedef enum ops_rope_style { OPS_ROPE_HALF, OPS_ROPE_PAIRS } ops_rope_style; /* (i, i + n) or (2i, 2i + 1) */

/* Rotates the first 2 * n_freq values of every head in place: row t, head h at x + t * x_stride + h * head_stride. */
typedef void ops_rope_fn(float *x, size_t x_stride, int64_t rows, size_t head_stride, int64_t heads, const float *cs,
                         int64_t n_freq, ops_rope_style style);

/* Row t of y = scale * row ids[t] of m, for t in [row0, row1). Ids are below m->rows. */
typedef void ops_embed_fn(float *y, size_t y_stride, const tensor_mat *m, const int32_t *ids, int64_t row0,
                          int64_t row1, float scale);

typedef enum ops_score {
    OPS_SCORE_SOFTMAX,
    OPS_SCORE_SIGMOID,
    OPS_SCORE_TOPK_SOFTMAX,
    OPS_SCORE_SPARSEMIXER,
} ops_score;

/*
 * Expert routing of one row. Scores are softmax or sigmoid of the logits; OPS_SCORE_TOPK_SOFTMAX selects by logit and
 * takes the softmax over the selected. Selection is by score + bias, weights are scores without bias. With n_group > 1
 * only the topk_group best groups take part; a group's value is the sum of its two best (group_top2) or its best
 * choice value. Then weights are divided by their sum + renorm_eps (renorm) and multiplied by scale.
 * OPS_SCORE_SPARSEMIXER takes two experts, without bias and groups: each is the best left, its weight its share in the
 * softmax over those left whose logit v is near the best m: m - v <= 2 jitter max(|v|, m).
 * Ties: the lower index wins, everywhere. Experts come in the order of rank.
 */
typedef struct ops_route {
    int       n_expert, n_used;
    ops_score score;
    int       n_group, topk_group; /* 0 or 1: no groups */
    bool      group_top2;
    bool      renorm;
    float     renorm_eps;
    float     scale;
    float     jitter;
} ops_route;

/* scratch: 2 * n_expert floats. bias: [n_expert] or NULL. */
typedef void ops_route_fn(const ops_route *r, const float *logits, const float *bias, int32_t *idx, float *weight,
                          float *scratch);

/*
 * The first half of a low-rank product: 16 ranks of t = A x. A is a panel (tensor/lowrank.h), whose values are floats. For
 * one output the operations are
 *     s[0..3] = 0;  for i = 0, 1, ...: s[i % 4] = fma(A, x[i], s[i % 4]);  t = (s[0] + s[1]) + (s[2] + s[3])
 * whatever the rows beside it.
 */
typedef struct ops_shrink {
    float         *t; /* [..][16] */
    size_t         t_stride;
    const int32_t *t_rows; /* their numbers in t; NULL: 0, 1, ... */
    const float   *x;
    size_t         x_stride;
    const int32_t *x_rows; /* their numbers in x; NULL: 0, 1, ... */
    int64_t        n_rows;
    lowrank_type   type;
    const uint8_t *a;
    int64_t        cols;
} ops_shrink;

typedef void ops_shrink_fn(const ops_shrink *a);

/*
 * The second half: rows of y += scale * gain * (B t). B is tiles of 32 outputs (tensor/lowrank.h). For one output the
 * operations are
 *     acc = 0;  for j = 0, 1, ...: acc = fma(B, t[j], acc);  y = fma(acc, scale * gain, y)
 * whatever the rows beside it and however the outputs are cut.
 */
typedef struct ops_low_rank {
    float         *y;
    size_t         y_stride;
    const float   *t; /* [..][rank] */
    size_t         t_stride;
    const int32_t *rows; /* their numbers in y and t; NULL: 0, 1, ... */
    int64_t        n_rows;
    lowrank_type   type;
    const uint8_t *b;
    int            rank;
    float          scale;
    const float   *gain; /* one per output; NULL: 1 */
} ops_low_rank;

/* Outputs [lo, hi); lo is a multiple of 32. */
typedef void ops_expand_fn(const ops_low_rank *a, int64_t lo, int64_t hi);

#define KERNELS_OPS_SLOTS(X)                                                                                           \
    X(ops_rms_norm_fn, rms_norm)                                                                                       \
    X(ops_layer_norm_fn, layer_norm)                                                                                   \
    X(ops_l2_norm_fn, l2_norm)                                                                                         \
    X(ops_act_fn, act)                                                                                                 \
    X(ops_glu_fn, glu)                                                                                                 \
    X(ops_clip_fn, clip)                                                                                               \
    X(ops_softcap_fn, softcap)                                                                                         \
    X(ops_add_fn, add)                                                                                                 \
    X(ops_scale_fn, scale)                                                                                             \
    X(ops_axpy_fn, axpy)                                                                                               \
    X(ops_weighted_sum_fn, weighted_sum)                                                                               \
    X(ops_rope_table_fn, rope_table)                                                                                   \
    X(ops_rope_fn, rope)                                                                                               \
    X(ops_embed_fn, embed)                                                                                             \
    X(ops_route_fn, route)                                                                                             \
    X(ops_shrink_fn, shrink)                                                                                           \
    X(ops_expand_fn, expand)

typedef struct kernels_ops {
    KERNELS_OPS_SLOTS(KERNEL_SLOT)
} kernels_ops;

void kernels_ops_init_scalar(kernels_ops *t);
void kernels_ops_init_avx2(kernels_ops *t, unsigned cpu);
void kernels_ops_init_avx512(kernels_ops *t, unsigned cpu);
void kernels_ops_init_neon(kernels_ops *t, unsigned cpu);
void kernels_ops_list(const kernels_ops *t, kernels_visit *visit, void *ctx);

#endif
