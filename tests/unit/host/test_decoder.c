/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's process: what it reads comes back, and what is wrong with a picture or a sound stays with it. */
#include "host/decoder/decoder.h"
#include "unit/support/encode_picture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <png.h>

static decoder_options options(void) { return (decoder_options){ .program = getenv("HEARTH_PROGRAM") }; }

static int skipped(void) {
    if (getenv("HEARTH_PROGRAM")) return 0;
    print_message("skipped: HEARTH_PROGRAM is not set\n");
    return 1;
}

static void test_reads(void **state) {
    enum { SIDE = 700 }; /* more than a socket's buffer */
    uint8_t        *rgb = malloc(SIDE * SIDE * 3);
    decoder_options o = options();
    pixels          p;
    err             e = { 0 };
    str             s;
    (void)state;
    if (skipped()) {
        free(rgb);
        return;
    }
    for (int i = 0; i < SIDE * SIDE * 3; i++) rgb[i] = (uint8_t)(i * 2654435761u >> 24);
    str_init(&s);
    encode_png(&s, SIDE, SIDE, rgb, &(png_form){ .color_type = PNG_COLOR_TYPE_RGB, .bits = 8 });
    int rc = decoder_read(&p, (view){ s.data, s.len }, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(p.width, SIDE);
    assert_memory_equal(p.rgb, rgb, SIDE * SIDE * 3);
    pixels_deinit(&p);
    str_deinit(&s);
    free(rgb);
}

static void test_refuses(void **state) {
    static const char *const bad[] = { "", "GIF89a", "\xff\xd8\xff", "\x89PNG\r\n\x1a\n", "hello" };
    decoder_options          o = options();
    (void)state;
    if (skipped()) return;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pixels p;
        err    e = { 0 };
        assert_int_equal(decoder_read(&p, view_of(bad[i]), &o, &e), ERR_FORMAT);
        assert_non_null(strstr(e.msg, "picture"));
        assert_null(p.rgb);
    }
}

static void test_hears(void **state) {
    enum { SAMPLES = 200000 }; /* more than a socket's buffer */
    static const char head[] =
        "RIFF\0\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x80\x3e\0\0\0\x7d\0\0\2\0\x10\0data\xff\xff\xff\xff";
    decoder_options o = options();
    sound           p;
    err             e = { 0 };
    str             s;
    (void)state;
    if (skipped()) return;
    str_init(&s);
    str_append(&s, head, sizeof head - 1);
    for (int i = 0; i < SAMPLES; i++) {
        int16_t v = (int16_t)(i * 2654435761u >> 16);
        str_append(&s, (const char *)&v, sizeof v);
    }
    int rc = decoder_hear(&p, (view){ s.data, s.len }, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(p.n, SAMPLES);
    for (int i = 0; i < SAMPLES; i++) assert_true(p.at[i] == (float)(int16_t)(i * 2654435761u >> 16) / 32768);
    sound_deinit(&p);
    static const char *const bad[] = { "", "RIFF", "ID3", "\xff\xfb\x90\x64", "GIF89a" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(decoder_hear(&p, view_of(bad[i]), &o, &e), ERR_FORMAT);
        assert_non_null(strstr(e.msg, "sound"));
        assert_null(p.at);
    }
    str_deinit(&s);
}

/* A process that says nothing, and one that cannot be started. */
static void test_no_answer(void **state) {
    decoder_options o = { .program = "/bin/true" };
    pixels          p;
    sound           heard;
    err             e = { 0 };
    (void)state;
    assert_true(decoder_read(&p, view_of("GIF89a"), &o, &e) < 0);
    assert_non_null(strstr(e.msg, "decoder"));
    assert_true(decoder_hear(&heard, view_of("RIFF"), &o, &e) < 0);
    assert_non_null(strstr(e.msg, "sound's decoder"));
    o.program = "/nonexistent/program";
    assert_true(decoder_read(&p, view_of("GIF89a"), &o, &e) < 0);
    assert_non_null(strstr(e.msg, "decoder"));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_reads), cmocka_unit_test(test_refuses),
                                        cmocka_unit_test(test_hears), cmocka_unit_test(test_no_answer) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
