/* SPDX-License-Identifier: Apache-2.0 */
/*
 * EAGLE-3: a head that goes on from three inner states of a model, put together by fc (nn/next.h). One block of Llama whose
 * attention reads the token's embedding and that row, both normed; the row itself is the residual. It says tokens of a
 * vocabulary of its own.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_eagle_dims e;
    bool          norm_first; /* the residual is the normed row */
    nn_rope       rope;
} hparams;

typedef struct top {
    nn_eagle_top  e;
    const nn_vec *ffn_norm, *norm;
    nn_heads      attn;
    nn_mlp        mlp;
    nn_linear     head;
} top;

typedef struct layer {
    char none;
} layer;

static const nn_key keys[] = {
    NN_INT(e.n_target, "target_hidden_size", "target_hidden_size", 0),
    NN_INT(e.n_words, NULL, "draft_vocab_size", 0),
    NN_BOOL(norm_first, "norm_before_residual", "norm_before_residual", 0),
    { 0 },
};

/* A layer that it reads; -1: the file names none. */
static int read_tap(nn_config *c, int i) {
    double v =
        nn_config_real_of(c, "target_layers|extract_layers",
                          "eagle_config.eagle_aux_hidden_state_layer_ids|eagle_aux_hidden_state_layer_ids", i, -1);
    if (v >= -1 && v < 1 << 20) return (int)v;
    nn_config_fail(c, "it reads the input of layer %g", v);
    return -1;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (h->e.d.n_layer != 1) nn_config_fail(c, "an EAGLE-3 head has one layer; this one has %d", h->e.d.n_layer);
    nn_config_only_number(c, "norm_before_fc", "norm_before_fc", 0);
    if (h->e.n_target == 0) h->e.n_target = h->e.d.n_embd;
    if (h->e.n_words == 0) h->e.n_words = h->e.d.n_vocab;
    for (int i = 0; i < NN_EAGLE_TAPS; i++) h->e.taps[i] = read_tap(c, i);
    h->rope = nn_rope_read(c, &h->e.d, (nn_rope_want){ 0 });
}

/* The block's tensors by their last name. */
#define BLOCK(gguf, hf) "blk.0." gguf, "midlayer." hf "|layers.0." hf

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_eagle_dims *e = p;
    const nn_dims       *d = &e->d;
    top                 *w = out;
    int64_t              n = d->n_embd, q = (int64_t)d->n_head * d->head_dim, kv = (int64_t)d->n_kv * d->head_dim;
    nn_bind_mat(b, &w->e.embd, "token_embd", "embed_tokens", n, d->n_vocab, NN_OPTIONAL | NN_AT_LEAST);
    nn_bind_mat(b, &w->e.fc, "fc", "fc", (int64_t)NN_EAGLE_TAPS * e->n_target, n, 0);
    nn_bind_vec(b, &w->e.norm_embd, BLOCK("attn_norm", "input_layernorm"), n, 0);
    nn_bind_vec(b, &w->e.norm_state, BLOCK("attn_norm_2", "hidden_norm"), n, 0);
    nn_bind_linear(b, &w->attn.q, BLOCK("attn_q", "self_attn.q_proj"), 2 * n, q, NN_ROTARY);
    nn_bind_linear(b, &w->attn.k, BLOCK("attn_k", "self_attn.k_proj"), 2 * n, kv, NN_ROTARY);
    nn_bind_linear(b, &w->attn.v, BLOCK("attn_v", "self_attn.v_proj"), 2 * n, kv, 0);
    nn_bind_linear(b, &w->attn.o, BLOCK("attn_output", "self_attn.o_proj"), q, n, 0);
    nn_bind_vec(b, &w->ffn_norm, BLOCK("ffn_norm", "post_attention_layernorm"), n, 0);
    nn_bind_linear(b, &w->mlp.gate, BLOCK("ffn_gate", "mlp.gate_proj"), n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.up, BLOCK("ffn_up", "mlp.up_proj"), n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, BLOCK("ffn_down", "mlp.down_proj"), d->n_ff, n, 0);
    nn_bind_vec(b, &w->norm, "output_norm", "norm", n, 0);
    int64_t words = nn_bind_width(b, "d2t", "d2t"); /* one number for each */
    nn_bind_linear(b, &w->head, "output", "lm_head", n, words ? words : e->n_words, NN_OPTIONAL | NN_AT_LEAST);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    (void)b;
    (void)out;
    (void)p;
    (void)i;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->e.d;
    const top     *w = net->top;
    nn_buf         in = nn_input(t, 2 * (int64_t)d->n_embd);
    nn_buf both = nn_rms_norm_groups(t, in, d->n_embd, nn_join_vecs(t, w->e.norm_embd, w->e.norm_state), d->eps);
    nn_buf x = nn_take(t, h->norm_first ? both : in, d->n_embd, d->n_embd);
    nn_project_add(t, x, nn_attend(t, 0, both, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
    nn_project_add(t, x, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, NN_ACT_SILU), w->mlp.down);
    x = nn_outputs(t, x);
    nn_logits(t, nn_rms_norm(t, x, w->norm, d->eps), w->head, 1.0f, 0.0f);
    nn_hand_on(t, x);
}

const nn_arch models_eagle3 = { NN_PARTS,
                                .names = NN_NAMES("eagle3"),
                                .top_size = sizeof(top),
                                .bind_top = bind_top,
                                .state = nn_state_plain,
                                .permuted_qk = true,
                                .act = "silu|swish" };
