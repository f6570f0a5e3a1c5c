/* SPDX-License-Identifier: Apache-2.0 */
/* GLM 4.5 and later, the language model of GLM 4.5V (whose positions have three axes), Solar Open (rotates all of a
 * head): pre-norm decoder, half of each head rotated, optional q/k norms, sigmoid-routed experts. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, n_next;
    float   route_scale;
    bool    renorm;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_local_experts|num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", NN_REQUIRED),
    NN_INT(n_shared, "expert_shared_count", "n_shared_experts", 1),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 1),
    NN_BOOL(renorm, "expert_weights_norm", "norm_topk_prob", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     sees = nn_config_arch(c, "glm4v_moe") || nn_config_arch(c, "glm4v_moe_text");
    nn_config_known(c, "use_qk_norm", "true|false"); /* the tensors say it */
    nn_config_known(c, "scoring_func", "sigmoid");
    nn_config_known(c, "topk_method", "noaux_tc");
    if (h->d.n_ff == 0) nn_config_derived_int(c, "feed_forward_length", h->n_ff_expert); /* Solar Open has none */
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    nn_config_derived_int(c, "expert_gating_func", 2);
    h->n_dense = nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace",
                                   nn_config_arch(c, "solar_open") ? 0 : 1, "mlp_layer_types", "dense");
    if (h->n_next < 0 || h->n_next >= h->d.n_layer || h->n_shared < 0 || h->n_shared > 1024 ||
        h->n_ff_expert > 1 << 20) {
        nn_config_fail(c, "%d of %d layers for multi-token prediction, %d shared experts of width %d", h->n_next,
                       h->d.n_layer, h->n_shared, h->n_ff_expert);
        return;
    }
    h->d.n_layer -= h->n_next; /* GGUF counts the layers for multi-token prediction, too */
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .partial = nn_config_arch(c, "solar_open") ? 1 : 0.5 });
    nn_rope_axes(c, &h->rope, false);
    if (sees && !h->rope.axis_of) nn_config_fail(c, "rope_parameters.mrope_section is missing");
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_OPTIONAL);
    nn_bind_vec(b, &w->ffn_norm, "post_attention_norm|ffn_norm", "post_attention_layernorm", n, 0);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, 0);
    nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_experts", n, (int64_t)h->n_ff_expert * h->n_shared);
}

static void block(nn_tape *t, int i, nn_buf x, const void *hp, const void *weights) {
    const hparams    *h = hp;
    const nn_dims    *d = &h->d;
    const layer      *w = weights;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = NN_SCORE_SIGMOID,
                              .n_group = h->n_group,
                              .top_group = h->top_group,
                              .renorm = h->renorm,
                              .renorm_eps = 1e-20f,
                              .scale = h->route_scale,
                              .glu.act = NN_ACT_SILU };
    nn_buf            n = nn_rms_norm(t, x, w->attn_norm, d->eps);
    nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
    nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) block(t, i, x, h, &lw[i]);
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps), tw->head, 1.0f, 0.0f);
}

/* GGUF has one name for both. */
#define EXPERTS NN_PLAIN, .block = block, .gguf_only = true, .act = "silu|swish"
const nn_arch models_glm4_moe = { EXPERTS, .names = NN_NAMES("glm4moe", "glm4_moe", "glm4v_moe", "glm4v_moe_text") };
const nn_arch models_solar_open = { EXPERTS, .names = NN_NAMES("glm4moe", "solar_open"), .lacks = NN_LACKS_FF };
