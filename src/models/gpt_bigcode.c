/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2's descendants with queries, keys and values in one matrix, one after the other: StarCoder 1 (learned positions,
 * one key head), CodeShell (rotation, groups), MPT (ALiBi, clipped, no biases), Jais (ALiBi, gate, its own scales) and
 * Refact (ALiBi, RMS norm, gate, one key head in matrices of its own).
 */
#include "nn/nn.h"

typedef enum kind { STARCODER, CODESHELL, MPT, JAIS, REFACT } kind;

typedef struct hparams {
    nn_dims      d;
    kind         kind;
    bool         per_head; /* StarCoder with all key heads: q, k and v head by head */
    float        clip, embd_scale, logit_scale, attn_scale;
    const float *alibi;
    nn_act_kind  act;
    nn_rope      rope;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions;
    nn_norm       norm;
    nn_linear     head;
} top;

typedef struct layer {
    nn_norm  attn_norm, ffn_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "n_inner", 0), /* null: four times the width */
    { 0 },
};

static void setup_mpt(nn_config *c, hparams *h) {
    double ratio = nn_config_real(c, NULL, "expansion_ratio", 4);
    h->clip = (float)nn_config_real(c, "attention.clamp_kqv", "attn_config.clip_qkv", 0);
    if (!nn_config_gguf(c) && ratio > 0 && ratio < 64) h->d.n_ff = (int)(ratio * h->d.n_embd);
    if (!nn_config_bool(c, NULL, "attn_config.alibi", true) ||
        nn_config_bool(c, NULL, "attn_config.prefix_lm", false) ||
        nn_config_bool(c, NULL, "attn_config.qk_ln", false) || nn_config_has(c, NULL, "attn_config.softmax_scale") ||
        nn_config_has(c, NULL, "logit_scale") ||
        !nn_config_is(c, NULL, "attn_config.attn_type", "multihead_attention", true))
        nn_config_fail(c, "attn_config and logit_scale: only ALiBi with the usual scales is supported");
    h->alibi =
        nn_alibi_slopes(c, h->d.n_head, nn_config_real(c, "attention.max_alibi_bias", "attn_config.alibi_bias_max", 8));
    h->act = NN_ACT_GELU;
}

/* GGUF files have the scales of embedding and head in the tensors. */
static void setup_jais(nn_config *c, hparams *h) {
    bool by_d = nn_config_bool(c, NULL, "mup_scale_qk_dot_by_d|scale_qk_dot_by_d", nn_config_gguf(c));
    h->embd_scale = (float)nn_config_real(c, NULL, "mup_embeddings_scale|embeddings_scale", 1);
    h->logit_scale = (float)(nn_config_real(c, NULL, "mup_output_alpha", 1) *
                             nn_config_real(c, NULL, "mup_width_scale|width_scale", 1));
    if (by_d) h->attn_scale = 1.0f / (float)h->d.head_dim;
    if (!nn_config_gguf(c)) nn_config_unsaid(c, "mup_embeddings_scale");
    nn_config_known(c, "position_embedding_type", "alibi");
    nn_config_known(c, "activation_function", "swiglu");
    h->alibi = nn_alibi_slopes(c, h->d.n_head, nn_config_real(c, "attention.max_alibi_bias", NULL, 8));
    h->act = NN_ACT_SILU;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = nn_config_arch(c, "codeshell")                                   ? CODESHELL
              : nn_config_arch(c, "mpt")                                       ? MPT
              : nn_config_arch(c, "jais")                                      ? JAIS
              : nn_config_arch(c, "refact") || nn_config_arch(c, "gpt_refact") ? REFACT
                                                                               : STARCODER;
    h->embd_scale = h->logit_scale = 1;
    h->attn_scale = nn_attn_plain(&h->d, 0).scale;
    if (h->d.n_ff <= 0) h->d.n_ff = 4 * h->d.n_embd;
    if (h->kind == STARCODER || h->kind == REFACT) {
        bool few = nn_config_bool(c, NULL, "multi_query", true);
        if (!nn_config_gguf(c)) h->d.n_kv = few ? 1 : h->d.n_head;
        h->per_head = !few;
        nn_config_known(c, "scale_attn_weights", "true");
        if (h->d.context < 1) nn_config_fail(c, "learned positions need a context length");
    }
    if (h->kind == REFACT && h->per_head)
        nn_config_fail(c, "the field \"multi_query\" is false; this is not supported for refact");
    if (h->kind == MPT) setup_mpt(c, h);
    if (h->kind == JAIS) setup_jais(c, h);
    if (h->kind == REFACT) h->alibi = nn_alibi_slopes(c, h->d.n_head, 8);
    if (h->kind == REFACT) h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_SILU);
    if (h->kind < MPT) h->act = nn_config_act(c, NULL, "activation_function", NN_ACT_GELU_TANH);
    if (h->kind == CODESHELL) h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    nn_config_derived(c, h->kind == REFACT ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
                      (double)h->d.eps);
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    nn_config_derived_int(c, "attention.head_count_kv", h->d.n_kv);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.wte", d->n_embd, d->n_vocab, NN_AT_LEAST);
    t->positions = NULL;
    if (h->kind == STARCODER) nn_bind_mat(b, &t->positions, "position_embd", "model.wpe", d->n_embd, d->context, 0);
    nn_bind_norm(b, &t->norm, "output_norm", "model.ln_f|model.norm_f", d->n_embd, NN_OPTIONAL);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    const int      n = d->n_embd, kv = d->n_kv * d->head_dim;
    const bool     jais = h->kind == JAIS; /* stores inputs by outputs */
    (void)i;
    *w = (layer){ 0 };
    nn_bind_norm(b, &w->attn_norm, "attn_norm", "ln_1|norm_1", n, NN_OPTIONAL);
    if (h->kind == REFACT) {
        nn_bind_linear(b, &w->attn.q, "attn_q", "attn.q", n, n, 0);
        nn_bind_linear(b, &w->attn.k, "attn_k", "attn.kv#0/2", n, kv, 0);
        nn_bind_linear(b, &w->attn.v, "attn_v", "attn.kv#1/2", n, kv, 0);
    } else {
        nn_bind_qkv(b, &w->attn, "attn_qkv", jais ? "attn.c_attn^" : "attn.c_attn|attn.Wqkv", d, h->per_head);
    }
    nn_bind_linear(b, &w->attn.o, "attn_output", jais ? "attn.c_proj^" : "attn.c_proj|attn.out_proj", n, n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "ln_2|norm_2", n, NN_OPTIONAL);
    if (h->kind == JAIS) nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.c_fc2^", n, d->n_ff, 0);
    if (h->kind == REFACT) nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.gate_up_proj#0/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", jais ? "mlp.c_fc^" : "mlp.c_fc|ffn.up_proj|mlp.gate_up_proj#1/2", n,
                   d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", jais ? "mlp.c_proj^" : "mlp.c_proj|ffn.down_proj", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static nn_buf norm(nn_tape *t, nn_buf x, const nn_norm *n, const hparams *h) {
    return h->kind == REFACT ? nn_rms_norm(t, x, n->w, h->d.eps) : nn_layer_norm(t, x, n->w, n->b, h->d.eps);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    a.alibi = h->alibi;
    a.scale = h->attn_scale;

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    if (tw->positions) nn_embed_positions(t, x, tw->positions, 0);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = norm(t, x, &w->attn_norm, h);
        nn_buf       q = nn_project(t, n, w->attn.q), k = nn_project(t, n, w->attn.k), v = nn_project(t, n, w->attn.v);
        if (h->clip > 0) {
            nn_clip(t, q, h->clip);
            nn_clip(t, k, h->clip);
            nn_clip(t, v, h->clip);
        }
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->attn.o);
        nn_project_add(t, x, nn_feed(t, norm(t, x, &w->ffn_norm, h), &w->mlp, h->act), w->mlp.down);
    }
    nn_logits(t, norm(t, nn_outputs(t, x), &tw->norm, h), tw->head, h->logit_scale, 0.0f);
}

static const char *const names_s[] = { "starcoder", "gpt_bigcode", NULL }, *const names_c[] = { "codeshell", NULL },
                         *const names_m[] = { "mpt", NULL }, *const names_j[] = { "jais", NULL },
                         *const names_r[] = { "refact", "gpt_refact", NULL };
#define GPT .hf_layers = "model.h.", .lacks = NN_LACKS_FF
const nn_arch models_gpt_bigcode = { NN_FAMILY, .gguf_only = true, .names = names_s, .tied = names_s, GPT };
const nn_arch models_codeshell = { NN_FAMILY, .names = names_c, GPT };
const nn_arch models_mpt = { NN_FAMILY, .names = names_m, .tied = names_m, .hf_layers = "model.blocks.",
                             .lacks = NN_LACKS_FF };
const nn_arch models_jais = { NN_FAMILY, .names = names_j, .tied = names_j, GPT };
const nn_arch models_refact = { NN_FAMILY, .gguf_only = true, .names = names_r, GPT };
