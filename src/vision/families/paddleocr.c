/* SPDX-License-Identifier: Apache-2.0 */
/* SigLIP for pictures of any size between two numbers of pixels: PaddleOCR-VL and VideoLLaMA 3, of which no videos. The
 * template prints what stands around the rows. */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

#define ROW "<|IMAGE_PLACEHOLDER|>"
#define PAD "<|image_pad|>"

static void read_sizes(vision_rules *r, const vision_source *s, int least, int most) {
    if (r->patch < 0) r->patch = 14;
    r->least = vision_area(s, "image_min_pixels", "min_pixels", "shortest_edge", least);
    r->most = vision_area(s, "image_max_pixels", "max_pixels", "longest_edge", most);
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    read_sizes(r, s, 384 * 384, 1536 * 1536);
    r->merge = source_number(s, "spatial_merge_size", json_get(s->vision, "spatial_merge_size"), 2);
    return vision_area_check(r, e);
}

/* A side that is shorter than a square is scaled up first, the upright one before the other. */
static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double square = r->patch * r->merge, w = width, h = height;
    if (h < square) {
        w = nearbyint(w * square / h);
        h = square;
    }
    if (w < square) {
        h = nearbyint(h * square / w);
        w = square;
    }
    if (w > INT32_MAX / 65536 || h > INT32_MAX / 65536)
        return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
    return vision_area_plan(p, r, (int)w, (int)h, e);
}

static const vision_kin kin[] = {
    { "paddleocr_vl", "paddleocr", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_paddleocr = { .kin = kin,
                                         .silent = &vision_colours_clip,
                                         .tower = &models_siglip_any,
                                         .projector = &models_projector_paddleocr,
                                         .placeholder = ROW,
                                         .row = ROW,
                                         .grid = true,
                                         .read = read,
                                         .low = vision_area_low,
                                         .plan = plan,
                                         .most_patches = vision_area_patches };

/* Each patch is a row. */
static int read_video_llama(vision_rules *r, const vision_source *s, err *e) {
    read_sizes(r, s, 56 * 56, 28 * 28 * 1280);
    r->merge = source_number(s, NULL, json_get(s->pre, "merge_size"), 1);
    if (r->merge != 1)
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: merge_size is not 1; this is not supported");
    return vision_area_check(r, e);
}

static const vision_kin kin_video_llama[] = {
    { "video_llama_3", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_video_llama = { .kin = kin_video_llama,
                                           .tower = &models_siglip_any,
                                           .projector = &models_projector_llava,
                                           .placeholder = PAD,
                                           .row = PAD,
                                           .read = read_video_llama,
                                           .low = vision_area_low,
                                           .plan = vision_area_plan,
                                           .most_patches = vision_area_patches };
