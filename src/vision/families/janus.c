/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Janus and DeepSeek VL (the small one, with one tower): the longer side is scaled to the tower's size, and the picture lies in
 * the middle of a square of the mean colour. Of Janus, what sees; it does not draw.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <string.h>

enum { GREY = 127 }; /* around the picture, where the files name no mean */

static int read(vision_rules *r, const vision_source *s, err *e) {
    int64_t           least = 14, depth = 2;
    int               image = r->side;
    const json_value *mean = json_get(s->pre, "image_mean");
    vision_mean_colour(r->canvas, r);
    if (s->pre && (!mean || mean->kind == JSON_K_NULL)) memset(r->canvas, GREY, sizeof r->canvas);
    r->merge = 1;
    r->side = source_number(s, "image_size", source_size(s, "size", "height"), image);
    if (!s->mmproj) (void)json_int(json_get(s->pre, "min_size"), &least);
    r->least = least > 0 && least <= r->side ? (int)least : -1;
    if (r->least < 0) return err_set(e, ERR_FORMAT, "preprocessor_config.json: min_size does not fit %d", r->side);
    if (r->side != image) return err_set(e, ERR_UNSUPPORTED, "pictures of %d pixels for a tower of %d", r->side, image);
    if (!source_switch(s, "do_pad", true))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: do_pad is false");
    (void)json_int(json_get(s->vision, "depth"), &depth);
    if (r->kind == VISION_JANUS && depth != 2)
        return err_set(e, ERR_UNSUPPORTED, "config.json: depth is %lld", (long long)depth);
    return vision_check_squares(r, e);
}

/* Python's round(), which takes the even one of two that are equally near. */
static int scaled(const vision_rules *r, int side, int longer) {
    int x = (int)nearbyint(side * ((double)r->side / longer));
    return x > r->least ? x : r->least;
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int longer = width > height ? width : height;
    (void)e;
    vision_one_tile(p, r->side, r->side);
    p->width = scaled(r, width, longer);
    p->height = scaled(r, height, longer);
    p->canvas_width = p->canvas_height = r->side;
    memcpy(p->canvas, r->canvas, sizeof p->canvas);
    return 0;
}

static void write_janus(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<begin_of_image>");
    vision_put_rows(out, row, p->n_rows);
    str_puts(out, "<end_of_image>");
}

/* config.json says how much wider the feed-forward layers are. */
static void parts_janus(vision_parts *p, const vision_rules *r, const model_file *model) {
    double width = 1024, ratio = 4;
    (void)r, (void)model;
    if (!p->tower.config) return;
    (void)json_number(json_get(p->tower.config, "hidden_size"), &width);
    (void)json_number(json_get(p->tower.config, "mlp_ratio"), &ratio);
    vision_set(p, "feed_forward_length", floor(width * ratio), false);
}

static const vision_kin kin_janus[] = {
    { "janus", "janus_pro", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_janus = { .kin = kin_janus,
                                     .silent = &vision_colours_clip,
                                     .tower = &models_janus_tower,
                                     .projector = &models_projector_janus,
                                     .placeholder = "<image_placeholder>",
                                     .row = "<image_placeholder>",
                                     .read = read,
                                     .plan = plan,
                                     .write = write_janus,
                                     .parts = parts_janus };

static const vision_kin kin_deepseek[] = {
    { "deepseek_vl", NULL, NULL, "siglip_vision_model", PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_deepseek_vl = { .kin = kin_deepseek,
                                           .silent = &vision_colours_clip,
                                           .tower = &models_siglip,
                                           .projector = &models_projector_deepseek_vl,
                                           .placeholder = "<image_placeholder>",
                                           .row = "<image_placeholder>",
                                           .read = read,
                                           .plan = plan };
