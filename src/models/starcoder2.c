/* SPDX-License-Identifier: Apache-2.0 */
/* StarCoder2: pre-norm GQA decoder with LayerNorm, biases, rotary positions, a sliding window and a GELU feed-forward.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     window;
    nn_rope rope;
} hparams;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    { 0 },
};

typedef struct top {
    const nn_mat *embd;
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
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_top(nn_binder *b, void *out, const void *hp) {
    const nn_dims *d = hp;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "output_norm", "model.norm", d->n_embd, 0);
    nn_bind_vec(b, &t->norm_bias, "output_norm.bias", "model.norm.bias", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const nn_dims *d = hp;
    layer         *w = out;
    const int64_t  n = d->n_embd, dq = (int64_t)d->n_head * d->head_dim, dk = (int64_t)d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_vec(b, &w->attn_norm_bias, "attn_norm.bias", "input_layernorm.bias", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, dq, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, dk, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, dk, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", dq, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm_bias, "ffn_norm.bias", "post_attention_layernorm.bias", n, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.c_fc", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.c_proj", d->n_ff, n, 0);
}

static nn_state state(const void *hp, int i) {
    const hparams *h = hp;
    (void)i;
    return (nn_state){ .kind = h->window > 0 ? NN_STATE_WINDOW : NN_STATE_PAGED_KV,
                       .n_kv = h->d.n_kv,
                       .dim_k = h->d.head_dim,
                       .dim_v = h->d.head_dim,
                       .window = h->window };
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, h->window);
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_layer_norm(t, x, w->attn_norm, w->attn_norm_bias, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, nn_project(t, n, w->v));
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        n = nn_layer_norm(t, x, w->ffn_norm, w->ffn_norm_bias, d->eps);
        nn_buf f = nn_project(t, n, w->up);
        nn_act(t, f, NN_ACT_GELU_TANH);
        nn_project_add(t, x, f, w->down);
    }
    x = nn_layer_norm(t, nn_outputs(t, x), tw->norm, tw->norm_bias, d->eps);
    nn_logits(t, x, tw->head, 1, 0);
}

static const char *const names[] = { "starcoder2", NULL };

const nn_arch models_starcoder2 = { NN_FAMILY, .names = names, .act = "gelu_pytorch_tanh|gelu_new", .tied = names };
