/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GLM 4.1V, 4.5V, 4.6V and GLM-OCR: pictures of any size between two numbers of pixels, positions have three axes. The
 * files count a picture's pixels twice, since it stands for two frames. The template prints what stands around the
 * rows.
 */
#include "models/list.h"
#include "vision/family.h"

enum { FRAMES = 2 };

#define ROW "<|image|>"

static int read(vision_rules *r, const vision_source *s, err *e) {
    int least = vision_area(s, "image_min_pixels", "min_pixels", "shortest_edge", 112 * 112);
    int most = vision_area(s, "image_max_pixels", "max_pixels", "longest_edge", 28 * 28 * 15000);
    if (r->patch < 0) r->patch = 14;
    r->merge = source_number(s, "spatial_merge_size", json_get(s->vision, "spatial_merge_size"), 2);
    r->least = least / FRAMES + least % FRAMES;
    r->most = most / FRAMES;
    return vision_area_check(r, e);
}

/* A side that is shorter than a square is scaled up first: int() as the reference has it. */
static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double square = r->patch * r->merge, scale = square / (width < height ? width : height);
    if (scale > 1) {
        if (width * scale > INT32_MAX / 65536 || height * scale > INT32_MAX / 65536)
            return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
        width = (int)(width * scale);
        height = (int)(height * scale);
    }
    return vision_area_plan(p, r, width, height, e);
}

static const vision_kin kin[] = {
    { "glm4v", "glm4v", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "glm4v_moe", "glm4v", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "glm46v", "glm4v", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "glm_ocr", "glm4v", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_glm = { .kin = kin,
                                   .tower = &models_glm_tower,
                                   .projector = &models_projector_glm,
                                   .placeholder = ROW,
                                   .row = ROW,
                                   .grid = true,
                                   .read = read,
                                   .low = vision_area_low,
                                   .plan = plan,
                                   .most_patches = vision_area_patches };
