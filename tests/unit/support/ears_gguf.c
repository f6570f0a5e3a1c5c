/* SPDX-License-Identifier: Apache-2.0 */
/* How published converters name and order the tensors of the golden models that hear. */
#include "unit/support/ears_gguf.h"

#include "convert/gguf_writer.h"
#include "tensor/half.h"
#include "unit/support/support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = EARS_GGUF_WIDTH, MELS = 16, TABLE = 120 };

#define NO_EDITS                                                                                                       \
    {                                                                                                                  \
        { NULL }                                                                                                       \
    }

const ears_gguf ears_gguf_families[] = {
    { "voxtral", "voxtral", "clip.projector_type", NO_EDITS, false, false, 4, 128 },
    { "qwen2_audio", "qwen2a", "clip.projector_type", NO_EDITS, false, false, 0, 0 },
    { "audioflamingo3", "musicflamingo", "clip.audio.projector_type", NO_EDITS, false, false, 0, 0 },
    { "qwen2_5_omni",
      "qwen2.5o",
      "clip.projector_type",
      { { "\"n_window\": 6,", "\"n_window\": 100," },
        { "\"max_source_positions\": 20,", "\"max_source_positions\": 100," } },
      true,
      false,
      0,
      0 },
    { "qwen3_asr",
      "qwen3a",
      "clip.audio.projector_type",
      { { "\"n_window_infer\": 200,", "\"n_window_infer\": 800," } },
      true,
      false,
      0,
      0 },
    { "qwen3_omni_moe",
      "qwen3a",
      "clip.audio.projector_type",
      { { "\"n_window_infer\": 100,", "\"n_window_infer\": 800," } },
      true,
      true,
      0,
      0 },
};
const size_t    ears_gguf_count = sizeof ears_gguf_families / sizeof *ears_gguf_families;
const ears_gguf ears_gguf_ultravox = {
    "ultravox", "ultravox", "clip.audio.projector_type", NO_EDITS, false, false, 8, 0
};

/* --- kin of Whisper --- */

typedef struct name_row {
    const char *hf, *gguf;
} name_row;

static const name_row whole[] = { { "audio_tower.conv1.", "a.conv1d.1." },
                                  { "audio_tower.conv2.", "a.conv1d.2." },
                                  { "audio_tower.conv2d1.", "a.conv2d.1." },
                                  { "audio_tower.conv2d2.", "a.conv2d.2." },
                                  { "audio_tower.conv2d3.", "a.conv2d.3." },
                                  { "audio_tower.conv_out.", "a.conv_out." },
                                  { "audio_tower.embed_positions.", "a.position_embd." },
                                  { "audio_tower.layer_norm.", "a.post_ln." },
                                  { "audio_tower.ln_post.", "a.post_ln." },
                                  { "audio_tower.proj1.", "mm.a.mlp.1." },
                                  { "audio_tower.proj2.", "mm.a.mlp.2." },
                                  { "audio_tower.proj.", "mm.a.fc." },
                                  { "multi_modal_projector.linear_1.", "mm.a.mlp.1." },
                                  { "multi_modal_projector.linear_2.", "mm.a.mlp.2." },
                                  { "multi_modal_projector.linear.", "mm.a.fc." },
                                  { "multi_modal_projector.ln_pre.", "mm.a.norm_pre." },
                                  { "multi_modal_projector.ln_mid.", "mm.a.norm_mid." } };
static const name_row leaves[] = { { "self_attn_layer_norm.", "ln1." },
                                   { "final_layer_norm.", "ln2." },
                                   { "self_attn.q_proj.", "attn_q." },
                                   { "self_attn.k_proj.", "attn_k." },
                                   { "self_attn.v_proj.", "attn_v." },
                                   { "self_attn.out_proj.", "attn_out." },
                                   { "fc1.", "ffn_up." },
                                   { "fc2.", "ffn_down." } };

static bool gguf_name(const char *hf, char *out, size_t bytes) {
    static const char tower[] = "audio_tower.layers.";
    if (strncmp(hf, "thinker.", 8) == 0) hf += 8;
    if (strncmp(hf, "model.", 6) == 0) hf += 6;
    bool        layer = strncmp(hf, tower, sizeof tower - 1) == 0;
    const char *leaf = layer ? strchr(hf + sizeof tower - 1, '.') + 1 : hf;
    for (size_t i = 0; i < (layer ? sizeof leaves : sizeof whole) / sizeof *whole; i++) {
        const name_row *r = layer ? &leaves[i] : &whole[i];
        if (strncmp(leaf, r->hf, strlen(r->hf)) != 0) continue;
        if (layer)
            snprintf(out, bytes, "a.blk.%d.%s%s", atoi(hf + sizeof tower - 1), r->gguf, leaf + strlen(r->hf));
        else
            snprintf(out, bytes, "%s%s", r->gguf, leaf + strlen(r->hf));
        return true;
    }
    return false;
}

/* As converters do it: vectors, convolutions and positions as f32, biases of convolutions with dimensions of one in
 * front. */
static void add_tensor(gguf_writer *w, const model_tensor *t, const char *name, void **keep) {
    int64_t elems = 1, dims[MODEL_MAX_DIMS] = { 1, 1, 1, 1 };
    bool    conv = strstr(name, ".conv1d.") || strstr(name, ".conv2d."), place = strstr(name, "position_embd");
    int     n_dims = t->n_dims, more = conv && t->n_dims == 1 ? strstr(name, ".conv2d.") ? 2 : 1 : 0;
    err     e = { 0 };
    memcpy(dims + more, t->dims, (size_t)t->n_dims * sizeof *dims);
    for (int i = 0; i < t->n_dims; i++) elems *= t->dims[i];
    if (t->type != TENSOR_BF16 || (t->n_dims == 2 && !place)) {
        assert_int_equal(gguf_writer_add(w, name, t->type, n_dims + more, dims, t->data, t->bytes, &e), 0);
        return;
    }
    float *x = *keep = malloc((size_t)elems * sizeof *x);
    for (int64_t i = 0; i < elems; i++) x[i] = tensor_bf16_to_f32(((const uint16_t *)(const void *)t->data)[i]);
    assert_int_equal(gguf_writer_add(w, name, TENSOR_F32, n_dims + more, dims, x, (size_t)elems * sizeof *x, &e), 0);
}

/* In rows of the tower's width, or of a part of it. */
static void add_sines(gguf_writer *w, void **keep, int n, int parts) {
    int64_t dims[2] = { WIDTH / parts, n * parts };
    size_t  bytes = sizeof(float) * WIDTH * (size_t)n;
    float  *x = *keep = malloc(bytes);
    err     e = { 0 };
    for (int p = 0; p < n; p++) {
        for (int k = 0; k < WIDTH / 2; k++) {
            double angle = p * exp(-log(10000) / (WIDTH / 2 - 1) * k);
            x[p * WIDTH + k] = (float)sin(angle);
            x[p * WIDTH + WIDTH / 2 + k] = (float)cos(angle);
        }
    }
    assert_int_equal(gguf_writer_add(w, "a.position_embd.weight", TENSOR_F32, 2, dims, x, bytes, &e), 0);
}

static const char position_count[] = "clip.audio.position_count";

/* swap: a key that gets another value. So many positions come in rows that are too short and too many. */
static const char stack_factor[] = "clip.audio.projector.stack_factor";

void ears_gguf_write(const ears_gguf *f, const model_file *m, const char *path, const char *swap, int64_t value) {
    const struct {
        const char *key;
        int64_t     value;
    } ints[] = { { "clip.audio.block_count", 2 },
                 { "clip.audio.embedding_length", WIDTH },
                 { "clip.audio.feed_forward_length", f->ff ? f->ff : 64 },
                 { "clip.audio.attention.head_count", 4 },
                 { "clip.audio.num_mel_bins", MELS },
                 { "clip.audio.projection_dim", WIDTH } };
    size_t       n = model_file_tensor_count(m);
    void       **kept = calloc(n + 1, sizeof *kept);
    gguf_writer *w;
    char         name[160];
    err          e = { 0 };
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "clip", NULL), 0);
    assert_int_equal(gguf_writer_set_string(w, f->key, f->projector, NULL), 0);
    if (f->eyes) assert_int_equal(gguf_writer_set_string(w, "clip.vision.projector_type", "qwen3vl_merger", NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "clip.audio.attention.layer_norm_epsilon", META_F32, 1e-5, NULL), 0);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        bool other = swap && strcmp(swap, ints[i].key) == 0;
        assert_int_equal(gguf_writer_set_int(w, ints[i].key, META_U32, other ? value : ints[i].value, NULL), 0);
    }
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (gguf_name(t->name, name, sizeof name)) add_tensor(w, t, name, &kept[i]);
    }
    bool odd = swap && strcmp(swap, position_count) == 0;
    if (odd) assert_int_equal(gguf_writer_set_int(w, position_count, META_U32, value, NULL), 0);
    if (f->sines) add_sines(w, &kept[n], odd ? (int)value : TABLE, odd ? 8 : 1);
    if (f->stack) {
        int64_t stack = swap && strcmp(swap, stack_factor) == 0 ? value : f->stack;
        assert_int_equal(gguf_writer_set_int(w, stack_factor, META_U32, stack, &e), 0);
    }
    assert_int_equal(gguf_writer_write(w, path, &e), 0);
    gguf_writer_free(w);
    for (size_t i = 0; i <= n; i++) free(kept[i]);
    free(kept);
}

/* --- Gemma 4 --- */

static const name_row gemma4_whole[] = { { "subsample_conv_projection.layer0.conv.", "a.conv1d.0." },
                                         { "subsample_conv_projection.layer1.conv.", "a.conv1d.1." },
                                         { "subsample_conv_projection.layer0.norm.", "a.conv1d.0.norm." },
                                         { "subsample_conv_projection.layer1.norm.", "a.conv1d.1.norm." },
                                         { "subsample_conv_projection.input_proj_linear.", "a.input_projection." },
                                         { "output_proj.", "a.pre_encode.out." } };
static const name_row gemma4_leaves[] = { { "feed_forward1.pre_layer_norm.", "ffn_norm." },
                                          { "feed_forward1.post_layer_norm.", "ffn_post_norm." },
                                          { "feed_forward1.ffw_layer_1.", "ffn_up." },
                                          { "feed_forward1.ffw_layer_2.", "ffn_down." },
                                          { "feed_forward2.pre_layer_norm.", "ffn_norm_1." },
                                          { "feed_forward2.post_layer_norm.", "ffn_post_norm_1." },
                                          { "feed_forward2.ffw_layer_1.", "ffn_up_1." },
                                          { "feed_forward2.ffw_layer_2.", "ffn_down_1." },
                                          { "norm_pre_attn.", "attn_pre_norm." },
                                          { "norm_post_attn.", "attn_post_norm." },
                                          { "norm_out.", "ln2." },
                                          { "self_attn.q_proj.", "attn_q." },
                                          { "self_attn.k_proj.", "attn_k." },
                                          { "self_attn.v_proj.", "attn_v." },
                                          { "self_attn.post.", "attn_out." },
                                          { "self_attn.relative_k_proj.", "attn_k_rel." },
                                          { "self_attn.per_dim_scale", "per_dim_scale.weight" },
                                          { "lconv1d.pre_layer_norm.",
                                            "conv_norm." }, /* converters exchange these two */
                                          { "lconv1d.conv_norm.", "norm_conv." },
                                          { "lconv1d.linear_start.", "conv_pw1." },
                                          { "lconv1d.linear_end.", "conv_pw2." },
                                          { "lconv1d.depthwise_conv1d.", "conv_dw." } };

static bool gemma4_name(const char *hf, char *out, size_t bytes) {
    static const char tower[] = "model.audio_tower.", projector[] = "model.embed_audio.embedding_projection.";
    char              plain[160];
    if (strncmp(hf, projector, sizeof projector - 1) == 0) {
        snprintf(out, bytes, "mm.a.input_projection.%s", hf + sizeof projector - 1);
        return true;
    }
    if (strncmp(hf, tower, sizeof tower - 1) != 0) return false;
    snprintf(plain, sizeof plain, "%s", hf + sizeof tower - 1);
    char *wrapped = strstr(plain, ".linear.");
    if (wrapped) memmove(wrapped, wrapped + 7, strlen(wrapped + 7) + 1);
    bool        layer = strncmp(plain, "layers.", 7) == 0;
    const char *leaf = layer ? strchr(plain + 7, '.') + 1 : plain;
    for (size_t i = 0; i < (layer ? sizeof gemma4_leaves : sizeof gemma4_whole) / sizeof *gemma4_whole; i++) {
        const name_row *r = layer ? &gemma4_leaves[i] : &gemma4_whole[i];
        if (strncmp(leaf, r->hf, strlen(r->hf)) != 0) continue;
        if (layer)
            snprintf(out, bytes, "a.blk.%d.%s%s", atoi(plain + 7), r->gguf, leaf + strlen(r->hf));
        else
            snprintf(out, bytes, "%s%s", r->gguf, leaf + strlen(r->hf));
        return true;
    }
    return false;
}

/* As converters do it: vectors and convolutions as f32, numbers as vectors of one, scales behind softplus. */
static void add_gemma4(gguf_writer *w, const model_tensor *t, const char *name, void **keep) {
    int64_t elems = 1, dims[MODEL_MAX_DIMS];
    bool    conv = strstr(name, "conv_dw"), wide = t->n_dims <= 1 || strstr(name, "conv");
    int     n_dims = t->n_dims ? t->n_dims : 1;
    err     e = { 0 };
    memcpy(dims, t->dims, sizeof dims);
    for (int i = 0; i < t->n_dims; i++) elems *= t->dims[i];
    if (t->n_dims == 0) dims[0] = 1;
    if (conv) { /* [channel][1][tap] loses the one */
        dims[1] = t->dims[2];
        n_dims = 2;
    }
    assert_int_equal(t->type, TENSOR_BF16);
    if (!wide || t->n_dims == 2) {
        assert_int_equal(gguf_writer_add(w, name, t->type, n_dims, dims, t->data, t->bytes, &e), 0);
        return;
    }
    float *x = *keep = malloc((size_t)elems * sizeof *x);
    for (int64_t i = 0; i < elems; i++) {
        x[i] = tensor_bf16_to_f32(((const uint16_t *)(const void *)t->data)[i]);
        if (strstr(name, "per_dim_scale")) x[i] = log1pf(expf(x[i]));
    }
    assert_int_equal(gguf_writer_add(w, name, TENSOR_F32, n_dims, dims, x, (size_t)elems * sizeof *x, &e), 0);
}

/* swap: a key that gets another value. */
void ears_gguf_write_gemma4(const model_file *m, const char *path, const char *swap, int64_t value) {
    static const struct {
        const char *key;
        int64_t     value;
    } ints[] = { { "clip.audio.block_count", 2 },           { "clip.audio.embedding_length", 32 },
                 { "clip.audio.feed_forward_length", 128 }, { "clip.audio.attention.head_count", 2 },
                 { "clip.audio.num_mel_bins", 16 },         { "clip.audio.projection_dim", 32 } };
    size_t       n = model_file_tensor_count(m);
    void       **kept = calloc(n, sizeof *kept);
    gguf_writer *w;
    char         name[160];
    err          e = { 0 };
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "clip", NULL), 0);
    assert_int_equal(gguf_writer_set_string(w, "clip.audio.projector_type", "gemma4a", NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "clip.audio.attention.layer_norm_epsilon", META_F32, 1e-3, NULL), 0);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++) {
        bool other = swap && strcmp(swap, ints[i].key) == 0;
        assert_int_equal(gguf_writer_set_int(w, ints[i].key, META_U32, other ? value : ints[i].value, NULL), 0);
    }
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        if (gemma4_name(t->name, name, sizeof name)) add_gemma4(w, t, name, &kept[i]);
    }
    assert_int_equal(gguf_writer_write(w, path, &e), 0);
    gguf_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
}

/* Gemma 4 12B has no encoder: its mmproj file says that there are no layers, and has one matrix for sounds. Without it
 * where a row has no samples. */
void ears_gguf_write_samples(const model_file *m, const char *path, int64_t samples, int64_t width) {
    static const char *const none[] = { "block_count", "attention.head_count", "feed_forward_length" };
    const model_tensor      *t = model_file_tensor(m, "model.embed_audio.embedding_projection.weight");
    gguf_writer             *w;
    char                     key[96];
    err                      e = { 0 };
    assert_non_null(t);
    assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
    assert_int_equal(gguf_writer_set_string(w, "general.architecture", "clip", NULL), 0);
    assert_int_equal(gguf_writer_set_string(w, "clip.audio.projector_type", "gemma4ua", NULL), 0);
    assert_int_equal(gguf_writer_set_real(w, "clip.audio.attention.layer_norm_epsilon", META_F32, 1e-5, NULL), 0);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        snprintf(key, sizeof key, "clip.audio.%s", none[i]);
        assert_int_equal(gguf_writer_set_int(w, key, META_U32, 0, NULL), 0);
    }
    assert_int_equal(gguf_writer_set_int(w, "clip.audio.embedding_length", META_U32, t->dims[0], NULL), 0);
    assert_int_equal(gguf_writer_set_int(w, "clip.audio.projection_dim", META_U32, width, NULL), 0);
    int64_t dims[2] = { samples, t->dims[1] };
    if (samples)
        assert_int_equal(gguf_writer_add(w, "mm.a.input_projection.weight", t->type, 2, dims, t->data,
                                         t->bytes / (size_t)t->dims[0] * (size_t)samples, &e),
                         0);
    assert_int_equal(gguf_writer_write(w, path, &e), 0);
    gguf_writer_free(w);
}
