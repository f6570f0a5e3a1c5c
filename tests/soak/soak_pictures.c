/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of pictures that somebody broke on purpose. Whatever the bytes are, reading them gives a picture within the limits
 * or an error with a sentence, in bounded time and memory:
 *
 *     mutated      random changes of good files: bits, bytes, numbers at their ends, stretches removed, doubled, filled or
 *                  taken from another file; of half of the PNG files the checksums are made right again
 *     cut          good files up to every 64th byte
 *     bombs        headers that claim 65535 x 65535 pixels, and small files that become large ones
 *
 *     soak_pictures [mutated files per format] [seed]
 *
 * Built with AddressSanitizer it also sees what reads or writes beyond its memory here, and what the libraries do through
 * malloc, memcpy and the like. With HEARTH_PROGRAM every hundredth file, and each bomb, also goes through the decoder's own
 * process, which says the same. A file is a function of the seed, its format and its number.
 */
#include "host/decoder/decoder.h"
#include "media/media.h"
#include "unit/support/encode_picture.h"

#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <webp/encode.h>
#include <zlib.h>

enum { W = 120, H = 100, MOST_SOURCES = 8, SECONDS = 20, EVERY = 100, CUT_STEP = 64 };
#define MOST_RSS_KIB (1 << 20) /* as much as the decoder's process may have */

typedef enum format { PNG, JPEG, WEBP, GIF, FORMATS } format;
static const char *const names[FORMATS] = { "PNG", "JPEG", "WebP", "GIF" };

typedef struct source_list {
    str at[MOST_SOURCES];
    int n;
} source_list;

static source_list sources[FORMATS];
static uint64_t    state; /* of the random numbers */
static long        n_read, n_refused, n_processes;
static double      slowest;

static uint32_t below(uint64_t n) {
    state += 0x9e3779b97f4a7c15u; /* SplitMix64 */
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ z >> 31) % n);
}

static void fail(const char *what, const char *where, long number) {
    fprintf(stderr, "soak_pictures: %s: %s, file %ld\n", where, what, number);
    exit(1);
}

/* --- good files -------------------------------------------------------------------------------------------------- */

static str *add(format f) {
    str *s = &sources[f].at[sources[f].n++];
    str_init(s);
    return s;
}

static void make_webp(const uint8_t *rgb, const uint8_t *rgba) {
    static const uint8_t head[30] = "RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x18"; /* alpha, EXIF */
    static const char    exif[] = "EXIF\x1a\0\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    uint8_t             *lossy = NULL;
    size_t               n = WebPEncodeRGB(rgb, W, H, W * 3, 60, &lossy);
    str                 *plain = add(WEBP);
    encode_webp(plain, W, H, rgba);
    str_append(add(WEBP), lossy, n);
    WebPFree(lossy);
    str *wide = add(WEBP); /* a container around it */
    str_append(wide, head, sizeof head);
    str_append(wide, plain->data + 12, plain->len - 12);
    str_append(wide, exif, sizeof exif - 1);
    uint32_t bytes = (uint32_t)wide->len - 8;
    memcpy(wide->data + 4, &bytes, 4);
    wide->data[24] = W - 1;
    wide->data[27] = H - 1;
}

static void make_sources(void) {
    static const uint8_t palette[4][3] = { { 10, 20, 30 }, { 200, 0, 0 }, { 0, 0, 0 }, { 9, 8, 7 } };
    static const uint8_t alpha[4] = { 255, 255, 0, 80 };
    static uint8_t       rgb[W * H * 3], rgba[W * H * 4], wide[W * H * 6], index[W * H];
    for (size_t i = 0; i < W * H; i++) {
        for (size_t c = 0; c < 3; c++) {
            rgb[i * 3 + c] = rgba[i * 4 + c] = (uint8_t)(i % W * (c + 1) + i / W * 3 + below(9));
            wide[i * 6 + c * 2] = rgb[i * 3 + c];
        }
        rgba[i * 4 + 3] = (uint8_t)(i / W * 2);
        index[i] = (uint8_t)(i * i / 7 % 4);
    }
    encode_png(add(PNG), W, H, rgb, &(png_form){ .color_type = PNG_COLOR_TYPE_RGB, .bits = 8, .orientation = 6 });
    encode_png(add(PNG), W, H, rgba, &(png_form){ .color_type = PNG_COLOR_TYPE_RGBA, .bits = 8, .interlaced = true });
    encode_png(add(PNG), W, H, wide, &(png_form){ .color_type = PNG_COLOR_TYPE_RGB, .bits = 16 });
    encode_png(add(PNG), W, H, index,
               &(png_form){ .color_type = PNG_COLOR_TYPE_PALETTE,
                            .bits = 8,
                            .palette = palette[0],
                            .palette_alpha = alpha,
                            .n_palette = 4 });
    encode_jpeg(add(JPEG), W, H, rgb, 90, false, 6);
    encode_jpeg(add(JPEG), W, H, rgb, 80, true, 0);
    encode_jpeg(add(JPEG), 31, 17, rgb, 30, false, 0);
    make_webp(rgb, rgba);
    encode_gif(add(GIF), &(gif_form){ W, H, 0, 0, W, H, -1, false }, index, palette, 1);
    encode_gif(add(GIF), &(gif_form){ W, H, 0, 0, W, H, 2, true }, index, palette, 2);
    encode_gif(add(GIF), &(gif_form){ W + 9, H + 7, 5, 3, W, H, 1, false }, index, palette, 1);
}

/* --- judging one ------------------------------------------------------------------------------------------------- */

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile unsigned sink;

/* The decoder's process says what was said here. */
static void ask_process(const void *data, size_t n, int want, const char *where, long number) {
    decoder_options o = { .program = getenv("HEARTH_PROGRAM"), .time_ms = 60000 };
    pixels          p;
    err             e = { 0 };
    if (!o.program) return;
    int rc = decoder_read(&p, (view){ data, n }, &o, &e);
    n_processes++;
    if ((rc < 0) != (want < 0)) fail(rc < 0 ? e.msg : "the decoder's process reads it", where, number);
    pixels_deinit(&p);
}

static int judge(const str *file, const char *where, long number, bool process) {
    const media_limits *l = &media_default_limits;
    uint8_t            *copy = malloc(file->len ? file->len : 1); /* ends where the file ends */
    pixels              p;
    err                 e = { 0 };
    if (!copy) fail("out of memory", where, number);
    if (file->len) memcpy(copy, file->data, file->len);
    double before = cpu_seconds();
    int    rc = media_decode(&p, copy, file->len, l, &e);
    double took = cpu_seconds() - before;
    if (took > slowest) slowest = took;
    if (took > SECONDS) fail("takes too long", where, number);
    if (rc < 0 && (strlen(e.msg) < 10 || p.rgb)) fail("an error without a sentence", where, number);
    if (rc == 0 && (p.width > l->max_side || p.height > l->max_side || (int64_t)p.width * p.height > l->max_pixels))
        fail("larger than the limits", where, number);
    for (size_t i = 0; rc == 0 && i < pixels_bytes(&p); i++) sink += p.rgb[i];
    if (rc < 0)
        n_refused++;
    else
        n_read++;
    pixels_deinit(&p);
    if (process) ask_process(copy, file->len, rc, where, number);
    free(copy);
    return rc;
}

/* --- mutations --------------------------------------------------------------------------------------------------- */

/* Numbers of files at their ends, two or four bytes long. */
static void put_number(uint8_t *at, size_t left) {
    static const uint32_t ends[] = { 0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000u, 0xffffffffu };
    uint32_t              x = ends[below(sizeof ends / sizeof *ends)];
    size_t                n = below(2) ? 4 : 2;
    bool                  big = below(2);
    for (size_t i = 0; i < n && i < left; i++) at[i] = (uint8_t)(x >> 8 * (big ? n - 1 - i : i));
}

static void mutate_once(str *s, const str *other) {
    size_t   at = below(s->len), n = 1 + below(below(4) ? 8 : s->len - at);
    uint8_t *d = (uint8_t *)s->data;
    if (below(3) == 0 && at > 64) at = below(64); /* heads more often */
    if (n > s->len - at) n = s->len - at;
    switch (below(7)) {
    case 0: d[at] ^= (uint8_t)(1u << below(8)); break;
    case 1: d[at] = (uint8_t)below(256); break;
    case 2: put_number(d + at, s->len - at); break;
    case 3: memset(d + at, below(2) ? 0 : 255, n); break;
    case 4:
        memmove(d + at, d + at + n, s->len - at - n);
        s->len -= n;
        break;
    case 5: {
        char *twice = malloc(n);
        if (!twice) fail("out of memory", "mutations", 0);
        memcpy(twice, s->data + at, n);
        str_append(s, twice, n);
        memmove(s->data + at + n, s->data + at, s->len - at - n);
        free(twice);
        break;
    }
    default:
        if (n > other->len) n = other->len;
        memcpy(d + at, other->data + below(other->len - n + 1), n);
    }
}

static void put_big(uint8_t *at, uint32_t x) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(x >> (24 - 8 * i));
}

static uint32_t get_big(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Checksums of PNG's chunks, as far as their lengths can be followed: what is behind them is reached. */
static void right_checksums(str *s) {
    uint8_t *d = (uint8_t *)s->data;
    for (size_t at = 8; at + 12 <= s->len;) {
        size_t n = get_big(d + at);
        if (n > s->len - at - 12) return;
        put_big(d + at + 8 + n, (uint32_t)crc32(0, d + at + 4, (uInt)n + 4));
        at += n + 12;
    }
}

static void mutated(format f, long n, uint64_t seed) {
    str s;
    str_init(&s);
    for (long i = 0; i < n; i++) {
        state = seed * 1000003 + (uint64_t)i * FORMATS + f;
        const str *from = &sources[f].at[below((uint64_t)sources[f].n)];
        str_clear(&s);
        str_append(&s, from->data, from->len);
        for (uint32_t k = 1 + below(i % 2 ? 6 : 1); k > 0 && s.len > 16; k--)
            mutate_once(&s, &sources[f].at[below((uint64_t)sources[f].n)]);
        if (f == PNG && below(2)) right_checksums(&s);
        (void)judge(&s, names[f], i, i % EVERY == 0);
    }
    str_deinit(&s);
}

/* --- cut --------------------------------------------------------------------------------------------------------- */

/* Without its last bytes a GIF has all pixels of its first frame, and a WebP its picture. */
static void cut(format f) {
    for (int k = 0; k < sources[f].n; k++) {
        const str *from = &sources[f].at[k];
        for (size_t n = 0; n + 2 * CUT_STEP < from->len; n += CUT_STEP) {
            str s = { .data = from->data, .len = n };
            if (judge(&s, names[f], (long)n, false) == 0 && !(f == GIF && n * 2 > from->len))
                fail("a file that is cut off is read", names[f], (long)n);
        }
    }
}

/* --- bombs ------------------------------------------------------------------------------------------------------- */

static void chunk(str *s, const char *type, const void *data, size_t n) {
    uint8_t head[8], end[4];
    put_big(head, (uint32_t)n);
    memcpy(head + 4, type, 4);
    str_append(s, head, 8);
    str_append(s, data, n);
    put_big(end, (uint32_t)crc32(crc32(0, head + 4, 4), data, (uInt)n));
    str_append(s, end, 4);
}

/* n bytes of one value, compressed. */
static void squeeze(str *out, size_t n, int value) {
    uint8_t *in = malloc(n), *to = malloc(compressBound(n));
    uLongf   bytes = compressBound(n);
    if (!in || !to) fail("out of memory", "bombs", 0);
    memset(in, value, n);
    compress2(to, &bytes, in, n, 9);
    str_append(out, to, bytes);
    free(in);
    free(to);
}

static void begin_png(str *s, uint32_t w, uint32_t h, int bits, int color_type) {
    uint8_t head[13] = { 0 };
    put_big(head, w);
    put_big(head + 4, h);
    head[8] = (uint8_t)bits;
    head[9] = (uint8_t)color_type;
    str_clear(s);
    str_append(s, "\x89PNG\r\n\x1a\n", 8);
    chunk(s, "IHDR", head, sizeof head);
}

static void expect(const str *s, int want, const char *what) {
    int rc = judge(s, what, 0, true);
    if (want == 0 ? rc != 0 : rc >= 0) fail(rc < 0 ? "is refused" : "is read", what, 0);
}

static void claims(str *s) {
    static const char frame[] =
        "GIF89a\x04\0\x04\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\xff\xff\xff\xff\0\x02\x02\x4c\x01\0;";
    begin_png(s, 65535, 65535, 8, PNG_COLOR_TYPE_RGB);
    chunk(s, "IDAT", "x", 1);
    expect(s, -1, "PNG of 65535 x 65535");
    str_clear(s);
    str_append(s, sources[JPEG].at[0].data, sources[JPEG].at[0].len);
    for (size_t i = 0; i + 9 < s->len; i++) {
        if (memcmp(s->data + i, "\xff\xc0", 2) == 0) memset(s->data + i + 5, 255, 4);
    }
    expect(s, -1, "JPEG of 65535 x 65535");
    str_clear(s);
    str_append(s, sources[WEBP].at[2].data, sources[WEBP].at[2].len);
    memcpy(s->data + 24, "\xfe\xff\0\xfe\xff", 6);
    expect(s, -1, "WebP of 65535 x 65535");
    str_clear(s);
    str_append(s, sources[GIF].at[0].data, sources[GIF].at[0].len);
    memset(s->data + 6, 255, 4);
    expect(s, -1, "GIF of 65535 x 65535");
    str_clear(s); /* a small canvas and a frame that is not */
    str_append(s, frame, sizeof frame - 1);
    expect(s, -1, "GIF with a frame of 65535 x 65535");
}

/* All that a picture may have, from a few bytes; and texts that nobody reads. long_form: 40 million pixels. */
static void swellings(str *s, bool long_form) {
    uint32_t w = long_form ? 16384 : 2048, h = long_form ? 2441 : 305;
    str      body, text;
    str_init(&body);
    str_init(&text);
    squeeze(&body, ((size_t)w * 4 + 1) * h, 0);
    begin_png(s, w, h, 8, PNG_COLOR_TYPE_RGBA);
    chunk(s, "IDAT", body.data, body.len);
    chunk(s, "IEND", "", 0);
    expect(s, 0, "PNG of many equal pixels");
    str_append(&text, "a\0\0", 3);
    squeeze(&text, 7 << 20, 'x');
    str_clear(&body);
    squeeze(&body, 4 * (4 * 4 + 1), 0);
    begin_png(s, 4, 4, 8, PNG_COLOR_TYPE_RGBA);
    for (int i = 0; i < (long_form ? 250 : 20); i++) chunk(s, "zTXt", text.data, text.len);
    chunk(s, "IDAT", body.data, body.len);
    chunk(s, "IEND", "", 0);
    expect(s, 0, "PNG with large texts");
    str_deinit(&body);
    str_deinit(&text);
}

/* A progressive file whose last scan comes again and again. */
static void scans(str *s, bool long_form) {
    int      w = long_form ? 6000 : 600, h = w;
    uint8_t *rgb = calloc((size_t)w * (size_t)h, 3);
    str      file;
    size_t   last = 0;
    if (!rgb) fail("out of memory", "bombs", 0);
    str_init(&file);
    encode_jpeg(&file, w, h, rgb, 50, true, 0);
    free(rgb);
    for (size_t i = 0; i + 1 < file.len; i++) {
        if (memcmp(file.data + i, "\xff\xda", 2) == 0) last = i;
    }
    for (int n = 150; n <= 300; n += 150) {
        str_clear(s);
        str_append(s, file.data, file.len - 2);
        for (int i = 0; i < n; i++) str_append(s, file.data + last, file.len - 2 - last);
        str_append(s, "\xff\xd9", 2);
        expect(s, n > 200 ? -1 : 0, n > 200 ? "JPEG of 300 scans" : "JPEG of 150 scans");
    }
    str_deinit(&file);
}

int main(int argc, char **argv) {
    long          n = argc > 1 ? atol(argv[1]) : 100;
    uint64_t      seed = argc > 2 ? (uint64_t)atoll(argv[2]) : 1;
    struct rusage used;
    str           s;
    make_sources();
    str_init(&s);
    for (int f = 0; f < FORMATS; f++) {
        for (int k = 0; k < sources[f].n; k++) {
            if (judge(&sources[f].at[k], names[f], k, false) < 0) fail("a good file is refused", names[f], k);
        }
        mutated((format)f, n, seed);
        cut((format)f);
    }
    claims(&s);
    swellings(&s, n >= 1000);
    scans(&s, n >= 1000);
    str_deinit(&s);
    for (int f = 0; f < FORMATS; f++) {
        for (int k = 0; k < sources[f].n; k++) str_deinit(&sources[f].at[k]);
    }
    getrusage(RUSAGE_SELF, &used);
    printf("%ld files read, %ld refused, %ld of them asked of the decoder's process, too; the slowest took %.2f s, all "
           "%.1f s of processor time; at most %ld MiB\n",
           n_read, n_refused, n_processes, slowest, cpu_seconds(), used.ru_maxrss >> 10);
    if (used.ru_maxrss > MOST_RSS_KIB) fail("too much memory", "all", 0);
    return 0;
}
