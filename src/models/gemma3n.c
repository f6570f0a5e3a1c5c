/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 3n (text): several streams of hidden states, of which each layer works on the first. Before a layer every stream
 * is predicted from all of them (AltUp); behind it all are corrected by what the layer changed in its own. A low-rank
 * bypass stands beside attention (LAuReL), every layer has an input of its own per token, the first layers keep only
 * what stands out in their feed-forward's gate, and the last ones read the keys of earlier layers.
 */
#include "nn/nn.h"

#include <math.h>

enum { MAX_STREAMS = 8 };

typedef struct hparams {
    nn_dims      d;
    int          n_words; /* of the table of embeddings, those of pictures and sounds too */
    int          window, n_kv_shared, per_layer, streams, active, rank;
    bool         scales;
    float        cap;
    const int   *slides, *ff; /* per layer */
    const float *cuts;        /* per layer: deviations above the mean; NULL or not above -1e3: everything stays */
    nn_rope      rope[2];     /* full, windowed */
} hparams;

typedef struct top {
    nn_ends       ends;
    const nn_mat *layer_embd;
    nn_linear     layer_proj, ins, outs;
    nn_mat        in[MAX_STREAMS], out[MAX_STREAMS]; /* of the stacks, for all streams but the first */
    const nn_vec *layer_norm;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *attn_post, *ffn_norm, *ffn_post, *laurel_norm, *layer_norm, *route_norm, *scale;
    nn_heads      attn;
    nn_ffn        ffn;
    nn_linear     left, right, predict, correct, route, layer_gate, layer_proj;
} layer;

static const nn_key keys[] = {
    NN_INT(window, "attention.sliding_window", "sliding_window", 512),
    NN_INT(n_kv_shared, "attention.shared_kv_layers", "num_kv_shared_layers", -1),
    NN_INT(per_layer, "embedding_length_per_layer_input", "hidden_size_per_layer_input", 256),
    NN_INT(streams, "altup.num_inputs", "altup_num_inputs", 4),
    NN_INT(active, "altup.active_idx", "altup_active_idx", 0),
    NN_INT(rank, "laurel_rank", "laurel_rank", 64),
    NN_BOOL(scales, NULL, "altup_correct_scale", 1),
    NN_FLOAT(cap, "final_logit_softcapping", "final_logit_softcapping", 0),
    { 0 },
};

/* The deviations above the mean below which this share of a normal distribution lies. */
static double quantile(double share) {
    double lo = -12, hi = 12;
    for (int i = 0; i < 100; i++) {
        double mid = (lo + hi) / 2;
        if (0.5 * erfc(-mid / sqrt(2.0)) < share)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void read_cuts(nn_config *c, hparams *h) {
    float *cuts = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *cuts);
    for (int i = 0; i < h->d.n_layer; i++) {
        double dflt = h->d.n_layer > 10 && i < 10 ? 0.95 : 0;
        double share = nn_config_count(c, NULL, "activation_sparsity_pattern")
                           ? nn_config_real_at(c, "activation_sparsity_pattern", i, 0)
                           : dflt;
        if (nn_config_gguf(c)) {
            cuts[i] = (float)nn_config_real_of(c, "activation_sparsity_scale", NULL, i, -INFINITY);
            continue;
        }
        if (!(share >= 0 && share < 1))
            nn_config_fail(c, "the field \"activation_sparsity_pattern\" has %g for layer %d", share, i);
        cuts[i] = share > 0 ? (float)quantile(share) : -INFINITY;
    }
    nn_config_unsaid(c, "activation_sparsity_pattern");
    h->cuts = cuts;
}

/* Words for pictures and sounds stand behind those of texts in the table. They have no input per layer, and rows come in their
 * places: nobody asks for them. */
static void read_words(nn_config *c, hparams *h) {
    int64_t n = nn_config_int(c, NULL, "vocab_size_per_layer_input", h->d.n_vocab);
    if (n < 1) nn_config_fail(c, "vocab_size_per_layer_input is %lld", (long long)n);
    h->n_words = h->d.n_vocab;
    if (n < h->n_words) h->d.n_vocab = (int)n;
}

static void bind_ends(nn_binder *b, nn_ends *w, const hparams *h) {
    nn_linear texts;
    if (h->n_words == h->d.n_vocab) {
        nn_bind_ends(b, w, &h->d, 0);
        return;
    }
    nn_bind_rows(b, &texts, "token_embd", "model.embed_tokens", h->d.n_embd, h->d.n_vocab, 0, h->n_words, NN_NO_BIAS);
    nn_bind_vec(b, &w->norm, "output_norm", "model.norm", h->d.n_embd, 0);
    w->embd = texts.w;
    if (!nn_bind_exists(b, "output", "lm_head")) {
        nn_bind_head(b, &w->head, w->embd, h->d.n_embd, h->d.n_vocab);
        return;
    }
    nn_bind_rows(b, &w->head, "output", "lm_head", h->d.n_embd, h->d.n_vocab, 0, h->n_words, NN_NO_BIAS);
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    read_words(c, h);
    nn_config_only(c, NULL, "hidden_activation", "gelu_pytorch_tanh");
    h->slides = nn_config_layer_is(c, "attention.sliding_window_pattern", "layer_types", "sliding_attention", 5);
    h->ff = nn_config_layer_ints(c, "feed_forward_length", "intermediate_size", h->d.n_ff);
    if (h->n_kv_shared == -1) h->n_kv_shared = nn_config_gguf(c) ? 0 : 15;
    read_cuts(c, h);
    bool ok = h->window > 0 && h->n_kv_shared >= 0 && h->n_kv_shared < h->d.n_layer && h->per_layer > 0 &&
              h->per_layer <= 65536 && h->rank > 0 && h->rank <= 65536 && h->streams >= 1 && h->streams <= MAX_STREAMS;
    for (int i = 0; i < h->d.n_layer; i++) ok = ok && h->ff[i] > 0;
    if (!ok || h->active != 0)
        nn_config_fail(c, "%d streams (the %dth is active), %d of %d layers share keys, %d inputs per layer, rank %d",
                       h->streams, h->active, h->n_kv_shared, h->d.n_layer, h->per_layer, h->rank);
    h->rope[0] = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 1000000, .layer_type = "full_attention" });
    h->rope[1] = nn_rope_read(c, &h->d,
                              (nn_rope_want){ .base = 10000,
                                              .layer_type = "sliding_attention",
                                              .gguf_base = "rope.freq_base_swa",
                                              .hf_base = "rope_local_base_freq",
                                              .unscaled = true });
}

/* The layer whose keys layer i reads. */
static int kv_layer(const hparams *h, int i) {
    int own = h->d.n_layer - h->n_kv_shared;
    for (int j = own - 1; i >= own && j >= 0; j--) {
        if (h->slides[j] == h->slides[i]) return j;
    }
    return i;
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    int            wide = h->d.n_layer * h->per_layer, n = h->d.n_embd;
    bind_ends(b, &t->ends, h);
    nn_bind_mat(b, &t->layer_embd, "per_layer_token_embd", "model.embed_tokens_per_layer", wide, h->d.n_vocab,
                NN_AT_LEAST);
    nn_bind_linear(b, &t->layer_proj, "per_layer_model_proj", "model.per_layer_model_projection", n, wide, 0);
    nn_bind_vec(b, &t->layer_norm, "per_layer_proj_norm", "model.per_layer_projection_norm", h->per_layer, 0);
    if (h->streams == 1) return;
    nn_bind_experts(b, &t->ins, "altup_proj", "model.altup_projections.*", h->streams - 1, n, n, NN_NO_BIAS);
    nn_bind_experts(b, &t->outs, "altup_unembd_proj", "model.altup_unembed_projections.*", h->streams - 1, n, n,
                    NN_NO_BIAS);
    for (int i = 1; i < h->streams && t->ins.w && t->outs.w; i++) {
        t->in[i] = nn_mat_of(t->ins.w, i - 1);
        t->out[i] = nn_mat_of(t->outs.w, i - 1);
    }
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim, s = h->streams;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_linear(b, &w->attn.q, "attn_q", "self_attn.q_proj", n, q, 0);
    nn_bind_vec(b, &w->attn.q_norm, "attn_q_norm", "self_attn.q_norm", d->head_dim, 0);
    if (kv_layer(h, i) == i) {
        nn_bind_linear(b, &w->attn.k, "attn_k", "self_attn.k_proj", n, kv, 0);
        nn_bind_linear(b, &w->attn.v, "attn_v", "self_attn.v_proj", n, kv, 0);
        nn_bind_vec(b, &w->attn.k_norm, "attn_k_norm", "self_attn.k_norm", d->head_dim, 0);
    }
    nn_bind_linear(b, &w->attn.o, "attn_output", "self_attn.o_proj", q, n, 0);
    nn_bind_vec(b, &w->attn_post, "post_attention_norm", "post_attention_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "pre_feedforward_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_post, "post_ffw_norm", "post_feedforward_layernorm", n, 0);
    nn_bind_ffn(b, &w->ffn, "mlp", n, h->ff[i]);
    nn_bind_linear(b, &w->left, "laurel_l", "laurel.linear_left", n, h->rank, 0);
    nn_bind_linear(b, &w->right, "laurel_r", "laurel.linear_right", h->rank, n, 0);
    nn_bind_vec(b, &w->laurel_norm, "laurel_post_norm", "laurel.post_laurel_norm", n, 0);
    nn_bind_linear(b, &w->route, "altup_router", "altup.modality_router", n, s, 0);
    nn_bind_vec(b, &w->route_norm, "altup_router_norm", "altup.router_norm", n, 0);
    nn_bind_linear(b, &w->predict, "altup_predict_coef", "altup.prediction_coefs", s, s * s, 0);
    nn_bind_linear(b, &w->correct, "altup_correct_coef", "altup.correction_coefs", s, s, 0);
    if (h->scales) nn_bind_vec(b, &w->scale, "altup_correct_scale", "altup.correct_output_scale", n, 0);
    nn_bind_linear(b, &w->layer_gate, "inp_gate", "per_layer_input_gate", n, h->per_layer, 0);
    nn_bind_linear(b, &w->layer_proj, "proj", "per_layer_projection", h->per_layer, n, 0);
    nn_bind_vec(b, &w->layer_norm, "post_norm", "post_per_layer_input_norm", n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    if (kv_layer(h, i) != i) return (nn_state){ .kind = NN_STATE_NONE };
    return nn_state_kv(h->d.n_kv, h->d.head_dim, h->slides[i] ? h->window : 0);
}

static nn_buf attend(nn_tape *t, nn_buf n, const hparams *h, const nn_heads *w, int i) {
    int          dim = h->d.head_dim, from = kv_layer(h, i);
    nn_attn_spec a = {
        .n_head = h->d.n_head, .n_kv = h->d.n_kv, .dim_k = dim, .window = h->slides[i] ? h->window : 0, .scale = 1.0f
    };
    nn_buf q = nn_rms_norm(t, nn_project(t, n, w->q), w->q_norm, h->d.eps);
    nn_rope_apply(t, q, dim, &h->rope[h->slides[i]]);
    if (from == i) {
        nn_buf k = nn_rms_norm(t, nn_project(t, n, w->k), w->k_norm, h->d.eps);
        nn_rope_apply(t, k, dim, &h->rope[h->slides[i]]);
        nn_kv_store(t, i, k, nn_rms_norm_groups(t, nn_project(t, n, w->v), dim, NULL, h->d.eps));
    }
    return nn_project(t, nn_attention(t, from, q, a), w->o);
}

static nn_buf feed_forward(nn_tape *t, nn_buf n, const hparams *h, const nn_ffn *w, int i) {
    nn_buf gate = nn_project(t, n, w->gate), up = nn_project(t, n, w->up);
    if (h->cuts[i] > -1e3f) nn_sparsify(t, gate, h->cuts[i]);
    nn_gate(t, up, gate, NN_ACT_GELU_TANH);
    return nn_project(t, up, w->down);
}

static nn_buf copy(nn_tape *t, nn_buf x, const hparams *h) { return nn_take(t, x, 0, h->d.n_embd); }

static nn_buf modalities(nn_tape *t, nn_buf x, const hparams *h, const layer *w) {
    nn_buf r = nn_rms_norm(t, x, w->route_norm, h->d.eps);
    nn_scale(t, r, 1.0f / (float)h->d.n_embd);
    r = nn_project(t, r, w->route);
    nn_act(t, r, NN_ACT_TANH);
    return r;
}

/* What the layer makes of its own stream. */
static nn_buf activate(nn_tape *t, nn_buf x, const hparams *h, const layer *w, int i) {
    float  eps = h->d.eps;
    nn_buf n = nn_rms_norm(t, x, w->attn_norm, eps), y = copy(t, x, h);
    nn_add(t, y, nn_rms_norm(t, attend(t, n, h, &w->attn, i), w->attn_post, eps));
    nn_add(t, y, nn_rms_norm(t, nn_project(t, nn_project(t, n, w->left), w->right), w->laurel_norm, eps));
    nn_add(t, y, n);
    nn_scale(t, y, sqrtf(0.5f));
    nn_add(t, y, nn_rms_norm(t, feed_forward(t, nn_rms_norm(t, y, w->ffn_norm, eps), h, &w->ffn, i), w->ffn_post, eps));
    return y;
}

static void run_layer(nn_tape *t, nn_buf x[], nn_buf inputs, const hparams *h, const layer *w, int i) {
    nn_buf coefs = nn_project(t, modalities(t, x[0], h, w), w->predict), p[MAX_STREAMS];
    for (int s = 0; s < h->streams; s++) {
        p[s] = copy(t, x[s], h);
        for (int j = 0; j < h->streams; j++) nn_add_by(t, p[s], x[j], coefs, s * h->streams + j);
    }
    nn_buf y = activate(t, p[0], h, w, i);
    coefs = nn_project(t, modalities(t, y, h, w), w->correct);
    nn_add_scaled(t, y, p[0], -1.0f); /* what changed */
    for (int s = 0; s < h->streams; s++) {
        nn_add_by(t, p[s], y, coefs, s);
        nn_add(t, p[s], y);
        x[s] = p[s];
    }
    nn_buf first = copy(t, x[0], h), own = nn_take(t, inputs, i * h->per_layer, h->per_layer);
    if (w->scale) nn_scale_each(t, first, w->scale);
    nn_gate(t, own, nn_project(t, first, w->layer_gate), NN_ACT_GELU_TANH);
    own = nn_rms_norm(t, nn_project(t, own, w->layer_proj), w->layer_norm, h->d.eps);
    for (int s = 1; s < h->streams; s++) nn_add(t, x[s], own);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x[MAX_STREAMS] = { nn_embed(t, tw->ends.embd, sqrtf((float)h->d.n_embd)) };
    nn_buf         token = nn_embed_tokens(t, tw->layer_embd, sqrtf((float)h->per_layer)),
           inputs = nn_project(t, x[0], tw->layer_proj);
    nn_scale(t, inputs, 1.0f / sqrtf((float)h->d.n_embd));
    inputs = nn_rms_norm(t, inputs, tw->layer_norm, h->d.eps);
    nn_add(t, inputs, token);
    nn_scale(t, inputs, sqrtf(0.5f));
    for (int s = 1; s < h->streams; s++) {
        x[s] = nn_project(t, x[0], (nn_linear){ &tw->in[s], NULL });
        nn_match_size(t, x[s], x[0], 1e-5f);
    }
    for (int i = 0; i < h->d.n_layer; i++) run_layer(t, x, inputs, h, (const layer *)net->layers + i, i);
    nn_buf sum = copy(t, x[0], h);
    for (int s = 1; s < h->streams; s++) {
        nn_buf y = nn_project(t, x[s], (nn_linear){ &tw->out[s], NULL });
        nn_match_size(t, y, x[0], 1e-5f);
        nn_add(t, sum, y);
    }
    nn_scale(t, sum, 1.0f / (float)h->streams);
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, sum), tw->ends.norm, h->d.eps), tw->ends.head, 1.0f, h->cap);
}

static const char *const names[] = { "gemma3n", "gemma3n_text", NULL };
const nn_arch            models_gemma3n = { NN_FAMILY, .names = names, .tied = names };
