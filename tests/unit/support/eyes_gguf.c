/* SPDX-License-Identifier: Apache-2.0 */
/* How published converters name and order the tensors of the golden models that see. */
#include "unit/support/eyes_gguf.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/gguf_writer.h"
#include "tensor/half.h"
#include "unit/support/support.h"
#include "vision/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Endings of Hugging Face's names, behind "layers.N." where the first letter is '#'; and what GGUF has for them. */
typedef struct name_row {
    const char *hf, *gguf;
} name_row;

static const name_row names[] = {
    { "embeddings.patch_embedding.weight", "v.patch_embd.weight" },
    { "embeddings.patch_embedding.bias", "v.patch_embd.bias" },
    { "embeddings.position_embedding.weight", "v.position_embd.weight" },
    { "embeddings.class_embedding", "v.class_embd" },
    { "embeddings.cls_token", "v.class_embd" },
    { "embeddings.position_embeddings", "v.position_embd.weight" },
    { "embeddings.patch_embeddings.projection.weight", "v.patch_embd.weight" },
    { "embeddings.patch_embeddings.projection.bias", "v.patch_embd.bias" },
    { "image_newline", "model.image_newline" },
    { "aligner.fc1.weight", "mm.0.weight" },
    { "aligner.fc1.bias", "mm.0.bias" },
    { "aligner.hidden_layers.0.weight", "mm.1.weight" },
    { "aligner.hidden_layers.0.bias", "mm.1.bias" },
    { "#self_attn.projection_layer", "attn_out" },
    { "vision_projection.norm.weight", "mm.input_norm.weight" },
    { "vision_projection.patch_merger.merging_layer.weight", "mm.patch_merger.weight" },
    { "#layernorm_before", "ln1" },
    { "#layernorm_after", "ln2" },
    { "#attention.q_norm", "attn_q_norm" },
    { "#attention.k_norm", "attn_k_norm" },
    { "#attention.projection_layer", "attn_out" },
    { "#lambda_1", "ls1.weight" },
    { "#lambda_2", "ls2.weight" },
    { "multi_modal_projector.layer_norm.weight", "mm.model.mlp.0.weight" },
    { "multi_modal_projector.layer_norm.bias", "mm.model.mlp.0.bias" },
    { "pre_layrnorm.weight", "v.pre_ln.weight" },
    { "pre_layrnorm.bias", "v.pre_ln.bias" },
    { "post_layernorm.weight", "v.post_ln.weight" },
    { "post_layernorm.bias", "v.post_ln.bias" },
    { "patch_conv.weight", "v.patch_embd.weight" },
    { "ln_pre.weight", "v.pre_ln.weight" },
    { "#layer_norm1", "ln1" },
    { "#layer_norm2", "ln2" },
    { "#self_attn.q_proj", "attn_q" },
    { "#self_attn.k_proj", "attn_k" },
    { "#self_attn.v_proj", "attn_v" },
    { "#self_attn.out_proj", "attn_out" },
    { "#mlp.fc1", "ffn_up" },
    { "#mlp.fc2", "ffn_down" },
    { "#attention_norm", "ln1" },
    { "#ffn_norm", "ln2" },
    { "#attention.q_proj", "attn_q" },
    { "#attention.k_proj", "attn_k" },
    { "#attention.v_proj", "attn_v" },
    { "#attention.o_proj", "attn_out" },
    { "#feed_forward.gate_proj", "ffn_gate" },
    { "#feed_forward.up_proj", "ffn_up" },
    { "#feed_forward.down_proj", "ffn_down" },
    { "multi_modal_projector.mm_input_projection_weight", "mm.input_projection.weight" },
    { "multi_modal_projector.mm_soft_emb_norm.weight", "mm.soft_emb_norm.weight" },
    { "connector.modality_projection.proj.weight", "mm.model.fc.weight" },
    { "multi_modal_projector.norm.weight", "mm.input_norm.weight" },
    { "multi_modal_projector.patch_merger.merging_layer.weight", "mm.patch_merger.weight" },
    { "visual.patch_embed.proj.weight", "v.patch_embd.weight" }, /* and .1: a frame each */
    { "visual.patch_embed.proj.bias", "v.patch_embd.bias" },
    { "visual.pos_embed.weight", "v.position_embd.weight" },
    { "visual.merger.ln_q.weight", "v.post_ln.weight" },
    { "visual.merger.ln_q.bias", "v.post_ln.bias" },
    { "visual.merger.norm.weight", "v.post_ln.weight" },
    { "visual.merger.norm.bias", "v.post_ln.bias" },
    { "visual.merger.mlp.0.weight", "mm.0.weight" },
    { "visual.merger.mlp.0.bias", "mm.0.bias" },
    { "visual.merger.mlp.2.weight", "mm.2.weight" },
    { "visual.merger.mlp.2.bias", "mm.2.bias" },
    { "visual.merger.linear_fc1.weight", "mm.0.weight" },
    { "visual.merger.linear_fc1.bias", "mm.0.bias" },
    { "visual.merger.linear_fc2.weight", "mm.2.weight" },
    { "visual.merger.linear_fc2.bias", "mm.2.bias" },
    { "visual.post_conv_layernorm.weight", "v.norm_embd.weight" },
    { "visual.post_layernorm.weight", "v.post_ln.weight" },
    { "visual.downsample.weight", "mm.patch_merger.weight" },
    { "visual.downsample.bias", "mm.patch_merger.bias" },
    { "visual.merger.proj.weight", "mm.model.fc.weight" },
    { "visual.merger.post_projection_norm.weight", "mm.post_norm.weight" },
    { "visual.merger.post_projection_norm.bias", "mm.post_norm.bias" },
    { "visual.merger.gate_proj.weight", "mm.gate.weight" },
    { "visual.merger.up_proj.weight", "mm.up.weight" },
    { "visual.merger.down_proj.weight", "mm.down.weight" },
    { "perceive.before_rms.weight", "mm.pre_norm.weight" },
    { "perceive.proj.0.weight", "mm.0.weight" },
    { "perceive.proj.0.bias", "mm.0.bias" },
    { "perceive.proj.2.weight", "mm.2.weight" },
    { "perceive.proj.2.bias", "mm.2.bias" },
    { "perceive.mlp.weight", "mm.model.fc.weight" },
    { "perceive.mlp.bias", "mm.model.fc.bias" },
    { "perceive.image_begin", "mm.image_begin" },
    { "perceive.image_end", "mm.image_end" },
    { "perceive.after_rms.weight", "mm.post_norm.weight" },
    { "#mlp.dense_h_to_4h", "ffn_up" },
    { "#mlp.dense_4h_to_h", "ffn_down" },
    { "mlp_AR.pre_norm.weight", "mm.input_norm.weight" },
    { "mlp_AR.pre_norm.bias", "mm.input_norm.bias" },
    { "mlp_AR.linear_1.weight", "mm.1.weight" },
    { "mlp_AR.linear_1.bias", "mm.1.bias" },
    { "mlp_AR.linear_2.weight", "mm.2.weight" },
    { "mlp_AR.linear_2.bias", "mm.2.bias" },
    { "#attn.q_norm", "attn_q_norm" },
    { "#attn.k_norm", "attn_k_norm" },
    { "#norm1", "ln1" },
    { "#norm2", "ln2" },
    { "#attn.qkv", "attn_qkv" },
    { "#attn.q", "attn_q" },
    { "#attn.k", "attn_k" },
    { "#attn.v", "attn_v" },
    { "#attn.proj", "attn_out" },
    { "#mlp.linear_fc1", "ffn_up" },
    { "#mlp.linear_fc2", "ffn_down" },
    { "#mlp.gate_proj", "ffn_gate" },
    { "#mlp.up_proj", "ffn_up" },
    { "#mlp.down_proj", "ffn_down" },
    { "patch_embedder.input_proj.weight", "v.patch_embd.weight" },
    { "patch_embedder.position_embedding_table", "v.position_embd.weight" },
    { "vision_tower.std_bias", "v.std_bias" },
    { "vision_tower.std_scale", "v.std_scale" },
    { "embed_vision.embedding_projection.weight", "mm.input_projection.weight" },
    { "vision_embedder.patch_dense.weight", "v.patch_embd.weight" },
    { "vision_embedder.patch_dense.bias", "v.patch_embd.bias" },
    { "vision_embedder.patch_ln1.weight", "v.patch_norm.1.weight" },
    { "vision_embedder.patch_ln1.bias", "v.patch_norm.1.bias" },
    { "vision_embedder.patch_ln2.weight", "v.patch_norm.2.weight" },
    { "vision_embedder.patch_ln2.bias", "v.patch_norm.2.bias" },
    { "vision_embedder.pos_norm.weight", "v.patch_norm.3.weight" },
    { "vision_embedder.pos_norm.bias", "v.patch_norm.3.bias" },
    { "vision_embedder.pos_embedding", "v.position_embd.weight" },
    { "#input_layernorm", "ln1" },
    { "#post_attention_layernorm", "attn_post_norm" },
    { "#pre_feedforward_layernorm", "ln2" },
    { "#post_feedforward_layernorm", "ffn_post_norm" },
    { "#self_attn.q_norm", "attn_q_norm" },
    { "#self_attn.k_norm", "attn_k_norm" },
    { "#self_attn.o_proj", "attn_out" },
    { "patch_embedding.linear.weight", "v.patch_embd.weight" },
    { "positional_embedding_vlm", "v.position_embd.weight" },
    { "vision_model.class_embedding", "v.class_embd" },
    { "layernorm_pre.weight", "v.pre_ln.weight" },
    { "layernorm_pre.bias", "v.pre_ln.bias" },
    { "layernorm_post.weight", "v.post_ln.weight" },
    { "layernorm_post.bias", "v.post_ln.bias" },
    { "vision_adapter.mlp.fc1.weight", "mm.model.mlp.1.weight" },
    { "vision_adapter.mlp.fc2.weight", "mm.model.mlp.2.weight" },
    { "vision_tower.patch_embed.proj.weight", "v.patch_embd.weight" },
    { "vision_tower.patch_embed.proj.bias", "v.patch_embd.bias" },
    { "patch_embed.pos_emb.weight", "v.position_embd.weight" },
    { "final_layernorm.weight", "v.post_ln.weight" },
    { "final_layernorm.bias", "v.post_ln.bias" },
    { "projector.pre_norm.weight", "mm.input_norm.weight" },
    { "projector.pre_norm.bias", "mm.input_norm.bias" },
    { "mm_projector.proj.0.weight", "mm.1.weight" },
    { "mm_projector.proj.0.bias", "mm.1.bias" },
    { "mm_projector.proj.2.weight", "mm.2.weight" },
    { "mm_projector.proj.2.bias", "mm.2.bias" },
    { "#norm0", "ln1" },
    { "#wqkv", "attn_qkv" },
    { "#wo", "attn_out" },
    { "#mlp.fc0", "ffn_up" },
};

const eyes_gguf eyes_gguf_families[] = {
    { "gemma3", "gemma3", NULL, false },
    { "llava", "mlp", "mm.0", false },
    { "idefics3", "idefics3", NULL, false },
    { "mistral3", "pixtral", "mm.1", true },
    { "pixtral", "pixtral", "mm.1", true },
    { "qwen2_5_vl", "qwen2.5vl_merger", NULL, false },
    { "qwen2_vl", "qwen2vl_merger", NULL, false },
    { "qwen3_vl", "qwen3vl_merger", NULL, false },
    { "gemma4", "gemma4v", NULL, false },
    { "gemma4_unified", "gemma4uv", NULL, false },
    { "glm4v", "glm4v", NULL, false },
    { "glm_ocr", "glm4v", NULL, false },
    { "paddleocr_vl", "paddleocr", "mm.1", false },
    { "exaone4_5", "exaone4_5", NULL, false },
    { "qwen2_5_omni", "qwen2.5o", NULL, false },
    { "qwen3_omni_moe", "qwen3vl_merger", NULL, false },
    { "internvl", "internvl", "mm.model.mlp.1", false },
    { "internvl_6b", "internvl", "mm.model.mlp.1", false },
    { "llava_next", "mlp", "mm.0", false },
    { "granite_vision", "mlp", "mm.0", false },
    { "lighton_ocr", "lightonocr", "mm.1", true },
    { "janus", "janus_pro", NULL, false },
    { "llama4", "llama4", "mm.model.fc", false },
    { "lfm2_vl", "lfm2", "mm.1", false },
    { "kimi_vl", "kimivl", "mm.1", false },
    { "kimi_k25", "kimik25", NULL, true },
    { "minicpmv4_6", "minicpmv4_6", NULL, false },
    { "minicpmv", "resampler", NULL, false },
    { "hunyuan_vl", "hunyuanvl", NULL, false },
};
const size_t eyes_gguf_count = sizeof eyes_gguf_families / sizeof *eyes_gguf_families;

static bool ends(const char *name, const char *end) { return view_ends(view_of(name), end); }

/* The same ending means other things in some: Llama 4's norm behind attention is the one before the feed-forward, and Kimi
 * counts from zero. */
static const char *own_name(const eyes_gguf *f, const char *usual) {
    static const struct {
        const char *family, *from, *to;
    } other[] = { { "llama4", "attn_post_norm", "ln2" },
                  { "hunyuan", "attn_post_norm", "ln2" },
                  { "hunyuan", "model.image_newline", "v.image_newline" },
                  { "kimi", "ln1", "ln2" },
                  { "kimi", "ffn_up", "ffn_down" },
                  { "lfm2_vl", "mm.model.mlp.0.weight", "mm.input_norm.weight" },
                  { "lfm2_vl", "mm.model.mlp.0.bias", "mm.input_norm.bias" } };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        if (strncmp(f->name, other[i].family, strlen(other[i].family)) == 0 && strcmp(usual, other[i].from) == 0)
            return other[i].to;
    }
    return usual;
}

/* Modules of MiniCPM-V between its layers and behind them. */
static bool merger_name(const char *hf, char *out, size_t bytes) {
    static const name_row modules[] = { { "vit_merger.layer_norm1", "v.vit_merger.ln1" },
                                        { "vit_merger.self_attn.q_proj", "v.vit_merger.attn_q" },
                                        { "vit_merger.self_attn.k_proj", "v.vit_merger.attn_k" },
                                        { "vit_merger.self_attn.v_proj", "v.vit_merger.attn_v" },
                                        { "vit_merger.self_attn.out_proj", "v.vit_merger.attn_out" },
                                        { "vit_merger.pre_norm", "v.vit_merger.ds_ln" },
                                        { "vit_merger.linear_1", "v.vit_merger.ds_ffn_up" },
                                        { "vit_merger.linear_2", "v.vit_merger.ds_ffn_down" },
                                        { "model.merger.mlp.0.pre_norm", "mm.input_norm" },
                                        { "model.merger.mlp.0.linear_1", "mm.up" },
                                        { "model.merger.mlp.0.linear_2", "mm.down" },
                                        { "resampler.kv_proj", "resampler.kv" },
                                        { "resampler.attn.in_proj_weight", "resampler.attn_qkv.weight" },
                                        { "resampler.attn.in_proj_bias", "resampler.attn_qkv.bias" },
                                        { "resampler.attn.out_proj", "resampler.attn.out" },
                                        { "resampler.proj", "resampler.proj.weight" },
                                        { "resampler.", "resampler." } };
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const char *at = strstr(hf, modules[i].hf);
        if (!at) continue;
        snprintf(out, bytes, "%s%s", modules[i].gguf, at + strlen(modules[i].hf));
        return true;
    }
    return false;
}

/* False: the tensor is not the tower's. */
static bool gguf_name(const eyes_gguf *f, const char *hf, int run, char *out, size_t bytes) {
    if (strncmp(hf, "thinker.", 8) == 0) hf += 8;
    const char *layer = strstr(hf, "layers.");
    if (!layer) layer = strstr(hf, "blocks.");
    if (!layer) layer = strstr(hf, ".layer.");
    const char *dot = layer ? strchr(layer + 7, '.') : NULL, *deep = strstr(hf, "merger_list.");
    if (!strstr(hf, "visual.") && (strncmp(hf, "model.layers.", 13) == 0 || strstr(hf, "embed_tokens"))) return false;
    if (deep) { /* by the layer: 0 and 2 */
        static const char *const ours[][2] = { { "norm", "norm" },      { "ln_q", "norm" }, { "linear_fc1", "fc1" },
                                               { "linear_fc2", "fc2" }, { "mlp.0", "fc1" }, { "mlp.2", "fc2" } };
        const char              *what = strchr(deep + 12, '.') + 1;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
            size_t n = strlen(ours[i][0]);
            if (strncmp(what, ours[i][0], n) == 0)
                snprintf(out, bytes, "v.deepstack.%d.%s%s", 2 * atoi(deep + 12), ours[i][1], what + n);
        }
        return true;
    }
    if (strncmp(hf, "llm.", 4) == 0) return false;
    if (merger_name(hf, out, bytes)) return true;
    if (strstr(hf, "language_model") || strstr(hf, "text_model") || strncmp(hf, "lm_head", 7) == 0) return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].hf) - 1;
        if (names[i].hf[0] != '#' && ends(hf, names[i].hf)) {
            snprintf(out, bytes, "%s", own_name(f, names[i].gguf));
            return true;
        }
        if (names[i].hf[0] == '#' && dot && strncmp(dot + 1, names[i].hf + 1, n) == 0 &&
            (dot[1 + n] == '.' || dot[1 + n] == '\0')) {
            if (atoi(layer + 7) >= run) return false; /* converters leave out what is not used */
            bool        first = strstr(hf, ".norm0.") || strstr(hf, ".fc0.");
            const char *own = first ? names[i].gguf : own_name(f, names[i].gguf);
            const char *rest = strncmp(dot + 1 + n, ".linear.", 8) == 0 ? dot + 8 + n : dot + 1 + n;
            snprintf(out, bytes, "v.blk.%d.%s%s", atoi(layer + 7), own, rest);
            return true;
        }
    }
    for (int i = 1; i <= 2; i++) {
        char module[64];
        snprintf(module, sizeof module, "%s.linear_%d",
                 strstr(hf, "vision_projection.") ? "vision_projection" : "multi_modal_projector", i);
        const char *at = strstr(hf, module);
        if (!at) continue;
        const char *second = strncmp(f->name, "internvl", 8) == 0 ? "mm.model.mlp.3" : "mm.2";
        snprintf(out, bytes, "%s%s", i == 1 ? f->first : second, at + strlen(module));
        return true;
    }
    return false;
}

static int number(const json_value *v, const char *key, int dflt) {
    int64_t x = dflt;
    (void)json_int(json_get(v, key), &x);
    return (int)x;
}

/* Of a square, which may be one number or two. */
static int side_of(const json_value *v, const char *key, int dflt) {
    int64_t x;
    return json_int(json_at(json_get(v, key), 0), &x) ? (int)x : number(v, key, dflt);
}

static int text_width(const json_value *config) {
    return number(json_get(config, "text_config"), "hidden_size", number(config, "hidden_size", 0));
}

/* Rows of a head: halves become pairs. */
static void permute(uint8_t *to, const uint8_t *from, int heads, int dim, size_t row) {
    for (int h = 0; h < heads; h++) {
        for (int i = 0; i < dim; i++)
            memcpy(to + (size_t)(h * dim + (i % (dim / 2)) * 2 + i / (dim / 2)) * row,
                   from + (size_t)(h * dim + i) * row, row);
    }
}

static void transpose(uint16_t *to, const uint16_t *from, int64_t n) {
    for (int64_t i = 0; i < n * n; i++) to[i % n * n + i / n] = from[i];
}

/* Of q and k in one tensor: pairs that columns and rows turn in turn; first all of those, then all of these. */
static void part(void *all, size_t row, int heads, int64_t rows) {
    int      n = (int)rows / 3 * 2, dim = (int)rows / 3 / heads;
    uint8_t *x = all, *from = malloc((size_t)n * row);
    memcpy(from, x, (size_t)n * row);
    for (int i = 0; i < n; i++) {
        int h = i / dim * dim, k = i % dim;
        memcpy(x + (size_t)(h + k / 2 % 2 * (dim / 2) + k / 4 * 2 + k % 2) * row, from + (size_t)i * row, row);
    }
    free(from);
}

static void add(gguf_writer *w, const char *name, int type, int n_dims, const int64_t *dims, const void *data,
                size_t bytes) {
    err e = { 0 };
    assert_int_equal(gguf_writer_add(w, name, type, n_dims, dims, data, bytes, &e), 0);
}

/* Of the 12B of Gemma 4: the channels of a patch apart, and places of columns in front of those of rows. */
static void turn_large_patches(float *to, const float *x, const model_tensor *t, const char *name, int64_t elems) {
    int64_t inner = t->dims[0], area = inner / 3, places = elems / inner / 2;
    bool    colours = strstr(name, "patch_embd.weight") || strstr(name, "patch_norm.1.");
    for (int64_t i = 0; i < elems; i++) {
        int64_t at = i % inner, row = i / inner;
        if (colours)
            to[row * inner + at % 3 * area + at / 3] = x[i];
        else if (strstr(name, "position"))
            to[(row % 2 * places + row / 2) * inner + at] = x[i];
        else
            to[i] = x[i];
    }
}

/* Of a kernel over two frames, [n][3][2][y][x], each frame's; of one with the channels last, [n][y][x][3]. */
static void add_patches(gguf_writer *w, const model_tensor *t, const char *name, const float *x, float *to) {
    if (t->n_dims == 5) {
        int64_t area = t->dims[0] * t->dims[1], n = t->dims[4], dims[] = { t->dims[0], t->dims[1], 3, n };
        for (int f = 0; f < 2; f++, to += n * 3 * area) {
            char own[128];
            for (int64_t r = 0; r < n * 3; r++)
                memcpy(to + r * area, x + (r * 2 + f) * area, (size_t)area * sizeof *to);
            snprintf(own, sizeof own, f ? "%s.1" : "%s", name);
            add(w, own, TENSOR_F32, 4, dims, to, (size_t)(n * 3 * area) * sizeof *to);
        }
        return;
    }
    int64_t n = t->dims[1], area = t->dims[0] / 3, side = 1;
    while (side * side < area) side++;
    for (int64_t i = 0; i < n * area * 3; i++) to[i / (area * 3) * area * 3 + i % 3 * area + i / 3 % area] = x[i];
    add(w, name, TENSOR_F32, 4, (int64_t[]){ side, side, 3, n }, to, (size_t)(n * area * 3) * sizeof *to);
}

/* q, k and v by themselves, as converters of Qwen 2.5 VL do it. */
static void add_split(gguf_writer *w, const model_tensor *t, const char *name, int type, const uint8_t *x,
                      size_t bytes) {
    static const char *const parts[] = { "attn_q", "attn_k", "attn_v" }, *const dots[] = { "attn.q", "attn.k",
                                                                                           "attn.v" };
    bool        resampler = strncmp(name, "resampler.", 10) == 0;
    int64_t     dims[2] = { t->dims[0], t->n_dims > 1 ? t->dims[1] / 3 : 0 };
    const char *at = strstr(name, "attn_qkv");
    if (t->n_dims == 1) dims[0] /= 3;
    for (size_t i = 0; i < 3; i++) {
        char own[96];
        snprintf(own, sizeof own, "%.*s%s%s", (int)(at - name), name, resampler ? dots[i] : parts[i], at + 8);
        add(w, own, type, t->n_dims, dims, x + i * (bytes / 3), bytes / 3);
    }
}

static void add_tensor(gguf_writer *w, const eyes_gguf *f, const model_tensor *t, const char *name,
                       const json_value *vc, void **keep) {
    int  heads = number(vc, "num_attention_heads", number(vc, "num_heads", 1)), n_dims = t->n_dims ? t->n_dims : 1;
    bool qkv = strstr(name, "attn_qkv") != NULL, apart = strcmp(f->name, "kimi_k25") == 0 && qkv;
    bool split = (strncmp(f->name, "qwen2", 5) == 0 || strcmp(f->name, "kimi_vl") == 0 || name[0] == 'r') && qkv;
    bool large = strcmp(f->name, "gemma4_unified") == 0;
    bool plain = strcmp(f->name, "llama4") == 0,
         kernel = strstr(name, "patch_embd.weight") && t->n_dims != 4 && !plain && !large;
    int64_t elems = 1;
    for (int i = 0; i < t->n_dims; i++) elems *= t->dims[i];
    if (t->n_dims <= 1 || strstr(name, "patch_embd") || strstr(name, "position")) { /* f32, as converters do it */
        float *x = malloc((size_t)elems * (kernel || large ? 2 : 1) * sizeof *x);
        for (int64_t i = 0; i < elems; i++) {
            x[i] = tensor_bf16_to_f32(((const uint16_t *)(const void *)t->data)[i]);
            if (strstr(name, "soft_emb_norm")) x[i] += 1;
        }
        if (apart) part(x, sizeof *x, heads, elems); /* a bias */
        *keep = x;
        if (strcmp(f->name, "hunyuan_vl") == 0 && strstr(name, "position")) { /* without the first, which nothing has */
            add(w, name, TENSOR_F32, 2, (int64_t[]){ t->dims[0], t->dims[1] - 1 }, x + t->dims[0],
                (size_t)(elems - t->dims[0]) * sizeof *x);
            return;
        }
        if (large) turn_large_patches(x + elems, x, t, name, elems);
        if (kernel)
            add_patches(w, t, name, x, x + elems);
        else if (split)
            add_split(w, t, name, TENSOR_F32, (const uint8_t *)x, (size_t)elems * sizeof *x);
        else if (t->n_dims == 3 && strcmp(f->name, "kimi_vl") == 0)
            add(w, name, TENSOR_F32, 2, (int64_t[]){ t->dims[0], t->dims[1] * t->dims[2] }, x,
                (size_t)elems * sizeof *x);
        else
            add(w, name, TENSOR_F32, n_dims,
                large && t->n_dims == 3 ? (int64_t[]){ t->dims[0], t->dims[2], 2 }
                : t->n_dims             ? t->dims
                                        : (int64_t[]){ 1 },
                large ? x + elems : x, (size_t)elems * sizeof *x);
        return;
    }
    uint8_t *x = malloc(t->bytes);
    memcpy(x, t->data, t->bytes);
    if (apart) part(x, (size_t)t->dims[0] * 2, heads, t->dims[1]);
    if (strcmp(name, "resampler.proj.weight") == 0)
        transpose((uint16_t *)(void *)x, (const uint16_t *)(const void *)t->data, t->dims[0]);
    if (f->permuted && !apart && (strstr(name, "attn_q") || strstr(name, "attn_k")))
        permute(x, t->data, heads, (int)t->dims[1] / heads, (size_t)t->dims[0] * 2);
    *keep = x;
    if (split)
        add_split(w, t, name, t->type, x, t->bytes);
    else
        add(w, name, t->type, t->n_dims, t->dims, x, t->bytes);
}

static void set(gguf_writer *w, const char *key, int64_t value) {
    char full[96];
    snprintf(full, sizeof full, "clip.vision.%s", key);
    assert_int_equal(gguf_writer_set_int(w, full, META_U32, value, NULL), 0);
}

static size_t n_taps(const json_value *vc) { return json_count(json_get(vc, "deepstack_visual_indexes")); }

int eyes_gguf_width(const model_file *m) {
    const json_value *config = source_outer(m);
    return text_width(config) * (1 + (int)n_taps(json_get(config, "vision_config")));
}

static void set_qwen(gguf_writer *w, const eyes_gguf *f, const json_value *vc) {
    bool exaone = strcmp(f->name, "exaone4_5") == 0, second = exaone || strncmp(f->name, "qwen2_5", 7) == 0;
    if (exaone) set(w, "attention.head_count_kv", number(vc, "num_key_value_heads", 0));
    set(w, "spatial_merge_size", number(vc, "spatial_merge_size", 0));
    if (second) {
        set(w, "n_wa_pattern", 2); /* the second layer sees everything */
        set(w, "window_size", number(vc, "window_size", 0));
    } else if (n_taps(vc)) {
        const bool deep[] = { true, false, true };
        assert_int_equal(gguf_writer_set_array(w, "clip.vision.is_deepstack_layers", META_BOOL, deep,
                                               (size_t)number(vc, "depth", 0), NULL),
                         0);
    }
}

static void set_grids(gguf_writer *w, const json_value *config) {
    const json_value *grids = json_get(config, "image_grid_pinpoints"),
                     *taps = json_get(config, "vision_feature_layer");
    int32_t flat[16], layers[4];
    size_t  n = 2 * json_count(grids);
    int64_t x = 0;
    assert_true(n <= 16);
    for (size_t i = 0; i < n; i++) {
        assert_true(json_int(json_at(json_at(grids, i / 2), i % 2), &x));
        flat[i] = (int32_t)x;
    }
    assert_int_equal(gguf_writer_set_array(w, "clip.vision.image_grid_pinpoints", META_I32, flat, n, NULL), 0);
    if (!json_is(taps, JSON_K_ARRAY)) return;
    for (size_t i = 0; i < json_count(taps); i++) { /* converters count from the front */
        assert_true(json_int(json_at(taps, i), &x));
        layers[i] = (int32_t)(x + 1 + number(json_get(config, "vision_config"), "num_hidden_layers", 0));
    }
    assert_int_equal(gguf_writer_set_array(w, "clip.vision.feature_layer", META_I32, layers, json_count(taps), NULL),
                     0);
}

static void set_keys(gguf_writer *w, const eyes_gguf *f, const json_value *config, const json_value *pre, int run) {
    const json_value *vc = json_get(config, "vision_config");
    const char *const lists[] = { "image_mean", "image_std" };
    bool              eps = json_get(vc, "layer_norm_eps") != NULL, paddle = strcmp(f->name, "paddleocr_vl") == 0;
    double            x = 1e-5;
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "clip", NULL), 0);
    bool sounds = strcmp(f->name, "qwen3_omni_moe") == 0; /* a file that says it of pictures and of sounds */
    assert_int_equal(
        gguf_writer_set_string(w, sounds ? "clip.vision.projector_type" : "clip.projector_type", f->projector, NULL),
        0);
    set(w, "block_count", run);
    set(w, "embedding_length", number(vc, "embed_dim", number(vc, "hidden_size", number(vc, "mm_embed_dim", 0))));
    set(w, "feed_forward_length",
        number(vc, "intermediate_size",
               strcmp(f->name, "janus") ? 32 : 56)); /* Qwen 2 VL: the language model's width */
    set(w, "attention.head_count", number(vc, "num_attention_heads", number(vc, "num_heads", 0)));
    set(w, "patch_size", side_of(vc, "patch_size", 0));
    set(w, "image_size", paddle ? 137 : side_of(vc, "image_size", 4 * number(vc, "patch_size", 0))); /* Qwen 3 VL: 16 */
    set(w, "projection_dim", text_width(config));
    if (eps) (void)json_number(json_get(vc, "layer_norm_eps"), &x);
    if (strncmp(f->name, "gemma4", 6) == 0) x = 1e-6;
    if (strcmp(f->name, "hunyuan_vl") == 0) {
        set(w, "image_size", number(vc, "max_image_size", 0));
        set(w, "spatial_merge_size", number(vc, "spatial_merge_size", 0));
    }
    if (paddle || strcmp(f->name, "hunyuan_vl") == 0) { /* Paddle: image_size is the root of the largest area there */
        set(w, "image_min_pixels", number(pre, "min_pixels", 0));
        set(w, "image_max_pixels", number(pre, "max_pixels", 0));
    }
    assert_int_equal(gguf_writer_set_real(w, "clip.vision.attention.layer_norm_epsilon", META_F32, x, NULL), 0);
    if (strcmp(f->name, "idefics3") == 0) {
        set(w, "projector.scale_factor", number(config, "scale_factor", 0));
        set(w, "preproc_image_size", number(json_get(pre, "size"), "longest_edge", 0));
    }
    if (strcmp(f->name, "llama4") == 0 || strcmp(f->name, "lfm2_vl") == 0 || strncmp(f->name, "kimi", 4) == 0)
        set(w, "projector.scale_factor", 2);
    if (strcmp(f->name, "minicpmv") == 0) { /* published ones do not say how wide the rows are */
        set(w, "projection_dim", 0);
        set(w, "image_size", number(pre, "scale_resolution", 0));
        assert_int_equal(gguf_writer_set_int(w, "clip.minicpmv_version", META_I32, 3, NULL), 0);
        assert_int_equal(
            gguf_writer_set_int(w, "clip.minicpmv_query_num", META_U32, number(config, "query_num", 0), NULL), 0);
    }
    if (strcmp(f->name, "minicpmv4_6") == 0) {
        const int32_t after = number(config, "insert_layer_id", 0);
        set(w, "projector.scale_factor", 4);
        set(w, "image_size", number(pre, "scale_resolution", 0));
        assert_int_equal(gguf_writer_set_array(w, "clip.vision.wa_layer_indexes", META_I32, &after, 1, NULL), 0);
    }
    if (json_get(config, "image_grid_pinpoints")) set_grids(w, config);
    if (strncmp(f->name, "internvl", 8) == 0) {
        set(w, "projector.scale_factor", 2);
        set(w, "preproc_max_tiles", 6);
    }
    if (strcmp(f->name, "gemma3") == 0) set(w, "projector.scale_factor", 2); /* 4 x 4 patches, 2 x 2 tokens */
    if (strcmp(f->name, "gemma4_unified") == 0) set(w, "projector.scale_factor", number(vc, "pooling_kernel_size", 0));
    if (strcmp(f->name, "mistral3") == 0 || strcmp(f->name, "lighton_ocr") == 0)
        set(w, "spatial_merge_size", number(config, "spatial_merge_size", 0));
    if (strncmp(f->name, "qwen", 4) == 0 || strcmp(f->name, "exaone4_5") == 0) set_qwen(w, f, vc);
    if (strcmp(f->name, "pixtral") == 0 || strcmp(f->name, "mistral3") == 0) /* the activation is the family's there */
        assert_true(json_cstr(json_get(vc, "hidden_act")) != NULL);
    for (int i = 0; i < 2; i++) {
        float  values[3];
        double v = 0;
        char   key[64];
        for (size_t k = 0; k < 3; k++) {
            (void)json_number(json_at(json_get(pre, lists[i]), k), &v);
            values[k] = (float)v;
        }
        snprintf(key, sizeof key, "clip.vision.%s", lists[i]);
        assert_int_equal(gguf_writer_set_array(w, key, META_F32, values, 3, NULL), 0);
    }
}

static const json_value *read_preprocessor(const model_file *m, arena *mem) {
    const json_value *pre = NULL;
    char             *path = model_file_sidecar(m, "preprocessor_config.json"), *text;
    size_t            n;
    err               e = { 0 };
    assert_non_null(path);
    assert_int_equal(file_read(&text, &n, path, 1 << 20, &e), 0);
    assert_int_equal(json_parse(&pre, text, n, mem, &e), 0);
    free(text);
    free(path);
    return pre;
}

void eyes_gguf_write(const eyes_gguf *f, const model_file *m, const char *path) {
    const json_value *config = source_outer(m), *vc = json_get(config, "vision_config");
    size_t            n = model_file_tensor_count(m);
    void            **kept = calloc(n, sizeof *kept);
    int          run = number(vc, "num_hidden_layers", number(vc, "depth", 0)) - (strncmp(f->name, "llava", 5) == 0);
    gguf_writer *w;
    char         name[96];
    arena        mem;
    err          e = { 0 };
    arena_init(&mem, 0);
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    set_keys(w, f, config, read_preprocessor(m, &mem), run);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (gguf_name(f, t->name, run, name, sizeof name)) add_tensor(w, f, t, name, vc, &kept[i]);
    }
    int rc = gguf_writer_write(w, path, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    gguf_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
    arena_deinit(&mem);
}

/* --- a tower inside --- */

/* What Ollama's converter makes of a name of Llama 4. */
static bool ollama_name(const char *hf, char *out, size_t bytes) {
    static const name_row parts[] = {
        { "vision_model.model.layers.", "v.blk." }, { "vision_model.", "v." },
        { "multi_modal_projector.", "mm." },        { "patch_embedding.linear", "patch_embedding" },
        { "self_attn.q_proj", "attn_q" },           { "self_attn.k_proj", "attn_k" },
        { "self_attn.v_proj", "attn_v" },           { "self_attn.o_proj", "attn_output" },
        { "input_layernorm", "attn_norm" },         { "post_attention_layernorm", "ffn_norm" }
    };
    if (strstr(hf, "language_model")) return false;
    snprintf(out, bytes, "%s", hf);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *at = strstr(out, parts[i].hf), rest[96];
        if (!at) continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(parts[i].hf));
        snprintf(at, bytes - (size_t)(at - out), "%s%s", parts[i].gguf, rest);
    }
    return true;
}

void eyes_gguf_write_inside(const model_file *m, const char *path) {
    static const char *const keys[][2] = { { "block_count", "num_hidden_layers" },
                                           { "embedding_length", "hidden_size" },
                                           { "feed_forward_length", "intermediate_size" },
                                           { "attention.head_count", "num_attention_heads" },
                                           { "image_size", "image_size" },
                                           { "patch_size", "patch_size" } };
    const eyes_gguf          f = { "llama4", NULL, NULL, false };
    const json_value        *vc = json_get(model_file_config(m), "vision_config");
    size_t                   n = model_file_tensor_count(m);
    void                   **kept = calloc(n, sizeof *kept);
    gguf_writer             *w;
    char                     name[96];
    err                      e = { 0 };
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "llama4", NULL), 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        snprintf(name, sizeof name, "llama4.vision.%s", keys[i][0]);
        assert_int_equal(gguf_writer_set_int(w, name, META_U32, number(vc, keys[i][1], 0), NULL), 0);
    }
    assert_int_equal(gguf_writer_set_real(w, "llama4.vision.layer_norm_epsilon", META_F32, 1e-5, NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "llama4.vision.rope.freq_base", META_F32, 1e4, NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "llama4.vision.pixel_shuffle_ratio", META_F32, 0.5, NULL), 0);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (ollama_name(t->name, name, sizeof name)) add_tensor(w, &f, t, name, vc, &kept[i]);
    }
    int rc = gguf_writer_write(w, path, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    gguf_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
}
