/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LLaVA 1.5: the shorter side is scaled to the tower's size, and the middle of the picture is cut out. ViP-LLaVA takes the rows of
 * several layers. A processor may say that the picture is stretched, or that it lies in a square of the mean colour first, as the
 * authors have it; then nothing need be cut out.
 */
#include "models/list.h"
#include "vision/family.h"

#include <string.h>

enum { LARGEST_SQUARE = 10000 }; /* 300 MB */

/* CLIP's processor knows of no squares; without a name it is that of the model. */
static bool is_squared(const vision_rules *r, const vision_source *s) {
    const char *type = json_cstr(json_get(s->pre, "image_processor_type"));
    bool        own = type ? strncmp(type, "LlavaImageProcessor", 19) == 0 : r->kind == VISION_LLAVA;
    return own && source_switch(s, "do_pad", false);
}

/* What the processor makes of a picture must be as large as what the tower takes. */
static int check_crop(const vision_rules *r, const vision_source *s, err *e) {
    int high = source_number(s, NULL, source_size(s, "crop_size", "height"), r->crop);
    int wide = source_number(s, NULL, source_size(s, "crop_size", "width"), r->crop);
    if (s->mmproj) return 0;
    if (!source_switch(s, "do_center_crop", true)) {
        if ((r->squared || r->stretched) && r->side == r->crop) return 0;
        return err_set(e, ERR_UNSUPPORTED,
                       "preprocessor_config.json: do_center_crop is false, and pictures are not %d x %d", r->crop,
                       r->crop);
    }
    if (high == r->crop && wide == r->crop) return 0;
    return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: crop_size is %d x %d for a tower of %d", wide, high,
                   r->crop);
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value *size = json_get(s->pre, "size");
    r->merge = 1;
    if (r->kind == VISION_VIPLLAVA && !json_get(s->config, "vision_feature_layers"))
        return err_set(e, ERR_UNSUPPORTED, "config.json does not say vision_feature_layers");
    r->crop = r->side;
    r->squared = is_squared(r, s);
    r->stretched = json_get(size, "height") && json_get(size, "width") && !json_get(size, "shortest_edge");
    if (r->stretched &&
        source_number(s, NULL, json_get(size, "height"), -1) != source_number(s, NULL, json_get(size, "width"), -1))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: size is not of a square");
    r->side =
        source_number(s, "image_size", source_size(s, "size", r->stretched ? "height" : "shortest_edge"), r->side);
    vision_mean_colour(r->canvas, r);
    if (r->patch > 0 && r->crop < r->patch)
        return err_set(e, ERR_FORMAT, "pictures of %d pixels, patches of %d do not fit each other", r->crop, r->patch);
    int rc = check_crop(r, s, e);
    return rc < 0 ? rc : vision_check_squares(r, e);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int64_t shorter = width < height ? width : height, longer = width < height ? height : width;
    int64_t other = r->squared || r->stretched ? r->side : r->side * longer / shorter;
    if (r->squared && longer > LARGEST_SQUARE)
        return err_set(e, ERR_LIMIT, "a picture of %d x %d is too large: this model's lie in a square of %d at most",
                       width, height, LARGEST_SQUARE);
    p->squared = r->squared;
    memcpy(p->canvas, r->canvas, sizeof p->canvas);
    if (other > INT32_MAX / 65536) return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
    p->width = width < height ? r->side : (int)other;
    p->height = width < height ? (int)other : r->side;
    p->tile_width = p->tile_height = r->crop;
    return 0;
}

static int64_t most_patches(const vision_rules *r) {
    int64_t across = r->crop / r->patch;
    return across * across;
}

static const vision_kin kin[] = {
    { "llava", "mlp", NULL, "clip_vision_model", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_llava = { .kin = kin,
                                     .tower = &models_clip,
                                     .projector = &models_projector_llava,
                                     .placeholder = "<image>",
                                     .row = "<image>",
                                     .row_else = "<unk>",
                                     .read = read,
                                     .plan = plan,
                                     .most_patches = most_patches };

static const vision_kin kin_vip[] = {
    { "vipllava", NULL, NULL, "clip_vision_model", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_vipllava = { .kin = kin_vip,
                                        .tower = &models_clip,
                                        .projector = &models_projector_vipllava,
                                        .placeholder = "<image>",
                                        .row = "<image>",
                                        .row_else = "<unk>",
                                        .read = read,
                                        .plan = plan,
                                        .most_patches = most_patches };
