/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Towers from mmproj files: the golden models of Hugging Face (tests/golden/vision), written under the names and in the order
 * that published converters use, give the same rows: to the bit, or nearly so where converters permute heads.
 */
#include "unit/support/eyes_gguf.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "media/media.h"
#include "vision/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

static void read_picture(pixels *p) {
    size_t n;
    char  *data = NULL;
    err    e = { 0 };
    assert_int_equal(file_read(&data, &n, DIR "/pictures/d.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(p, data, n, &media_default_limits, &e), 0);
    free(data);
}

/* From the same pixels: mmproj files leave some sizes to the family. */
static void same_rows(const eyes_gguf *f, vision *one, vision *two, const pixels *p, int width) {
    /* Those whose patches, or a matrix, lie in another order. */
    bool bits = !f->permuted && strncmp(f->name, "gemma4", 6) != 0 && strcmp(f->name, "lfm2_vl") != 0 &&
                strcmp(f->name, "minicpmv") != 0;
    pixels *tiles;
    float  *a, *b;
    int     n_tiles, n, m;
    err     e = { 0 };
    assert_int_equal(vision_cut(one, p, &tiles, &n_tiles, &e), 0);
    assert_int_equal(vision_encode_cut(one, p, tiles, n_tiles, &a, &n, &e), 0);
    assert_int_equal(vision_encode_cut(two, p, tiles, n_tiles, &b, &m, &e), 0);
    assert_int_equal(n, m);
    size_t floats = (size_t)n * (size_t)width;
    if (bits && memcmp(a, b, floats * sizeof *a) != 0) print_message("%s: the rows differ\n", f->name);
    if (bits) assert_memory_equal(a, b, floats * sizeof *a);
    /* Permuted products are summed in another order. */
    for (size_t i = 0; i < floats; i++) {
        if (fabsf(a[i] - b[i]) > 1e-5f) print_message("%s: %g and %g\n", f->name, a[i], b[i]);
        assert_true(fabsf(a[i] - b[i]) <= 1e-5f);
    }
    vision_cut_free(tiles, n_tiles);
    free(a);
    free(b);
}

static void check(const eyes_gguf *f, const char *dir) {
    char               path[512], file[512];
    const vision_rows *a, *b;
    model_file        *m, *mm;
    vision            *one, *two;
    pixels             p;
    err                e = { 0 };
    snprintf(path, sizeof path, "%s/%s", DIR, f->name);
    snprintf(file, sizeof file, "%s/mmproj-%s.gguf", dir, f->name);
    if (!dir_exists(path)) {
        print_message("skipped: there is no %s\n", path);
        return;
    }
    assert_int_equal(model_file_open(&m, path, &e), 0);
    int width = eyes_gguf_width(m);
    eyes_gguf_write(f, m, file);
    assert_int_equal(model_file_open(&mm, file, &e), 0);
    assert_int_equal(vision_open(&one, m, NULL, width, &(vision_options){ 0 }, &e), 0);
    int rc = vision_open(&two, m, mm, width, &(vision_options){ 0 }, &e);
    if (rc < 0) print_message("%s: %s\n", f->name, e.msg);
    assert_int_equal(rc, 0);
    read_picture(&p);
    same_rows(f, one, two, &p, width);
    assert_int_equal(vision_encode(one, &p, &a, &e), 0);
    assert_int_equal(vision_encode(two, &p, &b, &e), 0);
    assert_memory_not_equal(a->key, b->key, sizeof a->key); /* another file */
    vision_free(one);
    /* Of another language model. */
    assert_int_equal(vision_open(&one, m, mm, width + 1, &(vision_options){ 0 }, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "belongs to another"));
    vision_free(two);
    pixels_deinit(&p);
    model_file_free(mm);
    model_file_free(m);
}

static void test_same_rows(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < eyes_gguf_count; i++) check(&eyes_gguf_families[i], dir);
    test_temp_dir_remove(dir);
}

/* --- a tower inside ------------------------------------------------------------------------------------------- */

/* Llama 4 as Ollama wrote it: one file. */
static void test_inside(void **state) {
    const eyes_gguf f = { "llama4", NULL, NULL, false };
    char           *dir = test_temp_dir(), file[512];
    model_file     *m, *mm;
    vision         *one, *two;
    pixels          p;
    err             e = { 0 };
    (void)state;
    snprintf(file, sizeof file, "%s/llama4.gguf", dir);
    assert_int_equal(model_file_open(&m, DIR "/llama4", &e), 0);
    int width = eyes_gguf_width(m);
    eyes_gguf_write_inside(m, file);
    assert_int_equal(model_file_open(&mm, file, &e), 0);
    assert_int_equal(vision_open(&one, m, NULL, width, &(vision_options){ 0 }, &e), 0);
    int rc = vision_open(&two, mm, NULL, width, &(vision_options){ 0 }, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_non_null(two);
    read_picture(&p);
    same_rows(&f, one, two, &p, width);
    vision_free(one);
    vision_free(two);
    pixels_deinit(&p);
    model_file_free(mm);
    model_file_free(m);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_rows), cmocka_unit_test(test_inside) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
