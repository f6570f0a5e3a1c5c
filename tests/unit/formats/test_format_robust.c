/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Damaged model files give an error with a sentence or a valid read, never a crash, a hang or a leak.
 *
 * Every fixture file is cut at every 64th byte, and 10,000 damaged variants per format are read; what opens is walked
 * to the first and last byte of every tensor, every key and every array element. Single files are also read from exact
 * heap copies, where a sanitizer sees a read of one byte too many. The seed is fixed: a failure repeats.
 */
#include "unit/support/model.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VARIANTS = 10000, STEP = 64 };

typedef struct blob {
    char  *name; /* below its directory */
    char  *data;
    size_t bytes;
} blob;

typedef struct tally {
    size_t   opened, refused;
    uint64_t sum; /* of everything read, so that reading is not optimized away */
} tally;

static blob blob_load(const char *relative, const char *name) {
    blob  b = { .name = strdup(name) };
    char *below = path_join("formats", relative), *path = test_fixture_path(below);
    assert_int_equal(file_read(&b.data, &b.bytes, path, 1 << 20, NULL), 0);
    free(below);
    free(path);
    return b;
}

static void blob_free(blob *b) {
    free(b->name);
    free(b->data);
}

/* Damages a copy: a few random bytes, bits, or whole 64-bit fields with values that tempt arithmetic; half of the time
 * near the beginning, where the header is. May shorten it too. */
static size_t damage(uint8_t *copy, size_t bytes, uint64_t *state) {
    static const uint64_t tempting[] = { 0,
                                         1,
                                         UINT64_MAX,
                                         INT64_MAX,
                                         (uint64_t)1 << 63,
                                         (uint64_t)1 << 32,
                                         0xFFFFFFFF,
                                         (uint64_t)1 << 61,
                                         4096,
                                         0x8000000000000001 };
    size_t                n = 1 + test_random(state) % 6;
    for (size_t i = 0; i < n; i++) {
        size_t range = test_random(state) % 2 && bytes > 1500 ? 1500 : bytes;
        size_t at = test_random(state) % range;
        switch (test_random(state) % 4) {
        case 0: copy[at] = (uint8_t)test_random(state); break;
        case 1: copy[at] ^= (uint8_t)(1u << test_random(state) % 8); break;
        case 2: copy[at] = (uint8_t) "0123456789\"{}[],:-e\\"[test_random(state) % 20]; break;
        default:
            if (at + 8 <= bytes) memcpy(copy + at, &tempting[test_random(state) % (sizeof tempting / 8)], 8);
        }
    }
    return test_random(state) % 8 ? bytes : test_random(state) % (bytes + 1);
}

static void count(tally *t, int rc, const err *e) {
    if (rc == 0) {
        t->opened++;
    } else {
        t->refused++;
        assert_int_equal(e->code, rc);
        assert_true(strlen(e->msg) > 8);
    }
}

/* ---- from memory ---- */

static void read_memory(const uint8_t *bytes, size_t n, bool is_gguf, tally *t) {
    tensor_table table;
    gguf         g;
    safetensors  s;
    err          e = { 0 };
    uint8_t     *exact = malloc(n ? n : 1); /* no byte behind the end */
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    tensor_table_init(&table);
    int rc = is_gguf ? gguf_read_memory(&g, exact, n, &table, &e)
                     : safetensors_read_memory(&s, exact, n, &table, NULL, NULL, &e);
    count(t, rc, &e);
    if (rc == 0) {
        for (size_t i = 0; i < table.count; i++) {
            const model_tensor *x = &table.items[i];
            if (x->bytes) t->sum += x->data[0] + x->data[x->bytes - 1];
        }
        for (size_t i = 0; is_gguf && i < g.n_keys; i++) t->sum += test_value_walk(&g.keys[i].value);
        if (is_gguf)
            gguf_deinit(&g);
        else
            safetensors_deinit(&s);
    }
    tensor_table_deinit(&table);
    free(exact);
}

static void memory_variants(const char *const *files, size_t n_files, bool is_gguf) {
    tally    t = { 0 };
    uint64_t state = 1;
    size_t   cuts = 0;
    for (size_t f = 0; f < n_files; f++) {
        blob b = blob_load(files[f], "x");
        for (size_t n = 0; n < b.bytes; n += STEP, cuts++) read_memory((uint8_t *)b.data, n, is_gguf, &t);
        uint8_t *copy = malloc(b.bytes);
        for (size_t i = 0; i < VARIANTS / n_files + 1; i++) {
            memcpy(copy, b.data, b.bytes);
            size_t n = damage(copy, b.bytes, &state);
            read_memory(copy, n, is_gguf, &t);
        }
        free(copy);
        blob_free(&b);
    }
    printf("%zu cuts and damaged variants: %zu opened, %zu refused\n", t.opened + t.refused, t.opened, t.refused);
    assert_true(t.opened > 500 && t.refused > 500); /* both outcomes are really tested */
    assert_true(t.opened + t.refused >= VARIANTS + cuts);
}

static void test_gguf_memory(void **state) {
    static const char *const files[] = { "v3.gguf", "v2.gguf", "vocab-only.gguf", "split/tiny-00001-of-00003.gguf" };
    (void)state;
    memory_variants(files, 4, true);
}

static void test_safetensors_memory(void **state) {
    static const char *const files[] = { "plain.safetensors", "odd.safetensors", "mlx/model.safetensors" };
    (void)state;
    memory_variants(files, 3, false);
}

/* ---- through model_file_open ---- */

static void open_path(const char *path, tally *t) {
    model_file *m;
    err         e = { 0 };
    int         rc = model_file_open(&m, path, &e);
    count(t, rc, &e);
    if (rc == 0) {
        model_summary s;
        t->sum += test_model_walk(m);
        model_summary_read(&s, m);
        t->sum += s.parameters + s.kv_bytes;
        model_summary_deinit(&s);
        model_file_free(m);
    } else {
        assert_null(m);
    }
}

static void put(const char *dir, const blob *b, const void *data, size_t bytes) {
    char *path = path_join(dir, b->name);
    (void)unlink(path); /* a new file each time: some file systems flush one that is truncated and written again */
    test_write_file(path, data, bytes);
    free(path);
}

/* The files of one model; one of them is damaged at a time and the model is opened through `entry`. */
static void directory_variants(const char *below, const char *const *files, size_t n_files, const char *entry) {
    char    *dir = test_temp_dir(), *target = entry ? path_join(dir, entry) : strdup(dir);
    blob     blobs[8];
    tally    t = { 0 };
    uint64_t state = 2;
    size_t   cuts = 0;
    assert_true(n_files <= 8);
    for (size_t f = 0; f < n_files; f++) {
        char *relative = path_join(below, files[f]);
        blobs[f] = blob_load(relative, files[f]);
        put(dir, &blobs[f], blobs[f].data, blobs[f].bytes);
        free(relative);
    }
    open_path(target, &t);
    assert_int_equal(t.opened, 1);
    for (size_t f = 0; f < n_files; f++) {
        blob    *b = &blobs[f];
        uint8_t *copy = malloc(b->bytes);
        for (size_t n = 0; n < b->bytes; n += STEP, cuts++) {
            put(dir, b, b->data, n);
            open_path(target, &t);
        }
        for (size_t i = 0; i < VARIANTS / n_files + 1; i++) {
            memcpy(copy, b->data, b->bytes);
            size_t n = damage(copy, b->bytes, &state);
            put(dir, b, copy, n);
            open_path(target, &t);
        }
        put(dir, b, b->data, b->bytes);
        free(copy);
    }
    printf("%zu cuts and damaged variants: %zu opened, %zu refused\n", t.opened + t.refused, t.opened, t.refused);
    assert_true(t.opened > 500 && t.refused > 500);
    assert_true(t.opened + t.refused >= VARIANTS + cuts);
    for (size_t f = 0; f < n_files; f++) blob_free(&blobs[f]);
    free(target);
    test_temp_dir_remove(dir);
}

static void test_split_files(void **state) {
    static const char *const files[] = { "tiny-00001-of-00003.gguf", "tiny-00002-of-00003.gguf",
                                         "tiny-00003-of-00003.gguf" };
    (void)state;
    directory_variants("split", files, 3, "tiny-00002-of-00003.gguf");
}

static void test_hf_directory(void **state) {
    static const char *const files[] = { "config.json",
                                         "model.safetensors.index.json",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer_config.json" };
    (void)state;
    directory_variants("hf", files, 7, NULL);
}

static void test_mlx_directory(void **state) {
    static const char *const files[] = { "config.json", "model.safetensors" };
    (void)state;
    directory_variants("mlx", files, 2, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gguf_memory),   cmocka_unit_test(test_safetensors_memory),
        cmocka_unit_test(test_split_files),   cmocka_unit_test(test_hf_directory),
        cmocka_unit_test(test_mlx_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
