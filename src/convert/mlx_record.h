/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a directory of numbers was packed before it became numbers.
 *
 * Numbers do not say how they were packed: a group whose codes are all even, or all alike, has many scales that fit, and
 * 16 bits round what a scale and a bias of 16 bits gave. So a packed MLX directory that becomes one of Hugging Face leaves
 * the scales and biases of its modules in a file `mlx.packing` beside the weights, and the way back packs every group whose
 * numbers are still those with them: the same bytes. A group whose numbers were changed is fitted anew. No other program
 * reads the file, and none is in its way: its name ends in nothing that anybody looks for.
 *
 * It is a safetensors file: "MODULE.HOW.scales", "MODULE.HOW.biases", and "MODULE.HOW.weight" where numbers cannot tell all
 * codes apart (a bias far away from zero for its scale, the two zeros of FP4). HOW is "4bit", "mxfp4", "mxfp8" or "nvfp4";
 * shapes and types are those of the packed module.
 */
#ifndef CONVERT_MLX_RECORD_H
#define CONVERT_MLX_RECORD_H

#include "convert/plan.h"

#include "base/arena.h"

#define MLX_RECORD_FILE "mlx.packing"

/* What a directory of these packed modules leaves; type: of the numbers. *n is 0 where nothing was packed. */
int mlx_record_plan(plan_tensor **out, size_t *n, const model_file *packed, tensor_type type, arena *mem, err *e);

/* The record beside a model; *out is NULL where there is none. The caller frees it. */
int mlx_record_open(model_file **out, const model_file *numbers, err *e);

/* One module of a record. how.data is NULL where the codes follow from the numbers. */
typedef struct mlx_module {
    tensor_mat  how;     /* experts follow each other as rows */
    tensor_type numbers; /* what the directory has */
} mlx_module;

/* What the record says of a module that is packed like this; t: its numbers. False: nothing. */
bool mlx_record_find(const model_file *record, const char *module, const model_quant *q, const plan_tensor *t,
                     mlx_module *out);
/* How the record says that a module was packed. */
bool mlx_record_quant(const model_file *record, const char *module, const plan_tensor *t, model_quant *out);

/* Packs one group of a row as it was; false: the numbers are others. The three point to where the group's bytes go. */
bool mlx_record_group(const mlx_module *m, int64_t row, int64_t group, const float *x, uint8_t *data, uint8_t *scale,
                      uint8_t *bias);

/* The type of a packing's rows. */
tensor_type mlx_packed_type(const model_quant *q);

#endif
