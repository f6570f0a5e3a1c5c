/* SPDX-License-Identifier: Apache-2.0 */
/* How keys and values may be stored in cache pages: the names that options, files and backends agree on. Which of them
 * a backend can do, and how their bytes lie, is its own business (kernels/kvpage.h for the CPU). */
#ifndef NN_KV_TYPE_H
#define NN_KV_TYPE_H

#include <stdbool.h>

/* Stored in files of the disk tier: numbers stay. */
typedef enum nn_kv_type {
    NN_KV_F32,
    NN_KV_F16,
    NN_KV_BF16,
    NN_KV_Q8_0,
    NN_KV_Q4_0,
    NN_KV_Q5_0,
    NN_KV_TQ4,
    NN_KV_TQ3,
    NN_KV_TQ2,
    NN_KV_FP8,
    NN_KV_TYPE_COUNT
} nn_kv_type;

const char *nn_kv_type_name(nn_kv_type type);                    /* "f16" */
bool        nn_kv_type_parse(const char *name, nn_kv_type *out); /* case-insensitive; false: unknown */

/*
 * The types of a model's pages. Errors in the first and the last layers cost most, so those keep q8_0 where the type asked
 * for has fewer bits. Models with attention sinks give nearly all weight to few keys and lose their answers with rounded
 * ones: they keep keys in f16 unless keys were asked for by name.
 */
typedef struct nn_kv_types {
    nn_kv_type k, v;
    int        precise; /* layers with pages at either end that keep q8_0; NN_KV_PRECISE_USUAL: see there */
    bool       k_open;  /* nobody asked for k by name */
} nn_kv_types;

/* Two layers at either end, none in models that also have other states than pages: there few layers have pages, and what
 * they lose matters less. */
enum { NN_KV_PRECISE_USUAL = -1, NN_KV_PRECISE_LAYERS = 2 };

struct nn_model;

/* The types of one layer's pages. */
void nn_kv_types_of_layer(const nn_kv_types *t, const struct nn_model *m, int layer, nn_kv_type *k, nn_kv_type *v);

#endif
