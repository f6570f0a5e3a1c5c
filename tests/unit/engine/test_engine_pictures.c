/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversations with pictures of every family that sees (tests/golden/vision), and with sounds of one that hears
 * (tests/golden/sound): two of them, the same two the other way round, one twice, one between texts. Each answer is that
 * of an engine that computes it alone and keeps nothing, bit
 * for bit: again from the cache, beside others and beside texts in a cache so small that somebody always has to give way,
 * in small pieces, with somebody more important in the middle of a picture, and from the disk in another engine.
 */
#include "unit/support/engine_support.h"
#include "unit/support/support.h"

#include "base/file.h"
#include "media/media.h"
#include "media/sound.h"
#include "models/list.h"
#include "vision/ears.h"
#include "vision/vision.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIR HEARTH_SOURCE_DIR "/tests/golden/vision"
#define SOUNDS HEARTH_SOURCE_DIR "/tests/golden/sound"

/* Those elsewhere hear. */
static const char *const families[] = {
    "gemma3",           "llava",
    "idefics3",         "mistral3",
    "pixtral",          "qwen2_vl",
    "qwen2_5_vl",       "qwen3_vl",
    "internvl",         "llava_next",
    "llava_onevision",  "gemma4",
    "qwen3_5",          "gemma4_e",
    "../sound/voxtral", "glm4v",
    "exaone4_5",        "ernie4_5_vl_moe",
    "qwen3_omni_moe",   "llama4",
    "lfm2_vl",          "kimi_vl",
    "kimi_k25",         "minicpmv4_6",
    "minicpmv",         "../hearing/gemma4",
    "hunyuan_vl",       "ovis2",
    "paligemma",        "paligemma2",
    "granite4_vision",
};
enum {
    FAMILIES = sizeof families / sizeof *families,
    PICTURES = 2,
    PLACEHOLDER = 150,
    MOST = 400,
    REPLY = 10,
    TEXT = 6
};

/* Pictures by letter, texts between them. */
static const char *const talks[] = { "ad", "da", "aa", "-a-", "--d", "----" };
enum { TALKS = sizeof talks / sizeof *talks };

typedef struct talk {
    int32_t     tokens[MOST];
    int         n, n_rows;
    engine_rows rows[4];
} talk;

typedef struct seeing {
    fixture      f;
    vision      *v;    /* or */
    ears        *ears; /* then the pictures are sounds */
    bool         whole, prompt_whole;
    bool         wide; /* the prompt is longer than a window and sees itself whole: it is never used again in part */
    vision_rows  pictures[PICTURES]; /* copies */
    vision_place places[PICTURES];
    talk         talks[TALKS];
    answer       alone[TALKS];
    int          longest;
} seeing;

static void keep_rows(seeing *s, int i, const vision_rows *rows) {
    size_t bytes = (size_t)rows->n * (size_t)rows->width * sizeof(float);
    s->pictures[i] = *rows;
    s->pictures[i].data = malloc(bytes);
    memcpy(s->pictures[i].data, rows->data, bytes);
}

static void look(seeing *s, int i, const char *name) {
    char               path[512], *data = NULL;
    const vision_rows *rows;
    pixels             p;
    size_t             n;
    err                e = { 0 };
    snprintf(path, sizeof path, "%s/pictures/%s.png", DIR, name);
    assert_int_equal(file_read(&data, &n, path, 1 << 20, &e), 0);
    assert_int_equal(media_decode(&p, data, n, &media_default_limits, &e), 0);
    assert_int_equal(vision_encode(s->v, &p, &rows, &e), 0);
    assert_int_equal(vision_grid(s->v, &p, &s->places[i], &e), 0);
    keep_rows(s, i, rows);
    pixels_deinit(&p);
    free(data);
}

static void listen(seeing *s, int i, const char *name) {
    char               path[512], *data = NULL;
    const vision_rows *rows;
    sound              heard;
    size_t             n;
    err                e = { 0 };
    snprintf(path, sizeof path, "%s/sounds/%s.wav", SOUNDS, name);
    assert_int_equal(file_read(&data, &n, path, 1 << 20, &e), 0);
    assert_int_equal(media_sound_decode(&heard, data, n, MEDIA_SOUND_SECONDS, &e), 0);
    assert_int_equal(ears_encode(s->ears, &heard, NULL, &rows, &e), 0);
    keep_rows(s, i, rows);
    sound_deinit(&heard);
    free(data);
}

static void write_talk(seeing *s, talk *t, const char *plan) {
    uint64_t seed = 77;
    for (int i = 0; i < TEXT; i++) t->tokens[t->n++] = (int32_t)(3 + test_random(&seed) % 140);
    for (; *plan; plan++) {
        int                p = *plan == 'd';
        const vision_rows *v = &s->pictures[p];
        if (*plan != '-') {
            engine_rows *r = &t->rows[t->n_rows++];
            *r = (engine_rows){ .first = t->n,
                                .n = v->n,
                                .embd = v->data,
                                .whole = s->whole,
                                .across = s->places[p].across,
                                .advance = s->places[p].advance,
                                .counted = s->places[p].counted };
            memcpy(r->content, v->key, sizeof r->content);
            for (int k = 0; k < v->n; k++) t->tokens[t->n++] = PLACEHOLDER;
        }
        for (int i = 0; i < TEXT; i++) t->tokens[t->n++] = (int32_t)(3 + test_random(&seed) % 140);
    }
    assert_true(t->n < MOST);
    if (t->n > s->longest) s->longest = t->n;
}

static void submit(engine *g, const seeing *s, const talk *t, int priority,
                   void (*on_event)(void *, const engine_event *), void *ctx) {
    engine_request r = { .tokens = t->tokens,
                         .n_tokens = (size_t)t->n,
                         .rows = t->rows,
                         .n_rows = (size_t)t->n_rows,
                         .prompt_whole = s->prompt_whole,
                         .max_tokens = REPLY,
                         .ignore_eos = true,
                         .want_logprob = true,
                         .priority = priority,
                         .on_event = on_event,
                         .ctx = ctx };
    sampling_params_default(&r.sampling);
    r.sampling.seed = 11;
    r.sampling.temperature = 0.8f;
    engine_submit_ok(g, &r);
}

static void ask(engine *g, const seeing *s, const talk *t, answer *a) {
    *a = (answer){ 0 };
    submit(g, s, t, 0, answer_collect, a);
}

static void check(const seeing *s, const answer *a, int talk_no, const char *when) {
    if (a->failed) print_message("%s\n", a->error.msg);
    assert_true(a->over && !a->failed && a->n == REPLY);
    if (!answer_same(a, &s->alone[talk_no])) fail_msg("talk %s, %s: another answer", talks[talk_no], when);
}

static engine *open_engine(const seeing *s, engine_options o) {
    o.n_ctx = MOST + 2 * REPLY;
    o.page_tokens = 16;
    return fixture_engine(&s->f, o);
}

static bool open_seeing(seeing *s, const char *family) {
    char path[512];
    err  e = { 0 };
    *s = (seeing){ 0 };
    bool hears = strncmp(family, "../", 3) == 0;
    snprintf(path, sizeof path, "%s/%s", DIR, family);
    if (!dir_exists(path)) {
        print_message("skipped: there is no %s\n", path);
        return false;
    }
    int rc = model_file_open(&s->f.file, path, &e);
    if (rc == 0) rc = nn_model_open(&s->f.model, s->f.file, models_list, NULL, &e);
    vision_options o = { .device = getenv("HEARTH_TEST_DEVICE"), .n_threads = 1 };
    int            width = rc == 0 ? s->f.model->dims->n_embd * s->f.model->tape->n_parts : 0;
    if (rc == 0)
        rc = hears ? ears_open(&s->ears, s->f.file, NULL, width, &o, &e)
                   : vision_open(&s->v, s->f.file, NULL, width, &o, &e);
    if (rc < 0) fail_msg("%s", e.msg);
    s->whole = !hears && vision_whole(s->v);
    s->prompt_whole = !hears && vision_prompt_whole(s->v);
    for (int i = 0; s->prompt_whole && i < s->f.model->dims->n_layer; i++)
        s->wide = s->wide || s->f.model->state[i].window > 0;
    (hears ? listen : look)(s, 0, "a");
    (hears ? listen : look)(s, 1, hears ? "b" : "d");
    for (int i = 0; i < TALKS; i++) write_talk(s, &s->talks[i], talks[i]);
    engine *g = open_engine(s, (engine_options){ .n_threads = 1, .no_prefix_cache = true });
    for (int i = 0; i < TALKS; i++) {
        ask(g, s, &s->talks[i], &s->alone[i]);
        engine_wait_idle(g);
        check(s, &s->alone[i], i, "alone");
        for (int k = 0; k < i; k++) assert_false(answer_same(&s->alone[i], &s->alone[k]));
    }
    engine_free(g);
    return true;
}

static void close_seeing(seeing *s) {
    for (int i = 0; i < PICTURES; i++) free(s->pictures[i].data);
    vision_free(s->v);
    ears_free(s->ears);
    fixture_close(&s->f);
}

/* Everybody at once, three times over, in as many pages as the longest needs and a few more, and small steps. Returns how
 * often somebody had to give way. */
static uint64_t crowd(const seeing *s, int more) {
    enum { ROUNDS = 3 };
    answer      *got = calloc((size_t)TALKS * ROUNDS, sizeof *got);
    size_t       page = fixture_page_bytes(&s->f, 16);
    int          widest = s->pictures[0].n > s->pictures[1].n ? s->pictures[0].n : s->pictures[1].n;
    int          pages = (s->longest + REPLY + 15) / 16;
    engine_stats st;
    engine      *g = open_engine(s, (engine_options){ .n_threads = 2,
                                                      .max_seqs = 5,
                                                      .step_tokens = (s->prompt_whole ? s->longest
                                                                      : s->whole      ? widest
                                                                                      : 8) +
                                                                     5,
                                                      .cache_bytes = (size_t)(pages + more) * page });
    for (int r = 0; r < ROUNDS; r++) {
        for (int i = 0; i < TALKS; i++) ask(g, s, &s->talks[i], &got[r * TALKS + i]);
    }
    engine_wait_idle(g);
    for (int i = 0; i < TALKS * ROUNDS; i++) check(s, &got[i], i % TALKS, "in a crowd");
    engine_stat(g, &st);
    engine_free(g);
    free(got);
    return st.preemptions;
}

/* Somebody more important comes while a picture's rows are computed, or, where these are never cut, between two pictures. */
typedef struct interruption {
    engine       *g;
    const seeing *s;
    int           pause; /* the how many-th such moment */
    int           n_moments, came_at;
    answer        slow, quick;
} interruption;

static const engine_rows *rows_around(const talk *t, int done) {
    for (int i = 0; i < t->n_rows; i++) {
        if (done > t->rows[i].first && done < t->rows[i].first + t->rows[i].n) return &t->rows[i];
    }
    return NULL;
}

static void note_slow(void *ctx, const engine_event *ev) {
    interruption *p = ctx;
    const talk   *t = &p->s->talks[0];
    bool          whole = p->s->whole;
    answer_collect(&p->slow, ev);
    if (ev->kind != ENGINE_PROGRESS || p->came_at) return;
    const engine_rows *around = rows_around(t, ev->done);
    assert_false(whole && around);
    assert_false(p->s->prompt_whole && ev->done > 0 && ev->done < t->n);
    if (whole ? ev->done <= t->rows[0].first || ev->done >= t->n : !around) return;
    if (p->n_moments++ < p->pause) return;
    p->came_at = ev->done;
    submit(p->g, p->s, &p->s->talks[1], 1, answer_collect, &p->quick);
}

/* Returns where in the prompt it was; 0: there is no such moment. */
static int interrupt(const seeing *s, int pause) {
    int          widest = s->pictures[0].n > s->pictures[1].n ? s->pictures[0].n : s->pictures[1].n;
    int          step = s->prompt_whole ? s->longest : s->whole ? widest : 2;
    interruption p = { .s = s, .pause = pause };
    engine_stats st;
    p.g = open_engine(s, (engine_options){ .n_threads = 1, .max_seqs = 1, .step_tokens = step + 1 });
    submit(p.g, s, &s->talks[0], 0, note_slow, &p);
    engine_wait_idle(p.g);
    engine_stat(p.g, &st);
    check(s, &p.slow, 0, "interrupted");
    if (p.came_at) {
        check(s, &p.quick, 1, "in between");
        assert_int_equal(st.preemptions, 1);
    }
    engine_free(p.g);
    return p.came_at;
}

/* From the cache, and from the disk in another engine. */
static void again(const seeing *s) {
    char        *dir = test_temp_dir();
    answer       a;
    engine_stats st;
    for (int life = 0; life < 2; life++) {
        engine *g = open_engine(s, (engine_options){ .n_threads = 1, .cache_bytes = 4 << 20, .disk_cache_dir = dir });
        for (int i = 0; i < 2 * TALKS; i++) {
            ask(g, s, &s->talks[i % TALKS], &a);
            engine_wait_idle(g);
            check(s, &a, i % TALKS, life ? "from the disk" : "again");
            if (i >= TALKS) assert_int_equal(a.cached, s->wide ? 0 : s->talks[i % TALKS].n - 1);
        }
        engine_stat(g, &st);
        if (life) assert_true(s->wide || st.from_disk > 0);
        engine_free(g);
    }
    test_temp_dir_remove(dir);
}

/* What is known of a request before it waits. */
static void refuse(const seeing *s) {
    engine        *g = open_engine(s, (engine_options){ .n_threads = 1, .max_seqs = 2, .step_tokens = s->longest });
    const talk    *t = &s->talks[0];
    engine_request r = {
        .tokens = t->tokens, .n_tokens = (size_t)t->n, .prompt_whole = true, .on_event = answer_collect
    };
    uint64_t id;
    err      e = { 0 };
    sampling_params_default(&r.sampling);
    assert_int_equal(s->longest, t->n);
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "come in one step"));
    r.n_tokens = 5;
    r.score_prompt = true;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_UNSUPPORTED);
    r.score_prompt = false;
    r.pooling = ENGINE_POOL_MEAN;
    assert_int_equal(engine_submit(g, &r, &id, &e), ERR_UNSUPPORTED);
    engine_free(g);
}

/* Choices of one request, which have the prompt in common, and somebody who drafts. */
static void together(const seeing *s) {
    answer      *got = calloc(2 * TALKS, sizeof *got);
    engine_stats st;
    engine      *g = open_engine(
             s, (engine_options){ .n_threads = 2, .max_seqs = 4, .speculate = ENGINE_SPECULATE_LOOKUP, .draft_max = 3 });
    for (int i = 0; i < 2 * TALKS; i++) ask(g, s, &s->talks[i / 2], &got[i]);
    engine_wait_idle(g);
    for (int i = 0; i < 2 * TALKS; i++) check(s, &got[i], i / 2, "drafted");
    engine_stat(g, &st);
    assert_true(!s->prompt_whole || s->wide || st.tokens_cached > 0);
    engine_free(g);
    free(got);
}

static void test_pictures(void **state) {
    (void)state;
    for (int i = 0; i < FAMILIES; i++) {
        seeing *s = malloc(sizeof *s);
        assert_non_null(s);
        if (open_seeing(s, families[i])) {
            print_message("%s\n", families[i]);
            uint64_t gave_way = 0;
            for (int more = 1; more < 7; more++) gave_way += crowd(s, more);
            assert_true(gave_way > 0 && (interrupt(s, 0) > 0 || s->prompt_whole));
            (void)interrupt(s, 2);
            if (s->prompt_whole) refuse(s);
            together(s);
            again(s);
            close_seeing(s);
        }
        free(s);
    }
}

static void ignore_event(void *ctx, const engine_event *ev) { (void)ctx, (void)ev; }

/* Grids that do not come out even, and those of other models. */
static void test_grids(void **state) {
    static const struct {
        const char *family;
        int         n, across, advance, rc;
        bool        counted;
    } rows[] = {
        { "hunyuan_vl", 8, 3, 8, 0, true },          { "hunyuan_vl", 5, 3, 5, 0, true },
        { "hunyuan_vl", 7, 3, 7, ERR_ARG, true },    { "hunyuan_vl", 2, 1, 2, ERR_ARG, true },
        { "hunyuan_vl", 1, 1, 1, ERR_ARG, true },    { "hunyuan_vl", 8, 3, 3, ERR_ARG, true },
        { "hunyuan_vl", 8, -3, 8, ERR_ARG, true },   { "hunyuan_vl", 6, 3, 3, ERR_UNSUPPORTED, false },
        { "qwen2_vl", 6, 3, 3, 0, false },           { "qwen2_vl", 8, 3, 8, ERR_UNSUPPORTED, true },
        { "llava", 8, 3, 8, ERR_UNSUPPORTED, true }, { "llava", 6, 3, 3, ERR_UNSUPPORTED, false },
    };
    enum { LEAD = 2, MOST_ROWS = 8, WIDTH = 32 };
    static const float zeros[MOST_ROWS * WIDTH];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture  f = { 0 };
        char     path[512];
        int32_t  tokens[LEAD + MOST_ROWS + 1];
        uint64_t id;
        err      e = { 0 };
        snprintf(path, sizeof path, "%s/%s", DIR, rows[i].family);
        if (model_file_open(&f.file, path, &e) < 0 || nn_model_open(&f.model, f.file, models_list, NULL, &e) < 0)
            fail_msg("%s", e.msg);
        engine     *g = fixture_engine(&f, (engine_options){ .n_threads = 1 });
        engine_rows span = { .first = LEAD,
                             .n = rows[i].n,
                             .embd = zeros,
                             .across = rows[i].across,
                             .advance = rows[i].advance,
                             .counted = rows[i].counted };
        for (int k = 0; k < LEAD + MOST_ROWS + 1; k++) tokens[k] = 3 + k;
        engine_request r = { .tokens = tokens,
                             .n_tokens = (size_t)(LEAD + rows[i].n + 1),
                             .rows = &span,
                             .n_rows = 1,
                             .max_tokens = 1,
                             .on_event = ignore_event };
        sampling_params_default(&r.sampling);
        assert_int_equal(engine_submit(g, &r, &id, &e), rows[i].rc);
        engine_wait_idle(g);
        engine_free(g);
        fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pictures), cmocka_unit_test(test_grids) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
