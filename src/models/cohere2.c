/* SPDX-License-Identifier: Apache-2.0 */
/* Cohere (Command R, R+) and Cohere 2 (Command R7B, A): attention and feed-forward side by side behind one LayerNorm.
 * Cohere 2 has windows, and its full layers do not rotate; Command R+ norms each head. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    int        window;
    float      logit_scale;
    bool       first, head_norms;
    const int *slides;
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *norm, *q_norm, *k_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    NN_FLOAT(logit_scale, "logit_scale", "logit_scale", 0.0625),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    h->first = nn_config_arch(c, "cohere") || nn_config_arch(c, "command-r");
    h->head_norms = h->first && nn_config_bool(c, NULL, "use_qk_norm", false);
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern",
                                   "layer_types|sliding_window_pattern|_sliding_window_pattern", "sliding_attention",
                                   h->first ? 0 : 4);
    if (!h->first) h->window = (int)nn_config_int(c, "attention.sliding_window", "sliding_window", NN_REQUIRED_INT);
    if (h->window < 0 || h->window > 1 << 24) nn_config_fail(c, "a window of %d", h->window);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .interleaved = true });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
    nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
    unsigned flags = ((const hparams *)p)->head_norms ? 0 : NN_OPTIONAL; /* GGUF does not say whether there are any */
    nn_bind_vecs(b, &w->q_norm, "attn_q_norm", "self_attn.q_norm", d->n_head, d->head_dim, flags);
    nn_bind_vecs(b, &w->k_norm, "attn_k_norm", "self_attn.k_norm", d->n_kv, d->head_dim, flags);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_linear(b, &w->gate, "ffn_gate", "mlp.gate_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up", "mlp.up_proj", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj", d->n_ff, n, 0);
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
        nn_buf       n = nn_layer_norm(t, x, w->norm, NULL, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        if (w->q_norm) {
            q = nn_layer_norm_groups(t, q, d->head_dim, w->q_norm, NULL, d->eps);
            k = nn_layer_norm_groups(t, k, d->head_dim, w->k_norm, NULL, d->eps);
        }
        if (h->first || h->slides[i]) nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        attn.window = h->slides[i] ? h->window : 0;
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
    }
    nn_logits(t, nn_layer_norm(t, nn_outputs(t, x), tw->norm, NULL, d->eps), tw->head, h->logit_scale, 0.0f);
}

static const char *const names[] = { "cohere2", NULL }, *const names_1[] = { "command-r", "cohere", NULL };
const nn_arch models_cohere2 = { NN_DECODER, .names = names, .tied = names, .act = "silu|swish" };
const nn_arch models_cohere = { NN_DECODER, .gguf_only = true, .names = names_1, .tied = names_1, .act = "silu|swish" };
