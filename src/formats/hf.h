/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The JSON files of a Hugging Face or MLX directory, read from memory: config.json with its quantization blocks, and
 * model.safetensors.index.json.
 *
 * MLX: `quantization` = {"group_size", "bits", "mode"?} is the packing of every module that has a `.scales` tensor; a
 * member named like a module overrides it: an object with its own packing (absent members take the defaults of its
 * mode, not those of the block, as in MLX), or false for a module that is not quantized.
 */
#ifndef FORMATS_HF_H
#define FORMATS_HF_H

#include "base/arena.h"
#include "base/map.h"
#include "formats/model_file.h"

#define HF_MAX_CONFIG_BYTES (16u << 20)
#define HF_MAX_INDEX_BYTES (256u << 20)
#define HF_MAX_SHARDS 10000

typedef struct hf_module {
    bool        quantized;
    model_quant quant;
} hf_module;

typedef struct hf_mlx {
    bool        present; /* config.json has a block */
    model_quant all;
    hf_module  *modules;
    size_t      n_modules;
    map         index; /* module path -> position in modules */
} hf_mlx;

typedef struct hf_config {
    const json_value *root;
    const json_value *text; /* the language model's part; root when there is no nesting */
    hf_mlx            mlx;
    model_hf_quant    quant;
    arena             mem;
} hf_config;

int  hf_config_read(hf_config *out, const char *json, size_t len, err *e); /* on failure out is released */
void hf_config_deinit(hf_config *c);                                       /* accepts a zeroed one */

/* What the config says about a module, whether or not it exists. False: not quantized. */
bool hf_mlx_module(const hf_mlx *q, const char *module, size_t len, model_quant *out);

typedef struct hf_index {
    const char **shards; /* plain file names in the order of their first use */
    size_t       n_shards, cap;
    map          weights; /* tensor name -> position in shards */
    map          by_name; /* shard name -> position in shards */
    arena        mem;
} hf_index;

int  hf_index_read(hf_index *out, const char *json, size_t len, err *e); /* on failure out is released */
void hf_index_deinit(hf_index *x);

#endif
