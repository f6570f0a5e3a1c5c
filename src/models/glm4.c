/* SPDX-License-Identifier: Apache-2.0 */
/* GLM 4: norms before and behind each block, biases on q, k and v, half of each head rotated in pairs. GLM (ChatGLM 2
 * to 4) has no norms behind; ChatGLM's own files fuse q, k and v. The language models of GLM 4.1V and GLM-OCR are GLM 4
 * whose positions have three axes; GGUF files have the halves of their pairs apart, since other readers need them so. */
#include "nn/nn.h"

#include <math.h>

typedef struct hparams {
    nn_dims d;
    bool    first;
    int     n_next;
    nn_rope rope;
} hparams;

typedef struct layer {
    const nn_vec *attn_norm, *post_attn_norm, *ffn_norm, *post_ffn_norm;
    nn_linear     q, k, v, o, gate, up, down;
} layer;

static const nn_key keys[] = { NN_INT(n_next, "nextn_predict_layers", NULL, 0), { 0 } };

static void setup(nn_config *c, void *p) {
    hparams *h = p;
    double   base = 10000 * nn_config_real(c, NULL, "rope_ratio", 1);
    bool     gguf = nn_config_gguf(c), sees;
    h->first = nn_config_arch(c, "chatglm") || nn_config_arch(c, "glm");
    sees = gguf ? nn_config_has(c, "rope.dimension_sections", NULL) : !h->first && !nn_config_arch(c, "glm4");
    if (h->n_next < 0 || h->n_next >= h->d.n_layer) {
        nn_config_fail(c, "%d of %d layers are for multi-token prediction", h->n_next, h->d.n_layer);
        return;
    }
    h->d.n_layer -= h->n_next; /* GGUF counts them, too */
    nn_config_known(c, "rmsnorm", "true");
    nn_config_known(c, "multi_query_attention", "true");
    nn_config_known(c, "post_layer_norm", "true");
    nn_config_known(c, "apply_residual_connection_post_layernorm", "false");
    h->rope = nn_rope_read(
        c, &h->d, (nn_rope_want){ .partial = sees && !gguf ? 1 : 0.5, .interleaved = !sees || !gguf, .base = base });
    if (!sees) return;
    nn_rope_axes(c, &h->rope, false);
    if (!h->rope.axis_of) nn_config_fail(c, "rope_parameters.mrope_section is missing");
}

/* ChatGLM: all of q, then k, then v. */
static void bind_qkv(nn_binder *b, layer *w, const nn_dims *d) {
    nn_heads fused;
    int      n = d->n_embd, q = d->n_head * d->head_dim, kv = d->n_kv * d->head_dim;
    if (nn_bind_exists(b, "attn_q", "self_attn.q_proj")) {
        nn_bind_linear(b, &w->q, "attn_q", "self_attn.q_proj", n, q, 0);
        nn_bind_linear(b, &w->k, "attn_k", "self_attn.k_proj", n, kv, 0);
        nn_bind_linear(b, &w->v, "attn_v", "self_attn.v_proj", n, kv, 0);
        return;
    }
    nn_bind_qkv(b, &fused, "attn_qkv", "self_attention.query_key_value", d, false);
    w->q = fused.q;
    w->k = fused.k;
    w->v = fused.v;
}

static void bind_layer(nn_binder *b, void *out, const void *p, int i) {
    const hparams *h = p;
    const nn_dims *d = &h->d;
    layer         *w = out;
    int            n = d->n_embd, q = d->n_head * d->head_dim;
    (void)i;
    nn_bind_vec(b, &w->attn_norm, "attn_norm", "input_layernorm", n, 0);
    bind_qkv(b, w, d);
    nn_bind_linear(b, &w->o, "attn_output", "self_attn.o_proj|self_attention.dense", q, n, 0);
    if (!h->first) nn_bind_vec(b, &w->post_attn_norm, "post_attention_norm", "post_self_attn_layernorm", n, 0);
    nn_bind_vec(b, &w->ffn_norm, "ffn_norm", "post_attention_layernorm", n, 0);
    nn_bind_linear(b, &w->gate, "ffn_up#0/2", "mlp.gate_up_proj#0/2|mlp.dense_h_to_4h#0/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->up, "ffn_up#1/2", "mlp.gate_up_proj#1/2|mlp.dense_h_to_4h#1/2", n, d->n_ff, 0);
    nn_bind_linear(b, &w->down, "ffn_down", "mlp.down_proj|mlp.dense_4h_to_h", d->n_ff, n, 0);
    if (!h->first) nn_bind_vec(b, &w->post_ffn_norm, "post_ffw_norm", "post_mlp_layernorm", n, 0);
}

static nn_state state(const void *p, int i) {
    const nn_dims *d = p;
    (void)i;
    return nn_state_kv(d->n_kv, d->head_dim, 0);
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams     *h = net->hp;
    const nn_dims     *d = &h->d;
    const nn_ends     *tw = net->top;
    const layer       *lw = net->layers;
    const nn_attn_spec attn = {
        .n_head = d->n_head, .n_kv = d->n_kv, .dim_k = d->head_dim, .scale = 1.0f / sqrtf((float)d->head_dim)
    };

    nn_buf x = nn_embed(t, tw->embd, 1.0f);
    for (int i = 0; i < d->n_layer; i++) {
        const layer *w = &lw[i];
        nn_buf       n = nn_rms_norm(t, x, w->attn_norm, d->eps);
        nn_buf       q = nn_project(t, n, w->q), k = nn_project(t, n, w->k), v = nn_project(t, n, w->v);
        nn_rotate(t, q, k, d->head_dim, &h->rope);
        nn_kv_store(t, i, k, v);
        n = nn_project(t, nn_attention(t, i, q, attn), w->o);
        nn_add(t, x, h->first ? n : nn_rms_norm(t, n, w->post_attn_norm, d->eps));

        n = nn_rms_norm(t, x, w->ffn_norm, d->eps);
        n = nn_project(t, nn_glu(t, n, w->gate, w->up, NN_ACT_SILU), w->down);
        nn_add(t, x, h->first ? n : nn_rms_norm(t, n, w->post_ffn_norm, d->eps));
    }
    nn_logits(t, nn_rms_norm(t, nn_outputs(t, x), tw->norm, d->eps), tw->head, 1.0f, 0.0f);
}

static const char *const names[] = { "glm4", NULL }, *const names_1[] = { "chatglm", "glm", NULL },
                         *const names_chat[] = { "chatglm", NULL };
const nn_arch                   models_glm4 = { NN_DECODER, .names = names, .act = "silu|swish" };
const nn_arch                   models_glm = { NN_DECODER, .names = names_1, .act = "silu|swish" };
const nn_arch                   models_glm4v = { NN_DECODER, .gguf_only = true, .reordered = true, .act = "silu|swish",
                                                 .names = NN_NAMES("glm4", "glm4v", "glm4v_text", "glm46v", "glm_ocr", "glm_ocr_text") };
const nn_arch models_chatglm = { NN_DECODER, .names = names_chat, .hf_layers = "model.encoder.layers.",
                                 .act = "silu|swish" };
