/* SPDX-License-Identifier: Apache-2.0 */
/*
 * InternVL 2.5, 3 and 3.5: a picture is cut into a grid of tiles whose sides are most like its own, and the whole, squeezed into
 * a tile, stands behind them. Both forms of directories: the one for transformers and the authors' own ("internvl_chat"), whose
 * template prints another word for a picture. Qianfan-OCR has the sizes and fields of the former, and the names of tensors and
 * the word of the latter, which it was published as at first.
 */
#include "models/list.h"
#include "vision/family.h"

enum { MOST_TILES = 12, LIMIT_TILES = 64 };

#define ROW "<IMG_CONTEXT>"

static int refuse(const char *field, err *e) {
    return err_set(e, ERR_UNSUPPORTED, "config.json: the value of %s is not supported for InternVL", field);
}

/* Fields that every published directory has alike. */
static int check_usual(const vision_source *s, err *e) {
    const char *strategy = json_cstr(json_get(s->config, "vision_feature_select_strategy"));
    const char *version = json_cstr(json_get(s->config, "ps_version"));
    int64_t     layer = -1;
    (void)json_int(json_get(s->config, "vision_feature_layer"), &layer);
    if (layer != -1 || json_is(json_get(s->config, "vision_feature_layer"), JSON_K_ARRAY))
        return refuse("vision_feature_layer", e);
    (void)json_int(json_get(s->config, "select_layer"), &layer);
    if (layer != -1) return refuse("select_layer", e);
    if (strategy && !view_eq_c(view_of(strategy), "default")) return refuse("vision_feature_select_strategy", e);
    if (version && !view_eq_c(view_of(version), "v2")) return refuse("ps_version", e);
    if (!json_bool(json_get(s->config, "use_thumbnail"), true)) return refuse("use_thumbnail", e);
    return 0;
}

/* The patches on a side of a square, by the share of the rows' side that is left. */
static int read_merge(const vision_source *s) {
    double ratio = 0.5;
    if (s->mmproj) return source_number(s, "projector.scale_factor", NULL, 2);
    (void)json_number(json_get(s->config, "downsample_ratio"), &ratio);
    return ratio > 1.0 / 16 && ratio <= 1 ? (int)(1 / ratio) : -1;
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    bool              chat = r->kind == VISION_INTERNVL_CHAT;
    const json_value *from = chat ? s->config : s->pre;
    int               image = r->side, rc = check_usual(s, e);
    if (rc < 0) return rc;
    r->merge = read_merge(s);
    r->side = source_number(s, "image_size",
                            chat ? json_get(s->config, "force_image_size") : source_size(s, "size", "height"), image);
    r->split = s->mmproj || !chat || json_bool(json_get(s->config, "dynamic_image_size"), true);
    r->least = source_number(s, "preproc_min_tiles", json_get(from, chat ? "min_dynamic_patch" : "min_patches"), 1);
    r->most =
        source_number(s, "preproc_max_tiles", json_get(from, chat ? "max_dynamic_patch" : "max_patches"), MOST_TILES);
    if (r->least < 1 || r->most < r->least || r->most > LIMIT_TILES)
        return err_set(e, ERR_FORMAT, "a picture of %d to %d tiles", r->least, r->most);
    if (r->side != image) return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->split = false; }

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    (void)e;
    if (r->split && r->most > 1)
        vision_grid_alike(p, r, width, height);
    else
        vision_one_tile(p, r->side, r->side);
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "<img>");
    vision_put_rows(out, row, p->n_rows);
    str_puts(out, "</img>");
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    vision_set(p, "projector.scale_factor", r->merge, false);
}

#define INTERNVL                                                                                                       \
    .projector = &models_projector_internvl, .row = ROW, .read = read, .low = low, .plan = plan,                       \
    .most_tiles = vision_grid_most, .write = write, .parts = parts

static const vision_kin kin[] = {
    { "internvl", "internvl", NULL, NULL, PIXELS_BICUBIC, &vision_colours_imagenet },
    { 0 },
};
const vision_family vision_internvl = { INTERNVL,
                                        .kin = kin,
                                        .silent = &vision_colours_clip,
                                        .fixed_tiles = true,
                                        .tower = &models_internvl_tower,
                                        .placeholder = ROW,
                                        .shows = ROW };

static const vision_kin kin_chat[] = {
    { "internvl_chat", "internvl", NULL, NULL, PIXELS_BICUBIC, &vision_colours_imagenet },
    { 0 },
};
const vision_family vision_internvl_chat = { INTERNVL, .kin = kin_chat, .no_switches = true,
                                             .tower = &models_internvl_chat_tower, .placeholder = "<image>" };

static const vision_kin kin_qianfan[] = {
    { "qianfan_ocr", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_imagenet },
    { 0 },
};
const vision_family vision_qianfan = { INTERNVL,
                                       .kin = kin_qianfan,
                                       .silent = &vision_colours_clip,
                                       .fixed_tiles = true,
                                       .tower = &models_internvl_chat_tower,
                                       .placeholder = "<image>" };
