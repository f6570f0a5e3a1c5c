/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and pieces. */
#include "vision/family.h"

#include <stdlib.h>
#include <string.h>

int vision_up_to(int x, int step) { return (x + step - 1) / step * step; }

void vision_one_tile(vision_plan *p, int width, int height) {
    p->width = p->tile_width = width;
    p->height = p->tile_height = height;
}

int64_t plan_most_patches(const vision_rules *r) {
    const vision_family *f = vision_families[r->kind];
    int64_t              across = r->side / r->patch;
    return f->most_patches ? f->most_patches(r) : across * across;
}

void plan_detail(vision_rules *r, bool low) {
    const vision_family *f = vision_families[r->kind];
    if (low && f->low) f->low(r);
}

int plan_make(vision_plan *p, const vision_rules *rules, const pixels *picture, err *e) {
    vision_rules own = *rules;
    int          width = picture->width, height = picture->height;
    plan_detail(&own, picture->low);
    *p = (vision_plan){ .n_tiles = 1, .marked = own.marked };
    if (width <= 0 || height <= 0) return err_set(e, ERR_ARG, "a picture of %d x %d pixels", width, height);
    int rc = vision_families[own.kind]->plan(p, &own, width, height, e);
    int square = own.patch * own.merge;
    p->across = p->tile_width / square;
    p->tile_rows = p->whole_rows = p->across * (p->tile_height / square);
    if (own.queries)
        p->across = p->tile_rows = p->whole_rows = own.queries;
    else if (p->whole_width)
        p->whole_rows = p->whole_width / square * (p->whole_height / square);
    if (!p->n_rows)
        p->n_rows = p->n_tiles > p->rows * p->cols ? p->rows * p->cols * p->tile_rows + p->whole_rows
                                                   : p->n_tiles * p->tile_rows;
    int64_t most = plan_most_patches(rules) * own.patch * own.patch;
    if (rc == 0 && ((int64_t)p->tile_width * p->tile_height > most || (int64_t)p->whole_width * p->whole_height > most))
        return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
    return rc;
}

/* The tiles of a picture, and the whole where there is one. picture: what was scaled to `all`. */
static int cut_tiles(const vision *v, const vision_plan *p, const pixels *picture, const pixels *all, pixels *tiles,
                     err *e) {
    int n = p->whole_first, cells = p->rows * p->cols, rc = 0, left = 0, top = 0;
    int width = p->whole_width ? p->whole_width : p->tile_width;
    int height = p->whole_width ? p->whole_height : p->tile_height;
    if (p->canvas_width) { /* it begins in black */
        left = (p->canvas_width - all->width) / 2;
        top = (p->canvas_height - all->height) / 2;
    }
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols && rc == 0; x++, n++)
            rc = pixels_crop(&tiles[n], all, x * p->tile_width - left, y * p->tile_height - top, p->tile_width,
                             p->tile_height, e);
    }
    if (rc < 0 || p->n_tiles == cells) return rc;
    return pixels_resize(&tiles[p->whole_first ? 0 : cells], p->whole_anew || p->whole_width ? picture : all, width,
                         height, v->rules.filter, v->workers, e);
}

/* The middle of what was scaled, or all of it in a corner. */
static int cut_one(const vision_plan *p, const pixels *all, pixels *tile, err *e) {
    int x = p->padded ? 0 : (all->width - p->tile_width) / 2, y = p->padded ? 0 : (all->height - p->tile_height) / 2;
    return pixels_crop(tile, all, x, y, p->tile_width, p->tile_height, e);
}

/* In the middle of a canvas of one colour. */
static int put_on_canvas(pixels *out, const pixels *all, const vision_plan *p, int width, int height, err *e) {
    int    rc = pixels_init(out, width, height, e), left = (width - all->width) / 2, top = (height - all->height) / 2;
    size_t line = (size_t)all->width * PIXELS_CHANNELS;
    if (rc < 0) return rc;
    for (size_t i = 0; i < pixels_bytes(out); i++) out->rgb[i] = p->canvas[i % PIXELS_CHANNELS];
    for (int y = 0; y < all->height; y++)
        memcpy(out->rgb + ((size_t)(top + y) * (size_t)out->width + (size_t)left) * PIXELS_CHANNELS,
               all->rgb + (size_t)y * line, line);
    return 0;
}

int vision_cut(const vision *v, const pixels *picture, pixels **tiles, int *n, err *e) {
    const vision_rules *r = &v->rules;
    const pixels       *from = picture;
    vision_plan         p;
    pixels              first = { 0 }, all = { 0 };
    int                 longer = picture->width > picture->height ? picture->width : picture->height;
    int                 rc = plan_make(&p, r, picture, e);
    *tiles = NULL;
    *n = 0;
    if (rc < 0) return rc;
    if (!(*tiles = calloc((size_t)p.n_tiles, sizeof **tiles))) return err_set_nomem(e);
    *n = p.n_tiles;
    if (p.squared && picture->width != picture->height) {
        rc = put_on_canvas(&first, picture, &p, longer, longer, e);
        from = &first;
    } else if (p.first_width) {
        rc = pixels_resize(&first, picture, p.first_width, p.first_height, r->filter, v->workers, e);
        from = &first;
    }
    if (rc == 0) rc = pixels_resize(&all, from, p.width, p.height, r->filter, v->workers, e);
    if (rc == 0 && p.n_tiles > 1)
        rc = cut_tiles(v, &p, picture, &all, *tiles, e);
    else if (rc == 0)
        rc = p.canvas_width ? put_on_canvas(*tiles, &all, &p, p.tile_width, p.tile_height, e)
                            : cut_one(&p, &all, *tiles, e);
    pixels_deinit(&first);
    pixels_deinit(&all);
    if (rc == 0) return 0;
    vision_cut_free(*tiles, *n);
    *tiles = NULL;
    return rc;
}

void vision_cut_free(pixels *tiles, int n) {
    for (int i = 0; tiles && i < n; i++) pixels_deinit(&tiles[i]);
    free(tiles);
}
