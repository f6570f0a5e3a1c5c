/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a model as a Hugging Face directory has them.
 *
 * Of a GGUF file: binding has noted every tensor under both names (nn/bound.h), so the way back is the way there read
 * from right to left: rotated heads in their own order, what is stored minus one or as a logarithm, experts and fused
 * matrices taken apart or put together. Of a directory: what is packed becomes numbers, everything else stays as it is.
 */
#ifndef CONVERT_HF_PLAN_H
#define CONVERT_HF_PLAN_H

#include "base/arena.h"
#include "convert/families.h"
#include "convert/plan.h"
#include "nn/model.h"

typedef struct hf_plan {
    plan_tensor         *tensors;
    size_t               n;
    tensor_type          type; /* of the matrices: F16, BF16 or F32 */
    struct turned_tiles *tiles;
} hf_plan;

/* type: what matrices become; -1: they stay, and packed ones become BF16. */
int  hf_plan_gguf(hf_plan *out, const nn_model *m, const hf_family *f, int type, arena *mem, err *e);
void hf_plan_close(hf_plan *p); /* the tensors stay the arena's */
int  hf_plan_dir(hf_plan *out, const model_file *m, int type, arena *mem, err *e);

#endif
