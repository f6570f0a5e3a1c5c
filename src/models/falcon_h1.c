/* SPDX-License-Identifier: Apache-2.0 */
/* Falcon-H1: in every layer attention and Mamba 2's mixer stand side by side behind one norm, then comes a feed-forward.
 * Multipliers stand at nearly every place; GGUF files have them in the weights. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims        d;
    int            inner;
    float          embd, head, key, attn_in, attn_out, ssm_in, ssm_out, gate, down;
    float          parts[5]; /* of the mixer's input: z, x, B, C, dt */
    nn_mamba2_dims m;
    nn_rope        rope;
} hparams;

typedef struct layer {
    const nn_vec *norm, *ffn_norm;
    nn_heads      attn;
    nn_mamba2     mamba;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(m.n_head, "ssm.time_step_rank", "mamba_n_heads", NN_REQUIRED),
    NN_INT(inner, "ssm.inner_size", "mamba_d_ssm", 0),
    NN_INT(m.n_group, "ssm.group_count", "mamba_n_groups", 1),
    NN_INT(m.n_state, "ssm.state_size", "mamba_d_state", NN_REQUIRED),
    NN_INT(m.taps, "ssm.conv_kernel", "mamba_d_conv", 4),
    NN_FLOAT(embd, NULL, "embedding_multiplier", 1),
    NN_FLOAT(head, NULL, "lm_head_multiplier", 1),
    NN_FLOAT(key, NULL, "key_multiplier", 1),
    NN_FLOAT(attn_in, NULL, "attention_in_multiplier", 1),
    NN_FLOAT(attn_out, NULL, "attention_out_multiplier", 1),
    NN_FLOAT(ssm_in, NULL, "ssm_in_multiplier", 1),
    NN_FLOAT(ssm_out, NULL, "ssm_out_multiplier", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     ones = true;
    nn_config_only(c, NULL, "hidden_act", "silu");
    if (nn_config_bool(c, NULL, "mamba_rms_norm", false)) nn_config_only_number(c, NULL, "mamba_norm_before_gate", 0);
    if (h->inner == 0) h->inner = (int)(nn_config_int(c, NULL, "mamba_expand", 2) * h->d.n_embd);
    nn_mamba2_check(c, &h->m, h->inner);
    h->gate = (float)nn_config_real_at(c, "mlp_multipliers", 0, 1);
    h->down = (float)nn_config_real_at(c, "mlp_multipliers", 1, 1);
    for (int i = 0; i < 5; i++) {
        h->parts[i] = (float)nn_config_real_at(c, "ssm_multipliers", i, 1);
        ones = ones && h->parts[i] == 1.0f;
    }
    ones = ones && h->embd == 1.0f && h->head == 1.0f && h->key == 1.0f && h->attn_in == 1.0f && h->attn_out == 1.0f &&
           h->ssm_in == 1.0f && h->ssm_out == 1.0f && h->gate == 1.0f && h->down == 1.0f;
    if (!ones) nn_config_unsaid(c, "multipliers");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1e11 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    (void)i;
    nn_bind_vec(b, &w->norm, "attn_norm", "input_layernorm", d->n_embd, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_mamba2(b, &w->mamba, "mamba", &h->m, d->n_embd, NN_OPTIONAL);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_ff_layernorm", d->n_embd, NN_BARE);
    nn_bind_ffn(b, &w->ffn, "feed_forward", d->n_embd, d->n_ff);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    nn_state       s = nn_mamba2_state(&h->m);
    (void)i;
    s.kind = NN_STATE_PAGED_KV;
    s.n_kv = h->d.n_kv;
    s.dim_k = s.dim_v = h->d.head_dim;
    return s;
}

static nn_buf scaled(nn_tape *t, nn_buf x, float by) {
    if (by != 1.0f) nn_scale(t, x, by);
    return x;
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const nn_heads *w, int i) {
    /* The input's multiplier goes through the projections. */
    nn_buf q = scaled(t, nn_project(t, n, w->q), h->attn_in), v = scaled(t, nn_project(t, n, w->v), h->attn_in);
    nn_buf k = scaled(t, nn_project(t, n, w->k), h->attn_in * h->key);
    nn_rotate(t, q, k, h->d.head_dim, &h->rope);
    nn_kv_store(t, i, k, v);
    return nn_project(t, nn_attention(t, i, q, nn_attn_plain(&h->d, 0)), w->o);
}

static nn_buf mix(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    nn_mamba2_scales s = { h->ssm_in * h->parts[0], h->ssm_in * h->parts[1], h->ssm_in * h->parts[2],
                           h->ssm_in * h->parts[3], h->ssm_in * h->parts[4] };
    return nn_project(t, nn_mamba2_scaled(t, i, nn_project(t, n, w->mamba.in), &w->mamba, &h->m, &s, h->d.eps),
                      w->mamba.out);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    nn_buf         x = nn_embed(t, tw->embd, h->embd);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->norm, d->eps);
        nn_add_scaled(t, x, mix(t, n, h, w, i), h->ssm_out);
        nn_add_scaled(t, x, attend(t, n, h, &w->attn, i), h->attn_out);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_buf u = nn_project(t, n, w->ffn.up);
        nn_gate(t, u, scaled(t, nn_project(t, n, w->ffn.gate), h->gate), NN_ACT_SILU);
        nn_add_scaled(t, x, nn_project(t, u, w->ffn.down), h->down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, h->head, 0.0f);
}

const nn_arch models_falcon_h1 = { NN_DECODER, .gguf_only = true, .names = NN_NAMES("falcon-h1", "falcon_h1") };
