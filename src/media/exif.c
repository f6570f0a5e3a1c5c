/* SPDX-License-Identifier: Apache-2.0 */
/* EXIF: a TIFF structure with, among much else, how the camera was held. */
#include "media/codec.h"

#include <string.h>

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY_BYTES = 12, HEAD_BYTES = 8 };

static unsigned u16(media_bytes b, size_t at, bool big) {
    return big ? (unsigned)(b.at[at] << 8 | b.at[at + 1]) : (unsigned)(b.at[at + 1] << 8 | b.at[at]);
}

static uint32_t u32(media_bytes b, size_t at, bool big) {
    uint32_t first = u16(b, at, big), second = u16(b, at + 2, big);
    return big ? first << 16 | second : second << 16 | first;
}

int media_exif_orientation(media_bytes b) {
    if (b.n < HEAD_BYTES) return 1;
    bool big = b.at[0] == 'M';
    if (memcmp(b.at, big ? "MM\0*" : "II*\0", 4) != 0) return 1;
    size_t at = u32(b, 4, big);
    if (at > b.n || b.n - at < 2) return 1;
    unsigned n = u16(b, at, big);
    at += 2;
    for (unsigned i = 0; i < n && b.n - at >= ENTRY_BYTES; i++, at += ENTRY_BYTES) {
        if (u16(b, at, big) != TAG_ORIENTATION) continue;
        unsigned value = u16(b, at + 8, big);
        return u16(b, at + 2, big) == TYPE_SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

int media_turn(pixels *p, int orientation, err *e) {
    bool   swaps = orientation >= 5;
    int    w = p->width, h = p->height;
    pixels out;
    if (orientation <= 1) return 0;
    int rc = pixels_init(&out, swaps ? h : w, swaps ? w : h, e);
    if (rc < 0) return rc;
    /* Where a pixel of the upright picture lies in the stored one. */
    for (int y = 0; y < out.height; y++) {
        for (int x = 0; x < out.width; x++) {
            int sx = swaps ? y : x, sy = swaps ? x : y;
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8) sx = w - 1 - sx;
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7) sy = h - 1 - sy;
            memcpy(out.rgb + ((size_t)y * (size_t)out.width + (size_t)x) * 3,
                   p->rgb + ((size_t)sy * (size_t)w + (size_t)sx) * 3, 3);
        }
    }
    pixels_deinit(p);
    *p = out;
    return 0;
}
