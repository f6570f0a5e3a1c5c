/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HunYuan VL and HunyuanOCR: pictures of any size between two numbers of pixels. A learned row ends each line of a picture,
 * others stand in front of it and behind it; positions have four axes: the place in the prompt, column, row, and which picture
 * it is. The template prints what stands around the rows. Pictures are scaled with bicubics, whatever the files say.
 */
#include "models/list.h"
#include "vision/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ROW "<｜hy_place▁holder▁no▁102｜>"

enum { OUTSIDE = 2 }; /* rows in front of the lines and behind them */

static int read(vision_rules *r, const vision_source *s, err *e) {
    if (r->patch < 0) r->patch = 16;
    r->merge = source_number(s, "spatial_merge_size", json_get(s->vision, "spatial_merge_size"), 2);
    r->inner = r->merge;
    r->filter = PIXELS_BICUBIC;
    r->least = vision_area(s, "image_min_pixels", "min_pixels", "shortest_edge", 512 * 512);
    r->most = vision_area(s, "image_max_pixels", "max_pixels", "longest_edge", 2048 * 2048);
    return vision_area_check(r, e);
}

static int plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int rc = vision_area_plan(p, r, width, height, e), square = r->patch * r->merge;
    if (rc == 0) p->n_rows = p->height / square * (p->width / square + 1) + OUTSIDE;
    return rc;
}

/* The end of a line is the same in all pictures. */
static int opened(vision *v, err *e) {
    const nn_lines_top *top = v->projector.model->net.top;
    if (!(v->fixed = malloc((size_t)v->projector.width_out * sizeof *v->fixed))) return err_set_nomem(e);
    stage_step step = { .n = 1, .in = top->newline->data, .out = v->fixed };
    return stage_run(&v->projector, &step, e);
}

/* A row that goes through the projector's norm alone. */
static void put_normed(float *out, const nn_vec *row, const nn_lines_top *top, size_t width) {
    double sum = 0;
    for (size_t k = 0; k < width; k++) sum += (double)row->data[k] * (double)row->data[k];
    float scale = (float)(1 / sqrt(sum / (double)width + (double)top->eps));
    for (size_t k = 0; k < width; k++) out[k] = row->data[k] * scale * top->norm->data[k];
}

static void arrange(float *out, const vision *v, const vision_plan *p, const float *rows) {
    const nn_lines_top *top = v->projector.model->net.top;
    size_t              width = (size_t)v->projector.width_out, line = (size_t)p->across * width;
    put_normed(out, top->begin, top, width);
    out += width;
    for (int y = 0; y < p->tile_rows / p->across; y++, rows += line) {
        memcpy(out, rows, line * sizeof *out);
        memcpy(out + line, v->fixed, width * sizeof *out);
        out += line + width;
    }
    put_normed(out, top->end, top, width);
}

static const vision_kin kin[] = {
    { "hunyuan_vl", "hunyuanvl", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { "hunyuan_vl", "hunyuanocr", NULL, NULL, PIXELS_BICUBIC, &vision_colours_clip },
    { 0 },
};
const vision_family vision_hunyuan = { .kin = kin,
                                       .tower = &models_hunyuan_tower,
                                       .middle = &models_hunyuan_merger,
                                       .projector = &models_projector_hunyuan,
                                       .placeholder = ROW,
                                       .row = ROW,
                                       .grid = true,
                                       .counted = true,
                                       .read = read,
                                       .low = vision_area_low,
                                       .plan = plan,
                                       .most_patches = vision_area_patches,
                                       .arrange = arrange,
                                       .opened = opened };
