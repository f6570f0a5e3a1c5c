/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Towers from MLX directories: the golden models (tests/golden/vision) under the names that MLX gives them, kernels of
 * convolutions with their channels last, give the same rows to the bit.
 */
#include "unit/support/support.h"

#include "base/file.h"
#include "base/str.h"
#include "convert/safetensors_writer.h"
#include "media/media.h"
#include "models/list.h"
#include "nn/model.h"
#include "vision/vision.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

static const char *const families[] = { "gemma3", "llava",   "mistral3",   "qwen2_5_vl", "qwen3_vl",   "qwen3_5",
                                        "glm4v",  "glm_ocr", "aya_vision", "llava_next", "hunyuan_vl", "qianfan_ocr" };

/* What a name begins with, and what it begins with there. */
static const char *const begins[][2] = { { "model.visual.", "vision_tower." },
                                         { "visual.", "vision_tower." },
                                         { "vit.", "vision_tower." },
                                         { "vision_tower.embeddings.", "vision_tower.vision_model.embeddings." },
                                         { "vision_tower.encoder.", "vision_tower.vision_model.encoder." },
                                         { "vision_tower.post_", "vision_tower.vision_model.post_" },
                                         { "vision_tower.pre_", "vision_tower.vision_model.pre_" },
                                         { "model.language_model.", "language_model.model." },
                                         /* Qianfan-OCR, which transformers saves so. */
                                         { "language_model.model.layers.", "language_model.model.encoder.layers." },
                                         { "lm_head.", "language_model.lm_head." },
                                         { "model.", "language_model.model." } };

static void rename_tensor(const char *name, str *out) {
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        size_t n = strlen(begins[i][0]);
        if (strncmp(name, begins[i][0], n) != 0) continue;
        str_printf(out, "%s%s", begins[i][1], name + n);
        return;
    }
    str_puts(out, name);
}

/* [n][channel][inner] becomes [n][inner][channel]; two bytes each. */
static uint16_t *channels_last(const model_tensor *t, int64_t *dims) {
    int64_t         channels = t->dims[t->n_dims - 2], inner = 1, n = t->dims[t->n_dims - 1];
    const uint16_t *from = (const void *)t->data;
    uint16_t       *to = malloc(t->bytes);
    for (int i = 0; i < t->n_dims - 2; i++) inner *= t->dims[i];
    for (int64_t i = 0; i < n * channels * inner; i++)
        to[(i / (channels * inner) * inner + i % inner) * channels + i / inner % channels] = from[i];
    dims[0] = channels;
    for (int i = 0; i < t->n_dims - 2; i++) dims[i + 1] = t->dims[i];
    dims[t->n_dims - 1] = n;
    return to;
}

static void link_file(const char *family, const char *dir, const char *name) {
    char  from[512];
    char *to = path_join(dir, name);
    snprintf(from, sizeof from, "%s/%s/%s", DIR, family, name);
    assert_int_equal(symlink(from, to), 0);
    free(to);
}

static void write_mlx(const model_file *m, const char *family, const char *dir) {
    size_t              n = model_file_tensor_count(m);
    void              **kept = calloc(n, sizeof *kept);
    char               *path = path_join(dir, "model.safetensors");
    safetensors_writer *w;
    err                 e = { 0 };
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        const void         *data = t->data;
        int64_t             dims[MODEL_MAX_DIMS];
        str                 name;
        str_init(&name);
        rename_tensor(t->name, &name);
        memcpy(dims, t->dims, sizeof dims);
        if (t->n_dims >= 4) data = kept[i] = channels_last(t, dims);
        assert_int_equal(safetensors_writer_add(w, str_cstr(&name), t->type, t->n_dims, dims, data, t->bytes, &e), 0);
        str_deinit(&name);
    }
    int rc = safetensors_writer_write(w, path, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    safetensors_writer_free(w);
    for (size_t i = 0; i < n; i++) free(kept[i]);
    free(kept);
    free(path);
    link_file(family, dir, "config.json");
    link_file(family, dir, "preprocessor_config.json");
}

/* The rows of a picture; the caller frees them. */
static float *look(const model_file *m, size_t *n) {
    nn_model          *model;
    vision            *v;
    const vision_rows *rows;
    pixels             p;
    char              *data = NULL;
    size_t             bytes;
    err                e = { 0 };
    if (nn_model_open(&model, m, models_list, NULL, &e) < 0) fail_msg("%s", e.msg);
    int rc = vision_open(&v, m, NULL, model->dims->n_embd * model->tape->n_parts, &(vision_options){ 0 }, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    assert_non_null(v);
    assert_int_equal(file_read(&data, &bytes, DIR "/pictures/d.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(&p, data, bytes, &media_default_limits, &e), 0);
    assert_int_equal(vision_encode(v, &p, &rows, &e), 0);
    *n = (size_t)rows->n * (size_t)rows->width;
    float *copy = malloc(*n * sizeof *copy);
    memcpy(copy, rows->data, *n * sizeof *copy);
    pixels_deinit(&p);
    free(data);
    vision_free(v);
    nn_model_free(model);
    return copy;
}

static void test_same_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        char        path[512], *dir = test_temp_dir();
        model_file *plain, *mlx;
        size_t      n, m;
        err         e = { 0 };
        snprintf(path, sizeof path, "%s/%s", DIR, families[i]);
        if (model_file_open(&plain, path, &e) < 0) fail_msg("%s", e.msg);
        write_mlx(plain, families[i], dir);
        if (model_file_open(&mlx, dir, &e) < 0) fail_msg("%s", e.msg);
        float *a = look(plain, &n), *b = look(mlx, &m);
        assert_int_equal(n, m);
        if (memcmp(a, b, n * sizeof *a) != 0) fail_msg("%s: other rows", families[i]);
        free(a);
        free(b);
        model_file_free(plain);
        model_file_free(mlx);
        test_temp_dir_remove(dir);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_rows) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
