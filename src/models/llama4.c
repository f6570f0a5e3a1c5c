/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama 4: layers that rotate see only their own chunk of positions; the others see everything, without
 * positions, and their queries grow with the position. Experts get their input times the sigmoid of their score, and a
 * shared one stands beside them; in some models every second layer is dense.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        n_expert, n_used, n_ff_expert, chunk, period, step;
    float      beta;
    bool       tunes, norms;
    const int *rotates, *sparse; /* per layer */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 1),
    NN_INT(chunk, "attention.sliding_window|attention.chunk_size", "attention_chunk_size", 8192),
    NN_INT(period, "attention.temperature_length", "floor_scale", 8192),
    NN_INT(step, "interleave_moe_layer_step", "interleave_moe_layer_step", 1),
    NN_FLOAT(beta, "attention.temperature_scale", "attn_scale", 0.1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int     *sparse = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *sparse);
    int     *rotates = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *rotates);
    bool    listed = nn_config_count(c, NULL, "no_rope_layers") > 0, named = nn_config_count(c, NULL, "moe_layers") > 0;
    int64_t every = nn_config_int(c, NULL, "no_rope_layer_interval", 4);
    const int *list = nn_config_layer_ints(c, NULL, listed ? "no_rope_layers" : NULL, 1); /* 1: has rotation */
    const int *full = nn_config_layer_is(c, NULL, "layer_types", "full_attention", 0);
    nn_config_only(c, NULL, "hidden_act", "silu");
    h->n_ff_expert = (int)nn_config_int(c, "expert_feed_forward_length", "intermediate_size", h->d.n_ff);
    if (!nn_config_gguf(c)) h->d.n_ff = (int)nn_config_int(c, NULL, "intermediate_size_mlp", 16384);
    if (h->step < 1 || every < 1 || h->chunk < 1 || h->period < 1 || h->n_ff_expert < 1 || h->n_ff_expert > 1 << 20 ||
        h->d.n_ff < 1 || h->d.n_ff > 1 << 24) {
        nn_config_fail(c, "chunks of %d, experts of width %d in every %dth layer: that makes no sense", h->chunk,
                       h->n_ff_expert, h->step);
        return;
    }
    for (int i = 0; i < h->d.n_layer && !nn_config_gguf(c); i++) {
        rotates[i] = listed ? list[i] != 0 : (i + 1) % every != 0;
        sparse[i] = named ? nn_config_lists(c, NULL, "moe_layers", i) : (i + 1) % h->step == 0;
        if (nn_config_has(c, NULL, "layer_types") && full[i] == rotates[i])
            nn_config_fail(c, "layer %d: chunks without rotation, or rotation without chunks, is not supported", i);
    }
    for (int i = 0; i < h->d.n_layer && nn_config_gguf(c); i++) {
        rotates[i] = (i + 1) % 4 != 0; /* what the format leaves to the reader */
        sparse[i] = (i + 1) % h->step == 0;
    }
    h->rotates = rotates;
    h->sparse = sparse;
    h->tunes = nn_config_bool(c, NULL, "attn_temperature_tuning", true);
    /* GGUF has no key: the model with 128 experts is the one without. */
    h->norms = nn_config_bool(c, NULL, "use_qk_norm", !nn_config_gguf(c) || h->n_expert != 128);
    nn_config_derived_int(c, "expert_feed_forward_length", h->n_ff_expert);
    nn_config_derived_int(c, "feed_forward_length", h->d.n_ff);
    if (!h->tunes) nn_config_unsaid(c, "attn_temperature_tuning");
    if (h->norms == (h->n_expert == 128)) nn_config_unsaid(c, "use_qk_norm");
    for (int i = 0; i < h->d.n_layer; i++) {
        if (rotates[i] != ((i + 1) % 4 != 0)) nn_config_unsaid(c, "no_rope_layers");
    }
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 500000, .interleaved = true });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, e = h->n_expert, ff = h->n_ff_expert;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_attention(b, &w->attn, n, d->n_head * d->head_dim, d->n_kv * d->head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (!h->sparse[i]) {
        nn_bind_ffn(b, &w->ffn, "feed_forward", n, d->n_ff);
        return;
    }
    nn_bind_linear(b, &w->ffn.router, "ffn_gate_inp", "feed_forward.router", n, e, NN_NO_BIAS);
    nn_bind_experts(b, &w->ffn.gate, "ffn_gate_exps",
                    "feed_forward.experts.gate_up_proj^#0/2|feed_forward.experts.*.gate_proj|"
                    "feed_forward.switch_mlp.gate_proj",
                    e, n, ff, NN_NO_BIAS);
    nn_bind_experts(b, &w->ffn.up, "ffn_up_exps",
                    "feed_forward.experts.gate_up_proj^#1/2|feed_forward.experts.*.up_proj|"
                    "feed_forward.switch_mlp.up_proj",
                    e, n, ff, NN_NO_BIAS);
    nn_bind_experts(b, &w->ffn.down, "ffn_down_exps",
                    "feed_forward.experts.down_proj^|feed_forward.experts.*.down_proj|"
                    "feed_forward.switch_mlp.down_proj",
                    e, ff, n, NN_NO_BIAS);
    nn_bind_ffn_shared(b, &w->ffn, "feed_forward.shared_expert", n, ff);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->rotates[i] ? h->chunk : 0);
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const nn_heads *w, int i) {
    const nn_dims *d = &h->d;
    nn_attn_spec   a = { .n_head = d->n_head,
                         .n_kv = d->n_kv,
                         .dim_k = d->head_dim,
                         .window = h->rotates[i] ? h->chunk : 0,
                         .chunk = h->rotates[i] ? h->chunk : 0,
                         .scale = 1.0f / sqrtf((float)d->head_dim) };
    nn_buf         q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
    if (h->rotates[i]) {
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        if (h->norms) {
            q = nn_rms_norm_groups(t, q, d->head_dim, NULL, d->eps);
            k = nn_rms_norm_groups(t, k, d->head_dim, NULL, d->eps);
        }
    } else if (h->tunes) {
        nn_scale_by_next_position(t, q, h->beta, h->period);
    }
    nn_kv_store(t, i, k, v);
    return nn_project(t, nn_attention(t, i, q, a), w->o);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = { .n_expert = h->n_expert,
                              .n_used = h->n_used,
                              .score = NN_SCORE_SIGMOID,
                              .weigh_input = true,
                              .glu.act = NN_ACT_SILU };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_add(t, x, attend(t, nn_rms_norm(t, x, w->attn_norm, d->eps), h, &w->attn, i));
        nn_add(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_llama4 = { NN_DECODER, .gguf_only = true, .names = NN_NAMES("llama4", "llama4_text"),
                                .kinds = "chunked_attention|full_attention" };
