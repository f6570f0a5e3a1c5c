/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 1-3, Mistral, Mixtral, Ministral 3, InternLM 1 and 3, XVERSE: pre-norm decoder, grouped-query attention, dense or
 * mixture-of-experts SwiGLU. Ministral 3 scales queries by the logarithm of their position. EuroBERT and the embedding
 * models made of Llama let every row see the whole input.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, window, n_next;
    float   temperature;
    int     temperature_period;
    bool    whole;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_FLOAT(temperature, "attention.temperature_scale|rope.scaling_beta", "rope_parameters.llama_4_scaling_beta", 0),
    NN_INT(temperature_period, "rope.scaling.original_context_length",
           "rope_parameters.original_max_position_embeddings", 0),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0), /* GGUF counts these layers, which predict further tokens */
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers predict further tokens", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    h->whole = !nn_config_causal(c) || nn_config_arch(c, "eurobert") || nn_config_arch(c, "llama-embed") ||
               nn_config_arch(c, "llama_bidirec");
    if (h->whole && h->window) nn_config_fail(c, "a window in a model that sees the whole input is not supported");
    if (h->whole && h->temperature != 0) nn_config_fail(c, "scaled queries in an encoder are not supported");
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    (((const hparams *)p)->whole ? nn_bind_body : nn_bind_ends)(b, out, p, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d->n_embd, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d->n_embd, 0);
    if (h->n_expert == 0)
        nn_bind_ffn(b, &w->ffn, "mlp", d->n_embd, d->n_ff);
    else
        nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", d->n_embd, d->n_ff, h->n_expert, NN_OPTIONAL);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return h->whole ? nn_state_step(h->d.n_kv, h->d.head_dim) : nn_state_kv(h->d.n_kv, h->d.head_dim, h->window);
}

static void block(nn_tape *t, int i, nn_buf x, const void *hp, const void *weights) {
    const hparams    *h = hp;
    const nn_dims    *d = &h->d;
    const layer      *w = weights;
    const nn_moe_spec how = { .n_expert = h->n_expert, .n_used = h->n_used, .renorm = true, .glu.act = NN_ACT_SILU };
    nn_buf            n = nn_rms_norm(t, x, w->attn_norm, d->eps);
    nn_buf            q = nn_project(t, n, w->attn.q), k = nn_project(t, n, w->attn.k), v = nn_project(t, n, w->attn.v);
    nn_rotate(t, q, k, d->head_dim, &h->rope);
    if (h->temperature != 0) nn_scale_by_position(t, q, h->temperature, h->temperature_period);
    nn_kv_store(t, i, k, v);
    nn_project_add(t, x, nn_attention(t, i, q, nn_attn_plain(d, h->window)), w->attn.o);
    nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) block(t, i, x, h, &lw[i]);
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps);
    if (h->whole)
        nn_vectors(t, x);
    else
        nn_logits(t, x, tw->head, 1.0f, 0.0f);
}

static const char *const tied[] = { "mistral3", "glmasr", NULL }; /* the multimodal model around either */

static const char *const        names[] = { "llama", "mistral", "mixtral", "internlm", "internlm3", NULL },
                         *const names_x[] = { "xverse", NULL };
const nn_arch models_xverse = { NN_FAMILY, .names = names_x, .permuted_qk = true, .act = "silu|swish" };
const nn_arch models_llama = { NN_FAMILY,    .block = block,      .names = names,
                               .tied = tied, .permuted_qk = true, .act = "silu|swish" };

const nn_arch models_mistral3 = { NN_FAMILY, .names = NN_NAMES("mistral3", "ministral3"), .tied = tied,
                                  .permuted_qk = true, .act = "silu|swish" };

const nn_arch models_llama_embed = { NN_FAMILY, .names = NN_NAMES("llama-embed", "llama_bidirec"), .permuted_qk = true,
                                     .act = "silu|swish" };

const nn_arch models_eurobert = { NN_FAMILY, .names = NN_NAMES("eurobert"), .act = "silu|swish" };
