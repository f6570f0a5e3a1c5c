/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder half of T5: pre-norm, no positions but a bias by distance that all layers share, scores without a scale. */
#include "nn/nn.h"

#include <stddef.h>

typedef struct hparams {
    nn_dims     d;
    int         n_bucket, max_distance;
    bool        gated;
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd;
    const nn_vec *norm;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *bias; /* bias: the first layer's */
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(n_bucket, "attention.relative_buckets_count", "relative_attention_num_buckets", 32),
    NN_INT(max_distance, NULL, "relative_attention_max_distance", 128),
    { 0 },
};

/* "gated-gelu" is T5 1.1's; there gelu means its tanh form. Converters do not say the activation: a gate says it. */
static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->d.n_kv = h->d.n_head;
    h->gated = nn_config_is(c, NULL, "feed_forward_proj", "gated-gelu", false);
    h->act = h->gated ? NN_ACT_GELU_TANH : NN_ACT_RELU;
    if (!h->gated && !nn_config_is(c, NULL, "feed_forward_proj", "relu", true))
        nn_config_fail(c, "feed_forward_proj: only \"relu\" and \"gated-gelu\" are supported");
    if (nn_config_bool(c, NULL, "is_decoder", false)) nn_config_fail(c, "is_decoder is not supported for this family");
    if (h->max_distance != 128) nn_config_unsaid(c, "relative_attention_max_distance");
    if (h->d.context < 1) h->d.context = 512;
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "shared|encoder.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "enc.output_norm", "encoder.final_layer_norm", d->n_embd, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    const int64_t  n = d->n_embd, q = (int64_t)d->n_head * d->head_dim;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "layer.0.layer_norm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "layer.0.SelfAttention.q", n, q, NN_NO_BIAS);
    nn_bind_linear(b, &w->k, "attn_k", "layer.0.SelfAttention.k", n, q, NN_NO_BIAS);
    nn_bind_linear(b, &w->v, "attn_v", "layer.0.SelfAttention.v", n, q, NN_NO_BIAS);
    nn_bind_linear(b, &w->o, "attn_o", "layer.0.SelfAttention.o", q, n, NN_NO_BIAS);
    if (i == 0)
        nn_bind_table(b, &w->bias, "attn_rel_b", "layer.0.SelfAttention.relative_attention_bias", h->n_bucket,
                      d->n_head);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "layer.1.layer_norm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "layer.1.DenseReluDense.wi_0", n, d->n_ff, h->gated ? 0 : NN_OPTIONAL);
    nn_bind_linear(b, &w->up, "ffn_up", w->gate.w ? "layer.1.DenseReluDense.wi_1" : "layer.1.DenseReluDense.wi", n,
                   d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "layer.1.DenseReluDense.wo", d->n_ff, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   a = { .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1 };
    a.bias = nn_bias_buckets(t, lw[0].bias, d->n_head, h->n_bucket, h->max_distance);
    nn_buf x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_buf f = w->gate.w ? nn_glu(t, n, w->gate, w->up, NN_ACT_GELU_TANH) : nn_project(t, n, w->up);
        if (!w->gate.w) nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
    }
    nn_vectors(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps));
}

const nn_arch models_t5_encoder = { NN_WHOLE, .names = NN_NAMES("t5encoder", "t5"), .gguf_layers = "enc.blk.",
                                    .hf_layers = "encoder.block." };
