/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures from files: JPEG, PNG, WebP and GIF, by what their bytes say.
 *
 * Upright as their EXIF orientation says, the first frame of animations, alpha over white, palettes and grayscale as RGB,
 * the upper eight of sixteen bits; colour profiles are ignored. What is cut off is refused. Size limits are checked in the
 * header, before memory is taken for pixels.
 *
 * The libraries behind this are large and the files come from anywhere: this is meant to be called in a process that has
 * nothing to lose (host/decoder). It is a room of its own so that nothing else links those libraries.
 */
#ifndef MEDIA_MEDIA_H
#define MEDIA_MEDIA_H

#include "base/err.h"
#include "pixels/pixels.h"

#include <stddef.h>

typedef struct media_limits {
    int     max_side;   /* pixels */
    int64_t max_pixels; /* width times height */
} media_limits;

/* 16384 a side, 40 million in all. */
extern const media_limits media_default_limits;

/* Whether a picture of this size may be read. */
int media_check(int64_t width, int64_t height, const media_limits *l, err *e);
int media_decode(pixels *out, const void *data, size_t bytes, const media_limits *l, err *e);

#endif
