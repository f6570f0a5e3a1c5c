/* SPDX-License-Identifier: Apache-2.0 */
#include "vision/family.h"

extern const vision_family vision_gemma3, vision_llava, vision_idefics3, vision_pixtral, vision_qwen2, vision_qwen2_5,
    vision_qwen3, vision_gemma4, vision_llama4, vision_lfm2, vision_kimi_vl, vision_kimi_k25, vision_minicpmv,
    vision_minicpmv_2;

const vision_family *const vision_families[VISION_KINDS] = {
    [VISION_GEMMA3] = &vision_gemma3,     [VISION_LLAVA] = &vision_llava,
    [VISION_IDEFICS3] = &vision_idefics3, [VISION_PIXTRAL] = &vision_pixtral,
    [VISION_QWEN2] = &vision_qwen2,       [VISION_QWEN2_5] = &vision_qwen2_5,
    [VISION_QWEN3] = &vision_qwen3,       [VISION_GEMMA4] = &vision_gemma4,
    [VISION_LLAMA4] = &vision_llama4,     [VISION_LFM2] = &vision_lfm2,
    [VISION_KIMI_VL] = &vision_kimi_vl,   [VISION_KIMI_K25] = &vision_kimi_k25,
    [VISION_MINICPMV] = &vision_minicpmv, [VISION_MINICPMV_2] = &vision_minicpmv_2,
};

const vision_colours vision_colours_half = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
const vision_colours vision_colours_clip = { { 0.48145466f, 0.4578275f, 0.40821073f },
                                             { 0.26862954f, 0.26130258f, 0.27577711f } };
