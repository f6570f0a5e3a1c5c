/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which model a file is, for what is computed from it and outlives the process: config.json or metadata (without the
 * tokenizer's, which changes what tokens come, not what they give), the names, types, shapes and samples of the tensors, and size
 * and time of the files. Cheap: at most three quarters of a KiB of a tensor are read.
 */
#ifndef FORMATS_IDENTITY_H
#define FORMATS_IDENTITY_H

#include "base/sha256.h"
#include "formats/model_file.h"

int model_file_identify(const model_file *m, sha256 *s, err *e);

#endif
