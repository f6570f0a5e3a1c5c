/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kimi VL and Kimi K2.5: pictures of any size up to a number of patches, never larger than they are, in the corner of
 * as many whole squares as they need. The template prints what stands around the rows.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>

#define PAD "<|media_pad|>"

enum { SIDE = 512 }; /* patches on a side, at most */

/* config.json has a list for both sides, or a number. */
static const json_value *kernel(const json_value *v, bool *square) {
    int64_t a = 0, b = 0;
    if (!json_is(v, JSON_K_ARRAY)) return v;
    if (!json_int(json_at(v, 0), &a) || !json_int(json_at(v, 1), &b) || a != b) *square = false;
    return json_at(v, 0);
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    const json_value        *own = json_get(s->pre, "media_proc_cfg"), *pre = own ? own : s->pre;
    bool                     newer = r->kind == VISION_KIMI_K25, square = true;
    int64_t                  most = newer ? 16384 : 4096, area = 0;
    static const char *const limits[] = { "in_patch_limit", "max_patches", "in_token_limit" };
    if (r->patch < 0) r->patch = 14;
    r->merge = source_number(s, "projector.scale_factor", kernel(json_get(s->vision, "merge_kernel_size"), &square), 2);
    r->edge = source_number(s, NULL, json_get(pre, "patch_limit_on_one_side"), SIDE);
    r->edge = source_number(s, NULL, source_size(s, "size", "max_height"), r->edge);
    for (size_t i = 0; i < sizeof limits / sizeof *limits && !s->mmproj; i++)
        (void)json_int(json_get(pre, limits[i]), &most);
    if (s->mmproj && meta_int(source_meta(s, "image_max_pixels"), &area) && r->patch > 0)
        most = area / (r->patch * r->patch);
    int64_t limit = (int64_t)VISION_MOST_ROWS * r->merge * r->merge;
    r->most = (int)(most < 1 ? -1 : most < limit ? most : limit);
    r->side = r->patch * r->merge;
    if (r->patch < 1 || r->patch > 256 || r->merge < 1 || r->merge > 16 || r->most < 1 || r->edge < 1 || !square)
        return err_set(e, ERR_FORMAT, "pictures of %d patches of %d, squares of %d do not fit each other", r->most,
                       r->patch, r->merge);
    if (!newer && !source_switch(s, "pad_input", s->mmproj != NULL))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: pad_input is not true, which is not supported");
    const json_value *fixed = json_get(pre, "fixed_output_tokens");
    if (fixed && fixed->kind != JSON_K_NULL)
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: fixed_output_tokens is not supported");
    return 0;
}

static void low(vision_rules *r) {
    int most = VISION_LOW_SIDE / r->patch * (VISION_LOW_SIDE / r->patch);
    if (most > 0 && r->most > most) r->most = most;
}

/* Whole patches count, what is beside them does not: a little more than the limit comes out. */
static int64_t most_patches(const vision_rules *r) { return (int64_t)r->most + r->most / 7 + 64; }

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int    longest = r->edge * r->patch, square = r->patch * r->merge;
    double across = fmax(1, width / r->patch), down = fmax(1, height / r->patch);
    double scale = fmin(1, sqrt(r->most / (across * down)));
    if (r->kind == VISION_KIMI_K25) scale = fmin(scale, fmin((double)longest / height, (double)longest / width));
    p->width = (int)fmax(1, floor(width * scale));
    p->height = (int)fmax(1, floor(height * scale));
    if (r->kind == VISION_KIMI_K25) {
        p->width = p->width < longest ? p->width : longest;
        p->height = p->height < longest ? p->height : longest;
    }
    p->tile_width = vision_up_to(p->width, square);
    p->tile_height = vision_up_to(p->height, square);
    p->padded = true;
    int64_t patches = (int64_t)(p->tile_width / r->patch) * (p->tile_height / r->patch);
    if (p->tile_width / r->patch > SIDE + r->merge || p->tile_height / r->patch > SIDE + r->merge ||
        patches > most_patches(r))
        return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
    return 0;
}

/* config.json of K2.5 has names of its own for the tower's sizes. In its mmproj files each axis has a half of a head. */
static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    static const char *const names[][2] = { { "embedding_length", "vt_hidden_size" },
                                            { "feed_forward_length", "vt_intermediate_size" },
                                            { "block_count", "vt_num_hidden_layers" },
                                            { "attention.head_count", "vt_num_attention_heads" } };
    (void)r, (void)model;
    vision_set(p, "rope.apart", 1, false);
    for (size_t i = 0; i < sizeof names / sizeof *names && p->tower.config; i++) {
        double x;
        if (json_number(json_get(p->tower.config, names[i][1]), &x)) vision_set(p, names[i][0], x, false);
    }
}

#define KIMI                                                                                                           \
    .tower = &models_moonvit, .projector = &models_projector_moonvit, .placeholder = PAD, .row = PAD, .read = read,    \
    .low = low, .plan = plan, .most_patches = most_patches

static const vision_kin kin_vl[] = {
    { "kimi_vl", "kimivl", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_kimi_vl = { KIMI, .kin = kin_vl, .no_switches = true };

static const vision_kin kin_k25[] = {
    { "kimi_k25", "kimik25", NULL, NULL, PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_kimi_k25 = { KIMI, .kin = kin_k25, .parts = parts };
