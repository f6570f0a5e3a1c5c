/* SPDX-License-Identifier: Apache-2.0 */
/* Idefics 3 and SmolVLM: a picture is cut into tiles, row by row, and the whole, squeezed into a tile, stands behind them. */
#include "models/list.h"
#include "vision/family.h"

enum { LARGEST = 4096 }; /* no side is longer when it is scaled */

#define FAKE "<fake_token_around_image>"

static int read(vision_rules *r, const vision_source *s, err *e) {
    int image = r->side;
    r->merge = source_number(s, "projector.scale_factor", json_get(s->config, "scale_factor"), 4);
    r->side = source_number(s, "image_size", source_size(s, "max_image_size", "longest_edge"), image);
    r->edge = source_number(s, "preproc_image_size", source_size(s, "size", "longest_edge"), 4 * image);
    r->split = source_switch(s, "do_image_splitting", true);
    if (r->edge < 1) return err_set(e, ERR_FORMAT, "the longer side of pictures makes no sense");
    if (r->side != image) return err_set(e, ERR_UNSUPPORTED, "tiles of %d pixels for a tower of %d", r->side, image);
    return vision_check_squares(r, e);
}

static void low(vision_rules *r) { r->split = false; }

/* In the arithmetic of the reference: int() where it says int(). */
static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double ratio = (double)width / height;
    bool   wide = width >= height;
    int    longer = r->edge, other = wide ? (int)(longer / ratio) : (int)(longer * ratio);
    (void)e;
    other += other % 2;
    if (other < 1) other = 1;
    if (longer > LARGEST) { /* of the size just found */
        double again = wide ? (double)longer / other : (double)other / longer;
        longer = LARGEST;
        other = wide ? (int)(longer / again) : (int)(longer * again);
        if (other < 1) other = 1;
    }
    p->first_width = wide ? longer : other;
    p->first_height = wide ? other : longer;
    p->tile_width = p->tile_height = r->side;
    if (!r->split) {
        p->width = p->height = r->side;
        return 0;
    }
    ratio = (double)p->first_width / p->first_height;
    if (p->first_width >= p->first_height) {
        p->width = vision_up_to(p->first_width, r->side);
        p->height = vision_up_to((int)(p->width / ratio), r->side);
    } else {
        p->height = vision_up_to(p->first_height, r->side);
        p->width = vision_up_to((int)(p->height * ratio), r->side);
    }
    if (p->width > r->side || p->height > r->side) {
        p->rows = p->height / r->side;
        p->cols = p->width / r->side;
        p->n_tiles = p->rows * p->cols + 1;
    }
    return 0;
}

static int most_tiles(const vision_rules *r) {
    int edge = r->edge < LARGEST ? r->edge : LARGEST, side = r->split && r->side > 0 ? edge / r->side + 1 : 0;
    return side * side + 1;
}

static void write(str *out, const vision_plan *p, const char *row) {
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols; x++) {
            str_printf(out, FAKE "<row_%d_col_%d>", y + 1, x + 1);
            vision_put_rows(out, row, p->tile_rows);
        }
        str_push(out, '\n');
    }
    str_puts(out, p->rows ? "\n" FAKE "<global-img>" : FAKE "<global-img>");
    vision_put_rows(out, row, p->tile_rows);
    str_puts(out, FAKE);
}

static const vision_kin kin[] = {
    { "idefics3", "idefics3", NULL, NULL, PIXELS_LANCZOS, &vision_colours_half },
    { "smolvlm", "idefics3", NULL, NULL, PIXELS_LANCZOS, &vision_colours_half },
    { 0 },
};
const vision_family vision_idefics3 = { .kin = kin,
                                        .tower = &models_siglip,
                                        .projector = &models_projector_idefics3,
                                        .placeholder = "<image>",
                                        .row = "<image>",
                                        .read = read,
                                        .low = low,
                                        .plan = plan,
                                        .most_tiles = most_tiles,
                                        .write = write };
