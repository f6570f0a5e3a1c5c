/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Qwen 2 VL, 2.5 VL, 3 VL and 3.5, and the eyes of 2.5 and 3 Omni: pictures of any size between two numbers of pixels;
 * positions have three axes. EXAONE 4.5 sees as Qwen 2.5 VL does, and its positions have one axis. The template prints
 * what stands around the rows.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

#define PAD "<|image_pad|>"

static int read(vision_rules *r, const vision_source *s, err *e) {
    bool second = r->kind == VISION_QWEN2_5 || r->kind == VISION_EXAONE, old = second || r->kind == VISION_QWEN2;
    if (r->patch < 0) r->patch = old ? 14 : 16;
    r->merge = source_number(s, "spatial_merge_size", json_get(s->vision, "spatial_merge_size"), 2);
    r->least = vision_area(s, "image_min_pixels", "min_pixels", "shortest_edge", old ? 3136 : 65536);
    r->most = vision_area(s, "image_max_pixels", "max_pixels", "longest_edge", old ? 12845056 : 16777216);
    int rc = vision_area_check(r, e);
    if (rc < 0) return rc;
    if (second) r->window = source_number(s, "window_size", json_get(s->vision, "window_size"), 112) / r->side;
    if (second && r->window < 1) return err_set(e, ERR_FORMAT, "window_size is smaller than %d", r->side);
    return 0;
}

/* config.json of Qwen 2 VL calls the tower's width embed_dim, and the language model's hidden_size. */
static void parts_2(vision_parts *p, const vision_rules *r, const model_file *model) {
    static const char *const names[2][2] = { { "embedding_length", "embed_dim" }, { "projection_dim", "hidden_size" } };
    (void)r, (void)model;
    for (size_t i = 0; i < 2 && p->tower.config; i++) {
        double x = 0;
        (void)json_number(json_get(p->tower.config, names[i][1]), &x);
        vision_set(p, names[i][0], x, false);
    }
}

/* config.json of some Qwen 2.5 VL says no more than where it differs from this. */
static void parts_2_5(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)r, (void)model;
    if (!p->tower.config) return;
    vision_set(p, "block_count", 32, true);
    vision_set(p, "embedding_length", 1280, true);
    vision_set(p, "feed_forward_length", 3420, true);
    vision_set(p, "attention.head_count", 16, true);
    vision_set(p, "projection_dim", 3584, true);
}

static void parts_exaone(vision_parts *p, const vision_rules *r, const model_file *model) {
    parts_2_5(p, r, model);
    if (p->tower.config) vision_set(p, "attention.head_count_kv", 8, true);
}

/* A file with the tower inside leaves these to its matrices; what the taps give comes on top of a row. */
static void parts_3(vision_parts *p, const vision_rules *r, const model_file *model) {
    if (!p->inside) return;
    double out = vision_matrix_rows(model, "mm.2.weight", "v.merger.linear_fc2.weight");
    double places = vision_matrix_rows(model, "v.position_embd.weight", "v.pos_embed.weight");
    if (out > 0) vision_set(p, "projection_dim", out, false);
    if (places > 0) vision_set(p, "image_size", sqrt(places) * r->patch, true);
}

#define BY_AREA                                                                                                        \
    .placeholder = PAD, .row = PAD, .read = read, .low = vision_area_low, .plan = vision_area_plan,                    \
    .most_patches = vision_area_patches

#define QWEN BY_AREA, .grid = true

static const vision_kin kin_2[] = {
    { "qwen2_vl", "qwen2vl_merger", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_qwen2 = { QWEN, .kin = kin_2, .tower = &models_qwen2_vl_tower,
                                     .projector = &models_projector_qwen2_vl, .parts = parts_2 };

static const vision_kin kin_2_5[] = {
    { "qwen2_5_vl", "qwen2.5vl_merger", "qwen25vl", NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "qwen2_5_omni", "qwen2.5o", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "qwen2_5_omni_thinker", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_qwen2_5 = { QWEN, .kin = kin_2_5, .tower = &models_qwen2_5_vl_tower,
                                       .projector = &models_projector_qwen2_5_vl, .parts = parts_2_5 };

static const vision_kin kin_3[] = {
    { "qwen3_vl", "qwen3vl_merger", "qwen3vl", NULL, PIXELS_BICUBIC, &vision_colours_half },
    { "qwen3_vl_moe", "qwen3vl_merger", "qwen3vlmoe", NULL, PIXELS_BICUBIC, &vision_colours_half },
    { "qwen3_omni_moe", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { "qwen3_omni_moe_thinker", NULL, NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { "qwen3_5", "qwen3vl_merger", "qwen35", NULL, PIXELS_BICUBIC, &vision_colours_half },
    { "qwen3_5_moe", "qwen3vl_merger", "qwen35moe", NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_qwen3 = { QWEN,
                                     .kin = kin_3,
                                     .silent = &vision_colours_clip,
                                     .tower = &models_qwen3_vl_tower,
                                     .projector = &models_projector_qwen3_vl,
                                     .parts = parts_3 };

static const vision_kin kin_exaone[] = {
    { "exaone4_5", "exaone4_5", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_exaone = { BY_AREA, .kin = kin_exaone, .tower = &models_qwen2_5_vl_tower,
                                      .projector = &models_projector_qwen2_5_vl, .parts = parts_exaone };
