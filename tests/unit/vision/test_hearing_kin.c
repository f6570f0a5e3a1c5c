/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ears whose encoders are kin to Whisper's (tests/golden/hearing, compared with transformers by test_hearing): an
 * mmproj file under the names that published converters use gives the same rows; long sounds are their pieces, short
 * ones have a row; rows with parts; what is not known is refused.
 */
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "media/sound.h"
#include "unit/support/ears_gguf.h"
#include "unit/support/support.h"
#include "vision/ears_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/hearing"

enum { WIDTH = EARS_GGUF_WIDTH };

static vision_options cpu_options(void) { return (vision_options){ .device = "cpu" }; }

static void read_sound(sound *s, const char *name) {
    char   file[512], *data;
    size_t n;
    err    e = { 0 };
    snprintf(file, sizeof file, DIR "/sounds/%s.wav", name);
    if (!file_exists(file)) snprintf(file, sizeof file, DIR "/../sound/sounds/%s.wav", name);
    assert_int_equal(file_read(&data, &n, file, 1 << 20, &e), 0);
    assert_int_equal(media_sound_decode(s, data, n, MEDIA_SOUND_SECONDS, &e), 0);
    free(data);
}

/* --- files --- */

/* Writes the text with one of its pieces replaced. */
static char *replaced(char *text, const char *from, const char *to) {
    char *at = strstr(text, from), *out = malloc(strlen(text) + strlen(to) + 1);
    assert_non_null(at);
    assert_non_null(out);
    sprintf(out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    free(text);
    return out;
}

/* A directory with another config.json. */
static void open_edited(model_file **out, const char *dir, const char *name, const char *const edits[2][2]) {
    char   source[512], path[512], *text;
    size_t n;
    err    e = { 0 };
    snprintf(source, sizeof source, DIR "/%s/config.json", name);
    assert_int_equal(file_read(&text, &n, source, 1 << 20, &e), 0);
    for (int i = 0; i < 2 && edits[i][0]; i++) text = replaced(text, edits[i][0], edits[i][1]);
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    snprintf(source, sizeof source, DIR "/%s/model.safetensors", name);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    (void)unlink(path);
    assert_int_equal(symlink(source, path), 0);
    int rc = model_file_open(out, dir, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    free(text);
}

/* --- mmproj files --- */

/* Sines are computed anew, with other last bits. */
static void same_rows(const ears_gguf *f, ears *one, ears *two, const char *name) {
    const vision_rows *a, *b;
    sound              s;
    err                e = { 0 };
    read_sound(&s, name);
    assert_int_equal(ears_encode(one, &s, NULL, &a, &e), 0);
    assert_int_equal(ears_encode(two, &s, NULL, &b, &e), 0);
    assert_int_equal(a->n, b->n);
    assert_true(a->n > 0);
    size_t n = (size_t)(a->n * a->width);
    if (!f->sines) assert_memory_equal(a->data, b->data, n * sizeof *a->data);
    for (size_t i = 0; i < n; i++) {
        if (fabsf(a->data[i] - b->data[i]) > 1e-5f) print_message("%s: %g, %g\n", f->name, a->data[i], b->data[i]);
        assert_true(fabsf(a->data[i] - b->data[i]) <= 1e-5f);
    }
    assert_memory_not_equal(a->key, b->key, sizeof a->key); /* another file */
    sound_deinit(&s);
}

/* What makes no sense is refused with a sentence. */
static void expect_refused(const ears_gguf *f, const model_file *m, const char *path) {
    static const struct {
        const char *key;
        int64_t     value;
    } bad[] = { { "clip.audio.num_mel_bins", 0 },         { "clip.audio.num_mel_bins", 32 },
                { "clip.audio.num_mel_bins", 1 << 30 },   { "clip.audio.attention.head_count", 5 },
                { "clip.audio.attention.head_count", 0 }, { "clip.audio.embedding_length", 48 },
                { "clip.audio.block_count", 3 },          { "clip.audio.projection_dim", 16 },
                { "clip.audio.feed_forward_length", 0 },  { "clip.audio.position_count", 2 } };
    vision_options o = cpu_options();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        model_file *mmproj;
        ears       *h;
        err         e = { 0 };
        ears_gguf_write(f, m, path, bad[i].key, bad[i].value);
        assert_int_equal(model_file_open(&mmproj, path, &e), 0);
        if (ears_open(&h, m, mmproj, WIDTH, &o, &e) == 0) fail_msg("%s opens with %s", f->name, bad[i].key);
        assert_true(e.msg[0]);
        assert_null(h);
        model_file_free(mmproj);
    }
}

static void check_mmproj(const ears_gguf *f, const char *dir) {
    vision_options o = cpu_options();
    uint64_t       bytes, there;
    char           path[512];
    model_file    *m, *mmproj;
    ears          *one = NULL, *two = NULL;
    err            e = { 0 };
    snprintf(path, sizeof path, "%s/ears.gguf", dir);
    open_edited(&m, dir, f->name, f->edits);
    ears_gguf_write(f, m, path, NULL, 0);
    assert_int_equal(model_file_open(&mmproj, path, &e), 0);
    assert_true(ears_known(m, mmproj));
    int rc = ears_open(&one, m, NULL, WIDTH, &o, &e);
    if (rc == 0) rc = ears_open(&two, m, mmproj, WIDTH, &o, &e);
    if (rc < 0) print_message("%s: %s\n", f->name, e.msg);
    assert_int_equal(rc, 0);
    assert_ptr_equal(ears_transcribes(one), ears_transcribes(two));
    assert_int_equal(ears_transcribes(two) != NULL,
                     strcmp(f->name, "qwen3_asr") == 0 || strcmp(f->name, "voxtral") == 0);
    same_rows(f, one, two, "e");
    same_rows(f, one, two, "d");
    assert_int_equal(ears_measure(&bytes, &there, m, mmproj, WIDTH, &o, &e), 0);
    assert_true(bytes > 0);
    ears_free(one);
    ears_free(two);
    model_file_free(mmproj);
    expect_refused(f, m, path);
    model_file_free(m);
}

static void test_mmproj(void **state) {
    char *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < ears_gguf_count; i++) check_mmproj(&ears_gguf_families[i], dir);
    test_temp_dir_remove(dir);
}

static void test_bare(void **state) {
    static const ears_gguf row = { .name = "gemma4_unified" };
    vision_options         o = cpu_options();
    char                  *dir = test_temp_dir(), path[512];
    model_file            *m, *mmproj;
    ears                  *one, *two;
    err                    e = { 0 };
    enum { SAMPLES = 320 };
    static const struct {
        int64_t     samples, width;
        const char *word;
    } bad[] = { { 0, WIDTH, "mm.a.input_projection" }, /* the matrix is missing; it is of another language model */
                { SAMPLES, WIDTH / 2, "mm.a.input_projection" },
                { 1, WIDTH, "1 mel bins" } }; /* a row of every sample */
    (void)state;
    snprintf(path, sizeof path, "%s/ears.gguf", dir);
    assert_int_equal(model_file_open(&m, DIR "/gemma4_unified", &e), 0);
    ears_gguf_write_samples(m, path, SAMPLES, WIDTH);
    assert_int_equal(model_file_open(&mmproj, path, &e), 0);
    assert_int_equal(ears_open(&one, m, NULL, WIDTH, &o, &e), 0);
    if (ears_open(&two, m, mmproj, WIDTH, &o, &e) < 0) fail_msg("%s", e.msg);
    same_rows(&row, one, two, "e");
    same_rows(&row, one, two, "d");
    ears_free(one);
    ears_free(two);
    model_file_free(mmproj);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ears_gguf_write_samples(m, path, bad[i].samples, bad[i].width);
        assert_int_equal(model_file_open(&mmproj, path, &e), 0);
        assert_true(ears_open(&two, m, mmproj, WIDTH, &o, &e) < 0);
        if (!strstr(e.msg, bad[i].word)) fail_msg("%zu: %s", i, e.msg);
        model_file_free(mmproj);
    }
    model_file_free(m);
    test_temp_dir_remove(dir);
}

/* Whose directories lack a language model: its reference is compared here. */
static void test_ultravox(void **state) {
    vision_options    o = cpu_options();
    char             *dir = test_temp_dir(), *path = path_join(dir, "ears.gguf"), *text, *want;
    size_t            n;
    const json_value *doc;
    model_file       *m, *mmproj;
    ears             *h;
    arena             mem;
    err               e = { 0 };
    double            most = 0;
    (void)state;
    assert_int_equal(model_file_open(&m, DIR "/ultravox", &e), 0);
    ears_gguf_write(&ears_gguf_ultravox, m, path, NULL, 0);
    assert_int_equal(model_file_open(&mmproj, path, &e), 0);
    int rc = ears_open(&h, m, mmproj, WIDTH, &o, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_int_equal(file_read(&want, &n, DIR "/ultravox/rows.f32", 1 << 20, &e), 0);
    assert_int_equal(file_read(&text, &n, DIR "/ultravox/golden.json", 1 << 20, &e), 0);
    arena_init(&mem, 0);
    assert_int_equal(json_parse(&doc, text, n, &mem, &e), 0);
    const json_value *cases = json_get(doc, "cases");
    assert_int_equal(json_count(cases), 5);
    for (size_t i = 0; i < json_count(cases); i++) {
        const json_value *c = json_at(cases, i), *sounds = json_get(c, "sounds");
        int64_t           at = 0, count = 0;
        double            std = 0;
        assert_true(json_int(json_get(c, "rows_at"), &at) && json_number(json_get(c, "row_std"), &std));
        const float *expected = (const float *)(const void *)want + at;
        for (size_t k = 0; k < json_count(sounds); k++) {
            const vision_rows *rows;
            sound              s;
            read_sound(&s, json_cstr(json_at(sounds, k)));
            assert_int_equal(ears_encode(h, &s, NULL, &rows, &e), 0);
            assert_true(json_int(json_at(json_get(c, "counts"), k), &count));
            assert_int_equal(rows->n, count);
            for (int j = 0; j < rows->n * rows->width; j++)
                most = fmax(most, fabs((double)rows->data[j] - (double)*expected++) / std);
            sound_deinit(&s);
        }
    }
    print_message("ultravox: rows differ by %.1e of their deviation at most\n", most);
    assert_true(most <= 1e-4);
    /* Its words, of which a vocabulary has one. */
    assert_string_equal(ears_row_word(h), "<|audio|>");
    int words = 1;
    while (ears_other_word(h)) words++;
    assert_int_equal(words, 4);
    assert_string_equal(ears_placeholder(h), ears_row_word(h));
    ears_free(h);
    model_file_free(mmproj);
    expect_refused(&ears_gguf_ultravox, m, path);
    model_file_free(m);
    arena_deinit(&mem);
    free(text);
    free(want);
    free(path);
    test_temp_dir_remove(dir);
}

/* --- lengths --- */

typedef struct opened {
    model_file *m;
    ears       *h;
} opened;

static void open_family(opened *x, const char *name, int width, int parts) {
    char           path[512];
    vision_options o = cpu_options();
    err            e = { 0 };
    o.parts = parts;
    snprintf(path, sizeof path, DIR "/%s", name);
    assert_int_equal(model_file_open(&x->m, path, &e), 0);
    int rc = ears_open(&x->h, x->m, NULL, width, &o, &e);
    if (rc < 0) print_message("%s: %s\n", name, e.msg);
    assert_int_equal(rc, 0);
}

static void close_family(opened *x) {
    ears_free(x->h);
    model_file_free(x->m);
}

static void make_sound(sound *s, int n) {
    err e = { 0 };
    assert_int_equal(sound_init(s, n, &e), 0);
    for (int i = 0; i < n; i++) s->at[i] = 0.3f * sinf((float)(i % 9973) * 0.05f);
}

/* As many words as rows, and the words around them. */
static void expect_words(const opened *x, int n_samples, int rows) {
    const char *word = ears_row_word(x->h);
    size_t      found = 0;
    str         words;
    err         e = { 0 };
    str_init(&words);
    assert_int_equal(ears_write(x->h, n_samples, &words, &e), 0);
    for (const char *at = str_cstr(&words); (at = strstr(at, word)); at += strlen(word)) found++;
    assert_int_equal(found, rows);
    assert_non_null(strstr(ears_said(x->h), ears_placeholder(x->h)));
    str_deinit(&words);
}

static const vision_rows *encode(opened *x, const sound *s) {
    const vision_rows *rows;
    err                e = { 0 };
    int                rc = ears_encode(x->h, s, NULL, &rows, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    return rows;
}

static void test_lengths(void **state) {
    static const struct {
        const char *name;
        int         piece; /* samples; 0: there are no pieces */
        int         per;   /* samples of a row */
    } all[] = { { "qwen2_audio", 6400, 640 }, { "audioflamingo3", 6400, 640 }, { "glmasr", 6400, 1280 },
                { "qwen2_5_omni", 0, 640 },   { "qwen3_asr", 0, 16000 / 13 },  { "qwen3_omni_moe", 0, 16000 / 13 },
                { "gemma3n", 20480, 2560 },   { "musicflamingo", 6400, 640 } };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        static const int lengths[] = { 1, 159, 320, 321, 640, 1000, 6399, 6400, 6401, 12800, 16000, 16159, 50000 };
        opened           x;
        open_family(&x, all[i].name, WIDTH, 0);
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            sound s;
            make_sound(&s, lengths[k]);
            const vision_rows *rows = encode(&x, &s);
            assert_true(rows->n >= 1 && abs(rows->n - lengths[k] / all[i].per) <= 9);
            for (int j = 0; j < rows->n * rows->width; j++) assert_true(isfinite(rows->data[j]));
            expect_words(&x, lengths[k], rows->n);
            sound_deinit(&s);
        }
        close_family(&x);
    }
}

/* A long sound is as its pieces are, one behind the other. */
static void test_pieces(void **state) {
    static const char *const names[] = { "qwen2_audio", "audioflamingo3", "glmasr" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        enum { PIECE = 6400, REST = 4100 };
        opened x;
        sound  all, part;
        open_family(&x, names[i], WIDTH, 0);
        make_sound(&all, 2 * PIECE + REST);
        const vision_rows *rows = encode(&x, &all);
        size_t             n = (size_t)(rows->n * rows->width), at = 0;
        float             *joined = malloc(n * sizeof *joined);
        memcpy(joined, rows->data, n * sizeof *joined);
        for (int k = 0; k < 3; k++) {
            part = (sound){ .n = k < 2 ? PIECE : REST, .at = all.at + k * PIECE };
            rows = encode(&x, &part);
            size_t more = (size_t)(rows->n * rows->width);
            assert_true(at + more <= n);
            assert_memory_equal(rows->data, joined + at, more * sizeof *joined);
            at += more;
        }
        assert_int_equal(at, n);
        free(joined);
        sound_deinit(&all);
        close_family(&x);
    }
}

/* For a language model that takes rows with parts, ours is the first. */
static void test_parts(void **state) {
    opened             one, three;
    const vision_rows *a, *b;
    sound              s;
    ears              *h;
    vision_options     o = cpu_options();
    err                e = { 0 };
    (void)state;
    open_family(&one, "qwen3_omni_moe", WIDTH, 0);
    open_family(&three, "qwen3_omni_moe", 3 * WIDTH, 3);
    read_sound(&s, "e");
    a = encode(&one, &s);
    b = encode(&three, &s);
    assert_int_equal(b->width, 3 * WIDTH);
    for (int i = 0; i < a->n; i++) {
        assert_memory_equal(b->data + i * b->width, a->data + i * WIDTH, WIDTH * sizeof *a->data);
        for (int k = WIDTH; k < 3 * WIDTH; k++) assert_true(b->data[i * b->width + k] == 0);
    }
    /* Of another language model. */
    assert_int_equal(ears_open(&h, one.m, NULL, 2 * WIDTH, &o, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "belongs to another"));
    sound_deinit(&s);
    close_family(&one);
    close_family(&three);
}

/* --- ends --- */

/* Counts how often it is asked, and says yes the second time. */
static bool ask_twice(void *ctx) { return ++*(int *)ctx == 2; }

/* Nobody waits for a long sound any more: before its second piece that is known, and all is well afterwards. */
static void test_stop(void **state) {
    static const char *const names[] = { "voxtral",   "qwen2_audio",    "musicflamingo", "glmasr", "qwen2_5_omni",
                                         "qwen3_asr", "qwen3_omni_moe", "gemma3n",       "gemma4", "gemma4_unified" };
    sound                    s;
    (void)state;
    make_sound(&s, 64 * SOUND_RATE);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const vision_rows *rows;
        opened             x;
        int                asked = 0;
        err                e = { 0 };
        open_family(&x, names[i], WIDTH, 0);
        int rc = ears_encode(x.h, &s, &(ears_stop){ ask_twice, &asked }, &rows, &e);
        if (rc != ERR_CANCELLED || asked != 2) fail_msg("%s: %d, asked %d times", names[i], rc, asked);
        assert_true(e.msg[0]);
        assert_int_equal(encode(&x, &s)->n, ears_rows(x.h, s.n));
        assert_int_equal(asked, 2);
        close_family(&x);
    }
    sound_deinit(&s);
}

/* --- what is not known --- */

static void test_refused(void **state) {
    static const struct {
        const char *name, *edit[2][2], *word;
    } bad[] = {
        { "qwen2_audio", { { "\"gelu\"", "\"quick_brown\"" } }, "quick_brown" },
        { "qwen2_audio", { { "\"scale_embedding\": false", "\"scale_embedding\": true" } }, "scale_embedding" },
        { "qwen2_audio", { { "\"num_mel_bins\": 16", "\"num_mel_bins\": 500" } }, "500" },
        { "qwen2_audio", { { "\"max_source_positions\": 20", "\"max_source_positions\": 21" } }, "21" },
        { "qwen2_5_omni", { { "\"n_window\": 6", "\"n_window\": 7" } }, "fit" },
        { "qwen2_5_omni", { { "\"n_window\": 6", "\"n_window\": 40" } }, "fit" },
        { "glmasr", { { "\"intermediate_size\": 128", "\"intermediate_size\": 96" } }, "fit" },
        { "glmasr", { { "\"max_position_embeddings\": 20", "\"max_position_embeddings\": 4100" } }, "up to 4096" },
        { "qwen3_asr", { { "\"n_window\": 50", "\"n_window\": 0" } }, "fit" },
        { "qwen3_asr", { { "\"n_window_infer\": 200", "\"n_window_infer\": 150" } }, "fit" },
        { "qwen3_asr", { { "\"num_mel_bins\": 16", "\"num_mel_bins\": 24" } }, "fit" },
        { "qwen3_omni_moe", { { "\"gelu\"", "\"relu\"" } }, "relu" },
        { "gemma3n",
          { { "\"conf_attention_context_right\": 0", "\"conf_attention_context_right\": 1" } },
          "context_right" },
        { "musicflamingo", { { "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"" } }, "fit" },
        { "musicflamingo", { { "\"audio_frame_step\": 0.01", "\"audio_frame_step\": 0.02" } }, "fit" },
        { "musicflamingo", { { "\"rope_theta\": 40.0", "\"rope_theta\": 4.0" } }, "fit" },
        { "musicflamingo", { { "\"hidden_size\": 32", "\"d_model\": 32" } }, "fit" }, /* more turn than there are */
        { "gemma3n", { { "\"eoa_token_id\": 148", "\"eoa_token_id\": 160" } }, "fit" },
        { "gemma3n", { { "\"eoa_token_id\": 148", "\"eoa_token_id\": 147" } }, "fit" },
        { "gemma3n", { { "\"sscp_conv_group_norm_eps\": 0.001", "\"sscp_conv_group_norm_eps\": 0.01" } }, "fit" },
        { "gemma3n", { { "\"gradient_clipping\": 1", "\"gradient_clipping\": 2" } }, "gradient_clipping" }
    };
    char *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vision_options o = cpu_options();
        model_file    *m;
        ears          *h;
        err            e = { 0 };
        open_edited(&m, dir, bad[i].name, bad[i].edit);
        int rc = ears_open(&h, m, NULL, WIDTH, &o, &e);
        if (rc == 0 || !strstr(e.msg, bad[i].word)) print_message("%zu: %s\n", i, e.msg);
        assert_true(rc < 0);
        assert_non_null(strstr(e.msg, bad[i].word));
        model_file_free(m);
    }
    test_temp_dir_remove(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_mmproj),   cmocka_unit_test(test_bare),
                                        cmocka_unit_test(test_ultravox), cmocka_unit_test(test_lengths),
                                        cmocka_unit_test(test_pieces),   cmocka_unit_test(test_parts),
                                        cmocka_unit_test(test_stop),     cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
