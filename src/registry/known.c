/* SPDX-License-Identifier: Apache-2.0 */
#include "registry/known.h"

#include "registry/names.h"

#include <string.h>
#include <strings.h>

#define CHAT KNOWN_CHAT
#define TOOLS (KNOWN_CHAT | KNOWN_TOOLS)
#define THINKS (KNOWN_CHAT | KNOWN_THINKING)
#define ALL (KNOWN_CHAT | KNOWN_TOOLS | KNOWN_THINKING)
#define CODE (KNOWN_CHAT | KNOWN_TOOLS | KNOWN_INSERT)
#define Q4 "Q4_K_M"

/* clang-format off */
const known_model known_models[] = {
    /* name, family, repository, label, ollama, params, MB, context, full, windowed, window, heads, width, can, draft */
    { "llama3.2:1b", "llama", "bartowski/Llama-3.2-1B-Instruct-GGUF", Q4, true, 1236, 808, 131072, 16, 0, 0, 8, 64, TOOLS, NULL },
    { "llama3.2:3b", "llama", "bartowski/Llama-3.2-3B-Instruct-GGUF", Q4, true, 3213, 2019, 131072, 28, 0, 0, 8, 128, TOOLS, "llama3.2:1b" },
    { "llama3.1:8b", "llama", "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", Q4, true, 8030, 4921, 131072, 32, 0, 0, 8, 128, TOOLS, "llama3.2:1b" },
    { "llama3.3:70b", "llama", "bartowski/Llama-3.3-70B-Instruct-GGUF", Q4, true, 70554, 42520, 131072, 80, 0, 0, 8, 128, TOOLS, "llama3.2:1b" },
    { "qwen2.5:0.5b", "qwen2", "Qwen/Qwen2.5-0.5B-Instruct-GGUF", Q4, true, 494, 491, 32768, 24, 0, 0, 2, 64, TOOLS, NULL },
    { "qwen2.5:1.5b", "qwen2", "Qwen/Qwen2.5-1.5B-Instruct-GGUF", Q4, true, 1544, 1117, 32768, 28, 0, 0, 2, 128, TOOLS, "qwen2.5:0.5b" },
    { "qwen2.5:3b", "qwen2", "Qwen/Qwen2.5-3B-Instruct-GGUF", Q4, true, 3086, 2105, 32768, 36, 0, 0, 2, 128, TOOLS, "qwen2.5:0.5b" },
    { "qwen2.5:7b", "qwen2", "Qwen/Qwen2.5-7B-Instruct-GGUF", Q4, true, 7616, 4683, 32768, 28, 0, 0, 4, 128, TOOLS, "qwen2.5:0.5b" },
    { "qwen2.5:14b", "qwen2", "Qwen/Qwen2.5-14B-Instruct-GGUF", Q4, true, 14770, 8988, 32768, 48, 0, 0, 8, 128, TOOLS, "qwen2.5:0.5b" },
    { "qwen2.5:32b", "qwen2", "Qwen/Qwen2.5-32B-Instruct-GGUF", Q4, true, 32764, 19851, 32768, 64, 0, 0, 8, 128, TOOLS, "qwen2.5:0.5b" },
    { "qwen2.5-coder:1.5b", "qwen2", "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF", Q4, true, 1544, 1117, 32768, 28, 0, 0, 2, 128, CODE, NULL },
    { "qwen2.5-coder:7b", "qwen2", "Qwen/Qwen2.5-Coder-7B-Instruct-GGUF", Q4, true, 7616, 4683, 32768, 28, 0, 0, 4, 128, CODE, "qwen2.5-coder:1.5b" },
    { "qwen3:0.6b", "qwen3", "unsloth/Qwen3-0.6B-GGUF", Q4, true, 596, 397, 40960, 28, 0, 0, 8, 128, ALL, NULL },
    { "qwen3:1.7b", "qwen3", "unsloth/Qwen3-1.7B-GGUF", Q4, true, 1721, 1107, 40960, 28, 0, 0, 8, 128, ALL, "qwen3:0.6b" },
    { "qwen3:4b", "qwen3", "Qwen/Qwen3-4B-GGUF", Q4, true, 4022, 2497, 40960, 36, 0, 0, 8, 128, ALL, "qwen3:0.6b" },
    { "qwen3:8b", "qwen3", "Qwen/Qwen3-8B-GGUF", Q4, true, 8191, 5028, 40960, 36, 0, 0, 8, 128, ALL, "qwen3:0.6b" },
    { "qwen3:14b", "qwen3", "Qwen/Qwen3-14B-GGUF", Q4, true, 14768, 9002, 40960, 40, 0, 0, 8, 128, ALL, "qwen3:0.6b" },
    { "qwen3:30b", "qwen3moe", "Qwen/Qwen3-30B-A3B-GGUF", Q4, true, 30532, 18557, 40960, 48, 0, 0, 4, 128, ALL, "qwen3:0.6b" },
    { "qwen3:32b", "qwen3", "Qwen/Qwen3-32B-GGUF", Q4, true, 32762, 19762, 40960, 64, 0, 0, 8, 128, ALL, "qwen3:0.6b" },
    { "gemma3:1b", "gemma3", "ggml-org/gemma-3-1b-it-GGUF", Q4, true, 1000, 806, 32768, 4, 22, 512, 1, 256, CHAT, NULL },
    { "gemma3:4b", "gemma3", "ggml-org/gemma-3-4b-it-GGUF", Q4, true, 3880, 2490, 131072, 5, 29, 1024, 4, 256, CHAT, "gemma3:1b" },
    { "gemma3:12b", "gemma3", "ggml-org/gemma-3-12b-it-GGUF", Q4, true, 11766, 7301, 131072, 8, 40, 1024, 8, 256, CHAT, "gemma3:1b" },
    { "gemma3:27b", "gemma3", "ggml-org/gemma-3-27b-it-GGUF", Q4, true, 27009, 16546, 131072, 10, 52, 1024, 16, 128, CHAT, "gemma3:1b" },
    { "mistral:7b", "llama", "bartowski/Mistral-7B-Instruct-v0.3-GGUF", Q4, true, 7248, 4373, 32768, 32, 0, 0, 8, 128, TOOLS, NULL },
    { "mistral-nemo:12b", "llama", "bartowski/Mistral-Nemo-Instruct-2407-GGUF", Q4, true, 12248, 7477, 131072, 40, 0, 0, 8, 128, TOOLS, NULL },
    { "mistral-small:24b", "llama", "bartowski/Mistral-Small-24B-Instruct-2501-GGUF", Q4, true, 23572, 14334, 32768, 40, 0, 0, 8, 128, TOOLS, NULL },
    { "mixtral:8x7b", "llama", "TheBloke/Mixtral-8x7B-Instruct-v0.1-GGUF", Q4, true, 46703, 26442, 32768, 32, 0, 0, 8, 128, CHAT, NULL },
    { "phi3.5", "phi3", "bartowski/Phi-3.5-mini-instruct-GGUF", Q4, true, 3821, 2393, 131072, 32, 0, 0, 32, 96, CHAT, NULL },
    { "phi4:14b", "phi3", "bartowski/phi-4-GGUF", Q4, true, 14660, 9053, 16384, 40, 0, 0, 10, 128, CHAT, NULL },
    { "deepseek-r1:1.5b", "qwen2", "bartowski/DeepSeek-R1-Distill-Qwen-1.5B-GGUF", Q4, true, 1777, 1117, 131072, 28, 0, 0, 2, 128, THINKS, NULL },
    { "deepseek-r1:7b", "qwen2", "bartowski/DeepSeek-R1-Distill-Qwen-7B-GGUF", Q4, true, 7616, 4683, 131072, 28, 0, 0, 4, 128, THINKS, "deepseek-r1:1.5b" },
    { "deepseek-r1:14b", "qwen2", "bartowski/DeepSeek-R1-Distill-Qwen-14B-GGUF", Q4, true, 14770, 8988, 131072, 48, 0, 0, 8, 128, THINKS, "deepseek-r1:1.5b" },
    { "deepseek-r1:32b", "qwen2", "bartowski/DeepSeek-R1-Distill-Qwen-32B-GGUF", Q4, true, 32764, 19851, 131072, 64, 0, 0, 8, 128, THINKS, "deepseek-r1:1.5b" },
    { "smollm2:135m", "llama", "bartowski/SmolLM2-135M-Instruct-GGUF", Q4, true, 135, 105, 8192, 30, 0, 0, 3, 64, CHAT, NULL },
    { "smollm2:360m", "llama", "bartowski/SmolLM2-360M-Instruct-GGUF", Q4, true, 362, 271, 8192, 32, 0, 0, 5, 64, CHAT, "smollm2:135m" },
    { "smollm2:1.7b", "llama", "bartowski/SmolLM2-1.7B-Instruct-GGUF", Q4, true, 1711, 1056, 8192, 24, 0, 0, 32, 64, CHAT, "smollm2:135m" },
    { "smollm3:3b", "smollm3", "ggml-org/SmolLM3-3B-GGUF", Q4, false, 3075, 1915, 65536, 36, 0, 0, 4, 128, ALL, NULL },
    { "granite3.3:2b", "granite", "ibm-granite/granite-3.3-2b-instruct-GGUF", Q4, true, 2534, 1545, 131072, 40, 0, 0, 8, 64, ALL, NULL },
    { "granite3.3:8b", "granite", "ibm-granite/granite-3.3-8b-instruct-GGUF", Q4, true, 8171, 4943, 131072, 40, 0, 0, 8, 128, ALL, "granite3.3:2b" },
    { "olmo2:7b", "olmo2", "bartowski/OLMo-2-1124-7B-Instruct-GGUF", Q4, true, 7299, 4472, 4096, 32, 0, 0, 32, 128, CHAT, NULL },
    { "lfm2:1.2b", "lfm2", "LiquidAI/LFM2-1.2B-GGUF", Q4, false, 1170, 731, 32768, 6, 0, 0, 8, 64, TOOLS, NULL },
    { "gpt-oss:20b", "gpt-oss", "ggml-org/gpt-oss-20b-GGUF", "MXFP4", true, 20915, 12110, 131072, 12, 12, 128, 8, 64, ALL, NULL },
    { "gpt-oss:120b", "gpt-oss", "ggml-org/gpt-oss-120b-GGUF", "MXFP4", true, 116829, 63388, 131072, 18, 18, 128, 8, 64, ALL, "gpt-oss:20b" },
    { "qwen3-embedding:0.6b", "qwen3", "Qwen/Qwen3-Embedding-0.6B-GGUF", "Q8_0", true, 596, 639, 32768, 28, 0, 0, 8, 128, KNOWN_EMBEDDING, NULL },
};
/* clang-format on */
const size_t known_n_models = sizeof known_models / sizeof *known_models;

const known_model *known_find(const char *name) {
    size_t n = strlen(name);
    if (n > 7 && strcmp(name + n - 7, ":latest") == 0) n -= 7;
    for (size_t i = 0; i < known_n_models; i++) {
        const char *own = known_models[i].name;
        if (strlen(own) == n && strncasecmp(own, name, n) == 0) return &known_models[i];
    }
    return NULL;
}

uint64_t known_memory(const known_model *m, int context) {
    uint64_t tokens = (uint64_t)(context < m->context ? context : m->context);
    uint64_t windowed = tokens < (uint64_t)m->window ? tokens : (uint64_t)m->window;
    uint64_t per_layer = (uint64_t)m->kv_heads * (uint64_t)m->head_width * 2 * 2; /* keys and values, f16 */
    uint64_t cache = per_layer * ((uint64_t)m->full_layers * tokens + (uint64_t)m->window_layers * windowed);
    return (uint64_t)m->file_mb * 1000000 + cache + KNOWN_OTHER_BYTES;
}

const char *known_ability(unsigned bit) {
    switch (bit) {
    case KNOWN_CHAT: return "chat";
    case KNOWN_TOOLS: return "tools";
    case KNOWN_THINKING: return "thinking";
    case KNOWN_INSERT: return "insert";
    case KNOWN_EMBEDDING: return "embedding";
    default: return "";
    }
}

static bool contains(const char *text, const char *word) {
    size_t n = strlen(word);
    for (; strlen(text) >= n; text++) {
        if (strncasecmp(text, word, n) == 0) return true;
    }
    return false;
}

bool known_matches(const known_model *m, const char *const *words, size_t n) {
    for (size_t i = 0; i < n; i++) {
        bool found = contains(m->name, words[i]) || contains(m->family, words[i]) || contains(m->repo, words[i]);
        for (unsigned bit = 1; bit <= KNOWN_EMBEDDING && !found; bit *= 2)
            found = (m->can & bit) && strcasecmp(known_ability(bit), words[i]) == 0;
        if (!found) return false;
    }
    return true;
}

bool known_is_here(registry *r, const known_model *m) {
    const char *names[] = { m->name, m->repo };
    for (size_t i = 0; r && i < 2; i++) {
        registry_model found = { 0 };
        int            rc = names_find(r, names[i], NULL, &found, NULL);
        registry_model_deinit(&found);
        if (rc == 0 || rc == ERR_ARG) return true;
    }
    return false;
}

void known_write_json(const known_model *m, bool here, uint64_t memory, str *out) {
    uint64_t    small = known_memory(m, 4096), large = known_memory(m, 32768);
    const char *between = "";
    str_printf(out,
               "{\"name\":\"%s\",\"family\":\"%s\",\"parameters\":%lld,\"repository\":\"%s\",\"quantization\":\"%s\"",
               m->name, m->family, (long long)m->params_m * 1000000, m->repo, m->quant);
    str_printf(out, ",\"ollama\":%s,\"size\":%lld,\"context\":%d", m->ollama ? "true" : "false",
               (long long)m->file_mb * 1000000, m->context);
    str_printf(out, ",\"memory_4k\":%llu,\"memory_32k\":%llu,\"fits\":%s,\"here\":%s", (unsigned long long)small,
               (unsigned long long)large,
               !memory           ? "null"
               : small <= memory ? "true"
                                 : "false",
               here ? "true" : "false");
    if (m->draft)
        str_printf(out, ",\"draft\":\"%s\"", m->draft);
    else
        str_puts(out, ",\"draft\":null");
    str_puts(out, ",\"capabilities\":[");
    for (unsigned bit = 1; bit <= KNOWN_EMBEDDING; bit *= 2) {
        if (!(m->can & bit)) continue;
        str_printf(out, "%s\"%s\"", between, known_ability(bit));
        between = ",";
    }
    str_puts(out, "]}");
}
