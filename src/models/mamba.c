/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mamba, Falcon Mamba and Jamba: a short convolution and a scan whose step, input and output vectors come from the
 * convolved signal. Falcon Mamba norms those three without weights, Jamba with. Jamba has a feed-forward behind every
 * mixer, in every second layer of experts, and attention without positions instead of the scan in every eighth.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    int        inner, n_state, taps, rank, n_expert, n_used;
    bool       jamba, norms;
    float      inner_eps;
    const int *attends; /* per layer */
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *norm, *ffn_norm, *conv, *conv_bias, *a, *d, *dt_bias, *dt_norm, *b_norm, *c_norm;
    nn_linear     in, x, dt, out;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(n_state, "ssm.state_size", "state_size|mamba_d_state", 16),
    NN_INT(taps, "ssm.conv_kernel", "conv_kernel|mamba_d_conv", 4),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    { 0 },
};

static void read_layers(nn_config *c, hparams *h) {
    int    *out = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *out);
    int    *kv = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *kv);
    int64_t period = nn_config_int(c, NULL, "attn_layer_period", 8),
            at = nn_config_int(c, NULL, "attn_layer_offset", 4);
    const int *heads = nn_config_layer_ints(c, "attention.head_count_kv", NULL, 0);
    if (period < 1 || at < 0 || at >= period) {
        nn_config_fail(c, "attention in every %lldth layer from the %lldth makes no sense", (long long)period,
                       (long long)at);
        return;
    }
    for (int i = 0; i < h->d.n_layer; i++) {
        out[i] = h->jamba && (nn_config_gguf(c) ? heads[i] > 0 : i % period == at);
        if (nn_config_gguf(c) && heads[i] > 0) h->d.n_kv = heads[i];
        kv[i] = out[i] ? h->d.n_kv : 0;
    }
    if (h->jamba) nn_config_derived_layers(c, "attention.head_count_kv", kv);
    h->attends = out;
    if (h->jamba && (h->d.n_kv < 1 || h->d.n_head % h->d.n_kv))
        nn_config_fail(c, "%d attention heads cannot share %d key heads", h->d.n_head, h->d.n_kv);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     automatic = nn_config_is(c, NULL, "time_step_rank|mamba_dt_rank", "auto", false);
    h->jamba = nn_config_arch(c, "jamba");
    nn_config_only(c, NULL, "hidden_act", "silu");
    h->rank = automatic ? (h->d.n_embd + 15) / 16
                        : (int)nn_config_int(c, "ssm.time_step_rank", "time_step_rank|mamba_dt_rank",
                                             (h->d.n_embd + 15) / 16);
    nn_config_derived_int(c, "ssm.time_step_rank", h->rank);
    if (!nn_config_gguf(c)) {
        int64_t expand = nn_config_int(c, NULL, "expand|mamba_expand", 2);
        h->inner = expand > 0 && expand <= 64 ? (int)expand * h->d.n_embd : 0;
    }
    nn_config_derived_int(c, "ssm.inner_size", h->inner);
    h->norms = nn_config_bool(c, "ssm.dt_b_c_rms", NULL, nn_config_arch(c, "falcon_mamba"));
    if (h->norms) nn_config_derived_bool(c, "ssm.dt_b_c_rms", true);
    h->inner_eps = h->jamba ? h->d.eps : (float)nn_config_real(c, NULL, "mixer_rms_eps", 1e-6);
    if (h->inner < 1 || h->inner > 1 << 20 || h->n_state < 1 || h->n_state > 256 || h->taps < 2 || h->taps > 8 ||
        h->rank < 1 || h->rank > 1 << 16 || h->n_expert < 0) {
        nn_config_fail(c, "a scan of %d channels, %d states, rank %d and %d taps makes no sense", h->inner, h->n_state,
                       h->rank, h->taps);
        return;
    }
    read_layers(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "backbone.embeddings|backbone.embedding|model.embed_tokens", d->n_embd,
                d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "output_norm", "backbone.norm_f|model.final_layernorm", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_scan(nn_binder *b, layer *w, const hparams *h) {
    int n = h->d.n_embd, in = h->inner, s = h->n_state;
    nn_bind_linear(b, &w->in, "ssm_in", "mixer.in_proj|mamba.in_proj", n, 2 * in, 0);
    nn_bind_table(b, &w->conv, "ssm_conv1d", "mixer.conv1d|mamba.conv1d", in, h->taps);
    nn_bind_vec(b, &w->conv_bias, "ssm_conv1d.bias", "mixer.conv1d.bias|mamba.conv1d.bias", in, NN_OPTIONAL);
    nn_bind_linear(b, &w->x, "ssm_x", "mixer.x_proj|mamba.x_proj", in, h->rank + 2 * s, NN_NO_BIAS);
    nn_bind_mat(b, &w->dt.w, "ssm_dt", "mixer.dt_proj|mamba.dt_proj", h->rank, in, 0);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "mixer.dt_proj.bias|mamba.dt_proj.bias", in, 0);
    nn_bind_grid(b, &w->a, "ssm_a", "mixer.A_log|mamba.A_log", in, s, NN_NEG_EXP);
    nn_bind_vec(b, &w->d, "ssm_d", "mixer.D|mamba.D", in, 0);
    nn_bind_linear(b, &w->out, "ssm_out", "mixer.out_proj|mamba.out_proj", in, n, 0);
    if (!h->jamba) return;
    nn_bind_vec(b, &w->dt_norm, "ssm_dt_norm", "mamba.dt_layernorm", h->rank, 0);
    nn_bind_vec(b, &w->b_norm, "ssm_b_norm", "mamba.b_layernorm", s, 0);
    nn_bind_vec(b, &w->c_norm, "ssm_c_norm", "mamba.c_layernorm", s, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->norm, "attn_norm", "norm|input_layernorm", n, 0);
    if (h->attends[i])
        nn_bind_attention(b, &w->attn, n, d->n_head * d->head_dim, d->n_kv * d->head_dim, 0);
    else
        bind_scan(b, w, h);
    if (!h->jamba) return;
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_ff_layernorm", n, 0);
    if (nn_bind_exists(b, "ffn_gate_inp", "feed_forward.router") && h->n_expert > 1)
        nn_bind_ffn_experts(b, &w->ffn, "feed_forward", n, d->n_ff, h->n_expert, NN_OPTIONAL);
    else
        nn_bind_ffn(b, &w->ffn, "feed_forward", n, d->n_ff);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (h->attends[i]) return nn_state_kv(h->d.n_kv, h->d.head_dim, 0);
    return (nn_state){ .conv_channels = h->inner,
                       .conv_kernel = h->taps,
                       .rec_heads = 1,
                       .rec_dim_k = h->n_state,
                       .rec_dim_v = h->inner };
}

static nn_buf scan(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    nn_buf p = nn_project(t, n, w->in);
    nn_buf x = nn_conv(t, i, nn_take(t, p, 0, h->inner), w->conv, w->conv_bias, h->taps, 0, NN_ACT_SILU);
    nn_buf s = nn_project(t, x, w->x);
    nn_buf dt = nn_take(t, s, 0, h->rank), b = nn_take(t, s, h->rank, h->n_state),
           c = nn_take(t, s, h->rank + h->n_state, h->n_state);
    if (h->norms || h->jamba) {
        dt = nn_rms_norm(t, dt, w->dt_norm, h->inner_eps);
        b = nn_rms_norm(t, b, w->b_norm, h->inner_eps);
        c = nn_rms_norm(t, c, w->c_norm, h->inner_eps);
    }
    nn_buf y = nn_scan(
        t, i, x, b, c, nn_project(t, dt, w->dt),
        (nn_scan_spec){ .n_channel = h->inner, .n_state = h->n_state, .a = w->a, .d = w->d, .dt_bias = w->dt_bias });
    nn_gate(t, y, nn_take(t, p, h->inner, h->inner), NN_ACT_SILU);
    return nn_project(t, y, w->out);
}

static nn_buf attend(nn_tape *t, nn_buf n, const nn_dims *d, const nn_heads *w, int i) {
    nn_attn_spec a = nn_attn_plain(d, 0);
    nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
    return nn_project(t, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const top        *tw = net->top;
    const nn_moe_spec how = { .n_expert = h->n_expert, .n_used = h->n_used, .glu.act = NN_ACT_SILU };
    nn_buf            x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->norm, d->eps);
        nn_add(t, x, h->attends[i] ? attend(t, n, d, &w->attn, i) : scan(t, n, h, w, i));
        if (h->jamba) nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "mamba", "falcon_mamba", NULL }, *const names_jamba[] = { "jamba", NULL };
const nn_arch models_mamba = { NN_FAMILY, .names = names, .tied = names, .hf_layers = "backbone.layers.",
                               .lacks = NN_LACKS_HEADS | NN_LACKS_FF };
const nn_arch models_jamba = { NN_FAMILY, .names = names_jamba };
