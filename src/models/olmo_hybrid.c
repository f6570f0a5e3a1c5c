/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OLMo Hybrid: layers of gated delta net, normed in front, and of OLMo 3's attention, normed behind. The delta net has
 * projections and convolutions of its own for q, k and v, and may weigh what it writes by up to two. Where the base
 * of the rotation is null, as in the published models, there are no positions.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        heads_k, heads_v, dim_k, dim_v, taps;
    bool       doubled;
    const int *linear; /* per layer */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm; /* of the delta net's layers in front, of the others behind */
    nn_heads      attn;
    nn_linear     alpha, beta, gate;
    const nn_vec *conv[3], *a, *dt_bias, *norm;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(heads_k, "ssm.group_count", "linear_num_key_heads", 0),
    NN_INT(heads_v, "ssm.time_step_rank", "linear_num_value_heads", 0),
    NN_INT(dim_k, "ssm.state_size", "linear_key_head_dim", 0),
    NN_INT(dim_v, NULL, "linear_value_head_dim", 0),
    NN_INT(taps, "ssm.conv_kernel", "linear_conv_kernel_dim", 4),
    NN_BOOL(doubled, NULL, "linear_allow_neg_eigval", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams   *h = p;
    const int *list = nn_config_layer_is(c, NULL, "layer_types", "linear_attention", 4);
    if (h->heads_k == 0) h->heads_k = h->d.n_head;
    if (h->heads_v == 0) h->heads_v = h->d.n_head;
    if (h->dim_k == 0 && h->heads_k > 0) h->dim_k = (int)(0.75 * h->d.n_embd / h->heads_k);
    if (h->dim_v == 0 && h->dim_k <= 4096) h->dim_v = 2 * h->dim_k;
    if (h->heads_k < 1 || h->heads_v < 1 || h->heads_v > 4096 || h->heads_v % h->heads_k || h->dim_k < 1 ||
        h->dim_k > 4096 || h->dim_v < 1 || h->dim_v > 4096 || h->taps < 2 || h->taps > 8) {
        nn_config_fail(c, "%d value heads of %d and %d key heads of %d with %d taps make no delta net", h->heads_v,
                       h->dim_v, h->heads_k, h->dim_k, h->taps);
        return;
    }
    h->linear = list;
    nn_config_unsaid(c, "layer_types"); /* there are no GGUF files of this family */
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    if (nn_config_null(c, NULL, "rope_theta") || nn_config_null(c, "rope_parameters", "rope_theta")) h->rope.n_rot = 0;
}

static void bind_delta(nn_binder *b, layer *w, const hparams *h) {
    const int64_t n = h->d.n_embd, k = (int64_t)h->heads_k * h->dim_k, v = (int64_t)h->heads_v * h->dim_v;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "attention_layer_norm|input_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "feedforward_layer_norm|post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->attn.q, "attn_q", "linear_attn.q_proj", n, k, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "linear_attn.k_proj", n, k, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "linear_attn.v_proj", n, v, 0);
    nn_bind_linear(b, &w->attn.o, "attn_output", "linear_attn.o_proj", v, n, 0);
    nn_bind_linear(b, &w->gate, "attn_gate", "linear_attn.g_proj", n, v, 0);
    nn_bind_linear(b, &w->alpha, "ssm_alpha", "linear_attn.a_proj", n, h->heads_v, 0);
    nn_bind_linear(b, &w->beta, "ssm_beta", "linear_attn.b_proj", n, h->heads_v, 0);
    nn_bind_table(b, &w->conv[0], "ssm_conv1d_q", "linear_attn.q_conv1d", k, h->taps);
    nn_bind_table(b, &w->conv[1], "ssm_conv1d_k", "linear_attn.k_conv1d", k, h->taps);
    nn_bind_table(b, &w->conv[2], "ssm_conv1d_v", "linear_attn.v_conv1d", v, h->taps);
    nn_bind_vec(b, &w->a, "ssm_a", "linear_attn.A_log", h->heads_v, NN_NEG_EXP);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "linear_attn.dt_bias", h->heads_v, 0);
    nn_bind_vec(b, &w->norm, "ssm_norm", "linear_attn.o_norm", h->dim_v, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    nn_bind_mlp(b, &w->mlp, d, true);
    if (h->linear[i]) {
        bind_delta(b, w, h);
        return;
    }
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, (int64_t)d->n_head * d->head_dim, (int64_t)d->n_kv * d->head_dim, 0);
    nn_bind_vec(b, &w->attn_norm, "post_attention_norm", "feedforward_layer_norm|post_attention_layernorm", d->n_embd,
                0);
    nn_bind_vec(b, &w->ffn_norm, "post_ffw_norm", "post_feedforward_layernorm", d->n_embd, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (!h->linear[i]) return nn_state_kv(h->d.n_kv, h->d.head_dim, 0);
    return (nn_state){ .conv_channels = 2 * h->heads_k * h->dim_k + h->heads_v * h->dim_v,
                       .conv_kernel = h->taps,
                       .rec_heads = h->heads_v,
                       .rec_dim_k = h->dim_k,
                       .rec_dim_v = h->dim_v };
}

static nn_buf delta_net(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const int     width = h->heads_k * h->dim_k;
    nn_delta_spec s = { .heads_k = h->heads_k,
                        .heads_v = h->heads_v,
                        .dim_k = h->dim_k,
                        .dim_v = h->dim_v,
                        .scale = 1.0f / sqrtf((float)h->dim_k) };
    nn_buf        q = nn_conv(t, i, nn_project(t, n, w->attn.q), w->conv[0], NULL, h->taps, 0, NN_ACT_SILU);
    nn_buf        k = nn_conv(t, i, nn_project(t, n, w->attn.k), w->conv[1], NULL, h->taps, width, NN_ACT_SILU);
    nn_buf        v = nn_conv(t, i, nn_project(t, n, w->attn.v), w->conv[2], NULL, h->taps, 2 * width, NN_ACT_SILU);
    nn_buf        g = nn_project(t, n, w->alpha), beta = nn_project(t, n, w->beta);
    nn_decay(t, g, w->a, w->dt_bias);
    nn_act(t, beta, NN_ACT_SIGMOID);
    if (h->doubled) nn_scale(t, beta, 2);
    nn_buf o = nn_delta(t, i, nn_l2_norm(t, q, h->dim_k, 1e-6f), nn_l2_norm(t, k, h->dim_k, 1e-6f), v, g, beta, s);
    o = nn_rms_norm(t, o, w->norm, 1e-5f);
    nn_gate(t, o, nn_project(t, n, w->gate), NN_ACT_SILU);
    return o;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        if (h->linear[i]) {
            nn_project_add(t, x, delta_net(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, w, i), w->attn.o);
            nn_buf n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
            nn_project_add(t, x, nn_feed(t, n, &w->mlp, NN_ACT_SILU), w->mlp.down);
            continue;
        }
        nn_buf y = nn_attend(t, i, x, &w->attn, h->rope.n_rot ? &h->rope : NULL, nn_attn_plain(d, 0), d->eps);
        nn_add(t, x, nn_rms_norm(t, nn_project(t, y, w->attn.o), w->attn_norm, d->eps));
        y = nn_project(t, nn_feed(t, x, &w->mlp, NN_ACT_SILU), w->mlp.down);
        nn_add(t, x, nn_rms_norm(t, y, w->ffn_norm, d->eps));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1, 0);
}

const nn_arch models_olmo_hybrid = { NN_DECODER, .hf_only = true, .names = NN_NAMES("olmo_hybrid"), .act = "silu|swish",
                                     .kinds = "linear_attention|full_attention" };
