/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures come out as they went in, whatever the file's form; what is cut, claims too much or is no picture is an error. */
#include "media/media.h"
#include "unit/support/encode_picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>

enum { W = 13, H = 9 };

static void paint(uint8_t rgb[H * W * 3]) {
    for (int y = 0; y < H; y++) {
        for (int x = 0; x < W; x++) {
            uint8_t *p = rgb + (y * W + x) * 3;
            p[0] = (uint8_t)(x * 19);
            p[1] = (uint8_t)(y * 28);
            p[2] = (uint8_t)(x * y * 2);
        }
    }
}

static void expect(const str *file, int w, int h, const uint8_t *rgb) {
    pixels p;
    err    e = { 0 };
    int    rc = media_decode(&p, file->data, file->len, &media_default_limits, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(p.width, w);
    assert_int_equal(p.height, h);
    assert_memory_equal(p.rgb, rgb, (size_t)w * (size_t)h * 3);
    pixels_deinit(&p);
}

static void test_png_forms(void **state) {
    uint8_t rgb[H * W * 3], wide[H * W * 6], rgba[H * W * 4], white[H * W * 3], gray[H * W], from_gray[H * W * 3];
    str     s;
    (void)state;
    paint(rgb);
    for (int i = 0; i < H * W * 3; i++) {
        wide[2 * i] = rgb[i];
        wide[2 * i + 1] = 0x7f;
    }
    for (int i = 0; i < H * W; i++) {
        int a = i * 255 / (H * W - 1);
        memcpy(rgba + i * 4, rgb + i * 3, 3);
        rgba[i * 4 + 3] = (uint8_t)a;
        gray[i] = (uint8_t)(i * 2);
        for (int c = 0; c < 3; c++) {
            white[i * 3 + c] = (uint8_t)((rgb[i * 3 + c] * a + 255 * (255 - a)) / 255.0 + 0.5);
            from_gray[i * 3 + c] = gray[i];
        }
    }
    const struct {
        png_form       form;
        const uint8_t *rows, *result;
    } cases[] = { { { .color_type = PNG_COLOR_TYPE_RGB, .bits = 8 }, rgb, rgb },
                  { { .color_type = PNG_COLOR_TYPE_RGB, .bits = 8, .interlaced = true }, rgb, rgb },
                  { { .color_type = PNG_COLOR_TYPE_RGB, .bits = 16 }, wide, rgb },
                  { { .color_type = PNG_COLOR_TYPE_RGBA, .bits = 8 }, rgba, white },
                  { { .color_type = PNG_COLOR_TYPE_GRAY, .bits = 8 }, gray, from_gray } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        str_init(&s);
        encode_png(&s, W, H, cases[i].rows, &cases[i].form);
        expect(&s, W, H, cases[i].result);
        str_deinit(&s);
    }
}

static void test_png_palette(void **state) {
    static const uint8_t palette[4][3] = { { 10, 20, 30 }, { 200, 0, 0 }, { 0, 0, 0 }, { 9, 8, 7 } };
    static const uint8_t alpha[4] = { 255, 255, 0, 255 };
    static const uint8_t rows[2] = { 0x1b, 0xc0 }; /* 0 1 2 3; 3 0 0 0 of two bits each */
    static const uint8_t want[8][3] = { { 10, 20, 30 }, { 200, 0, 0 },  { 255, 255, 255 }, { 9, 8, 7 },
                                        { 9, 8, 7 },    { 10, 20, 30 }, { 10, 20, 30 },    { 10, 20, 30 } };
    png_form             f = {
                    .color_type = PNG_COLOR_TYPE_PALETTE, .bits = 2, .palette = palette[0], .palette_alpha = alpha, .n_palette = 4
    };
    str s;
    (void)state;
    str_init(&s);
    encode_png(&s, 4, 2, rows, &f);
    expect(&s, 4, 2, want[0]);
    str_deinit(&s);
}

/* Where the stored first row and column lie in the upright picture, as EXIF's table has it: the stored corners top left
 * and top right, as corners of the result (0 top left, 1 top right, 2 bottom left, 3 bottom right). */
static void test_orientation(void **state) {
    static const int first[9] = { 0, 0, 1, 3, 2, 0, 1, 3, 2 }, second[9] = { 0, 1, 0, 2, 3, 2, 3, 1, 0 };
    uint8_t          rgb[H * W * 3];
    (void)state;
    memset(rgb, 128, sizeof rgb);
    memset(rgb, 1, 3);
    memset(rgb + (W - 1) * 3, 2, 3);
    for (int o = 1; o <= 8; o++) {
        png_form f = { .color_type = PNG_COLOR_TYPE_RGB, .bits = 8, .orientation = o };
        pixels   p;
        err      e = { 0 };
        str      s;
        str_init(&s);
        encode_png(&s, W, H, rgb, &f);
        assert_int_equal(media_decode(&p, s.data, s.len, &media_default_limits, &e), 0);
        assert_int_equal(p.width, o >= 5 ? H : W);
        assert_int_equal(p.height, o >= 5 ? W : H);
        int corner[4] = { 0, p.width - 1, (p.height - 1) * p.width, p.height * p.width - 1 };
        assert_int_equal(p.rgb[corner[first[o]] * 3], 1);
        assert_int_equal(p.rgb[corner[second[o]] * 3], 2);
        pixels_deinit(&p);
        str_deinit(&s);
    }
}

static void test_jpeg(void **state) {
    enum { SIDE = 40 };
    uint8_t *rgb = malloc(SIDE * SIDE * 3);
    (void)state;
    for (int i = 0; i < SIDE * SIDE; i++) {
        rgb[i * 3] = (uint8_t)(i % SIDE * 6);
        rgb[i * 3 + 1] = (uint8_t)(i / SIDE * 6);
        rgb[i * 3 + 2] = 90;
    }
    for (int progressive = 0; progressive < 2; progressive++) {
        pixels p;
        err    e = { 0 };
        str    s;
        long   off = 0;
        str_init(&s);
        encode_jpeg(&s, SIDE, SIDE, rgb, 98, progressive, 0);
        assert_int_equal(media_decode(&p, s.data, s.len, &media_default_limits, &e), 0);
        for (int i = 0; i < SIDE * SIDE * 3; i++) off += labs((long)p.rgb[i] - rgb[i]);
        assert_true(off < SIDE * SIDE * 3 * 2);
        pixels_deinit(&p);
        /* Held upright by its EXIF: 6 is a quarter turn. */
        str_clear(&s);
        encode_jpeg(&s, SIDE, SIDE / 2, rgb, 98, progressive, 6);
        assert_int_equal(media_decode(&p, s.data, s.len, &media_default_limits, &e), 0);
        assert_int_equal(p.width, SIDE / 2);
        assert_int_equal(p.height, SIDE);
        assert_true(abs(p.rgb[(SIDE / 2 - 1) * 3] - rgb[0]) < 12 && abs(p.rgb[(SIDE / 2 - 1) * 3 + 1] - rgb[1]) < 12);
        pixels_deinit(&p);
        str_deinit(&s);
    }
    free(rgb);
}

static void test_webp_gif(void **state) {
    static const uint8_t palette[4][3] = { { 10, 20, 30 }, { 200, 0, 0 }, { 0, 0, 0 }, { 9, 8, 7 } };
    uint8_t              rgb[H * W * 3], rgba[H * W * 4], index[H * W], want[H * W * 3];
    str                  s;
    (void)state;
    paint(rgb);
    for (int i = 0; i < H * W; i++) {
        memcpy(rgba + i * 4, rgb + i * 3, 3);
        rgba[i * 4 + 3] = 255;
        index[i] = (uint8_t)(i % 7 % 4);
        memcpy(want + i * 3, palette[index[i]], 3);
    }
    str_init(&s);
    encode_webp(&s, W, H, rgba);
    expect(&s, W, H, rgb);
    for (int interlaced = 0; interlaced < 2; interlaced++) { /* of two frames the first */
        str_clear(&s);
        encode_gif(&s, &(gif_form){ W, H, 0, 0, W, H, -1, interlaced }, index, palette, 2);
        expect(&s, W, H, want);
    }
    /* A frame with holes, smaller than its canvas: white around and behind. */
    str_clear(&s);
    encode_gif(&s, &(gif_form){ W + 2, H + 3, 1, 2, W, H, 1, false }, index, palette, 1);
    pixels p;
    err    e = { 0 };
    assert_int_equal(media_decode(&p, s.data, s.len, &media_default_limits, &e), 0);
    assert_int_equal(p.width, W + 2);
    assert_int_equal(p.rgb[0], 255);
    for (int i = 0; i < H * W; i++) {
        const uint8_t *got = p.rgb + ((i / W + 2) * (W + 2) + i % W + 1) * 3;
        for (int c = 0; c < 3; c++) assert_int_equal(got[c], index[i] == 1 ? 255 : palette[index[i]][c]);
    }
    pixels_deinit(&p);
    str_deinit(&s);
}

/* Every truncation of every format is refused (GIF: up to its last pixels), and none reads beyond its end. */
static void test_truncated(void **state) {
    static const uint8_t palette[4][3] = { { 10, 20, 30 }, { 200, 0, 0 }, { 0, 0, 0 }, { 9, 8, 7 } };
    uint8_t              rgb[H * W * 3], rgba[H * W * 4], index[H * W];
    str                  files[4];
    (void)state;
    paint(rgb);
    for (int i = 0; i < H * W; i++) {
        memcpy(rgba + i * 4, rgb + i * 3, 3);
        rgba[i * 4 + 3] = 200;
        index[i] = (uint8_t)(i % 4);
    }
    for (int i = 0; i < 4; i++) str_init(&files[i]);
    encode_png(&files[0], W, H, rgb, &(png_form){ .color_type = PNG_COLOR_TYPE_RGB, .bits = 8 });
    encode_jpeg(&files[1], W, H, rgb, 90, true, 3);
    encode_webp(&files[2], W, H, rgba);
    encode_gif(&files[3], &(gif_form){ W, H, 0, 0, W, H, -1, false }, index, palette, 1);
    for (int i = 0; i < 4; i++) {
        for (size_t n = 0; n + 12 < files[i].len; n++) {
            uint8_t *copy = malloc(n ? n : 1);
            pixels   p;
            err      e = { 0 };
            memcpy(copy, files[i].data, n);
            int rc = media_decode(&p, copy, n, &media_default_limits, &e);
            assert_true(rc < 0);
            assert_true(strlen(e.msg) > 10);
            free(copy);
        }
        str_deinit(&files[i]);
    }
}

static uint32_t crc_of(const uint8_t *at, size_t n) {
    uint32_t c = ~0u;
    for (size_t i = 0; i < n * 8; i++) {
        if (i % 8 == 0) c ^= at[i / 8];
        c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
    }
    return ~c;
}

static void put_size(str *png, unsigned w, unsigned h) {
    uint8_t *at = (uint8_t *)png->data + 16;
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(w >> (24 - 8 * i));
        at[4 + i] = (uint8_t)(h >> (24 - 8 * i));
    }
    uint32_t crc = crc_of((const uint8_t *)png->data + 12, 17);
    for (int i = 0; i < 4; i++) ((uint8_t *)png->data)[29 + i] = (uint8_t)(crc >> (24 - 8 * i));
}

static void refused(const void *data, size_t n, int code) {
    pixels p;
    err    e = { 0 };
    int    rc = media_decode(&p, data, n, &media_default_limits, &e);
    if (rc != code) print_message("%d: %s\n", rc, e.msg);
    assert_int_equal(rc, code);
    assert_null(p.rgb);
}

static void test_bombs(void **state) {
    uint8_t rgb[H * W * 3];
    str     s;
    (void)state;
    paint(rgb);
    str_init(&s);
    encode_png(&s, W, H, rgb, &(png_form){ .color_type = PNG_COLOR_TYPE_RGB, .bits = 8 });
    put_size(&s, 65535, 65535);
    refused(s.data, s.len, ERR_LIMIT);
    put_size(&s, 16000, 16000); /* within a side, but too many in all */
    refused(s.data, s.len, ERR_LIMIT);
    put_size(&s, 0, 5);
    refused(s.data, s.len, ERR_FORMAT);
    for (int side = 0x60; side <= 0xff; side += 0x9f) { /* 24672: too many; 65535: the library's own limit */
        str_clear(&s);
        encode_jpeg(&s, W, H, rgb, 90, false, 0);
        for (size_t i = 0; i + 9 < s.len; i++) {
            uint8_t *at = (uint8_t *)s.data + i;
            if (at[0] == 0xff && at[1] == 0xc0) memset(at + 5, side, 4); /* the frame's height and width */
        }
        refused(s.data, s.len, side == 0xff ? ERR_FORMAT : ERR_LIMIT);
    }
    str_clear(&s);
    str_append(&s, "GIF89a\xff\xff\xff\xff\x80\x00\x00\0\0\0\0\0\0;", 20);
    refused(s.data, s.len, ERR_LIMIT);
    refused("not a picture at all", 20, ERR_FORMAT);
    refused("", 0, ERR_FORMAT);
    str_deinit(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_png_forms), cmocka_unit_test(test_png_palette), cmocka_unit_test(test_orientation),
        cmocka_unit_test(test_jpeg),      cmocka_unit_test(test_webp_gif),    cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
