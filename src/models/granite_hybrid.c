/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Granite with experts (3, shared or not), Granite 4 and Bamba: the Granite block, where most of Granite 4's and
 * Bamba's layers have Mamba 2's mixer instead of attention. Every layer has a feed-forward: experts with a shared one
 * beside them, experts alone, or the shared one alone. Bamba has no multipliers and rotates half of each head.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    int            n_expert, n_used, n_ff_shared, inner;
    nn_multipliers by;
    bool           bamba;
    const int     *attends; /* per layer */
    nn_mamba2_dims m;
    nn_rope        rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mamba2     mamba;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 0),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "shared_intermediate_size", 0),
    NN_INT(m.n_head, "ssm.time_step_rank", "mamba_n_heads", 0),
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(m.n_group, "ssm.group_count", "mamba_n_groups", 1),
    NN_INT(m.n_state, "ssm.state_size", "mamba_d_state", 256),
    NN_INT(m.taps, "ssm.conv_kernel", "mamba_d_conv", 4),
    NN_MULTIPLIER_KEYS(by),
    { 0 },
};

/* config.json names the layers' kinds, or Bamba's attention layers; GGUF gives the others no key heads. */
static const int *read_layers(nn_config *c, const hparams *h) {
    int *out = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *out), *kv;
    kv = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *kv);
    const int *attn = nn_config_layer_is(c, NULL, "layer_types|layers_block_type", "attention", h->d.n_layer + 1),
              *full = nn_config_layer_is(c, NULL, "layer_types|layers_block_type", "full_attention", 0),
              *heads = nn_config_layer_ints(c, "attention.head_count_kv", NULL, h->d.n_kv);
    bool named = nn_config_has(c, NULL, "layer_types|layers_block_type"), mixes = h->m.n_head > 0;
    for (int i = 0; i < h->d.n_layer; i++) {
        if (nn_config_gguf(c))
            out[i] = heads[i] > 0;
        else if (named)
            out[i] = attn[i] || full[i];
        else
            out[i] = !mixes || nn_config_lists(c, NULL, "attn_layer_indices", i);
        kv[i] = out[i] ? h->d.n_kv : 0;
    }
    if (mixes) nn_config_derived_layers(c, "attention.head_count_kv", kv);
    return out;
}

static void refuse(nn_config *c, const hparams *h) {
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_config_only(c, NULL, "position_embedding_type", "rope|nope");
    nn_config_only(c, NULL, "normalization_function", "rmsnorm");
    nn_config_only_number(c, "expert_gating_func", NULL, 1);
    if (h->n_expert < 0 || h->n_ff_shared < 0 || h->n_ff_shared > 1 << 20 || h->d.n_ff > 1 << 20)
        nn_config_fail(c, "%d experts of width %d and a shared one of %d make no sense", h->n_expert, h->d.n_ff,
                       h->n_ff_shared);
    if (h->by.logit == 0) nn_config_fail(c, "logits cannot be divided by zero");
    if (h->n_expert == 0 && h->n_ff_shared > 0) nn_config_derived_int(c, "feed_forward_length", h->n_ff_shared);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     hybrid = nn_config_arch(c, "granitehybrid") || nn_config_arch(c, "granitemoehybrid");
    h->bamba = nn_config_arch(c, "bamba");
    refuse(c, h);
    if (h->by.attn == 0) h->by.attn = h->bamba || nn_config_gguf(c) ? 1.0f / sqrtf((float)h->d.head_dim) : 1.0f;
    if (h->d.n_kv == 0) h->d.n_kv = (int)nn_config_int(c, NULL, NULL, h->d.n_head);
    h->attends = read_layers(c, h);
    for (int i = 0; i < h->d.n_layer && nn_config_gguf(c); i++) {
        const int *kv = nn_config_layer_ints(c, "attention.head_count_kv", NULL, h->d.n_kv);
        if (h->attends[i]) h->d.n_kv = kv[i];
    }
    if (h->d.n_kv < 1 || h->d.n_kv > h->d.n_head || h->d.n_head % h->d.n_kv) {
        nn_config_fail(c, "%d attention heads cannot share %d key heads", h->d.n_head, h->d.n_kv);
        return;
    }
    if (h->m.n_head) {
        int64_t inner = nn_config_gguf(c) ? h->inner : nn_config_int(c, NULL, "mamba_expand", 2) * h->d.n_embd;
        nn_mamba2_check(c, &h->m, inner);
    }
    /* GGUF says "finetuned" where a hybrid rotates. */
    bool rotates = !hybrid || (nn_config_gguf(c) ? nn_config_bool(c, "rope.scaling.finetuned", NULL, true)
                                                 : nn_config_is(c, NULL, "position_embedding_type", "rope", false));
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .partial = h->bamba ? 0.5 : 0 });
    if (!rotates) h->rope.n_rot = 0;
    if (hybrid) nn_config_derived_bool(c, "rope.scaling.finetuned", rotates);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    if (h->attends[i])
        nn_bind_qkvo(b, &w->attn, d);
    else
        nn_bind_mamba2(b, &w->mamba, "mamba", &h->m, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm|pre_ff_layernorm", n, 0);
    if (h->n_expert == 0) {
        nn_bind_ffn(b, &w->ffn, "shared_mlp|feed_forward", n, h->n_ff_shared ? h->n_ff_shared : d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe", n, d->n_ff, h->n_expert, NN_OPTIONAL);
    if (h->n_ff_shared) nn_bind_ffn_shared(b, &w->ffn, "shared_mlp", n, h->n_ff_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return h->attends[i] ? nn_state_kv(h->d.n_kv, h->d.head_dim, 0) : nn_mamba2_state(&h->m);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = {
        .n_expert = h->n_expert, .n_used = h->n_used, .score = NN_SCORE_SOFTMAX, .renorm = true, .glu.act = NN_ACT_SILU
    };

    nn_attn_spec a = nn_attn_plain(d, 0);
    a.scale = h->by.attn;

    nn_buf x = nn_embed(t, tw->embd, h->by.embd);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps), y;
        if (h->attends[i])
            y = nn_project(t, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        else
            y = nn_project(t, nn_mamba2_apply(t, i, nn_project(t, n, w->mamba.in), &w->mamba, &h->m, d->eps),
                           w->mamba.out);
        nn_add_scaled(t, x, y, h->by.residual);
        nn_add_scaled(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how), h->by.residual);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f / h->by.logit, 0.0f);
}

static const char *const        names_moe[] = { "granitemoe", "granitemoeshared", NULL },
                         *const names_hybrid[] = { "granitehybrid", "granitemoehybrid", NULL },
                         *const names_bamba[] = { "bamba", NULL };
const nn_arch                   models_granite_moe = { NN_DECODER, .names = names_moe, .permuted_qk = true,
                                                       .kinds = "mamba|attention|linear_attention|full_attention" };
const nn_arch models_granite_hybrid = { NN_DECODER, .gguf_only = true, .names = names_hybrid, .permuted_qk = true,
                                        .kinds = "mamba|attention|linear_attention|full_attention" };
/* The usual converter writes it as a Granite hybrid with permuted rows, of which only half would rotate. */
const nn_arch models_bamba = { NN_DECODER, .hf_only = true, .names = names_bamba, .reordered = true,
                               .kinds = "mamba|attention|linear_attention|full_attention" };
