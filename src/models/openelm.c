/* SPDX-License-Identifier: Apache-2.0 */
/* OpenELM: the Llama block with per-head norms, whose numbers of heads and width of feed-forward grow from layer to
 * layer. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims    d;
    const int *n_head, *n_kv, *n_ff; /* per layer */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(d.head_dim, "attention.key_length", "head_dim", 0),
    NN_FLOAT(d.eps, "attention.layer_norm_rms_epsilon", NULL, 1e-6),
    { 0 },
};

/* config.json has multiples of the width, which are rounded to a divisor, but never down by more than a tenth. */
static const int *widths(nn_config *c, const hparams *h) {
    int         *out = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *out);
    const float *times = nn_config_layer_reals(c, NULL, "ffn_multipliers", 4);
    int          by = (int)nn_config_int(c, NULL, "ffn_dim_divisor", 256);
    if (by < 1 || by > 1 << 20) nn_config_fail(c, "the field \"ffn_dim_divisor\" is %d", by);
    for (int i = 0; i < h->d.n_layer && by > 0; i++) {
        double v = (double)times[i] * h->d.n_embd, n = fmax(by, floor((v + by / 2.0) / by) * by);
        if (n < 0.9 * v) n += by;
        out[i] = n > 0 && n < 1 << 24 ? (int)n : 0;
    }
    nn_config_derived_layers(c, "feed_forward_length", out);
    return out;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    h->n_head = nn_config_layer_ints(c, "attention.head_count", "num_query_heads", 0);
    h->n_kv = nn_config_layer_ints(c, "attention.head_count_kv", "num_kv_heads", 0);
    h->n_ff = nn_config_gguf(c) ? nn_config_layer_ints(c, "feed_forward_length", NULL, 0) : widths(c, h);
    nn_config_known(c, "normalize_qk_projections", "true");
    nn_config_known(c, "ffn_with_glu", "true");
    nn_config_known(c, "normalization_layer_name", "rms_norm");
    nn_config_known(c, "activation_fn_name", "swish|silu");
    if (h->d.head_dim == 0 && h->n_head[0] > 0) h->d.head_dim = h->d.n_embd / h->n_head[0];
    for (int i = 0; i < h->d.n_layer; i++) {
        if (h->n_kv[i] < 1 || h->n_head[i] < h->n_kv[i] || h->n_head[i] > 65536 || h->n_head[i] % h->n_kv[i] ||
            h->n_ff[i] < 1 || h->d.head_dim < 1 || h->d.head_dim > 65536)
            nn_config_fail(c, "layer %d: %d heads share %d key heads of %d elements, feed-forward of %d", i,
                           h->n_head[i], h->n_kv[i], h->d.head_dim, h->n_ff[i]);
    }
    nn_config_derived_int(c, "attention.value_length", h->d.head_dim);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .hf_base = "rope_freq_constant" });
}

static nn_dims dims_of(const hparams *h, int i) {
    nn_dims d = h->d;
    d.n_head = h->n_head[i];
    d.n_kv = h->n_kv[i];
    d.n_ff = h->n_ff[i];
    return d;
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    nn_dims d = dims_of(p, i);
    layer  *w = out;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "attn_norm", d.n_embd, 0);
    nn_bind_qkv(b, &w->attn, "attn_qkv", "attn.qkv_proj", &d, false);
    nn_bind_linear(b, &w->attn.o, "attn_output", "attn.out_proj", (int64_t)d.n_head * d.head_dim, d.n_embd, 0);
    nn_bind_vec(b, &w->attn.q_norm, "attn_q_norm", "attn.q_norm", d.head_dim, 0);
    nn_bind_vec(b, &w->attn.k_norm, "attn_k_norm", "attn.k_norm", d.head_dim, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "ffn_norm", d.n_embd, 0);
    nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "ffn.proj_1#0/2", d.n_embd, d.n_ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "ffn.proj_1#1/2", d.n_embd, d.n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "ffn.proj_2", d.n_ff, d.n_embd, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->n_kv[i], h->d.head_dim, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    float          eps = h->d.eps;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_dims      d = dims_of(h, i);
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(&d, 0), eps), w->attn.o);
        nn_project_add(t, x, nn_feed(t, nn_rms_norm(t, x, w->ffn_norm, eps), &w->mlp, NN_ACT_SILU), w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "openelm", NULL };
const nn_arch            models_openelm = { NN_DECODER, .names = names, .tied = names,
                                            .lacks = NN_LACKS_HEADS | NN_LACKS_FF | NN_LACKS_EPS };
