/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tower of InternVL 2.5, 3 and 3.5: learned positions on a fixed grid, a class row in front, norms before each block and a
 * scale for each element behind it. The large ones have RMS norms, and norms over whole queries and keys. The directories of
 * the original authors call things otherwise than those for transformers, and have one matrix for queries, keys and values.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_tower_dims t;
    bool          gguf, rms, qk_norms, post;
    nn_act_kind   act;
} hparams;

typedef struct top {
    nn_tower_top t;
    nn_linear    patch;
    nn_norm      post;
} top;

typedef struct layer {
    nn_norm       attn_norm, ffn_norm;
    const nn_vec *q_norm, *k_norm, *attn_scale, *ffn_scale;
    nn_linear     q, k, v, o, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(t.patch, "patch_size", "patch_size", NN_REQUIRED),
    NN_INT(t.image, "image_size", "image_size", NN_REQUIRED),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_dims *d = &h->t.d;
    d->n_kv = d->n_head;
    if (d->head_dim <= 0 || d->head_dim * d->n_head != d->n_embd)
        nn_config_fail(c, "%d heads cannot share a width of %d", d->n_head, d->n_embd);
    if (h->t.patch < 1 || h->t.patch > 256 || h->t.image < h->t.patch || h->t.image > 16384)
        nn_config_fail(c, "patches of %d pixels in a picture of %d", h->t.patch, h->t.image);
    d->eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-6);
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    h->gguf = nn_config_gguf(c);
    nn_config_only(c, NULL, "norm_type", "layer_norm|rms_norm");
    h->rms = nn_config_is(c, NULL, "norm_type", "rms_norm", false);
    h->qk_norms = nn_config_bool(c, NULL, "use_qk_norm|qk_normalization", false);
    h->post = !nn_config_bool(c, NULL, "use_mean_pooling", true);
    nn_config_known(c, "use_absolute_position_embeddings", "true");
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    const int64_t  n = h->t.d.n_embd, side = h->t.image / h->t.patch;
    nn_bind_patches(b, &t->patch, "v.patch_embd",
                    "model.embeddings.patch_embeddings.projection|model.embeddings.patch_embedding",
                    3 * h->t.patch * h->t.patch, n);
    t->t.patch_bias = t->patch.b;
    t->patch.b = NULL;
    nn_bind_table(b, &t->t.positions, "v.position_embd",
                  "model.embeddings.position_embeddings|model.embeddings.position_embedding", side * side + 1, n);
    nn_bind_vec(b, &t->t.class_row, "v.class_embd", "model.embeddings.cls_token|model.embeddings.class_embedding", n,
                0);
    if (h->post) nn_bind_norm(b, &t->post, NULL, "model.layernorm", n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->t.d.n_embd, ff = h->t.d.n_ff;
    /* mmproj files do not say which norm it is. */
    unsigned bare = h->rms || (h->gguf && !nn_bind_exists(b, "ln1.bias", NULL)) ? NN_OPTIONAL : 0;
    bool     qk = h->gguf ? nn_bind_exists(b, "attn_q_norm", NULL) : h->qk_norms;
    (void)i;
    nn_bind_norm(b, &w->attn_norm, "ln1", "layernorm_before|norm1", n, bare);
    nn_bind_linear(b, &w->q, "attn_q", "attention.q_proj|attn.qkv#0/3", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k", "attention.k_proj|attn.qkv#1/3", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v", "attention.v_proj|attn.qkv#2/3", n, n, 0);
    if (qk) {
        nn_bind_vec(b, &w->q_norm, "attn_q_norm", "attention.q_norm|attn.q_norm", n, 0);
        nn_bind_vec(b, &w->k_norm, "attn_k_norm", "attention.k_norm|attn.k_norm", n, 0);
    }
    nn_bind_linear(b, &w->o, "attn_out", "attention.projection_layer|attn.proj", n, n, 0);
    nn_bind_vec(b, &w->attn_scale, "ls1", "lambda_1|ls1", n, 0);
    nn_bind_norm(b, &w->ffn_norm, "ln2", "layernorm_after|norm2", n, bare);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.fc1", n, ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.fc2", ff, n, 0);
    nn_bind_vec(b, &w->ffn_scale, "ls2", "lambda_2|ls2", n, 0);
}

static nn_buf normed(nn_tape *t, nn_buf x, const nn_norm *n, float eps) {
    return n->b ? nn_norm_rows(t, x, n, eps) : nn_rms_norm(t, x, n->w, eps);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->t.d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    nn_buf         x = nn_tower_input(t, &h->t, tw->patch);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = normed(t, x, &w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (w->q_norm) {
            q = nn_rms_norm(t, q, w->q_norm, d->eps);
            k = nn_rms_norm(t, k, w->k_norm, d->eps);
        }
        nn_kv_store(t, i, k, v);
        nn_buf o = nn_project(t, nn_attention(t, i, q, a), w->o);
        nn_scale_each(t, o, w->attn_scale);
        nn_add(t, x, o);
        nn_buf f = nn_project(t, normed(t, x, &w->ffn_norm, d->eps), w->up);
        nn_act(t, f, h->act);
        f = nn_project(t, f, w->down);
        nn_scale_each(t, f, w->ffn_scale);
        nn_add(t, x, f);
    }
    if (h->post) x = nn_norm_rows(t, x, &tw->post, d->eps);
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const roots[] = { "model.vision_tower.", "vision_tower.", NULL };
static const char *const names[] = { "internvl_vision", NULL };
const nn_arch            models_internvl_tower = { NN_WHOLE,
                                                   .names = names,
                                                   .hf_layers = "model.encoder.layer.",
                                                   .gguf_layers = "v.blk.",
                                                   .hf_roots = roots,
                                                   .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };

static const char *const roots_chat[] = { "vision_model.", "model.vision_model.", NULL };
static const char *const names_chat[] = { "intern_vit_6b", NULL };
const nn_arch            models_internvl_chat_tower = { NN_WHOLE,
                                                        .names = names_chat,
                                                        .hf_layers = "model.encoder.layers.",
                                                        .gguf_layers = "v.blk.",
                                                        .hf_roots = roots_chat,
                                                        .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS };
