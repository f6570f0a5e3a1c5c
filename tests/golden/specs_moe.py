# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the mixture-of-experts, hybrid and recurrent families for generate.py: configs in the style of the
published checkpoints, with windows shorter than the prompt, more experts than are used and every multiplier off one."""

VOCAB = 160
COMMON = {"vocab_size": VOCAB, "hidden_size": 32, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
          "torch_dtype": "bfloat16", "use_cache": True, "initializer_range": 0.02, "intermediate_size": 48,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
          "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "attention_dropout": 0.0, "tie_word_embeddings": False, "attention_bias": False}
NO_HEAD = {"head_dim": "DROP", "num_attention_heads": 2, "num_key_value_heads": 1}
SPECS = {}


def add(name, arch, model_type, config, **more):
    c = {"architectures": [arch + "ForCausalLM"], "model_type": model_type, **COMMON, **config}
    SPECS[name] = {"config": {k: v for k, v in c.items() if v != "DROP"}, **more}


# latent attention
MLA = {"kv_lora_rank": 16, "q_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 16,
       "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": "DROP", "rms_norm_eps": 1e-6}
MLA_MOE = {**MLA, "moe_intermediate_size": 16, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3,
           "first_k_dense_replace": 1, "moe_layer_freq": 1}
add("deepseek_v2", "DeepseekV2", "deepseek_v2", {
    **MLA_MOE, "n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy", "scoring_func": "softmax",
    "norm_topk_prob": False, "routed_scaling_factor": 3.0, "aux_loss_alpha": 0.001, "seq_aux": True, "ep_size": 1,
    "pretraining_tp": 1,
    "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 4.0, "mscale": 0.707, "mscale_all_dim": 0.707,
                     "original_max_position_embeddings": 128, "type": "yarn"}})
add("deepseek_v2_lite", "DeepseekV2", "deepseek_v2", {
    **MLA_MOE, "q_lora_rank": None, "n_group": 1, "topk_group": 1, "topk_method": "greedy", "scoring_func": "softmax",
    "norm_topk_prob": False, "routed_scaling_factor": 1.0})
add("youtu", "Youtu", "youtu", {**MLA, "rope_interleave": True, "rope_theta": 1600000.0, "tie_word_embeddings": True})
add("axk1", "AXK1", "axk1", {
    **MLA_MOE, "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
    "rope_interleave": True})
add("mistral4", "Mistral4", "mistral4", {
    **MLA_MOE, "first_k_dense_replace": 0, "n_group": 1, "topk_group": 1, "n_shared_experts": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 1.0, "rope_interleave": True, "rope_theta": "DROP",
    "rope_parameters": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 16.0, "llama_4_scaling_beta": 0.1,
                        "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
                        "rope_theta": 10000.0, "rope_type": "yarn", "type": "yarn"}})
DSA = {**MLA_MOE, "n_shared_experts": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "index_n_heads": 2,
       "index_head_dim": 32}
CHOOSE = {**DSA, "index_n_heads": 8, "index_topk": 8}
add("deepseek_v32", "DeepseekV32", "deepseek_v32", {**CHOOSE, "n_group": 4, "topk_group": 2})
add("deepseek_v32_dense", "DeepseekV32", "deepseek_v32", {**DSA, "n_group": 4, "topk_group": 2, "index_topk": 512})
add("glm_moe_dsa", "GlmMoeDsa", "glm_moe_dsa", {
    **CHOOSE, "n_group": 1, "topk_group": 1, "num_hidden_layers": 3, "n_routed_experts": 4,
    "indexer_types": ["full", "shared", "full"]})
add("glm_moe_dsa_dense", "GlmMoeDsa", "glm_moe_dsa", {**DSA, "n_group": 1, "topk_group": 1, "index_topk": 512})

# experts behind plain attention
add("deepseek", "Deepseek", "deepseek", {
    **NO_HEAD, "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": False, "scoring_func": "softmax",
    "aux_loss_alpha": 0.001, "seq_aux": True, "rope_scaling": None})
add("olmoe", "Olmoe", "olmoe", {
    **NO_HEAD, "intermediate_size": 16, "num_experts": 8, "num_experts_per_tok": 3, "norm_topk_prob": False,
    "clip_qkv": None, "num_key_value_heads": 2})
add("olmoe_clip", "Olmoe", "olmoe", {
    **NO_HEAD, "intermediate_size": 16, "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True,
    "clip_qkv": 1.0, "num_hidden_layers": 1})
add("flex_olmo", "FlexOlmo", "flex_olmo", {
    **NO_HEAD, "intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": False,
    "rms_norm_eps": 1e-6})
add("phimoe", "Phimoe", "phimoe", {
    **NO_HEAD, "intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2, "attention_bias": True,
    "lm_head_bias": True, "router_jitter_noise": 0.01, "input_jitter_noise": 0.01, "sliding_window": 20,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0 + 0.05 * i for i in range(8)],
                     "long_factor": [1.0 + 0.75 * i for i in range(8)], "short_mscale": 1.243, "long_mscale": 1.1,
                     "original_max_position_embeddings": 512},
    "original_max_position_embeddings": 512})
GRANITE = {**NO_HEAD, "intermediate_size": 16, "num_local_experts": 6, "num_experts_per_tok": 2,
           "embedding_multiplier": 6.0, "attention_multiplier": 0.15, "residual_multiplier": 0.6,
           "logits_scaling": 2.0, "tie_word_embeddings": True}
add("granitemoe", "GraniteMoe", "granitemoe", GRANITE)
add("granitemoeshared", "GraniteMoeShared", "granitemoeshared", {**GRANITE, "shared_intermediate_size": 48})
add("granitemoe_swa", "GraniteMoeSWA", "granitemoe_swa", {
    **GRANITE, "sliding_window": 16, "num_hidden_layers": 3, "shared_intermediate_size": 32,
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "layer_rope_theta": [0.0, 10000.0, 500000.0]})
add("ernie4_5_moe", "Ernie4_5_Moe", "ernie4_5_moe", {
    "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 16, "moe_num_shared_experts": 2,
    "moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 1, "use_bias": False,
    "rope_theta": 500000.0, "tie_word_embeddings": True, "num_hidden_layers": 3})
add("hunyuan_v1_moe", "HunYuanMoEV1", "hunyuan_v1_moe", {
    "num_experts": 6, "moe_topk": 2, "intermediate_size": 16, "moe_intermediate_size": 16, "num_shared_expert": 1,
    "use_mixed_mlp_moe": True, "use_qk_norm": True, "tie_word_embeddings": True,
    "rope_scaling": {"alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0,
                     "mscale_all_dim": 1.0, "type": "dynamic"}})
add("dots1", "Dots1", "dots1", {
    "n_routed_experts": 6, "n_shared_experts": 2, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
    "scoring_func": "noaux_tc", "sliding_window": 16, "max_window_layers": 1})
add("exaone_moe", "ExaoneMoe", "exaone_moe", {
    "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 16,
    "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
    "sliding_window": 16, "sliding_window_pattern": "LLG", "num_hidden_layers": 3,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]})
add("afmoe", "Afmoe", "afmoe", {
    "num_experts": 4, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 16,
    "num_dense_layers": 1, "route_scale": 2.448, "route_norm": True, "score_func": "sigmoid", "mup_enabled": True,
    "global_attn_every_n_layers": 3, "sliding_window": 16, "num_hidden_layers": 3, "n_group": 1, "topk_group": 1,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]})
add("cohere2_moe", "Cohere2Moe", "cohere2_moe", {
    "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1, "intermediate_size": 16,
    "prefix_dense_intermediate_size": 48, "first_k_dense_replace": 1, "norm_topk_prob": True,
    "shared_expert_combination_strategy": "average", "expert_selection_fn": "softmax", "logit_scale": 0.5,
    "layer_norm_eps": 1e-5, "rms_norm_eps": "DROP", "sliding_window": 16, "sliding_window_pattern": 2,
    "prefix_dense_sliding_window_pattern": 1, "num_hidden_layers": 3, "tie_word_embeddings": True})
add("cohere2_moe_sigmoid", "Cohere2Moe", "cohere2_moe", {
    "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 2, "intermediate_size": 16,
    "norm_topk_prob": False, "shared_expert_combination_strategy": "sum", "expert_selection_fn": "sigmoid",
    "logit_scale": 0.5, "layer_norm_eps": 1e-5, "rms_norm_eps": "DROP", "sliding_window": 16,
    "sliding_window_pattern": 2, "tie_word_embeddings": True})
add("mimo_v2_flash", "MiMoV2Flash", "mimo_v2_flash", {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True,
    "n_group": 1, "topk_group": 1, "head_dim": 24, "v_head_dim": 16, "sliding_window": 16, "num_hidden_layers": 3,
    "attention_value_scale": 0.707, "routed_scaling_factor": None, "rope_theta": "DROP",
    "layer_types": ["full_attention", "sliding_attention", "sliding_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 5000000.0, "partial_rotary_factor": 0.334},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.334}}})
add("laguna", "Laguna", "laguna", {
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "sliding_window": 16, "num_hidden_layers": 3, "gating": True, "moe_routed_scaling_factor": 2.5,
    "num_attention_heads_per_layer": [4, 2, 4], "moe_router_logit_softcapping": 2.0,
    "layer_types": ["full_attention", "sliding_attention", "full_attention"], "rope_theta": "DROP",
    "mlp_layer_types": ["dense", "sparse", "sparse"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}}})
add("solar_open", "SolarOpen", "solar_open", {
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 3, "moe_intermediate_size": 16,
    "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1, "rope_theta": 1000000.0})
add("hy_v3", "HYV3", "hy_v3", {
    "num_experts": 6, "num_experts_per_tok": 2, "num_shared_experts": 1, "moe_intermediate_size": 16,
    "router_scaling_factor": 2.826, "enable_moe_fp32_combine": True, "mlp_bias": False})
add("mellum", "Mellum", "mellum", {
    "num_local_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "norm_topk_prob": True,
    "sliding_window": 16, "rope_theta": "DROP", "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500000.0},
                        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})
add("qwen2_moe_mixed", "Qwen2Moe", "qwen2_moe", {
    **NO_HEAD, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 32, "num_experts": 6,
    "num_experts_per_tok": 2, "norm_topk_prob": True, "decoder_sparse_step": 2, "mlp_only_layers": [3],
    "num_hidden_layers": 4, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28,
    "attention_bias": "DROP"})
add("dbrx", "Dbrx", "dbrx", {
    "d_model": 32, "n_heads": 2, "n_layers": 2, "max_seq_len": 512, "resid_pdrop": 0.0, "emb_pdrop": 0.0,
    "attn_config": {"clip_qkv": 1.5, "kv_n_heads": 1, "rope_theta": 10000.0, "attn_pdrop": 0.0},
    "ffn_config": {"ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2,
                   "moe_loss_weight": 0.05, "moe_jitter_eps": None, "moe_normalize_expert_weights": 1.0},
    **{k: "DROP" for k in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                           "num_key_value_heads", "head_dim", "hidden_act", "max_position_embeddings", "rms_norm_eps",
                           "rope_theta", "attention_dropout", "attention_bias")}})
add("jetmoe", "JetMoe", "jetmoe", {
    "kv_channels": 16, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
    "intermediate_size": 16, "activation_function": "silu", "head_dim": "DROP", "num_attention_heads": "DROP",
    "hidden_act": "DROP", "tie_word_embeddings": True})
add("minimax_m3_vl_text", "MiniMaxM3VL", "minimax_m3_vl_text", {
    "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 16, "dense_intermediate_size": 48,
    "shared_intermediate_size": 16, "routed_scaling_factor": 2.0, "rotary_dim": 8, "swiglu_alpha": 1.702,
    "swiglu_limit": 7.0, "mlp_layer_types": ["dense", "sparse"], "layer_types": ["full_attention"] * 2})
LLAMA4 = {"num_local_experts": 3, "num_experts_per_tok": 1, "intermediate_size": 16, "intermediate_size_mlp": 48,
          "use_qk_norm": True, "attention_chunk_size": 16, "attn_temperature_tuning": True, "floor_scale": 8,
          "attn_scale": 0.1, "num_hidden_layers": 4, "rope_theta": 500000.0, "for_llm_compressor": False,
          "router_jitter_noise": 0.0, "no_rope_layers": [1, 1, 1, 0]}
add("llama4_text", "Llama4", "llama4_text", {
    **LLAMA4, "interleave_moe_layer_step": 2, "rope_scaling": {
        "factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 64,
        "rope_type": "llama3"}}, transposed=[r"experts\.(gate_up_proj|down_proj)$"])
add("llama4_text_scout", "Llama4", "llama4_text", {
    **LLAMA4, "interleave_moe_layer_step": 1, "num_experts_per_tok": 2, "use_qk_norm": False, "num_hidden_layers": 2,
    "no_rope_layers": [1, 0], "attn_temperature_tuning": False},
    transposed=[r"experts\.(gate_up_proj|down_proj)$"])

# state spaces and mixed layers
MAMBA = {"state_size": 8, "expand": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True,
         "time_step_rank": 4, "residual_in_fp32": True, "layer_norm_epsilon": 1e-5, "num_hidden_layers": 3,
         **{k: "DROP" for k in ("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                                "max_position_embeddings", "rms_norm_eps", "rope_theta", "attention_dropout",
                                "attention_bias")}}
DT = [(r"dt_proj\.bias$", "u", -2.0, 0.5), (r"A_log$", "u", -1.5, 1.0), (r"dt_proj\.weight$", "fan", 1.0, 0)]
add("mamba", "Mamba", "mamba", {**MAMBA, "tie_word_embeddings": True}, rules=DT)
add("falcon_mamba", "FalconMamba", "falcon_mamba", {**MAMBA, "mixer_rms_eps": 1e-6}, rules=DT)
add("jamba", "Jamba", "jamba", {
    **NO_HEAD, "num_hidden_layers": 4, "mamba_d_state": 8, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": 4,
    "mamba_conv_bias": True, "mamba_proj_bias": False, "use_mamba_kernels": False, "num_experts": 3,
    "num_experts_per_tok": 2, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 4,
    "attn_layer_offset": 2, "intermediate_size": 16, "rope_theta": "DROP", "attention_bias": "DROP"}, rules=DT)
MAMBA2 = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_d_conv": 4,
          "mamba_expand": 2, "mamba_chunk_size": 16, "mamba_conv_bias": True, "mamba_proj_bias": False}
add("bamba", "Bamba", "bamba", {
    **NO_HEAD, **MAMBA2, "mamba_n_groups": 1, "attn_layer_indices": [1], "num_hidden_layers": 3, "mlp_bias": False,
    "attn_rotary_emb": 8})
add("granitemoehybrid", "GraniteMoeHybrid", "granitemoehybrid", {
    **GRANITE, **MAMBA2, "mamba_n_groups": 1, "shared_intermediate_size": 32, "num_local_experts": 4,
    "layer_types": ["mamba", "attention", "mamba"], "num_hidden_layers": 3, "position_embedding_type": "nope",
    "init_method": "mup", "normalization_function": "rmsnorm"})
add("granitemoehybrid_dense", "GraniteMoeHybrid", "granitemoehybrid", {
    **GRANITE, **MAMBA2, "mamba_n_groups": 1, "shared_intermediate_size": 48, "num_local_experts": 0,
    "num_experts_per_tok": 0, "layer_types": ["mamba", "attention"], "position_embedding_type": "rope"})
add("falcon_h1", "FalconH1", "falcon_h1", {
    **MAMBA2, "mamba_d_ssm": 64, "mamba_norm_before_gate": False, "mamba_rms_norm": True, "projectors_bias": False,
    "mlp_bias": False, "rope_theta": 100000000000.0, "lm_head_multiplier": 0.6, "embedding_multiplier": 2.0,
    "mlp_multipliers": [0.9, 0.7], "key_multiplier": 0.6, "attention_out_multiplier": 0.8,
    "attention_in_multiplier": 1.2, "ssm_multipliers": [0.9, 0.7, 0.8, 1.1, 1.2], "ssm_in_multiplier": 1.3,
    "ssm_out_multiplier": 0.6})
add("falcon_h1_plain", "FalconH1", "falcon_h1", {
    **MAMBA2, "mamba_d_ssm": 64, "mamba_norm_before_gate": False, "mamba_rms_norm": False, "projectors_bias": False,
    "mamba_n_groups": 1, "mlp_bias": False, "tie_word_embeddings": True, "num_hidden_layers": 2})
NEMOTRON = {"mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 16, "n_groups": 2, "conv_kernel": 4,
            "expand": 2, "chunk_size": 16, "use_conv_bias": True, "use_bias": False, "mamba_proj_bias": False,
            "mlp_bias": False, "mlp_hidden_act": "relu2", "mamba_hidden_act": "silu", "layer_norm_epsilon": 1e-5,
            "norm_eps": 1e-5, "residual_in_fp32": False, "rms_norm_eps": "DROP", "hidden_act": "DROP",
            "rope_theta": "DROP"}
add("nemotron_h", "NemotronH", "nemotron_h", {
    **NEMOTRON, "hybrid_override_pattern": "M-M*-", "num_hidden_layers": 5})
add("nemotron_h_moe", "NemotronH", "nemotron_h", {
    **NEMOTRON, "hybrid_override_pattern": "ME*E", "num_hidden_layers": 4, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16,
    "moe_shared_expert_intermediate_size": 32, "routed_scaling_factor": 2.5, "n_group": 2, "topk_group": 1,
    "norm_topk_prob": True})
add("nemotron_h_latent", "NemotronH", "nemotron_h", {
    **NEMOTRON, "hybrid_override_pattern": "ME*", "num_hidden_layers": 3, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 16, "moe_latent_size": 16,
    "moe_shared_expert_intermediate_size": 32, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1,
    "norm_topk_prob": True})
add("minimax", "MiniMax", "minimax", {
    "num_local_experts": 3, "num_experts_per_tok": 2, "intermediate_size": 16, "num_hidden_layers": 3,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"], "block_size": 16,
    "full_attn_alpha_factor": 1.3, "full_attn_beta_factor": 0.8, "linear_attn_alpha_factor": 1.2,
    "linear_attn_beta_factor": 0.9, "mlp_alpha_factor": 1.1, "mlp_beta_factor": 0.7, "rope_theta": 1000000.0},
    computed=[r"(slope_rate|_decay)$"])
def olmo_convolutions(tensors, c):
    """Transformers 5.17 saves the convolution of q, k and v in three equal parts, whatever their widths are."""
    k = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    for name in [n for n in tensors if n.endswith("q_conv1d.weight")]:
        names = [name.replace("q_conv1d", x + "_conv1d") for x in "qkv"]
        rows = [r for n in names for r in tensors[n]]
        for n, part in zip(names, (rows[:k], rows[k : 2 * k], rows[2 * k :])):
            tensors[n] = part[0].new_empty((len(part), *part[0].shape))
            for i, r in enumerate(part):
                tensors[n][i] = r


OLMO_HYBRID = {
    **NO_HEAD, "num_hidden_layers": 3, "linear_num_key_heads": 2, "linear_num_value_heads": 2,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "linear_allow_neg_eigval": True, "rope_theta": "DROP", "rms_norm_eps": 1e-6,
    "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
add("olmo_hybrid", "OlmoHybrid", "olmo_hybrid", OLMO_HYBRID)
add("olmo_hybrid_nope", "OlmoHybrid", "olmo_hybrid", {
    **OLMO_HYBRID, "rope_theta": None, "num_hidden_layers": 2, "linear_allow_neg_eigval": False,
    "linear_num_key_heads": 1, "layer_types": ["linear_attention", "full_attention"]}, published=olmo_convolutions)
ZAMBA2 = {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 4,
          "use_mamba_kernels": False, "use_conv_bias": True, "chunk_size": 16, "use_mem_eff_path": False,
          "add_bias_linear": False, "hidden_act": "gelu", "num_attention_heads": 4, "num_key_value_heads": 4,
          "num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "adapter_rank": 8,
          "num_logits_to_keep": 1, "use_long_context": False, "time_step_min": 0.001, "time_step_max": 0.1,
          "time_step_floor": 0.0001, "tie_word_embeddings": True, "head_dim": "DROP", "attention_bias": "DROP"}
add("zamba2", "Zamba2", "zamba2", {
    **ZAMBA2, "num_mem_blocks": 1, "use_shared_attention_adapter": True, "use_mem_rope": True})
add("zamba2_plain", "Zamba2", "zamba2", {
    **ZAMBA2, "num_mem_blocks": 2, "use_shared_attention_adapter": False, "use_mem_rope": False,
    "num_hidden_layers": 6, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba", "hybrid"],
    "mamba_ngroups": 2})
GEMMA3N = {"hidden_activation": "gelu_pytorch_tanh", "hidden_act": "DROP", "tie_word_embeddings": True,
           "sliding_window": 16, "final_logit_softcapping": 4.0, "vocab_size_per_layer_input": VOCAB,
           "hidden_size_per_layer_input": 8, "altup_active_idx": 0, "altup_coef_clip": 120.0,
           "altup_correct_scale": True, "altup_num_inputs": 4, "laurel_rank": 8, "rms_norm_eps": 1e-6,
           "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rope_scaling": None}
add("gemma3n_text", "Gemma3n", "gemma3n_text", {
    **GEMMA3N, "num_hidden_layers": 4, "num_kv_shared_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "activation_sparsity_pattern": [0.9, 0.0, 0.0, 0.0], "intermediate_size": [32] * 4})
