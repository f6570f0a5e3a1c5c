/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Llama's kin: the same block (RMS norm, grouped queries, feed-forward) with something changed.
 *
 *   Seed-OSS, Pangu      biases on q, k, v; Pangu on the output, too
 *   Ministral, CWM       windows in some layers
 *   ERNIE 4.5, Helium    interleaved rotation
 *   Arcee                squared ReLU, no gate
 *   HunYuan (dense, VL)  per-head norms behind the rotation; its dynamic rule is a larger base. Positions of VL have four axes
 *   EXAONE 3, InternLM 2, Baichuan: other names and fused projections; Baichuan 13B has ALiBi instead of rotation
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims      d;
    int          window;
    bool         gated, grouped, head_norms, late_name; /* late_name: GGUF calls the second norm post_attention_norm */
    const int   *slides;
    const float *alibi;
    nn_act_kind  act;
    nn_rope      rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm, *q_norm, *k_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 0),
    { 0 },
};

/* Neither kind of file says that 13B has ALiBi: its config.json has no max_position_embeddings, and it has 40 layers. */
static void setup_baichuan(nn_config *c, hparams *h) {
    bool big = nn_config_gguf(c) ? h->d.n_layer == 40 : !nn_config_has(c, NULL, "max_position_embeddings");
    if (h->d.n_vocab == 125696) nn_config_fail(c, "Baichuan 2 normalises its head (NormHead); this is not supported");
    if (big) h->alibi = nn_alibi_slopes(c, h->d.n_head, 8);
    if (big) nn_config_unsaid(c, "ALiBi");
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     pairs = nn_config_arch(c, "ernie4_5") || nn_config_arch(c, "helium");
    bool     sees = nn_config_arch(c, "hunyuan_vl") || nn_config_arch(c, "hunyuan_vl_text");
    bool     hunyuan = sees || nn_config_arch(c, "hunyuan_v1_dense") || nn_config_arch(c, "hunyuan-dense");
    bool     arcee = nn_config_arch(c, "arcee");
    h->grouped = nn_config_arch(c, "internlm2");
    h->gated = !arcee;
    h->late_name = nn_config_arch(c, "seed_oss");
    h->head_norms = hunyuan;
    if (hunyuan) nn_config_known(c, "use_qk_norm", "true");
    h->act = nn_config_act(c, NULL, "hidden_act|activation_function", arcee ? NN_ACT_RELU2 : NN_ACT_SILU);
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 0);
    if (!nn_config_arch(c, "cwm") && !nn_config_arch(c, "ministral")) h->window = 0;
    if (nn_config_arch(c, "baichuan")) setup_baichuan(c, h);
    h->rope = nn_rope_read(c, &h->d,
                           (nn_rope_want){ .interleaved = pairs,
                                           .alpha = sees,
                                           .base = pairs                      ? 500000
                                                   : nn_config_arch(c, "cwm") ? 1000000
                                                                              : 10000 });
    if (!sees) return;
    nn_rope_axes_counted(c, &h->rope);
    if (!nn_config_gguf(c) && !h->rope.axis_of) nn_config_fail(c, "rope_parameters.mrope_section is missing");
    nn_config_known(c, "num_experts", "0|1");
    nn_config_known(c, "routed_scaling_factor", "1|false");
    nn_config_known(c, "norm_type", "rms|hf_rms");
    nn_config_known(c, "use_cla", "false");
}

static void bind_attention(nn_binder *b, nn_heads *w, const hparams *h) {
    const nn_dims *d = &h->d;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, per = d->n_head / d->n_kv;
    int            dim = d->head_dim, part = (per + 2) * dim;
    if (h->grouped) {
        nn_bind_runs(b, &w->q, "attn_q", "attention.wqkv", n, d->n_kv, part, &(nn_run){ 0, per * dim }, 1);
        nn_bind_runs(b, &w->k, "attn_k", "attention.wqkv", n, d->n_kv, part, &(nn_run){ per * dim, dim }, 1);
        nn_bind_runs(b, &w->v, "attn_v", "attention.wqkv", n, d->n_kv, part, &(nn_run){ (per + 1) * dim, dim }, 1);
    } else {
        unsigned turned = h->alibi ? 0 : NN_ROTARY;
        nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj|attn.attention.q_proj|self_attn.W_pack#0/3", n, q, turned);
        nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj|attn.attention.k_proj|self_attn.W_pack#1/3", n, kv,
                       turned);
        nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj|attn.attention.v_proj|self_attn.W_pack#2/3", n, kv, 0);
    }
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj|attn.attention.out_proj|attention.wo", q, n, 0);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm|attention_norm|ln_1", n, 0);
    bind_attention(b, &w->attn, h);
    if (h->head_norms) {
        nn_bind_vec(b, &w->q_norm, "attn_q_norm", "self_attn.query_layernorm", d->head_dim, 0);
        nn_bind_vec(b, &w->k_norm, "attn_k_norm", "self_attn.key_layernorm", d->head_dim, 0);
    }
    nn_bind_vec(b, &w->ffn_norm, h->late_name ? "post_attention_norm" : "ffn_norm",
                "post_attention_layernorm|ffn_norm|ln_2", n, 0);
    if (h->gated)
        nn_bind_linear(b, &w->mlp.gate, "ffn_gate", "mlp.gate_proj|feed_forward.w1|mlp.c_fc_0", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.up, "ffn_up", "mlp.up_proj|feed_forward.w3|mlp.c_fc_1", n, d->n_ff, 0);
    nn_bind_linear(b, &w->mlp.down, "ffn_down", "mlp.down_proj|feed_forward.w2|mlp.c_proj", d->n_ff, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static nn_buf head(nn_tape *t, nn_buf x, const hparams *h, const nn_vec *norm) {
    if (!h->alibi) nn_rope_apply(t, x, h->d.head_dim, &h->rope);
    return norm ? nn_rms_norm(t, x, norm, h->d.eps) : x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_attn_spec a = nn_attn_plain(d, h->slides[i] ? h->window : 0);
        a.alibi = h->alibi;
        nn_buf n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf q = head(t, nn_project(t, n, w->attn.q), h, w->q_norm);
        nn_buf k = head(t, nn_project(t, n, w->attn.k), h, w->k_norm);
        nn_kv_store(t, i, k, nn_project(t, n, w->attn.v));
        nn_project_add(t, x, nn_attention(t, i, q, a), w->attn.o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, h->act), w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

#define KIN(x, ...)                                                                                                    \
    static const char *const names_##x[] = { __VA_ARGS__, NULL };                                                      \
    const nn_arch            models_##x = { NN_DECODER, .names = names_##x, KIN_MORE }
#define KIN_MORE .permuted_qk = false
KIN(seed_oss, "seed_oss");
#undef KIN_MORE
#define KIN_MORE .hf_only = true
KIN(ministral, "ministral");
KIN(cwm, "cwm");
KIN(helium, "helium");
#undef KIN_MORE
#define KIN_MORE .gguf_only = true
KIN(hunyuan_dense, "hunyuan-dense", "hunyuan_v1_dense");
KIN(pangu, "pangu-embedded", "PanguEmbedded");
#undef KIN_MORE
#define KIN_MORE .tied = names_hunyuan_vl
KIN(hunyuan_vl, "hunyuan_vl", "hunyuan_vl_text");
#undef KIN_MORE
#define KIN_MORE .tied = names_ernie4_5
KIN(ernie4_5, "ernie4_5");
#undef KIN_MORE
#define KIN_MORE .hf_layers = "model.h."
KIN(exaone, "exaone");
#undef KIN_MORE
#define KIN_MORE .permuted_qk = true
KIN(arcee, "arcee");
KIN(baichuan, "baichuan");
#undef KIN_MORE
#define KIN_MORE .permuted_qk = true, .reordered = true
KIN(internlm2, "internlm2");
