# SPDX-License-Identifier: Apache-2.0
"""Families of vision.py whose prompts or rows are unlike the others'."""

import torch

GRIDS = [[64, 128], [128, 64], [64, 192], [128, 128]]
BOS, LINE = 2, 149  # what stands in front of a question to PaliGemma, and behind it


def question_tokens(rng, rows_per_picture, image):
    """PaliGemma's: all pictures, the question, and then an answer, of which each token sees what is before it only."""
    prompt = [image] * sum(rows_per_picture) + [BOS] + [rng.randrange(3, 148) for _ in range(6)] + [LINE]
    return prompt, [rng.randrange(3, 148) for _ in range(5)]


def deep_granite4(model, args):
    """Rows of each picture: nothing for the embedding, and what is added in front of layers, projector by projector."""
    got = model.model.get_image_features(pixel_values=args["pixel_values"], image_sizes=args["image_sizes"],
                                         vision_feature_select_strategy="full").deepstack_features
    assert len({layer for layer, _ in got}) == len(got)
    return [torch.zeros_like(x) for x in got[0][1]], [torch.cat(x) for _, x in got]


def add(family, TEXT, SIGLIP, HALF, USUAL, IMAGE):
    pre = dict(USUAL, **HALF, image_processor_type="SiglipImageProcessor", image_seq_length=16,
               size={"height": 56, "width": 56}, do_convert_rgb=None, resample=3)
    words = ("PaliGemmaProcessor", {"image_seq_length": 16, "image_token": "<image>"})

    def outer(text, **more):  # published ones say nothing of tied embeddings and of what they have from their classes
        text = {k: v for k, v in dict(TEXT, num_image_tokens=16, **text).items()
                if k not in ("tie_word_embeddings", "max_position_embeddings")}
        return {"architectures": ["PaliGemmaForConditionalGeneration"], "model_type": "paligemma", "bos_token_id": 2,
                "eos_token_id": 1, "pad_token_id": 0, "hidden_size": 32, "ignore_index": -100,
                "image_token_index": IMAGE, "projection_dim": 32, "text_config": text,
                "vision_config": dict({k: v for k, v in SIGLIP.items() if k not in ("hidden_act", "layer_norm_eps")},
                                      num_image_tokens=16, projection_dim=32, projector_hidden_act="gelu_fast"), **more}

    family("paligemma", outer({"model_type": "gemma"}), pre, "SiglipImageProcessor", per_image=16, words=words,
           question=True)
    # The window is shorter than any of the prompts.
    family("paligemma2", outer({"model_type": "gemma2", "sliding_window": 12, "query_pre_attn_scalar": 16,
                                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                                "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh"}),
           pre, "SiglipImageProcessor", per_image=16, words=words, question=True)

    family("granite4_vision", {
        "architectures": ["Granite4VisionForConditionalGeneration"], "model_type": "granite4_vision",
        "image_token_index": IMAGE, "tie_word_embeddings": False, "vision_feature_select_strategy": "full",
        "vision_feature_layer": -2, "image_seq_length": 16, "image_grid_pinpoints": GRIDS,
        "downsample_rate": "2/4", "deepstack_layer_map": [[-4, 1], [-2, 0]], "spatial_vision_layer": -1,
        "spatial_target_layers": [3, 5, 2, 4], "use_image_newline_parameter": True,
        "qformer_config": {"model_type": "blip_2_qformer", "hidden_size": 32, "encoder_hidden_size": 32,
                           "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40,
                           "cross_attention_frequency": 1, "max_position_embeddings": 2048,
                           "use_qformer_text_input": False},
        "text_config": dict(TEXT, model_type="granite4_vision_text", rms_norm_eps=1e-5, num_hidden_layers=6,
                            hidden_act="silu", intermediate_size=40, embedding_multiplier=3.0, attention_multiplier=0.2,
                            residual_multiplier=0.5, logits_scaling=4.0),
        "vision_config": dict(SIGLIP, num_hidden_layers=6, intermediate_size=40, image_size=64, patch_size=8),
    }, dict(USUAL, **HALF, image_processor_type="LlavaNextImageProcessor", do_convert_rgb=True, do_pad=True,
            crop_size={"height": 64, "width": 64}, size={"height": 64, "width": 64}, do_center_crop=True,
            image_grid_pinpoints=GRIDS, resample=3), "LlavaNextImageProcessor",
        tiles=True, deepstack=deep_granite4, cases=[["a"], ["b", "d"]],
        words=("Granite4VisionProcessor", {"patch_size": 8, "downsample_rate": "2/4", "num_additional_image_tokens": 0,
                                           "vision_feature_select_strategy": "full", "image_token": "<image>"}))
