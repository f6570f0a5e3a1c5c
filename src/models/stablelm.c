/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders with LayerNorm and rotation: StableLM (partly rotated; 12B with parallel blocks and per-head norms), Orion,
 * OLMo (norms without weights, clipped projections), Nemotron and Jais 2 (squared ReLU, no gate).
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    bool        parallel, plain_norm, plus_one, gated, head_norms;
    float       clip;
    nn_act_kind act;
    nn_rope     rope;
} hparams;

typedef struct top {
    const nn_mat *embd;
    nn_norm       norm;
    nn_linear     head;
} top;

typedef struct layer {
    nn_norm       attn_norm, ffn_norm;
    const nn_vec *q_norm, *k_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_FLOAT(d.eps, "attention.layer_norm_epsilon|attention.layer_norm_rms_epsilon",
             "layer_norm_eps|norm_eps|rms_norm_eps", 1e-5),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     stable = nn_config_arch(c, "stablelm"), olmo = nn_config_arch(c, "olmo"),
         nemotron = nn_config_arch(c, "nemotron");
    bool gated = stable || olmo || nn_config_arch(c, "orion");
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    h->plain_norm = olmo;
    h->plus_one = nemotron;
    h->gated = gated;
    if (olmo) h->clip = (float)nn_config_real(c, "attention.clamp_kqv", "clip_qkv", 0);
    if (stable) h->parallel = nn_config_bool(c, "use_parallel_residual", "use_parallel_residual", false);
    if (stable) h->head_norms = nn_config_bool(c, NULL, "qk_layernorm", false);
    h->act = nn_config_act(c, NULL, "hidden_act", gated ? NN_ACT_SILU : NN_ACT_RELU2);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .partial = stable ? 0.25 : nemotron ? 0.5 : 1.0 });
}

static void norm(nn_binder *b, nn_norm *out, const char *gguf, const char *hf, const hparams *h) {
    *out = (nn_norm){ 0 };
    if (!h->plain_norm) nn_bind_norm(b, out, gguf, hf, h->d.n_embd, (h->plus_one ? NN_PLUS_ONE : 0) | NN_OPTIONAL);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    norm(b, &t->norm, "output_norm", "model.norm", p);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    unsigned       flags = h->head_norms ? 0 : NN_OPTIONAL; /* GGUF does not say whether there are any */
    (void)i;
    norm(b, &w->attn_norm, "attn_norm", "input_layernorm", h);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_vecs(b, &w->q_norm, "attn_q_norm", "self_attn.q_layernorm.norms.*", d->n_head, d->head_dim, flags);
    nn_bind_vecs(b, &w->k_norm, "attn_k_norm", "self_attn.k_layernorm.norms.*", d->n_kv, d->head_dim, flags);
    w->ffn_norm = (nn_norm){ 0 };
    if (!h->parallel) norm(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", h);
    nn_bind_mlp(b, &w->mlp, d, h->gated);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static nn_buf part(nn_tape *t, nn_buf n, nn_linear w, const nn_vec *norm, const hparams *h) {
    nn_buf x = nn_project(t, n, w);
    if (h->clip > 0) nn_clip(t, x, h->clip);
    return norm ? nn_layer_norm_groups(t, x, h->d.head_dim, norm, NULL, h->d.eps) : x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_layer_norm(t, x, w->attn_norm.w, w->attn_norm.b, d->eps);
        nn_buf       q = part(t, n, w->attn.q, w->q_norm, h), k = part(t, n, w->attn.k, w->k_norm, h);
        nn_buf       v = part(t, n, w->attn.v, NULL, h);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, nn_attn_plain(d, 0)), w->attn.o);
        if (!h->parallel) n = nn_layer_norm(t, x, w->ffn_norm.w, w->ffn_norm.b, d->eps);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, h->act), w->mlp.down);
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm.w, tw->norm.b, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names_s[] = { "stablelm", NULL }, *const names_o[] = { "orion", NULL },
                         *const names_l[] = { "olmo", NULL }, *const names_n[] = { "nemotron", NULL },
                         *const names_j[] = { "jais2", NULL };
const nn_arch                   models_stablelm = { NN_FAMILY, .names = names_s, .lacks = NN_LACKS_EPS };
const nn_arch                   models_orion = { NN_FAMILY, .names = names_o, .lacks = NN_LACKS_EPS };
const nn_arch models_olmo = { NN_FAMILY, .names = names_l, .lacks = NN_LACKS_EPS, .permuted_qk = true };
const nn_arch models_nemotron = { NN_FAMILY, .names = names_n, .lacks = NN_LACKS_EPS };
const nn_arch models_jais2 = { NN_FAMILY, .names = names_j, .lacks = NN_LACKS_EPS };
