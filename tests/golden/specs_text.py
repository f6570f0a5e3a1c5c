# SPDX-License-Identifier: Apache-2.0
"""Tiny language models whose class in transformers brings a tower with it. The whole model is built and saved, the tower's
tensors are left out of the file, and the reference is the whole model again, loaded from that file and asked about text."""

import os
import re
import shutil
import tempfile

VOCAB = 160
TOWER = r"vision|visual|audio|projector|patch_merge"
SPECS = {}


def add_family(name, cls, whole, config, **more):
    """whole(config): the fields of the whole model. config is what config.json says."""
    SPECS[name] = {"make": make_text, "cls": cls, "whole": whole,
                   "config": {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                              "torch_dtype": "bfloat16", **config}, **more}


def make_text(family, spec, outdir):
    import generate as g
    import torch
    import transformers

    cls = getattr(transformers, spec["cls"])
    g.write_config(outdir, spec["config"])
    tmp = tempfile.mkdtemp()
    try:
        g.write_config(tmp, spec["whole"](spec["config"]))
        torch.manual_seed(1)
        config = transformers.AutoConfig.from_pretrained(tmp)
        model = cls._from_config(config, dtype=torch.float32, attn_implementation="eager")
        keep = g.fill(family, model, spec)
        model.to(torch.bfloat16)
        for name, t in list(model.named_buffers()) + list(model.named_parameters()):
            if name in keep:
                t.data = keep[name].to(torch.float32)
        saved = os.path.join(tmp, "saved")
        model.save_pretrained(saved)
        tensors = g.st_read(os.path.join(saved, "model.safetensors"))
        tensors = {k: v for k, v in tensors.items() if not re.search(TOWER, k)}
        if "rename" in spec:
            tensors = {spec["rename"](k): v for k, v in tensors.items()}
        for path in (outdir, tmp):
            g.st_write(os.path.join(path, "model.safetensors"), tensors, {"format": "pt"})
        model = load(cls, tmp)
    finally:
        shutil.rmtree(tmp)
    return g.golden(family, g.forward_of(model), VOCAB, outdir)


def load(cls, path):
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(path)
    for c in (config, config.get_text_config()):
        c._experts_implementation = "eager"
    model, info = cls.from_pretrained(path, config=config, dtype=torch.float32, attn_implementation="eager",
                                      output_loading_info=True)
    missing = [k for k in info.get("missing_keys") or [] if not re.search(TOWER, k)]
    if missing or info.get("unexpected_keys") or info.get("mismatched_keys"):
        raise ValueError(f"loading again: missing {missing}, unexpected {info.get('unexpected_keys')}, "
                         f"mismatched {info.get('mismatched_keys')}")
    model.eval()
    for n, p in model.named_parameters():
        assert p.dtype == torch.float32, (n, p.dtype)
    return model


def resave(name, src, saved):
    """Saves the whole model again, its tower at random; (the model before, the model that was saved)"""
    import generate as g
    import transformers

    spec = SPECS[name]
    cls = getattr(transformers, spec["cls"])
    with tempfile.TemporaryDirectory() as tmp:
        g.write_config(tmp, spec["whole"](spec["config"]))
        shutil.copy(os.path.join(src, "model.safetensors"), tmp)
        before = load(cls, tmp)
        before.save_pretrained(saved)
    return before, load(cls, saved)


# Step 3.5: as its authors write it. Head counts, rotations and limits by layer, with those of the heads for further tokens
# at the end of every list.
STEP = {
    "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 4, "num_attention_heads": 2, "num_attention_groups": 1, "head_dim": 16, "use_moe": True,
    "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 16, "share_expert_dim": 16, "moe_layers_enum": "1,2,3",
    "moe_every_n_layer": 1, "moe_layer_offset": 0, "moe_router_activation": "sigmoid", "moe_router_scaling_factor": 3.0,
    "use_moe_router_bias": True, "need_fp32_gate": True, "norm_expert_weight": True, "use_head_wise_attn_gate": True,
    "use_qk_norm": True, "zero_centered": True, "max_position_embeddings": 512, "max_seq_len": 512, "rms_norm_eps": 1e-5,
    "sliding_window": 16, "num_nextn_predict_layers": 1, "att_impl_type": "GQA",
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 3,
                                "num_attention_groups": 1, "head_dim": 16, "true_head_dim": 16},
    "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5, 1.0], "rope_theta": [5000000.0, 10000.0, 10000.0, 5000000.0, 10000.0],
    "rope_scaling": {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 64, "low_freq_factor": 1.0,
                     "high_freq_factor": 32.0},
    "yarn_only_types": ["full_attention"], "swiglu_limits": [0.0, 0.0, 0.6, 0.4, 0.0],
    "swiglu_limits_shared": [0.0, 0.0, 0.0, 0.5, 0.0], "tie_word_embeddings": False, "hidden_act": "silu"}
STEP_TOWER = {"model_type": "step3p5_vision", "width": 16, "layers": 1, "heads": 2, "image_size": 56, "patch_size": 14}


def step(config):
    return {"model_type": "step3p7", "architectures": ["Step3p7ForConditionalGeneration"], "text_config": config,
            "vision_config": STEP_TOWER, "tie_word_embeddings": False}


add_family("step3p5", "Step3p7ForConditionalGeneration", step, STEP)


# Muse Glimmer: the fields that are not as GGUF has them fixed are as published.
MUSE = {"model_type": "muse_glimmer_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "hidden_activation": "silu",
        "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8, "sliding_window": 16,
        "final_logit_softcapping": 6.0, "output_multiplier": 0.7, "qk_scale_factor": 3.87, "attention_bias": False,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"], "layer_rope_theta": [20000.0] * 3 + [0.0],
        "rope_parameters": {"rope_type": "default", "rope_theta": 20000.0}, "tie_word_embeddings": False}
MUSE_TOWER = {"model_type": "muse_glimmer_vision", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
              "num_attention_heads": 2, "patch_size": 14, "pos_emb_height": 4, "pos_emb_width": 4}


def muse(config):
    return {"model_type": "muse_glimmer", "architectures": ["MuseGlimmerForConditionalGeneration"], "text_config": config,
            "vision_config": MUSE_TOWER, "out_hidden_size": 64, "projector_hidden_size": 16, "tie_word_embeddings": False}


add_family("muse_glimmer", "MuseGlimmerForConditionalGeneration", muse, MUSE)


# Gemma 4 12B: Gemma 4's arithmetic without per-layer inputs; pictures and sounds go straight into the language model.
UNIFIED = {"model_type": "gemma4_unified_text", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
           "num_attention_heads": 2, "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 16,
           "global_head_dim": 32, "attention_k_eq_v": True, "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
           "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512, "rms_norm_eps": 1e-6,
           "sliding_window": 16, "final_logit_softcapping": 4.0, "use_bidirectional_attention": "vision",
           "layer_types": ["sliding_attention", "full_attention"] * 2, "attention_bias": False,
           "rope_parameters": {"full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0,
                                                  "rope_type": "proportional"},
                               "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}},
           "tie_word_embeddings": True}


def unified(config):
    return {"model_type": "gemma4_unified", "architectures": ["Gemma4UnifiedForConditionalGeneration"],
            "text_config": config, "audio_config": None, "tie_word_embeddings": True,
            "vision_config": {"model_type": "gemma4_unified_vision", "mm_embed_dim": 32, "num_soft_tokens": 70}}


add_family("gemma4_unified", "Gemma4UnifiedForConditionalGeneration", unified, UNIFIED,
           rules=[(r"self_attn\.[qk]_norm\.weight$", "n", 0.5, 0.1)])


# MiniMax M3: more blocks are chosen than a sequence of the reference has.
M3 = {"model_type": "minimax_m3_vl_text", "hidden_size": 32, "intermediate_size": 16, "dense_intermediate_size": 48,
      "shared_intermediate_size": 16, "n_shared_experts": 1, "num_hidden_layers": 3, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 32, "rotary_dim": 16, "partial_rotary_factor": 0.5, "hidden_act": "swigluoai",
      "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 5000000.0, "num_local_experts": 4,
      "num_experts_per_tok": 2, "routed_scaling_factor": 2.0, "scoring_func": "sigmoid", "use_routing_bias": True,
      "use_qk_norm": True, "qk_norm_type": "per_head", "use_gemma_norm": True, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
      "moe_layer_freq": [0, 1, 1], "tie_word_embeddings": False,
      "sparse_attention_config": {"sparse_num_index_heads": 1, "sparse_index_dim": 16, "sparse_block_size": 16,
                                  "sparse_topk_blocks": 5, "sparse_local_block": 1, "sparse_attention_freq": [0, 1, 1]}}
M3_TOWER = {"model_type": "minimax_m3_vl_vision", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "patch_size": 14, "image_size": 56}


def m3(config):
    return {"model_type": "minimax_m3_vl", "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
            "text_config": config, "vision_config": M3_TOWER, "projector_hidden_size": 16, "tie_word_embeddings": False}


# What it saves calls the dense layers' feed-forward block_sparse_moe, too.
add_family("minimax_m3", "MiniMaxM3SparseForConditionalGeneration", m3, M3,
           rename=lambda n: re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", n),
           rules=[(r"mlp\.(experts\.)?gate_up_proj", "fan", 2.0, 0)])
add_family("minimax_m3_chosen", "MiniMaxM3SparseForConditionalGeneration", m3, {
    **M3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "partial_rotary_factor": 1.0,
    "sparse_attention_config": {"sparse_num_index_heads": 2, "sparse_index_dim": 16, "sparse_block_size": 4,
                                "sparse_topk_blocks": 3, "sparse_local_block": 1, "sparse_attention_freq": [0, 1, 1]}},
           rename=lambda n: re.sub(r"block_sparse_moe\.(gate|up|down)_proj", r"mlp.\1_proj", n),
           rules=[(r"mlp\.(experts\.)?gate_up_proj", "fan", 2.0, 0)])


# Llama 3.2 Vision: a layer that looks at the picture is passed by where there is none.
MLLAMA = {"model_type": "mllama_text_model", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4,
          "num_attention_heads": 2, "num_key_value_heads": 1, "hidden_act": "silu", "max_position_embeddings": 512,
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "cross_attention_layers": [1], "tie_word_embeddings": False,
          "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                           "original_max_position_embeddings": 64, "rope_type": "llama3"}}
MLLAMA_TOWER = {"model_type": "mllama_vision_model", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                "num_global_layers": 1, "attention_heads": 2, "image_size": 28, "patch_size": 14, "vision_output_dim": 32,
                "intermediate_layers_indices": [0], "max_num_tiles": 4,
                "supported_aspect_ratios": [[1, 1], [1, 2], [1, 3], [1, 4], [2, 1], [2, 2], [3, 1], [4, 1]]}


def mllama(config):
    return {"model_type": "mllama", "architectures": ["MllamaForConditionalGeneration"], "text_config": config,
            "vision_config": MLLAMA_TOWER, "image_token_index": 160, "tie_word_embeddings": False}


add_family("mllama", "MllamaForConditionalGeneration", mllama, MLLAMA)


# Models without a tower, of the same reference.
ZAMBA2 = {"architectures": ["Zamba2ForCausalLM"], "model_type": "zamba2", "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 3, "num_attention_heads": 2, "num_key_value_heads": 2, "attention_hidden_size": 64,
          "attention_head_dim": 32, "kv_channels": 16, "num_query_groups": 2, "hidden_act": "gelu", "rms_norm_eps": 1e-5,
          "max_position_embeddings": 512, "layers_block_type": ["mamba", "hybrid", "hybrid"], "hybrid_layer_ids": [1, 2],
          "num_mem_blocks": 1, "use_shared_attention_adapter": False, "adapter_rank": 8, "use_mem_rope": False,
          "rope_theta": 10000, "use_long_context": False, "add_bias_linear": False, "mamba_d_state": 16, "mamba_d_conv": 4,
          "mamba_expand": 2, "mamba_ngroups": 2, "n_mamba_heads": 4, "mamba_headdim": 16, "chunk_size": 16,
          "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001, "use_conv_bias": True,
          "use_mamba_kernels": False, "tie_word_embeddings": True}
ETTIN = {"architectures": ["ModernBertDecoderForCausalLM"], "model_type": "modernbert-decoder", "hidden_size": 32,
         "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2, "hidden_activation": "gelu",
         "classifier_activation": "gelu", "max_position_embeddings": 512, "norm_eps": 1e-5, "norm_bias": False,
         "attention_bias": False, "mlp_bias": False, "decoder_bias": True, "classifier_bias": False,
         "global_attn_every_n_layers": 3, "local_attention": 32, "global_rope_theta": 160000.0,
         "local_rope_theta": 10000.0, "cls_token_id": 1, "sep_token_id": 2, "tie_word_embeddings": True}
AXK2 = {"architectures": ["AXK2ForCausalLM"], "model_type": "axk2", "hidden_size": 32, "intermediate_size": 48,
        "moe_intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
        "kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
        "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": None, "topk_group": None,
        "index_topk": 512, "index_n_heads": 2, "index_head_dim": 32, "gated_norm_rank": 4, "hidden_act": "silu",
        "attention_bias": False, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False}
PLAIN = {"zamba2": ZAMBA2, "axk2": AXK2, "axk2_groups": {**AXK2, "n_group": 4, "topk_group": 2}, "modernbert_decoder": ETTIN,
         "zamba2_adapters": {**ZAMBA2, "hidden_size": 24, "intermediate_size": 32, "attention_hidden_size": 48,
                             "attention_head_dim": 24, "kv_channels": 12, "hybrid_layer_ids": [0, 1],
                             "layers_block_type": ["hybrid", "hybrid", "mamba"], "num_mem_blocks": 2, "adapter_rank": 4,
                             "use_shared_attention_adapter": True, "use_mem_rope": True, "time_step_min": 0.5,
                             "time_step_max": 0.9, "mamba_d_state": 8, "mamba_headdim": 12, "tie_word_embeddings": False}}


# Models that transformers lacks, made of its Llama's parts after their authors' description.
class Nanbeige:
    """All layers run num_loops times; the last norm stands between the rounds."""

    def __init__(self, config):
        import transformers

        self.rounds, self.bare = config["num_loops"], config["skip_loop_final_norm"]
        c = {k: v for k, v in config.items() if k not in ("model_type", "architectures", "torch_dtype")}
        self.model = transformers.LlamaForCausalLM._from_config(transformers.LlamaConfig(**c), attn_implementation="eager")

    def run(self, x, step):
        for r in range(self.rounds):
            if r and not self.bare:
                x = self.model.model.norm(x)
            for layer in self.model.model.layers:
                x = step(layer, x)
        return x


class Deci(Nanbeige):
    """Each layer has its own key heads and width, a matrix instead of attention, or lacks one half."""

    def __init__(self, config):
        import copy

        import torch
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer

        super().__init__({**config, "num_loops": 1, "skip_loop_final_norm": True, "num_hidden_layers": 0,
                          "intermediate_size": 1})
        n = config["hidden_size"]
        for b in config["block_configs"]:
            c, a = copy.deepcopy(self.model.config), b["attention"]
            c.num_key_value_heads = c.num_attention_heads // (a["n_heads_in_group"] or 1)
            c.intermediate_size = -(-int(2 * (b["ffn"]["ffn_mult"] or 1) * n / 3) // 256) * 256
            layer = LlamaDecoderLayer(c, 0)
            layer.kind = b
            if a["no_op"]:
                layer.self_attn = layer.input_layernorm = None
            if a["replace_with_linear"]:
                layer.self_attn = torch.nn.ModuleDict({"linear_attn": torch.nn.Linear(n, n, bias=False)})
            if b["ffn"]["no_op"]:
                layer.mlp = layer.post_attention_layernorm = None
            self.model.model.layers.append(layer)
        self.model.eval()

    def run(self, x, step):
        for layer in self.model.model.layers:
            if layer.kind["attention"]["replace_with_linear"]:
                x = x + layer.self_attn["linear_attn"](layer.input_layernorm(x))
            elif not layer.kind["attention"]["no_op"]:
                x = x + step(layer.self_attn, layer.input_layernorm(x))
            if layer.mlp is not None:
                x = x + layer.mlp(layer.post_attention_layernorm(x))
        return x


def make_parts(family, spec, outdir):
    import generate as g
    import torch

    config = {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16", **spec["config"]}
    g.write_config(outdir, config)
    whole = spec["parts"](config)
    model = whole.model
    g.fill(family, model, spec)
    tensors = {k: v.to(torch.bfloat16) for k, v in model.state_dict().items()}
    g.st_write(os.path.join(outdir, "model.safetensors"), tensors, {"format": "pt"})
    model.load_state_dict({k: v.float() for k, v in tensors.items()})
    model.eval()

    def run(ids):
        with torch.no_grad():
            x, where = model.model.embed_tokens(torch.tensor([ids])), torch.arange(len(ids))[None]
            mask = torch.full((len(ids), len(ids)), torch.finfo(torch.float32).min).triu(1)[None, None]
            turn = model.model.rotary_emb(x, where)

            def step(layer, x):
                y = layer(hidden_states=x, attention_mask=mask, position_ids=where, position_embeddings=turn)
                return y[0] if isinstance(y, tuple) else y

            return model.lm_head(model.model.norm(whole.run(x, step)))[0]

    return g.golden(family, run, VOCAB, outdir, {"note": "transformers' Llama, put together by specs_text.py"})


LLAMA = {"hidden_size": 32, "num_attention_heads": 4, "rms_norm_eps": 1e-5, "hidden_act": "silu", "attention_bias": False,
         "mlp_bias": False, "max_position_embeddings": 512, "rope_theta": 500000.0, "tie_word_embeddings": False}
NANBEIGE = {"architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", **LLAMA, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 16, "num_loops": 2,
            "skip_loop_final_norm": False, "rope_theta": 70000000.0}


def block(group, mult, linear=False):
    return {"attention": {"n_heads_in_group": group, "no_op": not group and not linear, "replace_with_linear": linear,
                          "num_sink_tokens": None, "window_length": None, "sparsify": None},
            "ffn": {"ffn_mult": mult, "no_op": mult is None, "replace_with_linear": False, "sparsify": None}}


DECI = {"architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", **LLAMA, "hidden_size": 24, "num_attention_heads": 3,
        "num_hidden_layers": 5, "num_key_value_heads": None, "intermediate_size": None,
        "block_configs": [block(3, 2.0), block(None, 1.0), block(1, None), block(None, None, True), block(3, None)]}
PARTS = {"nanbeige": (Nanbeige, NANBEIGE), "nemotron_nas": (Deci, DECI)}


def add(generate):
    generate.SPECS.update(SPECS)
    generate.SPECS.update((n, {"make": make_parts, "parts": cls, "config": c}) for n, (cls, c) in PARTS.items())
    for name, config in PLAIN.items():
        generate.SPECS[name] = {"make": generate.make_hf,
                                "config": {"vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                                           "torch_dtype": "bfloat16", **config}}
