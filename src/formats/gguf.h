/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GGUF, versions 2 and 3: reader of one file's bytes.
 *
 * Byte layout, all little-endian:
 *
 *     "GGUF"  u32 version  u64 n_tensors  u64 n_keys
 *     n_keys times:    string key  u32 type  value
 *     n_tensors times: string name  u32 n_dims  u64 dims[n_dims] (fastest first)  u32 type  u64 offset
 *     padding to the alignment (general.alignment, a power of two, else 32)
 *     tensor data; offsets count from here and are multiples of the alignment
 *
 * A string is u64 length and bytes; an array value is u32 element type, u64 count and the elements. Version 1 (32-bit
 * counts) and big-endian files are refused with a sentence that says so. Split sets are put together in model_file.c.
 *
 * Nothing of the file is trusted: counts are checked against the bytes that are left before memory is taken for them.
 * Strings stay where they are; a string array costs one view (16 bytes) per element.
 */
#ifndef FORMATS_GGUF_H
#define FORMATS_GGUF_H

#include "base/arena.h"
#include "base/map.h"
#include "formats/table.h"

#define GGUF_MAX_KEYS (1u << 16)
#define GGUF_MAX_KEY_BYTES 65535
#define GGUF_MAX_STRINGS (1u << 24) /* in one array */
#define GGUF_MAX_DIMS 4
#define GGUF_DEFAULT_ALIGNMENT 32

typedef struct gguf_key {
    const char *name;
    meta_value  value;
} gguf_key;

typedef struct gguf {
    uint32_t  version;
    uint32_t  alignment;
    size_t    data_offset; /* where tensor data begins; may lie at or beyond the end when there are no tensors */
    gguf_key *keys;
    size_t    n_keys;
    map       index; /* key name -> position in keys */
    arena     mem;
} gguf;

/* Reads the metadata and adds the tensors to the table. The bytes are borrowed: they must outlive out and the table's
 * use. On failure out is released; the table may have grown. Without a table (NULL) only the metadata is read. */
int  gguf_read_memory(gguf *out, const uint8_t *data, size_t bytes, tensor_table *tensors, err *e);
void gguf_deinit(gguf *g); /* accepts a zeroed one */

const meta_value *gguf_find(const gguf *g, const char *key); /* NULL when absent */

/* True when the bytes begin like a GGUF file. */
bool gguf_is(const uint8_t *data, size_t bytes);

#endif
