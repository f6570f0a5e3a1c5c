/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sounds through the tower, against an implementation of the published equations in double precision (tests/golden/sound.py):
 * the mel spectrogram, the rows that come out, and the logits of a prompt with them in it; from the directory, and from the
 * same tower as an mmproj file. HEARTH_TEST_DEVICE names another device than the CPU.
 */
#include "vision/ears.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/safetensors_writer.h"
#include "media/sound.h"
#include "models/list.h"
#include "nn/model.h"
#include "tensor/half.h"
#include "tools/simple.h"
#include "unit/support/ears_gguf.h"
#include "unit/support/support.h"
#include "vision/internal.h"
#include "vision/mel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/sound"

enum { POSITIONS = 20, MELS = 16, WIDTH = 32, ROWS = 5 };

typedef struct golden {
    char             *text;
    float            *mel, *rows, *logits;
    const json_value *doc;
    arena             mem;
    model_file       *file;
    nn_model         *model;
    ears             *h;
} golden;

static char *load(const char *name, size_t *n) {
    char   path[512], *out = NULL;
    size_t bytes;
    err    e = { 0 };
    snprintf(path, sizeof path, "%s/%s", DIR, name);
    assert_int_equal(file_read(&out, n ? n : &bytes, path, 1 << 20, &e), 0);
    return out;
}

static int integer(const json_value *v, const char *key) {
    int64_t x = -1;
    assert_true(json_int(json_get(v, key), &x));
    return (int)x;
}

static double real(const json_value *v, const char *key) {
    double x = 0;
    assert_true(json_number(json_get(v, key), &x));
    return x;
}

/* Without a name the best device of the machine would be taken. */
static vision_options options(void) {
    const char *device = getenv("HEARTH_TEST_DEVICE");
    return (vision_options){ .device = device ? device : "cpu" };
}

/* A GPU multiplies 16-bit numbers. */
static double bound(double usual) {
    const char *device = getenv("HEARTH_TEST_DEVICE");
    return device && strncmp(device, "cuda", 4) == 0 ? 2.5e-2 : usual;
}

static void open_golden(golden *g) {
    vision_options o = options();
    size_t         n;
    err            e = { 0 };
    *g = (golden){ .text = load("voxtral/golden.json", &n) };
    arena_init(&g->mem, 0);
    assert_int_equal(json_parse(&g->doc, g->text, n, &g->mem, &e), 0);
    g->mel = (float *)(void *)load("voxtral/mel.f32", NULL);
    g->rows = (float *)(void *)load("voxtral/rows.f32", NULL);
    g->logits = (float *)(void *)load("voxtral/logits.f32", NULL);
    int rc = model_file_open(&g->file, DIR "/voxtral", &e);
    if (rc == 0) rc = nn_model_open(&g->model, g->file, models_list, NULL, &e);
    if (rc == 0) rc = ears_open(&g->h, g->file, NULL, g->model->dims->n_embd, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_non_null(g->h);
}

static void close_golden(golden *g) {
    ears_free(g->h);
    nn_model_free(g->model);
    model_file_free(g->file);
    arena_deinit(&g->mem);
    free(g->text);
    free(g->mel);
    free(g->rows);
    free(g->logits);
}

static void read_sound(sound *s, const char *name) {
    char   file[64], *data;
    size_t n;
    err    e = { 0 };
    snprintf(file, sizeof file, "sounds/%s.wav", name);
    data = load(file, &n);
    assert_int_equal(media_sound_decode(s, data, n, MEDIA_SOUND_SECONDS, &e), 0);
    free(data);
}

static double worst(const float *a, const float *b, size_t n) {
    double off = 0;
    for (size_t i = 0; i < n; i++) off = fmax(off, fabs((double)a[i] - (double)b[i]));
    return off;
}

static const char *const names[] = { "a", "b", "c" };

static void test_mel(void **state) {
    static const int bins[] = { MELS, 80, 128 };
    golden           g;
    (void)state;
    open_golden(&g);
    for (int i = 0; i < 3; i++) {
        const json_value *one = json_get(json_get(g.doc, "sounds"), names[i]);
        sound             s;
        read_sound(&s, names[i]);
        for (int k = 0; k < (i ? 1 : 3); k++) {
            char key[8];
            mel  m;
            err  e = { 0 };
            snprintf(key, sizeof key, "%d", bins[k]);
            assert_int_equal(mel_make_whisper(&m, &s, bins[k], 2 * POSITIONS, &e), 0);
            assert_int_equal(m.frames, integer(one, "frames"));
            double off = worst(m.at, g.mel + integer(json_get(one, "mel_at"), key), (size_t)(m.frames * m.bins));
            if (off > 1e-4) print_message("%s, %d bins: %g\n", names[i], bins[k], off);
            assert_true(off <= 1e-4);
            mel_free(&m);
        }
        sound_deinit(&s);
    }
    close_golden(&g);
}

static void expect_rows(const golden *g, ears *h, const char *name) {
    const json_value  *one = json_get(json_get(g->doc, "sounds"), name);
    const vision_rows *rows;
    sound              s;
    err                e = { 0 };
    str                words;
    read_sound(&s, name);
    assert_int_equal(ears_encode(h, &s, NULL, &rows, &e), 0);
    assert_int_equal(rows->n, integer(one, "rows"));
    assert_int_equal(rows->width, WIDTH);
    double off = worst(rows->data, g->rows + integer(one, "rows_at"), (size_t)(rows->n * rows->width));
    off /= real(one, "std");
    if (off > 1e-4) print_message("rows of %s differ by %g of their deviation\n", name, off);
    assert_true(off <= bound(1e-4));
    /* As many words stand for it. */
    str_init(&words);
    assert_int_equal(ears_write(h, s.n, &words, &e), 0);
    assert_int_equal(words.len, strlen("[BEGIN_AUDIO]") + (size_t)rows->n * strlen(ears_row_word(h)));
    str_deinit(&words);
    sound_deinit(&s);
}

static void test_rows(void **state) {
    golden g;
    (void)state;
    open_golden(&g);
    for (int i = 0; i < 3; i++) expect_rows(&g, g.h, names[i]);
    close_golden(&g);
}

/* What is encoded is found again by its content, and another sound is another one. */
static void test_kept(void **state) {
    golden             g;
    const vision_rows *rows;
    uint8_t            first[VISION_KEY_BYTES];
    const float       *data;
    sound              s;
    err                e = { 0 };
    (void)state;
    open_golden(&g);
    read_sound(&s, "a");
    assert_int_equal(ears_encode(g.h, &s, NULL, &rows, &e), 0);
    memcpy(first, rows->key, sizeof first);
    data = rows->data;
    assert_int_equal(ears_encode(g.h, &s, NULL, &rows, &e), 0);
    assert_ptr_equal(rows->data, data);
    s.at[s.n - 1] += 0.001f;
    assert_int_equal(ears_encode(g.h, &s, NULL, &rows, &e), 0);
    assert_ptr_not_equal(rows->data, data);
    assert_memory_not_equal(rows->key, first, sizeof first);
    sound_deinit(&s);
    close_golden(&g);
}

/* The prompt in one batch, the rows in their places. */
static void test_logits(void **state) {
    golden g;
    (void)state;
    open_golden(&g);
    const json_value *cases = json_get(g.doc, "cases");
    int               audio = integer(g.doc, "audio_token"), last = integer(g.doc, "last");
    for (size_t c = 0; c < json_count(cases); c++) {
        const json_value *one = json_at(cases, c), *ids = json_get(one, "tokens");
        int               n = (int)json_count(ids), at = 0;
        size_t            used = 0;
        int32_t          *tokens = calloc((size_t)n, sizeof *tokens);
        const float     **embd = calloc((size_t)n, sizeof *embd);
        float            *all = NULL;
        simple            s;
        err               e = { 0 };
        for (size_t i = 0; i < json_count(json_get(one, "sounds")); i++) {
            const vision_rows *rows;
            sound              x;
            read_sound(&x, json_cstr(json_at(json_get(one, "sounds"), i)));
            assert_int_equal(ears_encode(g.h, &x, NULL, &rows, &e), 0);
            size_t more = (size_t)(rows->n * rows->width);
            all = realloc(all, (used + more) * sizeof *all);
            memcpy(all + used, rows->data, more * sizeof *all);
            used += more;
            sound_deinit(&x);
        }
        for (int i = 0; i < n; i++) {
            int64_t id = 0;
            assert_true(json_int(json_at(ids, (size_t)i), &id));
            tokens[i] = (int32_t)id;
            if (id == audio) embd[i] = all + (size_t)at++ * WIDTH;
        }
        assert_int_equal((size_t)at * WIDTH, used);
        assert_int_equal(
            simple_open(&s, options().device, g.model, &(simple_options){ .max_len = n, .max_tokens = n }, &e), 0);
        assert_int_equal(simple_batch(&s, &(simple_feed){ .ids = tokens, .n = n, .all = true }, 1, &e), 0);
        s.batch.embd = embd;
        assert_int_equal(nn_exec_step(s.exec, &s.batch, &e), 0);
        int          vocab = g.model->dims->n_vocab;
        const float *got = simple_fetch(&s, NN_FETCH_LOGITS, &e) + (size_t)(n - last) * (size_t)vocab;
        double       off = worst(got, g.logits + integer(one, "logits_at"), (size_t)(last * vocab));
        off /= real(one, "std");
        if (off > 2e-3) print_message("logits of case %zu differ by %g of their deviation\n", c, off);
        assert_true(off <= bound(2e-3));
        simple_close(&s);
        free(all);
        free(tokens);
        free(embd);
    }
    close_golden(&g);
}

/* --- the mmproj form --- */

static const ears_gguf *voxtral(void) {
    const ears_gguf *f = ears_gguf_families;
    while (strcmp(f->name, "voxtral") != 0) f++;
    return f;
}

/* The same tower under the names of published converters: the same rows, to the bit. */
static void test_mmproj(void **state) {
    golden             g;
    model_file        *mmproj;
    ears              *h;
    const vision_rows *a, *b;
    sound              s;
    err                e = { 0 };
    char              *dir = test_temp_dir(), *path = path_join(dir, "ears.gguf");
    vision_options     o = options();
    (void)state;
    open_golden(&g);
    ears_gguf_write(voxtral(), g.file, path, NULL, 0);
    assert_int_equal(model_file_open(&mmproj, path, &e), 0);
    assert_true(ears_known(g.file, mmproj));
    assert_false(vision_known(g.file, mmproj));
    int rc = ears_open(&h, g.file, mmproj, WIDTH, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    for (int i = 0; i < 3; i++) {
        expect_rows(&g, h, names[i]);
        read_sound(&s, names[i]);
        assert_int_equal(ears_encode(g.h, &s, NULL, &a, &e), 0);
        assert_int_equal(ears_encode(h, &s, NULL, &b, &e), 0);
        assert_memory_equal(a->data, b->data, (size_t)(a->n * a->width) * sizeof *a->data);
        sound_deinit(&s);
    }
    ears_free(h);
    assert_int_equal(ears_open(&h, g.file, mmproj, 64, &(vision_options){ 0 }, &e), ERR_ARG); /* another model's */
    assert_null(h);
    model_file_free(mmproj);
    free(path);
    test_temp_dir_remove(dir);
    close_golden(&g);
}

/* [n][channel][tap] becomes [n][tap][channel], as MLX has it; two bytes each. */
static uint16_t *channels_last(const model_tensor *t, int64_t dims[3]) {
    int64_t         taps = t->dims[0], channels = t->dims[1], n = t->dims[2];
    const uint16_t *from = (const void *)t->data;
    uint16_t       *to = malloc(t->bytes);
    for (int64_t i = 0; i < n * channels * taps; i++)
        to[(i / (channels * taps) * taps + i % taps) * channels + i / taps % channels] = from[i];
    dims[0] = channels;
    dims[1] = taps;
    dims[2] = n;
    return to;
}

/* A directory of MLX: the same rows, to the bit. */
static void test_mlx(void **state) {
    golden              g;
    model_file         *mlx;
    ears               *h;
    safetensors_writer *w;
    void               *kept[2] = { 0 };
    int                 n_kept = 0;
    const vision_rows  *a, *b;
    sound               s;
    err                 e = { 0 };
    vision_options      o = options();
    char *dir = test_temp_dir(), *path = path_join(dir, "model.safetensors"), *config = path_join(dir, "config.json");
    (void)state;
    open_golden(&g);
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < model_file_tensor_count(g.file); i++) {
        const model_tensor *t = model_file_tensor_at(g.file, i);
        const void         *data = t->data;
        int64_t             dims[MODEL_MAX_DIMS];
        memcpy(dims, t->dims, sizeof dims);
        if (t->n_dims == 3) data = kept[n_kept++] = channels_last(t, dims);
        assert_int_equal(safetensors_writer_add(w, t->name, t->type, t->n_dims, dims, data, t->bytes, &e), 0);
    }
    assert_int_equal(n_kept, 2);
    assert_int_equal(safetensors_writer_write(w, path, &e), 0);
    safetensors_writer_free(w);
    assert_int_equal(symlink(DIR "/voxtral/config.json", config), 0);
    assert_int_equal(model_file_open(&mlx, dir, &e), 0);
    int rc = ears_open(&h, mlx, NULL, WIDTH, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    read_sound(&s, "b");
    assert_int_equal(ears_encode(g.h, &s, NULL, &a, &e), 0);
    assert_int_equal(ears_encode(h, &s, NULL, &b, &e), 0);
    assert_memory_equal(a->data, b->data, (size_t)(a->n * a->width) * sizeof *a->data);
    sound_deinit(&s);
    ears_free(h);
    model_file_free(mlx);
    for (int i = 0; i < 2; i++) free(kept[i]);
    free(config);
    free(path);
    test_temp_dir_remove(dir);
    close_golden(&g);
}

/* Files that contradict themselves are refused with a sentence. */
static void test_nonsense(void **state) {
    static const struct {
        const char *key;
        int64_t     value;
    } bad[] = { { "clip.audio.num_mel_bins", 0 },           { "clip.audio.num_mel_bins", 17 },
                { "clip.audio.num_mel_bins", 1 << 30 },     { "clip.audio.projector.stack_factor", 0 },
                { "clip.audio.projector.stack_factor", 3 }, { "clip.audio.projector.stack_factor", 5 },
                { "clip.audio.attention.head_count", 5 },   { "clip.audio.embedding_length", 33 },
                { "clip.audio.projection_dim", 16 } };
    golden g;
    char  *dir = test_temp_dir(), *path = path_join(dir, "bad-ears.gguf");
    (void)state;
    open_golden(&g);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_file *mmproj;
        ears       *h;
        err         e = { 0 };
        ears_gguf_write(voxtral(), g.file, path, bad[i].key, bad[i].value);
        assert_int_equal(model_file_open(&mmproj, path, &e), 0);
        assert_true(ears_open(&h, g.file, mmproj, WIDTH, &(vision_options){ 0 }, &e) < 0);
        assert_true(e.msg[0]);
        assert_null(h);
        model_file_free(mmproj);
    }
    free(path);
    test_temp_dir_remove(dir);
    close_golden(&g);
}

/* What is measured before is what opened ears take, and a model without ears has none. */
static void test_measure(void **state) {
    golden      g;
    uint64_t    bytes, on_device;
    model_file *other;
    ears       *h;
    err         e = { 0 };
    (void)state;
    open_golden(&g);
    assert_int_equal(ears_measure(&bytes, &on_device, g.file, NULL, WIDTH,
                                  &(vision_options){ .device = "cpu", .cache_bytes = 1000 }, &e),
                     0);
    assert_true(bytes > 1000 + POSITIONS * (5 * MELS + 1 + WIDTH + WIDTH) * sizeof(float));
    assert_int_equal(on_device, 0);
    assert_int_equal(model_file_open(&other, HEARTH_SOURCE_DIR "/tests/golden/vision/pixtral", &e), 0);
    assert_false(ears_known(other, NULL));
    assert_int_equal(ears_open(&h, other, NULL, WIDTH, &(vision_options){ 0 }, &e), 0);
    assert_null(h);
    model_file_free(other);
    close_golden(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mel),      cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_kept),     cmocka_unit_test(test_logits),
                                        cmocka_unit_test(test_mmproj),   cmocka_unit_test(test_mlx),
                                        cmocka_unit_test(test_nonsense), cmocka_unit_test(test_measure) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
