/* SPDX-License-Identifier: Apache-2.0 */
/* Every model family of this build. */
#ifndef MODELS_LIST_H
#define MODELS_LIST_H

#include "nn/nn.h"

extern const nn_arch *const models_list[]; /* ends with NULL */

/* Parts of models that see: towers and projectors, a line for each kind of pictures. */
extern const nn_arch models_siglip, models_projector_gemma3, models_projector_idefics3;
extern const nn_arch models_clip, models_projector_llava;
extern const nn_arch models_pixtral_tower, models_projector_mistral3;
extern const nn_arch models_qwen2_vl_tower, models_projector_qwen2_vl;
extern const nn_arch models_qwen2_5_vl_tower, models_projector_qwen2_5_vl;
extern const nn_arch models_qwen3_vl_tower, models_projector_qwen3_vl;
extern const nn_arch models_gemma4_tower, models_projector_gemma4;
extern const nn_arch models_gemma4_patches, models_projector_gemma4_patches;
extern const nn_arch models_glm_tower, models_projector_glm;
extern const nn_arch models_siglip_any, models_projector_paddleocr;
extern const nn_arch models_ernie_tower, models_projector_ernie;
extern const nn_arch models_internvl_tower, models_internvl_chat_tower, models_projector_internvl;
extern const nn_arch models_siglip_inner, models_projector_aya, models_projector_cohere2;
extern const nn_arch models_projector_llava_next, models_projector_vipllava;
extern const nn_arch models_ovis_tower, models_ovis_head, models_projector_ovis;
extern const nn_arch models_hunyuan_tower, models_hunyuan_merger, models_projector_hunyuan;
extern const nn_arch models_janus_tower, models_projector_janus, models_projector_deepseek_vl;
extern const nn_arch models_projector_paligemma;

/* Of models that hear. */
extern const nn_arch models_whisper_tower, models_projector_voxtral;
extern const nn_arch models_whisper_pooled, models_whisper_windows, models_projector_ears_pooled;
extern const nn_arch models_glmasr_tower, models_projector_ears_stacked;
extern const nn_arch models_projector_ears_norm, models_projector_ears_double;
extern const nn_arch models_qwen3_ears, models_qwen3_ears_conv[3], models_projector_ears_single;
extern const nn_arch models_gemma4_ears, models_gemma4_ears_conv[2], models_projector_gemma4_ears;
extern const nn_arch models_gemma3n_ears, models_gemma3n_ears_conv[2], models_projector_gemma3n_ears[2];
extern const nn_arch models_projector_ultravox;
extern const nn_arch models_whisper_ears;

extern const nn_arch models_llama4_tower, models_projector_llama4, models_siglip2, models_projector_lfm2,
    models_moonvit, models_projector_moonvit, models_minicpmv_tower, models_minicpmv_rest, models_projector_minicpmv,
    models_resampler, models_window_qformer_asked, models_window_qformer;

/* A head that goes on from another model's inner states. */
extern const nn_arch models_eagle3;

#endif
