/* SPDX-License-Identifier: Apache-2.0 */
/* BitNet b1.58: the Llama block with a squared ReLU and norms inside attention and feed-forward; its weights are made to
 * survive three values. NanoChat: norms without weights, also behind the embedding and behind the rotation, which turns
 * the other way; no gate. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    bool        nano;
    float       softcap;
    nn_act_kind act;
    nn_rope     rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *attn_sub_norm, *ffn_norm, *ffn_sub_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = { { 0 } };

/*
 * Files of llama.cpp's converter do not name the activation. Its first models (1bitLLM's reproduction) have Llama's SiLU and
 * base of rotation, 10,000; those of the published BitNet have the squared ReLU and 500,000.
 */
static nn_act_kind usual_act(nn_config *c) {
    return nn_config_gguf(c) && nn_config_real(c, "rope.freq_base", NULL, 10000) < 500000 ? NN_ACT_SILU : NN_ACT_RELU2;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->nano = nn_config_arch(c, "nanochat");
    if (h->nano) h->softcap = (float)nn_config_real(c, "final_logit_softcapping", "final_logit_softcapping", 0);
    if (nn_config_is(c, NULL, "quantization_config.quant_method", "bitnet", false))
        nn_config_fail(c, "weights of three values (quantization_config) are not supported; use a GGUF file");
    h->act = nn_config_act(c, "hidden_activation", "hidden_act", usual_act(c));
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = h->nano ? 10000 : 500000 });
    float *back = nn_config_alloc(c, (size_t)h->rope.n_rot / 2 + 1, sizeof *back);
    for (int i = 0; back && i < h->rope.n_rot / 2; i++) back[i] = h->nano ? -h->rope.inv_freq[i] : h->rope.inv_freq[i];
    h->rope.inv_freq = back;
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens", d->n_embd, d->n_vocab, NN_AT_LEAST);
    t->norm = NULL;
    if (!h->nano) nn_bind_vec(b, &t->norm, "output_norm", "model.norm", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    (void)i;
    *w = (layer){ 0 };
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_mlp(b, &w->mlp, d, !h->nano);
    if (h->nano) return;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d->n_embd, 0);
    nn_bind_vec(b, &w->attn_sub_norm, "attn_sub_norm", "self_attn.attn_sub_norm", (int64_t)d->n_head * d->head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d->n_embd, 0);
    nn_bind_vec(b, &w->ffn_sub_norm, "ffn_sub_norm", "mlp.ffn_sub_norm", d->n_ff, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static nn_buf heads(nn_tape *t, nn_buf n, nn_linear w, const hparams *h) {
    nn_buf x = nn_project(t, n, w);
    nn_rope_apply(t, x, h->d.head_dim, &h->rope);
    return h->nano ? nn_rms_norm_groups(t, x, h->d.head_dim, NULL, h->d.eps) : x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    if (h->nano) x = nn_rms_norm(t, x, NULL, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps), q = heads(t, n, w->attn.q, h);
        nn_kv_store(t, i, heads(t, n, w->attn.k, h), nn_project(t, n, w->attn.v));
        nn_buf y = nn_attention(t, i, q, nn_attn_plain(d, 0));
        if (!h->nano) y = nn_rms_norm(t, y, w->attn_sub_norm, d->eps);
        nn_project_add(t, x, y, w->attn.o);
        y = nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, h->act);
        if (!h->nano) y = nn_rms_norm(t, y, w->ffn_sub_norm, d->eps);
        nn_project_add(t, x, y, w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, h->softcap);
}

static const char *const names_b[] = { "bitnet", NULL }, *const names_n[] = { "nanochat", NULL };
const nn_arch models_bitnet = { NN_FAMILY, .names = names_b };
const nn_arch models_nanochat = { NN_FAMILY, .hf_only = true, .names = names_n };
