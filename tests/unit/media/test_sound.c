/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sounds come out as they went in, whatever the file's form; another rate keeps what can be heard at it, and nothing else;
 * what is cut, claims too much or is not a sound is an error.
 */
#include "media/sound.h"

#include "base/file.h"
#include "base/str.h"

#include "unit/support/support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PCM = 1, FLOATS = 3, EXTENSIBLE = 0xfffe };

typedef struct form {
    int kind, channels, rate, bits;
} form;

static void put(str *s, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) str_push(s, (char)(v >> (8 * i)));
}

/* data_bytes: what the header says; parts: others before the samples. */
static void head(str *s, const form *f, uint32_t data_bytes, bool parts) {
    bool wide = f->kind == EXTENSIBLE;
    str_append(s, "RIFF\0\0\0\0WAVE", 12);
    if (parts) {
        str_append(s, "LIST\3\0\0\0abc\0", 12); /* an odd length is padded */
    }
    str_puts(s, "fmt ");
    put(s, wide ? 40 : 16, 4);
    put(s, (uint64_t)f->kind, 2);
    put(s, (uint64_t)f->channels, 2);
    put(s, (uint64_t)f->rate, 4);
    put(s, (uint64_t)f->rate * (uint64_t)(f->channels * f->bits / 8), 4);
    put(s, (uint64_t)(f->channels * f->bits / 8), 2);
    put(s, (uint64_t)f->bits, 2);
    if (wide) {
        put(s, 22, 2);
        put(s, (uint64_t)f->bits, 2);
        put(s, 0, 4);
        put(s, PCM, 2);
        str_append(s, "\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", 14);
    }
    str_puts(s, "data");
    put(s, data_bytes, 4);
}

static void put_sample(str *s, const form *f, double x) {
    union {
        float    f;
        uint32_t u;
    } a = { .f = (float)x };
    union {
        double   d;
        uint64_t u;
    } b = { .d = x };
    if (f->kind == FLOATS) {
        put(s, f->bits == 32 ? a.u : b.u, f->bits / 8);
        return;
    }
    int64_t whole = (int64_t)lrint(x * (double)((int64_t)1 << (f->bits - 1)));
    put(s, (uint64_t)(f->bits == 8 ? whole + 128 : whole), f->bits / 8);
}

static double wave(int i, int c) { return 0.5 * sin(0.07 * i + c) - 0.25 * c; }

static void write_wav(str *s, const form *f, int n) {
    head(s, f, (uint32_t)(n * f->channels * f->bits / 8), true);
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < f->channels; c++) put_sample(s, f, wave(i, c));
    }
}

static int decode(sound *out, const str *s, int seconds, err *e) {
    return media_sound_decode(out, s->data, s->len, seconds, e);
}

/* Every kind of sample, one channel or several, which are mixed. */
static void test_forms(void **state) {
    static const form forms[] = { { PCM, 1, 16000, 8 },     { PCM, 1, 16000, 16 },    { PCM, 2, 16000, 16 },
                                  { PCM, 1, 16000, 24 },    { PCM, 3, 16000, 24 },    { PCM, 1, 16000, 32 },
                                  { FLOATS, 1, 16000, 32 }, { FLOATS, 2, 16000, 64 }, { EXTENSIBLE, 2, 16000, 24 } };
    (void)state;
    for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
        const form *f = &forms[k];
        sound       p;
        err         e = { 0 };
        str         s;
        str_init(&s);
        write_wav(&s, f, 333);
        int rc = decode(&p, &s, 1, &e);
        if (rc < 0) print_message("%s\n", e.msg);
        assert_int_equal(rc, 0);
        assert_int_equal(p.n, 333);
        for (int i = 0; i < p.n; i++) {
            double want = 0;
            for (int c = 0; c < f->channels; c++) want += wave(i, c) / f->channels;
            assert_true(fabs((double)p.at[i] - want) < (f->bits == 8 ? 0.005 : f->bits == 16 ? 2e-5 : 1e-6));
        }
        sound_deinit(&p);
        str_deinit(&s);
    }
}

/* A tone at another rate is the same tone, up to 7 kHz; one that the new rate cannot hold is gone; a constant stays. */
static void test_rates(void **state) {
    static const int rates[] = { 8000, 11025, 44100, 48000, 12347, 192000, 4000 };
    static const int tones[] = { 0, 300, 1000, 3000, 7000, 8000 + 500 };
    (void)state;
    for (size_t k = 0; k < sizeof rates / sizeof *rates; k++) {
        int    rate = rates[k], n = rate / 5;
        float *in = malloc((size_t)n * sizeof *in);
        for (size_t t = 0; t < sizeof tones / sizeof *tones; t++) {
            double turn = 2 * acos(-1.0) * tones[t], worst = 0;
            sound  p;
            err    e = { 0 };
            if (tones[t] > 0.43 * rate) continue; /* it cannot be there */
            for (int i = 0; i < n; i++) in[i] = (float)(0.5 * cos(turn * i / rate));
            assert_int_equal(sound_resample(&p, in, n, rate, &e), 0);
            assert_int_equal(p.n, (n * (int64_t)SOUND_RATE + rate - 1) / rate);
            int edge =
                51 * SOUND_RATE / (rate < SOUND_RATE ? rate : SOUND_RATE) + 2; /* there silence begins to mix in */
            for (int i = edge; i < p.n - edge; i++) {
                double want = tones[t] < SOUND_RATE / 2 ? 0.5 * cos(turn * i / SOUND_RATE) : 0;
                worst = fmax(worst, fabs((double)p.at[i] - want));
            }
            if (worst > 1e-4) print_message("%d Hz at %d: %g\n", tones[t], rate, worst);
            assert_true(worst <= 1e-4);
            sound_deinit(&p);
        }
        free(in);
    }
}

/* Through a file: half of the samples at half of the rate make the same length. */
static void test_file_rates(void **state) {
    (void)state;
    for (int rate = 8000; rate <= 48000; rate *= 2) {
        sound p;
        err   e = { 0 };
        str   s;
        str_init(&s);
        write_wav(&s, &(form){ PCM, 2, rate, 16 }, rate / 10);
        assert_int_equal(decode(&p, &s, 1, &e), 0);
        assert_int_equal(p.n, 1600);
        sound_deinit(&p);
        str_deinit(&s);
    }
}

static void expect_refused(const str *s, const char *words) {
    sound p;
    err   e = { 0 };
    assert_true(decode(&p, s, 2, &e) < 0);
    if (!strstr(e.msg, words)) print_message("%s\n", e.msg);
    assert_non_null(strstr(e.msg, words));
    assert_null(p.at);
}

/* Every truncation is refused, and none reads beyond its end; a length that nobody could fill in is not one. */
static void test_cut(void **state) {
    form  f = { PCM, 1, 16000, 16 };
    sound p;
    err   e = { 0 };
    str   s;
    (void)state;
    str_init(&s);
    write_wav(&s, &f, 50);
    for (size_t n = 0; n < s.len; n++) {
        char *copy = malloc(n ? n : 1); /* so that a sanitizer sees its end */
        memcpy(copy, s.data, n);
        assert_true(media_sound_decode(&p, copy, n, 1, &e) < 0);
        assert_null(p.at);
        free(copy);
    }
    str_clear(&s);
    head(&s, &f, UINT32_MAX, false);
    for (int i = 0; i < 20; i++) put_sample(&s, &f, wave(i, 0));
    assert_int_equal(decode(&p, &s, 1, &e), 0);
    assert_int_equal(p.n, 20);
    sound_deinit(&p);
    str_deinit(&s);
}

static void test_nonsense(void **state) {
    static const struct {
        form        f;
        const char *words;
    } bad[] = { { { PCM, 0, 16000, 16 }, "channels" },     { { PCM, 9, 16000, 16 }, "channels" },
                { { PCM, 1, 0, 16 }, "samples a second" }, { { PCM, 1, 1 << 30, 16 }, "samples a second" },
                { { PCM, 1, 16000, 12 }, "12 bits" },      { { 6, 1, 16000, 8 }, "kind 6" },
                { { 0x55, 1, 16000, 0 }, "kind 85" },      { { FLOATS, 1, 16000, 16 }, "kind 3" } };
    str s;
    (void)state;
    str_init(&s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        str_clear(&s);
        head(&s, &bad[i].f, 4, false);
        put(&s, 0, 4);
        expect_refused(&s, bad[i].words);
    }
    str_clear(&s);
    write_wav(&s, &(form){ PCM, 1, 16000, 8 }, 3 * 16000);
    expect_refused(&s, "3 seconds"); /* of two that are allowed */
    str_clear(&s);
    head(&s, &(form){ PCM, 1, 16000, 16 }, 0, false);
    expect_refused(&s, "0 bytes");
    str_clear(&s);
    head(&s, &(form){ PCM, 1, 16000, 16 }, 0x7fffffff, false);
    expect_refused(&s, "cut off");
    str_clear(&s);
    head(&s, &(form){ PCM, 1, 16000, 16 }, 3, false);
    put(&s, 0, 3);
    expect_refused(&s, "3 bytes");
    str_clear(&s);
    head(&s, &(form){ FLOATS, 1, 16000, 32 }, 4, false);
    put(&s, 0x7fc00000, 4);
    expect_refused(&s, "not a number");
    str_clear(&s);
    str_puts(&s, "OggS");
    expect_refused(&s, "not a sound");
    str_deinit(&s);
}

/* 0.4 s of 440 Hz, half as loud as can be, which LAME wrote at 22050 Hz. Cut files are shorter sounds, or none. */
static void test_mp3(void **state) {
    char  *data = NULL;
    size_t bytes;
    sound  p;
    err    e = { 0 };
    (void)state;
    assert_int_equal(file_read(&data, &bytes, HEARTH_SOURCE_DIR "/tests/golden/sound/sounds/tone.mp3", 1 << 16, &e), 0);
    int rc = media_sound_decode(&p, data, bytes, 1, &e);
    if (rc < 0) print_message("%s\n", e.msg);
    assert_int_equal(rc, 0);
    assert_true(p.n >= 6400 && p.n < 8000);
    double turn = 2 * acos(-1.0) * 440 / SOUND_RATE, s = 0, c = 0, all = 0;
    int    from = 1600, n = 3200; /* 88 periods */
    for (int i = from; i < from + n; i++) {
        s += (double)p.at[i] * sin(turn * i) * 2 / n;
        c += (double)p.at[i] * cos(turn * i) * 2 / n;
        all += (double)p.at[i] * (double)p.at[i] * 2 / n;
    }
    assert_true(fabs(sqrt(s * s + c * c) - 0.5) < 0.01); /* the tone */
    assert_true(all - (s * s + c * c) < 0.001);          /* and nothing else */
    sound_deinit(&p);
    for (size_t n_cut = 0; n_cut < bytes; n_cut += 37) {
        char *copy = malloc(n_cut ? n_cut : 1);
        memcpy(copy, data, n_cut);
        rc = media_sound_decode(&p, copy, n_cut, 1, &e);
        assert_true(rc < 0 || (p.n > 0 && p.n < 8000));
        sound_deinit(&p);
        free(copy);
    }
    for (uint64_t i = 0, seed = 1; i < 50; i++) { /* and bytes that are other ones */
        char *copy = malloc(bytes);
        memcpy(copy, data, bytes);
        for (int k = 0; k < 8; k++) copy[test_random(&seed) % bytes] = (char)test_random(&seed);
        rc = media_sound_decode(&p, copy, bytes, 1, &e);
        assert_true(rc < 0 || (p.n > 0 && p.n <= SOUND_RATE));
        sound_deinit(&p);
        free(copy);
    }
    free(data);
}

/* As bytes between processes. */
static void test_bytes(void **state) {
    sound p, q;
    err   e = { 0 };
    int   n;
    (void)state;
    assert_int_equal(sound_init(&p, 7, &e), 0);
    for (int i = 0; i < 7; i++) p.at[i] = (float)i;
    char *bytes = malloc(sound_bytes(&p));
    sound_write(&p, bytes);
    assert_true(sound_is(bytes, sound_bytes(&p)));
    assert_int_equal(sound_count(bytes, sound_bytes(&p), &n, &e), 0);
    assert_int_equal(n, 7);
    assert_int_equal(sound_read(&q, bytes, sound_bytes(&p), &e), 0);
    assert_memory_equal(p.at, q.at, 7 * sizeof *p.at);
    for (size_t cut = 0; cut < sound_bytes(&p); cut++) assert_true(sound_count(bytes, cut, &n, &e) < 0);
    bytes[0] = 1; /* a picture one pixel wide */
    assert_false(sound_is(bytes, sound_bytes(&p)));
    free(bytes);
    sound_deinit(&p);
    sound_deinit(&q);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_forms),      cmocka_unit_test(test_rates),
                                        cmocka_unit_test(test_file_rates), cmocka_unit_test(test_cut),
                                        cmocka_unit_test(test_nonsense),   cmocka_unit_test(test_mp3),
                                        cmocka_unit_test(test_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
