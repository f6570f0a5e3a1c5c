/* SPDX-License-Identifier: Apache-2.0 */
#include "vision/family.h"

extern const vision_family vision_gemma3, vision_llava, vision_idefics3, vision_pixtral, vision_qwen2, vision_qwen2_5,
    vision_qwen3, vision_gemma4, vision_gemma4_patches, vision_glm, vision_paddleocr, vision_video_llama, vision_exaone,
    vision_ernie, vision_internvl, vision_internvl_chat, vision_aya, vision_cohere2, vision_llava_next,
    vision_llava_onevision, vision_lighton, vision_vipllava, vision_llama4, vision_lfm2, vision_kimi_vl,
    vision_kimi_k25, vision_minicpmv, vision_minicpmv_2, vision_janus, vision_deepseek_vl, vision_hunyuan,
    vision_qianfan, vision_ovis, vision_paligemma, vision_granite4;

const vision_family *const vision_families[VISION_KINDS] = {
    [VISION_GEMMA3] = &vision_gemma3,
    [VISION_LLAVA] = &vision_llava,
    [VISION_IDEFICS3] = &vision_idefics3,
    [VISION_PIXTRAL] = &vision_pixtral,
    [VISION_QWEN2] = &vision_qwen2,
    [VISION_QWEN2_5] = &vision_qwen2_5,
    [VISION_QWEN3] = &vision_qwen3,
    [VISION_GEMMA4] = &vision_gemma4,
    [VISION_GEMMA4_PATCHES] = &vision_gemma4_patches,
    [VISION_GLM] = &vision_glm,
    [VISION_PADDLEOCR] = &vision_paddleocr,
    [VISION_VIDEO_LLAMA] = &vision_video_llama,
    [VISION_EXAONE] = &vision_exaone,
    [VISION_ERNIE] = &vision_ernie,
    [VISION_INTERNVL] = &vision_internvl,
    [VISION_INTERNVL_CHAT] = &vision_internvl_chat,
    [VISION_AYA] = &vision_aya,
    [VISION_COHERE2] = &vision_cohere2,
    [VISION_LLAVA_NEXT] = &vision_llava_next,
    [VISION_LLAVA_ONEVISION] = &vision_llava_onevision,
    [VISION_LIGHTON] = &vision_lighton,
    [VISION_VIPLLAVA] = &vision_vipllava,
    [VISION_JANUS] = &vision_janus,
    [VISION_DEEPSEEK_VL] = &vision_deepseek_vl,
    [VISION_LLAMA4] = &vision_llama4,
    [VISION_LFM2] = &vision_lfm2,
    [VISION_KIMI_VL] = &vision_kimi_vl,
    [VISION_KIMI_K25] = &vision_kimi_k25,
    [VISION_MINICPMV] = &vision_minicpmv,
    [VISION_MINICPMV_2] = &vision_minicpmv_2,
    [VISION_HUNYUAN] = &vision_hunyuan,
    [VISION_QIANFAN] = &vision_qianfan,
    [VISION_OVIS2] = &vision_ovis,
    [VISION_PALIGEMMA] = &vision_paligemma,
    [VISION_GRANITE4] = &vision_granite4,
};

const vision_colours vision_colours_none = { { 0, 0, 0 }, { 1, 1, 1 } };
const vision_colours vision_colours_half = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
const vision_colours vision_colours_clip = { { 0.48145466f, 0.4578275f, 0.40821073f },
                                             { 0.26862954f, 0.26130258f, 0.27577711f } };
const vision_colours vision_colours_imagenet = { { 0.485f, 0.456f, 0.406f }, { 0.229f, 0.224f, 0.225f } };
