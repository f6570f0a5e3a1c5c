/* SPDX-License-Identifier: Apache-2.0 */
#include "unit/support/hostile.h"

#include "base/file.h"
#include "base/str.h"
#include "media/media.h"
#include "unit/support/support.h"
#include "vision/ears.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Rows of a picture, and of a sound: more make sense, and take a while. */
enum { MOST_ROWS = 1000, MOST_HEARD = 4096 };

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

void hostile_learn(const char *text) {
    for (const char *p = text; (p = strchr(p, '"'));) {
        size_t n = strcspn(++p, "\"");
        bool   known = n == 0 || n >= NAME_BYTES || n_names == MAX_NAMES || p[n] != '"' || p[n + 1] != ':';
        for (int i = 0; i < n_names && !known; i++) known = strncmp(names[i], p, n) == 0 && !names[i][n];
        if (!known) snprintf(names[n_names++], NAME_BYTES, "%.*s", (int)n, p);
        p += n + (p[n] == '"');
    }
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
    const char *name = n_names ? names[test_random(random) % (uint64_t)n_names] : "head_dim";
    const char *at = strchr(text + test_random(random) % strlen(text), '{');
    char        quoted[NAME_BYTES + 3];
    if (!at) at = strchr(text, '{');
    snprintf(quoted, sizeof quoted, "\"%s\":", name);
    str_append(out, text, (size_t)(at + 1 - text));
    if (at[1] != '}' && !strstr(text, quoted)) str_printf(out, "%s %s,", quoted, one_value(random));
    str_puts(out, at + 1);
}

char *hostile_json(const char *text, uint64_t *random) {
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

void hostile_write(const char *dir, const char *name, const char *text) {
    char *path = path_join(dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    free(path);
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

static void look_at(vision *v, const pixels *p, err *e) {
    const vision_rows *rows;
    int                across, advance, rc;
    str                words;
    str_init(&words);
    rc = vision_write(v, p, 0, &words, e);
    size_t n = rc < 0 ? 0 : count_words(str_cstr(&words), vision_row_word(v));
    if (rc == 0) rc = vision_grid(v, p, &across, &advance, e);
    if (rc == 0 && vision_most_rows(v) <= MOST_ROWS && (rc = vision_encode(v, p, &rows, e)) == 0) {
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
