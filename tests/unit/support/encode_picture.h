/* SPDX-License-Identifier: Apache-2.0 */
/* Files for the tests of decoders, made by the encoders of the same libraries from pixels that the test knows. */
#ifndef UNIT_SUPPORT_ENCODE_PICTURE_H
#define UNIT_SUPPORT_ENCODE_PICTURE_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct png_form {
    int            color_type, bits;
    bool           interlaced;
    int            orientation;   /* 0: no EXIF */
    const uint8_t *palette;       /* [n_palette][3] */
    const uint8_t *palette_alpha; /* NULL: none */
    int            n_palette;
    int            claim_width, claim_height; /* 0: the real ones */
} png_form;

/* Rows as libpng takes them. */
void encode_png(str *out, int width, int height, const uint8_t *rows, const png_form *f);
void encode_jpeg(str *out, int width, int height, const uint8_t *rgb, int quality, bool progressive, int orientation);
void encode_webp(str *out, int width, int height, const uint8_t *rgba); /* lossless */
/* A frame of w x h at (x, y) on a canvas; transparent: an index or -1. */
typedef struct gif_form {
    int  canvas_width, canvas_height, x, y, w, h, transparent;
    bool interlaced;
} gif_form;
void encode_gif(str *out, const gif_form *f, const uint8_t *indexes, const uint8_t palette[4][3], int frames);

#endif
