/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decoders with LayerNorm and one matrix for queries, keys and values, head by head in Hugging Face's files:
 *
 *   GPT-NeoX (Pythia)   blocks side by side with a norm each, or one after the other; partly rotated
 *   Falcon              side by side behind one norm, or (40B) one each; few keys
 *   Bloom               one after the other, ALiBi, a norm behind the embedding
 *   Persimmon           one after the other, per-head norms, squared ReLU
 */
#include "nn/nn.h"

typedef enum kind { NEOX, FALCON, BLOOM, PERSIMMON } kind;

typedef struct hparams {
    nn_dims      d;
    kind         kind;
    bool         parallel, two_norms;
    const float *alibi;
    nn_act_kind  act;
    nn_rope      rope;
} hparams;

typedef struct top {
    const nn_mat *embd;
    nn_norm       embd_norm, norm;
    nn_linear     head;
} top;

typedef struct layer {
    nn_norm  attn_norm, ffn_norm, q_norm, k_norm;
    nn_heads attn;
    nn_mlp   mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(d.n_ff, "feed_forward_length", "intermediate_size|ffn_hidden_size|n_inner", 0), /* four times the width */
    { 0 },
};

static void setup_falcon(nn_config *c, hparams *h) {
    bool newer = nn_config_bool(c, NULL, "new_decoder_architecture", false),
         few = nn_config_bool(c, NULL, "multi_query", true);
    int norms = (int)nn_config_int(c, NULL, "num_ln_in_parallel_attn", newer ? 2 : 1);
    h->parallel = true;
    if (nn_config_gguf(c)) return;
    if (nn_config_bool(c, NULL, "alibi", false)) nn_config_fail(c, "Falcon with ALiBi (alibi) is not supported");
    h->parallel = nn_config_bool(c, NULL, "parallel_attn", true) || newer;
    h->two_norms = newer && norms == 2;
    if (!newer) h->d.n_kv = few ? 1 : h->d.n_head;
    nn_config_derived_int(c, "attention.head_count_kv", h->d.n_kv);
    if (!h->parallel) nn_config_unsaid(c, "parallel_attn");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = nn_config_arch(c, "falcon")      ? FALCON
              : nn_config_arch(c, "bloom")     ? BLOOM
              : nn_config_arch(c, "persimmon") ? PERSIMMON
                                               : NEOX;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    if (h->d.n_ff <= 0) h->d.n_ff = 4 * h->d.n_embd;
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    if (h->kind == NEOX) h->parallel = nn_config_bool(c, "use_parallel_residual", "use_parallel_residual", true);
    if (h->kind == FALCON) setup_falcon(c, h);
    if (h->kind == BLOOM) h->alibi = nn_alibi_slopes(c, h->d.n_head, 8);
    if (h->kind == PERSIMMON) nn_config_known(c, "qk_layernorm", "true");
    h->act = nn_config_act(c, NULL, "hidden_act|activation",
                           h->kind == BLOOM       ? NN_ACT_GELU_TANH
                           : h->kind == PERSIMMON ? NN_ACT_RELU2
                                                  : NN_ACT_GELU);
    h->rope = nn_rope_read(c, &h->d,
                           (nn_rope_want){ .partial = h->kind == NEOX        ? 0.25
                                                      : h->kind == PERSIMMON ? 0.5
                                                                             : 1 });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "gpt_neox.embed_in|model.word_embeddings|model.embed_tokens|embed_in",
                d->n_embd, d->n_vocab, NN_AT_LEAST);
    if (h->kind == BLOOM)
        nn_bind_norm(b, &t->embd_norm, "token_embd_norm", "model.word_embeddings_layernorm", d->n_embd, NN_OPTIONAL);
    nn_bind_norm(b, &t->norm, "output_norm",
                 "gpt_neox.final_layer_norm|model.ln_f|model.final_layernorm|final_layer_norm", d->n_embd, NN_OPTIONAL);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    bool           two = h->kind == FALCON && (h->two_norms || nn_bind_exists(b, "attn_norm_2", "ln_attn"));
    (void)i;
    *w = (layer){ 0 };
    if (two) {
        nn_bind_norm(b, &w->attn_norm, "attn_norm_2", "ln_attn", n, NN_OPTIONAL);
        nn_bind_norm(b, &w->ffn_norm, "attn_norm", "ln_mlp", n, NN_OPTIONAL);
    } else {
        nn_bind_norm(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_OPTIONAL);
        if (h->kind != FALCON || !h->parallel)
            nn_bind_norm(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, NN_OPTIONAL);
    }
    nn_bind_qkv(b, &w->attn, "attn_qkv",
                "attention.query_key_value|self_attention.query_key_value|self_attn.query_key_value", d, true);
    nn_bind_linear(b, &w->attn.o, "attn_output", "attention.dense|self_attention.dense|self_attn.dense", n, n, 0);
    if (h->kind == PERSIMMON) {
        nn_bind_norm(b, &w->q_norm, "attn_q_norm", "self_attn.q_layernorm", d->head_dim, NN_OPTIONAL);
        nn_bind_norm(b, &w->k_norm, "attn_k_norm", "self_attn.k_layernorm", d->head_dim, NN_OPTIONAL);
    }
    nn_bind_mlp(b, &w->mlp, d, false);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static nn_buf heads(nn_tape *t, nn_buf n, nn_linear w, const nn_norm *norm, const hparams *h) {
    nn_buf x = nn_project(t, n, w);
    if (norm->w) x = nn_layer_norm_groups(t, x, h->d.head_dim, norm->w, norm->b, h->d.eps);
    if (!h->alibi) nn_rope_apply(t, x, h->d.head_dim, &h->rope);
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    a.alibi = h->alibi;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    if (h->kind == BLOOM) x = nn_layer_norm(t, x, tw->embd_norm.w, tw->embd_norm.b, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_layer_norm(t, x, w->attn_norm.w, w->attn_norm.b, d->eps), m = n;
        if (h->parallel && w->ffn_norm.w) m = nn_layer_norm(t, x, w->ffn_norm.w, w->ffn_norm.b, d->eps);
        nn_buf q = heads(t, n, w->attn.q, &w->q_norm, h), k = heads(t, n, w->attn.k, &w->k_norm, h);
        nn_kv_store(t, i, k, nn_project(t, n, w->attn.v));
        nn_project_add(t, x, nn_attention(t, i, q, a), w->attn.o);
        if (!h->parallel) m = nn_layer_norm(t, x, w->ffn_norm.w, w->ffn_norm.b, d->eps);
        nn_project_add(t, x, nn_feed(t, m, &w->mlp, h->act), w->mlp.down);
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm.w, tw->norm.b, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names_n[] = { "gptneox", "gpt_neox", NULL }, *const names_f[] = { "falcon", NULL },
                         *const names_b[] = { "bloom", NULL }, *const names_p[] = { "persimmon", NULL };
const nn_arch models_gpt_neox = { NN_FAMILY, .gguf_only = true, .names = names_n, .hf_layers = "gpt_neox.layers.",
                                  .lacks = NN_LACKS_FF };
const nn_arch models_falcon = { NN_FAMILY, .names = names_f, .tied = names_f, .hf_layers = "model.h.",
                                .lacks = NN_LACKS_FF };
const nn_arch models_bloom = { NN_FAMILY, .names = names_b, .tied = names_b, .hf_layers = "model.h.",
                               .lacks = NN_LACKS_FF };
const nn_arch models_persimmon = { NN_FAMILY, .hf_only = true, .names = names_p, .lacks = NN_LACKS_FF };
