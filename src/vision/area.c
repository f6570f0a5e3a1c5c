/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures of any size between two numbers of pixels, whose sides are multiples of a square of patches: Qwen's towers
 * and those that prepare pictures in the same way.
 */
#include "vision/family.h"

#include <math.h>

enum { MOST_RATIO = 200 };

int vision_area(const vision_source *s, const char *key, const char *field, const char *edge, int dflt) {
    int64_t x = dflt, other;
    if (s->mmproj && meta_int(source_meta(s, edge), &other) && other > 0)
        x = other; /* Ollama's name; 0: it knew none */
    if (s->mmproj)
        (void)meta_int(source_meta(s, key), &x);
    else if (!json_int(json_get(s->pre, field), &x))
        (void)json_int(json_get(json_get(s->pre, "size"), edge), &x);
    return x > 0 && x <= INT32_MAX ? (int)x : -1;
}

int vision_area_check(vision_rules *r, err *e) {
    int64_t square = (int64_t)r->patch * r->merge, most = VISION_MOST_ROWS * square * square;
    if (r->patch < 1 || r->patch > 256 || r->merge < 1 || r->merge > VISION_MOST_MERGE || r->least < 1 ||
        r->most < square * square || r->least > r->most)
        return err_set(e, ERR_FORMAT, "pictures of %d to %d pixels, patches of %d, squares of %d do not fit each other",
                       r->least, r->most, r->patch, r->merge);
    if (r->most > most) r->most = (int)most;
    if (r->least > r->most) r->least = r->most;
    r->side = (int)square;
    return 0;
}

void vision_area_low(vision_rules *r) {
    int most = VISION_LOW_SIDE * VISION_LOW_SIDE;
    if (r->most > most) r->most = r->least > most ? r->least : most;
}

/* Python's round(), which takes the even one of two that are equally near. */
int vision_area_plan(vision_plan *p, const vision_rules *r, int width, int height, err *e) {
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
    vision_one_tile(p, (int)to_w, (int)to_h);
    return 0;
}

int64_t vision_area_patches(const vision_rules *r) { return r->most / (r->patch * r->patch); }
