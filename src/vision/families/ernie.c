/* SPDX-License-Identifier: Apache-2.0 */
/* ERNIE 4.5 VL: pictures of any size between two numbers of pixels, positions have three axes. The template prints what
 * stands around the rows. */
#include "models/list.h"
#include "vision/family.h"

#define ROW "<|IMAGE_PLACEHOLDER|>"

static int read(vision_rules *r, const vision_source *s, err *e) {
    if (r->patch < 0) r->patch = 14;
    r->merge = source_number(s, NULL, json_get(s->vision, "spatial_merge_size"), 2);
    r->least = vision_area(s, NULL, "min_pixels", "shortest_edge", 56 * 56);
    r->most = vision_area(s, NULL, "max_pixels", "longest_edge", 28 * 28 * 6177);
    return vision_area_check(r, e);
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    double eps = 1e-5;
    (void)r, (void)model;
    (void)json_number(json_get(json_get(p->tower.outer, "text_config"), "rms_norm_eps"), &eps);
    vision_set(p, "attention.layer_norm_rms_epsilon", eps, false);
}

static const vision_kin kin[] = {
    { "ernie4_5_vl_moe", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_ernie = { .kin = kin,
                                     .tower = &models_ernie_tower,
                                     .projector = &models_projector_ernie,
                                     .placeholder = ROW,
                                     .row = ROW,
                                     .grid = true,
                                     .read = read,
                                     .low = vision_area_low,
                                     .plan = vision_area_plan,
                                     .most_patches = vision_area_patches,
                                     .parts = parts };
