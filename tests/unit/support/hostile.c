/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/hostile.h"

#include "base/file.h"
#include "base/str.h"
#include "convert/safetensors_writer.h"
#include "formats/table.h"
#include "media/media.h"
#include "unit/support/support.h"
#include "vision/ears.h"
#include "vision/internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Rows of a picture, patches of its tiles, rows of a sound: more make sense, and take a while. */
enum { MOST_ROWS = 1000, MOST_PATCHES = 4096, MOST_HEARD = 4096 };

int hostile_rounds(int usual, uint64_t *random) {
    const char *rounds = getenv("HEARTH_HOSTILE"), *seed = getenv("HEARTH_SEED");
    if (seed)
        *random = strtoull(seed, NULL, 10);
    else if (rounds)
        *random += (uint64_t)time(NULL) * 1000003u;
    if (rounds) print_message("HEARTH_SEED=%" PRIu64 "\n", *random);
    return rounds ? atoi(rounds) : usual;
}

/* --- JSON --- */

static const char *const values[] = { "0",           "-1",
                                      "1",           "2",
                                      "3",           "7",
                                      "16",          "28",
                                      "56",          "64",
                                      "-3",          "0.3",
                                      "0.5",         "[1,2]",
                                      "null",        "{}",
                                      "true",        "768",
                                      "1024",        "16384",
                                      "4096",        "65536",
                                      "\"x\"",       "1000000",
                                      "1e39",        "1e300",
                                      "4294967297",  "2147483647",
                                      "2147483648",  "-2147483648",
                                      "536870912",   "1073741824",
                                      "[[3,2],[1]]", "9007199254740993" };

/* The beginning of a number at or behind a place, outside of texts. */
static const char *number_at(const char *text, size_t from) {
    bool quoted = false;
    for (const char *s = text; *s; s++) {
        if (*s == '"') quoted = !quoted;
        if (!quoted && (size_t)(s - text) >= from && (isdigit((unsigned char)*s) || *s == '-')) return s;
    }
    return NULL;
}

/* Names of fields that some file has. */
enum { MAX_NAMES = 600, NAME_BYTES = 64 };
static char names[MAX_NAMES][NAME_BYTES];
static int  n_names;

int hostile_learn_text(const char *text) {
    for (const char *p = text; (p = strchr(p, '"'));) {
        size_t n = strcspn(++p, "\"");
        bool   known = n == 0 || n >= NAME_BYTES || n_names == MAX_NAMES || p[n] != '"' || p[n + 1] != ':';
        for (int i = 0; i < n_names && !known; i++) known = strncmp(names[i], p, n) == 0 && !names[i][n];
        if (!known) snprintf(names[n_names++], NAME_BYTES, "%.*s", (int)n, p);
        p += n + (p[n] == '"');
    }
    return n_names;
}

const char *hostile_name(uint64_t *random) {
    return n_names ? names[test_random(random) % (uint64_t)n_names] : "head_dim";
}

static const char *one_value(uint64_t *random) {
    return values[test_random(random) % (sizeof values / sizeof *values)];
}

/* One that may make sense: twice as much, half, one more, one less, the same again. */
int64_t hostile_near(int64_t x, uint64_t *random) {
    switch (test_random(random) % 6) {
    case 0: return x > INT64_MAX / 2 ? x : x * 2;
    case 1: return x / 2;
    case 2: return x < INT64_MAX ? x + 1 : x;
    case 3: return x > INT64_MIN ? x - 1 : x;
    case 4: return x > INT64_MAX / 8 ? x : x * 8;
    default: return x / 4;
    }
}

/* With another number in the place of one of its own. */
static void replace(const char *text, uint64_t *random, str *out) {
    const char *at = number_at(text, test_random(random) % strlen(text));
    if (!at) at = number_at(text, 0);
    assert_non_null(at);
    size_t n = strspn(at, "0123456789.eE+-");
    str_append(out, text, (size_t)(at - text));
    if (test_random(random) % 3 == 0 && n < 12)
        str_printf(out, "%" PRId64, hostile_near(strtoll(at, NULL, 10), random));
    else
        str_puts(out, one_value(random));
    str_puts(out, at + n);
}

/* With a field more in one of its objects, which has another name than all others. */
static void add_field(const char *text, uint64_t *random, str *out) {
    const char *name = hostile_name(random);
    const char *at = strchr(text + test_random(random) % strlen(text), '{');
    char        quoted[NAME_BYTES + 3];
    if (!at) at = strchr(text, '{');
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    str_append(out, text, (size_t)(at + 1 - text));
    if (at[1] != '}' && !strstr(text, quoted)) str_printf(out, "%s %s,", quoted, one_value(random));
    str_puts(out, at + 1);
}

/* One of its numbers, now and then several, replaced, or with a field more. The caller frees it. */
static char *changed(const char *text, uint64_t *random) {
    char *out = strdup(text);
    do {
        str next;
        str_init(&next);
        if (test_random(random) % 6 == 0)
            add_field(out, random, &next);
        else
            replace(out, random, &next);
        free(out);
        out = strdup(str_cstr(&next));
        assert_non_null(out);
        str_deinit(&next);
    } while (test_random(random) % 4 == 0 && number_at(out, 0));
    return out;
}

/* --- one size instead of another --- */

hostile_exchange hostile_exchange_take(const model_file *m, uint64_t *random) {
    static const int64_t sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 20, 24, 33, 40, 48, 63, 100, 130 };
    const model_tensor  *t = model_file_tensor_at(m, test_random(random) % model_file_tensor_count(m));
    if (!t->n_dims) return (hostile_exchange){ 0 };
    int64_t from = t->dims[test_random(random) % (uint64_t)t->n_dims];
    bool    any = test_random(random) % 3 > 0;
    return (hostile_exchange){ from, any ? sizes[test_random(random) % (sizeof sizes / sizeof *sizes)]
                                         : hostile_near(from, random) };
}

void hostile_exchange_dims(const hostile_exchange *x, model_tensor *t) {
    for (int d = 0; d < t->n_dims; d++) {
        if (x->from && t->dims[d] == x->from && x->to > 0) t->dims[d] = x->to;
    }
}

static char *exchanged(const char *text, const hostile_exchange *x) {
    str out;
    str_init(&out);
    for (const char *at; (at = number_at(text, 0)); text = at) {
        char  *end;
        double is = strtod(at, &end);
        str_append(&out, text, (size_t)(at - text));
        if (end == at) end++; /* a dash */
        if (is == (double)x->from)
            str_printf(&out, "%" PRId64, x->to);
        else
            str_append(&out, at, (size_t)(end - at));
        at = end;
    }
    str_puts(&out, text);
    char *made = strdup(str_cstr(&out));
    assert_non_null(made);
    str_deinit(&out);
    return made;
}

/* What a tensor has more than before is zero. */
static void write_tensors(const char *dir, const model_file *m, const hostile_exchange *x) {
    size_t              n = model_file_tensor_count(m);
    uint64_t           *offsets = calloc(n, sizeof *offsets), bytes;
    model_tensor       *all = calloc(n, sizeof *all);
    char               *path = path_join(dir, "model.safetensors");
    FILE               *f = fopen(path, "wb");
    safetensors_writer *w;
    str                 head;
    err                 e = { 0 };
    assert_non_null(f);
    str_init(&head);
    assert_int_equal(safetensors_writer_open(&w, &e), 0);
    for (size_t i = 0; i < n; i++) {
        const model_tensor *t = model_file_tensor_at(m, i);
        all[i] = *t;
        hostile_exchange_dims(x, &all[i]);
        if (tensor_table_bytes(&all[i], &all[i].bytes, &e) < 0) all[i] = *t;
        if (safetensors_writer_add(w, t->name, t->type, all[i].n_dims, all[i].dims, NULL, all[i].bytes, &e) < 0)
            fail_msg("%s: %s", t->name, e.msg);
    }
    if (safetensors_writer_head(w, &head, offsets, &bytes, &e) < 0) fail_msg("%s", e.msg);
    assert_int_equal(fwrite(str_cstr(&head), 1, head.len, f), head.len);
    for (size_t i = 0; i < n; i++) {
        size_t own = model_file_tensor_at(m, i)->bytes, kept = own < all[i].bytes ? own : all[i].bytes;
        assert_int_equal(fseek(f, (long)offsets[i], SEEK_SET), 0);
        assert_int_equal(fwrite(all[i].data, 1, kept, f), kept);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
    safetensors_writer_free(w);
    str_deinit(&head);
    free(path);
    free(all);
    free(offsets);
}

/* --- directories --- */

static const char *const files[] = { "config.json", "preprocessor_config.json" };

void hostile_write(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    free(path);
}

static char *read_text(const char *dir, const char *name) {
    char  *path = path_join(dir, name), *text;
    size_t n;
    err    e = { 0 };
    if (file_read(&text, &n, path, 1 << 20, &e) < 0) fail_msg("%s", e.msg);
    free(path);
    return text;
}

void hostile_learn(const char *dir) {
    for (int i = 0; i < 2; i++) {
        char *text = read_text(dir, files[i]);
        hostile_learn_text(text);
        free(text);
    }
}

static void write_exchanged(const char *dir, const model_file *m, char *const texts[2], uint64_t *random) {
    hostile_exchange x = hostile_exchange_take(m, random);
    for (int i = 0; i < 2; i++) {
        char *text = exchanged(texts[i], &x);
        if (i == 0 && test_random(random) % 3 == 0) {
            char *more = changed(text, random);
            free(text);
            text = more;
        }
        hostile_write(dir, files[i], text);
        free(text);
    }
    write_tensors(dir, m, &x);
}

int hostile_dir(const char *from, int rounds, uint64_t *random, hostile_opens opens, const void *ctx) {
    char       *texts[2], *dir = test_temp_dir(), *other = test_temp_dir();
    char       *to = path_join(dir, "model.safetensors"), *tensors = path_join(from, "model.safetensors");
    model_file *m;
    int         opened = 0;
    err         e = { 0 };
    assert_int_equal(model_file_open(&m, from, &e), 0);
    assert_int_equal(symlink(tensors, to), 0);
    for (int i = 0; i < 2; i++) hostile_write(dir, files[i], texts[i] = read_text(from, files[i]));
    for (int round = 0; round < rounds; round++) {
        if (test_random(random) % 4 == 0) {
            write_exchanged(other, m, texts, random);
            opened += opens(other, round, ctx);
            continue;
        }
        int   i = round % 4 == 0;
        char *text = changed(texts[i], random);
        hostile_write(dir, files[i], text);
        free(text);
        opened += opens(dir, round, ctx);
        hostile_write(dir, files[i], texts[i]);
    }
    model_file_free(m);
    for (int i = 0; i < 2; i++) free(texts[i]);
    free(to);
    free(tensors);
    test_temp_dir_remove(dir);
    test_temp_dir_remove(other);
    return opened;
}

/* --- time --- */

static double seconds(void) { return (double)clock() / CLOCKS_PER_SEC; }

hostile_clock hostile_begin(const char *what) { return (hostile_clock){ what, seconds() }; }

void hostile_end(const hostile_clock *c) {
    double took = seconds() - c->began;
    if (took > HOSTILE_SECONDS) fail_msg("%s: this took %.0f s", c->what, took);
}

/* --- pictures and sounds --- */

void hostile_pictures(pixels p[HOSTILE_PICTURES]) {
    static const int sizes[][2] = { { 2000, 1 }, { 1, 2000 }, { 1, 1 }, { 211, 97 } };
    char            *data = NULL;
    size_t           n;
    err              e = { 0 };
    assert_int_equal(file_read(&data, &n, HEARTH_SOURCE_DIR "/tests/golden/vision/pictures/b.png", 1 << 20, &e), 0);
    assert_int_equal(media_decode(&p[0], data, n, &media_default_limits, &e), 0);
    free(data);
    for (int i = 0; i < HOSTILE_PICTURES - 1; i++)
        assert_int_equal(pixels_init(&p[i + 1], sizes[i][0], sizes[i][1], &e), 0);
}

void hostile_pictures_free(pixels p[HOSTILE_PICTURES]) {
    for (int i = 0; i < HOSTILE_PICTURES; i++) pixels_deinit(&p[i]);
}

void hostile_sounds(sound s[HOSTILE_SOUNDS]) {
    static const int lengths[HOSTILE_SOUNDS] = { 1, 159, SOUND_RATE, 3 * SOUND_RATE + 7 };
    uint64_t         random = 1;
    err              e = { 0 };
    for (int i = 0; i < HOSTILE_SOUNDS; i++) {
        assert_int_equal(sound_init(&s[i], lengths[i], &e), 0);
        for (int k = 0; k < lengths[i]; k++) s[i].at[k] = (float)(test_random(&random) % 2001) / 1000 - 1;
    }
}

void hostile_sounds_free(sound s[HOSTILE_SOUNDS]) {
    for (int i = 0; i < HOSTILE_SOUNDS; i++) sound_deinit(&s[i]);
}

/* --- eyes and ears --- */

static size_t count_words(const char *text, const char *word) {
    size_t n = 0;
    for (; (text = strstr(text, word)); text += strlen(word)) n++;
    return n;
}

static int patches_of(const vision *v, const pixels *tile) {
    return tile->width / v->rules.patch * (tile->height / v->rules.patch);
}

static void look_at(vision *v, const pixels *p, err *e) {
    const vision_rows *rows;
    pixels            *tiles = NULL;
    int                rc, n_tiles = 0, patches = 0;
    vision_place       place;
    str                words;
    str_init(&words);
    rc = vision_write(v, p, 0, &words, e);
    size_t n = rc < 0 ? 0 : count_words(str_cstr(&words), vision_row_word(v));
    if (rc == 0) rc = vision_grid(v, p, &place, e);
    if (rc == 0 && vision_most_rows(v) <= MOST_ROWS) rc = vision_cut(v, p, &tiles, &n_tiles, e);
    for (int i = 0; rc == 0 && i < n_tiles; i++) patches += patches_of(v, &tiles[i]);
    if (rc == 0) vision_cut_free(tiles, n_tiles);
    if (patches > 0 && patches <= MOST_PATCHES && (rc = vision_encode(v, p, &rows, e)) == 0) {
        assert_true(rows->n > 0);
        assert_int_equal(rows->n, n);
    }
    if (rc < 0) assert_true(e->msg[0]);
    str_deinit(&words);
}

bool hostile_see(const model_file *model, const model_file *mmproj, int width, const pixels *p, err *why) {
    vision_options o = { .device = "cpu", .n_threads = 1 };
    vision        *v = NULL;
    uint64_t       bytes, on_device;
    err            e = { 0 };
    (void)vision_known(model, mmproj);
    int rc = vision_measure(&bytes, &on_device, model, mmproj, width, &o, &e);
    if (rc == 0) rc = vision_open(&v, model, mmproj, width, &o, &e);
    if (rc < 0) {
        assert_true(e.msg[0]);
        assert_null(v);
    }
    bool opened = v != NULL; /* of another kind, it has no eyes */
    if (opened) look_at(v, p, &e);
    vision_free(v);
    if (why) *why = e;
    return opened;
}

static void listen_to(ears *h, const sound *s, err *e) {
    const vision_rows *rows;
    str                words;
    int64_t            n = ears_rows(h, s->n);
    assert_true(n > 0);
    if (n > MOST_HEARD) return;
    str_init(&words);
    int rc = ears_write(h, s->n, &words, e);
    if (rc == 0) {
        assert_int_equal(count_words(str_cstr(&words), ears_row_word(h)), n);
        rc = ears_encode(h, s, NULL, &rows, e);
    }
    if (rc == 0)
        assert_int_equal(rows->n, n);
    else
        assert_true(e->msg[0]);
    str_deinit(&words);
}

bool hostile_hear(const model_file *model, const model_file *mmproj, int width, const sound s[HOSTILE_SOUNDS],
                  err *why) {
    vision_options o = { .device = "cpu", .n_threads = 1 };
    ears          *h = NULL;
    uint64_t       bytes, on_device;
    err            e = { 0 };
    (void)ears_known(model, mmproj);
    int rc = ears_measure(&bytes, &on_device, model, mmproj, width, &o, &e);
    if (rc == 0) rc = ears_open(&h, model, mmproj, width, &o, &e);
    if (rc < 0) {
        assert_true(e.msg[0]);
        assert_null(h);
    }
    bool opened = h != NULL;
    for (int i = 0; opened && i < HOSTILE_SOUNDS; i++) listen_to(h, &s[i], &e);
    ears_free(h);
    if (why) *why = e;
    return opened;
}
