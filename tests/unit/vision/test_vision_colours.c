/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How colours are scaled, and in what a picture lies, where preprocessor_config.json leaves something out or turns it off, as the
 * classes of transformers do it: golden models (tests/golden/vision) with other preprocessors.
 */
#include "unit/support/support.h"
#include "vision/internal.h"

#include "base/file.h"
#include "media/media.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

static const float half[] = { 0.5f, 0.5f }, clip[] = { 0.48145466f, 0.26862954f }, imagenet[] = { 0.485f, 0.229f };

static void write_text(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0 && fclose(f) == 0);
    free(path);
}

/* A golden model with this preprocessor; NULL: with none. */
static vision *open_with(const char *family, const char *pre, model_file **f) {
    static const char *const names[] = { "config.json", "model.safetensors" };
    char                    *dir = test_temp_dir();
    vision                  *v = NULL;
    err                      e = { 0 };
    for (int i = 0; i < 2; i++) {
        char *to = path_join(dir, names[i]), from[512];
        snprintf(from, sizeof from, "%s/%s/%s", DIR, family, names[i]);
        assert_int_equal(symlink(from, to), 0);
        free(to);
    }
    if (pre) write_text(dir, "preprocessor_config.json", pre);
    if (model_file_open(f, dir, &e) < 0 || vision_open(&v, *f, NULL, 32, &(vision_options){ .n_threads = 1 }, &e) < 0)
        fail_msg("%s with %s: %s", family, pre ? pre : "nothing", e.msg);
    assert_non_null(v);
    test_temp_dir_remove(dir);
    return v;
}

static void check(const char *family, const char *pre, float mean, float std, int canvas) {
    model_file *f;
    vision     *v = open_with(family, pre, &f);
    if (v->rules.mean[0] != mean || v->rules.std[0] != std)
        fail_msg("%s with %s: %g, %g", family, pre ? pre : "nothing", (double)v->rules.mean[0],
                 (double)v->rules.std[0]);
    if (canvas >= 0) assert_int_equal(v->rules.canvas[0], canvas);
    vision_free(v);
    model_file_free(f);
}

static void test_silent(void **state) {
    static const struct {
        const char  *family, *pre;
        const float *colours;
    } rows[] = {
        { "paddleocr_vl", "{\"min_pixels\": 3136, \"max_pixels\": 18816}", clip },
        { "janus", "{}", clip },
        { "deepseek_vl", "{\"image_mean\": null, \"image_std\": null}", clip },
        { "cohere2_vision", "{\"max_patches\": 6}", clip },
        { "aya_vision", "{\"max_patches\": 6}", clip },
        { "internvl", "{\"max_patches\": 6}", clip },
        { "qwen3_5", "{\"min_pixels\": 4096, \"max_pixels\": 16384}", clip },
        { "granite_vision", "{\"crop_size\": 28}", clip },
        { "gemma3", "{}", half },
        { "lfm2_vl", "{\"tile_size\": 16, \"max_image_tokens\": 8, \"min_image_tokens\": 4}", half },
        { "internvl_6b", "{\"max_patches\": 6}", clip },
        { "qianfan_ocr", "{\"max_patches\": 6}", clip },
        { "hunyuan_vl", "{\"min_pixels\": 1024, \"max_pixels\": 6144}", clip },
        { "ovis2", "{\"size\": {\"height\": 32, \"width\": 32}}", clip },
        /* Without that file they are those of the published models. */
        { "janus", NULL, half },
        { "internvl", NULL, imagenet },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(rows[i].family, rows[i].pre, rows[i].colours[0], rows[i].colours[1], -1);
}

static void test_said(void **state) {
    (void)state;
    check("gemma3", "{\"image_mean\": 0.25, \"image_std\": 0.125}", 0.25f, 0.125f, -1);
    check("gemma3", "{\"do_normalize\": false, \"image_mean\": 0.25}", 0, 1, -1);
    check("gemma3", "{\"do_normalize\": null, \"do_rescale\": null, \"rescale_factor\": null}", 0.5f, 0.5f, -1);
    /* Around a picture of Janus: 127 where no mean is named, and the mean that is, normed with or not. */
    check("janus", "{}", clip[0], clip[1], 127);
    check("janus", "{\"image_mean\": [0.25, 0.5, 0.5]}", 0.25f, clip[1], 63);
    check("deepseek_vl", "{\"image_mean\": [2, 0.5, 0.5], \"do_normalize\": false}", 0, 1, 255);
}

static void read_picture(pixels *p) {
    char  *data;
    size_t n;
    err    e = { 0 };
    assert_int_equal(file_read(&data, &n, DIR "/pictures/b.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(p, data, n, &media_default_limits, &e), 0);
    free(data);
}

/* In the middle of a square of CLIP's mean colour. */
static void square(pixels *out, const pixels *p) {
    static const uint8_t colour[] = { 122, 116, 104 }; /* int(mean * 255) */
    int                  side = p->width > p->height ? p->width : p->height, x0 = (side - p->width) / 2;
    int                  y0 = (side - p->height) / 2;
    err                  e = { 0 };
    assert_int_equal(pixels_init(out, side, side, &e), 0);
    for (int i = 0; i < side * side; i++) {
        int  x = i % side - x0, y = i / side - y0;
        bool inside = x >= 0 && x < p->width && y >= 0 && y < p->height;
        for (int c = 0; c < 3; c++) out->rgb[3 * i + c] = inside ? p->rgb[3 * (y * p->width + x) + c] : colour[c];
    }
}

static pixels cut_with(const char *pre, const pixels *p) {
    model_file *f;
    vision     *v = open_with("llava", pre, &f);
    pixels     *tiles, out;
    int         n;
    err         e = { 0 };
    if (vision_cut(v, p, &tiles, &n, &e) < 0) fail_msg("%s: %s", pre, e.msg);
    assert_int_equal(n, 1);
    out = tiles[0];
    tiles[0] = (pixels){ 0 };
    vision_cut_free(tiles, n);
    vision_free(v);
    model_file_free(f);
    return out;
}

static void check_same(const char *pre, const char *other, const pixels *p, const pixels *q) {
    pixels a = cut_with(pre, p), b = cut_with(other, q);
    assert_int_equal(a.width, 56);
    assert_int_equal(a.height, 56);
    assert_int_equal(pixels_bytes(&a), pixels_bytes(&b));
    assert_memory_equal(a.rgb, b.rgb, pixels_bytes(&a));
    pixels_deinit(&a);
    pixels_deinit(&b);
}

/* LLaVA's own processor, which may put pictures into a square; CLIP's may not. */
static void test_squared(void **state) {
    static const char plain[] = "{\"size\": {\"shortest_edge\": 56}, \"crop_size\": {\"height\": 56, \"width\": 56}}";
    pixels            p, q, wide;
    err               e = { 0 };
    (void)state;
    read_picture(&p);
    assert_int_not_equal(p.width, p.height);
    square(&q, &p);
    check_same("{\"image_processor_type\": \"LlavaImageProcessorFast\", \"do_pad\": true, \"size\": 56}", plain, &p,
               &q);
    check_same("{\"do_pad\": true, \"do_center_crop\": false}", plain, &p, &q);
    check_same("{\"image_processor_type\": \"CLIPImageProcessor\", \"do_pad\": true}", plain, &p, &p);
    /* Stretched to two sides; a picture that has them stays as it is. */
    assert_int_equal(pixels_resize(&wide, &p, 56, 56, PIXELS_BICUBIC, NULL, &e), 0);
    check_same("{\"size\": {\"height\": 56, \"width\": 56}}", plain, &p, &wide);
    check_same("{\"size\": {\"height\": 56, \"width\": 56}, \"do_center_crop\": false}", plain, &p, &wide);
    pixels_deinit(&wide);
    pixels_deinit(&q);
    pixels_deinit(&p);
}

/* A line as long as a picture may be has no room in a square. */
static void test_too_long(void **state) {
    model_file *f;
    vision     *v = open_with("llava", "{\"do_pad\": true}", &f);
    pixels      p, *tiles;
    int         n;
    err         e = { 0 };
    (void)state;
    assert_int_equal(pixels_init(&p, 16384, 1, &e), 0);
    assert_int_equal(vision_cut(v, &p, &tiles, &n, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "16384"));
    pixels_deinit(&p);
    vision_free(v);
    model_file_free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_silent), cmocka_unit_test(test_said),
                                        cmocka_unit_test(test_squared), cmocka_unit_test(test_too_long) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
