/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that hear against transformers (tests/golden/hearing.py): the spectra of sounds, the rows that come out, and the logits of
 * prompts with them; and that a directory and an mmproj file give the same bits. HEARTH_TEST_DEVICE names another device than
 * the two that every machine has.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/safetensors_writer.h"
#include "media/sound.h"
#include "models/list.h"
#include "nn/model.h"
#include "nn/tape.h"
#include "tools/simple.h"
#include "unit/support/ears_gguf.h"
#include "unit/support/support.h"
#include "vision/ears_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/hearing"

typedef struct golden {
    const char       *family;
    char             *text;
    float            *mel, *rows, *logits;
    const json_value *doc;
    arena             mem;
    model_file       *file;
    nn_model         *model;
    ears             *h;
} golden;

static char *load(const char *folder, const char *name, size_t *n) {
    char   path[1024], *out = NULL;
    size_t bytes;
    err    e = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!file_exists(path)) return NULL;
    assert_int_equal(file_read(&out, n ? n : &bytes, path, 1 << 20, &e), 0);
    return out;
}

static float *floats(const char *folder, const char *name) { return (float *)(void *)load(folder, name, NULL); }

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

static void open_golden(golden *g, const char *family, const char *device) {
    char   folder[512];
    size_t n;
    err    e = { 0 };
    snprintf(folder, sizeof folder, "%s/%s", DIR, family);
    *g = (golden){ .family = family, .text = load(folder, "golden.json", &n) };
    assert_non_null(g->text);
    arena_init(&g->mem, 0);
    assert_int_equal(json_parse(&g->doc, g->text, n, &g->mem, &e), 0);
    g->mel = floats(folder, "mel.f32");
    g->rows = floats(folder, "rows.f32");
    g->logits = floats(folder, "logits.f32");
    int rc = model_file_open(&g->file, folder, &e);
    if (rc == 0) rc = nn_model_open(&g->model, g->file, models_list, NULL, &e);
    if (rc == 0)
        rc = ears_open(&g->h, g->file, NULL, g->model->dims->n_embd * g->model->tape->n_parts,
                       &(vision_options){ .device = device, .parts = g->model->tape->n_parts }, &e);
    if (rc < 0) print_message("%s: %s\n", family, e.msg);
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
    snprintf(file, sizeof file, "%s.wav", name);
    if (!(data = load(DIR "/sounds", file, &n))) data = load(HEARTH_SOURCE_DIR "/tests/golden/sound/sounds", file, &n);
    assert_non_null(data);
    assert_int_equal(media_sound_decode(s, data, n, MEDIA_SOUND_SECONDS, &e), 0);
    free(data);
}

static double worst(const float *a, const float *b, size_t n) {
    double off = 0;
    for (size_t i = 0; i < n; i++) off = fmax(off, fabs((double)a[i] - (double)b[i]));
    return off;
}

/* A GPU multiplies 16-bit numbers. */
static double bound(const char *device, double usual) { return strncmp(device, "cuda", 4) == 0 ? 2.5e-2 : usual; }

/* --- spectra --- */

static void check_spectra(const golden *g) {
    const json_value *all = json_get(g->doc, "spectra");
    assert_int_equal(json_count(all) > 0, g->h->family->spectrum != NULL);
    for (size_t i = 0; i < json_count(all); i++) {
        const json_value *one = json_at(all, i);
        int               bins = integer(one, "bins");
        sound             s;
        mel               m;
        err               e = { 0 };
        read_sound(&s, json_cstr(json_get(one, "sound")));
        assert_int_equal(g->h->family->spectrum(&m, &g->h->rules, &s, bins, &e), 0);
        assert_int_equal(m.frames, integer(one, "frames"));
        double off = worst(m.at, g->mel + integer(one, "at"), (size_t)(m.frames * bins));
        if (off > 1e-4) print_message("%s: spectrum %zu differs by %g\n", g->family, i, off);
        assert_true(off <= 1e-4);
        mel_free(&m);
        sound_deinit(&s);
    }
}

/* --- rows and logits --- */

/* The rows of a case's sounds, one behind the other; as many words stand for each. */
static float *make_rows(golden *g, const json_value *c, int *n) {
    const json_value *sounds = json_get(c, "sounds");
    float            *all = NULL;
    size_t            used = 0;
    *n = 0;
    for (size_t i = 0; i < json_count(sounds); i++) {
        const vision_rows *rows;
        int64_t            want = 0;
        sound              x;
        str                words;
        err                e = { 0 };
        read_sound(&x, json_cstr(json_at(sounds, i)));
        int rc = ears_encode(g->h, &x, NULL, &rows, &e);
        if (rc < 0) print_message("%s: %s\n", g->family, e.msg);
        assert_int_equal(rc, 0);
        assert_true(json_int(json_at(json_get(c, "counts"), i), &want));
        assert_int_equal(rows->n, want);
        str_init(&words);
        assert_int_equal(ears_write(g->h, x.n, &words, &e), 0);
        size_t found = 0;
        for (const char *at = str_cstr(&words); (at = strstr(at, ears_row_word(g->h))); at++) found++;
        assert_int_equal(found, want);
        str_deinit(&words);
        size_t more = (size_t)(rows->n * rows->width);
        all = realloc(all, (used + more) * sizeof *all);
        memcpy(all + used, rows->data, more * sizeof *all);
        used += more;
        *n += rows->n;
        sound_deinit(&x);
    }
    return all;
}

/* The prompt in one batch, the rows in their places. */
static double logits_off(golden *g, const json_value *c, const float *rows, const char *device) {
    const json_value *ids = json_get(c, "tokens");
    int           n = (int)json_count(ids), at = 0, last = integer(g->doc, "last"), vocab = integer(g->doc, "vocab");
    int32_t      *tokens = calloc((size_t)n, sizeof *tokens);
    const float **embd = calloc((size_t)n, sizeof *embd);
    simple        s;
    err           e = { 0 };
    for (int i = 0; i < n; i++) {
        int64_t id = 0;
        assert_true(json_int(json_at(ids, (size_t)i), &id));
        tokens[i] = (int32_t)id;
        if (id == integer(g->doc, "audio_token"))
            embd[i] = rows + (size_t)at++ * (size_t)(g->model->dims->n_embd * g->model->tape->n_parts);
    }
    assert_int_equal(simple_open(&s, device, g->model, &(simple_options){ .max_len = n, .max_tokens = n }, &e), 0);
    assert_int_equal(simple_batch(&s, &(simple_feed){ .ids = tokens, .n = n, .all = true }, 1, &e), 0);
    s.batch.embd = embd;
    int rc = nn_exec_step(s.exec, &s.batch, &e);
    if (rc < 0) print_message("%s: %s\n", g->family, e.msg);
    assert_int_equal(rc, 0);
    const float *got = simple_fetch(&s, NN_FETCH_LOGITS, &e) + (size_t)(n - last) * (size_t)vocab;
    double       off = worst(got, g->logits + integer(c, "logits_at"), (size_t)(last * vocab));
    simple_close(&s);
    free(tokens);
    free(embd);
    return off / real(c, "logit_std");
}

/* Without a name the best device of the machine would be taken. */
static const char *device_name(void) { return getenv("HEARTH_TEST_DEVICE") ? getenv("HEARTH_TEST_DEVICE") : "cpu"; }

static void check_on(const char *family, const char *device) {
    golden g;
    double most[2] = { 0 };
    open_golden(&g, family, device);
    check_spectra(&g);
    const json_value *cases = json_get(g.doc, "cases");
    assert_int_equal(json_count(cases), 5);
    for (size_t i = 0; i < json_count(cases); i++) {
        const json_value *c = json_at(cases, i);
        int               n;
        float            *rows = make_rows(&g, c, &n);
        size_t            width = (size_t)g.model->dims->n_embd;
        double            off = 0; /* pictures alone have further parts */
        for (size_t k = 0; k < (size_t)n; k++)
            off = fmax(off, worst(rows + k * width * (size_t)g.model->tape->n_parts,
                                  g.rows + (size_t)integer(c, "rows_at") + k * width, width));
        most[0] = fmax(most[0], off / real(c, "row_std"));
        most[1] = fmax(most[1], logits_off(&g, c, rows, device));
        free(rows);
    }
    print_message("%s on %s: rows differ by %.1e, logits by %.1e of their deviation at most\n", family, device, most[0],
                  most[1]);
    assert_true(most[0] <= bound(device, 1e-4));
    assert_true(most[1] <= bound(device, 2e-3));
    close_golden(&g);
}

static void check_family(const char *family) {
    const char *device = getenv("HEARTH_TEST_DEVICE");
    check_on(family, device ? device : "cpu");
    if (!device) check_on(family, "scalar");
}

/* --- other forms of Gemma 4's --- */

/* Other ears give the same rows, to the bit. */
static void expect_same(golden *g, const model_file *model, const model_file *mmproj) {
    const char        *device = device_name();
    const vision_rows *a, *b;
    sound              s;
    ears              *h;
    err                e = { 0 };
    assert_true(ears_known(model, mmproj));
    int rc = ears_open(&h, model, mmproj, g->model->dims->n_embd, &(vision_options){ .device = device }, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    read_sound(&s, "e");
    assert_int_equal(ears_encode(g->h, &s, NULL, &a, &e), 0);
    assert_int_equal(ears_encode(h, &s, NULL, &b, &e), 0);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->data, b->data, (size_t)(a->n * a->width) * sizeof *a->data);
    sound_deinit(&s);
    ears_free(h);
}

static void test_mmproj(void **state) {
    static const struct {
        const char *key;
        int64_t     value;
    } bad[] = { { "clip.audio.num_mel_bins", 0 },         { "clip.audio.num_mel_bins", 18 },
                { "clip.audio.num_mel_bins", 32 },        { "clip.audio.num_mel_bins", 1 << 30 },
                { "clip.audio.attention.head_count", 5 }, { "clip.audio.attention.head_count", 0 },
                { "clip.audio.embedding_length", 48 },    { "clip.audio.block_count", 3 },
                { "clip.audio.projection_dim", 16 } };
    golden      g;
    model_file *mmproj;
    ears       *h;
    err         e = { 0 };
    char       *dir = test_temp_dir(), *path = path_join(dir, "ears.gguf");
    (void)state;
    open_golden(&g, "gemma4", device_name());
    ears_gguf_write_gemma4(g.file, path, NULL, 0);
    assert_int_equal(model_file_open(&mmproj, path, &e), 0);
    expect_same(&g, g.file, mmproj);
    model_file_free(mmproj);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        e = (err){ 0 };
        ears_gguf_write_gemma4(g.file, path, bad[i].key, bad[i].value);
        assert_int_equal(model_file_open(&mmproj, path, &e), 0);
        assert_true(ears_open(&h, g.file, mmproj, 32, &(vision_options){ 0 }, &e) < 0);
        assert_true(e.msg[0]);
        assert_null(h);
        model_file_free(mmproj);
    }
    free(path);
    test_temp_dir_remove(dir);
    close_golden(&g);
}

/* [n][channel][y][x] becomes [n][y][x][channel], as MLX has it; two bytes each. */
static uint16_t *channels_last(const model_tensor *t, int64_t dims[MODEL_MAX_DIMS]) {
    int64_t         area = t->dims[0] * t->dims[1], channels = t->dims[2], n = t->dims[3];
    const uint16_t *from = (const void *)t->data;
    uint16_t       *to = malloc(t->bytes);
    for (int64_t i = 0; i < n * channels * area; i++)
        to[(i / (channels * area) * area + i % area) * channels + i / area % channels] = from[i];
    dims[0] = channels;
    dims[1] = t->dims[0];
    dims[2] = t->dims[1];
    return to;
}

/* A directory of MLX, which leaves the first word of names out. */
static void test_mlx(void **state) {
    golden              g;
    model_file         *mlx;
    safetensors_writer *w;
    void               *kept[2] = { 0 };
    int                 n_kept = 0;
    err                 e = { 0 };
    char *dir = test_temp_dir(), *path = path_join(dir, "model.safetensors"), *config = path_join(dir, "config.json");
    (void)state;
    open_golden(&g, "gemma4", device_name());
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < model_file_tensor_count(g.file); i++) {
        const model_tensor *t = model_file_tensor_at(g.file, i);
        const void         *data = t->data;
        int64_t             dims[MODEL_MAX_DIMS];
        bool                ours = strstr(t->name, "audio");
        memcpy(dims, t->dims, sizeof dims);
        if (t->n_dims == 4 && ours) data = kept[n_kept++] = channels_last(t, dims);
        assert_int_equal(
            safetensors_writer_add(w, t->name + (ours ? 6 : 0), t->type, t->n_dims, dims, data, t->bytes, &e), 0);
    }
    assert_int_equal(n_kept, 2);
    assert_int_equal(safetensors_writer_write(w, path, &e), 0);
    safetensors_writer_free(w);
    assert_int_equal(symlink(DIR "/gemma4/config.json", config), 0);
    assert_int_equal(model_file_open(&mlx, dir, &e), 0);
    expect_same(&g, mlx, NULL);
    model_file_free(mlx);
    for (int i = 0; i < 2; i++) free(kept[i]);
    free(config);
    free(path);
    test_temp_dir_remove(dir);
    close_golden(&g);
}

/* A sound of more than a piece is as its pieces are, one behind the other; silence and a single sample have rows, too. */
static void test_long(void **state) {
    golden             g;
    const vision_rows *rows;
    sound              all, part;
    err                e = { 0 };
    (void)state;
    open_golden(&g, "gemma4", device_name());
    int piece = 480000, width = 32;
    assert_int_equal(sound_init(&all, piece + 4100, &e), 0);
    for (int i = 0; i < all.n; i++) all.at[i] = 0.3f * sinf((float)(i % 9973) * 0.05f);
    assert_int_equal(ears_encode(g.h, &all, NULL, &rows, &e), 0);
    assert_int_equal(rows->n, 750 + 7);
    float *joined = malloc((size_t)(rows->n * width) * sizeof *joined);
    memcpy(joined, rows->data, (size_t)(rows->n * width) * sizeof *joined);
    assert_int_equal(sound_init(&part, 4100, &e), 0);
    memcpy(part.at, all.at + piece, 4100 * sizeof *part.at);
    assert_int_equal(ears_encode(g.h, &part, NULL, &rows, &e), 0);
    assert_int_equal(rows->n, 7);
    assert_memory_equal(rows->data, joined + 750 * width, (size_t)(7 * width) * sizeof *joined);
    part.n = 1;
    assert_int_equal(ears_encode(g.h, &part, NULL, &rows, &e), 0);
    assert_int_equal(rows->n, 1);
    assert_true(isfinite(rows->data[0]));
    free(joined);
    sound_deinit(&part);
    sound_deinit(&all);
    close_golden(&g);
}

static void test_voxtral(void **state) { (void)state, check_family("voxtral"); }
static void test_gemma4(void **state) { (void)state, check_family("gemma4"); }
static void test_gemma4_samples(void **state) { (void)state, check_family("gemma4_unified"); }
static void test_kin(void **state) {
    static const char *const names[] = { "whisper",      "qwen2_audio", "audioflamingo3", "musicflamingo", "glmasr",
                                         "qwen2_5_omni", "qwen3_asr",   "qwen3_omni_moe", "gemma3n" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) check_family(names[i]);
}

/* Whisper's prompts hold the greedy answer to their beginnings; in steps they give the same bits. */
static void test_whisper(void **state) {
    enum { PROMPT = 12 };
    const char *device = device_name();
    golden      g;
    err         e = { 0 };
    (void)state;
    open_golden(&g, "whisper", device);
    int    n_sound = g.h->rules.positions, width = g.model->dims->n_embd, vocab = integer(g.doc, "vocab");
    size_t row = (size_t)vocab;
    for (size_t i = 0; i < json_count(json_get(g.doc, "cases")); i++) {
        const json_value *c = json_at(json_get(g.doc, "cases"), i), *list = json_get(c, "tokens");
        int               n = (int)json_count(list), n_rows, last = integer(g.doc, "last");
        int32_t          *ids = calloc((size_t)n, sizeof *ids);
        const float     **embd = calloc((size_t)n, sizeof *embd);
        float            *rows = make_rows(&g, c, &n_rows), *whole = malloc((size_t)n * row * sizeof *whole);
        simple            s;
        assert_int_equal(n_rows, n_sound);
        assert_int_equal(n, n_sound + PROMPT + last - 1);
        for (int k = 0; k < n; k++) {
            int64_t id = 0;
            assert_true(json_int(json_at(list, (size_t)k), &id));
            ids[k] = (int32_t)id;
            if (k < n_sound) embd[k] = rows + (size_t)k * (size_t)width;
        }
        const int cuts[] = { n, n_sound + 3, 7, 1 };
        for (size_t j = 0; j < sizeof cuts / sizeof *cuts; j++) {
            const int cut = cuts[j];
            assert_int_equal(simple_open(&s, device, g.model, &(simple_options){ .max_len = n, .max_tokens = n }, &e),
                             0);
            for (int at = 0; at < n; at += cut) {
                int now = n - at < cut ? n - at : cut;
                assert_int_equal(simple_batch(&s, &(simple_feed){ .ids = ids + at, .n = now, .all = true }, 1, &e), 0);
                s.batch.embd = embd + at;
                assert_int_equal(nn_exec_step(s.exec, &s.batch, &e), 0);
                const float *got = simple_fetch(&s, NN_FETCH_LOGITS, &e);
                if (cut == n) memcpy(whole, got, (size_t)n * row * sizeof *whole);
                assert_memory_equal(got, whole + (size_t)at * row, (size_t)now * row * sizeof *got);
            }
            simple_close(&s);
        }
        for (int k = n_sound + PROMPT - 1; k < n; k++) {
            const float *at = whole + (size_t)k * row;
            int          best = 0;
            for (int j = 1; j < vocab; j++) best = at[j] > at[best] ? j : best;
            if (k + 1 < n) assert_int_equal(best, ids[k + 1]);
        }
        free(ids);
        free(embd);
        free(rows);
        free(whole);
    }
    close_golden(&g);
}

/* All layers turn by the same angles: backends have room for a few rotations, not for one per layer. */
static void test_one_rotation(void **state) {
    golden       g;
    const float *angles = NULL;
    int          n = 0;
    (void)state;
    open_golden(&g, "gemma4", "cpu");
    const nn_tape *t = g.h->stage[EARS_TOWER].model->tape;
    for (int i = 0; i < t->n_ops; i++) {
        if (t->ops[i].kind != NN_OP_ROPE) continue;
        assert_true(n++ == 0 || t->ops[i].u.rope.rope.inv_freq == angles);
        angles = t->ops[i].u.rope.rope.inv_freq;
    }
    assert_int_equal(n, 4);
    close_golden(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_voxtral),        cmocka_unit_test(test_gemma4),
                                        cmocka_unit_test(test_gemma4_samples), cmocka_unit_test(test_kin),
                                        cmocka_unit_test(test_mmproj),         cmocka_unit_test(test_mlx),
                                        cmocka_unit_test(test_long),           cmocka_unit_test(test_one_rotation),
                                        cmocka_unit_test(test_whisper) };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
