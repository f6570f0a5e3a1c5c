/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 2 MoE and Qwen 3 MoE: the Qwen decoder with a mixture of experts. Qwen 2 adds a shared expert behind a gate and
 * leaves the experts' weights as they are; Qwen 3 renormalises them. Some layers may be dense.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_ff_expert, n_ff_shared;
    bool    renorm;
    int     n_deep; /* layers behind which a picture's rows get more (Qwen 3 VL) */
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_experts|num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", NN_REQUIRED),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "shared_expert_intermediate_size", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     third = !nn_config_arch(c, "qwen2moe") && !nn_config_arch(c, "qwen2_moe");
    nn_config_only(c, NULL, "hidden_act", "silu");
    h->renorm = nn_config_bool(c, "expert_weights_norm", "norm_topk_prob", third);
    if (nn_config_bool(c, NULL, "use_sliding_window", false))
        nn_config_fail(c, "use_sliding_window is not supported in this family");
    if (h->n_ff_expert == 0) h->n_ff_expert = h->d.n_ff;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000 });
    if (nn_config_arch(c, "qwen3vlmoe") || nn_config_arch(c, "qwen3_vl_moe") ||
        nn_config_arch(c, "qwen3_vl_moe_text") || nn_config_arch(c, "qwen3_omni_moe_text")) {
        nn_rope_axes(c, &h->rope, true);
        h->n_deep = nn_deep_read(c, h->d.n_layer);
    }
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_OPTIONAL);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (!nn_bind_exists(b, "ffn_gate_inp", "mlp.gate")) { /* a dense layer */
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "mlp", n, h->n_ff_expert, h->n_expert, NN_OPTIONAL);
    if (h->n_ff_shared == 0) return;
    nn_bind_linear(b, &w->ffn.shared_router, "ffn_gate_inp_shexp", "mlp.shared_expert_gate", n, 1, 0);
    nn_bind_ffn_shared(b, &w->ffn, "mlp.shared_expert", n, h->n_ff_shared);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = {
        .n_expert = h->n_expert, .n_used = h->n_used, .renorm = h->renorm, .glu.act = NN_ACT_SILU
    };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
        if (i < h->n_deep) nn_add_supplied(t, x, i + 1);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

#define EXPERTS NN_PLAIN, .gguf_only = true, .act = "silu|swish"
const nn_arch models_qwen2_moe = { EXPERTS, .names = NN_NAMES("qwen2moe", "qwen2_moe") };
const nn_arch models_qwen3_moe = { EXPERTS, .names = NN_NAMES("qwen3moe", "qwen3_moe") };
const nn_arch models_qwen3vl_moe = { EXPERTS, .names = NN_NAMES("qwen3vlmoe", "qwen3_vl_moe", "qwen3_vl_moe_text",
                                                                "qwen3_omni_moe_text") };
