/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granite and SmolLM3: the Llama block. Granite has multipliers on embeddings, attention, residuals and logits; SmolLM3
 * leaves every fourth layer without rotation.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    float      embd_scale, attn_scale, residual_scale, logit_scale;
    const int *rotates;
    nn_rope    rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_FLOAT(embd_scale, "embedding_scale", "embedding_multiplier", 1),
    NN_FLOAT(attn_scale, "attention.scale", "attention_multiplier", 0),
    NN_FLOAT(residual_scale, "residual_scale", "residual_multiplier", 1),
    NN_FLOAT(logit_scale, "logit_scale", "logits_scaling", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams   *h = p;
    bool       smol = nn_config_arch(c, "smollm3");
    int        every = (int)nn_config_int(c, NULL, smol ? "no_rope_layer_interval" : NULL, smol ? 4 : h->d.n_layer + 1);
    int       *rotates = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *rotates);
    bool       listed = smol && nn_config_count(c, NULL, "no_rope_layers") == h->d.n_layer;
    const int *list =
        listed ? nn_config_layer_ints(c, NULL, "no_rope_layers", 1) : NULL; /* 1: has rotation, despite the name */
    for (int i = 0; i < h->d.n_layer; i++) rotates[i] = list ? list[i] : every <= 0 || (i + 1) % every != 0;
    h->rotates = rotates;
    if (smol && nn_config_bool(c, NULL, "use_sliding_window", false))
        nn_config_fail(c, "use_sliding_window is not supported in this family");
    if (h->attn_scale == 0) h->attn_scale = 1.0f / sqrtf((float)h->d.head_dim);
    if (h->logit_scale == 0) nn_config_fail(c, "logits cannot be divided by zero");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, NN_ROTARY);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, NN_ROTARY);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const top         *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = { .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = h->attn_scale };

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (h->rotates[i]) {
            nn_rope_apply(t, q, d->head_dim, &h->rope);
            nn_rope_apply(t, k, d->head_dim, &h->rope);
        }
        nn_kv_store(t, i, k, v);
        nn_add_scaled(t, x, nn_project(t, nn_attention(t, i, q, attn), w->o), h->residual_scale);

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_add_scaled(t, x, nn_project(t, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down), h->residual_scale);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f / h->logit_scale, 0.0f);
}

static const char *const names[] = { "granite", NULL }, *const names_smol[] = { "smollm3", NULL };
const nn_arch models_granite = { NN_FAMILY, .names = names, .permuted_qk = true };
const nn_arch models_smollm3 = { NN_FAMILY, .names = names_smol, .tied = names_smol, .permuted_qk = true };
