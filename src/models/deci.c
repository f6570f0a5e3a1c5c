/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama Nemotron Super and Ultra (made by a search over architectures) and DeciLM: the Llama block, where each layer has
 * its own number of key heads and its own width, or a matrix instead of attention, or lacks one half.
 */
#include "nn/nn.h"

#include <stdio.h>

typedef struct hparams {
    nn_dims    d;
    const int *heads, *kv, *ff; /* per layer; heads 0: no attention; kv 0: a matrix instead; ff 0: no feed-forward */
    nn_rope    rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = { { 0 } };

static int64_t field(nn_config *c, int i, const char *name, int64_t dflt) {
    char path[80];
    snprintf(path, sizeof path, "block_configs.%d.%s", i, name);
    return nn_config_int(c, NULL, path, dflt);
}

static bool flag(nn_config *c, int i, const char *name) {
    char path[80];
    snprintf(path, sizeof path, "block_configs.%d.%s", i, name);
    return nn_config_bool(c, NULL, path, false);
}

/* A width as the authors round it: two thirds of a multiple of the hidden size, up to the next multiple of 256. */
static int width_of(nn_config *c, int i, int n) {
    char path[80];
    snprintf(path, sizeof path, "block_configs.%d.ffn.ffn_mult", i);
    double by = nn_config_real(c, NULL, path, 0);
    if (!(by >= 0 && by <= 1024)) {
        nn_config_fail(c, "the field \"%s\" is %g", path, by);
        return 0;
    }
    const double wide = 2 * by * n / 3;
    if (wide > 1 << 24) {
        nn_config_fail(c, "the field \"%s\" is %g: too large for a hidden size of %d", path, by, n);
        return 0;
    }
    return ((int)wide + 255) / 256 * 256;
}

static void read_block(nn_config *c, hparams *h, int i, int *heads, int *kv, int *ff) {
    int64_t group = field(c, i, "attention.n_heads_in_group", 0);
    if (field(c, i, "attention.window_length", 0) || field(c, i, "attention.num_sink_tokens", 0))
        nn_config_fail(c, "the field \"block_configs\" gives layer %d a window; that is not supported", i);
    if (flag(c, i, "ffn.replace_with_linear"))
        nn_config_fail(
            c, "the field \"block_configs\" gives layer %d a matrix for a feed-forward; that is not supported", i);
    if (group < 0 || group > h->d.n_head || (group > 0 && h->d.n_head % group)) {
        nn_config_fail(c, "the field \"block_configs\" has groups of %lld of the %d heads of layer %d",
                       (long long)group, h->d.n_head, i);
        return;
    }
    *heads =
        flag(c, i, "attention.no_op") || (!group && !flag(c, i, "attention.replace_with_linear")) ? 0 : h->d.n_head;
    *kv = *heads && group && !flag(c, i, "attention.replace_with_linear") ? h->d.n_head / (int)group : 0;
    *ff = flag(c, i, "ffn.no_op") ? 0 : width_of(c, i, h->d.n_embd);
}

static void setup(nn_config *c, void *p) {
    hparams   *h = p;
    int        n = h->d.n_layer;
    int       *heads = nn_config_alloc(c, (size_t)n, sizeof *heads), *kv = nn_config_alloc(c, (size_t)n, sizeof *kv);
    int       *ff = nn_config_alloc(c, (size_t)n, sizeof *ff);
    const int *heads_in = nn_config_layer_ints(c, "attention.head_count", "num_attention_heads", h->d.n_head);
    const int *kv_in = nn_config_layer_ints(c, "attention.head_count_kv",
                                            "num_key_value_heads_per_layer|num_key_value_heads", h->d.n_kv);
    const int *ff_in = nn_config_layer_ints(c, "feed_forward_length", "intermediate_size", h->d.n_ff);
    bool       blocks = nn_config_has(c, NULL, "block_configs");
    int        listed = nn_config_count(c, NULL, "block_configs");
    if (blocks && listed != n) nn_config_fail(c, "the field \"block_configs\" has %d layers of %d", listed, n);
    for (int i = 0; i < n && heads && kv && ff; i++) {
        heads[i] = heads_in[i];
        kv[i] = kv_in[i];
        ff[i] = ff_in[i];
        if (blocks) read_block(c, h, i, &heads[i], &kv[i], &ff[i]);
        if (heads[i] < 0 || heads[i] > 65536 || kv[i] < 0 || (kv[i] && heads[i] % kv[i]) || ff[i] < 0 ||
            (int64_t)heads[i] * h->d.head_dim > 1 << 24)
            nn_config_fail(c, "layer %d: %d heads that share %d key heads, a width of %d: that makes no sense", i,
                           heads[i], kv[i], ff[i]);
    }
    h->heads = heads;
    h->kv = kv;
    h->ff = ff;
    nn_config_derived_layers(c, "attention.head_count", heads);
    nn_config_derived_layers(c, "attention.head_count_kv", kv);
    nn_config_derived_layers(c, "feed_forward_length", ff);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    int            n = h->d.n_embd, q = h->heads[i] * h->d.head_dim;
    if (h->heads[i]) nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    if (h->kv[i])
        nn_bind_attention(b, &w->attn, n, q, (int64_t)h->kv[i] * h->d.head_dim, NN_ROTARY);
    else if (h->heads[i])
        nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.linear_attn|self_attn.linear", n, n, 0);
    if (!h->ff[i]) return;
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_ffn(b, &w->ffn, "mlp", n, h->ff[i]);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return h->kv[i] ? nn_state_kv(h->kv[i], h->d.head_dim, 0) : (nn_state){ 0 };
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;
    float          eps = h->d.eps;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_attn_spec a = nn_attn_plain(&h->d, 0);
        a.n_head = h->heads[i];
        a.n_kv = h->kv[i];
        if (h->heads[i]) {
            nn_buf n = nn_rms_norm(t, x, w->attn_norm, eps);
            nn_project_add(t, x, h->kv[i] ? nn_attend(t, i, n, &w->attn, &h->rope, a, eps) : n, w->attn.o);
        }
        if (h->ff[i])
            nn_add(
                t, x,
                nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, eps), &w->ffn, (nn_moe_spec){ .glu.act = NN_ACT_SILU }));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_deci = { NN_DECODER, .names = NN_NAMES("deci", "nemotron-nas"), .permuted_qk = true,
                              .act = "silu|swish", .lacks = NN_LACKS_FF };
