/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PaliGemma 1 and 2: pictures are stretched to one size, a row for each patch. All pictures stand at the beginning, in front of
 * <bos> and a question that ends with a line feed, and this prompt sees itself as a whole: pictures, question and all.
 */
#include "base/num.h"
#include "models/list.h"
#include "vision/family.h"

enum { USUAL_SIDE = 224, USUAL_PATCH = 16 }; /* of SigLIP's class; the smallest models do not say the first */

/* What the files say of pictures in three places must be the same. */
static int read(vision_rules *r, const vision_source *s, err *e) {
    if (!json_get(s->vision, "image_size")) r->side = USUAL_SIDE;
    if (!json_get(s->vision, "patch_size")) r->patch = USUAL_PATCH;
    r->merge = 1;
    int rc = vision_check_squares(r, e);
    if (rc < 0) return rc;
    int64_t all = (int64_t)(r->side / r->patch) * (r->side / r->patch);
    int     wide = source_number(s, NULL, source_size(s, "size", "width"), r->side);
    int     high = source_number(s, NULL, source_size(s, "size", "height"), r->side);
    int     rows = source_number(s, NULL, json_get(s->pre, "image_seq_length"), (int)num_min(all, INT32_MAX));
    if (wide != r->side || high != r->side)
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: size is %d x %d for a tower of %d", wide, high,
                       r->side);
    if (rows == all) return 0;
    return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: image_seq_length is %d for %lld patches", rows,
                   (long long)all);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    (void)width, (void)height, (void)e;
    vision_one_tile(p, r->side, r->side);
    return 0;
}

static const vision_kin kin[] = {
    { "paligemma", NULL, NULL, "siglip_vision_model", PIXELS_BICUBIC, &vision_colours_half },
    { 0 },
};
const vision_family vision_paligemma = { .kin = kin,
                                         .tower = &models_siglip,
                                         .projector = &models_projector_paligemma,
                                         .placeholder = "<image>",
                                         .row = "<image>",
                                         .prompt_whole = true,
                                         .read = read,
                                         .plan = plan };
