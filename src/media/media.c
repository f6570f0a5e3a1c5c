/* SPDX-License-Identifier: Apache-2.0 */
#include "media/codec.h"

#include <string.h>

const media_limits media_default_limits = { .max_side = 16384, .max_pixels = 40000000 };

int media_check_size(const char *format, int64_t width, int64_t height, const media_limits *l, err *e) {
    if (width <= 0 || height <= 0)
        return err_set(e, ERR_FORMAT, "the %s picture has %lld x %lld pixels", format, (long long)width,
                       (long long)height);
    if (width > l->max_side || height > l->max_side || width > l->max_pixels / height)
        return err_set(e, ERR_LIMIT,
                       "the %s picture has %lld x %lld pixels; at most %d on a side and %lld in all are read", format,
                       (long long)width, (long long)height, l->max_side, (long long)l->max_pixels);
    return 0;
}

int media_check(int64_t width, int64_t height, const media_limits *l, err *e) {
    return media_check_size("decoded", width, height, l, e);
}

void media_over_white(uint8_t *rgb, const uint8_t *rgba, size_t n) {
    for (size_t i = 0; i < n; i++, rgb += 3, rgba += 4) {
        unsigned a = rgba[3];
        for (int c = 0; c < 3; c++) rgb[c] = (uint8_t)((rgba[c] * a + 255 * (255 - a) + 127) / 255);
    }
}

bool media_begins(media_bytes in, size_t at, const char *text, size_t n) {
    return in.n >= at + n && memcmp(in.at + at, text, n) == 0;
}

int media_decode(pixels *out, const void *data, size_t bytes, const media_limits *l, err *e) {
    media_bytes in = { data, bytes };
    int         orientation = 1, rc;
    *out = (pixels){ 0 };
    if (media_begins(in, 0, "\xff\xd8\xff", 3))
        rc = media_jpeg(out, in, l, &orientation, e);
    else if (media_begins(in, 0, "\x89PNG\r\n\x1a\n", 8))
        rc = media_png(out, in, l, &orientation, e);
    else if (media_begins(in, 0, "RIFF", 4) && media_begins(in, 8, "WEBP", 4))
        rc = media_webp(out, in, l, &orientation, e);
    else if (media_begins(in, 0, "GIF87a", 6) || media_begins(in, 0, "GIF89a", 6))
        rc = media_gif(out, in, l, e);
    else
        rc = err_set(e, ERR_FORMAT, "this is not a picture that can be read: JPEG, PNG, WebP and GIF can");
    if (rc == 0) rc = media_turn(out, orientation, e);
    if (rc < 0) pixels_deinit(out);
    return rc;
}
