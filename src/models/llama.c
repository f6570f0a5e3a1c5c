/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 1-3, Mistral, Mixtral, Ministral 3, InternLM 1 and 3, XVERSE: pre-norm decoder, grouped-query attention, dense or
 * mixture-of-experts SwiGLU. Ministral 3 scales queries by the logarithm of their position. EuroBERT and the embedding
 * models made of Llama let every row see the whole input.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, window;
    float   temperature;
    int     temperature_period;
    bool    whole;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_linear     q, k, v, o;
    nn_linear     gate, up, down; /* one, or one per expert */
    nn_linear     router;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_FLOAT(temperature, "attention.temperature_scale", "rope_parameters.llama_4_scaling_beta", 0),
    NN_INT(temperature_period, "rope.scaling.original_context_length",
           "rope_parameters.original_max_position_embeddings", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    h->whole = !nn_config_causal(c) || nn_config_arch(c, "eurobert") || nn_config_arch(c, "llama-embed") ||
               nn_config_arch(c, "llama_bidirec");
    if (h->whole && h->window) nn_config_fail(c, "a window in a model that sees the whole input is not supported");
    if (h->whole && h->temperature != 0) nn_config_fail(c, "scaled queries in an encoder are not supported");
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    if (((const hparams *)p)->whole)
        nn_bind_body(b, out, p, 0);
    else
        nn_bind_ends(b, out, p, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, NN_ROTARY);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, NN_ROTARY);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (h->n_expert == 0) {
        nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
        return;
    }
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "block_sparse_moe.gate|mlp.gate", n, h->n_expert, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps",
                    "block_sparse_moe.experts.*.w1|block_sparse_moe.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2",
                    h->n_expert, n, d->n_ff, 0);
    nn_bind_experts(b, &w->up, "ffn_up_exps",
                    "block_sparse_moe.experts.*.w3|block_sparse_moe.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2",
                    h->n_expert, n, d->n_ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "block_sparse_moe.experts.*.w2|block_sparse_moe.switch_mlp.down_proj|mlp.experts.down_proj",
                    h->n_expert, d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return h->whole ? nn_state_step(h->d.n_kv, h->d.head_dim) : nn_state_kv(h->d.n_kv, h->d.head_dim, h->window);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const top         *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = { .n_head = d->n_head,
                                .n_kv = d->n_kv,
                                .dim_k = d->head_dim,
                                .window = h->window,
                                .scale = 1.0f / sqrtf((float)d->head_dim) };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rope_apply(t, q, d->head_dim, &h->rope);
        nn_rope_apply(t, k, d->head_dim, &h->rope);
        if (h->temperature != 0) nn_scale_by_position(t, q, h->temperature, h->temperature_period);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        if (h->n_expert == 0)
            nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
        else
            nn_add(t, x,
                   nn_moe(t, n,
                          (nn_moe_spec){ .router = w->router,
                                         .gate = w->gate,
                                         .up = w->up,
                                         .down = w->down,
                                         .n_expert = h->n_expert,
                                         .n_used = h->n_used,
                                         .score = NN_SCORE_SOFTMAX,
                                         .renorm = true,
                                         .glu.act = NN_ACT_SILU }));
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps);
    if (h->whole)
        nn_vectors(t, x);
    else
        nn_logits(t, x, tw->head, 1.0f, 0.0f);
}

static const char *const tied[] = { "mistral3", NULL }; /* the multimodal model around either */

static const char *const        names[] = { "llama", "mistral", "mixtral", "internlm", "internlm3", NULL },
                         *const names_x[] = { "xverse", NULL };
const nn_arch models_xverse = { NN_FAMILY, .names = names_x, .permuted_qk = true, .act = "silu|swish" };
const nn_arch models_llama = { NN_FAMILY, .names = names, .tied = tied, .permuted_qk = true, .act = "silu|swish" };

static const char *const names_3[] = { "mistral3", "ministral3", NULL };
const nn_arch models_mistral3 = { NN_FAMILY, .names = names_3, .tied = tied, .permuted_qk = true, .act = "silu|swish" };

static const char *const names_embed[] = { "llama-embed", "llama_bidirec", NULL };
const nn_arch models_llama_embed = { NN_FAMILY, .names = names_embed, .permuted_qk = true, .act = "silu|swish" };

static const char *const names_euro[] = { "eurobert", NULL };
const nn_arch            models_eurobert = { NN_FAMILY, .names = names_euro, .act = "silu|swish" };
