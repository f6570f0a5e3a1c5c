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
    X(gemma_embedding)                                                                                                 \
    X(seed_oss)                                                                                                        \
    X(ministral)                                                                                                       \
    X(cwm)                                                                                                             \
    X(helium)                                                                                                          \
    X(hunyuan_dense)                                                                                                   \
    X(ernie4_5)                                                                                                        \
    X(exaone)                                                                                                          \
    X(arcee)                                                                                                           \
    X(baichuan)                                                                                                        \
    X(internlm2)                                                                                                       \
    X(apertus)                                                                                                         \
    X(stablelm)                                                                                                        \
    X(orion)                                                                                                           \
    X(olmo)                                                                                                            \
    X(nemotron)                                                                                                        \
    X(jais2)                                                                                                           \
    X(phi)                                                                                                             \
    X(gptj)                                                                                                            \
    X(codegen)                                                                                                         \
    X(gpt_neox)                                                                                                        \
    X(falcon)                                                                                                          \
    X(bloom)                                                                                                           \
    X(persimmon)                                                                                                       \
    X(gpt_bigcode)                                                                                                     \
    X(codeshell)                                                                                                       \
    X(mpt)                                                                                                             \
    X(jais)                                                                                                            \
    X(refact)                                                                                                          \
    X(opt)                                                                                                             \
    X(biogpt)                                                                                                          \
    X(gpt_neo)                                                                                                         \
    X(bitnet)                                                                                                          \
    X(nanochat)                                                                                                        \
    X(minicpm3)                                                                                                        \
    X(youtu)                                                                                                           \
    X(cohere)                                                                                                          \
    X(chatglm)                                                                                                         \
    X(glm)                                                                                                             \
    X(granite_swa)                                                                                                     \
    X(minicpm)                                                                                                         \
    X(hyperclovax)                                                                                                     \
    X(vaultgemma)                                                                                                      \
    X(qwen)                                                                                                            \
    X(xverse)                                                                                                          \
    X(qwen2vl)                                                                                                         \
    X(qwen3vl)                                                                                                         \
    X(qwen3vl_moe)                                                                                                     \
    X(pangu)                                                                                                           \
    X(olmoe)                                                                                                           \
    X(flex_olmo)                                                                                                       \
    X(ernie4_5_moe)                                                                                                    \
    X(hunyuan_moe)                                                                                                     \
    X(hy_v3)                                                                                                           \
    X(deepseek_1)                                                                                                      \
    X(mistral4)                                                                                                        \
    X(axk1)                                                                                                            \
    X(granite_moe)                                                                                                     \
    X(granite_hybrid)                                                                                                  \
    X(nemotron_h)                                                                                                      \
    X(nemotron_h_moe)

#define DECLARE(name) extern const nn_arch models_##name;
MODELS(DECLARE)

#define ENTRY(name) &models_##name,
const nn_arch *const models_list[] = { MODELS(ENTRY) 0 };
