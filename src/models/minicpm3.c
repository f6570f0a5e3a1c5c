/* SPDX-License-Identifier: Apache-2.0 */
/* MiniCPM 3 and Youtu: latent attention as in DeepSeek with a dense feed-forward. MiniCPM 3
 * rotates halves and scales embedding, blocks and logits. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    nn_latent_dims m;
    float          embd_scale, residual_scale, logit_scale;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_latent     attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_LATENT_KEYS(m, "attention.value_length"),
    { 0 },
};

/* GGUF files of MiniCPM 3 have no keys for its scales: all published ones have these. */
static void setup_minicpm(nn_config *c, hparams *h) {
    double depth = nn_config_real(c, NULL, "scale_depth", 1.4), base = nn_config_real(c, NULL, "dim_model_base", 256);
    if (!(base > 0)) nn_config_fail(c, "the field \"dim_model_base\" is %g", base);
    h->embd_scale = (float)nn_config_real(c, NULL, "scale_emb", 12);
    h->residual_scale = (float)(depth / sqrt(h->d.n_layer));
    h->logit_scale = (float)(base / h->d.n_embd);
    if (h->embd_scale != 12 || depth != 1.4 || base != 256) nn_config_unsaid(c, "scale_emb");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     mini = nn_config_arch(c, "minicpm3");
    if (h->m.v_dim == 0 && mini && nn_config_gguf(c)) h->m.v_dim = h->d.n_embd / h->d.n_head;
    nn_latent_read(c, &h->m);
    nn_config_derived_int(c, "attention.key_length", h->m.nope + h->m.rot);
    h->embd_scale = h->residual_scale = h->logit_scale = 1;
    if (mini) setup_minicpm(c, h);
    bool pairs = !mini && nn_config_bool(c, NULL, "rope_interleave", true);
    h->m.rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->m.rot, .interleaved = pairs, .mla = true });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d->n_embd, 0);
    nn_bind_latent(b, &w->attn, &h->m, d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d->n_embd, 0);
    nn_bind_mlp(b, &w->mlp, d, true);
}

static nn_state state(const void *p, int i) {
    (void)i;
    return nn_latent_state(&((const hparams *)p)->m);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps), q = nn_latent_query(t, n, &w->attn, &h->m);
        nn_buf       y = nn_project(t, nn_latent_attend(t, i, n, q, &w->attn, &h->m, d->n_head), w->attn.o);
        nn_add_scaled(t, x, y, h->residual_scale);
        y = nn_project(t, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, NN_ACT_SILU), w->mlp.down);
        nn_add_scaled(t, x, y, h->residual_scale);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, h->logit_scale, 0.0f);
}

static const char *const names_m[] = { "minicpm3", NULL }, *const names_y[] = { "youtu", NULL };
const nn_arch models_minicpm3 = { NN_DECODER, .names = names_m, .tied = names_m, .act = "silu|swish" };
const nn_arch models_youtu = { NN_DECODER, .hf_only = true, .names = names_y, .tied = names_y, .act = "silu|swish" };
