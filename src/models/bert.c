/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BERT and its likes: encoders with learned positions and a norm behind every block. RoBERTa, XLM-RoBERTa and MPNet
 * count positions from behind the padding token's number, DistilBERT has one kind of text only, MPNet adds a bias by
 * distance. Jina's second generation has ALiBi instead of positions and a gated feed-forward. ELECTRA's embedding may
 * be narrower than its layers; ERNIE adds the vector of its first task.
 */
#include "nn/nn.h"

typedef struct hparams {
    nn_dims      d;
    int          offset; /* of positions in a Hugging Face file; converters cut the rows off */
    int          n_bucket;
    int          n_narrow; /* width of the embedding */
    int          n_tasks;
    bool         distil;
    const float *alibi; /* slopes; NULL: learned positions */
    nn_act_kind  act;
} hparams;

typedef struct top {
    const nn_mat *embd, *positions, *segments;
    const nn_vec *bias, *tasks;
    nn_vec        task; /* the first one */
    nn_linear     widen;
    nn_norm       norm;
} top;

typedef struct layer {
    nn_linear q, k, v, o, gate, up, down;
    nn_norm   attn_norm, out_norm;
} layer;

static const nn_key keys[] = { { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    bool     mpnet = nn_config_arch(c, "mpnet");
    bool     counts =
        mpnet || nn_config_arch(c, "roberta") || nn_config_arch(c, "xlm-roberta") || nn_config_arch(c, "camembert");
    h->d.n_kv = h->d.n_head;
    h->n_narrow = nn_config_arch(c, "electra") ? (int)nn_config_int(c, NULL, "embedding_size", 128) : h->d.n_embd;
    if (nn_config_arch(c, "ernie") && nn_config_bool(c, NULL, "use_task_id", false))
        h->n_tasks = (int)nn_config_int(c, NULL, "task_type_vocab_size", 3);
    if (h->n_narrow < 1) nn_config_fail(c, "embedding_size is %d", h->n_narrow);
    h->distil = nn_config_arch(c, "distilbert");
    if (h->distil) h->d.eps = 1e-12f;
    nn_config_derived(c, "attention.layer_norm_epsilon", (double)h->d.eps);
    if (nn_config_arch(c, "jina-bert-v2") || nn_config_is(c, NULL, "position_embedding_type", "alibi", false))
        h->alibi = nn_alibi_slopes(c, h->d.n_head, 8);
    if (!h->alibi && !nn_config_is(c, NULL, "position_embedding_type", "absolute", true))
        nn_config_fail(c, "position_embedding_type: only \"absolute\" and \"alibi\" are supported");
    if (nn_config_bool(c, NULL, "is_decoder", false) || nn_config_bool(c, NULL, "add_cross_attention", false))
        nn_config_fail(c, "is_decoder and add_cross_attention are not supported for this family");
    if (counts && !nn_config_gguf(c)) {
        const int64_t padding = nn_config_int(c, NULL, "pad_token_id", 1);
        if (padding < 0 || padding >= h->d.context - 1) {
            nn_config_fail(c, "%d positions do not begin behind the padding token %lld", h->d.context,
                           (long long)padding);
            return;
        }
        h->offset = (int)padding + 1;
        h->d.context -= h->offset;
        nn_config_derived_int(c, "context_length", h->d.context);
        nn_config_unsaid(c, "pad_token_id");
    }
    if (h->d.context < 1) nn_config_fail(c, "an encoder needs a context length");
    if (mpnet)
        h->n_bucket = (int)nn_config_int(c, "attention.relative_buckets_count", "relative_attention_num_buckets", 32);
    h->act = nn_config_act(c, NULL,
                           h->alibi    ? "feed_forward_type"
                           : h->distil ? "activation"
                                       : "hidden_act",
                           NN_ACT_GELU);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    top           *t = out;
    const int64_t  n = h->n_narrow;
    nn_bind_mat(b, &t->embd, "token_embd", "model.embeddings.word_embeddings", n, d->n_vocab, NN_AT_LEAST);
    nn_bind_mat(b, &t->segments, "token_types", "model.embeddings.token_type_embeddings", n, 1,
                NN_OPTIONAL | NN_AT_LEAST);
    if (!h->alibi)
        nn_bind_mat(b, &t->positions, "position_embd", "model.embeddings.position_embeddings", n,
                    (int64_t)d->context + h->offset, 0);
    if (h->n_tasks) nn_bind_grid(b, &t->tasks, "task_types", "model.embeddings.task_type_embeddings", h->n_tasks, n, 0);
    if (t->tasks) t->task = (nn_vec){ .name = t->tasks->name, .n = n, .data = t->tasks->data };
    nn_bind_norm(b, &t->norm, "token_embd_norm", "model.embeddings.LayerNorm", n, 0);
    if (n != d->n_embd) nn_bind_linear(b, &t->widen, "token_embd_up", "model.embeddings_project", n, d->n_embd, 0);
    if (h->n_bucket)
        nn_bind_table(b, &t->bias, "blk.0.attn_rel_b", "model.encoder.relative_attention_bias", h->n_bucket, d->n_head);
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    layer         *w = out;
    const int64_t  n = h->d.n_embd, ff = h->d.n_ff;
    (void)i;
    nn_bind_none(b, "attn_q_norm", "attention.self.layer_norm_q");
    nn_bind_none(b, "attn_norm_2", "layer_norm_2");
    nn_bind_linear(b, &w->q, "attn_q|attn_qkv#0/3", "attention.self.query|attention.q_lin|attention.attn.q", n, n, 0);
    nn_bind_linear(b, &w->k, "attn_k|attn_qkv#1/3", "attention.self.key|attention.k_lin|attention.attn.k", n, n, 0);
    nn_bind_linear(b, &w->v, "attn_v|attn_qkv#2/3", "attention.self.value|attention.v_lin|attention.attn.v", n, n, 0);
    nn_bind_linear(b, &w->o, "attn_output", "attention.output.dense|attention.out_lin|attention.attn.o", n, n, 0);
    nn_bind_norm(b, &w->attn_norm, "attn_output_norm", "attention.output.LayerNorm|sa_layer_norm|attention.LayerNorm",
                 n, 0);
    if (h->alibi) {
        nn_bind_linear(b, &w->gate, "ffn_gate|ffn_up#0/2", "mlp.gated_layers#0/2", n, ff, 0);
        nn_bind_linear(b, &w->up, w->gate.w && nn_bind_exists(b, "ffn_gate", NULL) ? "ffn_up" : "ffn_up#1/2",
                       "mlp.gated_layers#1/2", n, ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "mlp.wo", ff, n, 0);
        nn_bind_norm(b, &w->out_norm, "layer_output_norm", "mlp.layernorm", n, 0);
    } else {
        nn_bind_linear(b, &w->up, "ffn_up", "intermediate.dense|ffn.lin1", n, ff, 0);
        nn_bind_linear(b, &w->down, "ffn_down", "output.dense|ffn.lin2", ff, n, 0);
        nn_bind_norm(b, &w->out_norm, "layer_output_norm", "output.LayerNorm|output_layer_norm", n, 0);
    }
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const nn_dims *d = &h->d;
    const top     *tw = net->top;
    nn_attn_spec   a = nn_attn_plain(d, 0);
    if (h->n_bucket) a.bias = nn_bias_buckets(t, tw->bias, d->n_head, h->n_bucket, 128);
    a.alibi = h->alibi;
    nn_buf x = nn_embed(t, tw->embd, 1);
    if (tw->segments) nn_embed_segments(t, x, tw->segments);
    if (tw->positions) nn_embed_positions(t, x, tw->positions, h->offset);
    if (tw->tasks) nn_add_each(t, x, &tw->task, 1);
    x = nn_norm_rows(t, x, &tw->norm, d->eps);
    if (tw->widen.w) x = nn_project(t, x, tw->widen);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = (const layer *)net->layers + i;
        nn_kv_store(t, i, nn_project(t, x, w->k), nn_project(t, x, w->v));
        nn_project_add(t, x, nn_attention(t, i, nn_project(t, x, w->q), a), w->o);
        x = nn_norm_rows(t, x, &w->attn_norm, d->eps);
        nn_buf f = w->gate.w ? nn_glu(t, x, w->gate, w->up, h->act) : nn_project(t, x, w->up);
        if (!w->gate.w) nn_act(t, f, h->act);
        nn_project_add(t, x, f, w->down);
        x = nn_norm_rows(t, x, &w->out_norm, d->eps);
    }
    nn_vectors(t, nn_outputs(t, x));
}

static const char *const names[] = { "bert", "roberta", "xlm-roberta", "camembert", "jina-bert-v2", NULL };
const nn_arch            models_bert = { NN_WHOLE, .names = names, .hf_layers = "model.encoder.layer." };

const nn_arch models_mpnet = { NN_WHOLE, .names = NN_NAMES("mpnet"), .hf_layers = "model.encoder.layer." };

const nn_arch models_distilbert = { NN_WHOLE, .names = NN_NAMES("distilbert"), .hf_layers = "model.transformer.layer.",
                                    .lacks = NN_LACKS_EPS };

const nn_arch models_electra = { NN_WHOLE, .names = NN_NAMES("electra", "ernie"), .hf_only = true,
                                 .hf_layers = "model.encoder.layer." };
