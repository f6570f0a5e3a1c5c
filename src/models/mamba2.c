/* SPDX-License-Identifier: Apache-2.0 */
/* Mamba 2: no attention and no feed-forward, in every layer only the mixer that hybrid models have beside them. */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims        d;
    int            inner;
    nn_mamba2_dims m;
} hparams;

static const nn_key keys[] = {
    NN_INT(m.n_head, "ssm.time_step_rank", "num_heads", NN_REQUIRED),
    NN_INT(inner, "ssm.inner_size", NULL, 0),
    NN_INT(m.dim, NULL, "head_dim", 0),
    NN_INT(m.n_group, "ssm.group_count", "n_groups", 1),
    NN_INT(m.n_state, "ssm.state_size", "state_size", NN_REQUIRED),
    NN_INT(m.taps, "ssm.conv_kernel", "conv_kernel", 4),
    { 0 },
};

typedef struct layer {
    const nn_vec *norm;
    nn_mamba2     mamba;
} layer;

static void setup(nn_config *c, void *hp) {
    hparams *h = hp;
    nn_config_only(c, NULL, "hidden_act", "silu");
    nn_mamba2_check(c, &h->m, h->inner);
}

static void bind_layer(nn_binder *b, void *out, const void *hp, int i) {
    const hparams *h = hp;
    layer         *w = out;
    (void)i;
    nn_bind_vec(b, &w->norm, "attn_norm", "norm", h->d.n_embd, 0);
    nn_bind_mamba2(b, &w->mamba, "mixer", &h->m, h->d.n_embd, 0);
}

static nn_state state(const void *hp, int i) {
    (void)i;
    return nn_mamba2_state(&((const hparams *)hp)->m);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_ends *tw = net->top;
    nn_buf         x = nn_embed(t, tw->embd, 1);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_buf       p = nn_project(t, nn_rms_norm(t, x, w->norm, h->d.eps), w->mamba.in);
        nn_project_add(t, x, nn_mamba2_apply(t, i, p, &w->mamba, &h->m, h->d.eps), w->mamba.out);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, h->d.eps), tw->head, 1, 0);
}

const nn_arch models_mamba2 = { NN_DECODER, .act = "silu|swish", .names = NN_NAMES("mamba2"),
                                .hf_layers = "backbone.layers.", .lacks = NN_LACKS_HEADS | NN_LACKS_FF };
