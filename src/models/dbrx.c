/* SPDX-License-Identifier: Apache-2.0 */
/* DBRX: LayerNorms without biases, q, k and v from one clipped projection, experts with normed weights. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used;
    float   clip;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *norm_1, *norm_2;
    nn_linear     q, k, v, o, router;
    const nn_mat *gate, *up, *down;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "ffn_config.moe_num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "ffn_config.moe_top_k", NN_REQUIRED),
    NN_FLOAT(clip, "attention.clamp_kqv", "attn_config.clip_qkv", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_only(c, NULL, "ffn_config.ffn_act_fn.name", "silu");
    nn_config_only_number(c, NULL, "ffn_config.moe_normalize_expert_weights", 1);
    if (!nn_config_gguf(c) && !nn_config_has(c, NULL, "ffn_config.moe_normalize_expert_weights"))
        nn_config_fail(c, "the field \"ffn_config.moe_normalize_expert_weights\" is null; only 1 is supported");
    if (h->clip < 0) nn_config_fail(c, "clip_qkv is %g", (double)h->clip);
    h->d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", NULL, 1e-5);
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .hf_base = "rope_parameters.rope_theta|attn_config.rope_theta" });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    const char    *qkv = "norm_attn_norm.attn.Wqkv";
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, ff = d->n_ff;
    (void)i;
    nn_bind_vec(b, &w->norm_1, "attn_norm", "norm_attn_norm.norm_1", n, 0);
    nn_bind_vec(b, &w->norm_2, "attn_output_norm", "norm_attn_norm.norm_2", n, 0);
    nn_bind_rows(b, &w->q, "attn_qkv", qkv, n, q, 0, q + 2 * kv, 0);
    nn_bind_rows(b, &w->k, "attn_qkv", qkv, n, kv, q, q + 2 * kv, 0);
    nn_bind_rows(b, &w->v, "attn_qkv", qkv, n, kv, q + kv, q + 2 * kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "norm_attn_norm.attn.out_proj", q, n, 0);
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "ffn.router.layer", n, h->n_expert, 0);
    nn_bind_heads(b, &w->gate, "ffn_gate_exps", "ffn.experts.mlp.w1", h->n_expert, n, ff, 0, ff, 0);
    nn_bind_heads(b, &w->up, "ffn_up_exps", "ffn.experts.mlp.v1", h->n_expert, n, ff, 0, ff, 0);
    nn_bind_heads(b, &w->down, "ffn_down_exps", "ffn.experts.mlp.w2", h->n_expert, ff, n, 0, ff, NN_HEADS_T);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    nn_attn_spec   a = {
          .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };
    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_layer_norm(t, x, w->norm_1, NULL, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (h->clip > 0) {
            nn_clip(t, q, h->clip);
            nn_clip(t, k, h->clip);
            nn_clip(t, v, h->clip);
        }
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, a), w->o);
        nn_add(t, x,
               nn_moe(t, nn_layer_norm(t, x, w->norm_2, NULL, d->eps),
                      (nn_moe_spec){ .router = w->router,
                                     .gate.w = w->gate,
                                     .up.w = w->up,
                                     .down.w = w->down,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .renorm = true,
                                     .glu.act = NN_ACT_SILU }));
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm, NULL, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_dbrx = { NN_DECODER, .names = NN_NAMES("dbrx"), .hf_layers = "transformer.blocks.",
                              .lacks = NN_LACKS_EPS };
