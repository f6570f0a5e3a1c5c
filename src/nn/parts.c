/* SPDX-License-Identifier: Apache-2.0 */
/* What several families bind and record in the same way: feed-forwards, Mamba 2's mixer. */
#include "nn/nn.h"
#include "tensor/mat.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAMES = 640 };

/* Every alternative of hf with each of the endings: "mlp.experts" and "a|b" give "mlp.experts.a|mlp.experts.b". */
static const char *join(char out[NAMES], const char *hf, const char *endings) {
    size_t n = 0;
    *out = '\0';
    for (const char *h = hf; h; h = strchr(h, '|') ? strchr(h, '|') + 1 : NULL) {
        for (const char *e = endings; e; e = strchr(e, '|') ? strchr(e, '|') + 1 : NULL) {
            int k = snprintf(out + n, NAMES - n, "%s%.*s.%.*s", n ? "|" : "", (int)strcspn(h, "|"), h,
                             (int)strcspn(e, "|"), e);
            if (k < 0 || (size_t)k >= NAMES - n) return out;
            n += (size_t)k;
        }
    }
    return out;
}

void nn_bind_ffn(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff) {
    char s[NAMES];
    nn_bind_linear(b, &w->gate, "ffn_gate", join(s, hf, "gate_proj|gate_up_proj#0/2|input_linear#0/2"), n, ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", join(s, hf, "up_proj|gate_up_proj#1/2|input_linear#1/2"), n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", join(s, hf, "down_proj|output_linear"), ff, n, 0);
}

void nn_bind_ffn_experts(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff, int n_expert, unsigned bias) {
    char s[NAMES];
    nn_bind_linear(b, &w->router, "ffn_gate_inp", join(s, hf, "gate|gate.wg|router|router.gate|router.layer"), n,
                   n_expert, NN_NO_BIAS);
    nn_bind_vec(b, &w->route_bias, bias & NN_BARE ? "exp_probs_b|exp_probs_b.bias" : "exp_probs_b.bias|exp_probs_b",
                join(s, hf,
                     "gate.e_score_correction_bias|e_score_correction_bias|moe_statics.e_score_correction_bias|"
                     "experts.e_score_correction_bias|gate.expert_bias|expert_bias"),
                n_expert, bias);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps|ffn_gate_up_exps#0/2",
                    join(s, hf,
                         "experts.*.gate_proj|experts.*.w1|switch_mlp.gate_proj|experts.gate_up_proj#0/2|"
                         "input_linear#0/2"),
                    n_expert, n, ff, NN_NO_BIAS);
    nn_bind_experts(b, &w->up, "ffn_up_exps|ffn_gate_up_exps#1/2",
                    join(s, hf,
                         "experts.*.up_proj|experts.*.w3|switch_mlp.up_proj|experts.gate_up_proj#1/2|"
                         "input_linear#1/2"),
                    n_expert, n, ff, NN_NO_BIAS);
    nn_bind_experts(
        b, &w->down, "ffn_down_exps",
        join(s, hf, "experts.*.down_proj|experts.*.w2|switch_mlp.down_proj|experts.down_proj|output_linear"), n_expert,
        ff, n, NN_NO_BIAS);
}

void nn_bind_ffn_shared(nn_binder *b, nn_ffn *w, const char *hf, int64_t n, int64_t ff) {
    char s[NAMES];
    nn_bind_linear(b, &w->shared_gate, "ffn_gate_shexp", join(s, hf, "gate_proj|gate_up_proj#0/2|input_linear#0/2"), n,
                   ff, 0);
    nn_bind_linear(b, &w->shared_up, "ffn_up_shexp", join(s, hf, "up_proj|gate_up_proj#1/2|input_linear#1/2"), n, ff,
                   0);
    nn_bind_linear(b, &w->shared_down, "ffn_down_shexp", join(s, hf, "down_proj|output_linear"), ff, n, 0);
}

nn_buf nn_ffn_apply(nn_tape *t, nn_buf x, const nn_ffn *w, nn_moe_spec how) {
    if (!w->router.w) return nn_project(t, nn_glu_clamped(t, x, w->gate, w->up, how.glu), w->down);
    how.router = w->router;
    how.gate = w->gate;
    how.up = w->up;
    how.down = w->down;
    how.bias = w->route_bias;
    nn_buf y = nn_moe(t, x, how);
    if (!w->shared_gate.w) return y;
    nn_buf shared = nn_glu_clamped(t, x, w->shared_gate, w->shared_up, how.glu);
    if (!w->shared_router.w) {
        nn_project_add(t, y, shared, w->shared_down);
        return y;
    }
    shared = nn_project(t, shared, w->shared_down);
    nn_gate(t, shared, nn_project(t, x, w->shared_router), NN_ACT_SIGMOID);
    nn_add(t, y, shared);
    return y;
}

nn_buf nn_tower_input(nn_tape *t, const nn_tower_dims *d, nn_linear patch) {
    int    pixels = 3 * d->patch * d->patch;
    nn_buf in = nn_input(t, (int64_t)pixels + d->d.n_embd), x = nn_take(t, in, pixels, d->d.n_embd);
    nn_project_add(t, x, nn_take(t, in, 0, pixels), patch);
    return x;
}

nn_buf nn_tower_input_normed(nn_tape *t, const nn_tower_dims *d, nn_linear patch, const nn_vec *norm) {
    int pixels = 3 * d->patch * d->patch;
    if (!norm) return nn_tower_input(t, d, patch);
    nn_buf in = nn_input(t, (int64_t)pixels + d->d.n_embd), x = nn_take(t, in, pixels, d->d.n_embd);
    nn_add(t, x, nn_rms_norm(t, nn_project(t, nn_take(t, in, 0, pixels), patch), norm, d->d.eps));
    return x;
}

int nn_deep_read(nn_config *c, int n_layer) {
    int listed =
        nn_config_count(c, "vision.deepstack_visual_indexes",
                        "vision_config.deepstack_visual_indexes|thinker_config.vision_config.deepstack_visual_indexes");
    int n = (int)nn_config_int(c, "n_deepstack_layers", NULL, listed);
    if (n < 0 || n > n_layer || n > NN_MAX_PARTS)
        nn_config_fail(c, "%d of %d layers get more of a picture", n, n_layer);
    nn_config_derived_int(c, "n_deepstack_layers", n);
    return n;
}

nn_mat nn_mat_of(const nn_mat *stack, int i) {
    return (nn_mat){ .name = stack->name, .rows = stack->rows, .cols = stack->cols, .at = &stack->at[i] };
}

/* --- Mamba 2 ---------------------------------------------------------------------------------------------------- */

static int64_t inner_of(const nn_mamba2_dims *d) { return (int64_t)d->n_head * d->dim; }
static int64_t bc_of(const nn_mamba2_dims *d) { return (int64_t)d->n_group * d->n_state; }

void nn_mamba2_check(nn_config *c, nn_mamba2_dims *d, int64_t inner) {
    if (d->n_head < 1 || d->n_head > 4096 || d->n_group < 1 || d->n_state < 1 || d->n_state > 4096 || d->taps < 2 ||
        d->taps > 8) {
        nn_config_fail(c, "a scan of %d heads, %d groups, %d states and %d taps makes no sense", d->n_head, d->n_group,
                       d->n_state, d->taps);
        return;
    }
    if (d->dim == 0) d->dim = inner / d->n_head <= 4096 ? (int)(inner / d->n_head) : 0;
    if (d->dim < 1 || d->dim > 4096 || (inner && inner != inner_of(d)) || d->n_head % d->n_group) {
        nn_config_fail(c, "an inner size of %lld does not divide into %d heads and %d groups", (long long)inner,
                       d->n_head, d->n_group);
        return;
    }
    double low = nn_config_real_at(c, "time_step_limit", 0, 0),
           high = nn_config_real_at(c, "time_step_limit", 1, INFINITY);
    if (!(low >= 0 && low < high)) nn_config_fail(c, "the field \"time_step_limit\" is [%g, %g]", low, high);
    d->dt_min = (float)low;
    d->dt_max = isfinite(high) ? (float)high : 0;
    if (d->dt_min > 0 || d->dt_max > 0) nn_config_unsaid(c, "time_step_limit");
    nn_config_derived_int(c, "ssm.inner_size", inner_of(d));
}

nn_state nn_mamba2_state(const nn_mamba2_dims *d) {
    return (nn_state){ .conv_channels = (int)(inner_of(d) + 2 * bc_of(d)),
                       .conv_kernel = d->taps,
                       .rec_heads = d->n_head,
                       .rec_dim_k = d->n_state,
                       .rec_dim_v = d->dim };
}

void nn_bind_mamba2(nn_binder *b, nn_mamba2 *w, const char *hf, const nn_mamba2_dims *d, int64_t n, unsigned norm) {
    char    s[NAMES];
    int64_t inner = inner_of(d), channels = inner + 2 * bc_of(d);
    nn_bind_linear(b, &w->in, "ssm_in", join(s, hf, "in_proj"), n, inner + channels + d->n_head, 0);
    nn_bind_linear(b, &w->out, "ssm_out", join(s, hf, "out_proj"), inner, n, 0);
    nn_bind_table(b, &w->conv, "ssm_conv1d", join(s, hf, "conv1d"), channels, d->taps);
    nn_bind_vec(b, &w->conv_bias, "ssm_conv1d.bias", join(s, hf, "conv1d.bias"), channels, NN_OPTIONAL);
    const int64_t from[3] = { 0, inner, inner + bc_of(d) }, count[3] = { inner, bc_of(d), bc_of(d) };
    for (int i = 0; i < 3 && w->conv; i++) {
        w->taps[i] = (nn_vec){ w->conv->name, count[i] * d->taps, w->conv->data + from[i] * d->taps };
        if (w->conv_bias) w->bias[i] = (nn_vec){ w->conv_bias->name, count[i], w->conv_bias->data + from[i] };
    }
    /* GGUF has a column of them: rows of one. */
    nn_bind_grid(b, &w->a, "ssm_a", join(s, hf, "A_log"), d->n_head, 1, NN_NEG_EXP);
    nn_bind_grid(b, &w->d, "ssm_d", join(s, hf, "D"), d->n_head, 1, 0);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", join(s, hf, "dt_bias"), d->n_head, 0);
    if (!(norm & NN_OPTIONAL) || nn_bind_exists(b, "ssm_norm", join(s, hf, "norm")))
        nn_bind_table(b, &w->norm, "ssm_norm", join(s, hf, "norm"), d->n_group, inner / d->n_group);
}

static nn_buf part(nn_tape *t, nn_buf p, int64_t from, int64_t n, float scale) {
    nn_buf x = nn_take(t, p, (int)from, (int)n);
    if (scale != 1.0f) nn_scale(t, x, scale);
    return x;
}

/* x, B and C behind their convolution. Where their multipliers differ, each goes through its own channels. */
static void convolve(nn_tape *t, int layer, nn_buf p, const nn_mamba2 *w, const nn_mamba2_dims *d,
                     const nn_mamba2_scales *s, nn_buf out[3]) {
    const int64_t inner = inner_of(d), bc = bc_of(d), from[3] = { 0, inner, inner + bc }, n[3] = { inner, bc, bc };
    const float   by[3] = { s->x, s->b, s->c };
    bool          even = s->x == s->b && s->b == s->c;
    nn_buf        c = 0;
    if (even)
        c = nn_conv(t, layer, part(t, p, inner, inner + 2 * bc, s->x), w->conv, w->conv_bias, d->taps, 0, NN_ACT_SILU);
    for (int i = 0; i < 3; i++)
        out[i] = even ? part(t, c, from[i], n[i], 1.0f)
                      : nn_conv(t, layer, part(t, p, inner + from[i], n[i], by[i]), &w->taps[i],
                                w->conv_bias ? &w->bias[i] : NULL, d->taps, (int)from[i], NN_ACT_SILU);
}

nn_buf nn_mamba2_scaled(nn_tape *t, int layer, nn_buf p, const nn_mamba2 *w, const nn_mamba2_dims *d,
                        const nn_mamba2_scales *s, float eps) {
    int64_t inner = inner_of(d), bc = bc_of(d);
    nn_buf  z = part(t, p, 0, inner, s->z), c[3];
    convolve(t, layer, p, w, d, s, c);
    nn_ssm_spec m = { .n_head = d->n_head,
                      .dim = d->dim,
                      .n_group = d->n_group,
                      .n_state = d->n_state,
                      .a = w->a,
                      .d = w->d,
                      .dt_bias = w->dt_bias,
                      .dt_min = d->dt_min,
                      .dt_max = d->dt_max };
    nn_buf      y = nn_ssm(t, layer, c[0], c[1], c[2], part(t, p, 2 * inner + 2 * bc, d->n_head, s->dt), m);
    nn_gate(t, y, z, NN_ACT_SILU);
    return w->norm ? nn_rms_norm_groups(t, y, (int)(inner / d->n_group), w->norm, eps) : y;
}

nn_buf nn_mamba2_apply(nn_tape *t, int layer, nn_buf p, const nn_mamba2 *w, const nn_mamba2_dims *d, float eps) {
    return nn_mamba2_scaled(t, layer, p, w, d, &(nn_mamba2_scales){ 1, 1, 1, 1, 1 }, eps);
}
