/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writer of a GGUF file (formats/gguf.h has the layout): set keys, add tensors, write once. Keys appear in the order of
 * their first setting (a second setting replaces the value), tensors in the order of their adding. Values are copied; tensor data is borrowed until
 * gguf_writer_write returns. A wrong type, shape, name or size is refused at once.
 */
#ifndef CONVERT_GGUF_WRITER_H
#define CONVERT_GGUF_WRITER_H

#include "formats/gguf.h"

typedef struct gguf_writer gguf_writer;

int  gguf_writer_open(gguf_writer **out, uint32_t alignment, err *e); /* 0: the default; other values become a key */
void gguf_writer_free(gguf_writer *w);

/* Any value, also arrays: elements from v->data (fixed size) or v->strings. Copying keys of a file that was read is
 * therefore one call each. */
int gguf_writer_set(gguf_writer *w, const char *key, const meta_value *v, err *e);
int gguf_writer_set_int(gguf_writer *w, const char *key, meta_type type, int64_t value, err *e); /* range-checked */
int gguf_writer_set_real(gguf_writer *w, const char *key, meta_type type, double value, err *e); /* F32 or F64 */
int gguf_writer_set_bool(gguf_writer *w, const char *key, bool value, err *e);
int gguf_writer_set_string(gguf_writer *w, const char *key, const char *value, err *e);
int gguf_writer_set_array(gguf_writer *w, const char *key, meta_type elem, const void *values, size_t count, err *e);
int gguf_writer_set_strings(gguf_writer *w, const char *key, const view *values, size_t count, err *e);

/* dims fastest first; bytes must be what the type and the shape need. */
int gguf_writer_add(gguf_writer *w, const char *name, tensor_type type, int n_dims, const int64_t *dims,
                    const void *data, size_t bytes, err *e);

/* Writes version 3 to path, atomically. */
int gguf_writer_write(gguf_writer *w, const char *path, err *e);

/* What stands before the data, with the padding behind it; the tensors may have been added without data (NULL). Each
 * tensor's offset in the file goes to offsets[], the size of the file to *bytes. */
int gguf_writer_head(gguf_writer *w, str *head, uint64_t *offsets, uint64_t *bytes, err *e);

#endif
