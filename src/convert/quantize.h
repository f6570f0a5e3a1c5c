/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GGUF file with its matrices in another type.
 *
 * Matrices become the type; vectors, routers, convolutions and position tables keep theirs, because they are small and
 * errors in them are felt everywhere. A matrix whose rows are not a whole number of the type's blocks becomes Q8_0, or F16
 * where even that does not fit. Metadata is copied, general.file_type says what was done. The whole result is held in
 * memory until it is written in one go, atomically.
 */
#ifndef CONVERT_QUANTIZE_H
#define CONVERT_QUANTIZE_H

#include "base/pool.h"
#include "formats/model_file.h"

/* A type that files can be quantized to, by name. ERR_ARG otherwise. */
int gguf_quantize_type(const char *name, int *out, err *e);

/* *fallbacks: matrices that did not fit the type. */
int gguf_quantize(const model_file *in, const char *path, int type, pool *p, size_t *fallbacks, err *e);

#endif
