/* SPDX-License-Identifier: Apache-2.0 */
/* The small files of a directory: config.json, tokenizer, chat template. */
#ifndef CONVERT_HF_FILES_H
#define CONVERT_HF_FILES_H

#include "base/arena.h"
#include "base/str.h"
#include "convert/dir.h"
#include "convert/families.h"

typedef struct hf_files {
    dir_file list[24];
    size_t   n;
} hf_files;

/* The text is copied into mem. */
int hf_files_add(hf_files *f, const char *name, const void *data, size_t bytes, arena *mem, err *e);

/* quantization: the object for MLX; empty: none. */
int hf_config_from_gguf(hf_files *f, const nn_model *m, const hf_family *family, tensor_type type,
                        const str *quantization, arena *mem, err *e);
/* type: -1 where the numbers keep their type. */
int hf_config_from_dir(hf_files *f, const model_file *m, int type, const str *quantization, arena *mem, err *e);

/* tokenizer.json or tokenizer.model, tokenizer_config.json, special_tokens_map.json, generation_config.json and
 * chat_template.jinja of a GGUF file's metadata. */
int hf_vocab_from_gguf(hf_files *f, const model_file *m, arena *mem, err *e);
/* The files of a directory as they are. */
int hf_vocab_from_dir(hf_files *f, const model_file *m, arena *mem, err *e);

#endif
