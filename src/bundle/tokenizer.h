/* SPDX-License-Identifier: Apache-2.0 */
/* The tokenizer of a model: from GGUF metadata, or from the tokenizer files of a directory. */
#ifndef BUNDLE_TOKENIZER_H
#define BUNDLE_TOKENIZER_H

#include "base/err.h"
#include "formats/model_file.h"
#include "tokenizer/tokenizer.h"

/* On success the caller owns *out, which does not need m any longer. o may be NULL. */
int bundle_tokenizer_open(tok **out, const model_file *m, const tok_options *o, err *e);

/* From a path: a model (GGUF, directory) or a tokenizer file alone (tokenizer.json, tokenizer.model, *.tiktoken, ...).
 */
int bundle_tokenizer_open_path(tok **out, const char *path, const tok_options *o, err *e);

#endif
