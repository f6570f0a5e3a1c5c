/* SPDX-License-Identifier: Apache-2.0 */
/* What of a tower's file counts for the keys of its rows, which the prefix cache on disk has, too; and numbers in GGUF files that
 * are none. */
#include "unit/support/support.h"
#include "vision/internal.h"

#include "base/file.h"
#include "convert/gguf_writer.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision/llava"

/* A copy of the golden model, with the sign of a tensor's element turned (at: its place; negative: from the end), written at a
 * second of the clock. */
static void copy_model(const char *dir, const char *tensor, int at, time_t second) {
    static const char *const names[] = { "config.json", "preprocessor_config.json" };
    char                    *to = path_join(dir, "model.safetensors"), *data;
    model_file              *m;
    size_t                   n;
    uint64_t                 offset = 0;
    err                      e = { 0 };
    for (int i = 0; i < 2; i++) {
        char *link = path_join(dir, names[i]), from[512];
        snprintf(from, sizeof from, "%s/%s", DIR, names[i]);
        assert_int_equal(symlink(from, link), 0);
        free(link);
    }
    assert_int_equal(file_read(&data, &n, DIR "/model.safetensors", 16 << 20, &e), 0);
    if (tensor) {
        assert_int_equal(model_file_open(&m, DIR, &e), 0);
        const model_tensor *t = model_file_tensor(m, tensor);
        assert_non_null(t);
        assert_int_equal(model_file_locate(m, t->data, t->bytes, &offset), 0);
        data[offset + (at < 0 ? t->bytes : 0) + (size_t)(2 * at + 1)] ^= (char)0x80; /* BF16 */
        model_file_free(m);
    }
    FILE *f = fopen(to, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    struct timespec times[2] = { { .tv_sec = second }, { .tv_sec = second } };
    assert_int_equal(utimensat(AT_FDCWD, to, times, 0), 0);
    free(data);
    free(to);
}

static void find_key(uint8_t key[VISION_KEY_BYTES], const char *tensor, int at, time_t second) {
    char              *dir = test_temp_dir();
    model_file        *m;
    vision            *v;
    const vision_rows *rows;
    pixels             p;
    err                e = { 0 };
    copy_model(dir, tensor, at, second);
    assert_int_equal(model_file_open(&m, dir, &e), 0);
    assert_int_equal(vision_open(&v, m, NULL, 32, &(vision_options){ .n_threads = 1 }, &e), 0);
    assert_int_equal(pixels_init(&p, 30, 20, &e), 0);
    assert_int_equal(vision_encode(v, &p, &rows, &e), 0);
    memcpy(key, rows->key, VISION_KEY_BYTES);
    pixels_deinit(&p);
    vision_free(v);
    model_file_free(m);
    test_temp_dir_remove(dir);
}

static void test_keys(void **state) {
    static const char table[] = "vision_tower.embeddings.position_embedding.weight"; /* [17][32] */
    uint8_t           one[VISION_KEY_BYTES], other[VISION_KEY_BYTES];
    (void)state;
    find_key(one, NULL, 0, 1000);
    find_key(other, NULL, 0, 1000);
    assert_memory_equal(one, other, VISION_KEY_BYTES);
    find_key(other, table, 1, 1000);
    assert_memory_not_equal(one, other, VISION_KEY_BYTES);
    find_key(other, table, 17 * 32 / 2, 1000);
    assert_memory_not_equal(one, other, VISION_KEY_BYTES);
    find_key(other, table, -1, 1000);
    assert_memory_not_equal(one, other, VISION_KEY_BYTES);
    find_key(other, NULL, 0, 2000); /* written again */
    assert_memory_not_equal(one, other, VISION_KEY_BYTES);
}

static void test_grids(void **state) {
    static const float grids[][2] = { { NAN, 28 }, { 28, 1e30f }, { -INFINITY, 28 }, { 28, 0.5f }, { 28, 56 } };
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char        *dir = test_temp_dir(), *path = path_join(dir, "mmproj.gguf");
        gguf_writer *w;
        model_file  *m, *mm;
        vision_rules r;
        bool         known = false;
        err          e = { 0 };
        assert_int_equal(gguf_writer_open(&w, 0, &e), 0);
        assert_int_equal(gguf_writer_set_string(w, "general.architecture", "clip", NULL), 0);
        assert_int_equal(gguf_writer_set_string(w, "clip.projector_type", "mlp", NULL), 0);
        assert_int_equal(gguf_writer_set_int(w, "clip.vision.image_size", META_U32, 28, NULL), 0);
        assert_int_equal(gguf_writer_set_int(w, "clip.vision.patch_size", META_U32, 14, NULL), 0);
        assert_int_equal(gguf_writer_set_array(w, "clip.vision.image_grid_pinpoints", META_F32, grids[i], 2, NULL), 0);
        assert_int_equal(gguf_writer_write(w, path, &e), 0);
        gguf_writer_free(w);
        assert_int_equal(model_file_open(&m, DIR, &e), 0);
        assert_int_equal(model_file_open(&mm, path, &e), 0);
        int rc = rules_read(&r, m, mm, &known, &e);
        assert_true(known);
        if (i + 1 < sizeof grids / sizeof *grids) {
            assert_int_equal(rc, ERR_UNSUPPORTED);
            assert_non_null(strstr(e.msg, "image_grid_pinpoints"));
        } else {
            assert_int_equal(rc, 0);
            assert_int_equal(r.n_grids, 1);
            assert_int_equal(r.grid[0][1], 2);
        }
        model_file_free(mm);
        model_file_free(m);
        free(path);
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_keys), cmocka_unit_test(test_grids) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
