/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granite, HyperCLOVA X, MiniCPM and SmolLM3: the Llama block. All but SmolLM3 have multipliers on embeddings,
 * attention, residuals and logits (MiniCPM derives them); HyperCLOVA X norms behind each block, too; SmolLM3 leaves
 * every fourth layer without rotation. Granite 4 Vision gets rows of pictures in front of several layers.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    nn_multipliers by;
    bool           post_norms;
    const int     *rotates;
    nn_rope        rope;
    int            n_deep, deep[NN_MAX_PARTS]; /* in front of which layers pictures get more */
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *post_attn_norm, *post_ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_MULTIPLIER_KEYS(by),
    { 0 },
};

/* GGUF has the derived values. */
static void setup_minicpm(nn_config *c, hparams *h) {
    double base = nn_config_real(c, NULL, "dim_model_base", h->d.n_embd);
    if (nn_config_gguf(c)) return;
    if (!(base > 0)) nn_config_fail(c, "the field \"dim_model_base\" is %g", base);
    h->by.embd = (float)nn_config_real(c, NULL, "scale_emb", 1);
    h->by.residual = (float)(nn_config_real(c, NULL, "scale_depth", sqrt(h->d.n_layer)) / sqrt(h->d.n_layer));
    h->by.logit = (float)(h->d.n_embd / base);
    nn_config_derived(c, "embedding_scale", (double)h->by.embd);
    nn_config_derived(c, "residual_scale", (double)h->by.residual);
    nn_config_derived(c, "logit_scale", (double)h->by.logit);
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
    if (nn_config_arch(c, "minicpm")) setup_minicpm(c, h);
    if (nn_config_arch(c, "hyperclovax")) {
        h->post_norms = nn_config_bool(c, NULL, "use_post_norm", true);
        h->by.logit = h->by.logit != 0 ? 1 / h->by.logit : 0;
    }
    if (smol && nn_config_bool(c, NULL, "use_sliding_window", false))
        nn_config_fail(c, "use_sliding_window is not supported in this family");
    if (h->by.attn == 0) h->by.attn = 1.0f / sqrtf((float)h->d.head_dim);
    if (h->by.logit == 0) nn_config_fail(c, "logits cannot be divided by zero");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    h->n_deep = nn_deep_layers(c, h->d.n_layer, h->deep);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = p;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_mlp(b, &w->mlp, d, true);
    if (!h->post_norms) return;
    nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_norm1", n, 0);
    nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_norm2", n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   attn = nn_attn_plain(d, 0);
    attn.scale = h->by.attn;

    nn_buf x = nn_embed(t, tw->embd, h->by.embd);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        for (int k = 0; k < h->n_deep; k++) {
            if (h->deep[k] == i) nn_add_supplied(t, x, k + 1);
        }
        nn_buf n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf y = nn_attend(t, i, n, &w->attn, h->rotates[i] ? &h->rope : NULL, attn, d->eps);
        y = nn_project(t, y, w->attn.o);
        nn_add_scaled(t, x, w->post_attn_norm ? nn_rms_norm(t, y, w->post_attn_norm, d->eps) : y, h->by.residual);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        y = nn_project(t, nn_feed(t, n, &w->mlp, NN_ACT_SILU), w->mlp.down);
        nn_add_scaled(t, x, w->post_ffn_norm ? nn_rms_norm(t, y, w->post_ffn_norm, d->eps) : y, h->by.residual);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f / h->by.logit, 0.0f);
}

#define PAIRS NN_PLAIN, .permuted_qk = true, .act = "silu|swish"
const nn_arch models_granite = { PAIRS, .names = NN_NAMES("granite", "granite4_vision_text") };
const nn_arch models_smollm3 = { PAIRS, .names = NN_NAMES("smollm3"), .tied = NN_NAMES("smollm3") };
const nn_arch models_minicpm = { PAIRS, .names = NN_NAMES("minicpm") };
const nn_arch models_hyperclovax = { NN_PLAIN, .hf_only = true, .names = NN_NAMES("hyperclovax"), .act = "silu|swish" };
