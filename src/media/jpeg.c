/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG through libjpeg. Its errors come by longjmp, so what outlives one is kept in a struct. */
#include "media/codec.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

enum { MAX_SCANS = 200, APP1 = JPEG_APP0 + 1 };

typedef struct job {
    struct jpeg_decompress_struct j; /* client_data leads back here */
    struct jpeg_error_mgr         errors;
    struct jpeg_progress_mgr      progress;
    jmp_buf                       back;
    pixels                       *out;
    uint8_t                      *row; /* of a CMYK picture */
    err                          *e;
    int                           rc;
} job;

static void fail(j_common_ptr c) {
    job *x = c->client_data;
    char text[JMSG_LENGTH_MAX];
    if (x->rc == 0) {
        c->err->format_message(c, text);
        x->rc = err_set(x->e, ERR_FORMAT, "the JPEG picture cannot be read: %s", text);
    }
    longjmp(x->back, 1);
}

/* Warnings are about damage that a viewer shows as gray; a file that ends too early is refused. */
static void warn(j_common_ptr c, int level) {
    job *x = c->client_data;
    if (level >= 0 || c->err->msg_code != JWRN_JPEG_EOF) return;
    x->rc = err_set(x->e, ERR_FORMAT, "the JPEG picture is cut off");
    longjmp(x->back, 1);
}

static void watch(j_common_ptr c) {
    job *x = c->client_data;
    if (x->j.input_scan_number <= MAX_SCANS) return;
    x->rc = err_set(x->e, ERR_LIMIT, "the JPEG picture has more than %d scans", MAX_SCANS);
    longjmp(x->back, 1);
}

static void silent(j_common_ptr c) { (void)c; }

static int orientation_of(const struct jpeg_decompress_struct *j) {
    for (const struct jpeg_marker_struct *m = j->marker_list; m; m = m->next) {
        if (m->marker == APP1 && m->data_length > 6 && memcmp(m->data, "Exif\0\0", 6) == 0)
            return media_exif_orientation((media_bytes){ m->data + 6, m->data_length - 6 });
    }
    return 1;
}

/* Adobe's files hold what is left of the light, not the ink. */
static void from_cmyk(uint8_t *rgb, const uint8_t *cmyk, int n, bool inverted) {
    for (int i = 0; i < n; i++, rgb += 3, cmyk += 4) {
        unsigned light = inverted ? cmyk[3] : 255u - cmyk[3];
        for (int c = 0; c < 3; c++) {
            unsigned left = inverted ? cmyk[c] : 255u - cmyk[c];
            rgb[c] = (uint8_t)((left * light + 127) / 255);
        }
    }
}

static void decode(job *x, media_bytes in, const media_limits *l, int *orientation) {
    struct jpeg_decompress_struct *j = &x->j;
    jpeg_mem_src(j, in.at, (unsigned long)in.n);
    jpeg_save_markers(j, APP1, 0xFFFF);
    jpeg_read_header(j, TRUE);
    if ((x->rc = media_check_size("JPEG", j->image_width, j->image_height, l, x->e)) < 0) return;
    bool cmyk = j->jpeg_color_space == JCS_CMYK || j->jpeg_color_space == JCS_YCCK;
    j->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    *orientation = orientation_of(j);
    if ((x->rc = pixels_init(x->out, (int)j->image_width, (int)j->image_height, x->e)) < 0) return;
    if (cmyk && !(x->row = malloc((size_t)j->image_width * 4))) {
        x->rc = err_set_nomem(x->e);
        return;
    }
    jpeg_start_decompress(j);
    while (j->output_scanline < j->output_height) {
        uint8_t *to = x->out->rgb + (size_t)j->output_scanline * (size_t)x->out->width * 3;
        JSAMPROW row = cmyk ? x->row : to;
        jpeg_read_scanlines(j, &row, 1);
        if (cmyk) from_cmyk(to, x->row, x->out->width, j->saw_Adobe_marker);
    }
    jpeg_finish_decompress(j);
}

int media_jpeg(pixels *out, media_bytes in, const media_limits *l, int *orientation, err *e) {
    job *x = calloc(1, sizeof *x);
    if (!x) return err_set_nomem(e);
    x->out = out;
    x->e = e;
    x->j.err = jpeg_std_error(&x->errors);
    x->errors.error_exit = fail;
    x->errors.emit_message = warn;
    x->errors.output_message = silent;
    x->j.client_data = x;
    if (setjmp(x->back) == 0) {
        jpeg_create_decompress(&x->j);
        x->progress.progress_monitor = watch;
        x->j.progress = &x->progress;
        decode(x, in, l, orientation);
    }
    int rc = x->rc;
    jpeg_destroy_decompress(&x->j);
    free(x->row);
    free(x);
    return rc;
}
