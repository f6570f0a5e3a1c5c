/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 1 to 3: scaled embeddings, GeGLU, norms stored as w - 1. Gemma 2 adds norms behind each block, soft-capped
 * logits and alternating windows; Gemma 3 adds per-head norms and a second rotation for the sliding layers. VaultGemma
 * is Gemma 2 without the norms behind. The embedding model made of Gemma 3 sees to both sides.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        version, window;
    bool       vault;
    float      attn_softcap, logit_softcap, attn_scale;
    const int *slides;
    bool       whole;
    nn_rope    rope, rope_sliding;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm, *q_norm, *k_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_FLOAT(attn_softcap, "attn_logit_softcapping", "attn_logit_softcapping", 0),
    NN_FLOAT(logit_softcap, "final_logit_softcapping", "final_logit_softcapping", 0),
    { 0 },
};

/* GGUF files of the 27B models do not say that their queries are scaled by the hidden size per head. */
static double scale_base(const hparams *h) {
    bool is_27b = (h->version == 2 && h->d.n_layer == 46) || (h->version == 3 && h->d.n_layer == 62);
    return is_27b ? (double)h->d.n_embd / h->d.n_head : h->d.head_dim;
}

/* Ollama's files of the models with 128 K of context do not say that their positions are eight times closer. */
static void stretch(nn_config *c, hparams *h) {
    enum { LONG = 131072, CLOSER = 8 };
    if (!nn_config_gguf(c) || h->d.context < LONG || nn_config_has(c, "rope.scaling.type", NULL) ||
        !nn_config_has(c, "rope.global.freq_base", NULL)) /* their name of it */
        return;
    float *freq = nn_config_alloc(c, (size_t)h->rope.n_rot / 2, sizeof *freq);
    for (int i = 0; freq && i < h->rope.n_rot / 2; i++) freq[i] = h->rope.inv_freq[i] / CLOSER;
    if (freq) h->rope.inv_freq = freq;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     embeds = nn_config_arch(c, "gemma-embedding");
    h->version = embeds || nn_config_arch(c, "gemma3") || nn_config_arch(c, "gemma3_text") ? 3
                 : nn_config_arch(c, "gemma2") || nn_config_arch(c, "vaultgemma")          ? 2
                                                                                           : 1;
    h->vault = nn_config_arch(c, "vaultgemma");
    if (h->version == 3) h->d.eps = (float)nn_config_real(c, "attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6);
    double base = h->version == 1 ? h->d.head_dim : nn_config_real(c, NULL, "query_pre_attn_scalar", scale_base(h));
    h->attn_scale = (float)nn_config_real(c, "attention.scale", NULL, 1.0 / sqrt(base));
    nn_config_derived(c, "attention.scale", h->attn_scale);
    h->whole = embeds || !nn_config_causal(c);
    if (h->whole && h->version != 3) nn_config_fail(c, "attention to later tokens is not supported for this family");
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern",
                                   "layer_types|sliding_window_pattern|_sliding_window_pattern", "sliding_attention",
                                   h->version == 1   ? 0
                                   : h->version == 2 ? 2
                                                     : 6);
    h->rope = nn_rope_read(c, &h->d,
                           (nn_rope_want){ .base = h->version == 3 ? 1000000 : 10000,
                                           .layer_type = "full_attention",
                                           .gguf_base = "rope.freq_base|rope.global.freq_base" });
    if (h->version == 3 && !embeds) stretch(c, h);
    h->rope_sliding = h->rope;
    if (h->version == 3)
        h->rope_sliding = nn_rope_read(c, &h->d,
                                       (nn_rope_want){ .base = 10000,
                                                       .layer_type = "sliding_attention",
                                                       .gguf_base = "rope.freq_base_swa|rope.local.freq_base",
                                                       .hf_base = "rope_local_base_freq",
                                                       .unscaled = true });
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    if (((const hparams *)p)->whole)
        nn_bind_body(b, out, p, NN_PLUS_ONE);
    else
        nn_bind_ends(b, out, p, NN_PLUS_ONE);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, NN_PLUS_ONE);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    if (h->version == 1) {
        nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
    } else if (h->vault) {
        nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_feedforward_layernorm", n, NN_PLUS_ONE);
    } else {
        nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_attention_layernorm", n, NN_PLUS_ONE);
        nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_feedforward_layernorm", n, NN_PLUS_ONE);
        nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_feedforward_layernorm", n, NN_PLUS_ONE);
    }
    if (h->version == 3) {
        nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, NN_PLUS_ONE);
        nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, NN_PLUS_ONE);
    }
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (h->whole) return nn_state_step(h->d.n_kv, h->d.head_dim);
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   attn = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = h->attn_scale, .softcap = h->attn_softcap
    };

    nn_buf x = nn_embed(t, tw->embd, sqrtf((float)d->n_embd));
    for (int i = 0; i < d->n_layer; i++) {
        const layer   *w = &lw[i];
        const nn_rope *rope = h->slides[i] ? &h->rope_sliding : &h->rope;
        nn_buf         n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf         q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (w->q_norm) {
            q = nn_rms_norm(t, q, w->q_norm, d->eps);
            k = nn_rms_norm(t, k, w->k_norm, d->eps);
        }
        nn_rotate(t, q, k, d->head_dim, rope);
        nn_kv_store(t, i, k, v);
        attn.window = h->slides[i] && !h->whole ? h->window : 0;
        attn.reach = h->slides[i] && h->whole ? h->window / 2 : 0;
        nn_buf y = nn_project(t, nn_attention(t, i, q, attn), w->o);
        nn_add(t, x, w->post_attn_norm ? nn_rms_norm(t, y, w->post_attn_norm, d->eps) : y);

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        y = nn_project(t, nn_glu(t, n, w->gate, w->up, NN_ACT_GELU_TANH), w->down);
        nn_add(t, x, w->post_ffn_norm ? nn_rms_norm(t, y, w->post_ffn_norm, d->eps) : y);
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps);
    if (h->whole)
        nn_vectors(t, x);
    else
        nn_logits(t, x, tw->head, 1.0f, h->logit_softcap);
}

static const char *const names_1[] = { "gemma", NULL }, *const names_2[] = { "gemma2", NULL },
                         *const names_3[] = { "gemma3", "gemma3_text", NULL },
                         *const names_v[] = { "vaultgemma", NULL };
/* Gemma 1's first config.json says gelu and means its approximation, as transformers does. */
#define GELU .act = "gelu_pytorch_tanh|gelu_new|gelu"
const nn_arch models_gemma = { NN_FAMILY, .names = names_1, .tied = names_1, GELU };
const nn_arch models_gemma2 = { NN_FAMILY, .names = names_2, .tied = names_2, GELU };
const nn_arch models_gemma3 = { NN_FAMILY, .names = names_3, .tied = names_3, .lacks = NN_LACKS_EPS, GELU };
const nn_arch models_vaultgemma = { NN_FAMILY, .hf_only = true, .names = names_v, .tied = names_v, GELU };

const nn_arch models_gemma_embedding = { NN_FAMILY, .names = NN_NAMES("gemma-embedding"),
                                         .tied = NN_NAMES("gemma-embedding"), GELU };
