/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mamba 2: no attention. A layer projects a token to a gate z, the scan's input x with its B and C (which pass a short
 * convolution together) and a step dt per head; the scan's output is gated, normalised per group and projected back.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     n_head, dim, inner, n_group, n_state, taps;
    float   dt_min, dt_max; /* 0: none */
} hparams;

static const nn_key keys[] = {
    NN_INT(n_head, "ssm.time_step_rank", "num_heads", NN_REQUIRED),
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(dim, NULL, "head_dim", 0),
    NN_INT(n_group, "ssm.group_count", "n_groups", 1),
    NN_INT(n_state, "ssm.state_size", "state_size", NN_REQUIRED),
    NN_INT(taps, "ssm.conv_kernel", "conv_kernel", 4),
    { 0 },
};

typedef nn_ends top;

typedef struct layer {
    const nn_vec *norm, *conv, *conv_bias, *a, *d, *dt_bias, *gate_norm;
    nn_linear     in, out;
} layer;

static int conv_channels(const hparams *h) { return h->inner + 2 * h->n_group * h->n_state; }

static void setup(nn_config *c, void *hp) {
    hparams *h = hp;
    nn_config_only(c, NULL, "hidden_act", "silu");
    if (h->n_head < 1 || h->n_head > 4096 || h->n_group < 1 || h->n_state < 1 || h->n_state > 4096 || h->taps < 2 ||
        h->taps > 8) {
        nn_config_fail(c, "a scan of %d heads, %d groups, %d states and %d taps makes no sense", h->n_head, h->n_group,
                       h->n_state, h->taps);
        return;
    }
    if (h->dim == 0) h->dim = h->inner / h->n_head;
    if (h->dim < 1 || h->dim > 4096 || (h->inner && h->inner != h->dim * h->n_head) || h->n_head % h->n_group) {
        nn_config_fail(c, "an inner size of %d does not divide into %d heads and %d groups", h->inner, h->n_head,
                       h->n_group);
        return;
    }
    h->inner = h->dim * h->n_head;
    double low = nn_config_real_at(c, "time_step_limit", 0, 0),
           high = nn_config_real_at(c, "time_step_limit", 1, INFINITY);
    if (!(low >= 0 && low < high)) nn_config_fail(c, "the field \"time_step_limit\" is [%g, %g]", low, high);
    h->dt_min = (float)low;
    h->dt_max = isfinite(high) ? (float)high : 0;
    if (h->dt_min > 0 || h->dt_max > 0) nn_config_unsaid(c, "time_step_limit");
    nn_config_derived_int(c, "ssm.inner_size", h->inner);
}

static void bind_top(nn_binder *b, void *out, const void *hp) {
    const nn_dims *d = hp;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "backbone.embeddings|backbone.embedding", d->n_embd, d->n_vocab,
                NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "output_norm", "backbone.norm_f", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const hparams *h = hp;
    layer         *w = out;
    const int64_t  d = h->d.n_embd, channels = conv_channels(h);
    (void)i;
    nn_bind_vec(b, &w->norm, "attn_norm", "norm", d, 0);
    nn_bind_linear(b, &w->in, "ssm_in", "mixer.in_proj", d, h->inner + channels + h->n_head, 0);
    nn_bind_linear(b, &w->out, "ssm_out", "mixer.out_proj", h->inner, d, 0);
    nn_bind_table(b, &w->conv, "ssm_conv1d", "mixer.conv1d", channels, h->taps);
    nn_bind_vec(b, &w->conv_bias, "ssm_conv1d.bias", "mixer.conv1d.bias", channels, NN_OPTIONAL);
    nn_bind_vec(b, &w->a, "ssm_a", "mixer.A_log", h->n_head, NN_NEG_EXP);
    nn_bind_vec(b, &w->d, "ssm_d", "mixer.D", h->n_head, 0);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "mixer.dt_bias", h->n_head, 0);
    nn_bind_table(b, &w->gate_norm, "ssm_norm", "mixer.norm", h->n_group, h->inner / h->n_group);
}

static nn_state state(const void *hp, int i) {
    const hparams *h = hp;
    (void)i;
    return (nn_state){ .conv_channels = conv_channels(h),
                       .conv_kernel = h->taps,
                       .rec_heads = h->n_head,
                       .rec_dim_k = h->n_state,
                       .rec_dim_v = h->dim };
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    const int      inner = h->inner, bc = h->n_group * h->n_state;
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       p = nn_project(t, nn_rms_norm(t, x, w->norm, h->d.eps), w->in);
        nn_buf       z = nn_take(t, p, 0, inner);
        nn_buf c = nn_conv(t, i, nn_take(t, p, inner, inner + 2 * bc), w->conv, w->conv_bias, h->taps, 0, NN_ACT_SILU);
        nn_ssm_spec s = { .n_head = h->n_head,
                          .dim = h->dim,
                          .n_group = h->n_group,
                          .n_state = h->n_state,
                          .a = w->a,
                          .d = w->d,
                          .dt_bias = w->dt_bias,
                          .dt_min = h->dt_min,
                          .dt_max = h->dt_max };
        nn_buf      y = nn_ssm(t, i, nn_take(t, c, 0, inner), nn_take(t, c, inner, bc), nn_take(t, c, inner + bc, bc),
                               nn_take(t, p, 2 * inner + 2 * bc, h->n_head), s);
        nn_gate(t, y, z, NN_ACT_SILU);
        nn_project_add(t, x, nn_rms_norm_groups(t, y, inner / h->n_group, w->gate_norm, h->d.eps), w->out);
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps);
    nn_logits(t, x, tw->head, 1, 0);
}

static const char *const names[] = { "mamba2", NULL };

const nn_arch models_mamba2 = { NN_FAMILY, .act = "silu|swish", .names = names, .hf_layers = "backbone.layers.",
                                .lacks = NN_LACKS_HEADS | NN_LACKS_FF };
