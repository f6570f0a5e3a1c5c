/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nemotron-H: every layer is one mixer behind a norm: Mamba 2's, attention without positions, a feed-forward of squared
 * rectifiers, or experts of the same kind with a shared one, which may work on a narrower copy of the stream.
 */
#include "nn/nn.h"

typedef enum kind { MAMBA, ATTENTION, DENSE, EXPERTS } kind;

typedef struct hparams {
    nn_dims        d;
    int            n_expert, n_used, n_ff_expert, n_ff_shared, n_group, top_group, latent, inner;
    float          scale;
    bool           renorm;
    const int     *kinds, *n_ff; /* per layer */
    nn_mamba2_dims m;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *norm, *route_bias;
    nn_heads      attn;
    nn_mamba2     mamba;
    nn_linear     up, down, router, narrow, widen, shared_up, shared_down;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "n_routed_experts|num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_expert, "expert_feed_forward_length", "moe_intermediate_size", 0),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size", 0),
    NN_INT(n_group, "expert_group_count", "n_group", 1),
    NN_INT(top_group, "expert_group_used_count", "topk_group", 1),
    NN_INT(latent, "moe_latent_size", "moe_latent_size", 0),
    NN_FLOAT(scale, "expert_weights_scale", "routed_scaling_factor", 1),
    NN_BOOL(renorm, "expert_weights_norm", "norm_topk_prob", 1),
    NN_INT(m.n_head, "ssm.time_step_rank", "mamba_num_heads", NN_REQUIRED),
    NN_INT(m.dim, NULL, "mamba_head_dim", 0),
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(m.n_group, "ssm.group_count", "n_groups|mamba_n_groups", 1),
    NN_INT(m.n_state, "ssm.state_size", "ssm_state_size", NN_REQUIRED),
    NN_INT(m.taps, "ssm.conv_kernel", "conv_kernel|mamba_d_conv", 4),
    { 0 },
};

/* config.json has a letter or a name per layer; GGUF gives key heads to attention only and a width to the others. */
static void read_layers(nn_config *c, hparams *h) {
    static const struct {
        const char *names;
        char        letter;
        kind        kind;
    } known[] = { { "linear_attention|mamba", 'M', MAMBA },
                  { "full_attention|attention", '*', ATTENTION },
                  { "mlp", '-', DENSE },
                  { "moe", 'E', EXPERTS } };
    int       *out = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *out);
    int       *kv = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *kv);
    int       *ff = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *ff);
    const int *heads = nn_config_layer_ints(c, "attention.head_count_kv", NULL, h->d.n_kv),
              *width = nn_config_layer_ints(c, "feed_forward_length", NULL, 0);
    for (int i = 0; i < h->d.n_layer; i++) {
        out[i] = -1;
        if (nn_config_gguf(c)) {
            out[i] = heads[i] ? ATTENTION : width[i] == 0 ? MAMBA : h->n_expert ? EXPERTS : DENSE;
            if (heads[i]) h->d.n_kv = heads[i];
        }
        for (int k = 0; k < 4 && out[i] < 0; k++) {
            if (nn_config_letter_at(c, "layers_block_type|layer_types|hybrid_override_pattern", i, known[k].letter,
                                    known[k].names))
                out[i] = known[k].kind;
        }
        if (out[i] < 0) nn_config_fail(c, "layer %d is of a kind that is not known", i);
        kv[i] = out[i] == ATTENTION ? h->d.n_kv : 0;
        ff[i] = out[i] == DENSE && nn_config_gguf(c) ? width[i] : out[i] >= DENSE ? h->d.n_ff : 0;
    }
    nn_config_derived_layers(c, "attention.head_count_kv", kv);
    nn_config_derived_layers(c, "feed_forward_length", ff);
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps); /* readers look for either name */
    h->kinds = out;
    h->n_ff = ff;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_only(c, NULL, "mlp_hidden_act", "relu2");
    nn_config_only(c, NULL, "mamba_hidden_act", "silu");
    nn_config_only_number(c, "expert_gating_func", NULL, 2);
    nn_config_derived_int(c, "expert_gating_func", 2);
    if (h->n_ff_expert < 0 || h->n_ff_expert > 1 << 20 || h->n_ff_shared < 0 || h->n_ff_shared > 1 << 20 ||
        h->latent < 0 || h->latent > 1 << 20 || h->n_expert < 0) {
        nn_config_fail(c, "%d experts of width %d, a shared one of %d, on %d values: that makes no sense", h->n_expert,
                       h->n_ff_expert, h->n_ff_shared, h->latent);
        return;
    }
    h->d.n_ff = nn_config_gguf(c) ? 0 : (int)nn_config_int(c, NULL, "intermediate_size", 0);
    if (h->d.n_ff < 0 || h->d.n_ff > 1 << 24) nn_config_fail(c, "a feed-forward of width %d", h->d.n_ff);
    if (h->n_expert && nn_config_arch(c, "nemotron_h") && !nn_config_gguf(c))
        nn_config_unsaid(c, "n_routed_experts"); /* the format has a name of its own for the family with experts */
    nn_mamba2_check(c, &h->m, nn_config_gguf(c) ? h->inner : 0);
    read_layers(c, h);
    if (h->d.n_kv < 1 || h->d.n_head % h->d.n_kv)
        nn_config_fail(c, "%d attention heads cannot share %d key heads", h->d.n_head, h->d.n_kv);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const nn_dims *d = p;
    top           *t = out;
    nn_bind_mat(b, &t->embd, "token_embd", "backbone.embeddings|model.embeddings|model.embed_tokens", d->n_embd,
                d->n_vocab, NN_AT_LEAST);
    nn_bind_vec(b, &t->norm, "output_norm", "backbone.norm_f|model.norm_f", d->n_embd, 0);
    nn_bind_head(b, &t->head, t->embd, d->n_embd, d->n_vocab);
}

static void bind_experts(nn_binder *b, layer *w, const hparams *h) {
    int n = h->d.n_embd, in = h->latent ? h->latent : n;
    nn_bind_linear(b, &w->router, "ffn_gate_inp", "mixer.gate", n, h->n_expert, NN_NO_BIAS);
    nn_bind_vec(b, &w->route_bias, "exp_probs_b.bias|exp_probs_b", "mixer.gate.e_score_correction_bias", h->n_expert,
                0);
    nn_bind_experts(b, &w->up, "ffn_up_exps", "mixer.experts.*.up_proj|mixer.experts.up_proj|mixer.switch_mlp.fc1",
                    h->n_expert, in, h->n_ff_expert, 0);
    nn_bind_experts(b, &w->down, "ffn_down_exps",
                    "mixer.experts.*.down_proj|mixer.experts.down_proj|mixer.switch_mlp.fc2", h->n_expert,
                    h->n_ff_expert, in, 0);
    if (h->latent) {
        nn_bind_linear(b, &w->narrow, "ffn_latent_down", "mixer.fc1_latent_proj", n, in, 0);
        nn_bind_linear(b, &w->widen, "ffn_latent_up", "mixer.fc2_latent_proj", in, n, 0);
    }
    if (h->n_ff_shared == 0) return;
    nn_bind_linear(b, &w->shared_up, "ffn_up_shexp", "mixer.shared_experts.up_proj", n, h->n_ff_shared, 0);
    nn_bind_linear(b, &w->shared_down, "ffn_down_shexp", "mixer.shared_experts.down_proj", h->n_ff_shared, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    nn_bind_vec(b, &w->norm, "attn_norm", "norm", n, 0);
    if (h->kinds[i] == MAMBA) nn_bind_mamba2(b, &w->mamba, "mixer", &h->m, n, 0);
    if (h->kinds[i] == EXPERTS) bind_experts(b, w, h);
    if (h->kinds[i] == DENSE) {
        nn_bind_linear(b, &w->up, "ffn_up", "mixer.up_proj", n, h->n_ff[i], 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mixer.down_proj", h->n_ff[i], n, 0);
    }
    if (h->kinds[i] != ATTENTION) return;
    nn_bind_linear(b, &w->attn.q, "attn_q", "mixer.q_proj", n, q, 0);
    nn_bind_linear(b, &w->attn.k, "attn_k", "mixer.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->attn.v, "attn_v", "mixer.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->attn.o, "attn_output", "mixer.o_proj", q, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (h->kinds[i] == MAMBA) return nn_mamba2_state(&h->m);
    return h->kinds[i] == ATTENTION ? nn_state_kv(h->d.n_kv, h->d.head_dim, 0) : (nn_state){ 0 };
}

static nn_buf squared(nn_tape *t, nn_buf n, nn_linear up, nn_linear down) {
    nn_buf y = nn_project(t, n, up);
    nn_act(t, y, NN_ACT_RELU2);
    return nn_project(t, y, down);
}

static nn_buf experts(nn_tape *t, nn_buf n, const hparams *h, const layer *w) {
    nn_buf y = nn_moe(t, h->latent ? nn_project(t, n, w->narrow) : n,
                      (nn_moe_spec){ .router = w->router,
                                     .gate = w->up,
                                     .down = w->down,
                                     .n_expert = h->n_expert,
                                     .n_used = h->n_used,
                                     .score = NN_SCORE_SIGMOID,
                                     .bias = w->route_bias,
                                     .n_group = h->n_group,
                                     .top_group = h->top_group,
                                     .renorm = h->renorm,
                                     .renorm_eps = 1e-20f,
                                     .scale = h->scale,
                                     .glu.act = NN_ACT_RELU2,
                                     .router_in = n });
    if (h->latent) y = nn_project(t, y, w->widen);
    if (w->shared_up.w) nn_add(t, y, squared(t, n, w->shared_up, w->shared_down));
    return y;
}

static nn_buf attend(nn_tape *t, nn_buf n, const nn_dims *d, const nn_heads *w, int i) {
    nn_attn_spec a = nn_attn_plain(d, 0);
    nn_kv_store(t, i, nn_project(t, n, w->k), nn_project(t, n, w->v));
    return nn_project(t, nn_attention(t, i, nn_project(t, n, w->q), a), w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_buf         x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       n = nn_rms_norm(t, x, w->norm, d->eps);
        switch ((kind)h->kinds[i]) {
        case MAMBA:
            nn_project_add(t, x, nn_mamba2_apply(t, i, nn_project(t, n, w->mamba.in), &w->mamba, &h->m, d->eps),
                           w->mamba.out);
            break;
        case ATTENTION: nn_add(t, x, attend(t, n, d, &w->attn, i)); break;
        case DENSE: nn_add(t, x, squared(t, n, w->up, w->down)); break;
        case EXPERTS: nn_add(t, x, experts(t, n, h, w)); break;
        }
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "nemotron_h", NULL }, *const names_moe[] = { "nemotron_h_moe", NULL };
const nn_arch models_nemotron_h = { NN_FAMILY, .names = names, .hf_layers = "backbone.layers.", .lacks = NN_LACKS_FF,
                                    .kinds = "full_attention|linear_attention|mlp|moe|mamba|attention" };
const nn_arch models_nemotron_h_moe = { NN_FAMILY,
                                        .gguf_only = true,
                                        .names = names_moe,
                                        .hf_layers = "backbone.layers.",
                                        .lacks = NN_LACKS_FF,
                                        .kinds = "full_attention|linear_attention|mlp|moe|mamba|attention" };
