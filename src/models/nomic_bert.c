/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoders with rotary positions and a norm behind every block: Nomic's (gated, or with experts in every second layer),
 * Jina's third generation (plain feed-forward, no adapters) and GTE's ("new"), whose rotation is stretched by a rule of
 * its own.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims     d;
    int         n_expert, n_used, every; /* layers 1, 1 + every, ... have experts; 0: none */
    bool        gated;
    nn_act_kind act;
    nn_rope     rope;
} hparams;

typedef struct top {
    const nn_mat *embd, *segments;
    nn_norm       norm;
} top;

typedef struct layer {
    nn_linear q, k, v, o, gate, up, down, router;
    nn_norm   attn_norm, out_norm;
} layer;

static const nn_key keys[] = {
    NN_INT(d.context, "context_length", "max_position_embeddings|n_positions", 2048),
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "moe_top_k", 0),
    NN_INT(every, "moe_every_n_layers", "moe_every_n_layers", 0),
    { 0 },
};

/* What older files of this family may say and what is not known here. */
static void check_fields(nn_config *c) {
    static const char *const off[] = { "prenorm",
                                       "causal",
                                       "rotary_emb_interleaved",
                                       "parallel_block",
                                       "use_rms_norm",
                                       "logn_attention_scale",
                                       "logn_attention_clip1" };
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        if (nn_config_bool(c, NULL, off[i], false)) nn_config_fail(c, "%s is not supported for this family", off[i]);
    }
    if (nn_config_real(c, NULL, "rotary_emb_fraction", 1) != 1 || nn_config_has(c, NULL, "rotary_emb_scale_base") ||
        nn_config_has(c, NULL, "rotary_scaling_factor"))
        nn_config_fail(c, "rotary_emb_fraction, rotary_emb_scale_base and rotary_scaling_factor are not supported");
    if (nn_config_has(c, NULL, "lora_adaptations"))
        nn_config_fail(c, "lora_adaptations: adapters inside the model are not supported");
}

/* GTE: the base is multiplied, and all frequencies are divided a little. */
static void stretch(nn_config *c, nn_rope *r, double base) {
    double f = nn_config_real(c, NULL, "rope_scaling.factor", 1);
    float *freq = nn_config_alloc(c, (size_t)(r->n_rot / 2 > 0 ? r->n_rot / 2 : 1), sizeof *freq);
    if (f < 1 || nn_config_has(c, NULL, "rope_scaling.mixed_b"))
        nn_config_fail(c, "rope_scaling: factor %g and mixed_b are not supported", f);
    for (int i = 0; i < r->n_rot / 2 && freq; i++)
        freq[i] = (float)(pow(base * f, -2.0 * i / r->n_rot) / pow(f, 2.0 / r->n_rot));
    r->inv_freq = freq;
    nn_config_unsaid(c, "rope_scaling");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     gte = nn_config_arch(c, "new"),
         jina = nn_config_arch(c, "jina-bert-v3") || nn_config_arch(c, "jina_embeddings_v3");
    bool   ntk = gte && nn_config_is(c, NULL, "rope_scaling.type", "ntk", false);
    double base = gte ? 10000 : jina ? 20000 : 1000;
    h->d.n_kv = h->d.n_head;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    check_fields(c);
    if (gte && !nn_config_is(c, NULL, "position_embedding_type", "rope", true))
        nn_config_fail(c, "position_embedding_type: only \"rope\" is supported for this family");
    if (gte && !nn_config_is(c, NULL, "layer_norm_type", "layer_norm", true))
        nn_config_fail(c, "layer_norm_type: only \"layer_norm\" is supported");
    int64_t trained = nn_config_int(c, NULL, "max_trained_positions", h->d.context);
    if (trained < h->d.context)
        h->d.context = (int)trained; /* the authors' files name more positions than they trained */
    nn_config_derived_int(c, "context_length", h->d.context);
    if (h->d.context < 1) nn_config_fail(c, "an encoder needs a context length");
    h->gated = !jina && !h->every;
    h->act =
        nn_config_act(c, NULL, "hidden_act|activation_function", gte || jina || h->every ? NN_ACT_GELU : NN_ACT_SILU);
    if (h->every && (h->every < 2 || h->n_expert < 1 || h->n_used < 1))
        nn_config_fail(c, "experts in every layer of %d: %d of %d", h->every, h->n_used, h->n_expert);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = base, .hf_base = "rotary_emb_base", .unscaled = ntk });
    if (ntk) stretch(c, &h->rope, nn_config_real(c, NULL, "rope_theta", base));
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.word_embeddings", d->n_embd, d->n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->segments, "token_types", "model.embeddings.token_type_embeddings", d->n_embd, 1,
                NN_OPTIONAL | NN_AT_LEAST);
    nn_bind_norm(b, &t->norm, "token_embd_norm", "model.embeddings.LayerNorm|model.emb_ln", d->n_embd, 0);
}

/* Names of transformers, then those of the authors' own files. */
static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, ff = h->d.n_ff;
    nn_bind_linear(b, &w->q, "attn_qkv#0/3|attn_q",
                   "self_attn.q_proj|attn.Wqkv#0/3|mixer.Wqkv#0/3|attention.qkv_proj#0/3", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_qkv#1/3|attn_k",
                   "self_attn.k_proj|attn.Wqkv#1/3|mixer.Wqkv#1/3|attention.qkv_proj#1/3", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_qkv#2/3|attn_v",
                   "self_attn.v_proj|attn.Wqkv#2/3|mixer.Wqkv#2/3|attention.qkv_proj#2/3", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj|attn.out_proj|mixer.out_proj|attention.o_proj", n, n, 0);
    nn_bind_norm(b, &w->attn_norm, "attn_output_norm", "post_attention_layernorm|norm1|attn_ln", n, 0);
    nn_bind_norm(b, &w->out_norm, "layer_output_norm", "post_mlp_layernorm|norm2|mlp_ln", n, 0);
    if (h->every && i % h->every == 1) {
        nn_bind_linear(b, &w->router, "ffn_gate_inp", "mlp.router.layer", n, h->n_expert, NN_NO_BIAS);
        nn_bind_experts(b, &w->up, "ffn_up_exps", NULL, h->n_expert, n, ff, 0);
        nn_bind_experts(b, &w->down, "ffn_down_exps", NULL, h->n_expert, ff, n, 0);
        return;
    }
    if (h->gated) nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj|mlp.fc12|mlp.up_gate_proj#1/2", n, ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj|mlp.fc11|mlp.fc1|mlp.up_gate_proj#0/2", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj|mlp.fc2", ff, n, 0);
}

static void feed_forward(nn_tape *t, const hparams *h, const layer *w, nn_buf x) {
    if (w->router.w) {
        nn_add(t, x,
               nn_moe(t, x,
                      (nn_moe_spec){ .router = w->router,
                                     .gate = w->up,
                                     .down = w->down,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SOFTMAX,
                                     .glu.act = h->act }));
        return;
    }
    nn_buf f = h->gated ? nn_glu(t, x, w->gate, w->up, h->act) : nn_project(t, x, w->up);
    if (!h->gated) nn_act(t, f, h->act);
    nn_project_add(t, x, f, w->down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_embed(t, tw->embd, 1);
    if (tw->segments) nn_embed_segments(t, x, tw->segments);
    x = nn_norm_rows(t, x, &tw->norm, d->eps);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       q = nn_project(t, x, w->q), k = nn_project(t, x, w->k), v = nn_project(t, x, w->v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        x = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        feed_forward(t, h, w, x);
        x = nn_norm_rows(t, x, &w->out_norm, d->eps);
    }
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const names[] = { "nomic-bert",   "nomic_bert",         "nomic-bert-moe",
                                     "jina-bert-v3", "jina_embeddings_v3", NULL };
const nn_arch            models_nomic_bert = { NN_WHOLE, .names = names, .hf_layers = "model.layers." };

const nn_arch models_gte = { NN_WHOLE, .names = NN_NAMES("new"), .hf_layers = "model.encoder.layer." };
