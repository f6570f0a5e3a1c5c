/* SPDX-License-Identifier: Apache-2.0 */
/* Apertus: Llama's block with per-head norms and an ungated feed-forward whose activation, xIELU, is learnt per layer.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims      d;
    const float *alpha_p, *alpha_n, *beta, *eps; /* GGUF keeps them here, Hugging Face in tensors */
    nn_rope      rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *k_norm;
    const nn_vec *alpha_p, *alpha_n, *beta, *eps;
    nn_heads      attn;
    nn_mlp        mlp;
    nn_xielu      xielu;
} layer;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->alpha_p = nn_config_layer_reals(c, "xielu.alpha_p", NULL, 0.8);
    h->alpha_n = nn_config_layer_reals(c, "xielu.alpha_n", NULL, 0.8);
    h->beta = nn_config_layer_reals(c, "xielu.beta", NULL, 0.5);
    h->eps = nn_config_layer_reals(c, "xielu.eps", NULL, -1e-6);
    if (!nn_config_gguf(c)) nn_config_unsaid(c, "xIELU");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 12000000 });
}

static float softplus(float x) { return x > 20 ? x : log1pf(expf(x)); }

static void bind_xielu(nn_binder *b, layer *w, const hparams *h, int i) {
    nn_bind_vec(b, &w->alpha_p, NULL, "mlp.act_fn.alpha_p", 1, NN_OPTIONAL);
    nn_bind_vec(b, &w->alpha_n, NULL, "mlp.act_fn.alpha_n", 1, NN_OPTIONAL);
    nn_bind_vec(b, &w->beta, NULL, "mlp.act_fn.beta", 1, NN_OPTIONAL);
    nn_bind_vec(b, &w->eps, NULL, "mlp.act_fn.eps", 1, NN_OPTIONAL);
    w->xielu.beta = w->beta ? w->beta->data[0] : h->beta[i];
    w->xielu.eps = w->eps ? w->eps->data[0] : h->eps[i];
    w->xielu.p = softplus(w->alpha_p ? w->alpha_p->data[0] : h->alpha_p[i]);
    w->xielu.n = w->xielu.beta + softplus(w->alpha_n ? w->alpha_n->data[0] : h->alpha_n[i]);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "attention_layernorm", d->n_embd, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, 0);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "feedforward_layernorm", d->n_embd, 0);
    nn_bind_mlp(b, &w->mlp, d, false);
    bind_xielu(b, w, h, i);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_rms_norm(t, nn_project(t, n, w->attn.q), w->q_norm, d->eps);
        nn_buf       k = nn_rms_norm(t, nn_project(t, n, w->attn.k), w->k_norm, d->eps);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, nn_project(t, n, w->attn.v));
        nn_project_add(t, x, nn_attention(t, i, q, nn_attn_plain(d, 0)), w->attn.o);
        nn_buf y = nn_project(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), w->mlp.up);
        nn_xielu_apply(t, y, w->xielu);
        nn_project_add(t, x, y, w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_apertus = { NN_PLAIN, .names = NN_NAMES("apertus"), .act = "xielu" };
