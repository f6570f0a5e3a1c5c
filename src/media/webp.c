/* SPDX-License-Identifier: Apache-2.0 */
/* WebP through libwebp; the container's chunks through its demuxer. */
#include "media/codec.h"

#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

static int orientation_of(const WebPDemuxer *d) {
    WebPChunkIterator it;
    int               result = 1;
    if (WebPDemuxGetChunk(d, "EXIF", 1, &it)) {
        media_bytes b = { it.chunk.bytes, it.chunk.size };
        if (b.n > 6 && memcmp(b.at, "Exif\0\0", 6) == 0) b = (media_bytes){ b.at + 6, b.n - 6 };
        result = media_exif_orientation(b);
        WebPDemuxReleaseChunkIterator(&it);
    }
    return result;
}

/* The first frame where it belongs on a white canvas. */
static int decode_frame(pixels *out, const WebPIterator *f, const media_limits *l, err *e) {
    WebPBitstreamFeatures what;
    if (WebPGetFeatures(f->fragment.bytes, f->fragment.size, &what) != VP8_STATUS_OK)
        return err_set(e, ERR_FORMAT, "the WebP picture cannot be read");
    int rc = media_check_size("WebP", what.width, what.height, l, e);
    if (rc < 0) return rc;
    if (f->x_offset < 0 || f->y_offset < 0 || what.width > out->width - f->x_offset ||
        what.height > out->height - f->y_offset)
        return err_set(e, ERR_FORMAT, "the WebP picture's first frame lies outside of it");
    size_t   n = (size_t)what.width * (size_t)what.height;
    uint8_t *rgba = malloc(n * 4);
    if (!rgba) return err_set_nomem(e);
    if (!WebPDecodeRGBAInto(f->fragment.bytes, f->fragment.size, rgba, n * 4, what.width * 4))
        rc = err_set(e, ERR_FORMAT, "the WebP picture is damaged or cut off");
    for (int y = 0; rc == 0 && y < what.height; y++) {
        size_t at = (size_t)(y + f->y_offset) * (size_t)out->width + (size_t)f->x_offset;
        media_over_white(out->rgb + at * 3, rgba + (size_t)y * (size_t)what.width * 4, (size_t)what.width);
    }
    free(rgba);
    return rc;
}

int media_webp(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e) {
    WebPData     data = { in.at, in.n };
    WebPIterator f;
    WebPDemuxer *d = WebPDemux(&data);
    if (!d) return err_set(e, ERR_FORMAT, "the WebP picture is damaged or cut off");
    int64_t w = WebPDemuxGetI(d, WEBP_FF_CANVAS_WIDTH), h = WebPDemuxGetI(d, WEBP_FF_CANVAS_HEIGHT);
    int     rc = media_check_size("WebP", w, h, l, e);
    if (rc == 0) rc = pixels_init(out, (int)w, (int)h, e);
    if (rc == 0) {
        memset(out->rgb, 255, pixels_bytes(out));
        if (WebPDemuxGetFrame(d, 1, &f)) {
            rc = decode_frame(out, &f, l, e);
            WebPDemuxReleaseIterator(&f);
        } else {
            rc = err_set(e, ERR_FORMAT, "the WebP picture has no frame");
        }
        *orientation = orientation_of(d);
    }
    WebPDemuxDelete(d);
    return rc;
}
