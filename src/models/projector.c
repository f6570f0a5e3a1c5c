/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Projectors: from the rows of a tower to those of a language model. Those of a square of patches come side by side.
 *
 *     Gemma 3     a norm and a matrix over the mean of a square of patches
 *     LLaVA       two layers over each patch; over what several layers of the tower have for it, side by side. LLaVA 1.6 and
 *                 its kin have a row for the end of a line, ViP-LLaVA a norm before them
 *     Janus       two layers over each patch; DeepSeek VL, too
 *     PaliGemma   one matrix over each patch
 *     Idefics 3   one matrix over a square of patches, side by side
 *     Mistral 3   the same, and two layers behind it
 *     LFM2-VL     perhaps a norm, and two layers over a square of patches, side by side
 *     PaddleOCR   a norm of each patch, and two layers over a square of patches
 *     Voxtral     two layers over four places of a sound, side by side
 *     Gemma 4     as Gemma 3, after the mean was brought to its usual size; the norm has no weight. Of a sound and of the large
 *                 patches of the 12B, too, without a mean
 */
#include "nn/nn.h"

#include <math.h>

typedef enum kind {
    GEMMA3,
    LLAVA,
    LLAVA_NEXT,
    VIPLLAVA,
    JANUS,
    DEEPSEEK_VL,
    PALIGEMMA,
    IDEFICS3,
    MISTRAL3,
    GEMMA4,
    GEMMA4_PATCHES,
    GEMMA4_EARS,
    VOXTRAL,
    PADDLEOCR,
    LFM2
} kind;

typedef struct hparams {
    nn_dims     d; /* the tower's */
    kind        kind;
    int         n_in, n_out; /* widths */
    int         pooled;      /* patches that a row is the mean of */
    nn_act_kind act;
    float       scale; /* LLAVA: on what comes out */
} hparams;

typedef struct top {
    nn_projector_top t;
    nn_norm          ln, each; /* each: of a patch */
    const nn_vec    *norm, *shift, *size;
    nn_linear        merge, first, second;
} top;

typedef char layer;

static const nn_key keys[] = { { 0 } };

/* What comes in and goes out; `outer` fields and the files' own keys say so. */
static void read_widths(nn_config *c, hparams *h, int side_by_side) {
    h->n_in = h->d.n_embd * side_by_side;
    h->n_out = (int)nn_config_outer_int(c, "projection_dim", "text_config.hidden_size|hidden_size", NN_REQUIRED_INT);
    if (h->n_in <= 0 || h->n_in > 1 << 20 || h->n_out <= 0 || h->n_out > 1 << 20)
        nn_config_fail(c, "a projector from %d to %d", h->n_in, h->n_out);
}

/* The vision room says how many, since files say it in several ways. */
static void read_pooled(nn_config *c, hparams *h) {
    h->pooled = (int)nn_config_int(c, "pooled", NULL, 1);
    if (h->pooled < 1 || h->pooled > 256) nn_config_fail(c, "the mean of %d patches", h->pooled);
    read_widths(c, h, 1);
}

static void setup_gemma3(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = GEMMA3;
    h->d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "layer_norm_eps", 1e-6);
    read_pooled(c, h);
}

static void setup_llava(nn_config *c, void *p) {
    enum { MOST_LAYERS = 5 };
    hparams *h = p;
    int      layers[MOST_LAYERS],
        n = nn_config_outer_ints(c, "feature_layer", "vision_feature_layer|vision_feature_layers", layers, MOST_LAYERS);
    h->kind = LLAVA;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    h->scale = (float)nn_config_real(c, "rows.scale", NULL, 1);
    read_widths(c, h, n ? n : 1);
}

static void setup_vipllava(nn_config *c, void *p) {
    hparams *h = p;
    setup_llava(c, p);
    h->kind = VIPLLAVA;
    h->d.eps = (float)nn_config_outer_real(c, NULL, "projector_layernorm_eps", 1e-5);
}

static void setup_llava_next(nn_config *c, void *p) {
    hparams *h = p;
    setup_llava(c, p);
    h->kind = LLAVA_NEXT;
}

static void setup_janus(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = JANUS;
    h->act = nn_config_act(c, NULL, "hidden_act", NN_ACT_GELU); /* the tower's */
    (void)nn_config_bool(c, NULL, "use_qk_norm", false);
    read_widths(c, h, 1);
}

static void setup_deepseek_vl(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = DEEPSEEK_VL;
    h->act = NN_ACT_GELU;
    read_widths(c, h, 1);
}

static void setup_paligemma(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = PALIGEMMA;
    read_widths(c, h, 1);
}

static void setup_idefics3(nn_config *c, void *p) {
    hparams *h = p;
    int      side = (int)nn_config_outer_int(c, "projector.scale_factor", "scale_factor", 4);
    h->kind = IDEFICS3;
    if (side < 1 || side > 16) nn_config_fail(c, "scale_factor is %d", side);
    read_widths(c, h, side * side);
}

static void setup_mistral3(nn_config *c, void *p) {
    hparams *h = p;
    int      side = (int)nn_config_outer_int(c, "spatial_merge_size", "spatial_merge_size", 2);
    h->kind = MISTRAL3;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    if (side < 1 || side > 16) nn_config_fail(c, "spatial_merge_size is %d", side);
    read_widths(c, h, side * side);
}

static void setup_lfm2(nn_config *c, void *p) {
    hparams *h = p;
    int      side = (int)nn_config_outer_int(c, "projector.scale_factor", "downsample_factor", 2);
    h->kind = LFM2;
    h->d.eps = 1e-5f;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    if (side < 1 || side > 16) nn_config_fail(c, "downsample_factor is %d", side);
    read_widths(c, h, side * side);
}

static void setup_gemma4(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = GEMMA4;
    h->d.eps = (float)nn_config_real(c, "attention.layer_norm_epsilon", "rms_norm_eps", 1e-6);
    read_pooled(c, h);
}

static void setup_gemma4_patches(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = GEMMA4_PATCHES;
    h->d.eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6);
    read_widths(c, h, 1);
}

static void setup_gemma4_ears(nn_config *c, void *p) {
    hparams *h = p;
    h->kind = GEMMA4_EARS;
    (void)nn_config_int(c, NULL, "attention_chunk_size", 0);         /* the tower's */
    h->d.eps = (float)nn_config_real(c, NULL, "rms_norm_eps", 1e-6); /* mmproj files have another one's */
    read_widths(c, h, 1);
}

static void setup_paddleocr(nn_config *c, void *p) {
    hparams *h = p;
    int      side = (int)nn_config_int(c, "spatial_merge_size", "spatial_merge_size", 2);
    h->kind = PADDLEOCR;
    h->d.eps = 1e-5f;
    h->act = NN_ACT_GELU;
    if (side < 1 || side > 16) nn_config_fail(c, "spatial_merge_size is %d", side);
    read_widths(c, h, side >= 1 && side <= 16 ? side * side : 1);
}

/* config.json says how many places by the width that they have together. */
static void setup_voxtral(nn_config *c, void *p) {
    hparams *h = p;
    int64_t  side_by_side = nn_config_int(c, "projector.stack_factor", NULL, 0);
    if (!nn_config_gguf(c) && h->d.n_embd > 0)
        side_by_side = nn_config_int(c, NULL, "intermediate_size", NN_REQUIRED_INT) / h->d.n_embd;
    h->kind = VOXTRAL;
    h->act = nn_config_outer_act(c, NULL, "projector_hidden_act", NN_ACT_GELU);
    if (side_by_side < 1 || side_by_side > 64)
        nn_config_fail(c, "%lld places of a sound become a row", (long long)side_by_side);
    read_widths(c, h, side_by_side >= 1 && side_by_side <= 64 ? (int)side_by_side : 1);
}

static void bind_top(nn_binder *b, void *out, const void *p) {
    const hparams *h = p;
    top           *t = out;
    switch (h->kind) {
    case GEMMA3:
        nn_bind_vec(b, &t->norm, "mm.soft_emb_norm|mm.mm_soft_emb_norm", "model.multi_modal_projector.mm_soft_emb_norm",
                    h->n_in, NN_PLUS_ONE);
        nn_bind_linear(b, &t->first, "mm.input_projection^|mm.mm_input_projection^",
                       "model.multi_modal_projector.mm_input_projection_weight^", h->n_in, h->n_out, NN_NO_BIAS);
        break;
    case VIPLLAVA:
        nn_bind_norm(b, &t->ln, NULL, "model.multi_modal_projector.projector_layernorm", h->n_in, 0);
        nn_bind_linear(b, &t->first, NULL, "model.multi_modal_projector.linear_1", h->n_in, h->n_out, 0);
        nn_bind_linear(b, &t->second, NULL, "model.multi_modal_projector.linear_2", h->n_out, h->n_out, 0);
        break;
    case LLAVA_NEXT:
        t->t.scale = h->scale;
        nn_bind_vec(b, &t->t.newline, "model.image_newline|v.image_newline", "model.image_newline", h->n_out, 0);
        /* fallthrough */
    case LLAVA:
        nn_bind_linear(b, &t->first, "mm.0|mm.1", "model.multi_modal_projector.linear_1|model.projector.readout.0",
                       h->n_in, h->n_out, 0);
        nn_bind_linear(b, &t->second, "mm.2", "model.multi_modal_projector.linear_2|model.projector.readout.2",
                       h->n_out, h->n_out, 0);
        break;
    case JANUS:
        nn_bind_linear(b, &t->first, "mm.0", "model.aligner.fc1", h->n_in, h->n_out, 0);
        nn_bind_linear(b, &t->second, "mm.1", "model.aligner.hidden_layers.0", h->n_out, h->n_out, 0);
        break;
    case DEEPSEEK_VL:
        nn_bind_linear(b, &t->first, NULL, "model.aligner.linear1", h->n_in, h->n_out, 0);
        nn_bind_linear(b, &t->second, NULL, "model.aligner.linear2", h->n_out, h->n_out, 0);
        break;
    case PALIGEMMA:
        nn_bind_linear(b, &t->first, NULL, "model.multi_modal_projector.linear", h->n_in, h->n_out, 0);
        break;
    case IDEFICS3:
        nn_bind_linear(b, &t->first, "mm.model.fc", "model.connector.modality_projection.proj", h->n_in, h->n_out, 0);
        break;
    case MISTRAL3:
        nn_bind_linear(b, &t->merge, "mm.patch_merger|mm.patch_merger.merging_layer",
                       "model.multi_modal_projector.patch_merger.merging_layer|"
                       "model.vision_projection.patch_merger.merging_layer",
                       h->n_in, h->d.n_embd, 0);
        nn_bind_linear(b, &t->first, "mm.1|mm.linear_1",
                       "model.multi_modal_projector.linear_1|model.vision_projection.linear_1", h->d.n_embd, h->n_out,
                       0);
        nn_bind_linear(b, &t->second, "mm.2|mm.linear_2",
                       "model.multi_modal_projector.linear_2|model.vision_projection.linear_2", h->n_out, h->n_out, 0);
        break;
    case PADDLEOCR:
        nn_bind_norm(b, &t->each, "mm.input_norm", "model.projector.pre_norm|mlp_AR.pre_norm", h->d.n_embd, 0);
        nn_bind_linear(b, &t->first, "mm.1", "model.projector.linear_1|mlp_AR.linear_1", h->n_in, h->n_in, 0);
        nn_bind_linear(b, &t->second, "mm.2", "model.projector.linear_2|mlp_AR.linear_2", h->n_in, h->n_out, 0);
        break;
    case VOXTRAL:
        nn_bind_linear(b, &t->first, "mm.a.mlp.1", "model.multi_modal_projector.linear_1", h->n_in, h->n_out, 0);
        nn_bind_linear(b, &t->second, "mm.a.mlp.2", "model.multi_modal_projector.linear_2", h->n_out, h->n_out, 0);
        break;
    case LFM2: {
        static const char *const norm[] = { "mm.input_norm", "model.multi_modal_projector.layer_norm" };
        static const char *const last[] = { "mm.2", "model.multi_modal_projector.linear_2" };
        int64_t                  inner = nn_bind_width(b, last[0], last[1]);
        nn_bind_norm(b, &t->ln, norm[0], norm[1], h->n_in, nn_bind_exists(b, norm[0], norm[1]) ? 0 : NN_OPTIONAL);
        nn_bind_linear(b, &t->first, "mm.1", "model.multi_modal_projector.linear_1", h->n_in, inner, 0);
        nn_bind_linear(b, &t->second, last[0], last[1], inner, h->n_out, 0);
        break;
    }
    case GEMMA4_EARS: /* the matrix alone says how wide its input is */
        nn_bind_linear(b, &t->first, "mm.a.input_projection", "model.embed_audio.embedding_projection",
                       nn_bind_width(b, "mm.a.input_projection", "model.embed_audio.embedding_projection"), h->n_out,
                       NN_NO_BIAS);
        break;
    case GEMMA4_PATCHES:
    case GEMMA4:
        nn_bind_vec(b, &t->shift, "v.std_bias", "model.vision_tower.std_bias", h->n_in, NN_OPTIONAL);
        nn_bind_vec(b, &t->size, "v.std_scale", "model.vision_tower.std_scale", h->n_in, NN_OPTIONAL);
        nn_bind_linear(b, &t->first, "mm.input_projection", "model.embed_vision.embedding_projection", h->n_in,
                       h->n_out, NN_NO_BIAS);
        break;
    }
}

/* The mean of the patches that come side by side. */
static nn_buf pool_rows(nn_tape *t, const hparams *h) {
    nn_buf all = nn_input(t, (int64_t)h->n_in * h->pooled), x = nn_take(t, all, 0, h->n_in);
    for (int k = 1; k < h->pooled; k++) nn_add(t, x, nn_take(t, all, k * h->n_in, h->n_in));
    nn_scale(t, x, 1.0f / (float)h->pooled);
    return x;
}

static void forward(nn_tape *t, const nn_net *net) {
    const hparams *h = net->hp;
    const top     *tw = net->top;
    nn_buf         x = h->kind == GEMMA4_EARS ? nn_input(t, tw->first.w->cols)
                       : h->pooled > 1        ? pool_rows(t, h)
                                              : nn_input(t, h->n_in);
    if (h->kind == GEMMA4_EARS || h->kind == GEMMA4_PATCHES) x = nn_rms_norm(t, x, NULL, h->d.eps);
    if (h->kind == GEMMA4) {
        nn_scale(t, x, sqrtf((float)h->n_in));
        if (tw->shift) nn_add_each(t, x, tw->shift, -1.0f);
        if (tw->size) nn_scale_each(t, x, tw->size);
        x = nn_rms_norm(t, x, NULL, h->d.eps);
    }
    if (tw->each.w) x = nn_layer_norm_groups(t, x, h->d.n_embd, tw->each.w, tw->each.b, h->d.eps);
    if (tw->norm) x = nn_rms_norm(t, x, tw->norm, h->d.eps);
    if (tw->ln.w) x = nn_norm_rows(t, x, &tw->ln, h->d.eps);
    if (tw->merge.w) x = nn_project(t, x, tw->merge);
    x = nn_project(t, x, tw->first);
    if (tw->second.w) {
        nn_act(t, x, h->act);
        x = nn_project(t, x, tw->second);
    }
    if (h->scale != 0 && h->scale != 1) nn_scale(t, x, h->scale);
    nn_vectors(t, nn_outputs(t, x));
}

#define LACKS NN_LACKS_VOCAB | NN_LACKS_EPS | NN_LACKS_FF | NN_LACKS_HEADS
#define PROJECTOR(name, text, setup_fn)                                                                                \
    static const char *const names_##name[] = { text, NULL };                                                          \
    const nn_arch            models_projector_##name = { .names = names_##name,                                        \
                                                         .hf_roots = roots,                                            \
                                                         .hp_size = sizeof(hparams),                                   \
                                                         .top_size = sizeof(top),                                      \
                                                         .layer_size = sizeof(layer),                                  \
                                                         .keys = keys,                                                 \
                                                         .lacks = LACKS,                                               \
                                                         .setup = setup_fn,                                            \
                                                         .bind_top = bind_top,                                         \
                                                         .bind_layer = nn_bind_nothing,                                \
                                                         .state = nn_state_nothing,                                    \
                                                         .forward = forward }

static const char *const roots[] = { "", "model.", NULL };
PROJECTOR(gemma3, "gemma3_projector", setup_gemma3);
PROJECTOR(llava, "llava_projector", setup_llava);
PROJECTOR(vipllava, "vipllava_projector", setup_vipllava);
PROJECTOR(llava_next, "llava_next_projector", setup_llava_next);
PROJECTOR(janus, "janus_projector", setup_janus);
PROJECTOR(deepseek_vl, "deepseek_vl_projector", setup_deepseek_vl);
PROJECTOR(paligemma, "paligemma_projector", setup_paligemma);
PROJECTOR(idefics3, "idefics3_projector", setup_idefics3);
PROJECTOR(mistral3, "mistral3_projector", setup_mistral3);
PROJECTOR(gemma4, "gemma4_projector", setup_gemma4);
PROJECTOR(gemma4_patches, "gemma4_patches_projector", setup_gemma4_patches);
PROJECTOR(gemma4_ears, "gemma4_ears_projector", setup_gemma4_ears);
PROJECTOR(voxtral, "voxtral_projector", setup_voxtral);
PROJECTOR(lfm2, "lfm2_projector", setup_lfm2);
PROJECTOR(paddleocr, "paddleocr_projector", setup_paddleocr);
