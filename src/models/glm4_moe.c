/* SPDX-License-Identifier: Apache-2.0 */
/* GLM 4.5 and later, Solar Open (rotates all of a head): pre-norm decoder, half of each head rotated, optional q/k norms, sigmoid-routed experts. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, n_next;
    float   route_scale;
    bool    renorm;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *k_norm, *route_bias;
    nn_linear     q, k, v, o, gate, up, down, router;
    nn_linear     shared_gate, shared_up, shared_down;
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
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, NN_OPTIONAL);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, w->q_norm ? 0 : NN_OPTIONAL);
    nn_bind_vec(b, &w->ffn_norm, "post_attention_norm|ffn_norm", "post_attention_layernorm", n, 0);
    if (i < h->n_dense) {
        nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
        return;
    }
    int ff = h->n_ff_expert, shared = ff * h->n_shared;
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "mlp.gate", n, h->n_expert, 0);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", h->n_expert, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps",
                    "mlp.experts.*.gate_proj|mlp.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2", h->n_expert, n, ff,
                    0);
    nn_bind_experts(b, &w->up, "ffn_up_exps",
                    "mlp.experts.*.up_proj|mlp.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2", h->n_expert, n, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "mlp.experts.*.down_proj|mlp.switch_mlp.down_proj|mlp.experts.down_proj", h->n_expert, ff, n, 0);
    nn_bind_linear(b, &w->shared_gate, "ffn_gate_shexp", "mlp.shared_experts.gate_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared_up, "ffn_up_shexp", "mlp.shared_experts.up_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared_down, "ffn_down_shexp", "mlp.shared_experts.down_proj", shared, n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void feed_forward(nn_tape *t, nn_buf x, nn_buf n, const hparams *h, const layer *w) {
    if (!w->router.w) {
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
        return;
    }
    nn_add(t, x,
           nn_moe(t, n,
                  (nn_moe_spec){ .router = w->router,
                                 .gate = w->gate,
                                 .up = w->up,
                                 .down = w->down,
                                 .n_expert = h->n_expert,
                                 .n_used = h->n_used,
                                 .score = NN_SCORE_SIGMOID,
                                 .bias = w->route_bias,
                                 .n_group = h->n_group,
                                 .top_group = h->top_group,
                                 .renorm = h->renorm,
                                 .renorm_eps = 1e-20f,
                                 .scale = h->route_scale,
                                 .glu.act = NN_ACT_SILU }));
    nn_project_add(t, x, nn_glu(t, n, w->shared_gate, w->shared_up, NN_ACT_SILU), w->shared_down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const top         *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = {
        .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (w->q_norm) {
            q = nn_rms_norm(t, q, w->q_norm, d->eps);
            k = nn_rms_norm(t, k, w->k_norm, d->eps);
        }
        nn_rope_apply(t, q, d->head_dim, &h->rope);
        nn_rope_apply(t, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);
        feed_forward(t, x, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "glm4moe", "glm4_moe", NULL }, *const names_solar[] = {
    "glm4moe", "solar_open", NULL
}; /* GGUF has one name for both */
const nn_arch models_glm4_moe = { NN_FAMILY, .gguf_only = true, .names = names, .act = "silu|swish" };
const nn_arch models_solar_open = { NN_FAMILY, .gguf_only = true, .names = names_solar, .act = "silu|swish",
                                    .lacks = NN_LACKS_FF };
