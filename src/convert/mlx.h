/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tensors of a Hugging Face directory as MLX has them: experts in one tensor each, matrices packed by a recipe.
 *
 * A packed module X has X.weight (words of 32 bits), X.scales and, in the affine mode, X.biases. Rows that are not whole
 * groups stay as they are, and so do norms. Routers of experts get 8 bits. A mixed recipe gives v_proj and down_proj more
 * bits in the first and last eighth of the layers and every third between, and the head, too.
 */
#ifndef CONVERT_MLX_H
#define CONVERT_MLX_H

#include "base/str.h"
#include "convert/hf_plan.h"

typedef struct mlx_recipe {
    bool        packs; /* false: numbers stay numbers */
    model_quant low, high;
    bool        mixed;
    bool        recorded; /* everything as the record says */

    const model_file *record; /* of how the source was packed before (convert/mlx_record.h); NULL: none */
} mlx_recipe;

/* "4bit", "mixed_3_6", "mxfp4", "mxfp8", "nvfp4"; group 0: the mode's own. ERR_ARG: not one. */
int mlx_recipe_read(mlx_recipe *out, const char *name, int group, err *e);

/* Changes the plan. config: the text of the config's "quantization" is appended; nothing when the recipe packs nothing. */
int mlx_plan(hf_plan *p, const mlx_recipe *r, int n_layers, arena *mem, str *config, err *e);

#endif
