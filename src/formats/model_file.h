/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One view over every kind of model on disk: metadata and named tensors, memory-mapped, read-only.
 *
 * A path is a GGUF file (any part of a split set), a single safetensors file, or a directory in the Hugging Face or MLX
 * layout. GGUF metadata is a flat list of typed keys; a directory brings config.json as a tree. Tensor shapes are
 * stored fastest dimension first in both cases, so a weight of `rows` outputs and `cols` inputs is dims = { cols, rows
 * }. Every offset and length was checked against the file: `data` .. `data + bytes` can be read. Data of a GGUF is
 * aligned to the file's alignment; data of a safetensors file need not be aligned to its element size.
 *
 * What a path is, its bytes decide, not its name. A directory without weights opens too (tensor count 0), so that a
 * tokenizer or a config can be used alone; one that holds exactly one GGUF model and no safetensors opens as that GGUF.
 */
#ifndef FORMATS_MODEL_FILE_H
#define FORMATS_MODEL_FILE_H

#include "base/err.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/meta.h"
#include "tensor/types.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct model_file model_file;

typedef enum model_format { MODEL_GGUF, MODEL_HF, MODEL_MLX } model_format;

#define MODEL_MAX_DIMS 8

typedef struct model_tensor {
    const char    *name;
    tensor_type    type;
    int            n_dims;
    int64_t        dims[MODEL_MAX_DIMS]; /* fastest first; unused ones are 1 */
    const uint8_t *data;
    size_t         bytes;
} model_tensor;

/* How an MLX checkpoint packs one module; mode AFFINE needs .scales and .biases, the others .scales only. */
typedef enum model_quant_mode {
    MODEL_QUANT_AFFINE,
    MODEL_QUANT_MXFP4,
    MODEL_QUANT_MXFP8,
    MODEL_QUANT_NVFP4
} model_quant_mode;
typedef struct model_quant {
    model_quant_mode mode;
    int              bits, group;
} model_quant;

int  model_file_open(model_file **out, const char *path, err *e);
void model_file_free(model_file *m);

/* Moves the weights into memory of this process, in huge pages, while they may be read (base/file.h). Call it where
 * model_file_bytes more are free. Returns the bytes moved. */
size_t model_file_settle(const model_file *m, const atomic_bool *stop);

/* The mapped files, and which of them holds these bytes, at which offset; -1: none does, they were packed anew. */
int         model_file_mapping_count(const model_file *m);
const char *model_file_mapping(const model_file *m, int index, const file_map **out); /* its path */
int         model_file_locate(const model_file *m, const void *at, size_t bytes, uint64_t *offset);

model_format model_file_format(const model_file *m);
const char  *model_file_path(const model_file *m);
size_t       model_file_bytes(const model_file *m); /* all weight files together */

/* GGUF metadata; NULL when absent or when this is not a GGUF. */
const meta_value *model_file_meta(const model_file *m, const char *key);
size_t            model_file_meta_count(const model_file *m);
const char       *model_file_meta_key(const model_file *m, size_t index);
const meta_value *model_file_meta_at(const model_file *m, size_t index);

/* config.json and generation_config.json of a directory; NULL when absent or when this is a GGUF. */
const json_value *model_file_config(const model_file *m);
const json_value *model_file_generation_config(const model_file *m);

size_t              model_file_tensor_count(const model_file *m);
const model_tensor *model_file_tensor_at(const model_file *m, size_t index);
const model_tensor *model_file_tensor(const model_file *m, const char *name); /* NULL when absent */

/* The tensor has this type and these bytes from now on, until they are replaced again; the caller keeps them that long. For
 * trying other weights: whoever bound the tensor before does not see them. */
void model_file_replace(model_file *m, size_t index, tensor_type type, const uint8_t *data, size_t bytes);

/* The MLX packing of a module ("model.layers.0.mlp.up_proj"); false when the module is not quantized. */
bool model_file_quant(const model_file *m, const char *module, model_quant *out);

/* "llama", "qwen3", ...: general.architecture of a GGUF, model_type of a config.json. NULL when it names none. */
const char *model_file_arch(const model_file *m);

/* The language model's part of config.json: text_config (or its older names) of a multimodal model, else the whole. */
const json_value *model_file_text_config(const model_file *m);
/* A key of that part, or else of the top level; NULL when neither has it (or it is null). */
const json_value *model_file_config_get(const model_file *m, const char *key);

/* What the `quantization_config` of a Hugging Face config.json says. The layout of the tensors follows from it; whoever
 * loads the model refuses by `name` what it cannot run. */
typedef enum model_hf_method {
    MODEL_HF_PLAIN, /* no such block */
    MODEL_HF_FP8,   /* e4m3 weights, <name>.weight_scale_inv per block */
    MODEL_HF_GPTQ,
    MODEL_HF_AWQ,
    MODEL_HF_BNB_4BIT, /* bitsandbytes nf4 or fp4 */
    MODEL_HF_BNB_8BIT,
    MODEL_HF_MXFP4,      /* <name>_blocks and <name>_scales */
    MODEL_HF_COMPRESSED, /* compressed-tensors */
    MODEL_HF_OTHER,
} model_hf_method;
typedef struct model_hf_quant {
    model_hf_method   method;
    const char       *name;                   /* quant_method as written; NULL for PLAIN. May hold control characters */
    int               bits, group;            /* GPTQ, AWQ; 0 when absent */
    int               block_rows, block_cols; /* FP8 with weight_block_size; 0: one scale per tensor */
    const json_value *block;                  /* the whole quantization_config */
} model_hf_quant;
const model_hf_quant *model_file_hf_quant(const model_file *m); /* never NULL */

/* The path of a file of this plain name beside the model (tokenizer.json, chat_template.jinja, ...), or NULL when there
 * is none or memory is out. The caller frees. The directory is the one that was opened, or the one the file lies in. */
char *model_file_sidecar(const model_file *m, const char *name);

#endif
