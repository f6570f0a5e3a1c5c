/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and pieces, in the arithmetic of the reference: doubles, and int() where it says int(). */
#include "vision/internal.h"

#include <math.h>
#include <stdlib.h>

enum { LARGEST = 4096 };   /* IDEFICS3: no side is longer when it is scaled */
enum { MOST_RATIO = 200 }; /* QWEN */

static int up_to(int x, int step) { return (x + step - 1) / step * step; }

static void plan_tiles(vision_plan *p, const vision_rules *r, int width, int height) {
    double ratio = (double)width / height;
    bool   wide = width >= height;
    int    longer = r->edge, other = wide ? (int)(longer / ratio) : (int)(longer * ratio);
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
        return;
    }
    ratio = (double)p->first_width / p->first_height;
    if (p->first_width >= p->first_height) {
        p->width = up_to(p->first_width, r->side);
        p->height = up_to((int)(p->width / ratio), r->side);
    } else {
        p->height = up_to(p->first_height, r->side);
        p->width = up_to((int)(p->height * ratio), r->side);
    }
    if (p->width > r->side || p->height > r->side) {
        p->rows = p->height / r->side;
        p->cols = p->width / r->side;
        p->n_tiles = p->rows * p->cols + 1;
    }
}

/* Not longer than the edge, then up to whole squares of patches. */
static void plan_fit(vision_plan *p, const vision_rules *r, int width, int height) {
    double over = fmax((double)height / r->edge, (double)width / r->edge);
    if (over > 1) {
        height = (int)floor(height / over);
        width = (int)floor(width / over);
    }
    p->width = p->tile_width = up_to(width > 0 ? width : 1, r->patch * r->merge);
    p->height = p->tile_height = up_to(height > 0 ? height : 1, r->patch * r->merge);
}

/* Sides that are multiples of a square, and between them as many pixels as the model was made for: Python's round(), which
 * takes the even one of two that are equally near. */
static int plan_between(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    double f = r->patch * r->merge, w = width, h = height, ratio = fmax(w, h) / fmin(w, h);
    if (ratio > MOST_RATIO)
        return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow: one side is more than %d times the other",
                       width, height, MOST_RATIO);
    double to_w = nearbyint(w / f) * f, to_h = nearbyint(h / f) * f;
    if (to_w * to_h > r->most) {
        double beta = sqrt(h * w / r->most);
        to_h = fmax(f, floor(h / beta / f) * f);
        to_w = fmax(f, floor(w / beta / f) * f);
    } else if (to_w * to_h < r->least) {
        double beta = sqrt(r->least / (h * w));
        to_h = ceil(h * beta / f) * f;
        to_w = ceil(w * beta / f) * f;
    }
    p->width = p->tile_width = (int)to_w;
    p->height = p->tile_height = (int)to_h;
    return 0;
}

/* As large as the budget of rows allows, stretched by as little as whole squares need. */
static int plan_budget(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
    int    f = r->patch * r->merge;
    double patches = (double)r->most * r->merge * r->merge, area = (double)height * width;
    double factor = sqrt(patches * r->patch * r->patch / area);
    int    to_h = (int)floor(factor * height / f) * f, to_w = (int)floor(factor * width / f) * f;
    if (to_h == 0 && to_w == 0)
        return err_set(e, ERR_LIMIT, "a picture of %d x %d has no room in %d rows", width, height, r->most);
    int longest = r->most * f;
    if (to_h == 0) {
        to_h = f;
        to_w = (int)fmin(floor((double)width / height) * f, longest);
    } else if (to_w == 0) {
        to_w = f;
        to_h = (int)fmin(floor((double)height / width) * f, longest);
    }
    p->width = p->tile_width = to_w;
    p->height = p->tile_height = to_h;
    return 0;
}

int plan_most_patches(const vision_rules *r) {
    int across = (r->kind == VISION_LLAVA ? r->crop : r->side) / r->patch;
    switch (r->kind) {
    case VISION_QWEN2:
    case VISION_QWEN2_5:
    case VISION_QWEN3: return r->most / (r->patch * r->patch);
    case VISION_GEMMA4: return r->most * r->merge * r->merge;
    default: return across * across;
    }
}

/* What of the rules changes where little detail is enough. */
void plan_detail(vision_rules *r, bool low) {
    enum { LOW_SIDE = 512, LOW_ROWS = 70 }; /* OpenAI's size; the smallest of Gemma 4's budgets */
    if (!low) return;
    switch (r->kind) {
    case VISION_GEMMA3:
    case VISION_LLAVA: break;
    case VISION_IDEFICS3: r->split = false; break;
    case VISION_PIXTRAL: r->edge = r->edge < LOW_SIDE ? r->edge : LOW_SIDE; break;
    case VISION_QWEN2:
    case VISION_QWEN2_5:
    case VISION_QWEN3:
        if (r->most > LOW_SIDE * LOW_SIDE) r->most = r->least > LOW_SIDE * LOW_SIDE ? r->least : LOW_SIDE * LOW_SIDE;
        break;
    case VISION_GEMMA4: r->most = r->most < LOW_ROWS ? r->most : LOW_ROWS; break;
    }
}

int plan_make(vision_plan *p, const vision_rules *rules, const pixels *picture, err *e) {
    vision_rules        own = *rules;
    const vision_rules *r = &own;
    int                 rc = 0, width = picture->width, height = picture->height;
    plan_detail(&own, picture->low);
    *p = (vision_plan){ .n_tiles = 1 };
    if (width <= 0 || height <= 0) return err_set(e, ERR_ARG, "a picture of %d x %d pixels", width, height);
    switch (r->kind) {
    case VISION_GEMMA3: p->width = p->height = p->tile_width = p->tile_height = r->side; break;
    case VISION_LLAVA: {
        int64_t shorter = width < height ? width : height, longer = width < height ? height : width;
        int64_t other = r->side * longer / shorter;
        if (other > INT32_MAX / 65536)
            return err_set(e, ERR_LIMIT, "a picture of %d x %d is too narrow", width, height);
        p->width = width < height ? r->side : (int)other;
        p->height = width < height ? (int)other : r->side;
        p->tile_width = p->tile_height = r->crop;
        break;
    }
    case VISION_IDEFICS3: plan_tiles(p, r, width, height); break;
    case VISION_PIXTRAL: plan_fit(p, r, width, height); break;
    case VISION_QWEN2:
    case VISION_QWEN2_5:
    case VISION_QWEN3: rc = plan_between(p, r, width, height, e); break;
    case VISION_GEMMA4: rc = plan_budget(p, r, width, height, e); break;
    }
    int square = r->patch * r->merge;
    p->across = p->tile_width / square;
    p->tile_rows = p->across * (p->tile_height / square);
    return rc;
}

static int cut_tiles(const vision *v, const vision_plan *p, const pixels *all, pixels *tiles, err *e) {
    int rc = 0, n = 0;
    for (int y = 0; y < p->rows; y++) {
        for (int x = 0; x < p->cols && rc == 0; x++, n++)
            rc = pixels_crop(&tiles[n], all, x * p->tile_width, y * p->tile_height, p->tile_width, p->tile_height, e);
    }
    return rc < 0 ? rc : pixels_resize(&tiles[n], all, p->tile_width, p->tile_height, v->rules.filter, v->workers, e);
}

int vision_cut(const vision *v, const pixels *picture, pixels **tiles, int *n, err *e) {
    const vision_rules *r = &v->rules;
    vision_plan         p;
    pixels              first = { 0 }, all = { 0 };
    int                 rc = plan_make(&p, r, picture, e);
    *tiles = NULL;
    *n = 0;
    if (rc < 0) return rc;
    if (!(*tiles = calloc((size_t)p.n_tiles, sizeof **tiles))) return err_set_nomem(e);
    *n = p.n_tiles;
    if (p.first_width) {
        rc = pixels_resize(&first, picture, p.first_width, p.first_height, r->filter, v->workers, e);
        picture = &first;
    }
    if (rc == 0) rc = pixels_resize(&all, picture, p.width, p.height, r->filter, v->workers, e);
    if (rc == 0 && p.n_tiles > 1)
        rc = cut_tiles(v, &p, &all, *tiles, e);
    else if (rc == 0)
        rc = pixels_crop(*tiles, &all, (all.width - p.tile_width) / 2, (all.height - p.tile_height) / 2, p.tile_width,
                         p.tile_height, e);
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
