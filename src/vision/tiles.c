/* SPDX-License-Identifier: Apache-2.0 */
/* Grids of tiles, in the arithmetic of the reference's processors: doubles, ties as they break them. */
#include "vision/family.h"

#include <float.h>
#include <math.h>

void vision_put_grid(vision_plan *p, const vision_rules *r, int cols, int rows) {
    p->tile_width = p->tile_height = r->side;
    p->width = cols * r->side;
    p->height = rows * r->side;
    if (cols * rows == 1) return;
    p->rows = rows;
    p->cols = cols;
    p->n_tiles = rows * cols + 1;
    p->whole_anew = true;
}

/* Grids by their number of tiles, those of a number by how many stand side by side. Of two that are equally unlike the picture
 * the larger one, if the picture has more than half of its pixels. */
void vision_grid_alike(vision_plan *p, const vision_rules *r, int width, int height) {
    double ratio = (double)width / height, best = DBL_MAX, area = (double)width * height;
    int    cols = 1, rows = 1;
    for (int n = r->least; n <= r->most; n++) {
        for (int across = 1; across <= n; across++) {
            if (n % across) continue;
            int    down = n / across;
            double off = fabs(ratio - (double)across / down);
            bool   larger = off == best && area > 0.5 * r->side * r->side * n;
            if (off >= best && !larger) continue;
            best = off;
            cols = across;
            rows = down;
        }
    }
    vision_put_grid(p, r, cols, rows);
}

/* Where all grids are smaller than the picture, the one that makes it the least smaller; the first of equals. */
void vision_grid_near(vision_plan *p, const vision_rules *r, int width, int height) {
    double best = 0;
    int    cols = 1, rows = 1;
    for (int n = 1; n <= r->most; n++) {
        for (int across = 1; across <= n; across++) {
            if (n % across) continue;
            int    down = n / across;
            double scale = fmin((double)(across * r->side) / width, (double)(down * r->side) / height);
            if (best >= 1 ? scale < 1 || scale >= best : scale < 1 && scale <= best) continue;
            best = scale;
            cols = across;
            rows = down;
        }
    }
    vision_put_grid(p, r, cols, rows);
}

int vision_grid_most(const vision_rules *r) { return r->split && r->most > 1 ? r->most + 1 : 1; }
