/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Projectors of families that see a picture in tiles: those of a square of patches come side by side.
 *
 *     InternVL         a norm and two layers
 *     Aya Vision       a norm, a gated layer and a matrix
 *     Command A Vision the same without a norm
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims     d; /* the tower's */
    bool        norm, gated;
    int         n_in, n_mid, n_out; /* widths */
    float       eps;
    nn_act_kind act;
} hparams;

typedef struct top {
    nn_norm   norm;
    nn_linear gate, first, second;
} top;

typedef char layer;

static const nn_key keys[] = { { 0 } };

/* The vision room says how many patches a square has, since files say it in several ways. */
static void read_widths(nn_config *c, hparams *h) {
    int64_t side = nn_config_int(c, "projector.scale_factor", NULL, 2);
    int64_t out =
        nn_config_outer_int(c, "projection_dim", "text_config.hidden_size|llm_config.hidden_size", NN_REQUIRED_INT);
    if (side < 1 || side > 16 || h->d.n_embd < 1 || h->d.n_embd > 1 << 16 || out < 1 || out > 1 << 20) {
        nn_config_fail(c, "a projector from %lld x %lld rows of %d to %lld", (long long)side, (long long)side,
                       h->d.n_embd, (long long)out);
        return;
    }
    h->n_in = (int)(side * side) * h->d.n_embd;
    h->n_mid = h->n_out = (int)out;
}

static void setup_internvl(nn_config *c, void *p) {
    hparams *h = p;
    h->norm = true;
    h->eps = 1e-5f;
    (void)nn_config_bool(c, NULL, "use_qk_norm", false); /* the tower's */
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    read_widths(c, h);
}

static void setup_gated(nn_config *c, hparams *h, int64_t dflt) {
    h->gated = true;
    h->act = NN_ACT_SILU;
    read_widths(c, h);
    int64_t mid = nn_config_outer_int(c, NULL, "alignment_intermediate_size", dflt ? dflt : h->n_out);
    if (mid < 2 || mid > 1 << 20 || mid % 2)
        nn_config_fail(c, "alignment_intermediate_size is %lld", (long long)mid);
    else
        h->n_mid = (int)(mid / 2);
}

static void setup_aya(nn_config *c, void *p) {
    hparams *h = p;
    h->norm = true;
    h->eps = (float)nn_config_outer_real(c, NULL, "adapter_layer_norm_eps", 1e-6);
    setup_gated(c, h, 0);
}

static void setup_cohere2(nn_config *c, void *p) { setup_gated(c, p, 36864); }

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    if (h->norm)
        nn_bind_norm(b, &t->norm, "mm.model.mlp.0",
                     "model.multi_modal_projector.layer_norm|model.multi_modal_projector.layernorm|model.mlp1.0",
                     h->n_in, 0);
    if (h->gated) {
        nn_bind_linear(b, &t->first, NULL, "model.multi_modal_projector.linear_1#0/2", h->n_in, h->n_mid, 0);
        nn_bind_linear(b, &t->gate, NULL, "model.multi_modal_projector.linear_1#1/2", h->n_in, h->n_mid, 0);
    } else {
        nn_bind_linear(b, &t->first, "mm.model.mlp.1", "model.multi_modal_projector.linear_1|model.mlp1.1", h->n_in,
                       h->n_mid, 0);
    }
    nn_bind_linear(b, &t->second, "mm.model.mlp.3", "model.multi_modal_projector.linear_2|model.mlp1.3", h->n_mid,
                   h->n_out, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x = nn_input(t, h->n_in);
    if (h->norm) x = nn_norm_rows(t, x, &tw->norm, h->eps);
    if (h->gated) {
        x = nn_glu(t, x, tw->gate, tw->first, h->act);
    } else {
        x = nn_project(t, x, tw->first);
        nn_act(t, x, h->act);
    }
    nn_vectors(t, nn_outputs(t, nn_project(t, x, tw->second)));
}

#define PROJECTOR(name, text, setup_fn)                                                                                \
    static const char *const names_##name[] = { text, NULL };                                                          \
    const nn_arch            models_projector_##name = { .names = names_##name,                                        \
                                                         .hf_roots = roots,                                            \
                                                         .hp_size = sizeof(hparams),                                   \
                                                         .top_size = sizeof(top),                                      \
                                                         .layer_size = sizeof(layer),                                  \
                                                         .keys = keys,                                                 \
                                                         .lacks = NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF,         \
                                                         .setup = setup_fn,                                            \
                                                         .bind_top = bind_top,                                         \
                                                         .bind_layer = nn_bind_nothing,                                \
                                                         .state = nn_state_nothing,                                    \
                                                         .forward = forward }

static const char *const roots[] = { "", "model.", NULL };
PROJECTOR(internvl, "internvl_projector", setup_internvl);
PROJECTOR(aya, "aya_vision_projector", setup_aya);
PROJECTOR(cohere2, "cohere2_vision_projector", setup_cohere2);
