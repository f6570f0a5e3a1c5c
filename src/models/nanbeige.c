/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nanbeige 4.2: the Llama block, and all layers run several times with the same weights and keys of their own. The last
 * norm stands between the rounds, too.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims d;
    int     rounds, n_own; /* layers that the file has */
    bool    bare;          /* no norm between the rounds */
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_mlp        mlp;
} layer;

static const nn_key keys[] = {
    NN_INT(rounds, "num_loops", "num_loops", 1),
    NN_BOOL(bare, "skip_loop_final_norm", "skip_loop_final_norm", 0),
    { 0 },
};

static void setup(nn_config *c, void *p) {
    static const char *const others[] = {
        "enable_double_loop_split", "loop_share_kv", "enable_hyper_connection", "enable_mhc", "enable_depth_attention",
        "ngram_insert_all_layers",  "qk_layernorm",
    };
    hparams *h = p;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) nn_config_known(c, others[i], "false");
    nn_config_known(c, "emb_neighbor_num", "0");
    nn_config_known(c, "loop_middle_layers", "false");
    nn_config_known(c, "insert_ngram_layer_idx", "false");
    h->n_own = h->d.n_layer;
    if (h->rounds < 1 || h->rounds > 64 || h->n_own > 4096 / h->rounds) {
        nn_config_fail(c, "%d layers that run %d times make no sense", h->n_own, h->rounds);
        return;
    }
    h->d.n_layer = h->n_own * h->rounds;
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    if (i >= h->n_own) return;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", h->d.n_embd, 0);
    nn_bind_qkvo(b, &w->attn, &h->d);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", h->d.n_embd, 0);
    nn_bind_mlp(b, &w->mlp, &h->d, true);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const nn_ends *tw = net->top;
    const layer   *lw = net->layers;

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i % h->n_own];
        if (i > 0 && i % h->n_own == 0 && !h->bare) x = nn_rms_norm(t, x, tw->norm, d->eps);
        nn_buf n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_project_add(t, x, nn_attend(t, i, n, &w->attn, &h->rope, nn_attn_plain(d, 0), d->eps), w->attn.o);
        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        nn_project_add(t, x, nn_feed(t, n, &w->mlp, NN_ACT_SILU), w->mlp.down);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

const nn_arch models_nanbeige = { NN_PLAIN, .names = NN_NAMES("nanbeige"), .permuted_qk = true, .act = "silu|swish" };
