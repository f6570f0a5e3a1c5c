/* SPDX-License-Identifier: Apache-2.0 */
/* GIF through giflib: the records up to the first frame, no further. */
#include "media/codec.h"

#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>

enum { WHITE = 255, MAX_EXTENSIONS = 10000 };

typedef struct job {
    GifFileType *gif;
    media_bytes  left;
    pixels      *out;
    int          transparent; /* -1: no colour is */
    uint8_t     *line;
} job;

static int take(GifFileType *g, GifByteType *to, int n) {
    job   *x = g->UserData;
    size_t k = n > 0 ? (size_t)n : 0;
    if (k > x->left.n) k = x->left.n;
    memcpy(to, x->left.at, k);
    x->left.at += k;
    x->left.n -= k;
    return (int)k;
}

static int broken(const job *x, err *e) {
    const char *why = GifErrorString(x->gif->Error);
    return err_set(e, ERR_FORMAT, "the GIF picture cannot be read: %s", why ? why : "it is damaged or cut off");
}

static int skip_extension(job *x, err *e) {
    GifByteType         *block;
    GraphicsControlBlock control;
    int                  code;
    if (DGifGetExtension(x->gif, &code, &block) == GIF_ERROR) return broken(x, e);
    if (code == GRAPHICS_EXT_FUNC_CODE && block && DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK)
        x->transparent = control.TransparentColor;
    while (block) {
        if (DGifGetExtensionNext(x->gif, &block) == GIF_ERROR) return broken(x, e);
    }
    return 0;
}

/* What lies around the frame: nothing where the file knows transparency, else its background. */
static void paint_background(job *x) {
    const ColorMapObject *map = x->gif->SColorMap;
    int                   i = x->gif->SBackGroundColor;
    GifColorType          c = { WHITE, WHITE, WHITE };
    if (x->transparent < 0 && map && i >= 0 && i < map->ColorCount) c = map->Colors[i];
    for (size_t k = 0; k < (size_t)x->out->width * (size_t)x->out->height; k++) {
        x->out->rgb[k * 3] = c.Red;
        x->out->rgb[k * 3 + 1] = c.Green;
        x->out->rgb[k * 3 + 2] = c.Blue;
    }
}

static void put_line(job *x, const ColorMapObject *map, int y, int from_x, int n) {
    for (int i = 0; i < n; i++) {
        int at_x = from_x + i, c = x->line[i];
        if (at_x >= x->out->width || y >= x->out->height) continue;
        uint8_t     *to = x->out->rgb + ((size_t)y * (size_t)x->out->width + (size_t)at_x) * 3;
        GifColorType k = { WHITE, WHITE, WHITE };
        if (c != x->transparent && c < map->ColorCount) k = map->Colors[c];
        to[0] = k.Red;
        to[1] = k.Green;
        to[2] = k.Blue;
    }
}

static int read_frame(job *x, const media_limits *l, err *e) {
    static const int first[] = { 0, 4, 2, 1 }, step[] = { 8, 8, 4, 2 };
    if (DGifGetImageDesc(x->gif) == GIF_ERROR) return broken(x, e);
    const GifImageDesc   *d = &x->gif->Image;
    const ColorMapObject *map = d->ColorMap ? d->ColorMap : x->gif->SColorMap;
    if (!map) return err_set(e, ERR_FORMAT, "the GIF picture has no colours");
    int rc = media_check_size("GIF", d->Width, d->Height, l, e);
    if (rc < 0) return rc;
    if (!(x->line = malloc((size_t)d->Width))) return err_set_nomem(e);
    paint_background(x);
    for (int pass = 0; pass < (d->Interlace ? 4 : 1); pass++) {
        for (int y = d->Interlace ? first[pass] : 0; y < d->Height; y += d->Interlace ? step[pass] : 1) {
            if (DGifGetLine(x->gif, x->line, d->Width) == GIF_ERROR) return broken(x, e);
            put_line(x, map, d->Top + y, d->Left, d->Width);
        }
    }
    return 0;
}

static int read_records(job *x, const media_limits *l, err *e) {
    for (int i = 0; i < MAX_EXTENSIONS; i++) {
        GifRecordType kind;
        int           rc = 0;
        if (DGifGetRecordType(x->gif, &kind) == GIF_ERROR) return broken(x, e);
        if (kind == IMAGE_DESC_RECORD_TYPE) return read_frame(x, l, e);
        if (kind == TERMINATE_RECORD_TYPE) return err_set(e, ERR_FORMAT, "the GIF picture has no frame");
        if (kind == EXTENSION_RECORD_TYPE && (rc = skip_extension(x, e)) < 0) return rc;
    }
    return err_set(e, ERR_LIMIT, "the GIF picture has more than %d extensions before its first frame", MAX_EXTENSIONS);
}

int media_gif(pixels *out, media_bytes in, const media_limits *l, err *e) {
    job x = { .left = in, .out = out, .transparent = NO_TRANSPARENT_COLOR };
    int why = 0, rc;
    if (!(x.gif = DGifOpen(&x, take, &why))) return err_set(e, ERR_FORMAT, "the GIF picture is damaged or cut off");
    rc = media_check_size("GIF", x.gif->SWidth, x.gif->SHeight, l, e);
    if (rc == 0) rc = pixels_init(out, x.gif->SWidth, x.gif->SHeight, e);
    if (rc == 0) rc = read_records(&x, l, e);
    DGifCloseFile(x.gif, &why);
    free(x.line);
    return rc;
}
