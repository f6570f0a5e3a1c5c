/* SPDX-License-Identifier: Apache-2.0 */
/* The list of families. Adding one is a line here and a file beside this one. */
#include "models/list.h"

#define MODELS(X)                                                                                                      \
    X(llama)                                                                                                           \
    X(mistral3)                                                                                                        \
    X(qwen2)                                                                                                           \
    X(qwen3)                                                                                                           \
    X(qwen2_moe)                                                                                                       \
    X(qwen3_moe)                                                                                                       \
    X(phi3)                                                                                                            \
    X(gemma)                                                                                                           \
    X(gemma2)                                                                                                          \
    X(gemma3)                                                                                                          \
    X(gemma4)                                                                                                          \
    X(glm4)                                                                                                            \
    X(glm4_moe)                                                                                                        \
    X(deepseek)                                                                                                        \
    X(gpt_oss)                                                                                                         \
    X(olmo2)                                                                                                           \
    X(exaone4)                                                                                                         \
    X(granite)                                                                                                         \
    X(smollm3)                                                                                                         \
    X(cohere2)                                                                                                         \
    X(minimax_m2)                                                                                                      \
    X(starcoder2)                                                                                                      \
    X(lfm2)                                                                                                            \
    X(lfm2_moe)                                                                                                        \
    X(qwen3_next)                                                                                                      \
    X(qwen3_5)                                                                                                         \
    X(qwen3_5_moe)                                                                                                     \
    X(kimi_linear)                                                                                                     \
    X(mamba2)                                                                                                          \
    X(gpt2)                                                                                                            \
    X(bert)                                                                                                            \
    X(mpnet)                                                                                                           \
    X(distilbert)                                                                                                      \
    X(modernbert)                                                                                                      \
    X(nomic_bert)                                                                                                      \
    X(gte)                                                                                                             \
    X(t5_encoder)                                                                                                      \
    X(eurobert)                                                                                                        \
    X(llama_embed)                                                                                                     \
    X(gemma_embedding)

#define DECLARE(name) extern const nn_arch models_##name;
MODELS(DECLARE)

#define ENTRY(name) &models_##name,
const nn_arch *const models_list[] = { MODELS(ENTRY) 0 };
