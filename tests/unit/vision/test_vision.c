/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures through towers, against what transformers computes (tests/golden/vision.py): the pixels that a tower gets, the
 * rows that come out, and the logits of a prompt with them in it.
 */
#include "unit/support/support.h"
#include "vision/internal.h"

#include "backend/backend.h"
#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "media/media.h"
#include "models/list.h"
#include "nn/model.h"
#include "tools/simple.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"

typedef struct golden {
    const char       *family;
    char             *text, *pixels, *rows, *logits;
    const json_value *doc;
    arena             mem;
    model_file       *file;
    nn_model         *model;
    vision           *v;
} golden;

static char *load(const char *family, const char *name, size_t *n) {
    char   path[512], *out = NULL;
    err    e = { 0 };
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s/%s", DIR, family, name);
    if (!file_exists(path)) return NULL;
    assert_int_equal(file_read(&out, n ? n : &bytes, path, 64 << 20, &e), 0);
    return out;
}

static int integer(const json_value *v, const char *key) {
    int64_t x = -1;
    (void)json_int(json_get(v, key), &x);
    return (int)x;
}

static bool open_golden(golden *g, const char *family, const char *device) {
    char   path[512];
    size_t n;
    err    e = { 0 };
    *g = (golden){ .family = family };
    if (!(g->text = load(family, "golden.json", &n))) {
        print_message("skipped: there is no %s/%s\n", DIR, family);
        return false;
    }
    arena_init(&g->mem, 0);
    assert_int_equal(json_parse(&g->doc, g->text, n, &g->mem, &e), 0);
    g->pixels = load(family, "pixels.u8", NULL);
    g->rows = load(family, "rows.f32", NULL);
    g->logits = load(family, "logits.f32", NULL);
    snprintf(path, sizeof path, "%s/%s", DIR, family);
    int rc = model_file_open(&g->file, path, &e);
    if (rc == 0) rc = nn_model_open(&g->model, g->file, models_list, NULL, &e);
    if (rc == 0)
        rc = vision_open(&g->v, g->file, NULL, g->model->dims->n_embd * g->model->tape->n_parts,
                         &(vision_options){ .device = device }, &e);
    if (rc < 0) print_message("%s: %s\n", family, e.msg);
    assert_int_equal(rc, 0);
    assert_non_null(g->v);
    return true;
}

/* What is measured before is what opened eyes have, and the rows that they keep and hand in and out. */
static void check_memory(const golden *g, const char *device) {
    const vision *v = g->v;
    int           width = g->model->dims->n_embd * g->model->tape->n_parts;
    uint64_t      measured = 0, on_device, has = v->keep.limit_bytes, rows = 0;
    err           e = { 0 };
    assert_int_equal(
        vision_measure(&measured, &on_device, g->file, NULL, width, &(vision_options){ .device = device }, &e), 0);
    for (int i = 0; i < 3; i++) {
        const vision_stage *s = i == 0 ? &v->tower : i == 1 ? &v->middle : &v->projector;
        if (!s->model) continue;
        const nn_memory *m = &s->exec->memory;
        has += m->heap_bytes + m->pages_bytes + m->weights_bytes + s->model->mem.used_bytes;
        rows += (uint64_t)s->max_rows * (uint64_t)(s->width_in + s->width_out) * sizeof(float);
    }
    assert_int_equal(measured, has + rows);
}

static void close_golden(golden *g) {
    vision_free(g->v);
    nn_model_free(g->model);
    model_file_free(g->file);
    arena_deinit(&g->mem);
    free(g->text);
    free(g->pixels);
    free(g->rows);
    free(g->logits);
}

static void read_picture(pixels *p, const char *name) {
    char   file[64], *data;
    size_t n;
    err    e = { 0 };
    snprintf(file, sizeof file, "%s.png", name);
    assert_non_null(data = load("pictures", file, &n));
    assert_int_equal(media_decode(p, data, n, &media_default_limits, &e), 0);
    free(data);
}

static const char *picture_of(const json_value *c, size_t i) { return json_cstr(json_at(json_get(c, "pictures"), i)); }

/* The largest difference of a picture's pieces from the reference's; also that sizes and number are the same. */
static int pixels_off(const golden *g, const json_value *c, size_t picture, const char *want, size_t *at) {
    const json_value *sizes = json_at(json_get(c, "images"), picture);
    pixels            p, *tiles;
    int               n, off = 0;
    err               e = { 0 };
    read_picture(&p, picture_of(c, picture));
    assert_int_equal(vision_cut(g->v, &p, &tiles, &n, &e), 0);
    assert_int_equal(n, (int)json_count(sizes));
    for (int i = 0; i < n; i++) {
        int64_t h = 0, w = 0;
        assert_true(json_int(json_at(json_at(sizes, (size_t)i), 0), &h) &&
                    json_int(json_at(json_at(sizes, (size_t)i), 1), &w));
        assert_int_equal(tiles[i].width, w);
        assert_int_equal(tiles[i].height, h);
        for (size_t k = 0; k < pixels_bytes(&tiles[i]); k++) {
            int d = abs((int)tiles[i].rgb[k] - (int)(uint8_t)want[*at + k]);
            off = d > off ? d : off;
        }
        *at += pixels_bytes(&tiles[i]);
    }
    vision_cut_free(tiles, n);
    pixels_deinit(&p);
    return off;
}

/* As the processors that use Pillow have it. */
static void check_pixels(const golden *g, const json_value *c) {
    size_t at = (size_t)integer(c, "pixels_at");
    for (size_t i = 0; i < json_count(json_get(c, "pictures")); i++)
        assert_int_equal(pixels_off(g, c, i, g->pixels, &at), 0);
}

/* What stands for each picture in the prompt, where the golden has it. */
static void check_words(const golden *g, const json_value *c) {
    for (size_t i = 0; i < json_count(json_get(c, "words")); i++) {
        pixels p;
        str    out;
        err    e = { 0 };
        read_picture(&p, picture_of(c, i));
        str_init(&out);
        assert_int_equal(vision_write(g->v, &p, (int)i, &out, &e), 0);
        assert_string_equal(str_cstr(&out), json_cstr(json_at(json_get(c, "words"), i)));
        str_deinit(&out);
        pixels_deinit(&p);
    }
}

/* Rows from the reference's own pixels, so that nothing but the tower differs. */
static float *tower_rows(golden *g, const json_value *c, int *n_rows) {
    const uint8_t *px = (const uint8_t *)g->pixels + integer(c, "pixels_at");
    float         *all = NULL;
    int            n_all = 0, width = integer(c, "width") * g->model->tape->n_parts;
    for (size_t i = 0; i < json_count(json_get(c, "pictures")); i++) {
        const json_value *sizes = json_at(json_get(c, "images"), i);
        int               n_tiles = (int)json_count(sizes), n;
        pixels           *tiles = calloc((size_t)n_tiles, sizeof *tiles);
        float            *rows;
        pixels            p;
        err               e = { 0 };
        read_picture(&p, picture_of(c, i));
        for (int k = 0; k < n_tiles; k++) {
            int64_t h = 0, w = 0;
            (void)json_int(json_at(json_at(sizes, (size_t)k), 0), &h);
            (void)json_int(json_at(json_at(sizes, (size_t)k), 1), &w);
            assert_int_equal(pixels_init(&tiles[k], (int)w, (int)h, &e), 0);
            memcpy(tiles[k].rgb, px, pixels_bytes(&tiles[k]));
            px += pixels_bytes(&tiles[k]);
        }
        int rc = vision_encode_cut(g->v, &p, tiles, n_tiles, &rows, &n, &e);
        if (rc < 0) print_message("%s\n", e.msg);
        assert_int_equal(rc, 0);
        int64_t want = 0;
        assert_true(json_int(json_at(json_get(c, "counts"), i), &want) && want == n);
        all = realloc(all, (size_t)(n_all + n) * (size_t)width * sizeof *all);
        memcpy(all + (size_t)n_all * (size_t)width, rows, (size_t)n * (size_t)width * sizeof *all);
        n_all += n;
        free(rows);
        pixels_deinit(&p);
        vision_cut_free(tiles, n_tiles);
    }
    *n_rows = n_all;
    return all;
}

static double worst(const float *a, const float *b, size_t n) {
    double off = 0;
    for (size_t i = 0; i < n; i++) off = fmax(off, fabs((double)a[i] - (double)b[i]));
    return off;
}

static double real(const json_value *c, const char *key) {
    double x = 0;
    (void)json_number(json_get(c, key), &x);
    return x;
}

/* The positions of a prompt: as the reference has them, and as the tokens before it and each picture's grid give them. */
static int32_t *axes_of(const golden *g, const json_value *c, const int32_t *tokens, int n) {
    const json_value *want = json_get(c, "axes");
    int               axes = (int)json_count(want), image = integer(g->doc, "image_token"), at = 0;
    int32_t          *out = axes ? calloc((size_t)(axes * n), sizeof *out) : NULL;
    size_t            picture = 0;
    for (int i = 0; out && i < axes * n; i++) {
        int64_t x = -1;
        assert_true(json_int(json_at(json_at(want, (size_t)(i / n)), (size_t)(i % n)), &x));
        out[i] = (int32_t)x;
    }
    for (int i = 0; out && i < n;) {
        vision_place place;
        pixels       p;
        err          e = { 0 };
        if (tokens[i] != image) {
            for (int a = 0; a < axes; a++) assert_int_equal(out[a * n + i], at);
            at++, i++;
            continue;
        }
        read_picture(&p, picture_of(c, picture));
        assert_int_equal(vision_grid(g->v, &p, &place, &e), 0);
        pixels_deinit(&p);
        int64_t rows = 0;
        assert_true(json_int(json_at(json_get(c, "counts"), picture++), &rows));
        for (int k = 0; k < rows; k++, i++) {
            int  inside = place.counted ? k - 1 : k, row = inside / place.across, col = inside % place.across;
            bool outside = place.counted && (k == 0 || k == rows - 1);
            for (int a = 0; a < axes; a++) {
                int counted[] = { at + k, col, row, (int)picture - 1 }, plain[] = { at, at + row, at + col };
                assert_int_equal(out[a * n + i], outside ? at + k : place.counted ? counted[a] : plain[a]);
            }
        }
        at += place.advance;
    }
    return out;
}

/* How far each position sees, and from where at the latest; what stands behind a prompt that sees itself whole is an answer. */
static void set_ends(const golden *g, const json_value *c, const int32_t *tokens, int n, int32_t *ends,
                     int32_t *begin) {
    int image = integer(g->doc, "image_token"), prompt = integer(c, "prompt");
    assert_int_equal(prompt > 0, vision_prompt_whole(g->v));
    for (int i = n - 1, end = n; i >= 0; i--) { /* a picture's rows see each other where the family says so */
        bool row = tokens[i] == image && vision_whole(g->v);
        if (!row || i + 1 == n || tokens[i + 1] != image) end = i + 1;
        ends[i] = i < prompt ? prompt : row ? end : i + 1;
        begin[i] = i < prompt ? 0 : i;
    }
}

/* The prompt in one batch, the rows in their places. */
static void check_logits(golden *g, const json_value *c, const float *rows, const char *device, double bound) {
    const json_value *ids = json_get(c, "tokens");
    int      n = (int)json_count(ids), image = integer(g->doc, "image_token"), last = integer(g->doc, "last"), at = 0;
    int32_t *tokens = calloc((size_t)n, sizeof *tokens), *ends = calloc((size_t)n, sizeof *ends),
            *begin = calloc((size_t)n, sizeof *begin);
    const float **embd = calloc((size_t)n, sizeof *embd);
    simple        s;
    err           e = { 0 };
    for (int i = 0; i < n; i++) {
        int64_t id = 0;
        (void)json_int(json_at(ids, (size_t)i), &id);
        tokens[i] = (int32_t)id;
        if (id == image) embd[i] = rows + (size_t)at++ * (size_t)(integer(c, "width") * g->model->tape->n_parts);
    }
    set_ends(g, c, tokens, n, ends, begin);
    assert_int_equal(simple_open(&s, device, g->model, &(simple_options){ .max_len = n, .max_tokens = n }, &e), 0);
    assert_int_equal(simple_batch(&s, &(simple_feed){ .ids = tokens, .n = n, .all = true }, 1, &e), 0);
    s.batch.embd = embd;
    s.batch.row_end = vision_whole(g->v) || vision_prompt_whole(g->v) ? ends : NULL;
    s.batch.row_begin = vision_prompt_whole(g->v) ? begin : NULL;
    int32_t *axes = axes_of(g, c, tokens, n);
    s.batch.pos_axes = axes;
    s.batch.n_axes = axes ? (int)json_count(json_get(c, "axes")) : 0;
    int rc = nn_exec_step(s.exec, &s.batch, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    const float *got = simple_fetch(&s, NN_FETCH_LOGITS, &e);
    size_t       vocab = (size_t)integer(g->doc, "vocab");
    const float *want = (const float *)(const void *)g->logits + integer(c, "logits_at");
    double       off = worst(got + (size_t)(n - last) * vocab, want, (size_t)last * vocab) / real(c, "logit_std");
    if (off > bound) print_message("%s: logits differ by %g of their deviation\n", g->family, off);
    assert_true(off <= bound);
    simple_close(&s);
    free(tokens);
    free(ends);
    free(begin);
    free(axes);
    free(embd);
}

/* The reference has all embeddings first, then the further parts; ours stand side by side. */
static double rows_off(const golden *g, const json_value *c, const float *rows, const float *want, int n) {
    int    parts = g->model->tape->n_parts, w = integer(c, "width");
    double off = 0;
    assert_int_equal(parts, 1 + (json_get(c, "deepstack") ? integer(c, "deepstack") : 0));
    for (int p = 0; p < parts; p++) {
        for (int i = 0; i < n; i++)
            off = fmax(off, worst(rows + (size_t)(i * parts + p) * (size_t)w, want + (size_t)(p * n + i) * (size_t)w,
                                  (size_t)w));
    }
    return off;
}

/* A GPU multiplies 16-bit numbers. The logits of one case of gemma4_e move by 0.056 when the reference rounds the inputs
 * of its products to 11 bits. */
static double bound_on(const char *device, double usual) { return strncmp(device, "cuda", 4) == 0 ? 2.5e-2 : usual; }
static double logits_bound(const char *device, const char *family) {
    return bound_on(device, 2e-3) * (strcmp(family, "gemma4_e") == 0 && strncmp(device, "cuda", 4) == 0 ? 6 : 1);
}

static void check_on(const char *family, const char *device) {
    golden g;
    double most = 0, bound = bound_on(device, 1e-4);
    if (!open_golden(&g, family, device)) return;
    const json_value *cases = json_get(g.doc, "cases");
    check_memory(&g, device);
    assert_true(json_count(cases) > 0);
    for (size_t i = 0; i < json_count(cases); i++) {
        const json_value *c = json_at(cases, i);
        int               n;
        check_pixels(&g, c);
        check_words(&g, c);
        float       *rows = tower_rows(&g, c, &n);
        const float *want = (const float *)(const void *)g.rows + integer(c, "rows_at");
        double       off = rows_off(&g, c, rows, want, n) / real(c, "row_std");
        if (off > bound) print_message("%s: rows of case %zu differ by %g of their deviation\n", family, i, off);
        assert_true(off <= bound);
        most = fmax(most, off);
        check_logits(&g, c, rows, device, logits_bound(device, family));
        free(rows);
    }
    if (bound > 1e-4) print_message("%s on %s: rows differ by %g of their deviation at most\n", family, device, most);
    close_golden(&g);
}

/* HEARTH_TEST_DEVICE names another device than the two that every machine has. */
static void check_family(const char *family) {
    const char *device = getenv("HEARTH_TEST_DEVICE");
    if (device) {
        check_on(family, device);
        return;
    }
    check_on(family, "cpu");
    if (!TEST_SANITIZED) check_on(family, "scalar");
}

/* Rows of a large picture with all detail and with little. */
static void test_detail(void **state) {
    static const struct {
        vision_rules rules;
        int          full, low;
    } rows[] = {
        { { .kind = VISION_QWEN3, .patch = 16, .merge = 2, .least = 65536, .most = 16777216 }, 31 * 62, 11 * 22 },
        { { .kind = VISION_QWEN2, .patch = 14, .merge = 2, .least = 3136, .most = 12845056 }, 36 * 71, 12 * 25 },
        { { .kind = VISION_GLM, .patch = 14, .merge = 2, .least = 6272, .most = 5880000 }, 36 * 71, 12 * 25 },
        { { .kind = VISION_HUNYUAN, .patch = 16, .merge = 2, .least = 262144, .most = 4194304 },
          31 * 63 + 2,
          11 * 23 + 2 },
        { { .kind = VISION_PADDLEOCR, .patch = 14, .merge = 2, .least = 147384, .most = 2822400 }, 36 * 71, 12 * 25 },
        { { .kind = VISION_PIXTRAL, .patch = 16, .merge = 1, .edge = 1024, .side = 1024 }, 32 * 64, 16 * 32 },
        { { .kind = VISION_GEMMA4, .patch = 16, .merge = 3, .most = 280 }, 11 * 23, 5 * 11 },
        { { .kind = VISION_GEMMA3, .patch = 14, .merge = 4, .side = 896 }, 256, 256 },
        { { .kind = VISION_IDEFICS3, .patch = 16, .merge = 4, .side = 512, .edge = 2048, .split = true }, 64 * 9, 64 },
        { { .kind = VISION_LLAMA4, .patch = 14, .merge = 2, .side = 336, .most = 16 }, 144 * 16, 144 },
        { { .kind = VISION_MINICPMV,
            .patch = 14,
            .merge = 4,
            .inner = 2,
            .side = 448,
            .tiles = { 0, 9 },
            .split = true },
          66 + 8 * 64,
          66 },
        { { .kind = VISION_KIMI_VL, .patch = 14, .merge = 2, .most = 4096, .edge = 512 }, 46 * 23, 26 * 13 },
        { { .kind = VISION_LFM2,
            .patch = 16,
            .merge = 2,
            .side = 512,
            .least = 64,
            .most = 256,
            .tiles = { 2, 10 },
            .split = true,
            .thumbnail = true,
            .tolerance = 2 },
          256 * 8 + 242,
          242 },
        { { .kind = VISION_INTERNVL, .patch = 14, .merge = 2, .side = 448, .least = 1, .most = 12, .split = true },
          256 * 9,
          256 },
        { { .kind = VISION_OVIS2, .patch = 14, .merge = 2, .side = 448, .most = 9, .split = true, .covering = true },
          256 * 9 + 7 + 3,
          256 + 3 },
        { { .kind = VISION_AYA, .patch = 14, .merge = 2, .side = 364, .least = 1, .most = 12, .split = true },
          169 * 9,
          169 },
        { { .kind = VISION_COHERE2, .patch = 16, .merge = 2, .side = 512, .least = 1, .most = 12, .split = true },
          256 * 9,
          256 },
        { { .kind = VISION_LLAVA_NEXT,
            .patch = 14,
            .merge = 1,
            .side = 336,
            .split = true,
            .n_grids = 3,
            .grid = { { 1, 2 }, { 2, 2 }, { 1, 3 } } },
          24 * 24 + 24 * 49,
          577 },
        { { .kind = VISION_GRANITE4,
            .patch = 16,
            .merge = 2,
            .edge = 8,
            .side = 384,
            .split = true,
            .n_grids = 3,
            .grid = { { 1, 2 }, { 2, 2 }, { 1, 3 } } },
          12 * 12 + 12 * 25,
          145 },
        { { .kind = VISION_PALIGEMMA, .patch = 14, .merge = 1, .side = 448 }, 1024, 1024 },
    };
    pixels p = { .width = 2000, .height = 1000 };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        vision_plan full, low;
        err         e = { 0 };
        p.low = false;
        assert_int_equal(plan_make(&full, &rows[i].rules, &p, &e), 0);
        p.low = true;
        assert_int_equal(plan_make(&low, &rows[i].rules, &p, &e), 0);
        assert_int_equal(full.n_rows, rows[i].full);
        assert_int_equal(low.n_rows, rows[i].low);
    }
}

/* Pictures of any size: whole squares, no more of them than there is room for, or a sentence. */
static void test_sizes(void **state) {
    static const vision_rules rules[] = {
        { .kind = VISION_LLAMA4, .patch = 14, .merge = 2, .side = 336, .most = 16 },
        { .kind = VISION_LLAMA4, .patch = 14, .merge = 2, .side = 336, .most = 16, .grows = true },
        { .kind = VISION_LFM2,
          .patch = 16,
          .merge = 2,
          .side = 512,
          .least = 64,
          .most = 256,
          .tiles = { 2, 10 },
          .split = true,
          .thumbnail = true,
          .tolerance = 2 },
        { .kind = VISION_HUNYUAN, .patch = 16, .merge = 2, .inner = 2, .least = 262144, .most = 4194304 },
        { .kind = VISION_OVIS2,
          .patch = 14,
          .merge = 2,
          .inner = 2,
          .side = 448,
          .least = 1,
          .most = 9,
          .split = true,
          .covering = true,
          .marks = 5 },
        { .kind = VISION_KIMI_VL, .patch = 14, .merge = 2, .most = 4096, .edge = 512 },
        { .kind = VISION_PALIGEMMA, .patch = 14, .merge = 1, .side = 448 },
        { .kind = VISION_GRANITE4,
          .patch = 16,
          .merge = 2,
          .edge = 8,
          .side = 384,
          .split = true,
          .n_grids = 4,
          .grid = { { 1, 2 }, { 2, 1 }, { 2, 2 }, { 1, 10 } } },
        { .kind = VISION_KIMI_K25, .patch = 14, .merge = 2, .most = 16384, .edge = 512 },
        { .kind = VISION_MINICPMV, .patch = 14, .merge = 4, .inner = 2, .side = 448, .tiles = { 0, 9 }, .split = true },
        { .kind = VISION_MINICPMV_2,
          .patch = 14,
          .merge = 1,
          .side = 448,
          .tiles = { 0, 9 },
          .split = true,
          .queries = 64 },
    };
    static const int sides[] = { 1,   2,   13,  14,  15,   27,   28,   29,   100,  336,
                                 447, 448, 449, 512, 1000, 1023, 4096, 9999, 16384 };
    enum { SIDES = sizeof sides / sizeof *sides };
    (void)state;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const vision_rules *r = &rules[i];
        int                 square = r->patch * r->merge, fine = 0;
        int64_t             most = (int64_t)plan_most_patches(r) * r->patch * r->patch;
        for (int k = 0; k < SIDES * SIDES * 2; k++) {
            pixels      p = { .width = sides[k / 2 / SIDES], .height = sides[k / 2 % SIDES], .low = k % 2 };
            vision_plan q;
            err         e = { 0 };
            int         rc = plan_make(&q, r, &p, &e), cells = q.rows * q.cols;
            if (rc < 0) assert_non_null(strstr(e.msg, "too narrow"));
            if (rc < 0) continue;
            fine += p.width < 8 * p.height && p.height < 8 * p.width;
            assert_true(q.tile_width > 0 && q.tile_width % square == 0 && q.tile_height > 0 &&
                        q.tile_height % square == 0);
            assert_true(q.whole_width % square == 0 && q.whole_height % square == 0);
            assert_true((int64_t)q.tile_width * q.tile_height <= most &&
                        (int64_t)q.whole_width * q.whole_height <= most);
            assert_true(q.width > 0 && q.height > 0 &&
                        (q.n_tiles == 1 || q.n_tiles == cells || q.n_tiles == cells + 1));
            assert_true(q.tile_rows > 0 && q.whole_rows > 0);
        }
        assert_true(fine > 100); /* of those that are not eight times as long as wide none is refused */
        for (int k = 0; k < SIDES * SIDES; k++) {
            pixels      p = { .width = sides[k / SIDES], .height = sides[k % SIDES] };
            vision_plan q;
            err         e = { 0 };
            if (p.width < 8 * p.height && p.height < 8 * p.width) assert_int_equal(plan_make(&q, r, &p, &e), 0);
        }
    }
}

static void write_text(const char *dir, const char *name, const char *text, size_t n) {
    char  path[512];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_non_null(f = fopen(path, "wb"));
    assert_int_equal(fwrite(text, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* What changes how pictures are prepared or seen and is not supported is refused by name. */
static void test_refused(void **state) {
    static const struct {
        const char *family, *file, *from, *to, *name;
    } rows[] = {
        { "llama4", "preprocessor_config.json", "\"max_patches\": 16", "\"max_patches\": 999", "max_patches" },
        { "llama4", "config.json", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"silu\"", "hidden_act" },
        { "lfm2_vl", "config.json", "\"vision_feature_layer\": -1", "\"vision_feature_layer\": -2",
          "vision_feature_layer" },
        { "kimi_vl", "preprocessor_config.json", "\"pad_input\": true", "\"pad_input\": false", "pad_input" },
        { "kimi_k25", "config.json", "\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"gelu\"",
          "hidden_act" },
        { "minicpmv4_6", "config.json", "\"merger_times\": 1", "\"merger_times\": 2", "squares of other than" },
        { "minicpmv4_6", "config.json", "\"downsample_mode\": \"16x\"", "\"downsample_mode\": \"4x\"",
          "downsample_mode" },
        { "minicpmv", "config.json", "\"version\": 2.6", "\"version\": 2.5", "version 2.5" },
        { "minicpmv", "config.json", "\"drop_vision_last_layer\": false", "\"drop_vision_last_layer\": true",
          "drop_vision_last_layer" },
    };
    static const char *const files[] = { "config.json", "preprocessor_config.json", "model.safetensors" };
    char                    *dir = test_temp_dir();
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        model_file *m;
        vision     *v;
        err         e = { 0 };
        for (size_t k = 0; k < 3; k++) {
            size_t n;
            char  *text = load(rows[i].family, files[k], &n), *at = NULL;
            assert_non_null(text);
            if (strcmp(files[k], rows[i].file) == 0) {
                char *last = NULL, *own;
                for (at = text; (at = strstr(at, rows[i].from)); at++) last = at; /* the tower's is the last one */
                assert_non_null(last);
                size_t begin = (size_t)(last - text), old = strlen(rows[i].from), more = strlen(rows[i].to);
                assert_non_null(own = malloc(n + more));
                memcpy(own, text, begin);
                memcpy(own + begin, rows[i].to, more);
                memcpy(own + begin + more, text + begin + old, n - begin - old);
                free(text);
                text = own;
                n = n - old + more;
            }
            write_text(dir, files[k], text, n);
            free(text);
        }
        assert_int_equal(model_file_open(&m, dir, &e), 0);
        assert_true(vision_open(&v, m, NULL, 32, &(vision_options){ 0 }, &e) < 0);
        if (!strstr(e.msg, rows[i].name)) print_message("%s: %s\n", rows[i].family, e.msg);
        assert_non_null(strstr(e.msg, rows[i].name));
        model_file_free(m);
    }
    test_temp_dir_remove(dir);
}

/* A folder of tests/golden/vision each. */
#define FAMILIES(X)                                                                                                    \
    X(gemma3)                                                                                                          \
    X(llava)                                                                                                           \
    X(idefics3)                                                                                                        \
    X(mistral3)                                                                                                        \
    X(pixtral)                                                                                                         \
    X(qwen2_vl)                                                                                                        \
    X(qwen2_5_vl)                                                                                                      \
    X(qwen3_vl)                                                                                                        \
    X(gemma4)                                                                                                          \
    X(qwen3_5)                                                                                                         \
    X(gemma4_unified)                                                                                                  \
    X(internvl)                                                                                                        \
    X(internvl_6b)                                                                                                     \
    X(aya_vision)                                                                                                      \
    X(cohere2_vision)                                                                                                  \
    X(llava_next)                                                                                                      \
    X(granite_vision)                                                                                                  \
    X(llava_onevision)                                                                                                 \
    X(granite4_vision)                                                                                                 \
    X(paligemma)                                                                                                       \
    X(paligemma2)                                                                                                      \
    X(janus)                                                                                                           \
    X(deepseek_vl)                                                                                                     \
    X(llava_next_video)                                                                                                \
    X(vipllava)                                                                                                        \
    X(lighton_ocr)                                                                                                     \
    X(gemma4_e)                                                                                                        \
    X(glm4v)                                                                                                           \
    X(glm4v_moe)                                                                                                       \
    X(paddleocr_vl)                                                                                                    \
    X(video_llama_3)                                                                                                   \
    X(exaone4_5)                                                                                                       \
    X(qwen2_5_omni)                                                                                                    \
    X(qwen3_omni_moe)                                                                                                  \
    X(ernie4_5_vl_moe)                                                                                                 \
    X(llama4)                                                                                                          \
    X(lfm2_vl)                                                                                                         \
    X(kimi_vl)                                                                                                         \
    X(kimi_k25)                                                                                                        \
    X(minicpmv4_6)                                                                                                     \
    X(minicpmv)                                                                                                        \
    X(hunyuan_vl)                                                                                                      \
    X(qianfan_ocr)                                                                                                     \
    X(ovis2)                                                                                                           \
    X(glm_ocr)
#define DEFINE(name)                                                                                                   \
    static void test_##name(void **state) { (void)state, check_family(#name); }
FAMILIES(DEFINE)

/* Pillow's own results, to the bit. */
static void test_resize(void **state) {
    static const pixels_filter filters[] = { [1] = PIXELS_LANCZOS, [2] = PIXELS_BILINEAR, [3] = PIXELS_BICUBIC };
    const json_value          *doc;
    size_t                     n;
    char                      *text = load(".", "resize.json", &n), *want = load(".", "resize.u8", NULL);
    arena                      a;
    pool                      *workers;
    err                        e = { 0 };
    (void)state;
    if (!text || !want) {
        print_message("skipped: there is no %s/resize.json\n", DIR);
        return;
    }
    arena_init(&a, 0);
    assert_int_equal(json_parse(&doc, text, n, &a, &e), 0);
    assert_true(json_count(doc) >= 20);
    assert_int_equal(pool_open(&workers, 3, false, &e), 0);
    for (size_t i = 0; i < json_count(doc); i++) {
        const json_value *row = json_at(doc, i);
        int64_t           filter = 0, w = 0, h = 0, at = 0;
        pixels            p, q;
        assert_true(json_int(json_at(row, 1), &filter) && json_int(json_at(row, 2), &w) &&
                    json_int(json_at(row, 3), &h) && json_int(json_at(row, 4), &at));
        read_picture(&p, json_cstr(json_at(row, 0)));
        assert_int_equal(pixels_resize(&q, &p, (int)w, (int)h, filters[filter], i % 2 ? workers : NULL, &e), 0);
        assert_memory_equal(q.rgb, want + at, pixels_bytes(&q));
        pixels_deinit(&p);
        pixels_deinit(&q);
    }
    pool_free(workers);
    arena_deinit(&a);
    free(text);
    free(want);
}

#define TEST(name) cmocka_unit_test(test_##name),

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_resize), cmocka_unit_test(test_detail),
                                        cmocka_unit_test(test_sizes), cmocka_unit_test(test_refused), FAMILIES(TEST) };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
