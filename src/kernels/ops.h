/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything of a layer that is neither a matrix product nor attention: norms, rotary positions, gates, softmax,
 * selection, expert routing, conversions.
 *
 * All vectors are f32. `rows` rows of n values begin at stride floats from one another; a row's result depends on that
 * row only. Unless said otherwise y may be x (in place) but may not overlap it partly. Sums run over eight accumulators
 * of VW lanes that are added in a fixed order, so a result depends on n and the instruction set only.
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels/act.h"
#include "kernels/slot.h"
#include "tensor/mat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = x / sqrt(mean(x^2) + eps) * (w + w_add); w NULL: no weight. Gemma: w_add = 1. Per-head norm: a row is a head. */
typedef void ops_rms_norm_fn(float *y, size_t y_stride, const float *x, size_t x_stride, int64_t rows, int64_t n,
                             const float *w, float w_add, float eps);

/* x += d_scale * d, then y = the norm of the new x. */
typedef void ops_add_rms_norm_fn(float *y, size_t y_stride, float *x, size_t x_stride, const float *d, size_t d_stride,
                                 float d_scale, int64_t rows, int64_t n, const float *w, float w_add, float eps);

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

/*
 * RMSNorm with a gate, groupwise (n is the group). gate_first: norm(x * act(z)) * w (Mamba2), otherwise
 * norm(x) * w * act(z) (gated delta net: SILU, KDA: SIGMOID). w points to the weights of the row's group; row r uses
 * w + (r % w_rows) * n.
 */
typedef void ops_rms_norm_gate_fn(float *y, size_t y_stride, const float *x, size_t x_stride, const float *z,
                                  size_t z_stride, int64_t rows, int64_t n, const float *w, int64_t w_rows, float eps,
                                  ops_act act, bool gate_first);

/* y = act(x). */
typedef void ops_act_fn(float *y, const float *x, int64_t n, ops_act act);

/* y = act(gate) * up. alpha and limit are read by OPS_ACT_SWIGLU_CLAMP (gpt-oss: 1.702, 7); y may be gate or up. */
typedef void ops_glu_fn(float *y, const float *gate, const float *up, int64_t n, ops_act act, float alpha, float limit);

/*
 * The same with a quantizing end (kernels/act.h): the f32 row is never written, only pieces of it on the stack. The
 * bytes are those of the plain operation followed by quant. n is a multiple of ACT8_BLOCK; rows of y are y_bytes apart.
 */
typedef void ops_rms_norm_act8_fn(act8 *y, size_t y_bytes, const float *x, size_t x_stride, int64_t rows, int64_t n,
                                  const float *w, float w_add, float eps, act_quantize_fn *quant);
typedef void ops_glu_act8_fn(act8 *y, const float *gate, const float *up, int64_t n, ops_act act, float alpha,
                             float limit, act_quantize_fn *quant);

/* a[i] = x[2i], b[i] = x[2i + 1]. */
typedef void ops_deinterleave_fn(float *a, float *b, const float *x, int64_t n);

/* y = softmax(scale * x). Sums in the order of the lanes. */
typedef void ops_softmax_fn(float *y, const float *x, int64_t n, float scale);

/* y = cap * tanh(x / cap). */
typedef void ops_softcap_fn(float *y, const float *x, int64_t n, float cap);

typedef void ops_add_fn(float *y, const float *a, const float *b, int64_t n);
typedef void ops_mul_fn(float *y, const float *a, const float *b, int64_t n);
typedef void ops_scale_fn(float *y, const float *x, float s, int64_t n);           /* y = s x */
typedef void ops_axpy_fn(float *y, const float *x, float s, int64_t n);            /* y += s x */
typedef void ops_sigmoid_axpy_fn(float *y, const float *x, float gate, int64_t n); /* y += sigmoid(gate) x */

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

/* Index of the largest value; the lowest index wins ties; NaN counts as -inf. n > 0. */
typedef int64_t ops_argmax_fn(const float *x, int64_t n);

/* The k largest in falling order, ties by rising index, NaN as -inf. Returns how many (min(k, n)). */
typedef int64_t ops_topk_fn(float *val, int32_t *idx, const float *x, int64_t n, int64_t k);

typedef enum ops_score { OPS_SCORE_SOFTMAX, OPS_SCORE_SIGMOID, OPS_SCORE_TOPK_SOFTMAX } ops_score;

/*
 * Expert routing of one row. Scores are softmax or sigmoid of the logits; OPS_SCORE_TOPK_SOFTMAX selects by logit and
 * takes the softmax over the selected. Selection is by score + bias, weights are scores without bias. With n_group > 1
 * only the topk_group best groups take part; a group's value is the sum of its two best (group_top2) or its best
 * choice value. Then weights are divided by their sum + renorm_eps (renorm) and multiplied by scale.
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
} ops_route;

/* scratch: 2 * n_expert floats. bias: [n_expert] or NULL. */
typedef void ops_route_fn(const ops_route *r, const float *logits, const float *bias, int32_t *idx, float *weight,
                          float *scratch);

typedef void ops_f32_to_u16_fn(uint16_t *y, const float *x, int64_t n); /* to f16 or bf16, to nearest, ties to even */
typedef void ops_u16_to_f32_fn(float *y, const uint16_t *x, int64_t n);

#define KERNELS_OPS_SLOTS(X)                                                                                           \
    X(ops_rms_norm_fn, rms_norm)                                                                                       \
    X(ops_add_rms_norm_fn, add_rms_norm)                                                                               \
    X(ops_layer_norm_fn, layer_norm)                                                                                   \
    X(ops_l2_norm_fn, l2_norm)                                                                                         \
    X(ops_rms_norm_gate_fn, rms_norm_gate)                                                                             \
    X(ops_act_fn, act)                                                                                                 \
    X(ops_glu_fn, glu)                                                                                                 \
    X(ops_rms_norm_act8_fn, rms_norm_act8)                                                                             \
    X(ops_glu_act8_fn, glu_act8)                                                                                       \
    X(ops_deinterleave_fn, deinterleave)                                                                               \
    X(ops_softmax_fn, softmax)                                                                                         \
    X(ops_softcap_fn, softcap)                                                                                         \
    X(ops_add_fn, add)                                                                                                 \
    X(ops_mul_fn, mul)                                                                                                 \
    X(ops_scale_fn, scale)                                                                                             \
    X(ops_axpy_fn, axpy)                                                                                               \
    X(ops_sigmoid_axpy_fn, sigmoid_axpy)                                                                               \
    X(ops_weighted_sum_fn, weighted_sum)                                                                               \
    X(ops_rope_table_fn, rope_table)                                                                                   \
    X(ops_rope_fn, rope)                                                                                               \
    X(ops_embed_fn, embed)                                                                                             \
    X(ops_argmax_fn, argmax)                                                                                           \
    X(ops_topk_fn, topk)                                                                                               \
    X(ops_route_fn, route)                                                                                             \
    X(ops_f32_to_u16_fn, f32_to_f16)                                                                                   \
    X(ops_f32_to_u16_fn, f32_to_bf16)                                                                                  \
    X(ops_u16_to_f32_fn, f16_to_f32)                                                                                   \
    X(ops_u16_to_f32_fn, bf16_to_f32)

typedef struct kernels_ops {
    KERNELS_OPS_SLOTS(KERNEL_SLOT)
} kernels_ops;

void kernels_ops_init_scalar(kernels_ops *t);
void kernels_ops_init_avx2(kernels_ops *t, unsigned cpu);
void kernels_ops_init_avx512(kernels_ops *t, unsigned cpu);
void kernels_ops_init_neon(kernels_ops *t, unsigned cpu);
void kernels_ops_list(const kernels_ops *t, kernels_visit *visit, void *ctx);

#endif
