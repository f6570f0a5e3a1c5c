/* SPDX-License-Identifier: Apache-2.0 */
/* LLaVA 1.5: the shorter side is scaled to the tower's size, and the middle of the picture is cut out. ViP-LLaVA takes the rows of
 * several layers. */
#include "models/list.h"
#include "vision/family.h"

static int read(vision_rules *r, const vision_source *s, err *e) {
    r->merge = 1;
    if (r->kind == VISION_VIPLLAVA && !json_get(s->config, "vision_feature_layers"))
        return err_set(e, ERR_UNSUPPORTED, "config.json does not say vision_feature_layers");
    r->crop = r->side;
    r->side = source_number(s, "image_size", source_size(s, "size", "shortest_edge"), r->side);
    return vision_check_squares(r, e);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int64_t shorter = width < height ? width : height, longer = width < height ? height : width;
    int64_t other = r->side * longer / shorter;
    if (other > INT32_MAX / 65536) return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
    p->width = width < height ? r->side : (int)other;
    p->height = width < height ? (int)other : r->side;
    p->tile_width = p->tile_height = r->crop;
    return 0;
}

static int most_patches(const vision_rules *r) { return r->crop / r->patch * (r->crop / r->patch); }

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
