/* SPDX-License-Identifier: Apache-2.0 */
/* Rows for option tables: an option that several commands have is described once. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include "cli/cli.h"

#define CLI_JSON_OPTION                                                                                                \
    { "json", CLI_FLAG, NULL, "print JSON", 0 }
#define CLI_THREADS_OPTION                                                                                             \
    { "threads", CLI_INT, "N", "number of compute threads; 0: one per core (0)", 't' }
#define CLI_DEVICE_OPTION                                                                                              \
    { "device", CLI_STRING, "ID", "cpu, cuda:0 ...; auto: a GPU, else the CPU (auto)", 0 }
#define CLI_GPU_LAYERS_OPTION                                                                                          \
    { "gpu-layers", CLI_STRING, "N", "layers on the GPU; experts:N: its experts (auto)", 0 }
#define CLI_EXPERTS_OPTION                                                                                             \
    { "experts", CLI_STRING, "SIZE", "memory for experts, others stay on disk (auto)", 0 }
/* Commands name the option differently; what it takes is the same. */
#define CLI_KV_OPTION(NAME)                                                                                            \
    { NAME, CLI_STRING, "TYPE", "how keys and values are stored: f16 (default), q8_0, q4_0, tq4, ...", 0 }
/* How a model's cache is stored; see docs/kv-cache.md. */
#define CLI_KV_OPTIONS                                                                                                 \
    { "kv", CLI_STRING, "TYPE", "how keys and values are stored: f16 (default), q8_0, tq4 ..., auto", 0 },             \
        { "kv-k", CLI_STRING, "TYPE", "how keys are stored (-ctk)", 0 },                                               \
        { "kv-v", CLI_STRING, "TYPE", "how values are stored (-ctv)", 0 }, {                                           \
        "kv-precise", CLI_INT, "N", "outer layers that keep at least q8_0 (2)", 0                                      \
    }
#define CLI_CTX_OPTION(LETTER)                                                                                         \
    { "ctx", CLI_INT, "N", "tokens in the context; 0: the model's own limit (0)", LETTER }
#define CLI_CONFIG_OPTIONS                                                                                             \
    { "config", CLI_STRING, "FILE", "read this server.yaml; see 'hearth config path'", 0 }, {                          \
        "no-config", CLI_FLAG, NULL, "read neither server.yaml nor the settings of models", 0                          \
    }
#define CLI_REPLACE_OPTION                                                                                             \
    { "replace", CLI_FLAG, NULL, "take the name away from the model that has it now", 0 }
#define CLI_CPU_OPTION                                                                                                 \
    { "cpu", CLI_STRING, "SETS", "use only these instruction sets, such as avx2", 0 }
#define CLI_PRE_OPTION                                                                                                 \
    { "pre", CLI_STRING, "NAME", "use this pre-tokenizer instead of the one that the GGUF file names", 0 }
#define CLI_VOCAB_OPTION                                                                                               \
    { "vocab", CLI_STRING, "MODEL", "use the tokenizer of this model file, directory or tokenizer file", 0 }
#define CLI_STEERED_OPTION                                                                                             \
    { "steered", CLI_FLAG, NULL, "use only the part of the language that requests are steered to", 0 }
#define CLI_ONLY_OPTION                                                                                                \
    { "only", CLI_STRING, "NAME", "run only the case of this name", 0 }

#endif
