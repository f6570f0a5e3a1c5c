/* SPDX-License-Identifier: Apache-2.0 */
#include "pixels/pixels.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

int pixels_init(pixels *p, int width, int height, err *e) {
    size_t bytes;
    *p = (pixels){ 0 };
    if (width <= 0 || height <= 0 || !num_mul_size((size_t)width, (size_t)height, &bytes) ||
        !num_mul_size(bytes, PIXELS_CHANNELS, &bytes))
        return err_set(e, ERR_ARG, "a picture cannot have %d x %d pixels", width, height);
    if (!(p->rgb = calloc(bytes, 1))) return err_set_nomem(e);
    p->width = width;
    p->height = height;
    return 0;
}

void pixels_deinit(pixels *p) {
    free(p->rgb);
    *p = (pixels){ 0 };
}

int pixels_view(pixels *out, const void *data, size_t bytes, err *e) {
    int32_t size[2];
    *out = (pixels){ 0 };
    if (bytes < PIXELS_HEAD_BYTES) return err_set(e, ERR_FORMAT, "a picture of %zu bytes", bytes);
    memcpy(size, data, sizeof size);
    bool low = size[1] < 0 && size[1] > INT32_MIN;
    if (low) size[1] = -size[1];
    if (size[0] <= 0 || size[1] <= 0 ||
        (uint64_t)size[0] * (uint64_t)size[1] != (bytes - PIXELS_HEAD_BYTES) / PIXELS_CHANNELS ||
        (bytes - PIXELS_HEAD_BYTES) % PIXELS_CHANNELS)
        return err_set(e, ERR_FORMAT, "a picture of %d x %d pixels in %zu bytes", size[0], size[1], bytes);
    *out = (pixels){ size[0], size[1], (uint8_t *)(uintptr_t)data + PIXELS_HEAD_BYTES, low };
    return 0;
}

int pixels_crop(pixels *out, const pixels *from, int x, int y, int width, int height, err *e) {
    int rc = pixels_init(out, width, height, e);
    if (rc < 0) return rc;
    int64_t left = num_max(0, x), right = num_min(from->width, (int64_t)x + width);
    for (int row = 0; row < height && left < right; row++) {
        int64_t source = (int64_t)y + row;
        if (source < 0 || source >= from->height) continue;
        memcpy(out->rgb + ((size_t)row * (size_t)width + (size_t)(left - x)) * PIXELS_CHANNELS,
               from->rgb + ((size_t)source * (size_t)from->width + (size_t)left) * PIXELS_CHANNELS,
               (size_t)(right - left) * PIXELS_CHANNELS);
    }
    return 0;
}
