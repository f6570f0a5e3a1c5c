/* SPDX-License-Identifier: Apache-2.0 */
/* Page types of the cache: the same keys for a server, for an entry of its list of models and for a model's own file. */
#ifndef CONFIG_PAGE_KEYS_H
#define CONFIG_PAGE_KEYS_H

#include "config/schema.h"

#define CONFIG_PAGE_TYPES "f16|bf16|q8_0|q5_0|q4_0|tq4|tq3|tq2|turbo4|turbo3|turbo2|fp8|f32"

/* With defaults or NULL; word is CONFIG_PAGE_WORD where a variable and a flag may say it, too, else CONFIG_PAGE_NO_WORD. */
#define CONFIG_PAGE_WORD(text) text
#define CONFIG_PAGE_NO_WORD(text) NULL
#define CONFIG_PAGE_KEYS(type_default, precise_default, word)                                                          \
    { .path = "kv_cache.type",                                                                                         \
      .type = CONFIG_CHOICE,                                                                                           \
      .choices = CONFIG_PAGE_TYPES "|auto",                                                                            \
      .dflt = type_default,                                                                                            \
      .help = "how keys and values are stored; auto: the most precise type at which the context fits",                 \
      .env = word("HEARTH_KV_TYPE"),                                                                                   \
      .flag = word("kv") },                                                                                            \
        { .path = "kv_cache.type_k",                                                                                   \
          .type = CONFIG_CHOICE,                                                                                       \
          .choices = CONFIG_PAGE_TYPES,                                                                                \
          .help = "how keys are stored, instead of type",                                                              \
          .env = word("HEARTH_KV_TYPE_K"),                                                                             \
          .flag = word("kv-k") },                                                                                      \
        { .path = "kv_cache.type_v",                                                                                   \
          .type = CONFIG_CHOICE,                                                                                       \
          .choices = CONFIG_PAGE_TYPES,                                                                                \
          .help = "how values are stored, instead of type",                                                            \
          .env = word("HEARTH_KV_TYPE_V"),                                                                             \
          .flag = word("kv-v") },                                                                                      \
    {                                                                                                                  \
        .path = "kv_cache.precise_layers", .type = CONFIG_INT, .min = -1, .max = 1024, .dflt = precise_default,        \
        .help = "first and last layers that keep q8_0 where the type is smaller; -1: two, none in hybrid models",      \
        .env = word("HEARTH_KV_PRECISE_LAYERS"), .flag = word("kv-precise")                                            \
    }

#endif
