# SPDX-License-Identifier: Apache-2.0
"""Families of vision.py whose prompts are unlike the others'."""

BOS, LINE = 2, 149  # what stands in front of a question to PaliGemma, and behind it


def question_tokens(rng, rows_per_picture, image):
    """PaliGemma's: all pictures, the question, and then an answer, of which each token sees what is before it only."""
    prompt = [image] * sum(rows_per_picture) + [BOS] + [rng.randrange(3, 148) for _ in range(6)] + [LINE]
    return prompt, [rng.randrange(3, 148) for _ in range(5)]


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
