/* SPDX-License-Identifier: Apache-2.0 */
/* Pixtral and Mistral 3: pictures of any size up to an edge; the lines of a picture's rows end with words of their own. LightOnOCR
 * does the same without these words. */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

static int read(vision_rules *r, const vision_source *s, err *e) {
    int image = r->side;
    r->merge = source_number(s, "spatial_merge_size", json_get(s->config, "spatial_merge_size"),
                             r->kind == VISION_LIGHTON && !s->mmproj ? 2 : 1);
    if (source_inside(s)) (void)source_outer_number(s, "mistral3.spatial_merge_size", &r->merge);
    r->edge = source_number(s, "image_size", source_size(s, "size", "longest_edge"), image);
    if (s->mmproj && !source_inside(s)) r->edge = source_number(s, "preproc_image_size", NULL, r->edge);
    if (r->edge < 1) return err_set(e, ERR_FORMAT, "the longer side of pictures makes no sense");
    if (r->patch > 0 && r->merge > 0) r->side = vision_up_to(r->edge, r->patch * r->merge);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->edge = r->edge < VISION_LOW_SIDE ? r->edge : VISION_LOW_SIDE; }

/* Not longer than the edge, then up to whole squares of patches. */
static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double over = fmax((double)height / r->edge, (double)width / r->edge);
    int    square = r->patch * r->merge;
    (void)e;
    if (over > 1) {
        height = (int)floor(height / over);
        width = (int)floor(width / over);
    }
    vision_one_tile(p, vision_up_to(width > 0 ? width : 1, square), vision_up_to(height > 0 ? height : 1, square));
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    int down = p->tile_rows / p->across;
    for (int y = 0; y < down; y++) {
        vision_put_rows(out, row, p->across);
        str_puts(out, y + 1 < down ? "[IMG_BREAK]" : "[IMG_END]");
    }
}

/* Without squares nothing is merged. A file with the tower inside differs from an mmproj file: the halves of a head's pairs lie
 * apart. */
static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    if (r->merge == 1) p->projector.arch = &models_projector_llava;
    if (p->inside || r->kind == VISION_LIGHTON) vision_set(p, "spatial_merge_size", r->merge, false);
    if (p->inside) vision_set(p, "rope.halves", 1, false);
}

static const vision_kin kin[] = {
    { "llava", "pixtral", NULL, "pixtral", PIXELS_BICUBIC, &vision_colours_clip },
    { "mistral3", "pixtral", "mistral3", "pixtral", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_pixtral = { .kin = kin,
                                       .tower = &models_pixtral_tower,
                                       .projector = &models_projector_mistral3,
                                       .placeholder = "[IMG]",
                                       .row = "[IMG]",
                                       .by_channel = true,
                                       .read = read,
                                       .low = low,
                                       .plan = plan,
                                       .write = write,
                                       .parts = parts };

static const vision_kin kin_lighton[] = {
    { "lighton_ocr", "lightonocr", NULL, "pixtral", PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_lighton = { .kin = kin_lighton,
                                       .tower = &models_pixtral_tower,
                                       .projector = &models_projector_mistral3,
                                       .placeholder = "<|image_pad|>",
                                       .row = "<|image_pad|>",
                                       .by_channel = true,
                                       .read = read,
                                       .low = low,
                                       .plan = plan,
                                       .parts = parts };
