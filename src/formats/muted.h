/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that a model must not say, by its files: suppress_tokens of generation_config.json, or of a GGUF file's tokenizer. */
#ifndef FORMATS_MUTED_H
#define FORMATS_MUTED_H

#include "formats/model_file.h"

/* The one at i of the list; false behind the last. Ids are as the file has them, and may be none of the vocabulary. */
bool muted_at(const model_file *m, size_t i, int64_t *id);

#endif
