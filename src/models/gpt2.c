/* SPDX-License-Identifier: Apache-2.0 */
/* GPT-2: learned positions, LayerNorm, biases everywhere, fused qkv, GELU feed-forward. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
} hparams;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "n_inner", 0), /* often null in config.json: four times the width */
    { 0 },
};

typedef struct top {
    const nn_mat *embd, *positions;
    const nn_vec *norm, *norm_bias;
    nn_linear     head;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *attn_norm_bias, *ffn_norm, *ffn_norm_bias;
    nn_linear     q, k, v, o, up, down;
} layer;

static void setup(nn_config *c, void *hp) {
    hparams *h = hp;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    h->d.n_kv = h->d.n_head;
    if (nn_config_bool(c, NULL, "scale_attn_by_inverse_layer_idx", false) ||
        !nn_config_bool(c, NULL, "scale_attn_weights", true))
        nn_config_fail(c, "scale_attn_by_inverse_layer_idx and scale_attn_weights other than usual are not supported");
    if (h->d.n_ff <= 0) h->d.n_ff = 4 * h->d.n_embd;
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    if (h->d.context < 1) nn_config_fail(c, "learned positions need a context length");
}

static void bind_top(nn_binder *b, void *out, const void *hp) {
    const nn_dims *d = hp;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.wte", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->positions, "position_embd", "model.wpe", d->n_embd, d->context, 0);
    nn_bind_vec(b, &t->norm, "output_norm", "model.ln_f", d->n_embd, 0);
    nn_bind_vec(b, &t->norm_bias, "output_norm.bias", "model.ln_f.bias", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

/* Hugging Face stores the matrices of this family as inputs by outputs. */
static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const nn_dims *d = hp;
    layer         *w = out;
    const int64_t  n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "ln_1", n, 0);
    nn_bind_vec(b, &w->attn_norm_bias, "attn_norm.bias", "ln_1.bias", n, 0);
    nn_bind_linear(b, &w->q, "attn_qkv#0/3", "attn.c_attn^#0/3", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_qkv#1/3", "attn.c_attn^#1/3", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_qkv#2/3", "attn.c_attn^#2/3", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "attn.c_proj^", n, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "ln_2", n, 0);
    nn_bind_vec(b, &w->ffn_norm_bias, "ffn_norm.bias", "ln_2.bias", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.c_fc^", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.c_proj^", d->n_ff, n, 0);
}

static nn_state state(const void *hp, int i) {
    const nn_dims *d = hp;
    (void)i;
    return (nn_state){ .kind = NN_STATE_PAGED_KV, .n_kv = d->n_kv, .dim_k = d->head_dim, .dim_v = d->head_dim };
}

static void forward(nn_tape *t, const nn_net *net) {
    const nn_dims *d = net->hp;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_embed(t, tw->embd, 1);
    nn_embed_positions(t, x, tw->positions, 0);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_layer_norm(t, x, w->attn_norm, w->attn_norm_bias, d->eps);
        nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
        n = nn_layer_norm(t, x, w->ffn_norm, w->ffn_norm_bias, d->eps);
        nn_buf f = nn_project(t, n, w->up);
        nn_act(t, f, NN_ACT_GELU_TANH);
        nn_project_add(t, x, f, w->down);
    }
    x = nn_layer_norm(t, nn_outputs(t, x), tw->norm, tw->norm_bias, d->eps);
    nn_logits(t, x, tw->head, 1, 0);
}

static const char *const names[] = { "gpt2", NULL };

const nn_arch models_gpt2 = { NN_FAMILY,     .names = names,          .act = "gelu_new|gelu_pytorch_tanh",
                              .tied = names, .hf_layers = "model.h.", .lacks = NN_LACKS_FF };
