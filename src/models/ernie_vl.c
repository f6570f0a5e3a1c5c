/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language model of ERNIE 4.5 VL: a mixture as ERNIE 4.5's with two sets of experts, a router each. One is for
 * text, the other for the rows of pictures and the words right around them; what all share is added to either.
 * Positions have three axes: pairs of neighbours are turned by row and column in turns, and the last ones by time.
 *
 * Both sets are run, and each row takes from the one that is for it: what a row is, a table of marks over the
 * vocabulary says, where rows that a batch supplies count as token 0 (a padding). Experts of pictures are narrow, so
 * that this is a third of the experts' work more.
 */
#include "nn/nn.h"

#include <stdio.h>

enum { N_MARKED = 5 };

typedef struct hparams {
    nn_dims d;
    int     n_expert, n_used, n_shared, n_dense;
    int     ff[2];            /* of an expert: text, pictures */
    int     marked[N_MARKED]; /* tokens that count as a picture's */
    nn_rope rope;
} hparams;

typedef struct top {
    nn_ends       ends;
    const nn_mat *marks;
} top;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_ffn        ffn, pictures; /* pictures: with a router only where there are experts */
    nn_mlp        shared;
} layer;

static const nn_key keys[] = {
    NN_INT(n_expert, NULL, "moe_num_experts|num_experts", 64),
    NN_INT(n_used, NULL, "moe_k|num_experts_per_tok", 6),
    NN_INT(n_shared, NULL, "moe_num_shared_experts", 2),
    { 0 },
};

/* -1 where it is none. */
static int count_at(nn_config *c, const char *field, int i, int dflt) {
    double x = nn_config_real_at(c, field, i, dflt);
    return x >= 0 && x <= 1 << 20 && x == (int)x ? (int)x : -1;
}

static void read_axes(nn_config *c, hparams *h) {
    const int pairs = h->rope.n_rot / 2, each = pairs * 11 / 32, usual[] = { each, each, pairs - 2 * each };
    int       has[3];
    uint8_t  *axis = nn_config_alloc(c, (size_t)(pairs > 0 ? pairs : 1), sizeof *axis);
    for (int i = 0; i < 3; i++)
        has[i] = count_at(c, "rope_parameters.mrope_section|rope_scaling.mrope_section", i, usual[i]);
    if (has[0] < 0 || has[0] != has[1] || has[2] < 0 || has[0] > pairs || has[2] > pairs ||
        2 * has[0] + has[2] != pairs) {
        nn_config_fail(c, "rotary sections of %d, %d and %d for %d pairs", has[0], has[1], has[2], pairs);
        return;
    }
    for (int i = 0; axis && i < pairs; i++) axis[i] = (uint8_t)(i < 2 * has[0] ? 1 + i % 2 : 0);
    h->rope.axis_of = axis;
}

static void setup(nn_config *c, void *p) {
    static const struct {
        const char *field;
        int         usual;
    } around[] = { { "image_start_token_id", 101304 },
                   { "image_end_token_id", 101305 },
                   { "video_start_token_id", 101306 },
                   { "video_end_token_id", 101307 } };
    static const int usual[] = { 1536, 512 };
    hparams         *h = p;
    for (int i = 0; i < 2; i++) h->ff[i] = count_at(c, "moe_intermediate_size", i, usual[i]);
    for (int i = 1; i < N_MARKED; i++) {
        int64_t id = nn_config_int(c, NULL, around[i - 1].field, around[i - 1].usual);
        h->marked[i] = id >= 0 && id < h->d.n_vocab ? (int)id : 0;
    }
    h->n_dense = nn_config_leading(c, NULL, NULL, 1, "mlp_layer_types", "dense");
    if (h->n_expert < 1 || h->n_expert > 1 << 16 || h->n_used < 1 || h->n_used > h->n_expert || h->n_shared < 0 ||
        h->n_shared > 1024 || h->ff[0] < 1 || h->ff[0] > 1 << 20 || h->ff[1] < 1 || h->ff[1] > 1 << 20) {
        nn_config_fail(c, "%d of %d experts of widths %d and %d, %d shared: that makes no sense", h->n_used,
                       h->n_expert, h->ff[0], h->ff[1], h->n_shared);
        return;
    }
    nn_config_unsaid(c, "moe_intermediate_size");
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ .base = 500000, .interleaved = true });
    read_axes(c, h);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    nn_bind_ends(b, &t->ends, &h->d, 0);
    nn_bind_marks(b, &t->marks, h->d.n_vocab, h->marked, N_MARKED);
}

/* Files number the experts for pictures behind those for text. No GGUF names are published: these are ours. */
static void bind_experts(nn_binder *b, nn_ffn *w, const hparams *h, int set) {
    static const char *const parts[] = { "gate", "up", "down" }, *const ours[] = { "", "_pictures" };
    const int n = h->d.n_embd;
    char      hf[3][64], own[5][64], bias[80];
    for (int i = 0; i < 3; i++) {
        snprintf(hf[i], sizeof hf[i], "mlp.experts.*+%d.%s_proj", set * h->n_expert, parts[i]);
        snprintf(own[i], sizeof own[i], "ffn_%s_exps%s", parts[i], ours[set]);
    }
    snprintf(own[3], sizeof own[3], "ffn_gate_inp%s", ours[set]);
    snprintf(own[4], sizeof own[4], "exp_probs_b%s.bias", ours[set]);
    snprintf(bias, sizeof bias, "mlp.moe_statics.e_score_correction_bias#%d/2", set);
    nn_bind_linear(b, &w->router, own[3], set ? "mlp.gate.weight_1^" : "mlp.gate.weight^", n, h->n_expert, NN_NO_BIAS);
    nn_bind_vec(b, &w->route_bias, own[4], bias, h->n_expert, 0);
    nn_bind_experts(b, &w->gate, own[0], hf[0], h->n_expert, n, h->ff[set], NN_NO_BIAS);
    nn_bind_experts(b, &w->up, own[1], hf[1], h->n_expert, n, h->ff[set], NN_NO_BIAS);
    nn_bind_experts(b, &w->down, own[2], hf[2], h->n_expert, h->ff[set], n, NN_NO_BIAS);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, shared = (int64_t)h->ff[0] * h->n_shared;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    nn_bind_qkvo(b, &w->attn, &h->d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    if (i < h->n_dense) {
        nn_bind_ffn(b, &w->ffn, "mlp", n, h->d.n_ff);
        return;
    }
    bind_experts(b, &w->ffn, h, 0);
    bind_experts(b, &w->pictures, h, 1);
    if (!shared) return;
    nn_bind_linear(b, &w->shared.gate, "ffn_gate_shexp", "mlp.shared_experts.gate_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared.up, "ffn_up_shexp", "mlp.shared_experts.up_proj", n, shared, 0);
    nn_bind_linear(b, &w->shared.down, "ffn_down_shexp", "mlp.shared_experts.down_proj", shared, n, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams    *h = net->hp;
    const nn_dims    *d = &h->d;
    const top        *tw = net->top;
    const layer      *lw = net->layers;
    const nn_moe_spec how = {
        .n_expert = h->n_expert, .n_used = h->n_used, .renorm = true, .renorm_eps = 1e-20f, .glu.act = NN_ACT_SILU
    };

    nn_buf x = nn_embed(t, tw->ends.embd, 1.0f), mark = nn_embed_tokens(t, tw->marks, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_buf y = nn_ffn_apply(t, n, &w->ffn, how);
        if (i >= h->n_dense) {
            nn_buf other = nn_ffn_apply(t, n, &w->pictures, how);
            nn_add_scaled(t, other, y, -1.0f);
            nn_add_by(t, y, other, mark, 0);
        }
        nn_add(t, x, y);
        if (w->shared.gate.w) nn_project_add(t, x, nn_feed(t, n, &w->shared, NN_ACT_SILU), w->shared.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->ends.norm, d->eps), tw->ends.head, 1.0f, 0.0f);
}

static const char *const names[] = { "ernie4_5_vl_moe", "ernie4_5_vl_moe_text", NULL };
const nn_arch            models_ernie_vl = {
               NN_PARTS,        .top_size = sizeof(top), .bind_top = bind_top, .state = nn_state_plain,
               .hf_only = true, .names = names,          .tied = names,        .act = "silu|swish"
};
