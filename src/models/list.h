/* SPDX-License-Identifier: Apache-2.0 */
/* Every model family of this build. */
#ifndef MODELS_LIST_H
#define MODELS_LIST_H

#include "nn/nn.h"

extern const nn_arch *const models_list[]; /* ends with NULL */

/* Towers and projectors: parts of models that see or hear. */
extern const nn_arch models_siglip, models_clip, models_pixtral_tower, models_qwen2_vl_tower, models_qwen2_5_vl_tower,
    models_qwen3_vl_tower, models_gemma4_tower, models_whisper_tower, models_gemma4_ears, models_gemma4_ears_conv[2];
extern const nn_arch models_projector_gemma3, models_projector_llava, models_projector_idefics3,
    models_projector_mistral3, models_projector_qwen2_vl, models_projector_qwen2_5_vl, models_projector_qwen3_vl,
    models_projector_gemma4, models_projector_voxtral, models_projector_gemma4_ears;

extern const nn_arch models_llama4_tower, models_projector_llama4, models_siglip2, models_projector_lfm2,
    models_moonvit, models_projector_moonvit, models_minicpmv_tower, models_minicpmv_rest, models_projector_minicpmv,
    models_resampler;

/* A head that goes on from another model's inner states. */
extern const nn_arch models_eagle3;

#endif
