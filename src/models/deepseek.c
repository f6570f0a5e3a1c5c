/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DeepSeek V2/V3/R1, Kimi K2 and GLM 4.7 Flash: multi-head latent attention and sigmoid-routed experts in groups.
 *
 * Attention runs in its absorbed form: the query is carried into the latent space by the key half of kv_b, scores and
 * sums happen there, and the value half brings the result back. Only the latent and one rotated key are remembered.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    int     q_rank, kv_rank, nope, rot, v_dim;
    int     n_expert, n_used, n_ff_expert, n_shared, n_dense, n_group, top_group, gating, n_next;
    float   route_scale, attn_scale;
    bool    renorm, softmax, interleaved;
    nn_rope rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *kv_norm, *route_bias;
    nn_linear     q_a, q_b, kv, k_rot, o; /* without query compression q_b takes the hidden state */
    const nn_mat *k_b, *v_b;              /* per head */
    nn_linear     gate, up, down, router, shared_gate, shared_up, shared_down;
} layer;

static const nn_key keys[] = {
    NN_INT(q_rank, "attention.q_lora_rank", "q_lora_rank", 0),
    NN_INT(kv_rank, "attention.kv_lora_rank", "kv_lora_rank", NN_REQUIRED),
    NN_INT(rot, "rope.dimension_count", "qk_rope_head_dim", NN_REQUIRED),
    NN_INT(nope, NULL, "qk_nope_head_dim", 0),
    NN_INT(v_dim, "attention.value_length_mla", "v_head_dim", 0),
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_local_experts|num_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_shared, "expert_shared_count", "n_shared_experts", 0),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(gating, "expert_gating_func", NULL, 2),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    NN_FLOAT(route_scale, "expert_weights_scale", "routed_scaling_factor", 1),
    NN_BOOL(renorm, "expert_weights_norm", "norm_topk_prob", 1),
    NN_BOOL(interleaved, NULL, "rope_interleave", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next;
    if (nn_config_gguf(c)) {
        h->nope =
            (int)(nn_config_int(c, "attention.key_length_mla|attention.key_length", NULL, NN_REQUIRED_INT) - h->rot);
        if (h->v_dim == 0) h->v_dim = (int)nn_config_int(c, "attention.value_length", NULL, h->nope);
    }
    if (h->d.n_layer <= 0 || h->nope <= 0 || h->v_dim <= 0 || h->kv_rank <= 0 || h->rot <= 0 || h->nope > 65536 ||
        h->v_dim > 65536 || h->kv_rank > 65536 || h->rot > 65536) {
        nn_config_fail(c, "the sizes of the latent attention do not fit: %d + %d per query head, %d per value, rank %d",
                       h->nope, h->rot, h->v_dim, h->kv_rank);
        return;
    }
    if (h->n_shared < 0 || h->n_shared > 1024 || h->n_ff_expert < 0 || h->n_ff_expert > 1 << 20)
        nn_config_fail(c, "%d shared experts of width %d make no sense", h->n_shared, h->n_ff_expert);
    h->n_dense = nn_config_leading(c, "leading_dense_block_count", "first_k_dense_replace",
                                   nn_config_arch(c, "glm4_moe_lite") ? 1
                                   : nn_config_arch(c, "deepseek_v2") ? 0
                                                                      : 3,
                                   "mlp_layer_types", "dense");
    h->softmax = nn_config_gguf(c) ? h->gating == 1
                                   : nn_config_is(c, NULL, "scoring_func", "softmax", nn_config_arch(c, "deepseek_v2"));
    nn_config_derived_int(c, "expert_gating_func", h->softmax ? 1 : 2);
    nn_config_derived_int(c, "attention.key_length_mla", h->nope + h->rot);
    nn_config_derived_int(c, "attention.value_length_mla", h->v_dim);
    nn_config_derived_int(c, "attention.head_count_kv", 1); /* GGUF: the latent as one key head */
    nn_config_derived_int(c, "attention.key_length", h->kv_rank + h->rot);
    nn_config_derived_int(c, "attention.value_length", h->kv_rank);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .dim = h->rot, .interleaved = h->interleaved, .mla = true });
    double m = nn_rope_yarn_mscale(c);
    h->attn_scale = (float)(m * m / sqrt(h->nope + h->rot));
}

static void bind_top(nn_binder *b, void *out, const void *p) { nn_bind_ends(b, out, p, 0); }

static void bind_experts(nn_binder *b, layer *w, const hparams *h) {
    int n = h->d.n_embd, ff = h->n_ff_expert, shared = ff * h->n_shared;
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "mlp.gate", n, h->n_expert, 0);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias", "mlp.gate.e_score_correction_bias", h->n_expert, NN_OPTIONAL);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps",
                    "mlp.experts.*.gate_proj|mlp.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2", h->n_expert, n, ff,
                    0);
    nn_bind_experts(b, &w->up, "ffn_up_exps",
                    "mlp.experts.*.up_proj|mlp.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2", h->n_expert, n, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "mlp.experts.*.down_proj|mlp.switch_mlp.down_proj|mlp.experts.down_proj", h->n_expert, ff, n, 0);
    if (shared == 0) return;
    nn_bind_linear(b, &w->shared_gate, "ffn_gate_shexp", "mlp.shared_experts.gate_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared_up, "ffn_up_shexp", "mlp.shared_experts.up_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared_down, "ffn_down_shexp", "mlp.shared_experts.down_proj", shared, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int n = d->n_embd, q = d->n_head * (h->nope + h->rot), per_head = h->nope + h->v_dim, kv = h->kv_rank + h->rot;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    if (h->q_rank) {
        nn_bind_linear(b, &w->q_a, "attn_q_a", "self_attn.q_a_proj", n, h->q_rank, 0);
        nn_bind_vec(b, &w->q_norm, "attn_q_a_norm", "self_attn.q_a_layernorm", h->q_rank, 0);
        nn_bind_linear(b, &w->q_b, "attn_q_b", "self_attn.q_b_proj", h->q_rank, q, 0);
    } else {
        nn_bind_linear(b, &w->q_b, "attn_q", "self_attn.q_proj", n, q, 0);
    }
    nn_bind_rows(b, &w->kv, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->kv_rank, 0, kv, 0);
    nn_bind_rows(b, &w->k_rot, "attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa", n, h->rot, h->kv_rank, kv, 0);
    nn_bind_vec(b, &w->kv_norm, "attn_kv_a_norm", "self_attn.kv_a_layernorm", h->kv_rank, 0);
    nn_bind_heads(b, &w->k_b, "attn_k_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->nope, h->kv_rank, 0, per_head,
                  NN_HEADS_T);
    nn_bind_heads(b, &w->v_b, "attn_v_b|attn_kv_b", "self_attn.kv_b_proj", d->n_head, h->kv_rank, h->v_dim, h->nope,
                  per_head, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", d->n_head * h->v_dim, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (h->n_expert && i >= h->n_dense) {
        bind_experts(b, w, h);
        return;
    }
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return (nn_state){ .kind = NN_STATE_PAGED_LATENT, .n_kv = 1, .dim_k = h->kv_rank, .dim_v = h->rot };
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const float norm_eps = 1e-6f; /* of the two inner norms, whatever the model's own is */
    int         dim = h->nope + h->rot;
    nn_buf      q = n;
    if (h->q_rank) q = nn_rms_norm(t, nn_project(t, n, w->q_a), w->q_norm, norm_eps);
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
                                 .score = h->softmax ? NN_SCORE_SOFTMAX : NN_SCORE_SIGMOID,
                                 .bias = w->route_bias,
                                 .n_group = h->n_group,
                                 .top_group = h->top_group,
                                 .renorm = h->renorm,
                                 .renorm_eps = 1e-20f,
                                 .scale = h->route_scale,
                                 .glu.act = NN_ACT_SILU }));
    if (w->shared_gate.w) nn_project_add(t, x, nn_glu(t, n, w->shared_gate, w->shared_up, NN_ACT_SILU), w->shared_down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_project_add(t, x, attend(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, w, i), w->o);
        feed_forward(t, x, nn_rms_norm(t, x, w->ffn_norm, d->eps), h, w);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "deepseek2", "deepseek_v3", "deepseek_v2", "kimi_k2", "glm4_moe_lite", NULL };
const nn_arch            models_deepseek = { NN_FAMILY, .gguf_only = true, .names = names, .act = "silu|swish" };
