/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zamba 2: layers of Mamba 2. In front of some of them stands a transformer block that reads the row and its embedding
 * side by side, and whose result is added to what the scan reads, not to the row. There are only one or two such blocks,
 * which take turns; each use has small matrices of its own beside the shared ones.
 */
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>

enum { MAX_BLOCKS = 8, MAX_USES = 64, NAME = 200 };

typedef struct hparams {
    nn_dims        d;
    nn_mamba2_dims m;
    int            expand, rank, n_block, n_use;
    float          dt_min;
    bool           adapts, rotates; /* the attention has matrices of its own per use, too */
    nn_act_kind    act;
    const int     *use;  /* per layer: which use of a block stands in front of it; -1: none */
    const int     *home; /* [n_block]: the layer under which a block's tensors stand */
    nn_rope        rope;
} hparams;

/* What the uses of a block share. */
typedef struct block {
    const nn_vec *attn_norm, *ffn_norm;
    nn_heads      attn;
    nn_linear     gate, up, down;
} block;

/* Two small matrices, one behind the other. */
typedef struct low {
    nn_linear a, b;
} low;

typedef struct top {
    nn_ends ends;
    block   blocks[MAX_BLOCKS];
    struct use {
        low       q, k, v;
        nn_linear ff, gate, up; /* both halves of the second matrix */
    } uses[MAX_USES];
} top;

typedef struct layer {
    const nn_vec *norm;
    nn_mamba2     mamba;
    nn_linear     out; /* behind the block */
} layer;

static const nn_key keys[] = {
    NN_INT(m.n_head, NULL, "n_mamba_heads", 8),
    NN_INT(m.n_group, NULL, "mamba_ngroups", 1),
    NN_INT(m.n_state, NULL, "mamba_d_state", 64),
    NN_INT(m.taps, NULL, "mamba_d_conv", 4),
    NN_INT(expand, NULL, "mamba_expand", 2),
    NN_INT(rank, NULL, "adapter_rank", 128),
    NN_INT(n_block, NULL, "num_mem_blocks", 1),
    NN_FLOAT(dt_min, NULL, "time_step_min", 0.001),
    NN_BOOL(adapts, NULL, "use_shared_attention_adapter", 0),
    NN_BOOL(rotates, NULL, "use_mem_rope", 0),
    { 0 },
};

static void read_layers(nn_config *c, hparams *h) {
    int *use = nn_config_alloc(c, (size_t)h->d.n_layer, sizeof *use),
        *home = nn_config_alloc(c, MAX_BLOCKS, sizeof *home);
    bool named = nn_config_count(c, NULL, "layers_block_type|layer_types") > 0;
    if (!named && !nn_config_gguf(c) && !nn_config_has(c, NULL, "hybrid_layer_ids"))
        nn_config_fail(c, "the field \"layers_block_type\" is missing");
    for (int i = 0; i < h->d.n_layer && use && home; i++) {
        bool hybrid = named               ? nn_config_letter_at(c, "layers_block_type|layer_types", i, 0, "hybrid")
                      : nn_config_gguf(c) ? i % 3 == 1 /* a sketch */
                                          : nn_config_lists(c, NULL, "hybrid_layer_ids", i);
        if (named && !hybrid &&
            !nn_config_letter_at(c, "layers_block_type|layer_types", i, 0, "mamba|linear_attention"))
            nn_config_fail(c, "the field \"layers_block_type\" has an unknown kind for layer %d", i);
        if (hybrid && h->n_use < h->n_block) home[h->n_use] = i;
        use[i] = hybrid ? h->n_use++ : -1;
    }
    if (h->n_use > MAX_USES) nn_config_fail(c, "%d layers have an attention in front of them", h->n_use);
    h->use = use;
    nn_config_unsaid(c, "layers_block_type");
    h->home = home;
}

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    nn_config_known(c, "use_long_context", "false");
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU);
    if (h->n_block < 1 || h->n_block > MAX_BLOCKS || h->rank < 1 || h->rank > 1 << 16 || h->expand < 1 ||
        h->expand > 64 || 2 * h->d.n_embd % h->d.n_head || (h->adapts && h->d.n_kv != h->d.n_head) ||
        !(h->dt_min >= 0)) {
        nn_config_fail(c, "%d shared blocks with adapters of rank %d, %d of %d heads: that makes no sense", h->n_block,
                       h->rank, h->d.n_kv, h->d.n_head);
        return;
    }
    h->d.head_dim = 2 * h->d.n_embd / h->d.n_head;
    nn_mamba2_check(c, &h->m, (int64_t)h->expand * h->d.n_embd);
    h->m.dt_min = h->dt_min;
    read_layers(c, h);
    h->rope = nn_rope_read(c, &h->d, (nn_rope_want){ 0 });
}

/* The tensors of use u of a block stand under the layer that uses the block first. */
static void bind(nn_binder *b, nn_linear *out, const hparams *h, int u, const char *name, int64_t in, int64_t rows) {
    char own[NAME], hf[NAME];
    snprintf(own, sizeof own, "shared.%d.%s", u, name);
    snprintf(hf, sizeof hf, "model.layers.%d.shared_transformer.%s", h->home[u % h->n_block], name);
    nn_bind_linear(b, out, own, hf, in, rows, 0);
}

static void bind_vec(nn_binder *b, const nn_vec **out, const hparams *h, int u, const char *name, int64_t n) {
    char own[NAME], hf[NAME];
    snprintf(own, sizeof own, "shared.%d.%s", u, name);
    snprintf(hf, sizeof hf, "model.layers.%d.shared_transformer.%s", h->home[u % h->n_block], name);
    nn_bind_vec(b, out, own, hf, n, 0);
}

static void bind_low(nn_binder *b, nn_linear *out, const hparams *h, int u, const char *list, const char *which,
                     int64_t in, int64_t rows) {
    char name[NAME / 2];
    snprintf(name, sizeof name, "%s_adapter_list.%d.%s", list, u, which);
    bind(b, out, h, u, name, in, rows);
}

static void bind_block(nn_binder *b, block *w, const hparams *h, int u) {
    int n = h->d.n_embd, wide = 2 * n, kv = h->d.n_kv * h->d.head_dim, ff = h->d.n_ff;
    bind_vec(b, &w->attn_norm, h, u, "input_layernorm", wide);
    bind(b, &w->attn.q, h, u, "self_attn.q_proj", wide, wide);
    bind(b, &w->attn.k, h, u, "self_attn.k_proj", wide, kv);
    bind(b, &w->attn.v, h, u, "self_attn.v_proj", wide, kv);
    bind(b, &w->attn.o, h, u, "self_attn.o_proj", wide, n);
    bind_vec(b, &w->ffn_norm, h, u, "pre_ff_layernorm", n);
    bind(b, &w->gate, h, u, "feed_forward.gate_up_proj#0/2", n, ff);
    bind(b, &w->up, h, u, "feed_forward.gate_up_proj#1/2", n, ff);
    bind(b, &w->down, h, u, "feed_forward.down_proj", ff, n);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    static const char *const lists[] = { "self_attn.linear_q", "self_attn.linear_k", "self_attn.linear_v" };
    const hparams           *h = p;
    top                     *w = out;
    int                      n = h->d.n_embd, r = h->rank;
    nn_bind_ends(b, &w->ends, &h->d, 0);
    for (int u = 0; u < h->n_use; u++) {
        struct use *x = &w->uses[u];
        low        *own[] = { &x->q, &x->k, &x->v };
        if (u < h->n_block) bind_block(b, &w->blocks[u], h, u);
        bind_low(b, &x->ff, h, u, "feed_forward.gate_up_proj", "0", n, r);
        bind_low(b, &x->gate, h, u, "feed_forward.gate_up_proj", "1#0/2", r, h->d.n_ff);
        bind_low(b, &x->up, h, u, "feed_forward.gate_up_proj", "1#1/2", r, h->d.n_ff);
        for (int k = 0; k < 3 && h->adapts; k++) {
            bind_low(b, &own[k]->a, h, u, lists[k], "0", (int64_t)2 * n, r);
            bind_low(b, &own[k]->b, h, u, lists[k], "1", r, (int64_t)2 * n);
        }
    }
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    int            n = h->d.n_embd;
    nn_bind_vec(b, &w->norm, "attn_norm", "mamba_decoder.input_layernorm|input_layernorm", n, 0);
    nn_bind_mamba2(b, &w->mamba, "mamba_decoder.mamba|mamba", &h->m, n, 0);
    if (h->use[i] >= 0) nn_bind_linear(b, &w->out, "linear", "linear", n, n, 0);
}

static nn_state state(const void *p, int i) {
    const hparams *h = p;
    nn_state       s = nn_mamba2_state(&h->m);
    if (h->use[i] < 0) return s;
    s.kind = NN_STATE_PAGED_KV;
    s.n_kv = h->d.n_kv;
    s.dim_k = s.dim_v = h->d.head_dim;
    return s;
}

static nn_buf project(nn_tape *t, nn_buf x, nn_linear w, const low *own) {
    nn_buf y = nn_project(t, x, w);
    if (own->a.w) nn_project_add(t, y, nn_project(t, x, own->a), own->b);
    return y;
}

/* What block and layer make of the row and its embedding. */
static nn_buf run_block(nn_tape *t, int i, nn_buf x, nn_buf word, const hparams *h, const top *tw) {
    const struct use *own = &tw->uses[h->use[i]];
    const block      *w = &tw->blocks[h->use[i] % h->n_block];
    nn_attn_spec      a = nn_attn_plain(&h->d, 0);
    nn_buf            n = nn_rms_norm(t, nn_join(t, (nn_buf[]){ x, word }, 2), w->attn_norm, h->d.eps);
    nn_buf            q = project(t, n, w->attn.q, &own->q), k = project(t, n, w->attn.k, &own->k);
    nn_buf            v = project(t, n, w->attn.v, &own->v);
    a.scale = (float)sqrt(2.0 / h->d.head_dim);
    if (h->rotates) nn_rotate(t, q, k, h->d.head_dim, &h->rope);
    nn_kv_store(t, i, k, v);
    n = nn_rms_norm(t, nn_project(t, nn_attention(t, i, q, a), w->attn.o), w->ffn_norm, h->d.eps);
    nn_buf gate = nn_project(t, n, w->gate), up = nn_project(t, n, w->up), inner = nn_project(t, n, own->ff);
    nn_project_add(t, gate, inner, own->gate);
    nn_project_add(t, up, inner, own->up);
    nn_gate(t, up, gate, h->act);
    return nn_project(t, up, w->down);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    const layer   *lw = net->layers;
    float          eps = h->d.eps;

    nn_buf x = nn_embed(t, tw->ends.embd, 1.0f), word = nn_take(t, x, 0, h->d.n_embd);
    for (int i = 0; i < h->d.n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = x;
        if (h->use[i] >= 0) {
            n = nn_project(t, run_block(t, i, x, word, h, tw), w->out);
            nn_add(t, n, x);
        }
        n = nn_project(t, nn_rms_norm(t, n, w->norm, eps), w->mamba.in);
        nn_project_add(t, x, nn_mamba2_apply(t, i, n, &w->mamba, &h->m, 1e-5f), w->mamba.out);
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->ends.norm, eps), tw->ends.head, 1.0f, 0.0f);
}

const nn_arch models_zamba2 = { NN_FAMILY, .hf_only = true, .names = NN_NAMES("zamba2"), .tied = NN_NAMES("zamba2"),
                                .kinds = "mamba|linear_attention|hybrid" };
