/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MiniMax 01: layers of plain attention and of lightning attention, whose state of key times value decays by a fixed
 * rate per head and layer: a scan whose step is always one. What is added to is the normed stream, weighed.
 */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    int        n_expert, n_used;
    float      full_keep, full_add, linear_keep, linear_add, mlp_keep, mlp_add;
    const int *linear; /* per layer */
    nn_vec    *rates;  /* per layer: minus the decay of each head */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *out_norm;
    nn_heads      attn;
    nn_linear     qkv, gate;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts|num_experts", NN_REQUIRED),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 2),
    NN_FLOAT(full_keep, NULL, "full_attn_alpha_factor", 1),
    NN_FLOAT(full_add, NULL, "full_attn_beta_factor", 1),
    NN_FLOAT(linear_keep, NULL, "linear_attn_alpha_factor", 1),
    NN_FLOAT(linear_add, NULL, "linear_attn_beta_factor", 1),
    NN_FLOAT(mlp_keep, NULL, "mlp_alpha_factor", 1),
    NN_FLOAT(mlp_add, NULL, "mlp_beta_factor", 1),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int     *linear = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *linear), n = h->d.n_head;
    float   *a = nn_config_alloc(c, (size_t)h->d.n_layer * (size_t)n, sizeof *a);
    h->rates = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *h->rates);
    const int *list = nn_config_layer_is(c, NULL, "layer_types", "linear_attention", 0);
    bool       listed = nn_config_has(c, NULL, "layer_types");
    nn_config_only_number(c, NULL, "sliding_window", 0);
    nn_config_unsaid(c, "layer_types"); /* there are no GGUF files of this family */
    for (int i = 0; i < h->d.n_layer; i++) {
        double factor = 1 - i / (h->d.n_layer - 1 + 1e-5) + 1e-5;
        linear[i] = listed ? list[i] : i % 2;
        h->rates[i] = (nn_vec){ .name = "the decay", .n = n, .data = a + (size_t)i * (size_t)n };
        for (int k = 0; k < n; k++) a[(size_t)i * (size_t)n + (size_t)k] = -(float)(exp2(-8.0 * (k + 1) / n) * factor);
    }
    h->linear = linear;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, inner = (int64_t)h->d.n_head * h->d.head_dim;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe|mlp", n, h->d.n_ff, h->n_expert, NN_OPTIONAL);
    if (!h->linear[i]) {
        nn_bind_qkvo(b, &w->attn, &h->d);
        return;
    }
    nn_bind_linear(b, &w->qkv, "attn_qkv", "self_attn.qkv_proj", n, 3 * inner, 0);
    nn_bind_linear(b, &w->gate, "attn_gate", "self_attn.output_gate", n, inner, 0);
    nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.out_proj", inner, n, 0);
    nn_bind_vec(b, &w->out_norm, "attn_sub_norm", "self_attn.norm", inner, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (!h->linear[i]) return nn_state_kv(h->d.n_kv, h->d.head_dim, 0);
    return (nn_state){ .rec_heads = h->d.n_head, .rec_dim_k = h->d.head_dim, .rec_dim_v = h->d.head_dim };
}

/* Per head its query, key and value. */
static nn_buf lightning(nn_tape *t, nn_buf n, const hparams *h, const layer *w, int i) {
    const int   dim = h->d.head_dim;
    nn_ssm_spec s = { .n_head = h->d.n_head, .dim = dim, .n_group = h->d.n_head, .n_state = dim, .a = &h->rates[i] };
    nn_buf      qkv = nn_project(t, n, w->qkv);
    nn_act(t, qkv, NN_ACT_SILU);
    nn_buf y = nn_ssm(t, i, nn_take_each(t, qkv, 3 * dim, 2 * dim, dim), nn_take_each(t, qkv, 3 * dim, dim, dim),
                      nn_take_each(t, qkv, 3 * dim, 0, dim), 0, s);
    y = nn_rms_norm(t, y, w->out_norm, 1e-6f);
    nn_gate(t, y, nn_project(t, n, w->gate), NN_ACT_SIGMOID);
    return y;
}

static nn_buf weighed(nn_tape *t, nn_buf x, float keep, nn_buf y, float add) {
    nn_scale(t, x, keep);
    nn_add_scaled(t, x, y, add);
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const nn_moe_spec how = { .n_expert = h->n_expert, .n_used = h->n_used, .renorm = true, .glu.act = NN_ACT_SILU };
    nn_buf            x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        bool         full = !h->linear[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       y =
            full ? nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps) : lightning(t, n, h, w, i);
        x = weighed(t, n, full ? h->full_keep : h->linear_keep, nn_project(t, y, w->attn.o),
                    full ? h->full_add : h->linear_add);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        x = weighed(t, n, h->mlp_keep, nn_ffn_apply(t, n, &w->ffn, how), h->mlp_add);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1, 0);
}

const nn_arch models_minimax = { NN_DECODER, .hf_only = true, .names = NN_NAMES("minimax"), .act = "silu|swish",
                                 .kinds = "linear_attention|full_attention" };
