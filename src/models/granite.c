/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granite, HyperCLOVA X, MiniCPM and SmolLM3: the Llama block. All but SmolLM3 have multipliers on embeddings,
 * attention, residuals and logits (MiniCPM derives them); HyperCLOVA X norms behind each block, too; Granite SWA has
 * windows and sinks; SmolLM3 leaves every fourth layer without rotation.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    float      embd_scale, attn_scale, residual_scale, logit_scale;
    int        window;
    bool       post_norms, sinks;
    const int *rotates, *slides;
    nn_rope    rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *post_attn_norm, *post_ffn_norm, *sinks;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_FLOAT(embd_scale, "embedding_scale", "embedding_multiplier", 1),
    NN_FLOAT(attn_scale, "attention.scale", "attention_multiplier", 0),
    NN_FLOAT(residual_scale, "residual_scale", "residual_multiplier", 1),
    NN_FLOAT(logit_scale, "logit_scale", "logits_scaling", 1),
    { 0 },
};

/* GGUF has the derived values. */
static void setup_minicpm(nn_config *c, hparams *h) {
    double base = nn_config_real(c, NULL, "dim_model_base", h->d.n_embd);
    if (nn_config_gguf(c)) return;
    if (!(base > 0)) nn_config_fail(c, "the field \"dim_model_base\" is %g", base);
    h->embd_scale = (float)nn_config_real(c, NULL, "scale_emb", 1);
    h->residual_scale = (float)(nn_config_real(c, NULL, "scale_depth", sqrt(h->d.n_layer)) / sqrt(h->d.n_layer));
    h->logit_scale = (float)(h->d.n_embd / base);
    nn_config_derived(c, "embedding_scale", (double)h->embd_scale);
    nn_config_derived(c, "residual_scale", (double)h->residual_scale);
    nn_config_derived(c, "logit_scale", (double)h->logit_scale);
}

static void setup_swa(nn_config *c, hparams *h, int *rotates) {
    double       base = nn_config_real(c, NULL, "rope_parameters.rope_theta|rope_theta", 10000);
    const float *bases = nn_config_layer_reals(c, NULL, "layer_rope_theta", base);
    h->sinks = true;
    h->window = (int)nn_config_int(c, "attention.sliding_window", "sliding_window", 128);
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 4);
    if (h->window <= 0 || h->window > 1 << 24) nn_config_fail(c, "a window of %d", h->window);
    for (int i = 0; i < h->d.n_layer; i++) {
        rotates[i] = bases[i] != 0;
        if (bases[i] != 0 && (double)bases[i] != base)
            nn_config_fail(c, "the field \"layer_rope_theta\" has another base than rope_theta; this is not supported");
    }
}

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
    h->slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *h->slides);
    if (nn_config_arch(c, "granite_swa")) setup_swa(c, h, rotates);
    if (nn_config_arch(c, "minicpm")) setup_minicpm(c, h);
    if (nn_config_arch(c, "hyperclovax")) {
        h->post_norms = nn_config_bool(c, NULL, "use_post_norm", true);
        h->logit_scale = h->logit_scale != 0 ? 1 / h->logit_scale : 0;
    }
    if (smol && nn_config_bool(c, NULL, "use_sliding_window", false))
        nn_config_fail(c, "use_sliding_window is not supported in this family");
    if (h->attn_scale == 0) h->attn_scale = 1.0f / sqrtf((float)h->d.head_dim);
    if (h->logit_scale == 0) nn_config_fail(c, "logits cannot be divided by zero");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = p;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    if (h->sinks) nn_bind_vec(b, &w->sinks, "attn_sinks", "self_attn.sinks", d->n_head, 0);
    if (h->post_norms) {
        nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_norm1", n, 0);
        nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_norm2", n, 0);
    }
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
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   attn = { .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = h->attn_scale };

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
        attn.window = h->slides[i] ? h->window : 0;
        attn.sinks = w->sinks;
        nn_buf y = nn_project(t, nn_attention(t, i, q, attn), w->o);
        nn_add_scaled(t, x, w->post_attn_norm ? nn_rms_norm(t, y, w->post_attn_norm, d->eps) : y, h->residual_scale);

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        y = nn_project(t, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
        nn_add_scaled(t, x, w->post_ffn_norm ? nn_rms_norm(t, y, w->post_ffn_norm, d->eps) : y, h->residual_scale);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f / h->logit_scale, 0.0f);
}

#define PAIRS .permuted_qk = true, .act = "silu|swish"
static const char *const names[] = { "granite", NULL }, *const names_smol[] = { "smollm3", NULL },
                         *const names_swa[] = { "granite_swa", NULL }, *const names_mini[] = { "minicpm", NULL },
                         *const names_x[] = { "hyperclovax", NULL };
const nn_arch                   models_granite = { NN_FAMILY, .names = names, PAIRS };
const nn_arch                   models_smollm3 = { NN_FAMILY, .names = names_smol, .tied = names_smol, PAIRS };
const nn_arch                   models_granite_swa = { NN_FAMILY, .names = names_swa, .tied = names_swa, PAIRS };
const nn_arch                   models_minicpm = { NN_FAMILY, .names = names_mini, PAIRS };
const nn_arch models_hyperclovax = { NN_FAMILY, .hf_only = true, .names = names_x, .act = "silu|swish" };
