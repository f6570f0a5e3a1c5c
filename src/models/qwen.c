/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 1 (fused q, k, v), Qwen 2 (biases on them) and Qwen 3 (per-head norms on q and k): pre-norm decoder with a dense
 * SwiGLU. Also the language models of Qwen 2, 2.5 and 3 VL, whose positions have three axes, all the same in text;
 * behind the first layers of Qwen 3 VL the rows of a picture get what the tower's taps saw. PaddleOCR-VL's has the
 * block of ERNIE 4.5 and turns its heads as Qwen 2 VL does.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims    d;
    bool       use_window, first;
    int        window, first_window; /* first_window: where no list says which layers slide, all from this one on */
    const int *slides;               /* per layer */
    bool       whole;                /* an embedding model: every row sees the whole input */
    int        n_deep;               /* layers behind which a picture's rows get more (Qwen 3 VL) */
    nn_rope    rope;
} hparams;

typedef nn_ends top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_BOOL(use_window, NULL, "use_sliding_window", 0),
    NN_INT(window, NULL, "sliding_window", 0),
    NN_INT(first_window, NULL, "max_window_layers", 28),
    { 0 },
};

/* Both halves of the feed-forward count in Qwen 1's width. What it does beyond its trained length does not concern us. */
static void setup_first(nn_config *c, hparams *h) {
    h->first = true;
    nn_config_known(c, "use_dynamic_ntk", "true|false");
    nn_config_known(c, "use_logn_attn", "true|false");
    h->d.n_ff /= 2;
    if (h->d.n_ff < 1) nn_config_fail(c, "the feed-forward length is too small");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    if (nn_config_arch(c, "qwen")) setup_first(c, h);
    if (nn_config_arch(c, "minicpmv"))
        nn_config_only_number(c, NULL, "version", 2.6); /* others have other models inside */
    bool paddle = nn_config_arch(c, "paddleocr_vl") || nn_config_arch(c, "paddleocr_vl_text");
    bool listed = nn_config_count(c, NULL, "layer_types") > 0;
    int *from = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *from);
    for (int i = 0; i < h->d.n_layer; i++) from[i] = h->use_window && h->window > 0 && i >= h->first_window;
    h->slides = listed && h->use_window ? nn_config_layer_is(c, NULL, "layer_types", "sliding_attention", 0) : from;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = h->first ? 10000 : paddle ? 500000 : 1000000 });
    bool sees = nn_config_arch(c, "qwen3vl") || nn_config_arch(c, "qwen3_vl") || nn_config_arch(c, "qwen3_vl_text");
    nn_rope_axes(c, &h->rope, sees);
    if (sees) h->n_deep = nn_deep_read(c, h->d.n_layer);
    h->whole = !nn_config_causal(c);
    for (int i = 0; i < h->d.n_layer && h->whole; i++) {
        if (h->slides[i]) nn_config_fail(c, "a window in a model that sees the whole input is not supported");
    }
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    (((const hparams *)p)->whole ? nn_bind_body : nn_bind_ends)(b, out, p, 0);
}

static void bind_first(nn_binder *b, layer *w, const nn_dims *d) {
    int n = d->n_embd;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "ln_1", n, 0);
    nn_bind_qkv(b, &w->attn, "attn_qkv", "attn.c_attn", d, false);
    nn_bind_linear(b, &w->attn.o, "attn_output", "attn.c_proj", d->n_head * d->head_dim, n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "ln_2", n, 0);
    nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.w2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "mlp.w1", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "mlp.c_proj", d->n_ff, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const nn_dims *d = p;
    layer         *w = out;
    (void)i;
    if (((const hparams *)p)->first) {
        bind_first(b, w, d);
        return;
    }
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", d->n_embd, 0);
    nn_bind_qkvo(b, &w->attn, d);
    nn_bind_head_norms(b, &w->attn, d->head_dim, d->head_dim, NN_OPTIONAL); /* Qwen 3 */
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", d->n_embd, 0);
    nn_bind_mlp(b, &w->mlp, d, true);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (h->whole) return nn_state_step(h->d.n_kv, h->d.head_dim);
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_attn_spec a = nn_attn_plain(d, h->slides[i] ? h->window : 0);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, a, d->eps), w->attn.o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, NN_ACT_SILU), w->mlp.down);
        if (i < h->n_deep) nn_add_supplied(t, x, i + 1);
    }
    x = nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps);
    if (h->whole)
        nn_vectors(t, x);
    else
        nn_logits(t, x, tw->head, 1.0f, 0.0f);
}

#define ACT .act = "silu|swish"
const nn_arch            models_qwen = { NN_FAMILY, .names = NN_NAMES("qwen"), .hf_layers = "model.h.", ACT };
const nn_arch            models_qwen2 = { NN_FAMILY, .names = NN_NAMES("qwen2"), ACT };
static const char *const roots_minicpmv[] = { "llm.model.", "llm.", NULL };
const nn_arch models_minicpmv = { NN_FAMILY, .hf_only = true, .names = NN_NAMES("minicpmv"), .hf_roots = roots_minicpmv,
                                  ACT };
const nn_arch models_qwen3 = { NN_FAMILY, .names = NN_NAMES("qwen3", "qwen3_asr", "qwen3_asr_text"),
                               .tied = NN_NAMES("qwen3_asr"), ACT };
const nn_arch models_qwen2vl = { NN_FAMILY,
                                 .names = NN_NAMES("qwen2vl", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl",
                                                   "qwen2_5_vl_text", "qwen25vl", "qwen2_5_omni_text"),
                                 .gguf_only = true, ACT };
const nn_arch models_qwen3vl = { NN_FAMILY, .names = NN_NAMES("qwen3vl", "qwen3_vl", "qwen3_vl_text"),
                                 .gguf_only = true, ACT };
static const char *const names_paddle[] = { "paddleocr", "paddleocr_vl", "paddleocr_vl_text", NULL };
const nn_arch models_paddleocr = { NN_FAMILY, .names = names_paddle, .tied = names_paddle, .gguf_only = true, ACT };
