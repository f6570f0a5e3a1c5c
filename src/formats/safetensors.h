/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors: reader of one file's bytes.
 *
 * Byte layout: u64 little-endian length of the header; the header, a JSON object; the data. The header maps a tensor's
 * name to {"dtype": "F16", "shape": [rows, cols], "data_offsets": [begin, end]}, offsets counted from the end of the
 * header; "__metadata__" maps strings to strings. Shapes are stored slowest first; model_tensor holds them fastest
 * first. Data has no alignment beyond what the writer chose.
 */
#ifndef FORMATS_SAFETENSORS_H
#define FORMATS_SAFETENSORS_H

#include "base/arena.h"
#include "formats/table.h"

#define SAFETENSORS_MAX_HEADER 100000000

typedef struct safetensors_entry {
    const char *key, *value;
} safetensors_entry;

typedef struct safetensors {
    size_t             data_offset;
    safetensors_entry *metadata;
    size_t             n_metadata;
    arena              mem;
} safetensors;

/* Adds the tensors to the table; the bytes are borrowed. skip (may be NULL) says which names to pass over: they are
 * checked, but not added. On failure out is released; the table may have grown. */
typedef bool (*safetensors_skip)(void *ctx, view name);
int  safetensors_read_memory(safetensors *out, const uint8_t *data, size_t bytes, tensor_table *tensors,
                             safetensors_skip skip, void *ctx, err *e);
void safetensors_deinit(safetensors *s); /* accepts a zeroed one */

const char *safetensors_find(const safetensors *s, const char *key); /* of the metadata; NULL when absent */

/* True when the bytes begin like a safetensors file. */
bool safetensors_is(const uint8_t *data, size_t bytes);

/* "F16" for TENSOR_F16; NULL when the format has no such element type. */
const char *safetensors_dtype_name(tensor_type type);

#endif
