/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3: pictures are stretched to one size, and a row is the mean of a square of patches. */
#include "models/list.h"
#include "vision/family.h"

/* Patches on a side of the square that makes one of `rows` rows. */
static int merge_for(int across, int64_t rows) {
    int side = 1;
    while ((int64_t)(side + 1) * (side + 1) <= rows && side < across) side++;
    return across / side;
}

static int read(vision_rules *r, const vision_source *s, err *e) {
    int tokens = source_number(s, NULL, json_get(s->config, "mm_tokens_per_image"), 256);
    int across = r->patch > 0 ? r->side / r->patch : -1;
    if (source_inside(s)) (void)source_outer_number(s, "gemma3.mm.tokens_per_image", &tokens);
    r->merge = across > 0 ? merge_for(across, tokens) : -1;
    if (s->mmproj && !source_inside(s)) r->merge = source_number(s, "projector.scale_factor", NULL, 4);
    r->whole = true;
    if (source_switch(s, "do_pan_and_scan", false))
        return err_set(e, ERR_UNSUPPORTED, "preprocessor_config.json: do_pan_and_scan is not supported");
    return vision_check_squares(r, e);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    (void)width, (void)height, (void)e;
    vision_one_tile(p, r->side, r->side);
    return 0;
}

static void write(str *out, const vision_plan *p, const char *row) {
    str_puts(out, "\n\n<start_of_image>");
    vision_put_rows(out, row, p->tile_rows);
    str_puts(out, "<end_of_image>\n\n");
}

static void parts(vision_parts *p, const vision_rules *r, const model_file *model) {
    (void)model;
    vision_set(p, "pooled", r->merge * r->merge, false);
}

static const vision_kin kin[] = {
    { "gemma3", "gemma3", "gemma3", NULL, PIXELS_BILINEAR, &vision_colours_half },
    { 0 },
};
const vision_family vision_gemma3 = { .kin = kin,
                                      .tower = &models_siglip,
                                      .projector = &models_projector_gemma3,
                                      .placeholder = "<start_of_image>",
                                      .row = "<image_soft_token>",
                                      .read = read,
                                      .plan = plan,
                                      .write = write,
                                      .parts = parts };
