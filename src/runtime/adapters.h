/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The adapters of an opened model: read when a request first names them, kept while there is room, the longest unused
 * one dropped first; what a request uses stays until its last event. A file is known by its path and by what the system
 * says of it (inode, size, time): one that was replaced is read again. What is computed with an adapter is kept apart by
 * its content, so that a mistake here would cost time, but never mix two files.
 */
#ifndef RUNTIME_ADAPTERS_H
#define RUNTIME_ADAPTERS_H

#include "nn/adapter.h"
#include "runtime/runtime.h"

typedef struct adapters     adapters;
typedef struct adapters_set adapters_set;

/* Of the options: adapter_bytes, on_adapters, settings.adapter_type. On a GPU only f16 is possible. */
int  adapters_open(adapters **out, const nn_model *m, const runtime_options *o, err *e);
void adapters_free(adapters *a); /* accepts NULL; nothing is in use any more */

/* A set of these, in this order; those with scale 0 are left out, and *out is NULL when none is left. */
int                   adapters_take(adapters *a, const runtime_lora *list, size_t n, adapters_set **out, err *e);
void                  adapters_give_back(adapters *a, adapters_set *s); /* accepts NULL; from any thread */
const nn_adapter_set *adapters_set_of(const adapters_set *s);

typedef struct adapters_stats {
    int    n_loaded, n_in_use;
    size_t bytes;
} adapters_stats;
void adapters_stat(adapters *a, adapters_stats *out);

#endif
