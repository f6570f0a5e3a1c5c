/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-1 to 2, GPT-J and CodeGen: attention and feed-forward side by side behind one LayerNorm, partly rotated, a head
 * with a bias. GPT-J and CodeGen rotate neighbours and have no biases in attention. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d;
    int         rotary;
    bool        codegen;
    nn_act_kind act;
    nn_rope     rope;
} hparams;

typedef struct top {
    const nn_mat *embd;
    nn_norm       norm;
    nn_linear     head;
} top;

typedef struct layer {
    nn_norm  norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "intermediate_size|n_inner", 0), /* null: four times the width */
    NN_INT(rotary, "rope.dimension_count", "rotary_dim", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     phi = nn_config_arch(c, "phi") || nn_config_arch(c, "phi2");
    h->codegen = nn_config_arch(c, "codegen");
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    if (h->codegen) h->d.n_kv = h->d.n_head;
    if (h->d.n_ff <= 0) h->d.n_ff = 4 * h->d.n_embd;
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    h->act = nn_config_act(c, NULL, "hidden_act|activation_function", NN_ACT_GELU_TANH);
    if (h->rotary < 0 || h->rotary > h->d.head_dim)
        nn_config_fail(c, "%d rotary elements do not fit a head of %d", h->rotary, h->d.head_dim);
    h->rope = nn_rope_read(c, &h->d,
                           (nn_rope_want){ .dim = phi ? 0 : h->rotary, .partial = phi ? 0.5 : 1, .interleaved = !phi });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embed_tokens|model.wte", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_norm(b, &t->norm, "output_norm", "model.final_layernorm|model.ln_f", d->n_embd, NN_OPTIONAL);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

/* CodeGen was trained on four devices: its matrix has four parts, each with queries, values and keys of a quarter of the
 * heads. */
static void bind_quarters(nn_binder *b, nn_heads *w, int n) {
    int each = n / 4;
    nn_bind_runs(b, &w->q, "attn_q", "attn.qkv_proj", n, 4, 3 * each, &(nn_run){ 0, each }, 1);
    nn_bind_runs(b, &w->v, "attn_v", "attn.qkv_proj", n, 4, 3 * each, &(nn_run){ each, each }, 1);
    nn_bind_runs(b, &w->k, "attn_k", "attn.qkv_proj", n, 4, 3 * each, &(nn_run){ 2 * each, each }, 1);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_norm(b, &w->norm, "attn_norm", "input_layernorm|ln_1", n, NN_OPTIONAL);
    if (h->codegen) {
        bind_quarters(b, &w->attn, n);
    } else if (nn_bind_exists(b, "attn_q", "self_attn.q_proj|attn.q_proj")) {
        nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj|attn.q_proj", n, q, 0);
        nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj|attn.k_proj", n, kv, 0);
        nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj|attn.v_proj", n, kv, 0);
    } else {
        nn_bind_qkv(b, &w->attn, "attn_qkv", NULL, d, false);
    }
    nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.dense|attn.out_proj", q, n, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "mlp.fc1|mlp.fc_in", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "mlp.fc2|mlp.fc_out", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_layer_norm(t, x, w->norm.w, w->norm.b, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), h->d.eps), w->attn.o);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, h->act), w->mlp.down);
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm.w, tw->norm.b, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names_p[] = { "phi2", "phi", NULL }, *const names_j[] = { "gptj", NULL },
                         *const names_c[] = { "codegen", NULL };
const nn_arch                   models_phi = { NN_FAMILY, .gguf_only = true, .names = names_p, .lacks = NN_LACKS_FF };
const nn_arch                   models_gptj = { NN_FAMILY, .hf_only = true, .names = names_j, .hf_layers = "model.h.",
                                                .lacks = NN_LACKS_FF };
const nn_arch                   models_codegen = {
                      NN_FAMILY, .hf_only = true, .names = names_c, .hf_layers = "model.h.", .lacks = NN_LACKS_FF, .reordered = true
};
