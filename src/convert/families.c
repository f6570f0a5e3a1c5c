/* SPDX-License-Identifier: Apache-2.0 */
/* What is not in here is refused; docs/convert.md lists the names. */
#include "convert/families.h"

#include "nn/bind.h"

#include <string.h>

#define SILU "\"hidden_act\":\"silu\""
#define GELU "\"hidden_act\":\"gelu_pytorch_tanh\",\"hidden_activation\":\"gelu_pytorch_tanh\""

static const hf_family families[] = {
    { "llama", "mixtral", "MixtralForCausalLM", "num_local_experts|block_sparse_moe.gate|experts.*.w", SILU, 1, 0 },
    { "llama", "mistral", "MistralForCausalLM", NULL, SILU, -1, 1 },
    { "llama", "llama", "LlamaForCausalLM", NULL, SILU, -1, -1 },
    { "qwen2", "qwen2", "Qwen2ForCausalLM", NULL, SILU ",\"use_sliding_window\":false", 0, 0 },
    { "qwen3", "qwen3", "Qwen3ForCausalLM", NULL, SILU ",\"attention_bias\":false", 0, 0 },
    { "qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM", NULL, SILU ",\"decoder_sparse_step\":1", 0, 0 },
    { "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM", NULL, SILU ",\"norm_topk_prob\":true,\"decoder_sparse_step\":1",
      0, 0 },
    { "gemma", "gemma", "GemmaForCausalLM", NULL, GELU, 0, 0 },
    { "gemma2", "gemma2", "Gemma2ForCausalLM", NULL, GELU, 0, 0 },
    { "gemma3", "gemma3_text", "Gemma3ForCausalLM", NULL, GELU, 0, 0 },
    { "phi3", "phi3", "Phi3ForCausalLM", NULL, SILU, 0, 0 },
    { "starcoder2", "starcoder2", "Starcoder2ForCausalLM", "norm_epsilon",
      "\"hidden_act\":\"gelu_pytorch_tanh\",\"use_bias\":true", 0, 0 },
    { "granite", "granite", "GraniteForCausalLM", NULL, SILU, 0, 0 },
    { "olmo2", "olmo2", "Olmo2ForCausalLM", NULL, SILU, 0, -1 },
    { "olmo2", "olmo3", "Olmo3ForCausalLM", NULL, SILU, 0, 1 },
    { "olmoe", "olmoe", "OlmoeForCausalLM", NULL, SILU, 0, 0 },
    { "cohere2", "cohere2", "Cohere2ForCausalLM", "layer_norm_eps", SILU, 0, 0 },
    { "smollm3", "smollm3", "SmolLM3ForCausalLM", NULL, SILU, 0, 0 },
    { "stablelm", "stablelm", "StableLmForCausalLM", "layer_norm_eps", SILU, 0, 0 },
    { "glm4", "glm4", "Glm4ForCausalLM", NULL, SILU, 0, 0 },
    { "exaone4", "exaone4", "Exaone4ForCausalLM", NULL, SILU, 0, 0 },
    { "seed_oss", "seed_oss", "SeedOssForCausalLM", NULL, SILU, 0, 0 },
    { "arcee", "arcee", "ArceeForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0 },
    { "ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", NULL, SILU, 0, 0 },
    { "hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", NULL, SILU, 0, 0 },
    { "nemotron", "nemotron", "NemotronForCausalLM", "norm_eps", "\"hidden_act\":\"relu2\"", 0, 0 },
    { "dots1", "dots1", "Dots1ForCausalLM", "n_routed_experts", SILU, 0, 0 },
    { "glm4moe", "glm4_moe", "Glm4MoeForCausalLM", "n_routed_experts", SILU, 0, 0 },
    { "command-r", "cohere", "CohereForCausalLM", "layer_norm_eps", SILU, 0, 0 },
    { "helium", "helium", "HeliumForCausalLM", NULL, SILU, 0, 0 },
    { "olmo", "olmo", "OlmoForCausalLM", NULL, SILU, 0, 0 },
    { "ministral", "ministral", "MinistralForCausalLM", NULL, SILU, 0, 0 },
    { "vaultgemma", "vaultgemma", "VaultGemmaForCausalLM", NULL, GELU, 0, 0 },
    { "deepseek", "deepseek", "DeepseekForCausalLM", "n_routed_experts", SILU, 0, 0 },
    { "hunyuan-moe", "hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM",
      "moe_topk|mlp.gate.wg|shared_mlp|query_layernorm|key_layernorm", SILU, 0, 0 },
    { "exaone-moe", "exaone_moe", "ExaoneMoeForCausalLM", "mlp.e_score_correction_bias", SILU, 0, 0 },
    { "minimax-m2", "minimax_m2", "MiniMaxM2ForCausalLM", "experts.*.w|block_sparse_moe", SILU, 0, 0 },
    { "granitemoe", "granitemoe", "GraniteMoeForCausalLM", "input_linear|output_linear|router.layer", SILU, 0, 0 },
    { "nanochat", "nanochat", "NanoChatForCausalLM", "mlp.fc", "\"hidden_act\":\"relu2\"", 0, 0 },
    { "orion", "orion", "OrionForCausalLM", NULL, SILU, 0, 0 },
    { "bitnet", "bitnet", "BitNetForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0 },
    { "mellum", "mellum", "MellumForCausalLM", NULL, SILU, 0, 0 },
    { "hy_v3", "hy_v3", "HYV3ForCausalLM", "router.gate|mlp.expert_bias", SILU, 0, 0 },
    { "granite_swa", "granite_swa", "GraniteSwaForCausalLM", NULL, SILU, 0, 0 },
    { "flex_olmo", "flex_olmo", "FlexOlmoForCausalLM", NULL, SILU, 0, 0 },
    { "jais2", "jais2", "Jais2ForCausalLM", NULL, "\"hidden_act\":\"relu2\"", 0, 0 },
};

/* 1: the model has this positive number, -1: it does not. */
static int has(const nn_model *m, const char *key) {
    for (const nn_config_note *n = m->config.notes; n; n = n->next)
        if (strcmp(n->key, key) == 0) return n->value > 0 ? 1 : -1;
    return -1;
}

const hf_family *hf_family_of(const nn_model *m) {
    int experts = has(m, "expert_count"), window = has(m, "attention.sliding_window");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const hf_family *f = &families[i];
        if (strcmp(f->arch, m->config.arch_name) == 0 && (!f->experts || f->experts == experts) &&
            (!f->window || f->window == window))
            return f;
    }
    return NULL;
}

static bool is_preferred(const hf_family *f, const char *name) {
    for (const char *p = f->prefer; p && *p;) {
        size_t n = strcspn(p, "|"), len = strlen(name);
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
        if (is_preferred(f, one.name)) {
            *out = one;
            return true;
        }
    }
    return any;
}
