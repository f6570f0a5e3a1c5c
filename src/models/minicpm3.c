/* SPDX-License-Identifier: Apache-2.0 */
/* MiniCPM 3 and Youtu: latent attention as in DeepSeek (deepseek.c says how it runs) with a dense feed-forward. MiniCPM 3
 * rotates halves and scales embedding, blocks and logits. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     q_rank, kv_rank, nope, rot, v_dim;
    float   attn_scale, embd_scale, residual_scale, logit_scale;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *kv_norm;
    nn_linear     q_a, q_b, kv, k_rot, o;
    const nn_mat *k_b, *v_b;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(q_rank, "attention.q_lora_rank", "q_lora_rank", 0),
    NN_INT(kv_rank, "attention.kv_lora_rank", "kv_lora_rank", NN_REQUIRED),
    NN_INT(rot, "rope.dimension_count", "qk_rope_head_dim", NN_REQUIRED),
    NN_INT(nope, NULL, "qk_nope_head_dim", 0),
    NN_INT(v_dim, "attention.value_length", "v_head_dim", 0),
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
    if (nn_config_gguf(c))
        h->nope =
            (int)nn_config_int(c, "attention.key_length_mla|attention.key_length", NULL, NN_REQUIRED_INT) - h->rot;
    if (h->v_dim == 0) h->v_dim = mini && nn_config_gguf(c) ? h->d.n_embd / h->d.n_head : h->nope;
    if (h->nope <= 0 || h->v_dim <= 0 || h->kv_rank <= 0 || h->rot <= 0 || h->q_rank < 0 || h->nope > 65536 ||
        h->v_dim > 65536 || h->kv_rank > 65536 || h->rot > 65536) {
        nn_config_fail(c, "the sizes of the latent attention do not fit: %d + %d per query head, %d per value, rank %d",
                       h->nope, h->rot, h->v_dim, h->kv_rank);
        return;
    }
    nn_config_derived_int(c, "attention.key_length", h->nope + h->rot);
    h->embd_scale = h->residual_scale = h->logit_scale = 1;
    if (mini) setup_minicpm(c, h);
    bool pairs = !mini && nn_config_bool(c, NULL, "rope_interleave", true);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->rot, .interleaved = pairs, .mla = true });
    double m = nn_rope_yarn_mscale(c);
    h->attn_scale = (float)(m * m / sqrt(h->nope + h->rot));
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int n = d->n_embd, q = d->n_head * (h->nope + h->rot), per = h->nope + h->v_dim, kv = h->kv_rank + h->rot;
    (void)i;
    *w = (layer){ 0 };
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    if (h->q_rank) {
        nn_bind_linear(b, &w->q_a, "attn_q_a", "self_attn.q_a_proj", n, h->q_rank, 0);
        nn_bind_vec(b, &w->q_norm, "attn_q_a_norm", "self_attn.q_a_layernorm", h->q_rank, 0);
    }
    nn_bind_linear(b, &w->q_b, h->q_rank ? "attn_q_b" : "attn_q", h->q_rank ? "self_attn.q_b_proj" : "self_attn.q_proj",
                   h->q_rank ? h->q_rank : n, q, 0);
    nn_bind_rows(b, &w->kv, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->kv_rank, 0, kv, 0);
    nn_bind_rows(b, &w->k_rot, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->rot, h->kv_rank, kv, 0);
    nn_bind_vec(b, &w->kv_norm, "attn_kv_a_norm", "self_attn.kv_a_layernorm", h->kv_rank, 0);
    nn_bind_heads(b, &w->k_b, "attn_k_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->nope, h->kv_rank, 0, per,
                  NN_HEADS_T);
    nn_bind_heads(b, &w->v_b, "attn_v_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->kv_rank, h->v_dim, h->nope,
                  per, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", d->n_head * h->v_dim, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_mlp(b, &w->mlp, d, true);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = h->kv_rank, .dim_v = h->rot };
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const float norm_eps = 1e-6f; /* of the two inner norms */
    int         dim = h->nope + h->rot;
    nn_buf      q = h->q_rank ? nn_rms_norm(t, nn_project(t, n, w->q_a), w->q_norm, norm_eps) : n;
    q = nn_project(t, q, w->q_b);
    nn_buf latent = nn_rms_norm(t, nn_project(t, n, w->kv), w->kv_norm, norm_eps);
    nn_buf k_rot = nn_project(t, n, w->k_rot);
    nn_buf q_nope = nn_take_each(t, q, dim, 0, h->nope), q_rot = nn_take_each(t, q, dim, h->nope, h->rot);
    nn_rope_apply(t, q_rot, h->rot, &h->rope);
    nn_rope_apply(t, k_rot, h->rot, &h->rope);
    nn_latent_store(t, i, latent, k_rot);
    nn_buf y = nn_latent_attention(t, i, nn_project_heads(t, q_nope, w->k_b), q_rot, h->d.n_head, h->attn_scale);
    return nn_project_heads(t, y, w->v_b);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, h->embd_scale);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       y = nn_project(t, attend(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, w, i), w->o);
        nn_add_scaled(t, x, y, h->residual_scale);
        y = nn_project(t, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->mlp, NN_ACT_SILU), w->mlp.down);
        nn_add_scaled(t, x, y, h->residual_scale);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, h->logit_scale, 0.0f);
}

static const char *const names_m[] = { "minicpm3", NULL }, *const names_y[] = { "youtu", NULL };
const nn_arch models_minicpm3 = { NN_FAMILY, .names = names_m, .tied = names_m, .act = "silu|swish" };
const nn_arch models_youtu = { NN_FAMILY, .hf_only = true, .names = names_y, .tied = names_y, .act = "silu|swish" };
