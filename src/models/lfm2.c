/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LFM2 and LFM2-MoE: most layers mix tokens with a gated short convolution, a few with attention (per-head q/k norm).
 * The feed-forward is SwiGLU; in the MoE models, past the first layers, sigmoid-routed experts with a choice bias.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        taps, n_expert, n_used, n_ff_exp, n_dense;
    bool       renorm;
    float      scale;
    const int *attn; /* per layer: attention, else convolution */
    nn_rope    rope;
} hparams;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "block_ff_dim|intermediate_size", NN_REQUIRED), /* the former counts */
    NN_INT(taps, "shortconv.l_cache", "conv_L_cache", NN_REQUIRED),
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_exp, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_dense, "leading_dense_block_count", "num_dense_layers", 0),
    NN_BOOL(renorm, "expert_weights_norm", "norm_topk_prob", 1),
    NN_FLOAT(scale, "expert_weights_scale", "routed_scaling_factor", 1),
    { 0 },
};

typedef nn_ends top;

typedef struct layer {
    const nn_vec *mix_norm, *ffn_norm, *conv, *conv_bias;
    nn_linear     in, out;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static bool has_experts(const hparams *h, int i) { return h->n_expert > 0 && i >= h->n_dense; }

/* config.json of the dense models gives a width that the model then shrinks and rounds. */
static int adjusted_ff(nn_config *c, int ff) {
    int    multiple = (int)nn_config_int(c, NULL, "block_multiple_of", 256);
    double factor = nn_config_real(c, NULL, "block_ffn_dim_multiplier", 1.0);
    if (nn_config_gguf(c) || !nn_config_bool(c, NULL, "block_auto_adjust_ff_dim", true)) return ff;
    if (multiple < 1 || multiple > 65536 || factor <= 0 || factor > 64) {
        nn_config_fail(c, "a feed-forward width of %g times, in steps of %d, makes no sense", factor, multiple);
        return ff;
    }
    ff = (int)(factor * (int)(2.0 * ff / 3.0));
    return (ff + multiple - 1) / multiple * multiple;
}

static void setup(nn_config *c, void *hp) {
    hparams   *h = hp;
    const int *kv = nn_config_layer_ints(c, "attention.head_count_kv", "num_key_value_heads", h->d.n_head);
    int       *attn = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *attn);
    bool       listed = nn_config_count(c, NULL, "layer_types") > 0;
    bool       all = !listed && !nn_config_has(c, NULL, "full_attn_idxs");
    const int *types = nn_config_layer_is(c, NULL, "layer_types", "full_attention", 0);
    h->d.n_kv = 1;
    for (int i = 0; i < h->d.n_layer; i++) {
        attn[i] = nn_config_gguf(c) ? kv[i] > 0
                  : listed          ? types[i]
                                    : all || nn_config_lists(c, NULL, "full_attn_idxs", i);
        if (kv[i] > 0) h->d.n_kv = kv[i];
    }
    h->attn = attn;
    int *heads = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *heads);
    for (int i = 0; i < h->d.n_layer; i++) heads[i] = attn[i] ? h->d.n_kv : 0;
    nn_config_derived_layers(c, "attention.head_count_kv", heads);
    if (h->n_expert) nn_config_derived_int(c, "expert_gating_func", 2);
    if (h->n_expert == 0) h->d.n_ff = adjusted_ff(c, h->d.n_ff);
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    if (h->d.n_head % h->d.n_kv)
        nn_config_fail(c, "%d attention heads cannot share %d key heads", h->d.n_head, h->d.n_kv);
    if (h->taps < 2 || h->taps > 8) nn_config_fail(c, "the short convolution has %d taps", h->taps);
    if (h->n_expert && (h->n_used < 1 || h->n_used > h->n_expert || h->n_ff_exp < 1))
        nn_config_fail(c, "%d of %d experts of width %d make no sense", h->n_used, h->n_expert, h->n_ff_exp);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000.0 });
}

static void bind_top(nn_binder *b, void *out, const void *hp) {
    const nn_dims *d = hp;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "token_embd_norm", "model.embedding_norm", d->n_embd, 0); /* it is the output norm */
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const hparams *h = hp;
    layer         *w = out;
    const int64_t  d = h->d.n_embd;
    nn_bind_vec(b, &w->mix_norm, "attn_norm", "operator_norm", d, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "ffn_norm", d, 0);
    if (h->attn[i]) {
        nn_bind_qkvo(b, &w->attn, &h->d);
        nn_bind_vec(b, &w->attn.q_norm, "attn_q_norm", "self_attn.q_layernorm", h->d.head_dim, 0);
        nn_bind_vec(b, &w->attn.k_norm, "attn_k_norm", "self_attn.k_layernorm", h->d.head_dim, 0);
    } else {
        nn_bind_linear(b, &w->in, "shortconv.in_proj", "conv.in_proj", d, 3 * d, 0);
        nn_bind_linear(b, &w->out, "shortconv.out_proj", "conv.out_proj", d, d, 0);
        nn_bind_table(b, &w->conv, "shortconv.conv.weight", "conv.conv", d, h->taps);
        nn_bind_vec(b, &w->conv_bias, "shortconv.conv.bias", "conv.conv.bias", d, NN_OPTIONAL);
    }
    if (has_experts(h, i)) {
        nn_bind_ffn_experts(b, &w->ffn, "feed_forward", d, h->n_ff_exp, h->n_expert, NN_OPTIONAL);
    } else {
        nn_bind_linear(b, &w->ffn.gate, "ffn_gate", "feed_forward.w1", d, h->d.n_ff, 0);
        nn_bind_linear(b, &w->ffn.up, "ffn_up", "feed_forward.w3", d, h->d.n_ff, 0);
        nn_bind_linear(b, &w->ffn.down, "ffn_down", "feed_forward.w2", h->d.n_ff, d, 0);
    }
}

static nn_state state(const void *hp, int i) {
    const hparams *h = hp;
    if (!h->attn[i]) return (nn_state){ .conv_channels = h->d.n_embd, .conv_kernel = h->taps };
    return (nn_state){ .kind = NN_STATE_PAGED_KV, .n_kv = h->d.n_kv, .dim_k = h->d.head_dim, .dim_v = h->d.head_dim };
}

static void short_conv(nn_tape *t, const hparams *h, const layer *w, int i, nn_buf x, nn_buf n) {
    const int d = h->d.n_embd;
    nn_buf    p = nn_project(t, n, w->in);
    nn_buf    in = nn_take(t, p, 0, d);
    nn_gate(t, in, nn_take(t, p, 2 * d, d), NN_ACT_NONE);
    nn_buf y = nn_conv(t, i, in, w->conv, w->conv_bias, h->taps, 0, NN_ACT_NONE);
    nn_gate(t, y, nn_take(t, p, d, d), NN_ACT_NONE);
    nn_project_add(t, x, y, w->out);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_moe_spec    how = { .n_expert = h->n_expert,
                           .n_used = h->n_used,
                           .score = NN_SCORE_SIGMOID,
                           .renorm = h->renorm,
                           .renorm_eps = 1e-6f,
                           .scale = h->scale,
                           .glu.act = NN_ACT_SILU };
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->mix_norm, h->d.eps);
        if (h->attn[i])
            nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(&h->d, 0), h->d.eps), w->attn.o);
        else
            short_conv(t, h, w, i, x, n);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, h->d.eps), &w->ffn, how));
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps);
    nn_logits(t, x, tw->head, 1, 0);
}

static const char *const names[] = { "lfm2", NULL }, *const names_moe[] = { "lfm2moe", "lfm2_moe", NULL };

const nn_arch models_lfm2 = { NN_FAMILY, .names = names, .act = "silu|swish", .tied = names,
                              .kinds = "conv|full_attention" };
const nn_arch models_lfm2_moe = { NN_FAMILY,           .gguf_only = true, .names = names_moe,
                                  .act = "silu|swish", .tied = names_moe, .kinds = "conv|full_attention" };
