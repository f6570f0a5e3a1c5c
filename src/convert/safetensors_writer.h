/* SPDX-License-Identifier: Apache-2.0 */
/* Writer of a safetensors file (formats/safetensors.h has the layout): tensors in the order of their adding; data is
 * borrowed until safetensors_writer_write returns. */
#ifndef CONVERT_SAFETENSORS_WRITER_H
#define CONVERT_SAFETENSORS_WRITER_H

#include "formats/safetensors.h"

typedef struct safetensors_writer safetensors_writer;

int  safetensors_writer_open(safetensors_writer **out, err *e);
void safetensors_writer_free(safetensors_writer *w);
int  safetensors_writer_set(safetensors_writer *w, const char *key, const char *value, err *e); /* __metadata__ */
/* dims fastest first, as in model_tensor; only plain element types. */
int safetensors_writer_add(safetensors_writer *w, const char *name, tensor_type type, int n_dims, const int64_t *dims,
                           const void *data, size_t bytes, err *e);
int safetensors_writer_write(safetensors_writer *w, const char *path, err *e); /* atomically */

/* What stands before the data; the tensors may have been added without data (NULL). Each tensor's offset in the file
 * goes to offsets[], the size of the file to *bytes. */
int safetensors_writer_head(safetensors_writer *w, str *head, uint64_t *offsets, uint64_t *bytes, err *e);

#endif
