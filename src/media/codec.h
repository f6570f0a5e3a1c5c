/* SPDX-License-Identifier: Apache-2.0 */
/* What the formats share. */
#ifndef MEDIA_CODEC_H
#define MEDIA_CODEC_H

#include "media/media.h"
#include "media/sound.h"

#include <stdbool.h>

typedef struct media_bytes {
    const uint8_t *at;
    size_t         n;
} media_bytes;

/* Each decodes what its signature announced. *orientation: EXIF's, 1 where the file has none. */
int media_jpeg(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e);
int media_png(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e);
int media_webp(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e);
int media_gif(pixels *out, media_bytes in, const media_limits *l, err *e);

int  media_wav(sound *out, media_bytes in, int max_seconds, err *e);
bool media_is_mp3(media_bytes in);
int  media_mp3(sound *out, media_bytes in, int max_seconds, err *e);
/* Samples of some rate as a sound; `from` may be empty afterwards. */
int media_sound_settle(sound *out, sound *from, int rate, err *e);

int media_check_size(const char *format, int64_t width, int64_t height, const media_limits *l, err *e);

/* The orientation in a TIFF structure, 1 to 8; 1 where it has none or makes no sense. */
int media_exif_orientation(media_bytes tiff);
/* Turns and mirrors as an orientation says. */
int media_turn(pixels *p, int orientation, err *e);

bool media_begins(media_bytes in, size_t at, const char *text, size_t n);

/* RGBA over white; n pixels. */
void media_over_white(uint8_t *rgb, const uint8_t *rgba, size_t n);

#endif
