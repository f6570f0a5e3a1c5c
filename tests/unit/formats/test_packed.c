/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints packed by other tools: written here element by element as their formats are described, then read. */
#include "unit/support/support.h"

#include "base/file.h"
#include "convert/safetensors_writer.h"
#include "formats/model_file.h"
#include "tensor/codec.h"
#include "tensor/half.h"
#include "unit/support/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 64, COLS = 256, GROUP = 64, GROUPS = COLS / GROUP };

static unsigned q[ROWS][COLS], z[ROWS][GROUPS];
static uint16_t s[ROWS][GROUPS]; /* halves */

static void draw(int bits) {
    uint64_t rng = 11;
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) q[r][c] = (unsigned)(test_random(&rng) % (1u << bits));
        for (int g = 0; g < GROUPS; g++) {
            z[r][g] = 1 + (unsigned)(test_random(&rng) % ((1u << bits) - 1));
            s[r][g] = tensor_f32_to_f16(0.001f * (float)(1 + test_random(&rng) % 100));
        }
    }
}

static void put(uint32_t *words, int64_t bit, unsigned v, int bits) {
    uint64_t x = (uint64_t)v << (bit % 32);
    words[bit / 32] |= (uint32_t)x;
    if (bit % 32 + bits > 32) words[bit / 32 + 1] |= (uint32_t)(x >> 32);
}

static void save(const char *dir, safetensors_writer *w, const char *config) {
    char *path = path_join(dir, "model.safetensors"), *json = path_join(dir, "config.json");
    assert_int_equal(safetensors_writer_write(w, path, NULL), 0);
    safetensors_writer_free(w);
    test_write_file(json, config, strlen(config));
    free(path), free(json);
}

static void add(safetensors_writer *w, const char *name, tensor_type type, int64_t cols, int64_t rows,
                const void *data) {
    int64_t dims[2] = { cols, rows };
    size_t  bytes = (size_t)(cols * rows) * (type == TENSOR_F16 ? 2 : 4);
    assert_int_equal(safetensors_writer_add(w, name, type, 2, dims, data, bytes, NULL), 0);
}

/* Every weight as the formula says; exact: s q - s z has no more bits than a float. */
static void check(const char *dir, int bits) {
    model_file *m = NULL;
    err         e = { 0 };
    model_quant k;
    assert_int_equal(model_file_open(&m, dir, &e), 0);
    assert_true(model_file_quant(m, "a.up_proj", &k));
    assert_true(k.mode == MODEL_QUANT_AFFINE && k.bits == bits && k.group == GROUP);
    const model_tensor *t = model_file_tensor(m, "a.up_proj.weight"),
                       *scales = model_file_tensor(m, "a.up_proj.scales"),
                       *biases = model_file_tensor(m, "a.up_proj.biases");
    assert_true(t && scales && biases && t->type == TENSOR_U32);
    assert_int_equal(t->dims[0], COLS * bits / 32);
    assert_int_equal(t->dims[1], ROWS);
    int type = bits == 3 ? TENSOR_MLX_AFF3 : bits == 8 ? TENSOR_MLX_AFF8 : TENSOR_MLX_AFF4;
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            float    scale, bias;
            unsigned got = tensor_packed_get(type, t->data + (size_t)r * COLS * (size_t)bits / 8, c);
            memcpy(&scale, scales->data + 4 * (r * GROUPS + c / GROUP), 4);
            memcpy(&bias, biases->data + 4 * (r * GROUPS + c / GROUP), 4);
            double want = (double)tensor_f16_to_f32(s[r][c / GROUP]) * ((double)q[r][c] - (double)z[r][c / GROUP]);
            assert_int_equal(got, q[r][c]);
            assert_true((double)scale * got + (double)bias == want);
        }
    }
    model_file_free(m);
}

static void write_gptq(const char *dir, int bits, bool newer, const int32_t *order) {
    static uint32_t     words[ROWS * COLS], columns[COLS], zeros[GROUPS * ROWS];
    static uint16_t     scales[GROUPS * ROWS];
    safetensors_writer *w;
    char                config[300];
    memset(words, 0, sizeof words);
    memset(zeros, 0, sizeof zeros);
    for (int r = 0; r < ROWS; r++) {
        memset(columns, 0, sizeof columns);
        for (int c = 0; c < COLS; c++) put(columns, (int64_t)c * bits, q[r][c], bits);
        for (int k = 0; k < COLS * bits / 32; k++) words[k * ROWS + r] = columns[k];
        for (int g = 0; g < GROUPS; g++) {
            put(zeros + g * ROWS * bits / 32, (int64_t)r * bits, z[r][g] - (newer ? 0 : 1), bits);
            scales[g * ROWS + r] = s[r][g];
        }
    }
    assert_int_equal(safetensors_writer_open(&w, NULL), 0);
    add(w, "a.up_proj.qweight", TENSOR_I32, ROWS, COLS * bits / 32, words);
    add(w, "a.up_proj.qzeros", TENSOR_I32, ROWS * bits / 32, GROUPS, zeros);
    add(w, "a.up_proj.scales", TENSOR_F16, ROWS, GROUPS, scales);
    if (order) {
        int64_t dims[1] = { COLS };
        assert_int_equal(safetensors_writer_add(w, "a.up_proj.g_idx", TENSOR_I32, 1, dims, order, COLS * 4, NULL), 0);
    }
    snprintf(config, sizeof config,
             "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":%d,\"group_size\":%"
             "d%s}}",
             bits, GROUP, newer ? ",\"checkpoint_format\":\"gptq_v2\"" : "");
    save(dir, w, config);
}

static void test_gptq(void **state) {
    static const int bits[] = { 4, 3, 8 };
    (void)state;
    for (int k = 0; k < 3; k++) {
        char *dir = test_temp_dir();
        draw(bits[k]);
        write_gptq(dir, bits[k], k == 0, NULL);
        check(dir, bits[k]);
        test_temp_dir_remove(dir);
    }
}

/* Columns whose groups are in another order become plain halves; a group that does not exist is refused. */
static void test_gptq_order(void **state) {
    char       *dir = test_temp_dir();
    int32_t     order[COLS];
    model_file *m = NULL;
    model_quant k;
    err         e = { 0 };
    (void)state;
    draw(4);
    for (int c = 0; c < COLS; c++) order[c] = c % GROUPS;
    write_gptq(dir, 4, false, order);
    assert_int_equal(model_file_open(&m, dir, &e), 0);
    assert_false(model_file_quant(m, "a.up_proj", &k));
    const model_tensor *t = model_file_tensor(m, "a.up_proj.weight");
    assert_true(t && t->type == TENSOR_F16 && t->dims[0] == COLS && t->dims[1] == ROWS);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) {
            uint16_t h;
            memcpy(&h, t->data + 2 * (r * COLS + c), 2);
            int   g = c % GROUPS;
            float want = tensor_f16_to_f32(s[r][g]) * (float)((int)q[r][c] - (int)z[r][g]);
            assert_int_equal(h, tensor_f32_to_f16(want));
        }
    }
    model_file_free(m);
    order[7] = GROUPS;
    write_gptq(dir, 4, false, order);
    assert_int_equal(model_file_open(&m, dir, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "a.up_proj"));
    test_temp_dir_remove(dir);
}

static void test_awq(void **state) {
    static const int    place[8] = { 0, 2, 4, 6, 1, 3, 5, 7 }; /* nibble k holds this output of eight */
    static uint32_t     words[COLS * ROWS / 8], zeros[GROUPS * ROWS / 8];
    static uint16_t     scales[GROUPS * ROWS];
    char               *dir = test_temp_dir();
    safetensors_writer *w;
    (void)state;
    draw(4);
    for (int c = 0; c < COLS; c++)
        for (int r8 = 0; r8 < ROWS / 8; r8++)
            for (int k = 0; k < 8; k++) words[c * ROWS / 8 + r8] |= (uint32_t)q[8 * r8 + place[k]][c] << (4 * k);
    for (int g = 0; g < GROUPS; g++) {
        for (int r8 = 0; r8 < ROWS / 8; r8++)
            for (int k = 0; k < 8; k++) zeros[g * ROWS / 8 + r8] |= (uint32_t)z[8 * r8 + place[k]][g] << (4 * k);
        for (int r = 0; r < ROWS; r++) scales[g * ROWS + r] = s[r][g];
    }
    assert_int_equal(safetensors_writer_open(&w, NULL), 0);
    add(w, "a.up_proj.qweight", TENSOR_I32, ROWS / 8, COLS, words);
    add(w, "a.up_proj.qzeros", TENSOR_I32, ROWS / 8, GROUPS, zeros);
    add(w, "a.up_proj.scales", TENSOR_F16, ROWS, GROUPS, scales);
    save(dir, w,
         "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":64}}");
    check(dir, 4);
    test_temp_dir_remove(dir);
}

static void test_compressed(void **state) {
    static uint32_t     words[ROWS * COLS / 8];
    static uint16_t     scales[ROWS * GROUPS];
    char               *dir = test_temp_dir();
    safetensors_writer *w;
    (void)state;
    draw(4);
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < COLS; c++) put(words + r * COLS / 8, (int64_t)c * 4, q[r][c], 4);
        for (int g = 0; g < GROUPS; g++) {
            z[r][g] = 8; /* symmetric */
            scales[r * GROUPS + g] = s[r][g];
        }
    }
    assert_int_equal(safetensors_writer_open(&w, NULL), 0);
    add(w, "a.up_proj.weight_packed", TENSOR_I32, COLS / 8, ROWS, words);
    add(w, "a.up_proj.weight_scale", TENSOR_F16, GROUPS, ROWS, scales);
    save(dir, w,
         "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-"
         "quantized\",\"config_groups\":{\"group_0\":{\"weights\":{\"num_bits\":4,\"group_size\":64}}}}}");
    check(dir, 4);
    test_temp_dir_remove(dir);
}

static void test_incomplete(void **state) {
    char               *dir = test_temp_dir();
    static uint32_t     words[ROWS * 32];
    safetensors_writer *w;
    model_file         *m = NULL;
    err                 e = { 0 };
    (void)state;
    assert_int_equal(safetensors_writer_open(&w, NULL), 0);
    add(w, "a.up_proj.qweight", TENSOR_I32, ROWS, 32, words); /* nothing beside it */
    save(dir, w, "{\"model_type\":\"llama\",\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}");
    assert_int_equal(model_file_open(&m, dir, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "module a.up_proj"));
    assert_null(m);
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq),       cmocka_unit_test(test_gptq_order), cmocka_unit_test(test_awq),
        cmocka_unit_test(test_compressed), cmocka_unit_test(test_incomplete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
