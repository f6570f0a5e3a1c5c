/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax M2: partial rotation, q and k normed over all heads at once, sigmoid-routed experts. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, rotary;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *k_norm, *route_bias;
    nn_linear     q, k, v, o, router, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "intermediate_size", 0),
    NN_INT(rotary, NULL, "rotary_dim", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "use_qk_norm", "true");
    nn_config_known(c, "qk_norm_type", "per_layer");
    nn_config_known(c, "scoring_func", "sigmoid");
    nn_config_derived_int(c, "expert_gating_func", 2);
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "scoring_func", "sigmoid");
    nn_config_only(c, NULL, "qk_norm_type", "per_layer");
    nn_config_only_number(c, NULL, "shared_intermediate_size", 0);
    nn_config_only_number(c, NULL, "use_routing_bias", 1);
    nn_config_only_number(c, NULL, "use_qk_norm", 1);
    nn_config_only_number(c, NULL, "attn_type_list", 1);
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    if (h->n_ff_expert == 0) h->n_ff_expert = h->d.n_ff;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .partial = h->rotary ? (double)h->rotary / h->d.head_dim : 0 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, e = h->n_expert, ff = h->n_ff_expert;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", q, 0);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", kv, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "block_sparse_moe.gate|mlp.gate", n, e, 0);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias",
                "block_sparse_moe.e_score_correction_bias|mlp.e_score_correction_bias", e, 0);
    nn_bind_experts(b, &w->gate, "ffn_gate_exps",
                    "block_sparse_moe.experts.*.w1|block_sparse_moe.switch_mlp.gate_proj|mlp.experts.gate_up_proj#0/2",
                    e, n, ff, 0);
    nn_bind_experts(b, &w->up, "ffn_up_exps",
                    "block_sparse_moe.experts.*.w3|block_sparse_moe.switch_mlp.up_proj|mlp.experts.gate_up_proj#1/2", e,
                    n, ff, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "block_sparse_moe.experts.*.w2|block_sparse_moe.switch_mlp.down_proj|mlp.experts.down_proj", e, ff,
                    n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const nn_ends     *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = nn_attn_plain(d, 0);

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_rms_norm(t, nn_project(t, n, w->q), w->q_norm, d->eps);
        nn_buf       k = nn_rms_norm(t, nn_project(t, n, w->k), w->k_norm, d->eps);
        nn_buf       v = nn_project(t, n, w->v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);
        nn_add(t, x,
               nn_moe(t, nn_rms_norm(t, x, w->ffn_norm, d->eps),
                      (nn_moe_spec){ .router = w->router,
                                     .gate = w->gate,
                                     .up = w->up,
                                     .down = w->down,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SIGMOID,
                                     .bias = w->route_bias,
                                     .renorm = true,
                                     .glu.act = NN_ACT_SILU }));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_minimax_m2 = { NN_PLAIN, .gguf_only = true, .names = NN_NAMES("minimax-m2", "minimax_m2"),
                                    .act = "silu|swish" };
