/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few well-known models, as data: enough to choose one without asking anybody.
 *
 * The sizes are those of the named file (Q4_K_M, or what the label says); memory follows from the shape of the model:
 * the file, a cache in f16 for one sequence, and KNOWN_OTHER_BYTES for the rest. `hearth info` computes it exactly for
 * a model that is here.
 */
#ifndef REGISTRY_KNOWN_H
#define REGISTRY_KNOWN_H

#include "base/str.h"
#include "registry/registry.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KNOWN_CHAT = 1, KNOWN_TOOLS = 2, KNOWN_THINKING = 4, KNOWN_INSERT = 8, KNOWN_EMBEDDING = 16 };

#define KNOWN_OTHER_BYTES ((uint64_t)300 << 20)

typedef struct known_model {
    const char *name;     /* here, and in the Ollama registry if that has it */
    const char *family;   /* as `hearth show` says it */
    const char *repo;     /* with GGUF files, on Hugging Face */
    const char *quant;    /* of the file that is meant */
    bool        ollama;   /* the Ollama registry has it under this name */
    int         params_m; /* millions of parameters */
    int         file_mb;  /* 10^6 bytes */
    int         context;  /* positions it was made for */
    /* Layers with a cache: those that keep everything, those that keep a window; heads and their width. */
    int         full_layers, window_layers, window, kv_heads, head_width;
    unsigned    can;   /* KNOWN_* */
    const char *draft; /* a small one with the same tokenizer, or NULL */
} known_model;

extern const known_model known_models[];
extern const size_t      known_n_models;

const known_model *known_find(const char *name); /* "x" is "x:latest"; NULL: none */

/* For one sequence of this length, or of the model's own if that is shorter. */
uint64_t known_memory(const known_model *m, int context);

/* Every word stands in its name, family, repository or abilities; letter case is free. No words: true. */
bool known_matches(const known_model *m, const char *const *words, size_t n);

const char *known_ability(unsigned bit); /* "tools" */

/* A model of the table is here under its own name, or came from its repository, in whatever form. r may be NULL. */
bool known_is_here(registry *r, const known_model *m);
/* memory: bytes that are free; 0: not known. */
void known_write_json(const known_model *m, bool here, uint64_t memory, str *out);

#endif
