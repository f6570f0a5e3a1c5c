/* SPDX-License-Identifier: Apache-2.0 */
/* PNG through libpng. Its errors come by longjmp, so what outlives one is kept in a struct. */
#include "media/codec.h"

#include <stdlib.h>
#include <string.h>

#include <png.h>

enum { CHUNK_BYTES = 8 << 20, CHUNKS = 256 };

typedef struct job {
    png_structp png;
    png_infop   info;
    media_bytes left;
    pixels     *out;
    uint8_t    *rgba; /* all rows: those of interlaced pictures come in pieces */
    png_bytep  *rows;
    err        *e;
    int         rc;
} job;

static void fail(png_structp png, png_const_charp text) {
    job *x = png_get_error_ptr(png);
    if (x->rc == 0) x->rc = err_set(x->e, ERR_FORMAT, "the PNG picture cannot be read: %s", text);
    png_longjmp(png, 1);
}

static void silent(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void take(png_structp png, png_bytep to, size_t n) {
    job *x = png_get_io_ptr(png);
    if (n > x->left.n) {
        x->rc = err_set(x->e, ERR_FORMAT, "the PNG picture is cut off");
        png_longjmp(png, 1);
    }
    memcpy(to, x->left.at, n);
    x->left.at += n;
    x->left.n -= n;
}

static int orientation_of(job *x) {
    png_bytep   bytes = NULL;
    png_uint_32 n = 0;
    if (!png_get_eXIf_1(x->png, x->info, &n, &bytes) || !bytes) return 1;
    return media_exif_orientation((media_bytes){ bytes, n });
}

/* Whatever the file has becomes RGBA of eight bits. */
static void as_rgba(job *x) {
    png_set_expand(x->png); /* palettes, few bits, a transparent colour */
    png_set_strip_16(x->png);
    png_set_gray_to_rgb(x->png);
    png_set_add_alpha(x->png, 255, PNG_FILLER_AFTER);
    png_set_interlace_handling(x->png);
    png_read_update_info(x->png, x->info);
}

static void decode(job *x, const media_limits *l, int *orientation) {
    png_read_info(x->png, x->info);
    int64_t w = png_get_image_width(x->png, x->info), h = png_get_image_height(x->png, x->info);
    if ((x->rc = media_check_size("PNG", w, h, l, x->e)) < 0) return;
    as_rgba(x);
    if ((x->rc = pixels_init(x->out, (int)w, (int)h, x->e)) < 0) return;
    x->rgba = malloc((size_t)w * (size_t)h * 4);
    x->rows = malloc((size_t)h * sizeof *x->rows);
    if (!x->rgba || !x->rows || png_get_rowbytes(x->png, x->info) != (size_t)w * 4) {
        x->rc = x->rgba && x->rows ? err_set(x->e, ERR_FORMAT, "the PNG picture has rows of an unknown form")
                                   : err_set_nomem(x->e);
        return;
    }
    for (int64_t y = 0; y < h; y++) x->rows[y] = x->rgba + (size_t)y * (size_t)w * 4;
    png_read_image(x->png, x->rows);
    png_read_end(x->png, x->info);
    *orientation = orientation_of(x);
    media_over_white(x->out->rgb, x->rgba, (size_t)w * (size_t)h);
}

/* Texts, profiles and palettes for others: the library would unpack each of them into memory. */
static void ignore_unused(png_structp png) {
    static const png_byte unused[] = "tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0hIST";
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, unused, sizeof unused / 5);
}

static int run(job *x, const media_limits *l, int *orientation) {
    if (setjmp(png_jmpbuf(x->png)) == 0) {
        ignore_unused(x->png);
        png_set_read_fn(x->png, x, take);
        /* The size is judged here, with a sentence of our own. */
        png_set_user_limits(x->png, 0x7fffffff, 0x7fffffff);
        png_set_chunk_malloc_max(x->png, CHUNK_BYTES);
        png_set_chunk_cache_max(x->png, CHUNKS);
        decode(x, l, orientation);
    }
    return x->rc;
}

int media_png(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e) {
    job x = { .left = in, .out = out, .e = e };
    int rc = ERR_NOMEM;
    x.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &x, fail, silent);
    if (x.png) x.info = png_create_info_struct(x.png);
    if (x.info)
        rc = run(&x, l, orientation);
    else
        err_set_nomem(e);
    png_destroy_read_struct(&x.png, &x.info, NULL);
    free(x.rgba);
    free(x.rows);
    return rc;
}
