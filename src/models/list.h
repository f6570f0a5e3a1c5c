/* SPDX-License-Identifier: Apache-2.0 */
/* Every model family of this build. */
#ifndef MODELS_LIST_H
#define MODELS_LIST_H

#include "nn/nn.h"

extern const nn_arch *const models_list[]; /* ends with NULL */

/* Towers and projectors: parts of models that see or hear. */
extern const nn_arch models_siglip, models_clip, models_pixtral_tower, models_qwen2_vl_tower, models_qwen2_5_vl_tower,
    models_qwen3_vl_tower, models_gemma4_tower, models_whisper_tower, models_gemma4_ears, models_gemma4_ears_conv[2],
    models_internvl_tower, models_internvl_chat_tower, models_siglip_inner, models_janus_tower;
extern const nn_arch models_projector_gemma3, models_projector_llava, models_projector_idefics3,
    models_projector_mistral3, models_projector_qwen2_vl, models_projector_qwen2_5_vl, models_projector_qwen3_vl,
    models_projector_gemma4, models_projector_voxtral, models_projector_gemma4_ears, models_projector_internvl,
    models_projector_aya, models_projector_cohere2, models_projector_llava_next, models_projector_vipllava,
    models_projector_janus, models_projector_deepseek_vl;

/* A head that goes on from another model's inner states. */
extern const nn_arch models_eagle3;

#endif
