/* SPDX-License-Identifier: Apache-2.0 */
/* Phi-3, Phi-4 and the text of Phi-4 Multimodal, whose adapters are for pictures and sounds alone: the Llama block with
 * fused projections, partial rotation and longrope. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     window;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_rows(b, &w->q, "attn_qkv", "self_attn.qkv_proj|self_attn.qkv_proj.base_layer", n, q, 0, q + 2 * kv, 0);
    nn_bind_rows(b, &w->k, "attn_qkv", "self_attn.qkv_proj|self_attn.qkv_proj.base_layer", n, kv, q, q + 2 * kv, 0);
    nn_bind_rows(b, &w->v, "attn_qkv", "self_attn.qkv_proj|self_attn.qkv_proj.base_layer", n, kv, q + kv, q + 2 * kv,
                 0);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj|self_attn.o_proj.base_layer", q, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_up#0/2", "mlp.gate_up_proj#0/2|mlp.gate_up_proj.base_layer#0/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up#1/2", "mlp.gate_up_proj#1/2|mlp.gate_up_proj.base_layer#1/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj|mlp.down_proj.base_layer", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    (void)i;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->window);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const nn_ends     *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = nn_attn_plain(d, h->window);

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        nn_project_add(t, x, nn_attention(t, i, q, attn), w->o);

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_phi3 = { NN_DECODER, .names = NN_NAMES("phi3", "phi4mm", "phi4_multimodal"), .act = "silu|swish" };
