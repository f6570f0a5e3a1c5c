/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The named tensors of a model, collected from one or several mapped files.
 *
 * A reader adds the tensors of its file one by one (a name that is there already is refused) and then asks whether any
 * two of that file overlap. Names are copied and terminated; data is borrowed from the mapping.
 */
#ifndef FORMATS_TABLE_H
#define FORMATS_TABLE_H

#include "base/arena.h"
#include "base/map.h"
#include "formats/model_file.h"

/* Ours: the longest real name has about 90 bytes. */
#define TABLE_MAX_NAME 255
/* Ours: a model of 1,000 layers with 256 separate experts each stays below it. */
#define TABLE_MAX_TENSORS (1u << 20)

typedef struct tensor_table {
    model_tensor *items;
    size_t        count, cap;
    map           index; /* name -> position in items */
    arena         names;
} tensor_table;

void tensor_table_init(tensor_table *t);
void tensor_table_deinit(tensor_table *t);

/* Checks and copies the name (tensor->name is ignored) and appends. The sentence does not name the tensor. */
int tensor_table_add(tensor_table *t, const model_tensor *tensor, view name, err *e);

const model_tensor *tensor_table_find(const tensor_table *t, const char *name, size_t len);

/* Refuses two tensors of items[from ..] that share a byte. */
int tensor_table_check_overlap(const tensor_table *t, size_t from, err *e);

/* Bytes of a tensor of this type and shape, and checks on both; the sentence does not name the tensor. */
int tensor_table_bytes(const model_tensor *tensor, size_t *out, err *e);

#endif
