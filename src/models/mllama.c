/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 3.2 Vision, its text: Llama 3.1 with layers between its own that attend to a picture. Without one they are passed
 * by. The embedding has rows behind the vocabulary, for the picture's place.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    const int *looks; /* per layer: attends to a picture */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int     *looks = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *looks);
    bool     listed = nn_config_count(c, NULL, "cross_attention_layers") > 0;
    for (int i = 0; i < h->d.n_layer && looks; i++)
        looks[i] = listed ? nn_config_lists(c, NULL, "cross_attention_layers", i) : i < 40 && i % 5 == 3;
    h->looks = looks;
    nn_config_unsaid(c, "cross_attention_layers");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 500000 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    if (h->looks[i]) return;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", h->d.n_embd, 0);
    nn_bind_qkvo(b, &w->attn, &h->d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", h->d.n_embd, 0);
    nn_bind_mlp(b, &w->mlp, &h->d, true);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (h->looks[i]) return (nn_state){ 0 };
    return nn_state_plain(p, i);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        if (h->looks[i]) continue;
        nn_buf n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, NN_ACT_SILU), w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_mllama = { NN_DECODER, .hf_only = true, .names = NN_NAMES("mllama_text_model"),
                                .act = "silu|swish" };
