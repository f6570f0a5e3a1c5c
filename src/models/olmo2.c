/* SPDX-License-Identifier: Apache-2.0 */
/*
 * OLMo 2, OLMo 3 and EXAONE 4 (and 4.5): no norm before a block, one behind it. OLMo norms all query heads at once; OLMo 3 has
 * windows, in which its rotation is not stretched. EXAONE 4 norms each head, has windows and rotates only there.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    int        window, n_next;
    bool       per_head;
    const int *slides;
    nn_rope    rope, rope_sliding;
} hparams;

typedef struct layer {
    const nn_vec *q_norm, *k_norm, *post_attn_norm, *post_ffn_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_INT(n_next, "nextn_predict_layers", NULL, 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->per_head = nn_config_arch(c, "exaone4") || nn_config_arch(c, "exaone4_5_text");
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next; /* GGUF counts them, too */
    h->slides =
        nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types|sliding_window_pattern",
                           "sliding_attention", h->window && (h->per_head || nn_config_arch(c, "olmo3")) ? 4 : 0);
    /* Windows have a base of their own only where rope_parameters names it; an older rope_theta means the full layers. */
    if (!h->per_head && h->window)
        h->rope_sliding = nn_rope_read(c, &h->d,
                                       (nn_rope_want){ .layer_type = "sliding_attention",
                                                       .base = 500000,
                                                       .hf_base = "rope_local_base_freq",
                                                       .gguf_base = "rope.freq_base_swa|rope.freq_base",
                                                       .unscaled = true });
    h->rope = nn_rope_read(
        c, &h->d,
        (nn_rope_want){ .layer_type = h->per_head ? NULL : "full_attention", .base = h->per_head ? 0 : 500000 });
    if (h->per_head || !h->window) h->rope_sliding = h->rope;
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", h->per_head ? d->head_dim : q, 0);
    nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", h->per_head ? d->head_dim : kv, 0);
    nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
    nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_feedforward_layernorm", n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    nn_attn_spec   attn = nn_attn_plain(d, 0);

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       q = nn_rms_norm(t, nn_project(t, x, w->q), w->q_norm, d->eps);
        nn_buf       k = nn_rms_norm(t, nn_project(t, x, w->k), w->k_norm, d->eps);
        nn_buf       v = nn_project(t, x, w->v);
        if (!h->per_head || h->window == 0 || h->slides[i]) {
            const nn_rope *rope = h->slides[i] ? &h->rope_sliding : &h->rope;
            nn_rotate(t, q, k, d->head_dim, rope);
        }
        nn_kv_store(t, i, k, v);
        attn.window = h->slides[i] ? h->window : 0;
        nn_buf y = nn_project(t, nn_attention(t, i, q, attn), w->o);
        nn_add(t, x, nn_rms_norm(t, y, w->post_attn_norm, d->eps));
        y = nn_project(t, nn_glu(t, x, w->gate, w->up, NN_ACT_SILU), w->down);
        nn_add(t, x, nn_rms_norm(t, y, w->post_ffn_norm, d->eps));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names_2[] = { "olmo2", "olmo3", NULL }, *const names_4[] = { "exaone4", "exaone4_5_text",
                                                                                      NULL };
const nn_arch models_olmo2 = { NN_DECODER, .names = names_2, .act = "silu|swish" };
const nn_arch models_exaone4 = { NN_DECODER, .names = names_4, .act = "silu|swish" };
