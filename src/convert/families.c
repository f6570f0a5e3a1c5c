/* SPDX-License-Identifier: Apache-2.0 */
/* What is not in here is refused; docs/convert.md lists the names. */
#include "convert/families.h"

#include "nn/bind.h"

#include <string.h>

#define SILU "\"hidden_act\":\"silu\""
#define LATENT                                                                                                         \
    "\"head_dim\":\"!\",\"num_key_value_heads\":\"=attention.head_count\","                                            \
    "\"qk_nope_head_dim\":\"=attention.key_length_mla-rope.dimension_count\""
#define SCAN(expand)                                                                                                   \
    "\"" expand "\":\"=ssm.inner_size/embedding_length\",\"num_key_value_heads\":\"=attention.head_count_kv\""
#define KINDS(yes, no) "\"layer_types\":\"@attention.head_count_kv:" yes "," no "\""
#define HEADS "\"num_key_value_heads\":\"!\""
#define GELU "\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\""

static const hf_family families[] = {
    { "llama", "mixtral", "MixtralForCausalLM", "num_local_experts|block_sparse_moe.gate|experts.*.w", SILU, 1, 0, NULL,
      NULL },
    { "llama", "mistral", "MistralForCausalLM", NULL, SILU, -1, 1, NULL, NULL },
    { "llama", "llama", "LlamaForCausalLM", NULL, SILU, -1, -1, NULL, NULL },
    { "qwen2", "qwen2", "Qwen2ForCausalLM", NULL, SILU ",\"use_sliding_window\":false", 0, 0, NULL, NULL },
    { "qwen3", "qwen3", "Qwen3ForCausalLM", NULL, SILU ",\"attention_bias\":false", 0, 0, NULL, NULL },
    { "qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", NULL, SILU ",\"decoder_sparse_step\":1", 0, 0, NULL, NULL },
    { "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", NULL, SILU ",\"norm_topk_prob\":true,\"decoder_sparse_step\":1",
      0, 0, NULL, NULL },
    { "gemma", "gemma", "GemmaForCausalLM", NULL, GELU, 0, 0, NULL, NULL },
    { "gemma2", "gemma2", "Gemma2ForCausalLM", NULL, GELU, 0, 0, NULL, NULL },
    { "gemma3", "gemma3_text", "Gemma3ForCausalLM", NULL, GELU, 0, 0, NULL, NULL },
    { "phi3", "phi3", "Phi3ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "starcoder2", "starcoder2", "Starcoder2ForCausalLM", "norm_epsilon",
      "\"hidden_act\":\"gelu_pytorch_tanh\",\"use_bias\":true", 0, 0, NULL, NULL },
    { "granite", "granite", "GraniteForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "olmo2", "olmo2", "Olmo2ForCausalLM", NULL, SILU, 0, -1, NULL, NULL },
    { "olmo2", "olmo3", "Olmo3ForCausalLM", NULL, SILU, 0, 1, NULL, NULL },
    { "olmoe", "olmoe", "OlmoeForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "cohere2", "cohere2", "Cohere2ForCausalLM", "layer_norm_eps", SILU, 0, 0, NULL, NULL },
    { "smollm3", "smollm3", "SmolLM3ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "stablelm", "stablelm", "StableLmForCausalLM", "layer_norm_eps", SILU, 0, 0, NULL, NULL },
    { "glm4", "glm4", "Glm4ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "exaone4", "exaone4", "Exaone4ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "seed_oss", "seed_oss", "SeedOssForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "arcee", "arcee", "ArceeForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0, NULL, NULL },
    { "ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "nemotron", "nemotron", "NemotronForCausalLM", "norm_eps", "\"hidden_act\":\"relu2\"", 0, 0, NULL, NULL },
    { "dots1", "dots1", "Dots1ForCausalLM", "n_routed_experts", SILU, 0, 0, NULL, NULL },
    { "glm4moe", "glm4_moe", "Glm4MoeForCausalLM", "n_routed_experts",
      SILU ","
           "\"first_k_dense_replace\":0,\"partial_rotary_factor\":1.0",
      0, 0, NULL, NULL },
    { "command-r", "cohere", "CohereForCausalLM", "layer_norm_eps", SILU, 0, 0, NULL, NULL },
    { "helium", "helium", "HeliumForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "olmo", "olmo", "OlmoForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "ministral", "ministral", "MinistralForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "vaultgemma", "vaultgemma", "VaultGemmaForCausalLM", NULL, GELU, 0, 0, NULL, NULL },
    { "deepseek", "deepseek", "DeepseekForCausalLM", "n_routed_experts", SILU, 0, 0, NULL, NULL },
    { "hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM",
      "moe_topk|mlp.gate.wg|shared_mlp|query_layernorm|key_layernorm", SILU, 0, 0, NULL, NULL },
    { "exaone-moe", "exaone_moe", "ExaoneMoeForCausalLM", "mlp.e_score_correction_bias|num_experts|num_shared_experts",
      SILU, 0, 0, NULL, NULL },
    { "minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", "experts.*.w|block_sparse_moe", SILU, 0, 0, NULL, NULL },
    { "granitemoe", "granitemoeshared", "GraniteMoeSharedForCausalLM", "input_linear|output_linear|router.layer", SILU,
      0, 0, .with = "ffn_gate_shexp.weight" },
    { "granitemoe", "granitemoe", "GraniteMoeForCausalLM", "input_linear|output_linear|router.layer", SILU, 0, 0, NULL,
      NULL },
    { "nanochat", "nanochat", "NanoChatForCausalLM", "mlp.fc", "\"hidden_act\":\"relu2\"", 0, 0, NULL, NULL },
    { "orion", "orion", "OrionForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "bitnet", "bitnet", "BitNetForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0, NULL, NULL },
    { "mellum", "mellum", "MellumForCausalLM", "two_ropes|num_local_experts", SILU, 0, 0, NULL, NULL },
    { "hy_v3", "hy_v3", "HYV3ForCausalLM", "router.gate|mlp.expert_bias", SILU, 0, 0, NULL, NULL },
    { "granite_swa", "granite_swa", "GraniteSwaForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "flex_olmo", "flex_olmo", "FlexOlmoForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "jais2", "jais2", "Jais2ForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0, NULL, NULL },
    { "afmoe", "afmoe", "AfmoeForCausalLM",
      "router.gate|^mlp.expert_bias|num_experts|num_shared_experts|route_scale|num_dense_layers",
      SILU ","
           "\"mup_enabled\":true,\"score_func\":\"sigmoid\",\"route_norm\":true",
      0, 0, NULL, NULL },
    { "axk1", "axk1", "AXK1ForCausalLM", "n_routed_experts", SILU "," LATENT, 0, 0, NULL, NULL },
    { "biogpt", "biogpt", "BioGptForCausalLM",
      "biogpt.embed_tokens|biogpt.embed_positions|biogpt.layer_norm|^fc1|^fc2|layer_norm_eps|intermediate_size",
      "\"hidden_act\":\"gelu\"," HEADS ",\"scale_embedding\":true", 0, 0, NULL, NULL },
    { "bloom", "bloom", "BloomForCausalLM",
      "model.word_embeddings|model.ln_f|self_attention|mlp.dense|layer_norm_epsilon", HEADS, 0, 0,
      .root = "transformer." },
    { "codeshell", "codeshell", "CodeShellForCausalLM", "layer_norm_epsilon", NULL, 0, 0, .root = "transformer." },
    { "cohere2moe", "cohere2_moe", "Cohere2MoeForCausalLM", NULL,
      SILU
      ","
      "\"rms_norm_eps\":\"!\",\"layer_norm_eps\":\"=attention.layer_norm_epsilon\",\"intermediate_size\":\"=expert_"
      "feed_forward_length\",\"prefix_dense_intermediate_size\":\"=feed_forward_length\",\"expert_selection_fn\":\"?"
      "expert_gating_func-1:\\\"sigmoid\\\",\\\"softmax\\\"\",\"shared_expert_combination_strategy\":\"average\"",
      0, 0, NULL, NULL },
    { "cwm", "cwm", "CwmForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "dbrx", "dbrx", "DbrxForCausalLM",
      "d_model|n_heads|n_layers|max_seq_len|ffn.router.layer|model.wte|transformer.norm_f",
      "\"num_key_value_heads\":\"!\",\"attn_config\":{\"kv_n_heads\":\"=attention.head_count_kv\",\"clip_qkv\":\"="
      "attention.clamp_kqv\",\"rope_theta\":\"=rope.freq_base\"},\"ffn_config\":{\"ffn_hidden_size\":\"=feed_forward_"
      "length\",\"moe_num_experts\":\"=expert_count\",\"moe_top_k\":\"=expert_used_count\",\"moe_normalize_expert_"
      "weights\":\"?expert_count:1.0,1.0\",\"ffn_act_fn\":{\"name\":\"silu\"}}",
      0, 0, .root = "transformer." },
    { "deepseek2", "deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts",
      SILU "," LATENT ",\"topk_method\":\"noaux_tc\",\"scoring_func\":\"sigmoid\""
           ",\"q_lora_rank\":null",
      0, 0, .with = "exp_probs_b.bias" },
    { "deepseek2", "deepseek_v2", "DeepseekV2ForCausalLM", "n_routed_experts",
      SILU "," LATENT ",\"scoring_func\":\"softmax\",\"topk_method\":\"group_limited_greedy\""
           ",\"q_lora_rank\":null",
      0, 0, NULL, NULL },
    { "ernie4_5-moe", "ernie4_5_moe", "Ernie4_5_MoeForCausalLM",
      "moe_num_experts|moe_k|moe_statics|moe_num_shared_experts|moe_layer_start_index",
      SILU ",\"moe_layer_interval\":1,\"moe_layer_end_index\":-1", 0, 0, NULL, NULL },
    { "falcon", "falcon", "FalconForCausalLM",
      "model.word_embeddings|model.ln_f|self_attention|num_kv_heads|mlp.dense|layer_norm_epsilon",
      "\"new_decoder_architecture\":\"?attention.head_count_kv-1:true,false\",\"num_ln_in_parallel_attn\":\"?attn_norm_"
      "2.weight:2,1\",\"num_kv_heads\":\"=attention.head_count_kv\",\"num_key_value_heads\":\"!\",\"multi_query\":true,"
      "\"parallel_attn\":true,\"alibi\":false,\"bias\":false",
      0, 0, .root = "transformer." },
    { "falcon-h1", "falcon_h1", "FalconH1ForCausalLM", "model.final_layernorm",
      SILU ",\"mamba_conv_bias\":\"?ssm_conv1d.bias:true,false\",\"mamba_rms_norm\":\"?ssm_norm.weight:true,false\","
           "\"mamba_d_head\":\"=ssm.inner_size/ssm.time_step_rank\"",
      0, 0, NULL, NULL },
    { "mamba", "falcon_mamba", "FalconMambaForCausalLM", "layer_norm_epsilon",
      SILU "," SCAN("expand") ",\"use_conv_bias\":\"?ssm_conv1d.bias:true,false\"", 0, 0, .with = "ssm.dt_b_c_rms" },
    { "mamba", "mamba", "MambaForCausalLM", "layer_norm_epsilon",
      SILU "," SCAN("expand") ",\"use_conv_bias\":\"?ssm_conv1d.bias:true,false\"", 0, 0, NULL, NULL },
    { "mamba2", "mamba2", "Mamba2ForCausalLM", "backbone.embeddings|backbone.norm_f|layer_norm_epsilon",
      SILU "," SCAN("expand") ",\"head_dim\":\"=ssm.inner_size/ssm.time_step_rank\""
                              ",\"use_conv_bias\":\"?ssm_conv1d.bias:true,false\"",
      0, 0, NULL, NULL },
    { "gemma4", "gemma4_text", "Gemma4ForCausalLM", "two_ropes",
      GELU ",\"query_pre_attn_scalar\":\"!\",\"intermediate_size\":\"=<feed_forward_length\",\"use_double_wide_mlp\":"
           "\"?feed_forward_length-<feed_"
           "forward_length:true,false\",\"num_key_value_heads\":\"=attention.head_count_kv\",\"num_global_key_value_"
           "heads\":\"=<attention.head_count_kv\",\"attention_k_eq_v\":\"?attention.head_count_kv-<attention.head_"
           "count_kv:true,false\",\"enable_moe_block\":\"?expert_count:true,false\"",
      0, 0, NULL, NULL },
    { "chatglm", "glm", "GlmForCausalLM", NULL, SILU, 0, 0, .root = "model.encoder.>model." },
    { "gpt2", "gpt2", "GPT2LMHeadModel", "layer_norm_epsilon", HEADS ",\"activation_function\":\"gelu_new\"", 0, 0,
      .root = "" },
    { "starcoder", "gpt_bigcode", "GPTBigCodeForCausalLM", "layer_norm_epsilon",
      "\"multi_query\":\"?attention.head_count_kv-1:false,true\""
      ",\"activation_function\":\"gelu_pytorch_tanh\"",
      0, 0, .root = "transformer." },
    { "gptneox", "gpt_neox", "GPTNeoXForCausalLM", "embed_out|mlp.dense|rotary_pct|layer_norm_eps",
      HEADS ",\"rotary_pct\":1.0,\"hidden_act\":\"gelu\"", 0, 0, NULL, NULL },
    { "gpt-oss", "gpt_oss", "GptOssForCausalLM", "^mlp.experts.down_proj", SILU, 0, 0, NULL, NULL },
    { "gptj", "gptj", "GPTJForCausalLM",
      "^attn.q_proj|^attn.k_proj|^attn.v_proj|^attn.out_proj|ln_1|model.wte|model.ln_f|^mlp.fc_in|^mlp.fc_out|layer_"
      "norm_epsilon",
      HEADS ",\"rotary_dim\":\"=rope.dimension_count\",\"partial_rotary_factor\":\"!\""
            ",\"activation_function\":\"gelu_new\"",
      0, 0, .root = "transformer." },
    { "granitehybrid", "granitemoehybrid", "GraniteMoeHybridForCausalLM", "input_linear|output_linear|router.layer",
      SILU
      "," SCAN("mamba_expand") "," KINDS("attention", "mamba") ",\"mamba_d_head\":\"=ssm.inner_size/"
                                                               "ssm.time_step_rank\",\"position_embedding_type\":\"?"
                                                               "rope.scaling.finetuned:\\\"rope\\\",\\\"nope\\\"\"",
      0, 0, NULL, NULL },
    { "hyperclovax", "hyperclovax", "HyperCLOVAXForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "jamba", "jamba", "JambaForCausalLM",
      "mamba.|model.embed_tokens|model.final_layernorm|^input_layernorm|feed_forward.router|mamba_d_state|mamba_d_conv|"
      "mamba_dt_rank",
      SILU "," SCAN("mamba_expand") ",\"attn_layer_period\":\"~attention.head_count_kv\",\"attn_layer_offset\":\"~"
                                    "attention.head_count_kv+\",\"expert_layer_period\":\"~ffn_gate_inp.weight\","
                                    "\"expert_layer_offset\":\"~ffn_gate_inp.weight+\"",
      0, 0, NULL, NULL },
    { "kimi-linear", "kimi_linear", "KimiLinearForCausalLM", "experts.*.w|moe_statics|gate.e_score",
      SILU "," LATENT
           ",\"linear_attn_config\":{\"num_heads\":\"=attention.head_count\",\"head_dim\":\"=kda.head_dim\",\"short_"
           "conv_kernel_size\":\"=ssm.conv_kernel\",\"full_attn_layers\":\"#attention.head_count_kv\",\"kda_layers\":"
           "\"#!attention.head_count_kv\"},\"mla_use_nope\":true,\"moe_router_activation_func\":\"sigmoid\""
           ",\"q_lora_rank\":null",
      0, 0, NULL, NULL },
    { "laguna", "laguna", "LagunaForCausalLM",
      "two_ropes|self_attn.g_proj|experts.e_score_correction_bias|num_experts|moe_routed_scaling_factor",
      SILU ","
           "\"gating\":true"
           ",\"mlp_layer_types\":\"@ffn_gate_inp.weight:sparse,dense\",\"first_k_dense_replace\":\"!\"",
      0, 0, NULL, NULL },
    { "lfm2", "lfm2", "Lfm2ForCausalLM", "out_proj|norm_eps",
      KINDS("full_attention",
            "conv") ",\"num_key_value_heads\":\"=attention.head_count_kv\",\"block_auto_adjust_ff_dim\":false",
      0, 0, NULL, NULL },
    { "lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM",
      "out_proj|experts.*.w|^feed_forward.expert_bias|norm_eps|intermediate_size",
      KINDS("full_attention", "conv") ",\"num_key_value_heads\":\"=attention.head_count_kv\"", 0, 0, NULL, NULL },
    { "llama4", "llama4_text", "Llama4ForCausalLM", NULL,
      SILU ","
           "\"intermediate_size\":\"=expert_feed_forward_length\",\"intermediate_size_mlp\":\"=feed_forward_length\","
           "\"use_qk_norm\":\"?expert_count-127:false,true\",\"attn_temperature_tuning\":true",
      0, 0, NULL, NULL },
    { "mimo2", "mimo_v2_flash", "MiMoV2FlashForCausalLM", "n_routed_experts|two_ropes",
      SILU ",\"num_key_value_heads\":\"=<attention.head_count_kv\",\"swa_num_key_value_heads\":\"=attention.head_count_"
           "kv\",\"mlp_layer_types\":\"@ffn_gate_inp.weight:sparse,dense\",\"first_k_dense_replace\":\"!\"",
      0, 0, NULL, NULL },
    { "mistral3", "ministral3", "Ministral3ForCausalLM", NULL, SILU, 0, 0, NULL, NULL },
    { "mistral4", "mistral4", "Mistral4ForCausalLM",
      "n_routed_experts|^mlp.experts.gate_up_proj|^mlp.experts.down_proj", SILU "," LATENT, 0, 0, NULL, NULL },
    { "mpt", "mpt", "MptForCausalLM",
      "d_model|n_heads|n_layers|max_seq_len|attn.Wqkv|attn.out_proj|ffn.|norm_1|norm_2|norm_f|layer_norm_epsilon",
      HEADS ",\"attn_config\":{\"alibi\":true,\"alibi_bias_max\":\"=attention.max_alibi_bias*1\",\"clip_qkv\":\"="
            "attention.clamp_kqv\",\"attn_type\":\"multihead_attention\"},\"expansion_ratio\":\"=feed_forward_length/"
            "embedding_length\""
            ",\"no_bias\":true",
      0, 0, .root = "transformer." },
    { "nemotron_h", "nemotron_h", "NemotronHForCausalLM", "layer_norm_epsilon",
      "\"hybrid_override_pattern\":\"&ssm_in.weight:M,attn_q.weight:*,ffn_gate_inp.weight:E,ffn_up.weight:-\",\"num_"
      "key_value_heads\":\"=attention.head_count_kv\",\"intermediate_size\":\"=feed_forward_length\",\"mamba_head_"
      "dim\":\"=ssm.inner_size/ssm.time_step_rank\",\"mlp_hidden_act\":\"relu2\""
      ",\"use_conv_bias\":\"?ssm_conv1d.bias:true,false\"",
      0, 0, NULL, NULL },
    { "opt", "opt", "OPTForCausalLM", "^fc1|^fc2|ffn_dim",
      HEADS
      ",\"word_embed_proj_dim\":\"=embedding_length\",\"do_layer_norm_before\":true,\"activation_function\":\"relu\"",
      0, 0, NULL, NULL },
    { "persimmon", "persimmon", "PersimmonForCausalLM",
      "model.embed_tokens|model.final_layernorm|self_attn|mlp.dense|layer_norm_eps",
      HEADS ",\"hidden_act\":\"relu2\",\"qk_layernorm\":true", 0, 0, NULL, NULL },
    { "phi2", "phi", "PhiForCausalLM", "layer_norm_eps", "\"hidden_act\":\"gelu_new\"", 0, 0, NULL, NULL },
    { "phimoe", "phimoe", "PhimoeForCausalLM", "experts.*.w", SILU ",\"lm_head_bias\":\"?output.bias:true,false\"", 0,
      0, NULL, NULL },
    { "qwen3next", "qwen3_next", "Qwen3NextForCausalLM", NULL,
      SILU ","
           "\"linear_value_head_dim\":\"=ssm.inner_size/ssm.time_step_rank\"",
      0, 0, NULL, NULL },
    { "refact", "gpt_refact", "GPTRefactForCausalLM", "mlp.gate_up_proj|layer_norm_epsilon", NULL, 0, 0,
      .root = "transformer." },
    { "youtu", "youtu", "YoutuForCausalLM", NULL, SILU "," LATENT, 0, 0, NULL, NULL },
};

/* 1: the model has this positive number, -1: it does not. */
static int has(const nn_model *m, const char *key) {
    for (const nn_config_note *n = m->config.notes; n; n = n->next)
        if (strcmp(n->key, key) == 0) return n->value > 0 ? 1 : -1;
    return -1;
}

static bool has_tensor(const nn_model *m, const char *ending) {
    size_t n = strlen(ending);
    for (size_t i = 0; i < model_file_tensor_count(m->file); i++) {
        const char *name = model_file_tensor_at(m->file, i)->name;
        size_t      len = strlen(name);
        if (len >= n && strcmp(name + len - n, ending) == 0) return true;
    }
    return false;
}

const hf_family *hf_family_of(const nn_model *m) {
    int experts = has(m, "expert_count"), window = has(m, "attention.sliding_window");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const hf_family *f = &families[i];
        if (strcmp(f->arch, m->config.arch_name) == 0 && (!f->experts || f->experts == experts) &&
            (!f->window || f->window == window) && (!f->with || has(m, f->with) > 0 || has_tensor(m, f->with)))
            return f;
    }
    return NULL;
}

static bool is_preferred(const hf_family *f, const char *name, size_t prefix) {
    for (const char *p = f->prefer; p && *p;) {
        size_t n = strcspn(p, "|"), len = strlen(name);
        if (*p == '^' && len - prefix == n - 1 && memcmp(name + prefix, p + 1, n - 1) == 0) return true;
        for (size_t i = 0; i + n <= len; i++)
            if (memcmp(name + i, p, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

bool hf_family_choose(const hf_family *f, const char *list, const char *prefix, bind_name *out) {
    bind_name one;
    bool      any = false;
    while (bind_next_name(&list, prefix, &one)) {
        if (!any) *out = one;
        any = true;
        if (is_preferred(f, one.name, strlen(prefix))) {
            *out = one;
            return true;
        }
    }
    return any;
}
