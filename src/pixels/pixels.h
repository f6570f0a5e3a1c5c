/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A picture in memory: rows from the top, three bytes (red, green, blue) per pixel, no padding; and scaling it.
 *
 * Scaling follows Pillow to the bit, because models were trained on what it and its kin make of a picture: a pass along x,
 * then one along y, eight bits between them, the filter widened by the factor when a picture gets smaller, half-pixel
 * centres, weights in 22-bit fixed point. A pass that would change nothing is left out.
 */
#ifndef PIXELS_PIXELS_H
#define PIXELS_PIXELS_H

#include "base/err.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PIXELS_CHANNELS = 3 };

typedef struct pixels {
    int      width, height;
    uint8_t *rgb; /* [height][width][3]; owned */
    bool     low; /* little detail is enough */
} pixels;

typedef enum pixels_filter { PIXELS_BILINEAR, PIXELS_BICUBIC, PIXELS_LANCZOS } pixels_filter;

int  pixels_init(pixels *p, int width, int height, err *e); /* black */
void pixels_deinit(pixels *p);                              /* accepts one that is all zero */

static inline size_t pixels_bytes(const pixels *p) { return (size_t)p->width * (size_t)p->height * PIXELS_CHANNELS; }

/* A picture as bytes, for a process border: width and height (int32; a negative height: little detail is enough), then its
 * pixels. */
enum { PIXELS_HEAD_BYTES = 8 };
/* A borrowed picture in such bytes; `out` is not to be deinitialised. */
int pixels_view(pixels *out, const void *data, size_t bytes, err *e);

/* Both make a new picture; `from` stays. workers: they share the rows; NULL: the caller does it alone. */
int pixels_resize(pixels *out, const pixels *from, int width, int height, pixels_filter filter, pool *workers, err *e);
/* The part that begins at (x, y); what lies outside of `from` is black. */
int pixels_crop(pixels *out, const pixels *from, int x, int y, int width, int height, err *e);

#endif
