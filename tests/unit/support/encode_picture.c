/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/encode_picture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>

static void put_png(png_structp png, png_bytep data, size_t n) { str_append(png_get_io_ptr(png), data, n); }
static void flush_png(png_structp png) { (void)png; }

static void exif_bytes(uint8_t out[26], int orientation) {
    static const uint8_t head[26] = { 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 0x01, 3, 0, 1 };
    memcpy(out, head, 26);
    out[18] = (uint8_t)orientation;
}

void encode_png(str *out, int width, int height, const uint8_t *rows, const png_form *f) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop   info = png_create_info_struct(png);
    uint8_t     exif[26];
    if (setjmp(png_jmpbuf(png))) abort();
    png_set_write_fn(png, out, put_png, flush_png);
    png_set_IHDR(png, info, (png_uint_32)width, (png_uint_32)height, f->bits, f->color_type,
                 f->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (f->palette) png_set_PLTE(png, info, (png_const_colorp)(const void *)f->palette, f->n_palette);
    if (f->palette_alpha) png_set_tRNS(png, info, f->palette_alpha, f->n_palette, NULL);
    if (f->orientation) {
        exif_bytes(exif, f->orientation);
        png_set_eXIf_1(png, info, 26, exif);
    }
    png_write_info(png, info);
    size_t     row = png_get_rowbytes(png, info);
    png_bytep *all = malloc((size_t)height * sizeof *all);
    for (int y = 0; y < height; y++) all[y] = (png_bytep)(uintptr_t)(rows + (size_t)y * row);
    png_write_image(png, all);
    png_write_end(png, info);
    png_destroy_write_struct(&png, &info);
    free(all);
}

void encode_jpeg(str *out, int width, int height, const uint8_t *rgb, int quality, bool progressive, int orientation) {
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr       errors;
    unsigned char              *data = NULL;
    unsigned long               bytes = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &data, &bytes);
    c.image_width = (JDIMENSION)width;
    c.image_height = (JDIMENSION)height;
    c.input_components = 3;
    c.in_color_space = JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, quality, TRUE);
    c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
    if (progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    if (orientation) {
        uint8_t marker[32] = "Exif\0";
        exif_bytes(marker + 6, orientation);
        jpeg_write_marker(&c, JPEG_APP0 + 1, marker, 32);
    }
    while (c.next_scanline < c.image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(rgb + (size_t)c.next_scanline * (size_t)width * 3);
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    str_append(out, data, bytes);
    free(data);
}

void encode_webp(str *out, int width, int height, const uint8_t *rgba) {
    uint8_t *data = NULL;
    size_t   n = WebPEncodeLosslessRGBA(rgba, width, height, width * 4, &data);
    str_append(out, data, n);
    WebPFree(data);
}

static int put_gif(GifFileType *g, const GifByteType *data, int n) {
    str_append(g->UserData, data, (size_t)n);
    return n;
}

void encode_gif(str *out, const gif_form *f, const uint8_t *indexes, const uint8_t palette[4][3], int frames) {
    static const int first[] = { 0, 4, 2, 1 }, step[] = { 8, 8, 4, 2 };
    GifColorType     colors[4];
    int              why;
    GifFileType     *g = EGifOpen(out, put_gif, &why);
    for (int i = 0; i < 4; i++) colors[i] = (GifColorType){ palette[i][0], palette[i][1], palette[i][2] };
    ColorMapObject *map = GifMakeMapObject(4, colors);
    EGifPutScreenDesc(g, f->canvas_width, f->canvas_height, 2, 0, map);
    for (int k = 0; k < frames; k++) {
        GraphicsControlBlock control = { 0, false, 10, f->transparent };
        GifByteType          bytes[4];
        EGifGCBToExtension(&control, bytes);
        EGifPutExtension(g, GRAPHICS_EXT_FUNC_CODE, 4, bytes);
        EGifPutImageDesc(g, f->x, f->y, f->w, f->h, f->interlaced, NULL);
        for (int pass = 0; pass < (f->interlaced ? 4 : 1); pass++) {
            for (int y = f->interlaced ? first[pass] : 0; y < f->h; y += f->interlaced ? step[pass] : 1)
                EGifPutLine(g, (GifPixelType *)(uintptr_t)(indexes + (size_t)y * (size_t)f->w), f->w);
        }
    }
    GifFreeMapObject(map);
    EGifCloseFile(g, &why);
}
