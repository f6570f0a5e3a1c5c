/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a part of config.json means where it is silent.
 *
 * A model that sees keeps the fields of its language model and of its tower in objects of their own. Published ones name only
 * what differs from the defaults of their classes in transformers: LLaVA 1.5 says of its language model no more than that it is
 * a Llama with 32064 words. A field that is there as null says that there is no such thing, and is not silent.
 */
#include "nn/config.h"

#include <string.h>

enum { MOST_FIELDS = 12 };

typedef struct row {
    const char *field;
    double      value;
} row;

static const struct {
    const char *type; /* model_type of the object */
    row         rows[MOST_FIELDS];
} classes[] = {
    { "llama",
      { { "vocab_size", 32000 },
        { "hidden_size", 4096 },
        { "intermediate_size", 11008 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "max_position_embeddings", 2048 },
        { "rms_norm_eps", 1e-6 } } },
    { "mistral",
      { { "vocab_size", 32000 },
        { "hidden_size", 4096 },
        { "intermediate_size", 14336 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "num_key_value_heads", 8 },
        { "max_position_embeddings", 131072 },
        { "rms_norm_eps", 1e-6 },
        { "sliding_window", 4096 } } },
    { "gemma",
      { { "vocab_size", 256000 },
        { "hidden_size", 3072 },
        { "intermediate_size", 24576 },
        { "num_hidden_layers", 28 },
        { "num_attention_heads", 16 },
        { "num_key_value_heads", 16 },
        { "head_dim", 256 },
        { "max_position_embeddings", 8192 },
        { "rms_norm_eps", 1e-6 } } },
    { "gemma2",
      { { "vocab_size", 256000 },
        { "hidden_size", 2304 },
        { "intermediate_size", 9216 },
        { "num_hidden_layers", 26 },
        { "num_attention_heads", 8 },
        { "num_key_value_heads", 4 },
        { "head_dim", 256 },
        { "max_position_embeddings", 8192 },
        { "rms_norm_eps", 1e-6 },
        { "sliding_window", 4096 },
        { "query_pre_attn_scalar", 256 } } },
    { "gemma3_text",
      { { "vocab_size", 262208 },
        { "hidden_size", 2304 },
        { "intermediate_size", 9216 },
        { "num_hidden_layers", 26 },
        { "num_attention_heads", 8 },
        { "num_key_value_heads", 4 },
        { "head_dim", 256 },
        { "max_position_embeddings", 131072 },
        { "rms_norm_eps", 1e-6 },
        { "sliding_window", 4096 },
        { "query_pre_attn_scalar", 256 } } },
    { "qwen2",
      { { "vocab_size", 151936 },
        { "hidden_size", 4096 },
        { "intermediate_size", 22016 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "num_key_value_heads", 32 },
        { "max_position_embeddings", 32768 },
        { "rms_norm_eps", 1e-6 } } },
    { "qwen3",
      { { "vocab_size", 151936 },
        { "hidden_size", 4096 },
        { "intermediate_size", 22016 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "num_key_value_heads", 32 },
        { "head_dim", 128 },
        { "max_position_embeddings", 32768 },
        { "rms_norm_eps", 1e-6 } } },
    { "cohere2",
      { { "vocab_size", 256000 },
        { "hidden_size", 8192 },
        { "intermediate_size", 22528 },
        { "num_hidden_layers", 40 },
        { "num_attention_heads", 64 },
        { "max_position_embeddings", 8192 },
        { "layer_norm_eps", 1e-5 },
        { "logit_scale", 0.0625 },
        { "sliding_window", 4096 } } },
    { "granite",
      { { "vocab_size", 32000 },
        { "hidden_size", 4096 },
        { "intermediate_size", 11008 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "max_position_embeddings", 2048 },
        { "rms_norm_eps", 1e-6 } } },
    { "granite4_vision_text",
      { { "vocab_size", 32000 },
        { "hidden_size", 4096 },
        { "intermediate_size", 11008 },
        { "num_hidden_layers", 32 },
        { "num_attention_heads", 32 },
        { "max_position_embeddings", 2048 },
        { "rms_norm_eps", 1e-6 } } },
    { "clip_vision_model",
      { { "hidden_size", 768 },
        { "intermediate_size", 3072 },
        { "num_hidden_layers", 12 },
        { "num_attention_heads", 12 },
        { "image_size", 224 },
        { "patch_size", 32 } } },
    { "siglip_vision_model",
      { { "hidden_size", 768 },
        { "intermediate_size", 3072 },
        { "num_hidden_layers", 12 },
        { "num_attention_heads", 12 },
        { "image_size", 224 },
        { "patch_size", 16 } } },
    { "pixtral",
      { { "hidden_size", 1024 },
        { "intermediate_size", 4096 },
        { "num_hidden_layers", 24 },
        { "num_attention_heads", 16 },
        { "image_size", 1024 },
        { "patch_size", 16 } } },
    { "janus_vision_model",
      { { "hidden_size", 1024 },
        { "num_hidden_layers", 24 },
        { "num_attention_heads", 16 },
        { "image_size", 384 },
        { "patch_size", 16 } } },
    { "internvl_vision",
      { { "hidden_size", 1024 },
        { "intermediate_size", 4096 },
        { "num_hidden_layers", 24 },
        { "num_attention_heads", 16 },
        { "image_size", 448 },
        { "patch_size", 14 } } },
};

/* Whether the list of names, with '|' between, has this one. */
static bool listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *s = list; s && *s; s += strcspn(s, "|"), s += *s == '|') {
        if (strcspn(s, "|") == n && strncmp(s, name, n) == 0) return true;
    }
    return false;
}

const double *nn_silent_find(const nn_config *c, const char *hf) {
    const json_value *where = c->outer ? c->root : c->text != c->root ? c->text : NULL;
    const char       *type = json_cstr(json_get(where, "model_type"));
    for (size_t i = 0; type && hf && i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(classes[i].type, type) != 0) continue;
        for (int k = 0; k < MOST_FIELDS && classes[i].rows[k].field; k++) {
            const row *r = &classes[i].rows[k];
            if (listed(hf, r->field) && !json_get(where, r->field)) return &r->value;
        }
    }
    return NULL;
}
