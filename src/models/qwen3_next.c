/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 3 Next and Qwen 3.5, dense and MoE: three layers of gated delta net to one of gated attention. The delta net
 * passes q, k and v through one short convolution; attention gates its output with the second half of its query
 * projection and rotates a quarter of each head. Norm weights are stored as w - 1, but for the delta net's own.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        heads_k, heads_v, dim_k, dim_v, inner, taps;
    int        n_expert, n_used, n_ff_expert, n_ff_shared, n_next;
    bool       fused, tiled; /* 3 Next: q, k, v, z and b, a in one matrix each; GGUF of 3.5: value heads reordered */
    const int *linear;       /* per layer: delta net, else attention */
    nn_rope    rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *mix_norm, *ffn_norm;
    nn_heads      attn; /* q: query and gate */
    nn_linear     qkv, z, ba, beta, alpha, out;
    const nn_vec *conv, *a, *dt_bias, *norm;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "intermediate_size", 0), /* absent where every layer has experts */
    NN_INT(heads_k, "ssm.group_count", "linear_num_key_heads", NN_REQUIRED),
    NN_INT(heads_v, "ssm.time_step_rank", "linear_num_value_heads", NN_REQUIRED),
    NN_INT(dim_k, "ssm.state_size", "linear_key_head_dim", NN_REQUIRED),
    NN_INT(dim_v, NULL, "linear_value_head_dim", 0),
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(taps, "ssm.conv_kernel", "linear_conv_kernel_dim", 4),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 0),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0), /* GGUF counts these layers, which predict further tokens */
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "attn_output_gate", "true");
    nn_config_only(c, NULL, "hidden_act", "silu");
    h->fused = nn_config_arch(c, "qwen3next") || nn_config_arch(c, "qwen3_next");
    h->tiled = !h->fused && nn_config_gguf(c);
    if (h->heads_k < 1 || h->heads_v < 1 || h->heads_v > 4096 || h->heads_v % h->heads_k || h->dim_k < 1 ||
        h->dim_k > 4096 || h->taps < 2 || h->taps > 8) {
        nn_config_fail(c, "%d value heads and %d key heads of %d with %d taps make no delta net", h->heads_v,
                       h->heads_k, h->dim_k, h->taps);
        return;
    }
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers predict further tokens", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next;
    if (h->dim_v == 0) h->dim_v = h->inner / h->heads_v;
    if (h->dim_v < 1 || h->dim_v > 4096 || (h->inner && h->inner != h->dim_v * h->heads_v)) {
        nn_config_fail(c, "an inner size of %d does not divide into %d value heads", h->inner, h->heads_v);
        return;
    }
    h->inner = h->dim_v * h->heads_v;
    nn_config_derived_int(c, "ssm.inner_size", h->inner);
    h->linear = nn_config_layer_is(c, NULL, "layer_types", "linear_attention",
                                   (int)nn_config_int(c, "full_attention_interval", "full_attention_interval", 4));
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 10000000, .partial = 0.25 });
    if (!h->fused) nn_rope_axes(c, &h->rope, true);
}

/* The block of a head for further tokens stands behind the last layer and attends. */
static bool is_delta(const hparams *h, int i) { return i < h->d.n_layer && h->linear[i]; }

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, NN_PLUS_ONE); }

static void bind_delta(nn_binder *b, layer *w, const hparams *h) {
    int    n = h->d.n_embd, keys_width = h->heads_k * h->dim_k, channels = 2 * keys_width + h->inner;
    int    own = h->inner / h->heads_k; /* the values of one key head */
    nn_run qkv[] = { { 0, h->dim_k }, { h->dim_k, h->dim_k }, { 2 * h->dim_k, own } },
           z[] = { { 2 * h->dim_k + own, own } };
    if (h->fused) { /* Hugging Face: per key head its q, its k, its v, its z */
        int part = 2 * h->dim_k + 2 * own;
        nn_bind_runs(b, &w->qkv, "attn_qkv", "linear_attn.in_proj_qkvz", n, h->heads_k, part, qkv, 3);
        nn_bind_runs(b, &w->z, "attn_gate", "linear_attn.in_proj_qkvz", n, h->heads_k, part, z, 1);
        nn_bind_linear(b, &w->ba, "ssm_ba", "linear_attn.in_proj_ba", n, 2 * h->heads_v, 0);
    } else {
        nn_bind_linear(b, &w->qkv, "attn_qkv", "linear_attn.in_proj_qkv", n, channels, 0);
        nn_bind_linear(b, &w->z, "attn_gate", "linear_attn.in_proj_z", n, h->inner, 0);
        nn_bind_linear(b, &w->beta, "ssm_beta", "linear_attn.in_proj_b", n, h->heads_v, 0);
        nn_bind_linear(b, &w->alpha, "ssm_alpha", "linear_attn.in_proj_a", n, h->heads_v, 0);
    }
    nn_bind_table(b, &w->conv, "ssm_conv1d", "linear_attn.conv1d", channels, h->taps);
    nn_bind_vec(b, &w->a, "ssm_a", "linear_attn.A_log", h->heads_v, NN_NEG_EXP);
    nn_bind_vec(b, &w->dt_bias, "ssm_dt.bias", "linear_attn.dt_bias", h->heads_v, 0);
    nn_bind_vec(b, &w->norm, "ssm_norm", "linear_attn.norm", h->dim_v, 0);
    nn_bind_linear(b, &w->out, "ssm_out", "linear_attn.out_proj", h->inner, n, 0);
}

static void bind_attention(nn_binder *b, nn_heads *w, const nn_dims *d) {
    int n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, 2 * q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_head_norms(b, w, d->head_dim, d->head_dim, NN_PLUS_ONE);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    int            n = h->d.n_embd;
    nn_bind_vec(b, &w->mix_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_vec(b, &w->ffn_norm, "post_attention_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    if (is_delta(h, i))
        bind_delta(b, w, h);
    else
        bind_attention(b, &w->attn, &h->d);
    if (!h->n_expert || !nn_bind_exists(b, "ffn_gate_inp", "mlp.gate")) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, h->d.n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, NN_OPTIONAL);
    if (h->n_ff_shared == 0) return;
    nn_bind_linear(b, &w->ffn.shared_router, "ffn_gate_inp_shexp", "mlp.shared_expert_gate", n, 1, 0);
    nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_expert", n, h->n_ff_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (!is_delta(h, i)) return nn_state_kv(h->d.n_kv, h->d.head_dim, 0);
    return (nn_state){ .conv_channels = 2 * h->heads_k * h->dim_k + h->inner,
                       .conv_kernel = h->taps,
                       .rec_heads = h->heads_v,
                       .rec_dim_k = h->dim_k,
                       .rec_dim_v = h->dim_v };
}

static void delta_net(nn_tape *t, int i, nn_buf x, nn_buf n, const hparams *h, const layer *w) {
    int    width = h->heads_k * h->dim_k, per = h->heads_v / h->heads_k;
    nn_buf c = nn_conv(t, i, nn_project(t, n, w->qkv), w->conv, NULL, h->taps, 0, NN_ACT_SILU);
    nn_buf q = nn_l2_norm(t, nn_take(t, c, 0, width), h->dim_k, 1e-6f);
    nn_buf k = nn_l2_norm(t, nn_take(t, c, width, width), h->dim_k, 1e-6f);
    nn_buf v = nn_take(t, c, 2 * width, h->inner), beta, g;
    if (h->fused) {
        nn_buf ba = nn_project(t, n, w->ba);
        beta = nn_take_each(t, ba, 2 * per, 0, per);
        g = nn_take_each(t, ba, 2 * per, per, per);
    } else {
        beta = nn_project(t, n, w->beta);
        g = nn_project(t, n, w->alpha);
    }
    nn_act(t, beta, NN_ACT_SIGMOID);
    nn_decay(t, g, w->a, w->dt_bias);
    nn_buf o = nn_delta(t, i, q, k, v, g, beta,
                        (nn_delta_spec){ .heads_k = h->heads_k,
                                         .heads_v = h->heads_v,
                                         .dim_k = h->dim_k,
                                         .dim_v = h->dim_v,
                                         .scale = 1.0f / sqrtf((float)h->dim_k),
                                         .k_tiled = h->tiled });
    o = nn_rms_norm(t, o, w->norm, h->d.eps);
    nn_gate(t, o, nn_project(t, n, w->z), NN_ACT_SILU);
    nn_project_add(t, x, o, w->out);
}

static void attention(nn_tape *t, int i, nn_buf x, nn_buf n, const hparams *h, const nn_heads *w) {
    const nn_dims *d = &h->d;
    nn_buf         both = nn_project(t, n, w->q); /* per head: query, gate */
    nn_buf         q = nn_rms_norm(t, nn_take_each(t, both, 2 * d->head_dim, 0, d->head_dim), w->q_norm, d->eps);
    nn_buf         k = nn_rms_norm(t, nn_project(t, n, w->k), w->k_norm, d->eps);
    nn_rotate(t, q, k, d->head_dim, &h->rope);
    nn_kv_store(t, i, k, nn_project(t, n, w->v));
    nn_buf o = nn_attention(t, i, q, nn_attn_plain(d, 0));
    nn_gate(t, o, nn_take_each(t, both, 2 * d->head_dim, d->head_dim, d->head_dim), NN_ACT_SIGMOID);
    nn_project_add(t, x, o, w->o);
}

static void block(nn_tape *t, int i, nn_buf x, const void *hp, const void *weights) {
    const hparams    *h = hp;
    const layer      *w = weights;
    const nn_moe_spec how = { .n_expert = h->n_expert, .n_used = h->n_used, .renorm = true, .glu.act = NN_ACT_SILU };
    nn_buf            n = nn_rms_norm(t, x, w->mix_norm, h->d.eps);
    if (w->conv)
        delta_net(t, i, x, n, h, w);
    else
        attention(t, i, x, n, h, &w->attn);
    nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, h->d.eps), &w->ffn, how));
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_buf         x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) block(t, i, x, h, &lw[i]);
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps), tw->head, 1.0f, 0.0f);
}

#define HYBRID NN_FAMILY, .block = block, .next_norms = NN_PLUS_ONE
const nn_arch models_qwen3_next = { HYBRID,
                                    .gguf_only = true,
                                    .names = NN_NAMES("qwen3next", "qwen3_next"),
                                    .act = "silu|swish",
                                    .lacks = NN_LACKS_FF,
                                    .kinds = "linear_attention|full_attention" };
const nn_arch models_qwen3_5 = { HYBRID,
                                 .gguf_only = true,
                                 .reordered = true,
                                 .names = NN_NAMES("qwen35", "qwen3_5_text", "qwen3_5"),
                                 .act = "silu|swish",
                                 .lacks = NN_LACKS_FF,
                                 .kinds = "linear_attention|full_attention" };
const nn_arch models_qwen3_5_moe = { HYBRID,
                                     .gguf_only = true,
                                     .reordered = true,
                                     .names = NN_NAMES("qwen35moe", "qwen3_5_moe_text", "qwen3_5_moe"),
                                     .act = "silu|swish",
                                     .lacks = NN_LACKS_FF,
                                     .kinds = "linear_attention|full_attention" };
