/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders of GPT-2's time with separate projections: OPT (ReLU, positions from two on; 350M with norms behind the
 * blocks and a narrower embedding), BioGPT (scaled embeddings) and GPT-Neo (windows in every other layer, unscaled
 * scores).
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims     d;
    bool        neo, opt, behind, no_last_norm;
    int         narrow, window, offset;
    float       embd_scale;
    const int  *slides;
    nn_act_kind act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions;
    nn_linear     in, out, head;
    nn_norm       norm;
} top;

typedef struct layer {
    nn_norm  attn_norm, ffn_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_FLOAT(d.eps, "attention.layer_norm_epsilon", "layer_norm_eps|layer_norm_epsilon", 1e-5),
    NN_INT(d.n_ff, "feed_forward_length", "ffn_dim|intermediate_size", 0), /* null: four times the width */
    NN_INT(narrow, NULL, "word_embed_proj_dim", 0),
    NN_INT(window, NULL, "window_size", 256),
    { 0 },
};

/* attention_types is [[kinds, repetitions], ...]; all published models take turns, the full layers first. */
static void setup_neo(nn_config *c, hparams *h) {
    int *slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *slides);
    for (int i = 0; i < h->d.n_layer && !nn_config_gguf(c); i++) slides[i] = i % 2;
    if (nn_config_count(c, NULL, "attention_layers") > 0)
        h->slides = nn_config_layer_is(c, NULL, "attention_layers", "local", 0);
    else
        h->slides = slides;
    if (h->window <= 0) nn_config_fail(c, "a window of %d", h->window);
    if (!nn_config_gguf(c)) nn_config_unsaid(c, "window_size");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->neo = nn_config_arch(c, "gpt_neo");
    h->opt = nn_config_arch(c, "opt");
    h->offset = h->neo ? 0 : 2;
    h->d.n_kv = h->d.n_head;
    if (h->d.n_ff <= 0) h->d.n_ff = 4 * h->d.n_embd;
    if (h->narrow == h->d.n_embd) h->narrow = 0;
    if (h->narrow < 0) nn_config_fail(c, "an embedding of width %d", h->narrow);
    if (h->d.context < 1 || h->d.context > 1 << 24) nn_config_fail(c, "learned positions need a context length");
    if (h->opt) {
        h->behind = !nn_config_bool(c, NULL, "do_layer_norm_before", true);
        h->no_last_norm = h->behind || nn_config_bool(c, NULL, "_remove_final_layer_norm", false);
        nn_config_known(c, "layer_norm_elementwise_affine", "true");
        if (h->narrow || h->no_last_norm) nn_config_unsaid(c, "word_embed_proj_dim");
    }
    h->embd_scale =
        !h->neo && !h->opt && nn_config_bool(c, NULL, "scale_embedding", true) ? sqrtf((float)h->d.n_embd) : 1;
    h->act = nn_config_act(c, NULL, "activation_function|hidden_act",
                           h->opt   ? NN_ACT_RELU
                           : h->neo ? NN_ACT_GELU_TANH
                                    : NN_ACT_GELU);
    h->slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *h->slides);
    if (h->neo) setup_neo(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    int            in = h->narrow ? h->narrow : d->n_embd;
    *t = (top){ 0 };
    nn_bind_mat(b, &t->embd, "token_embd", "model.decoder.embed_tokens|biogpt.embed_tokens|model.wte", in, d->n_vocab,
                NN_AT_LEAST);
    nn_bind_mat(b, &t->positions, "position_embd", "model.decoder.embed_positions|biogpt.embed_positions|model.wpe",
                d->n_embd, d->context + h->offset, 0);
    if (h->narrow) {
        nn_bind_linear(b, &t->in, "proj_in", "model.decoder.project_in", in, d->n_embd, 0);
        nn_bind_linear(b, &t->out, "proj_out", "model.decoder.project_out", d->n_embd, in, 0);
    }
    if (!h->no_last_norm)
        nn_bind_norm(b, &t->norm, "output_norm", "model.decoder.final_layer_norm|biogpt.layer_norm|model.ln_f",
                     d->n_embd, NN_OPTIONAL);
    nn_bind_head(b, &t->head, t->embd, in, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    *w = (layer){ 0 };
    nn_bind_norm(b, &w->attn_norm, "attn_norm", "self_attn_layer_norm|ln_1", n, NN_OPTIONAL);
    nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj|attn.attention.q_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj|attn.attention.k_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj|attn.attention.v_proj", n, n, 0);
    nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.out_proj|attn.attention.out_proj", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "final_layer_norm|ln_2", n, NN_OPTIONAL);
    nn_bind_mlp(b, &w->mlp, d, false);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static nn_buf norm(nn_tape *t, nn_buf x, const nn_norm *n, const hparams *h) {
    return nn_layer_norm(t, x, n->w, n->b, h->d.eps);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    if (h->narrow) x = nn_project(t, x, tw->in);
    nn_embed_positions(t, x, tw->positions, h->offset);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_attn_spec a = nn_attn_plain(d, h->slides[i] ? h->window : 0);
        if (h->neo) a.scale = 1;
        nn_buf n = h->behind ? x : norm(t, x, &w->attn_norm, h);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, NULL, a, h->d.eps), w->attn.o);
        if (h->behind) x = norm(t, x, &w->attn_norm, h);
        n = h->behind ? x : norm(t, x, &w->ffn_norm, h);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, h->act), w->mlp.down);
        if (h->behind) x = norm(t, x, &w->ffn_norm, h);
    }
    x = nn_outputs(t, x);
    if (!h->no_last_norm) x = norm(t, x, &tw->norm, h);
    if (h->narrow) x = nn_project(t, x, tw->out);
    nn_logits(t, x, tw->head, 1.0f, 0.0f);
}

static const char *const names_o[] = { "opt", NULL }, *const names_b[] = { "biogpt", NULL },
                         *const names_n[] = { "gpt_neo", NULL };
#define LACKS .lacks = NN_LACKS_FF | NN_LACKS_EPS
const nn_arch models_opt = {
    NN_FAMILY, .hf_only = true, .names = names_o, .tied = names_o, .hf_layers = "model.decoder.layers.", LACKS
};
const nn_arch models_biogpt = {
    NN_FAMILY, .hf_only = true, .names = names_b, .tied = names_b, .hf_layers = "biogpt.layers.", LACKS
};
const nn_arch models_gpt_neo = { NN_FAMILY,       .hf_only = true,         .names = names_n,
                                 .tied = names_n, .hf_layers = "model.h.", LACKS };
