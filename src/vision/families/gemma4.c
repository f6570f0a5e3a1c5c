/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gemma 4: pictures of any size within a budget of rows; a row is the mean of a square of patches. The 12B has no tower: there a
 * square is one large patch.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <string.h>

enum { LOW_ROWS = 70 }; /* the smallest of the model's budgets */

/* Whether a picture's rows see each other is a matter of the language model. GGUF does not say it; the smaller models, which
 * have inputs per layer, are without. */
static bool sees_whole(const vision_source *s) {
    const json_value *config = model_file_config(s->model);
    int64_t           per_layer = 0;
    if (!config) {
        (void)meta_int(model_file_meta(s->model, "gemma4.embedding_length_per_layer_input"), &per_layer);
        return per_layer == 0;
    }
    const char *text = json_cstr(json_get(json_get(config, "text_config"), "use_bidirectional_attention"));
    return text && strcmp(text, "vision") == 0;
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value *pooled = json_get(s->pre, "pooling_kernel_size");
    if (!pooled) pooled = json_get(s->vision, "pooling_kernel_size");
    r->merge = source_number(s, "projector.scale_factor", pooled, 3);
    r->most = source_number(s, NULL, json_get(s->pre, "max_soft_tokens"), 280);
    r->whole = sees_whole(s);
    r->side = r->patch * r->merge;
    if (r->patch < 1 || r->patch > 256 || r->merge < 1 || r->merge > 16 || r->most < 1 || r->most > VISION_MOST_ROWS)
        return err_set(e, ERR_FORMAT, "pictures of %d rows, patches of %d, squares of %d do not fit each other",
                       r->most, r->patch, r->merge);
    return 0;
}

static int read_patches(vision_rules *r, const vision_source *s, err *e) {
    int rc = read(r, s, e);
    r->patch *= r->merge;
    r->merge = 1;
    return rc;
}

static void low(vision_rules *r) { r->most = r->most < LOW_ROWS ? r->most : LOW_ROWS; }

/* As large as the budget of rows allows, stretched by as little as whole squares need. */
static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int    f = r->patch * r->merge;
    double patches = (double)r->most * r->merge * r->merge, area = (double)height * width;
    double factor = sqrt(patches * r->patch * r->patch / area);
    int    to_h = (int)floor(factor * height / f) * f, to_w = (int)floor(factor * width / f) * f;
    if (to_h == 0 && to_w == 0)
        return err_set(e, ERR_LIMIT, "a picture of %d x %d has no room in %d rows", width, height, r->most);
    int longest = r->most * f;
    if (to_h == 0) {
        to_h = f;
        to_w = (int)fmin(floor((double)width / height) * f, longest);
    } else if (to_w == 0) {
        to_w = f;
        to_h = (int)fmin(floor((double)height / width) * f, longest);
    }
    vision_one_tile(p, to_w, to_h);
    return 0;
}

static int64_t most_patches(const vision_rules *r) { return (int64_t)r->most * r->merge * r->merge; }

static void write(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<|image>");
    vision_put_rows(out, row, p->tile_rows);
    str_puts(out, "<image|>");
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    vision_set(p, "pooled", r->merge * r->merge, false);
}

static void parts_patches(vision_parts *p, const vision_rules *r, const model_file *model) {
    double width = 0;
    (void)model;
    vision_set(p, "block_count", 1, false); /* there are none, and nothing of one is asked for */
    vision_set(p, "patch_size", r->patch, false);
    if (json_number(json_get(p->tower.config, "mm_embed_dim"), &width)) vision_set(p, "embedding_length", width, false);
}

#define GEMMA4                                                                                                         \
    .placeholder = "<|image|>", .row = "<|image|>", .own_colours = true, .low = low, .plan = plan,                     \
    .most_patches = most_patches, .write = write

/* Colours go from -1 to 1, whatever the files say; those of the 12B from 0 to 1. */
static const vision_kin kin[] = {
    { "gemma4", "gemma4v", "gemma4", NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_gemma4 = {
    GEMMA4,       .kin = kin,    .tower = &models_gemma4_tower, .projector = &models_projector_gemma4,
    .read = read, .parts = parts
};

static const vision_kin kin_patches[] = {
    { "gemma4_unified", "gemma4uv", NULL, NULL, PIXELS_BICUBIC, &vision_colours_none },
    { 0 },
};
const vision_family vision_gemma4_patches = { GEMMA4,
                                              .kin = kin_patches,
                                              .tower = &models_gemma4_patches,
                                              .projector = &models_projector_gemma4_patches,
                                              .read = read_patches,
                                              .parts = parts_patches };
