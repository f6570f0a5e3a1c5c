/* SPDX-License-Identifier: Apache-2.0 */
/* Granite with windows: sinks in every layer, a rotary base per layer (none: no positions); a dense feed-forward, or
 * experts and a shared one. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims        d;
    int            n_expert, n_used, n_ff_shared, window;
    nn_multipliers by;
    const int     *slides;
    nn_rope       *ropes; /* per layer */
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *sinks;
    nn_heads      attn;
    nn_ffn        ffn;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, "expert_count", "num_local_experts", 0),
    NN_INT(n_used, "expert_used_count", "num_experts_per_tok", 2),
    NN_INT(n_ff_shared, "expert_shared_feed_forward_length", "shared_intermediate_size", 0),
    NN_INT(window, "attention.sliding_window", "sliding_window", 128),
    NN_MULTIPLIER_KEYS(by),
    { 0 },
};

/* The frequencies of layer i; layers of one base share them. */
static nn_rope layer_rope(nn_config *c, const hparams *h, const nn_rope *plain, const double *bases, int i) {
    nn_rope r = *plain;
    float  *freq;
    for (int j = 0; j < i; j++) {
        if (bases[j] == bases[i]) return h->ropes[j];
    }
    if (!(bases[i] > 1)) {
        r.n_rot = 0;
        if (bases[i] != 0) nn_config_fail(c, "the field \"layer_rope_theta\" has %g for layer %d", bases[i], i);
        return r;
    }
    freq = nn_config_alloc(c, (size_t)r.n_rot / 2 + 1, sizeof *freq);
    for (int k = 0; freq && k < r.n_rot / 2; k++) freq[k] = (float)pow(bases[i], -2.0 * k / r.n_rot);
    r.inv_freq = freq;
    return r;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    int     *slides = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *slides);
    double  *bases = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *bases);
    h->ropes = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *h->ropes);
    nn_config_only(c, NULL, "hidden_act", "silu");
    if (nn_config_arch(c, "granitemoe_swa")) h->n_expert = (int)nn_config_int(c, NULL, "num_local_experts", 8);
    if (h->by.attn == 0) h->by.attn = nn_config_gguf(c) ? 1.0f / sqrtf((float)h->d.head_dim) : 1.0f;
    if (h->window < 1 || h->window > 1 << 24 || h->n_expert < 0 || h->n_ff_shared < 0 || h->n_ff_shared > 1 << 20 ||
        h->by.logit == 0) {
        nn_config_fail(c, "a window of %d, %d experts, a shared one of %d: that makes no sense", h->window, h->n_expert,
                       h->n_ff_shared);
        return;
    }
    const int *list = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 0);
    nn_rope    plain = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
    bool       own = nn_config_count(c, NULL, "layer_rope_theta") > 0;
    for (int i = 0; i < h->d.n_layer && slides && bases && h->ropes; i++) {
        slides[i] = nn_config_has(c, "attention.sliding_window_pattern", "layer_types") ? list[i] : i % 4 != 0;
        bases[i] = nn_config_real_at(c, "layer_rope_theta", i, 0);
        h->ropes[i] = own ? layer_rope(c, h, &plain, bases, i) : plain;
    }
    if (own) nn_config_unsaid(c, "layer_rope_theta");
    h->slides = slides;
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_vec(b, &w->sinks, "attn_sinks", "self_attn.sinks", d->n_head, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (h->n_expert == 0) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, d->n_ff);
        return;
    }
    nn_bind_ffn_experts(b, &w->ffn, "block_sparse_moe", n, d->n_ff, h->n_expert, NN_OPTIONAL);
    if (h->n_ff_shared) nn_bind_ffn_shared(b, &w->ffn, "shared_mlp", n, h->n_ff_shared);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const nn_ends    *tw = net->top;
    const nn_moe_spec how = { .n_expert = h->n_expert, .n_used = h->n_used, .renorm = true, .glu.act = NN_ACT_SILU };
    nn_buf            x = nn_embed(t, tw->embd, h->by.embd);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_attn_spec a = nn_attn_plain(d, h->slides[i] ? h->window : 0);
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        a.scale = h->by.attn;
        a.sinks = w->sinks;
        n = nn_attend(t, i, n, &w->attn, &h->ropes[i], a, d->eps);
        nn_add_scaled(t, x, nn_project(t, n, w->attn.o), h->by.residual);
        nn_add_scaled(t, x, nn_ffn_apply(t, nn_rms_norm(t, x, w->ffn_norm, d->eps), &w->ffn, how), h->by.residual);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f / h->by.logit, 0.0f);
}

const nn_arch models_granite_swa = { NN_DECODER, .names = NN_NAMES("granite_swa"), .tied = NN_NAMES("granite_swa"),
                                     .permuted_qk = true };
const nn_arch models_granite_moe_swa = { NN_DECODER, .hf_only = true, .names = NN_NAMES("granitemoe_swa"),
                                         .permuted_qk = true };
