/* SPDX-License-Identifier: Apache-2.0 */
/* How keys and values may be stored in cache pages: the names that options, files and backends agree on. Which of them
 * a backend can do, and how their bytes lie, is its own business (kernels/kvpage.h for the CPU). */
#ifndef NN_KV_TYPE_H
#define NN_KV_TYPE_H

#include <stdbool.h>

/* Stored in files of the disk tier: numbers stay. */
typedef enum nn_kv_type { NN_KV_F32, NN_KV_F16, NN_KV_BF16, NN_KV_Q8_0, NN_KV_Q4_0, NN_KV_TYPE_COUNT } nn_kv_type;

const char *nn_kv_type_name(nn_kv_type type);                    /* "f16" */
bool        nn_kv_type_parse(const char *name, nn_kv_type *out); /* case-insensitive; false: unknown */

#endif
