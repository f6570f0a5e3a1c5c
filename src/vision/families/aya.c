/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Aya Vision and Command A Vision: SigLIP over a grid of tiles, and the whole, squeezed into a tile, behind them. Aya takes the
 * grid whose sides are most like the picture's, and its tiles have names; Command A takes the one that enlarges it the least.
 */
#include "models/list.h"
#include "vision/family.h"

enum { MOST_TILES = 12, LIMIT_TILES = 64 };

#define PATCH "<|IMG_PATCH|>"

static int read(vision_rules *r, const vision_source *s, err *e) {
    const char *strategy = json_cstr(json_get(s->config, "vision_feature_select_strategy"));
    int         image = r->side;
    bool        aya = r->kind == VISION_AYA;
    if (aya && strategy && !view_eq_c(view_of(strategy), "full"))
        return err_set(e, ERR_UNSUPPORTED, "config.json: vision_feature_select_strategy is %.40s", strategy);
    r->merge = source_number(s, NULL, json_get(s->config, "downsample_factor"), 2);
    r->side = source_number(s, NULL, source_size(s, "size", "height"), image);
    r->split = aya || source_switch(s, "crop_to_patches", true); /* Aya's processor always cuts */
    r->least = source_number(s, NULL, json_get(s->pre, "min_patches"), 1);
    r->most = source_number(s, NULL, json_get(s->pre, "max_patches"), MOST_TILES);
    if (r->least < 1 || r->most < r->least || r->most > LIMIT_TILES)
        return err_set(e, ERR_FORMAT, "a picture of %d to %d tiles", r->least, r->most);
    if (r->side != image) return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->split = false; }

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    (void)e;
    if (!r->split || r->most == 1)
        vision_one_tile(p, r->side, r->side);
    else if (r->kind == VISION_AYA)
        vision_grid_alike(p, r, width, height);
    else
        vision_grid_near(p, r, width, height);
    return 0;
}

static void write_aya(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<|START_OF_IMG|>");
    for (int i = 1; i < p->n_tiles; i++) {
        str_printf(out, "TILE_%d", i);
        vision_put_rows(out, row, p->tile_rows);
    }
    str_puts(out, "TILE_GLOBAL");
    vision_put_rows(out, row, p->tile_rows);
    str_puts(out, "<|END_OF_IMG|>");
}

static void write_cohere2(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<|START_OF_IMG|>");
    for (int i = 0; i < p->n_tiles; i++) {
        vision_put_rows(out, row, p->tile_rows);
        str_puts(out, "<|IMG_LINE_BREAK|>");
    }
    str_puts(out, "<|END_OF_IMG|>");
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    vision_set(p, "projector.scale_factor", r->merge, false);
}

static const vision_kin kin_aya[] = {
    { "aya_vision", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_aya = { .kin = kin_aya,
                                   .silent = &vision_colours_clip,
                                   .fixed_tiles = true,
                                   .tower = &models_siglip_inner,
                                   .projector = &models_projector_aya,
                                   .placeholder = "<image>",
                                   .row = PATCH,
                                   .read = read,
                                   .low = low,
                                   .plan = plan,
                                   .most_tiles = vision_grid_most,
                                   .write = write_aya,
                                   .parts = parts };

static const vision_kin kin_cohere2[] = {
    { "cohere2_vision", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_cohere2 = { .kin = kin_cohere2,
                                       .silent = &vision_colours_clip,
                                       .fixed_tiles = true,
                                       .tower = &models_siglip,
                                       .projector = &models_projector_cohere2,
                                       .placeholder = PATCH,
                                       .row = PATCH,
                                       .read = read,
                                       .low = low,
                                       .plan = plan,
                                       .most_tiles = vision_grid_most,
                                       .write = write_cohere2,
                                       .parts = parts };
