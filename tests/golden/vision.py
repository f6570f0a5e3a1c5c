#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tiny reference models that see, and what they make of small pictures.

For every family: a config.json and preprocessor_config.json in the style of the published checkpoints, random weights
saved as bf16 safetensors, loaded again as float32 and run on the CPU with eager attention. Pictures have odd sizes: one
is three times as wide as high, one is a patch or less, and all are scaled up or down.

  vision.py OUT [FAMILY ...]

OUT receives vision.tar.gz:
  pictures/NAME.png, resize.json, resize.u8     pictures, and what Pillow's resize makes of them
  FAMILY/config.json, preprocessor_config.json, model.safetensors
  FAMILY/golden.json   cases: pictures, tokens, sizes and where the values begin in the files below
  FAMILY/pixels.u8     what the image processor (the one that uses Pillow) hands to the tower, before mean and deviation:
                       [height][width][3] each; tv_max of a case says how far the one that uses torchvision is from it
  FAMILY/rows.f32      the rows that take the place of the image tokens; deepstack rows behind them
  FAMILY/logits.f32    of the last positions
A case's "words" are what the processor puts in the place of each picture's placeholder.
"""

import os
import sys

for _k, _v in {"CUDA_VISIBLE_DEVICES": "", "USE_HUB_KERNELS": "NO", "HF_HUB_OFFLINE": "1",
               "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}.items():
    os.environ[_k] = _v

import inspect
import json
import random
import shutil
import tarfile
import tempfile
import traceback

import numpy as np
import torch
from PIL import Image

import generate
import torchvision_pillow
import vision_more
import vision_tiles

VOCAB = 160
IMAGE = 150  # the image token
LAST = 8  # positions whose logits are kept

PICTURES = {"a": (37, 23), "b": (90, 30), "c": (13, 14), "d": (61, 100)}  # width, height
CASES = [["a"], ["b"], ["c"], ["d", "a"]]


def picture(name):
    """Smooth colours with some noise and an edge, so that filters show their shape."""
    w, h = PICTURES[name]
    rng = np.random.default_rng(len(name) + 7 * ord(name[0]))
    y, x = np.mgrid[0:h, 0:w].astype(np.float64)
    px = np.stack([127 + 120 * np.sin(x / 5 + y / 9), 255 * x / max(1, w - 1), 255 * (1 - y / max(1, h - 1))], -1)
    px += rng.normal(0, 12, px.shape)
    px[h // 3 : h // 2, w // 4 : w // 2] = [250, 10, 60]
    return Image.fromarray(np.clip(np.round(px), 0, 255).astype(np.uint8), "RGB")


TEXT = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "head_dim": 16, "vocab_size": VOCAB, "max_position_embeddings": 512,
        "tie_word_embeddings": False}

SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_channels": 3, "image_size": 56, "patch_size": 14,
          "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": False}

HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
CLIP_NORM = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
USUAL = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255}

FAMILIES = {}


def family(name, config, processor, cls, **more):
    FAMILIES[name] = dict(config=config, processor=processor, cls=cls, **more)


family("gemma3", {
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "image_token_index": IMAGE,
    "boi_token_index": 151, "eoi_token_index": 152, "mm_tokens_per_image": 4, "tie_word_embeddings": True,
    "text_config": dict(TEXT, model_type="gemma3_text", sliding_window=12, query_pre_attn_scalar=16, rms_norm_eps=1e-6,
                        layer_types=["sliding_attention", "full_attention"],
                        tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh", rope_theta=1000000.0,
                        rope_local_base_freq=10000.0),
    "vision_config": SIGLIP,
}, dict(USUAL, **HALF, image_processor_type="Gemma3ImageProcessor", size={"height": 56, "width": 56}, resample=2),
    "Gemma3ImageProcessor", per_image=4)

family("llava", {
    "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": IMAGE,
    "image_token_id": IMAGE, "projector_hidden_act": "gelu", "vision_feature_layer": -2,
    "vision_feature_select_strategy": "default", "image_seq_length": 16, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="llama", rms_norm_eps=1e-5),
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 64,
                      "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 56, "patch_size": 14,
                      "projection_dim": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5},
}, dict(USUAL, **CLIP_NORM, image_processor_type="CLIPImageProcessor", do_center_crop=True,
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}, do_convert_rgb=True, resample=3),
    "CLIPImageProcessor", per_image=16)

family("idefics3", {
    "architectures": ["Idefics3ForConditionalGeneration"], "model_type": "idefics3", "image_token_id": IMAGE,
    "scale_factor": 2, "tie_word_embeddings": False, "pad_token_id": 2,
    "text_config": dict(TEXT, model_type="llama", rms_norm_eps=1e-5, pad_token_id=2),
    "vision_config": {"model_type": "idefics3_vision", "hidden_size": 32, "intermediate_size": 64,
                      "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8,
                      "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}, dict(USUAL, **HALF, image_processor_type="Idefics3ImageProcessor", do_convert_rgb=True, do_image_splitting=True,
        do_pad=True, size={"longest_edge": 64}, max_image_size={"longest_edge": 32}, resample=1),
    "Idefics3ImageProcessor", per_tile=4)

PIXTRAL = {"model_type": "pixtral", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
           "num_attention_heads": 2, "head_dim": 16, "num_channels": 3, "image_size": 112, "patch_size": 14,
           "hidden_act": "silu", "rope_theta": 10000.0, "attention_dropout": 0.0}

family("mistral3", {
    "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "image_token_index": IMAGE,
    "image_token_id": IMAGE, "multimodal_projector_bias": False, "projector_hidden_act": "gelu",
    "spatial_merge_size": 2, "vision_feature_layer": -1, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="mistral", rms_norm_eps=1e-5, sliding_window=None),
    "vision_config": PIXTRAL,
}, dict(USUAL, **CLIP_NORM, image_processor_type="PixtralImageProcessor", patch_size=28, size={"longest_edge": 112},
        do_convert_rgb=True, resample=3), "PixtralImageProcessor", cell=28)

family("pixtral", {
    "architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "image_token_index": IMAGE,
    "image_token_id": IMAGE, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full", "image_seq_length": 1, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="mistral", rms_norm_eps=1e-5, sliding_window=None),
    "vision_config": dict(PIXTRAL, image_size=64, patch_size=16, hidden_act="gelu"),
}, dict(USUAL, **CLIP_NORM, image_processor_type="PixtralImageProcessor", patch_size={"height": 16, "width": 16},
        size={"longest_edge": 64}, do_convert_rgb=True, resample=3), "PixtralImageProcessor", cell=16)

family("qwen2_5_vl", {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "image_token_id": IMAGE,
    "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="qwen2_5_vl_text", rms_norm_eps=1e-6, hidden_act="silu",
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}),
    "vision_config": {"model_type": "qwen2_5_vl", "hidden_size": 32, "intermediate_size": 56, "depth": 3, "num_heads": 2,
                      "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
                      "window_size": 56, "fullatt_block_indexes": [1], "out_hidden_size": 32, "hidden_act": "silu",
                      "tokens_per_second": 2},
}, dict(USUAL, **CLIP_NORM, image_processor_type="Qwen2VLImageProcessor", min_pixels=4 * 784, max_pixels=24 * 784,
        size={"shortest_edge": 4 * 784, "longest_edge": 24 * 784}, patch_size=14, temporal_patch_size=2, merge_size=2,
        do_convert_rgb=True, resample=3), "Qwen2VLImageProcessor")

family("qwen2_vl", {  # the text's part lies beside vision_config, as in the published files
    "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "image_token_id": IMAGE,
    "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152,
    **dict(TEXT, rms_norm_eps=1e-6, hidden_act="silu", rope_theta=10000.0,
           rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]}),
    "vision_config": {"model_type": "qwen2_vl", "depth": 3, "embed_dim": 48, "hidden_size": 32, "mlp_ratio": 2, "num_heads": 2,
                      "in_chans": 3, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
                      "temporal_patch_size": 2},
}, FAMILIES["qwen2_5_vl"]["processor"], "Qwen2VLImageProcessor")

family("qwen3_vl", {
    "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "image_token_id": IMAGE,
    "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="qwen3_vl_text", rms_norm_eps=1e-6, hidden_act="silu",
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2],
                                         "mrope_interleaved": True}),
    "vision_config": {"model_type": "qwen3_vl", "hidden_size": 32, "intermediate_size": 56, "depth": 3, "num_heads": 2,
                      "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
                      "out_hidden_size": 32, "hidden_act": "gelu_pytorch_tanh", "num_position_embeddings": 16,
                      "deepstack_visual_indexes": [0, 2]},
}, dict(USUAL, **HALF, image_processor_type="Qwen2VLImageProcessorFast", patch_size=16, temporal_patch_size=2,
        merge_size=2, size={"shortest_edge": 4 * 1024, "longest_edge": 16 * 1024}, min_pixels=4 * 1024,
        max_pixels=16 * 1024, do_convert_rgb=True, resample=3), "Qwen2VLImageProcessor")

family("gemma4", {
    "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "image_token_id": IMAGE,
    "boi_token_id": 151, "eoi_token_id": 152, "audio_token_id": 154, "boa_token_id": 155, "video_token_id": 156,
    "tie_word_embeddings": True, "vision_soft_tokens_per_image": 70, "audio_config": None,
    "text_config": dict(TEXT, model_type="gemma4_text", sliding_window=96, rms_norm_eps=1e-6, tie_word_embeddings=True,
                        layer_types=["sliding_attention", "full_attention"],
                        hidden_activation="gelu_pytorch_tanh", hidden_size_per_layer_input=0,
                        vocab_size_per_layer_input=VOCAB, num_kv_shared_layers=0, global_head_dim=32,
                        use_bidirectional_attention="vision", enable_moe_block=False, attention_k_eq_v=False,
                        final_logit_softcapping=30.0,
                        rope_parameters={"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                                                            "rope_type": "proportional"},
                                         "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}),
    "vision_config": {"model_type": "gemma4_vision", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
                      "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "patch_size": 4,
                      "pooling_kernel_size": 3, "position_embedding_size": 128, "use_clipped_linears": True,
                      "standardize": True, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh"},
}, dict(image_processor_type="Gemma4ImageProcessor", do_resize=True, do_rescale=True, do_normalize=False,
        rescale_factor=1 / 255, patch_size=4, max_soft_tokens=70, pooling_kernel_size=3, resample=3,
        image_mean=[0.0, 0.0, 0.0], image_std=[1.0, 1.0, 1.0]), "Gemma4ImageProcessor")


family("qwen3_5", {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "image_token_id": IMAGE,
    "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="qwen3_5_text", rms_norm_eps=1e-6, hidden_act="silu", head_dim=32,
                        num_hidden_layers=4, attn_output_gate=True, attention_bias=False, linear_conv_kernel_dim=4,
                        linear_key_head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4,
                        linear_value_head_dim=16, full_attention_interval=4, partial_rotary_factor=0.5,
                        layer_types=["linear_attention", "linear_attention", "linear_attention", "full_attention"],
                        mamba_ssm_dtype="float32",
                        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5,
                                         "mrope_section": [4, 2, 2], "mrope_interleaved": True}),
    "vision_config": {"model_type": "qwen3_5", "hidden_size": 32, "intermediate_size": 56, "depth": 2, "num_heads": 2,
                      "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2,
                      "out_hidden_size": 32, "hidden_act": "gelu_pytorch_tanh", "num_position_embeddings": 16,
                      "deepstack_visual_indexes": []},
}, FAMILIES["qwen3_vl"]["processor"], "Qwen2VLImageProcessor")

E2B = json.loads(json.dumps(FAMILIES["gemma4"]["config"]))  # per-layer inputs, shared keys, pictures seen in order
E2B["text_config"].update(num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2,
                          hidden_size_per_layer_input=16, num_kv_shared_layers=2, use_bidirectional_attention=None,
                          use_double_wide_mlp=True)
E2B["vision_config"].update(standardize=False)
family("gemma4_e", E2B, dict(FAMILIES["gemma4"]["processor"], max_soft_tokens=70), "Gemma4ImageProcessor")

GLM_TEXT = dict(TEXT, model_type="glm4v_text", rms_norm_eps=1e-5, hidden_act="silu", attention_bias=True,
                partial_rotary_factor=0.5, rope_theta=10000.0,
                rope_scaling={"rope_type": "default", "mrope_section": [1, 2, 1]})
GLM_TOWER = {"model_type": "glm4v", "hidden_size": 32, "depth": 2, "num_heads": 2, "attention_bias": False,
             "intermediate_size": 56, "hidden_act": "silu", "in_channels": 3, "image_size": 56, "patch_size": 14,
             "out_hidden_size": 32, "rms_norm_eps": 1e-5, "spatial_merge_size": 2, "temporal_patch_size": 2}
GLM_PICTURES = dict(USUAL, **CLIP_NORM, image_processor_type="Glm4vImageProcessor", patch_size=14, temporal_patch_size=2,
                    merge_size=2, size={"shortest_edge": 8 * 784, "longest_edge": 48 * 784}, do_convert_rgb=True, resample=3)
GLM = {"architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v", "image_token_id": IMAGE,
       "video_token_id": 153, "image_start_token_id": 151, "image_end_token_id": 152, "video_start_token_id": 154,
       "video_end_token_id": 155, "tie_word_embeddings": False, "text_config": GLM_TEXT, "vision_config": GLM_TOWER}
family("glm4v", GLM, GLM_PICTURES, "Glm4vImageProcessor")
family("glm4v_moe", dict(GLM, architectures=["Glm4vMoeForConditionalGeneration"], model_type="glm4v_moe",
                         text_config=dict(GLM_TEXT, model_type="glm4v_moe_text", n_routed_experts=4, num_experts_per_tok=2,
                                          n_shared_experts=1, moe_intermediate_size=24, first_k_dense_replace=1, n_group=1,
                                          topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, use_qk_norm=False),
                         vision_config=dict(GLM_TOWER, model_type="glm4v_moe")), GLM_PICTURES, "Glm4vImageProcessor")
family("glm_ocr", dict(GLM, architectures=["GlmOcrForConditionalGeneration"], model_type="glm_ocr",
                       text_config=dict(GLM_TEXT, model_type="glm_ocr_text", attention_bias=False,
                                        partial_rotary_factor=1.0, num_nextn_predict_layers=1,
                                        rope_scaling={"rope_type": "default", "mrope_section": [2, 3, 3]}),
                       vision_config=dict(GLM_TOWER, model_type="glm_ocr_vision", attention_bias=True)),
       GLM_PICTURES, "Glm4vImageProcessor")


family("paddleocr_vl", {
    "architectures": ["PaddleOCRVLForConditionalGeneration"], "model_type": "paddleocr_vl", "image_token_id": IMAGE,
    "video_token_id": 153, "vision_start_token_id": 151, "vision_end_token_id": 152, "tie_word_embeddings": False,
    **dict(TEXT, rms_norm_eps=1e-5, hidden_act="silu", use_bias=False, rope_theta=500000.0,
           rope_scaling={"type": "default", "rope_type": "default", "mrope_section": [2, 3, 3]}),
    "vision_config": {"model_type": "paddleocr_vl", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2,
                      "num_attention_heads": 2, "num_channels": 3, "image_size": 56, "patch_size": 14,
                      "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "spatial_merge_size": 2},
}, dict(USUAL, **HALF, image_processor_type="PaddleOCRVLImageProcessor", min_pixels=4 * 784, max_pixels=24 * 784,
        size={"shortest_edge": 4 * 784, "longest_edge": 24 * 784}, patch_size=14, temporal_patch_size=1, merge_size=2,
        do_convert_rgb=True, resample=3), "PaddleOCRVLImageProcessor")

family("video_llama_3", {
    "architectures": ["VideoLlama3ForConditionalGeneration"], "model_type": "video_llama_3", "image_token_id": IMAGE,
    "video_token_id": 153, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="qwen2", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0),
    "vision_config": {"model_type": "video_llama_3_vision", "hidden_size": 32, "intermediate_size": 56,
                      "num_hidden_layers": 2, "num_attention_heads": 2, "num_channels": 3, "patch_size": 14,
                      "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6},
}, dict(USUAL, **HALF, image_processor_type="VideoLlama3ImageProcessor", min_pixels=784, max_pixels=6 * 784,
        size={"shortest_edge": 784, "longest_edge": 6 * 784}, patch_size=14, temporal_patch_size=1, merge_size=1,
        do_convert_rgb=True, resample=3), "VideoLlama3ImageProcessor")


family("exaone4_5", {
    "architectures": ["Exaone4_5_ForConditionalGeneration"], "model_type": "exaone4_5", "image_token_id": IMAGE,
    "video_token_id": 153, "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="exaone4_5_text", rms_norm_eps=1e-5, hidden_act="silu", sliding_window=12,
                        sliding_window_pattern="LG", layer_types=["sliding_attention", "full_attention"],
                        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "vision_config": dict(FAMILIES["qwen2_5_vl"]["config"]["vision_config"], model_type="exaone4_5_vision",
                          num_key_value_heads=1),
}, FAMILIES["qwen2_5_vl"]["processor"], "Qwen2VLImageProcessor")
del FAMILIES["exaone4_5"]["config"]["vision_config"]["tokens_per_second"]


# The 12B, without a tower: a square of patches is one large patch. Its processor exists for torchvision only, and is Gemma 4's but for that.
UNIFIED = json.loads(json.dumps(FAMILIES["gemma4"]["config"]))
UNIFIED.update(architectures=["Gemma4UnifiedForConditionalGeneration"], model_type="gemma4_unified")
UNIFIED["text_config"].update(model_type="gemma4_unified_text")
for _k in ("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block"):
    del UNIFIED["text_config"][_k]
UNIFIED["vision_config"] = {"model_type": "gemma4_unified_vision", "patch_size": 4, "pooling_kernel_size": 3, "mm_embed_dim": 32,
                            "mm_posemb_size": 80, "output_proj_dims": 32, "rms_norm_eps": 1e-6}
family("gemma4_unified", UNIFIED, FAMILIES["gemma4"]["processor"], "Gemma4ImageProcessor")


def large_patches(spec, pictures):
    """What the model gets of pictures that were scaled: squares of patches, [y][x][channel], with their column and row."""
    side = spec["processor"]["patch_size"] * spec["processor"]["pooling_kernel_size"]
    most = spec["processor"]["max_soft_tokens"]
    px = torch.zeros(len(pictures), most, 3 * side * side)
    pos = torch.full((len(pictures), most, 2), -1, dtype=torch.long)
    for i, image in enumerate(pictures):
        x = torch.from_numpy(image.astype(np.float32) / 255)
        h, w = x.shape[0] // side, x.shape[1] // side
        px[i, : h * w] = x.view(h, side, w, side, 3).permute(0, 2, 1, 3, 4).reshape(h * w, -1)
        pos[i, : h * w] = torch.tensor([[k % w, k // w] for k in range(h * w)])
    return {"pixel_values": px, "image_position_ids": pos}


family("ernie4_5_vl_moe", {
    "architectures": ["Ernie4_5_VLMoeForConditionalGeneration"], "model_type": "ernie4_5_vl_moe", "image_token_id": IMAGE,
    "image_start_token_id": 151, "image_end_token_id": 152, "video_token_id": 153, "video_start_token_id": 154,
    "video_end_token_id": 155, "tie_word_embeddings": True,
    "text_config": dict(TEXT, model_type="ernie4_5_vl_moe_text", num_hidden_layers=3, rms_norm_eps=1e-5, hidden_act="silu",
                        use_bias=False, moe_k=2, moe_num_experts=4, moe_num_shared_experts=1, moe_intermediate_size=[24, 16],
                        mlp_layer_types=["dense", "sparse", "sparse"], tie_word_embeddings=True,
                        rope_parameters={"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [3, 3, 2]}),
    "vision_config": {"model_type": "ernie4_5_vl_moe_vision", "depth": 2, "hidden_size": 16, "hidden_act": "quick_gelu",
                      "num_heads": 2, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_merge_size": 2,
                      "intermediate_size": 40, "rms_norm_eps": 1e-6},
}, dict(USUAL, **CLIP_NORM, image_processor_type="Ernie4_5_VLMoeImageProcessor", size={"shortest_edge": 4 * 784,
        "longest_edge": 24 * 784}, patch_size=14, temporal_patch_size=1, merge_size=2, do_convert_rgb=True, resample=3),
    "Ernie4_5_VLMoeImageProcessor")

# Models that speak, too: the part that sees is the thinker's; what hears is left out.
OMNI_EARS = {"activation_function": "gelu", "d_model": 32, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "encoder_layers": 1,
             "num_mel_bins": 16, "max_source_positions": 16, "scale_embedding": False, "n_window": 6, "output_dim": 32}
family("qwen2_5_omni", {
    "architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni", "enable_audio_output": False,
    "thinker_config": {
        "architectures": ["Qwen2OmniNaViTThinkerForConditionalGeneration"], "model_type": "qwen2_5_omni_thinker",
        "audio_token_index": 153, "image_token_index": IMAGE, "video_token_index": 154, "audio_start_token_id": 155,
        "audio_end_token_id": 156, "vision_start_token_id": 151, "vision_end_token_id": 152, "vision_token_id": 157,
        "position_id_per_seconds": 25, "seconds_per_chunk": 2, "user_token_id": 9, "audio_config": dict(
            OMNI_EARS, model_type="qwen2_5_omni_audio_encoder"),
        "vision_config": dict(FAMILIES["qwen2_5_vl"]["config"]["vision_config"], model_type="qwen2_5_omni_vision_encoder",
                              depth=2),
        "text_config": dict(TEXT, model_type="qwen2_5_omni_text", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0,
                            use_sliding_window=False, rope_scaling={"mrope_section": [2, 3, 3], "rope_type": "default",
                                                                    "type": "default"}),
    },
}, FAMILIES["qwen2_5_vl"]["processor"], "Qwen2VLImageProcessor", thinker="Qwen2_5Omni")

family("qwen3_omni_moe", {
    "architectures": ["Qwen3OmniMoeForConditionalGeneration"], "model_type": "qwen3_omni_moe", "enable_audio_output": False,
    "thinker_config": {
        "model_type": "qwen3_omni_moe_thinker", "audio_token_id": 153, "image_token_id": IMAGE, "video_token_id": 154,
        "audio_start_token_id": 155, "audio_end_token_id": 156, "vision_start_token_id": 151, "vision_end_token_id": 152,
        "position_id_per_seconds": 13, "user_token_id": 9,
        "audio_config": dict(OMNI_EARS, model_type="qwen3_omni_moe_audio_encoder", n_window=50, n_window_infer=100,
                             downsample_hidden_size=8),
        "vision_config": dict(FAMILIES["qwen3_vl"]["config"]["vision_config"], model_type="qwen3_omni_moe_vision_encoder",
                              depth=2, deepstack_visual_indexes=[0], hidden_size=16),
        "text_config": dict(TEXT, model_type="qwen3_omni_moe_text", rms_norm_eps=1e-6, hidden_act="silu", num_experts=4,
                            num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1,
                            mlp_only_layers=[], rope_theta=1000000.0,
                            rope_scaling={"mrope_interleaved": True, "interleaved": True, "mrope_section": [4, 2, 2],
                                          "rope_type": "default", "type": "default"}),
    },
}, FAMILIES["qwen3_vl"]["processor"], "Qwen2VLImageProcessor", thinker="Qwen3OmniMoe")


def owner_of(spec, outdir):
    """The class that sees, and its part of config.json."""
    import transformers
    from transformers import AutoConfig

    if "thinker" not in spec:
        return getattr(transformers, spec["config"]["architectures"][0]), AutoConfig.from_pretrained(outdir)
    cls = getattr(transformers, spec["thinker"] + "ThinkerForConditionalGeneration")
    return cls, cls.config_class(**json.loads(json.dumps(spec["config"]["thinker_config"])))


def load_again(spec, cls, config, outdir):
    """As published files name it, thinker's tensors have its name in front."""
    more = dict(dtype=torch.float32, attn_implementation="eager", output_loading_info=True, experts_implementation="eager")
    if "thinker" not in spec:
        model, info = cls.from_pretrained(outdir, **more)
    else:
        tmp = tempfile.mkdtemp()
        config.save_pretrained(tmp)
        inner = {k[len("thinker."):]: v for k, v in generate.st_read(os.path.join(outdir, "model.safetensors")).items()}
        generate.st_write(os.path.join(tmp, "model.safetensors"), inner, {"format": "pt"})
        model, info = cls.from_pretrained(tmp, **more)
        shutil.rmtree(tmp)
        info["missing_keys"] = [k for k in info["missing_keys"] if not k.startswith("audio_tower.")]
    if info.get("missing_keys") or info.get("unexpected_keys"):
        raise ValueError(f"loading again: {info}")
    return model


IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
QWEN2 = {k: v for k, v in TEXT.items() if k != "head_dim"}
INTERN = {"model_type": "internvl_vision", "architectures": ["InternVLVisionModel"], "attention_bias": True,
          "attention_dropout": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "hidden_size": 32,
          "image_size": [32, 32], "initializer_factor": 0.1, "initializer_range": 1e-10, "intermediate_size": 64,
          "layer_norm_eps": 1e-6, "layer_scale_init_value": 0.1, "norm_type": "layer_norm", "num_attention_heads": 2,
          "num_channels": 3, "num_hidden_layers": 2, "patch_size": [8, 8], "projection_dropout": 0.0,
          "use_absolute_position_embeddings": True, "use_mask_token": False, "use_mean_pooling": True,
          "use_qk_norm": False}
GOT = dict(USUAL, **IMAGENET, image_processor_type="GotOcr2ImageProcessorFast", crop_to_patches=False, min_patches=1,
           max_patches=6, size={"height": 32, "width": 32}, do_convert_rgb=True, resample=3)

INTERN_WORDS = ("InternVLProcessor", {"image_seq_length": 4, "start_image_token": "<img>", "end_image_token": "</img>",
                                      "image_token": "<IMG_CONTEXT>"})

family("internvl", {
    "architectures": ["InternVLForConditionalGeneration"], "model_type": "internvl", "image_token_id": IMAGE,
    "downsample_ratio": 0.5, "image_seq_length": 4, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
    "vision_feature_select_strategy": "default", "tie_word_embeddings": False,
    "text_config": dict(QWEN2, model_type="qwen2", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0),
    "vision_config": INTERN,
}, GOT, "GotOcr2ImageProcessor", per_tile=4, tiles=True, call={"crop_to_patches": True}, words=INTERN_WORDS)

family("internvl_6b", {  # as the large towers: RMS norms, norms of queries and keys
    **FAMILIES["internvl"]["config"],
    "text_config": dict(TEXT, model_type="qwen3", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0),
    "vision_config": dict(INTERN, attention_bias=False, norm_type="rms_norm", use_qk_norm=True),
}, GOT, "GotOcr2ImageProcessor", per_tile=4, tiles=True, call={"crop_to_patches": True}, words=INTERN_WORDS)


COHERE2 = dict(TEXT, model_type="cohere2", layer_norm_eps=1e-5, logit_scale=0.25, rope_theta=50000.0, sliding_window=12,
               hidden_act="silu", layer_types=["sliding_attention", "full_attention"], tie_word_embeddings=True)
COHERE2.pop("head_dim")
TILED_SIGLIP = dict(SIGLIP, image_size=32, patch_size=8)

family("aya_vision", {
    "architectures": ["AyaVisionForConditionalGeneration"], "model_type": "aya_vision", "image_token_index": IMAGE,
    "downsample_factor": 2, "alignment_intermediate_size": 56, "adapter_layer_norm_eps": 1e-6,
    "vision_feature_layer": -1, "vision_feature_select_strategy": "full", "text_config": COHERE2,
    "vision_config": TILED_SIGLIP,
}, dict(GOT, **HALF), "GotOcr2ImageProcessor", per_tile=4, tiles=True, call={"crop_to_patches": True},
    words=("AyaVisionProcessor", {"patch_size": 16, "img_size": 32, "start_of_img_token": "<|START_OF_IMG|>",
                                  "end_of_img_token": "<|END_OF_IMG|>", "img_patch_token": "<|IMG_PATCH|>",
                                  "tile_token": "TILE", "tile_global_token": "TILE_GLOBAL"}))

family("cohere2_vision", {
    "architectures": ["Cohere2VisionForConditionalGeneration"], "model_type": "cohere2_vision",
    "image_token_id": IMAGE, "downsample_factor": 2, "alignment_intermediate_size": 56, "text_config": COHERE2,
    "vision_config": TILED_SIGLIP,
}, dict(GOT, **HALF, image_processor_type="Cohere2VisionImageProcessorFast", crop_to_patches=True),
    "GotOcr2ImageProcessor", per_tile=4, tiles=True, canvas="cohere2_vision",
    words=("Cohere2VisionProcessor", {"patch_size": 2, "boi_token": "<|START_OF_IMG|>", "image_token": "<|IMG_PATCH|>",
                                      "eoi_token": "<|END_OF_IMG|>", "img_line_break_token": "<|IMG_LINE_BREAK|>"}))


NEXT = {"architectures": ["LlavaNextForConditionalGeneration"], "model_type": "llava_next", "image_token_index": IMAGE,
        "projector_hidden_act": "gelu", "vision_feature_layer": -2, "vision_feature_select_strategy": "default",
        "image_grid_pinpoints": [[28, 56], [56, 28], [56, 56], [84, 28], [28, 84]], "tie_word_embeddings": False,
        "text_config": dict(TEXT, model_type="llama", rms_norm_eps=1e-5),
        "vision_config": dict(FAMILIES["llava"]["config"]["vision_config"], image_size=28, patch_size=7)}
NEXT_PRE = dict(USUAL, **CLIP_NORM, image_processor_type="LlavaNextImageProcessor", do_center_crop=True, do_pad=True,
                size={"shortest_edge": 28}, crop_size={"height": 28, "width": 28}, do_convert_rgb=True, resample=3,
                image_grid_pinpoints=NEXT["image_grid_pinpoints"])
NEXT_WORDS = ("LlavaNextProcessor", {"patch_size": 7, "num_additional_image_tokens": 1, "image_token": "<image>",
                                     "vision_feature_select_strategy": "default"})
family("llava_next", NEXT, NEXT_PRE, "LlavaNextImageProcessor", tiles=True, words=NEXT_WORDS)

family("llava_next_video", {**NEXT, "architectures": ["LlavaNextVideoForConditionalGeneration"],
                            "model_type": "llava_next_video", "video_token_index": 153, "spatial_pool_mode": "average",
                            "spatial_pool_stride": 2}, NEXT_PRE, "LlavaNextImageProcessor", tiles=True, cases=[["b"]])

GRANITE = {k: v for k, v in TEXT.items() if k != "head_dim"}
family("granite_vision", {  # LLaVA-NeXT over several layers of SigLIP
    **NEXT, "vision_feature_layer": [-3, -2, -1], "vision_feature_select_strategy": "full",
    "text_config": dict(GRANITE, model_type="granite", rms_norm_eps=1e-5, attention_multiplier=0.25,
                        embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22, rope_theta=300000),
    "vision_config": dict(SIGLIP, num_hidden_layers=3, image_size=28, patch_size=7),
}, dict(NEXT_PRE, **HALF), "LlavaNextImageProcessor", tiles=True,
    words=(NEXT_WORDS[0], dict(NEXT_WORDS[1], num_additional_image_tokens=0, vision_feature_select_strategy="full")))

PINPOINTS = [[28 * h, 28 * w] for h in range(1, 4) for w in range(1, 4)]
family("llava_onevision", {
    "architectures": ["LlavaOnevisionForConditionalGeneration"], "model_type": "llava_onevision",
    "image_token_index": IMAGE, "video_token_index": 153, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
    "vision_feature_select_strategy": "full", "image_grid_pinpoints": PINPOINTS, "tie_word_embeddings": False,
    "vision_aspect_ratio": "anyres_max_2",
    "text_config": dict(QWEN2, model_type="qwen2", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0),
    "vision_config": dict(SIGLIP, image_size=28, patch_size=7),
}, dict(USUAL, **HALF, image_processor_type="LlavaOnevisionImageProcessor", do_pad=True, do_convert_rgb=True, resample=3,
        size={"height": 28, "width": 28}, image_grid_pinpoints=PINPOINTS), "LlavaOnevisionImageProcessor", tiles=True,
    words=("LlavaOnevisionProcessor", {"num_image_tokens": 16, "image_token": "<image>",
                                       "vision_feature_select_strategy": "full", "vision_aspect_ratio": "anyres_max_2"}))

family("vipllava", {
    **FAMILIES["llava"]["config"], "architectures": ["VipLlavaForConditionalGeneration"], "model_type": "vipllava",
    "vision_feature_layers": [-2, -3, 1, 3], "projector_layernorm_eps": 1e-5,
}, FAMILIES["llava"]["processor"], "CLIPImageProcessor", per_image=16)
for _k in ("vision_feature_layer", "vision_feature_select_strategy"):
    FAMILIES["vipllava"]["config"].pop(_k)

family("lighton_ocr", {  # its processor asks for whole squares of patches
    "architectures": ["LightOnOcrForConditionalGeneration"], "model_type": "lighton_ocr", "image_token_id": IMAGE,
    "spatial_merge_size": 2, "tie_word_embeddings": True,
    "text_config": dict(TEXT, model_type="qwen3", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=1000000.0,
                        tie_word_embeddings=True),
    "vision_config": PIXTRAL,
}, dict(FAMILIES["mistral3"]["processor"], patch_size=14), "PixtralImageProcessor", cell=28, call={"patch_size": 28},
    words=("LightOnOcrProcessor", {"effective_patch_size": 28, "image_token": "<|image_pad|>"}))

JANUS_PRE = dict(USUAL, image_mean=[0.5, 0.45, 0.4], image_std=[0.5, 0.5, 0.5], image_processor_type="JanusImageProcessor",
                 do_pad=True, size={"height": 56, "width": 56}, min_size=14, resample=3)
family("janus", {
    "architectures": ["JanusForConditionalGeneration"], "model_type": "janus", "image_token_id": IMAGE,
    "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="llama", rms_norm_eps=1e-6),
    "vision_config": {"model_type": "janus_vision_model", "hidden_size": 32, "num_hidden_layers": 2,
                      "num_attention_heads": 2, "image_size": 56, "patch_size": 14, "mlp_ratio": 1.75, "depth": 2,
                      "projection_dim": 32, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "num_image_tokens": 16},
    "vq_config": {"model_type": "janus_vqgan", "base_channels": 32, "channel_multiplier": [1], "num_res_blocks": 1,
                  "latent_channels": 32, "num_patches": 4, "num_embeddings": 8, "image_token_embed_dim": 32,
                  "projection_dim": 32},
}, JANUS_PRE, "JanusImageProcessor", per_image=16, unused=("vqmodel.", "generation_"),
    words=("JanusProcessor", {"num_image_tokens": 16, "image_start_token": "<begin_of_image>",
                              "image_token": "<image_placeholder>", "image_end_token": "<end_of_image>"}))

family("deepseek_vl", {
    "architectures": ["DeepseekVLForConditionalGeneration"], "model_type": "deepseek_vl", "image_token_id": IMAGE,
    "tie_word_embeddings": False, "text_config": dict(TEXT, model_type="llama", rms_norm_eps=1e-6),
    "vision_config": SIGLIP,
}, dict(JANUS_PRE, image_processor_type="DeepseekVLImageProcessor"), "DeepseekVLImageProcessor", per_image=16,
    words=("DeepseekVLProcessor", {"num_image_tokens": 16, "image_token": "<image_placeholder>"}))

family("hunyuan_vl", {  # flat, as published; the processor is asked for Lanczos and takes bicubic
    "architectures": ["HunYuanVLForConditionalGeneration"], "model_type": "hunyuan_vl", "image_token_id": IMAGE,
    **dict(TEXT, rms_norm_eps=1e-5, hidden_act="silu", attention_bias=False, use_qk_norm=True, norm_type="rms",
           tie_word_embeddings=True, rope_theta=10000.0, num_experts=1, use_cla=False,
           rope_scaling={"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "type": "xdrope", "xdrope_section": [2, 1, 3, 2]}),
    "vision_config": {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 2,
                      "num_channels": 3, "patch_size": 8, "spatial_merge_size": 2, "temporal_patch_size": 1,
                      "max_image_size": 56, "min_image_size": 16, "max_vit_seq_len": 96, "out_hidden_size": 32,
                      "text_hidden_size": 32, "hidden_act": "gelu", "interpolate_mode": "bilinear",
                      "rms_norm_eps": 1e-5},
}, dict(USUAL, **CLIP_NORM, image_processor_type="HunYuanVLImageProcessor", min_pixels=1024, max_pixels=6144,
        patch_size=8, temporal_patch_size=1, merge_size=2, do_convert_rgb=True, resample=1), "HunYuanVLImageProcessor",
    words=("HunYuanVLProcessor", {"cat_extra_token": True, "image_token": "<｜hy_place▁holder▁no▁102｜>"}),
    pillow=True, patch=lambda: one_axis_per_pair())


family("qianfan_ocr", {  # InternVL's tower under its authors' names, before Qwen 3
    "architectures": ["QianfanOCRForConditionalGeneration"], "model_type": "qianfan_ocr", "image_token_id": IMAGE,
    "downsample_ratio": 0.5, "image_seq_length": 4, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
    "vision_feature_select_strategy": "default", "tie_word_embeddings": False,
    "text_config": dict(TEXT, model_type="qwen3", rms_norm_eps=1e-6, hidden_act="silu", rope_theta=5000000.0),
    "vision_config": dict(INTERN, model_type="qianfan_ocr_vision", drop_path_rate=0.1),
}, dict(GOT, image_processor_type="GotOcr2ImageProcessor"), "GotOcr2ImageProcessor", per_tile=4, tiles=True,
    call={"crop_to_patches": True}, words=("QianfanOCRProcessor", INTERN_WORDS[1]), pillow=True,
    renamed=lambda k: k.replace("language_model.model.encoder.", "language_model.model."))  # as published; saving adds it


def one_axis_per_pair():
    """Both elements of a pair turn by the same axis, as in the authors' code; the class of transformers 5.16.0.dev0 takes the
    second elements' axes from further down the list. Texts are the same with either."""
    import transformers.models.hunyuan_vl.modeling_hunyuan_vl as hunyuan

    def apply(q, k, cos, sin, sections, unsqueeze_dim=1):
        both = [int(n) for n in sections] * 2
        cos, sin = (torch.cat([m[i % len(sections)] for i, m in enumerate(x.split(both, dim=-1))], dim=-1)
                    .unsqueeze(unsqueeze_dim) for x in (cos, sin))
        turned = hunyuan.rotate_half
        return q * cos + turned(q) * sin, k * cos + turned(k) * sin

    hunyuan.apply_multimodal_rotary_pos_emb = apply


vision_tiles.add(family, TEXT, HALF, USUAL, IMAGE)
vision_more.add(family, TEXT, SIGLIP, HALF, USUAL, IMAGE)


def fill(name, model):
    seen = set()
    with torch.no_grad():
        for key, t in model.state_dict().items():
            if not t.is_floating_point() or (t.data_ptr() in seen and t.numel() > 1):
                continue
            seen.add(t.data_ptr())
            if key.endswith(("input_min", "output_min")):
                t.fill_(-1.6)
            elif key.endswith(("input_max", "output_max")):
                t.fill_(1.7)
            elif key.endswith("std_scale"):
                t.copy_(1 + 0.2 * generate.noise(name, key, tuple(t.shape)))
            elif key.endswith(("std_bias", "class_embedding", "image_newline", "image_begin", "image_end", "resampler.query")):
                t.copy_(0.3 * generate.noise(name, key, tuple(t.shape)))
            elif "position_embedding" in key or "pos_embed" in key:
                t.copy_(0.4 * generate.noise(name, key, tuple(t.shape)))
            elif key.endswith("embed_tokens.weight"):
                t.copy_(0.3 * generate.noise(name, key, tuple(t.shape)))
            elif t.dim() > 2:
                flat = generate.noise(name, key, tuple(t.shape))
                t.copy_(2 * flat / (t[0].numel() ** 0.5))
            else:
                t.copy_(generate.randomize(name, key, t, [], False))


def grids_of(module):
    """Command A's processor is GOT's with another choice of a grid. It has no form for Pillow, so GOT's gets that choice."""
    import ast
    import importlib.util
    import transformers.models.got_ocr2.image_processing_pil_got_ocr2 as got

    path = importlib.util.find_spec(f"transformers.models.{module}").submodule_search_locations[0]
    with open(os.path.join(path, f"image_processing_{module}.py")) as f:
        tree = ast.parse(f.read())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    scope = {"np": np, "lru_cache": __import__("functools").lru_cache}
    exec(compile(tree, path, "exec"), scope)
    got.get_optimal_tiled_canvas = scope["get_optimal_tiled_canvas"]


def processor_of(spec, path, pil):
    import transformers

    if spec["cls"] is None or ("pillow" in spec and not pil):
        return None
    if "canvas" in spec:
        grids_of(spec["canvas"])
    cls = getattr(transformers, spec["cls"] + ("Pil" if pil and "run" not in spec else ""))
    return cls.from_pretrained(path)


def images_of(name, spec, out):
    """The u8 images [h][w][3] that a processor's result stands for, as a list per picture."""
    p = spec["processor"]
    mean = torch.tensor(p["image_mean"]).view(3, 1, 1)
    std = torch.tensor(p["image_std"]).view(3, 1, 1)
    if name.startswith("gemma4"):
        mean, std = torch.zeros(3, 1, 1), torch.ones(3, 1, 1)
    px = out["pixel_values"]
    chw = []
    if name.startswith(("qwen", "glm", "exaone")):
        at = 0
        s = p["patch_size"]
        for t, h, w in out["image_grid_thw"].tolist():
            rows = px[at : at + h * w].view(h // 2, w // 2, 2, 2, 3, 2, s, s)
            at += h * w
            assert torch.equal(rows[:, :, :, :, :, 0], rows[:, :, :, :, :, 1])
            img = rows[:, :, :, :, :, 0].permute(4, 0, 2, 5, 1, 3, 6).reshape(3, h * s, w * s)
            chw.append([img])
    elif name == "ernie4_5_vl_moe":
        s, at = p["patch_size"], 0
        for _, h, w in out["image_grid_thw"].tolist():
            rows = px[at : at + h * w].view(h // 2, w // 2, 2, 2, 3, s, s)
            at += h * w
            chw.append([rows.permute(4, 0, 2, 5, 1, 3, 6).reshape(3, h * s, w * s)])
    elif name.startswith(("paddleocr_vl", "video_llama_3", "hunyuan_vl")):
        s, at = p["patch_size"], 0
        for _, h, w in out["image_grid_thw"].tolist():
            rows = px[at : at + h * w].view(h, w, 3, s, s)
            at += h * w
            chw.append([rows.permute(2, 0, 3, 1, 4).reshape(3, h * s, w * s)])
    elif name.startswith("gemma4"):
        s = p["patch_size"]
        for rows, pos in zip(px, out["image_position_ids"]):
            n = int((pos[:, 0] >= 0).sum())
            w, h = int(pos[:n, 0].max()) + 1, int(pos[:n, 1].max()) + 1
            chw.append([rows[:n].view(h, w, s, s, 3).permute(4, 0, 2, 1, 3).reshape(3, h * s, w * s)])
    elif "tiles" in spec:  # one picture at a time
        chw.append(list(px[0] if px.dim() == 5 else px))
    elif name == "idefics3":
        tiles = [t for t in px[0]]
        chw.append(tiles)  # one picture at a time
    elif "cell" in spec:
        for i, (h, w) in enumerate(out["image_sizes"].tolist()):
            chw.append([px[i][:, :h, :w]])
    else:
        for i in range(px.shape[0]):
            chw.append([px[i]])
    result = []
    for tiles in chw:
        back = []
        for t in tiles:
            v = (t.float() * std + mean) * 255
            assert float((v - v.round()).abs().max()) < 0.02, float((v - v.round()).abs().max())
            back.append(v.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy())
        result.append(back)
    return result


def run_processor(name, spec, proc, pictures):
    if name != "idefics3":
        return proc(images=pictures, return_tensors="pt", **spec.get("call", {}))
    return proc(images=[pictures], return_tensors="pt")


def tokens_of(name, spec, rng, rows_per_picture, grids):
    """Text, a picture, text, ... with the placeholders where the rows go."""
    ids = [2] + [rng.randrange(3, 148) for _ in range(3)]
    for rows, grid in zip(rows_per_picture, grids):
        if name in ("mistral3", "pixtral"):
            h, w = grid
            for y in range(h):
                ids += [IMAGE] * w + [152 if y == h - 1 else 151]
        elif name == "idefics3":
            per = spec["per_tile"]
            for t in range(rows // per):
                ids += [151, 140 + t % 8] + [IMAGE] * per
            ids += [151]
        else:
            ids += [151] + [IMAGE] * rows + [152]
        ids += [rng.randrange(3, 148) for _ in range(4)]
    ids += [rng.randrange(3, 148) for _ in range(6)]
    return ids


def tokens_in(spec, rng, texts):
    """The same where the processor's own words are at hand: any token for each piece of text between rows."""
    ids = [2] + [rng.randrange(3, 148) for _ in range(3)]
    for text in texts:
        pieces = text.split(spec["word"])
        for i, piece in enumerate(pieces):
            ids += [151 + len(piece) % 6] * bool(piece) + [IMAGE] * (i + 1 < len(pieces))
        ids += [rng.randrange(3, 148) for _ in range(4)]
    return ids + [rng.randrange(3, 148) for _ in range(6)]


def words_of(spec, processor, pictures, out):
    """What the reference's processor writes for each picture; its tokenizer is not needed for that."""
    import transformers

    cls, fields = spec["words"]
    p = object.__new__(getattr(transformers, cls))
    for key, value in fields.items():
        setattr(p, key, value)
    p.image_processor = processor
    return [p.replace_image_token(out, i) for i in range(len(pictures))]


def features(model, out):
    f = getattr(model, "get_image_features", None) or model.model.get_image_features
    whole = model.model if hasattr(model.model, "get_image_features") else model
    accepted = inspect.signature(whole.get_image_features).parameters
    args = {k: v for k, v in out.items() if k in accepted}
    if "vision_feature_layer" in accepted:
        args["vision_feature_layer"] = model.config.vision_feature_layer
    if "vision_feature_select_strategy" in accepted:
        args["vision_feature_select_strategy"] = model.config.vision_feature_select_strategy
    if "image_sizes" in out:
        args["image_sizes"] = out["image_sizes"]
    got = f(**args)
    deep = getattr(got, "deepstack_features", None)
    got = getattr(got, "pooler_output", got)
    if isinstance(got, (list, tuple)):
        parts = [g.reshape(-1, g.shape[-1]) for g in got]
    else:
        parts = [g.reshape(-1, g.shape[-1]) for g in got]
    return parts, deep


def run_case(name, spec, model, procs, names, rng, files):
    pictures = [picture(n) for n in names]
    if "run" in spec:
        out, singles, words = spec["run"](spec, procs[1], pictures)
    else:
        out = run_processor(name, spec, procs[1], pictures)
        singles = [images_of(name, spec, run_processor(name, spec, procs[1], [p]))[0] for p in pictures]
    case = {"pictures": names, "images": [[list(t.shape[:2]) for t in tiles] for tiles in singles]}
    case["pixels_at"] = len(files["pixels.u8"])
    for tiles in singles:
        for t in tiles:
            files["pixels.u8"] += t.tobytes()
    if "run" in spec:
        case["words"] = words
    elif procs[0]:
        other = [images_of(name, spec, run_processor(name, spec, procs[0], [p]))[0] for p in pictures]
        case["tv_max"] = max(int(np.abs(a.astype(int) - b.astype(int)).max()) for x, y in zip(singles, other) for a, b in zip(x, y))
        if name == "gemma4_unified":
            out = large_patches(spec, [tiles[0] for tiles in singles])
    model_args = {k: v for k, v in out.items() if k not in ("num_soft_tokens_per_image", "rows", "cols", "said")}
    with torch.no_grad():
        if "deepstack" in spec:
            parts, deep = spec["deepstack"](model, model_args)
        else:
            parts, deep = ([spec["rows"](model, out)], None) if "rows" in spec else features(model, model_args)
    rows = torch.cat(parts).float()
    rows *= spec["config"].get("text_config", {}).get("embedding_multiplier", 1)  # as the language model does to all
    counts = [int(p.shape[0]) for p in parts]
    grids = [None] * len(names)
    if name == "idefics3" or "per_tile" in spec:  # one part per tile
        counts = [spec["per_tile"] * len(t) for t in singles]
    if "words" in spec:
        case["words"] = words_of(spec, procs[1], pictures, out)
    if "pillow" in spec:  # the rows of all pictures are one
        counts = [t.count(spec["words"][1]["image_token"]) for t in case["words"]]
    if "cell" in spec:
        grids = [(h // spec["cell"], w // spec["cell"]) for h, w in out["image_sizes"].tolist()]
        counts = [h * w for h, w in grids]
    if "run" in spec:
        counts = [t.count(spec["word"]) for t in words]
    assert sum(counts) == rows.shape[0], (counts, rows.shape)
    ids = tokens_of(name, spec, rng, counts, grids) if "run" not in spec else tokens_in(spec, rng, words)
    if "question" in spec:  # "prompt" of a case: how many tokens see each other
        prompt, answer = vision_more.question_tokens(rng, counts, IMAGE)
        ids = prompt + answer
        case["prompt"] = len(prompt)
    assert ids.count(IMAGE) == rows.shape[0]
    case.update(tokens=ids, counts=counts, rows_at=len(files["rows.f32"]) // 4, width=int(rows.shape[1]))
    files["rows.f32"] += rows.contiguous().numpy().astype("<f4").tobytes()
    if deep is not None:
        case["deepstack"] = len(deep)
        for d in deep:
            files["rows.f32"] += d.float().contiguous().numpy().astype("<f4").tobytes()
    x = torch.tensor([ids])
    args = dict(model_args, input_ids=x, attention_mask=torch.ones_like(x), use_cache=False)
    if "given_rows" in spec:
        embedded = model.get_input_embeddings()(x)
        embedded[0, x[0] == IMAGE] = rows
        args = {"inputs_embeds": embedded, "attention_mask": torch.ones_like(x), "use_cache": False}
    types = (x == IMAGE).long()
    if "question" in spec:  # there the answer is of another type
        types = (torch.arange(len(ids))[None] >= case["prompt"]).long()
    accepted = inspect.signature(type(model).forward).parameters
    for key in ("token_type_ids", "mm_token_type_ids"):
        if key in accepted:
            args[key] = types
    if "moe_mm_token_type_ids" in accepted:  # what stands around a picture counts as one there
        args["moe_mm_token_type_ids"] = ((x >= IMAGE) & (x <= IMAGE + 2)).long()
    with torch.no_grad():
        logits = model(**args).logits[0].float()
        if "thinker" in spec:
            case["axes"] = model.get_rope_index(x, out["image_grid_thw"], None, torch.ones_like(x))[0][:, 0].long().tolist()
        elif "mm_token_type_ids" in accepted and hasattr(model.model, "get_rope_index"):
            try:
                pos, _ = model.model.get_rope_index(x, mm_token_type_ids=types, image_grid_thw=out["image_grid_thw"])
                case["axes"] = pos[:, 0].tolist()
            except Exception as e:
                print("   axes:", repr(e)[:200])
    # Transformers 5 lost the scale (Gemma 2: the cap) of the language model's own class in the class around it; before, it was applied.
    text = spec["config"].get("text_config", {})
    logits = logits * text.get("logit_scale", 1) / (1 if "deepstack" in spec else text.get("logits_scaling", 1))
    if "question" in spec and "final_logit_softcapping" in text:
        logits = text["final_logit_softcapping"] * torch.tanh(logits / text["final_logit_softcapping"])
    assert torch.isfinite(logits).all() and torch.isfinite(rows).all()
    case["logits_at"] = len(files["logits.f32"]) // 4
    case["logit_std"] = float(logits.std())
    case["row_std"] = float((rows if "deepstack" not in spec else torch.cat(deep)).std())
    files["logits.f32"] += logits[-LAST:].contiguous().numpy().astype("<f4").tobytes()
    return case


def saved(name, spec, outdir):
    """The model as it is saved, and loaded again as float32."""
    if "build" in spec:
        model = spec["build"](spec)
        fill(name, model)
        model.to(torch.bfloat16)
        tensors = model.state_dict()
        generate.st_write(os.path.join(outdir, "model.safetensors"), spec["tensors"](tensors), {"format": "pt"})
        model = spec["build"](spec)  # anew: what is computed at first, such as frequencies, stays float32
        model.load_state_dict({k: t.float() for k, t in tensors.items()})
        return model
    cls, config = owner_of(spec, outdir)
    torch.manual_seed(1)
    for c in (config, getattr(config, "text_config", config)):
        c._experts_implementation = "eager"
    model = cls._from_config(config, dtype=torch.float32, attn_implementation="eager")
    fill(name, model)
    model.to(torch.bfloat16)
    tmp = tempfile.mkdtemp()
    try:
        model.save_pretrained(tmp)
        tensors = generate.st_read(os.path.join(tmp, "model.safetensors"))
    finally:
        shutil.rmtree(tmp)
    if "thinker" in spec:
        tensors = {"thinker." + k: v for k, v in tensors.items() if not k.startswith("audio_tower.")}
    if "renamed" in spec:
        tensors = {spec["renamed"](k): v for k, v in tensors.items()}
    generate.st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    print("  ", name, "tensors:", " ".join(sorted(k for k in tensors if ".1." not in k and ".2." not in k)))
    del model
    return load_again(spec, cls, config, outdir)


def make(name, spec, outdir):
    os.makedirs(outdir)
    if "patch" in spec:
        spec["patch"]()
    generate.write_config(outdir, spec["config"])
    with open(os.path.join(outdir, "preprocessor_config.json"), "w") as f:
        json.dump(spec["processor"], f, indent=2)
        f.write("\n")
    model = saved(name, spec, outdir)
    model.eval()
    procs = [processor_of(spec, outdir, False), processor_of(spec, outdir, True)]
    files = {k: bytearray() for k in ("pixels.u8", "rows.f32", "logits.f32")}
    rng = random.Random(name)
    doc = {"family": name, "vocab": VOCAB, "image_token": IMAGE, "last": LAST, "versions": generate.versions(), "cases": []}
    for names in spec.get("cases", CASES):
        try:
            doc["cases"].append(run_case(name, spec, model, procs, names, rng, files))
        except Exception:
            print("   case", names)
            traceback.print_exc()
    for k, v in files.items():
        if v:
            with open(os.path.join(outdir, k), "wb") as f:
                f.write(v)
    if "unused" in spec:  # of what does not see
        seen = {k: v for k, v in tensors.items() if not k.replace("model.", "", 1).startswith(spec["unused"])}
        generate.st_write(os.path.join(outdir, "model.safetensors"), seen, {"format": "pt"})
    with open(os.path.join(outdir, "golden.json"), "w") as f:
        json.dump(doc, f)
        f.write("\n")
    if "after" in spec:
        spec["after"](outdir)
    print("  ", name, "cases", len(doc["cases"]), "tv_max", [c.get("tv_max") for c in doc["cases"]],
          "images", [c["images"] for c in doc["cases"]], "std", [(c["row_std"], c["logit_std"]) for c in doc["cases"]])


def resizes(outdir):
    """What Pillow makes of the pictures; exact values."""
    os.makedirs(os.path.join(outdir, "pictures"))
    data, rows = bytearray(), []
    for n in PICTURES:
        picture(n).save(os.path.join(outdir, "pictures", n + ".png"), optimize=True)
    for n, size in (("a", (56, 56)), ("a", (20, 11)), ("b", (28, 28)), ("c", (40, 37)), ("d", (9, 13)), ("d", (30, 100)),
                    ("c", (1, 1))):
        for kind in (Image.BILINEAR, Image.BICUBIC, Image.LANCZOS):
            rows.append([n, int(kind), *size, len(data)])
            data += np.asarray(picture(n).resize(size, kind)).tobytes()
    with open(os.path.join(outdir, "resize.json"), "w") as f:
        json.dump(rows, f)
        f.write("\n")
    with open(os.path.join(outdir, "resize.u8"), "wb") as f:
        f.write(data)


def main():
    out, wanted = sys.argv[1], sys.argv[2:] or list(FAMILIES)
    if all("run" in FAMILIES[name] or "pillow" in FAMILIES[name] for name in wanted):
        torchvision_pillow.install()
    root = tempfile.mkdtemp()
    resizes(root)
    for name in wanted:
        try:
            make(name, FAMILIES[name], os.path.join(root, name))
        except Exception:
            print("FAILED", name)
            traceback.print_exc()
        sys.stdout.flush()
        with tarfile.open(os.path.join(out, "vision.tar.gz"), "w:gz") as t:
            for n in sorted(os.listdir(root)):
                t.add(os.path.join(root, n), n)
    shutil.rmtree(root)


if __name__ == "__main__":
    main()
